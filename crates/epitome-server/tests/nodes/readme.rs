//! The README's walk-through on three nodes, while one failure at a time is injected: its reader notices nothing but a delay.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::balancer;
use crate::failures::{Failure, Random, seed, shuffled};
use crate::stage::{NODES, Stage, Writes};
use crate::typing::{blocks, typed};

/// Types what the README shows at the nodes' common balancer, while a failure is injected, and again after a while.
fn check(stage: &Stage, balancer: SocketAddr, failure: Failure, random: &mut Random) {
    let folder = tempfile::tempdir().unwrap();
    let done = AtomicBool::new(false);
    let mut injected = 0;
    std::thread::scope(|scope| {
        let typing = scope.spawn(|| {
            let _done = Done(&done);
            let (mut set, mut tried) = (String::new(), 0);
            for block in blocks("console").into_iter().filter(|block| block.contains("$API")) {
                let session = format!("{balancer}/v1/sessions/ann-{failure:?}");
                let block = block.replace("localhost:7878/v1/sessions/ann", &session);
                // If a node dies after it has stored an append, the balancer sends the append to another node. The
                // response then reports that the append is repeated.
                let block = block.replace("\"repeated\":false}", "\"repeated\":...");
                tried += typed(folder.path(), &block, &mut set);
                // Whoever types takes longer than a summary does.
                stage.settle_at(balancer);
            }
            assert!(tried >= 6, "{tried}");
        });
        while !done.load(Ordering::SeqCst) {
            let node = random.of(NODES);
            failure.inject(stage, node, random);
            stage.nodes[node].until_ready();
            injected += 1;
            // One at a time: it is well again before the next is injected.
            let well = Instant::now() + Duration::from_millis(1_500 + random.below(1_500));
            while Instant::now() < well && !done.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        typing.join().unwrap();
    });
    eprintln!("{failure:?} was injected {injected} times");
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
    let mut random = Random::new(seed);
    let stage = Stage::set(Writes::Local);
    let balancer = balancer::start(stage.addresses());
    for failure in shuffled(&mut random) {
        check(&stage, balancer, failure, &mut random);
    }
    stage.verify();
}
