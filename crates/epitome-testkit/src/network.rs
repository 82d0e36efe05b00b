//! A network between a node and its database that can be made to fail: a proxy on loopback.
//!
//! It passes bytes on as they come. Told so, it breaks connections off, says nothing any more, is slow, or breaks one
//! connection off at the very moment at which certain bytes pass: just before a `COMMIT` arrives, or just before its
//! answer does. It has a thread and a runtime of its own, so that it goes on whatever the test does.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// How it is with the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    bytes: Bytes,
    /// How often it was cut. A cut that healed at once is seen by this alone.
    cuts: u64,
}

/// What becomes of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bytes {
    Pass,
    Break,
    Stay,
    /// The network is dropped.
    Gone,
}

/// Where bytes are going.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toward {
    Database,
    Node,
}

/// Whether the bytes that are waited for, and what came with them, still arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// They do not: nothing from them on does.
    Before,
    /// They do, and nothing after them. Whether who gets them can still act on them is open.
    After,
}

/// Waits for bytes to pass.
#[derive(Debug)]
struct Trap {
    toward: Toward,
    pattern: Vec<u8>,
    when: When,
    times: usize,
    /// Whether all connections are broken off then, and stay so, and not only the one.
    all: bool,
}

#[derive(Debug)]
struct Shared {
    state: watch::Sender<State>,
    delay: Mutex<Duration>,
    trap: Mutex<Option<Trap>>,
    sprung: AtomicUsize,
    open: AtomicUsize,
    taken: AtomicUsize,
    heard: AtomicUsize,
    longest: AtomicUsize,
}

impl Shared {
    fn cut(&self) {
        self.state.send_modify(|state| *state = State { bytes: Bytes::Break, cuts: state.cuts + 1 });
    }
}

