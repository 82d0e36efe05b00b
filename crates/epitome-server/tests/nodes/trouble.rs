//! Trouble, drawn by lot.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::postgres_server::Stop;
use crate::stage::{LEASE, Stage};

/// Numbers that look drawn, and are the same for the same seed.
#[derive(Debug, Clone)]
pub struct Lot(u64);

impl Lot {
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

    /// One of so many things.
    pub fn of(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }
}

/// What is drawn from: EPITOME_TEST_SEED where it is set, or the time.
pub fn seed() -> u64 {
    let set = std::env::var("EPITOME_TEST_SEED").ok();
    set.map_or_else(
        || u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos()),
        |seed| seed.parse().expect("EPITOME_TEST_SEED is a whole number"),
    )
}

/// Which plug is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plug {
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
    /// A node and the database do not hear each other for a while.
    Silence,
    /// A node is killed while the database is stopped, and started before it is there again.
    Both,
}

const ALL: [Plug; 9] = [
    Plug::Frozen,
    Plug::Node,
    Plug::Silence,
    Plug::Restart,
    Plug::Unplugged,
    Plug::Postmaster,
    Plug::Cut,
    Plug::Immediate,
    Plug::Both,
];

impl Plug {
    /// Pulls it at a node, waits a while, and puts it back.
    pub fn pull(self, stage: &Stage, node: usize, lot: &mut Lot) {
        let mut a_while = |most: u64| std::thread::sleep(Duration::from_millis(200 + lot.below(most)));
        let node = &stage.nodes[node];
        match self {
            Plug::Node => {
                node.kill();
                a_while(1_500);
                node.start();
            }
            Plug::Frozen => {
                node.freeze();
                std::thread::sleep(LEASE);
                a_while(2_000);
                node.wake();
            }
            Plug::Restart | Plug::Immediate => {
                stage.cluster.stop(if self == Plug::Restart { Stop::Fast } else { Stop::Immediate });
                a_while(1_500);
                stage.cluster.start();
            }
            Plug::Postmaster => {
                stage.cluster.kill();
                stage.cluster.start();
            }
            Plug::Cut => node.network.cut_once(),
            Plug::Unplugged => {
                node.network.cut();
                a_while(3_000);
                node.network.heal();
            }
            Plug::Silence => {
                node.network.silence();
                a_while(4_000);
                node.network.heal();
            }
            Plug::Both => {
                stage.cluster.stop(Stop::Fast);
                node.kill();
                a_while(1_000);
                node.start();
                a_while(1_000);
                stage.cluster.start();
            }
        }
    }
}

/// All plugs, each once, in an order that is drawn.
pub fn drawn(lot: &mut Lot) -> Vec<Plug> {
    let mut left = ALL.to_vec();
    let mut order = Vec::new();
    while !left.is_empty() {
        order.push(left.remove(lot.of(left.len())));
    }
    order
}
