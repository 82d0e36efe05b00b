//! A loopback proxy between a node (a process of Epitome) and its database. The proxy simulates network faults.
//!
//! By default, the proxy forwards bytes unchanged. A test can let the proxy break connections, stop forwarding, or
//! delay bytes. A test can also let the proxy break a connection exactly when certain bytes pass: for example, just
//! before a `COMMIT` reaches the database, or just before the answer to the `COMMIT` reaches the node. The proxy has
//! its own thread and runtime, so it does not depend on the test's runtime.

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

/// The state of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NetworkState {
    bytes: Bytes,
    /// Number of cuts so far. If a cut was healed immediately, only this number shows the cut.
    cuts: u64,
}

/// What the proxy does with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bytes {
    Pass,
    Break,
    Stay,
    /// The [`Network`] was dropped, so the proxy must end.
    Gone,
}

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toward {
    Database,
    Node,
}

/// Whether the matched bytes still arrive. Bytes that were sent together with the matched bytes are treated in the
/// same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Neither the matched bytes nor any later bytes arrive.
    Before,
    /// The matched bytes arrive, but no later bytes. The receiver may or may not process the matched bytes before the
    /// connection breaks.
    After,
}

/// Breaks connections when a byte pattern passes.
#[derive(Debug)]
struct PatternTrap {
    toward: Toward,
    pattern: Vec<u8>,
    when: When,
    times: usize,
    /// Whether to break all connections permanently, instead of only the connection through which the pattern passed.
    all: bool,
}

#[derive(Debug)]
struct NetworkShared {
    state: watch::Sender<NetworkState>,
    delay: Mutex<Duration>,
    trap: Mutex<Option<PatternTrap>>,
    matches: AtomicUsize,
    open: AtomicUsize,
    accepted: AtomicUsize,
    bytes_from_database: AtomicUsize,
    longest_response: AtomicUsize,
}

impl NetworkShared {
    fn cut(&self) {
        self.state.send_modify(|state| *state = NetworkState { bytes: Bytes::Break, cuts: state.cuts + 1 });
    }
}

/// A proxy to one address. Dropping this value ends the proxy and all its connections.
#[derive(Debug)]
pub struct Network {
    shared: Arc<NetworkShared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Starts a proxy to this address.
    pub fn to(target: SocketAddr) -> Network {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port on loopback is available");
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(NetworkShared {
            state: watch::Sender::new(NetworkState { bytes: Bytes::Pass, cuts: 0 }),
            delay: Mutex::default(),
            trap: Mutex::default(),
            matches: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            bytes_from_database: AtomicUsize::new(0),
            longest_response: AtomicUsize::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let for_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || runtime.block_on(listen(listener, target, for_thread)));
        Network { shared, address, thread: Some(thread) }
    }

    /// Returns the address to which nodes connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks all connections in both directions. Until [`Network::heal`], also breaks every new connection
    /// immediately.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Breaks all open connections. New connections work.
    pub fn cut_once(&self) {
        self.cut();
        self.heal();
    }

    /// Stops forwarding without an error: connections stay open, and new connections are accepted, but no bytes
    /// arrive. Bytes that are sent in the meantime arrive after [`Network::heal`], as on a network whose cable was
    /// plugged in again.
    pub fn silence(&self) {
        self.shared.state.send_modify(|state| state.bytes = Bytes::Stay);
    }

    /// Restores the network. A delay stays set, and so does a pattern that has not passed yet.
    pub fn heal(&self) {
        self.shared.state.send_modify(|state| state.bytes = Bytes::Pass);
    }

    /// Delays all bytes by this duration, in both directions.
    pub fn delay(&self, delay: Duration) {
        *locked(&self.shared.delay) = delay;
    }

    /// Breaks a connection when it forwards these bytes. Other connections stay open. After the pattern has
    /// passed `times` times, it is removed. Only one pattern can be set at a time.
    pub fn cut_when(&self, toward: Toward, pattern: &[u8], when: When, times: usize) {
        self.wait_for(PatternTrap { toward, pattern: pattern.to_vec(), when, times, all: false });
    }

    /// Acts like [`Network::cut`] when any connection forwards these bytes.
    pub fn cut_all_when(&self, toward: Toward, pattern: &[u8], when: When) {
        self.wait_for(PatternTrap { toward, pattern: pattern.to_vec(), when, times: 1, all: true });
    }

    fn wait_for(&self, trap: PatternTrap) {
        assert!(!trap.pattern.is_empty() && trap.times > 0, "a trap needs a pattern and a count");
        *locked(&self.shared.trap) = Some(trap);
    }

    /// Returns the number of times that a byte pattern passed and broke connections.
    pub fn matches(&self) -> usize {
        self.shared.matches.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Returns the number of connections ever accepted, including those that were broken immediately.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes that the database sent.
    pub fn bytes_from_database(&self) -> usize {
        self.shared.bytes_from_database.load(Ordering::SeqCst)
    }

    /// Returns the size of the longest response, in bytes. A response is everything that the database sends through
    /// one connection between two requests.
    pub fn longest_response(&self) -> usize {
        self.shared.longest_response.load(Ordering::SeqCst)
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

async fn listen(listener: std::net::TcpListener, target: SocketAddr, shared: Arc<NetworkShared>) {
    let listener = TcpListener::from_std(listener).unwrap();
    let mut state = shared.state.subscribe();
    let mut gone = pin!(state.wait_for(|state| state.bytes == Bytes::Gone));
    loop {
        tokio::select! {
            _ = &mut gone => return,
            accepted = listener.accept() => {
                let Ok((node, _)) = accepted else { continue };
                shared.accepted.fetch_add(1, Ordering::SeqCst);
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

/// Forwards one connection until it ends.
async fn pass(mut node: TcpStream, target: SocketAddr, shared: &NetworkShared) {
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
        let bytes_from_database = pump(from_database, to_node, Toward::Node, shared, &answer);
        tokio::try_join!(sent, bytes_from_database).map(|_| ())
    };
    let closed = tokio::select! {
        () = broken => false,
        // An error in one direction ends both directions.
        passed = passing => passed.is_ok(),
    };
    if !closed {
        // Resets the connection instead of closing it. So the other end gets an error, and bytes in transit are lost.
        let _ = node.set_zero_linger();
    }
}

async fn until_whole(shared: &NetworkShared) {
    let _ = shared.state.subscribe().wait_for(|state| state.bytes == Bytes::Pass).await;
}

/// Forwards the bytes of one direction until the sender closes the connection. An error breaks both directions.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    toward: Toward,
    shared: &NetworkShared,
    answer: &AtomicUsize,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    // The last bytes of the previous read. A pattern may begin in these bytes.
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
                shared.bytes_from_database.fetch_add(read, Ordering::SeqCst);
                let answer = answer.fetch_add(read, Ordering::SeqCst) + read;
                shared.longest_response.fetch_max(answer, Ordering::SeqCst);
            }
            Toward::Database => answer.store(0, Ordering::SeqCst),
        }
        match match_pattern(&mut before, &bytes[..read], toward, shared) {
            Some(When::Before) => return Err(io::ErrorKind::ConnectionReset.into()),
            Some(When::After) => {
                to.write_all(&bytes[..read]).await?;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            None => to.write_all(&bytes[..read]).await?,
        }
    }
}

fn match_pattern(before: &mut Vec<u8>, now: &[u8], toward: Toward, shared: &NetworkShared) -> Option<When> {
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
    shared.matches.fetch_add(1, Ordering::SeqCst);
    Some(when)
}
