//! The README's walk-through on three nodes, while one plug at a time is pulled: its reader notices nothing but a delay.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::door;
use crate::stage::{NODES, Stage, Writes};
use crate::trouble::{Lot, Plug, drawn, seed};
use crate::typing::{blocks, typed};

/// Types what the README shows at the nodes' common door, while a plug is pulled, and again after a while.
fn check(stage: &Stage, door: SocketAddr, plug: Plug, lot: &mut Lot) {
    let folder = tempfile::tempdir().unwrap();
    let done = AtomicBool::new(false);
    let mut pulled = 0;
    std::thread::scope(|scope| {
        let typing = scope.spawn(|| {
            let _done = Done(&done);
            let (mut set, mut tried) = (String::new(), 0);
            for block in blocks("console").into_iter().filter(|block| block.contains("$API")) {
                let session = format!("{door}/v1/sessions/ann-{plug:?}");
                let block = block.replace("localhost:7878/v1/sessions/ann", &session);
                tried += typed(folder.path(), &block, &mut set);
                // Whoever types takes longer than a summary does.
                stage.settle_at(door);
            }
            assert!(tried >= 6, "{tried}");
        });
        while !done.load(Ordering::SeqCst) {
            let node = lot.of(NODES);
            plug.pull(stage, node, lot);
            stage.nodes[node].until_ready();
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
fn a_reader_of_the_readme_notices_only_a_delay() {
    let seed = seed();
    eprintln!("EPITOME_TEST_SEED={seed}");
    let mut lot = Lot::new(seed);
    let stage = Stage::set(Writes::Local);
    let door = door::open(stage.addresses());
    for plug in drawn(&mut lot) {
        check(&stage, door, plug, &mut lot);
    }
    stage.verify();
}
