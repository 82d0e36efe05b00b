//! The README's walk-through on three nodes, while one plug at a time is pulled: its reader notices nothing but a delay.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::stage::{NODES, Stage, Writes};
use crate::trouble::{Lot, Plug, seed};
use crate::typing::{blocks, typed};

/// Those that are not the node that is talked to. A client of a node that is killed would have to turn to another.
const PLUGS: [Plug; 8] = [
    Plug::Node,
    Plug::Frozen,
    Plug::Restart,
    Plug::Immediate,
    Plug::Postmaster,
    Plug::Cut,
    Plug::Unplugged,
    Plug::Silence,
];

/// Types what the README shows to one node after the other, while a plug is pulled, and again after a while.
fn check(stage: &Stage, plug: Plug, lot: &mut Lot) {
    let folder = tempfile::tempdir().unwrap();
    let (done, talked_to) = (AtomicBool::new(false), Mutex::new(0));
    let mut pulled = 0;
    std::thread::scope(|scope| {
        let typing = scope.spawn(|| {
            let _done = Done(&done);
            let mut set = String::new();
            let mut tried = 0;
            for (at, block) in
                blocks("console").into_iter().filter(|block| block.contains("$API")).enumerate()
            {
                let node = &stage.nodes[at % NODES];
                // Waits where just this node is being killed.
                *talked_to.lock().unwrap() = at % NODES;
                let session = format!("{}/v1/sessions/ann-{plug:?}", node.address);
                let block = block.replace("localhost:7878/v1/sessions/ann", &session);
                // What was exported before is another node's address now.
                set = set.split("127.0.0.1:").next().unwrap_or_default().to_owned();
                if !set.is_empty() {
                    set = format!("export API={session}; ");
                }
                tried += typed(folder.path(), &block, &mut set);
                // Whoever types takes longer than a summary does.
                stage.settle_at(at % NODES);
            }
            assert!(tried >= 6, "{tried}");
        });
        while !done.load(Ordering::SeqCst) {
            let talked_to = talked_to.lock().unwrap();
            if matches!(plug, Plug::Node | Plug::Frozen) {
                let other = (*talked_to + 1) % NODES;
                plug.pull(stage, other, lot);
                stage.nodes[other].until_ready();
                drop(talked_to);
            } else {
                let node = *talked_to;
                drop(talked_to);
                plug.pull(stage, node, lot);
            }
            pulled += 1;
            // One at a time: it is well again before the next is pulled.
            let well = Instant::now() + Duration::from_millis(1_500 + lot.below(1_500));
            while Instant::now() < well && !done.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        typing.join().unwrap();
    });
    eprintln!("{plug:?} was pulled {pulled} times");
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn whoever_follows_the_readme_notices_nothing_but_a_delay() {
    let seed = seed();
    eprintln!("EPITOME_TEST_SEED={seed}");
    let mut lot = Lot::new(seed);
    let stage = Stage::set(Writes::Local);
    for plug in PLUGS {
        check(&stage, plug, &mut lot);
    }
    stage.verify();
}