/// The way to one address. It is gone, with all connections, when this is dropped.
#[derive(Debug)]
pub struct Network {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// A way to this address.
    pub fn to(target: SocketAddr) -> Network {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback can be listened on");
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: watch::Sender::new(State { bytes: Bytes::Pass, cuts: 0 }),
            delay: Mutex::default(),
            trap: Mutex::default(),
            sprung: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            heard: AtomicUsize::new(0),
            longest: AtomicUsize::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || runtime.block_on(listen(listener, target, theirs)));
        Network { shared, address, thread: Some(thread) }
    }

    /// Where nodes are to connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection off, both ways, and from now on every new one as soon as it is made.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Breaks every connection off; new ones are fine.
    pub fn cut_once(&self) {
        self.cut();
        self.heal();
    }

    /// Nothing arrives any more and nothing is told of it: connections stay open, new ones are taken and hear nothing.
    /// What was sent meanwhile arrives when it heals, as on a network whose cable was put back in.
    pub fn silence(&self) {
        self.shared.state.send_modify(|state| state.bytes = Bytes::Stay);
    }

    /// All is well again. A delay and what is waited for stay.
    pub fn heal(&self) {
        self.shared.state.send_modify(|state| state.bytes = Bytes::Pass);
    }

    /// Whatever is sent arrives this much later, in each direction.
    pub fn delay(&self, delay: Duration) {
        *locked(&self.shared.delay) = delay;
    }

    /// Breaks a connection off when these bytes pass in it, `times` times in all; the others stay. One pattern is waited
    /// for at a time.
    pub fn cut_when(&self, toward: Toward, pattern: &[u8], when: When, times: usize) {
        self.wait_for(Trap { toward, pattern: pattern.to_vec(), when, times, all: false });
    }

    /// As [`Network::cut`], when these bytes pass in any connection.
    pub fn cut_all_when(&self, toward: Toward, pattern: &[u8], when: When) {
        self.wait_for(Trap { toward, pattern: pattern.to_vec(), when, times: 1, all: true });
    }

    fn wait_for(&self, trap: Trap) {
        assert!(!trap.pattern.is_empty() && trap.times > 0, "something must be waited for");
        *locked(&self.shared.trap) = Some(trap);
    }

    /// How often a connection was broken off by what passed in it.
    pub fn sprung(&self) -> usize {
        self.shared.sprung.load(Ordering::SeqCst)
    }

    /// How many connections there are now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many connections were ever made, also such as were broken off at once.
    pub fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::SeqCst)
    }

    /// How many bytes the database sent.
    pub fn heard(&self) -> usize {
        self.shared.heard.load(Ordering::SeqCst)
    }

    /// How many bytes the database sent at most in a connection without anything being said to it in between.
    pub fn longest(&self) -> usize {
        self.shared.longest.load(Ordering::SeqCst)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shared.state.send_modify(|state| state.bytes = Bytes::Gone);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(listener: std::net::TcpListener, target: SocketAddr, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).unwrap();
    let mut state = shared.state.subscribe();
    let mut gone = pin!(state.wait_for(|state| state.bytes == Bytes::Gone));
    loop {
        tokio::select! {
            _ = &mut gone => return,
            taken = listener.accept() => {
                let Ok((node, _)) = taken else { continue };
                shared.taken.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    shared.open.fetch_add(1, Ordering::SeqCst);
                    pass(node, target, &shared).await;
                    shared.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        }
    }
}

/// One connection, until it ends.
async fn pass(mut node: TcpStream, target: SocketAddr, shared: &Shared) {
    let _ = node.set_nodelay(true);
    let mut state = shared.state.subscribe();
    let cuts = state.borrow().cuts;
    let broken = async {
        let _ =
            state.wait_for(|now| now.cuts != cuts || matches!(now.bytes, Bytes::Break | Bytes::Gone)).await;
    };
    let passing = async {
        until_whole(shared).await;
        let mut database = TcpStream::connect(target).await?;
        let _ = database.set_zero_linger();
        let _ = database.set_nodelay(true);
        let (from_node, to_node) = node.split();
        let (from_database, to_database) = database.split();
        let answer = AtomicUsize::new(0);
        let sent = pump(from_node, to_database, Toward::Database, shared, &answer);
        let heard = pump(from_database, to_node, Toward::Node, shared, &answer);
        tokio::try_join!(sent, heard).map(|_| ())
    };
    let closed = tokio::select! {
        () = broken => false,
        // Also an error ends both.
        passed = passing => passed.is_ok(),
    };
    if !closed {
        // Broken off, not closed: the other end gets an error at once, and what was on its way is lost.
        let _ = node.set_zero_linger();
    }
}

async fn until_whole(shared: &Shared) {
    let _ = shared.state.subscribe().wait_for(|state| state.bytes == Bytes::Pass).await;
}

/// One direction, until who sends closes it. An error breaks both off.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    toward: Toward,
    shared: &Shared,
    answer: &AtomicUsize,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    // The end of what passed before, in which a pattern may begin.
    let mut before: Vec<u8> = Vec::new();
    loop {
        let read = from.read(&mut bytes).await?;
        let delay = *locked(&shared.delay);
        if !delay.is_zero() {
            sleep(delay).await;
        }
        until_whole(shared).await;
        if read == 0 {
            return to.shutdown().await;
        }
        match toward {
            Toward::Node => {
                shared.heard.fetch_add(read, Ordering::SeqCst);
                let answer = answer.fetch_add(read, Ordering::SeqCst) + read;
                shared.longest.fetch_max(answer, Ordering::SeqCst);
            }
            Toward::Database => answer.store(0, Ordering::SeqCst),
        }
        match springs(&mut before, &bytes[..read], toward, shared) {
            Some(When::Before) => return Err(io::ErrorKind::ConnectionReset.into()),
            Some(When::After) => {
                to.write_all(&bytes[..read]).await?;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            None => to.write_all(&bytes[..read]).await?,
        }
    }
}

fn springs(before: &mut Vec<u8>, now: &[u8], toward: Toward, shared: &Shared) -> Option<When> {
    let mut trap = locked(&shared.trap);
    let Some(set) = trap.as_mut().filter(|set| set.toward == toward) else {
        before.clear();
        return None;
    };
    before.extend_from_slice(now);
    if !before.windows(set.pattern.len()).any(|passing| passing == set.pattern) {
        before.drain(..before.len().saturating_sub(set.pattern.len() - 1));
        return None;
    }
    let when = set.when;
    if set.all {
        shared.cut();
    }
    set.times -= 1;
    if set.times == 0 {
        *trap = None;
    }
    shared.sprung.fetch_add(1, Ordering::SeqCst);
    Some(when)
}
