//! Failures of nodes, networks and the database, in random order.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::postgres_server::Stop;
use crate::stage::{LEASE, Stage};

/// Pseudo-random numbers, the same for the same seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// Returns an index below `count`.
    pub fn of(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }
}

/// Returns the seed: EPITOME_TEST_SEED if it is set, otherwise from the time.
pub fn seed() -> u64 {
    let set = std::env::var("EPITOME_TEST_SEED").ok();
    set.map_or_else(
        || u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos()),
        |seed| seed.parse().expect("EPITOME_TEST_SEED is a whole number"),
    )
}

/// A failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A node is killed, and started again.
    Node,
    /// A node is frozen for longer than its leases, and woken.
    Frozen,
    /// The database is stopped in order, and started again.
    Restart,
    /// It is stopped without any.
    Immediate,
    /// Its first process is killed.
    Postmaster,
    /// A node's connections to it are broken off, once.
    Cut,
    /// The same, and no new ones can be made for a while.
    Unplugged,
    /// No data passes between a node and the database for a while.
    Silence,
    /// A node is killed while the database is stopped, and started before it is there again.
    Both,
}

const ALL: [Failure; 9] = [
    Failure::Frozen,
    Failure::Node,
    Failure::Silence,
    Failure::Restart,
    Failure::Unplugged,
    Failure::Postmaster,
    Failure::Cut,
    Failure::Immediate,
    Failure::Both,
];

impl Failure {
    /// Injects the failure at a node, waits a while, and ends it.
    pub fn inject(self, stage: &Stage, node: usize, random: &mut Random) {
        let mut pause = |most: u64| std::thread::sleep(Duration::from_millis(200 + random.below(most)));
        let node = &stage.nodes[node];
        match self {
            Failure::Node => {
                node.kill();
                pause(1_500);
                node.start();
            }
            Failure::Frozen => {
                node.freeze();
                std::thread::sleep(LEASE);
                pause(2_000);
                node.wake();
            }
            Failure::Restart | Failure::Immediate => {
                stage.cluster.stop(if self == Failure::Restart { Stop::Fast } else { Stop::Immediate });
                pause(1_500);
                stage.cluster.start();
            }
            Failure::Postmaster => {
                stage.cluster.kill();
                stage.cluster.start();
            }
            Failure::Cut => node.network.cut_once(),
            Failure::Unplugged => {
                node.network.cut();
                pause(3_000);
                node.network.heal();
            }
            Failure::Silence => {
                node.network.silence();
                pause(4_000);
                node.network.heal();
            }
            Failure::Both => {
                stage.cluster.stop(Stop::Fast);
                node.kill();
                pause(1_000);
                node.start();
                pause(1_000);
                stage.cluster.start();
            }
        }
    }
}

/// Returns all failures, each once, in random order.
pub fn shuffled(random: &mut Random) -> Vec<Failure> {
    let mut left = ALL.to_vec();
    let mut order = Vec::new();
    while !left.is_empty() {
        order.push(left.remove(random.of(left.len())));
    }
    order
}
