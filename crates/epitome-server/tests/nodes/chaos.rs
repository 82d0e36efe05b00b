//! Sixteen writers while one failure after the other is injected.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::failures::{Failure, Random, seed, shuffled};
use crate::history::{Acknowledged, faults};
use crate::leases::{calls, calls_without_lease, fences_that_did_not_grow, leases, record_leases};
use crate::provider::Act;
use crate::stage::{LIMIT, NODES, Node, Stage, Writes};
use crate::writers::{AcknowledgedAppends, Load, watch, write};

const WRITERS: usize = 16;

/// Sessions whose summaries are looked at all the while.
const WATCHED: [&str; 3] = ["s-all-0", "s-all-1", "s-own-0"];

/// Has all writers write while failures are injected, and returns what was acknowledged to each.
fn under_load(
    stage: &Stage,
    seed: u64,
    failures: &[Failure],
    random: &mut Random,
) -> Vec<AcknowledgedAppends> {
    let load = Load::default();
    let nodes = stage.addresses();
    std::thread::scope(|scope| {
        let (load, nodes) = (&load, &nodes);
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(writer, nodes, seed, load))).collect();
        let watchers: Vec<_> =
            WATCHED.map(|session| scope.spawn(move || watch(session, nodes, load))).into_iter().collect();
        // However this ends, the others are told.
        let _stop = Stop(load);
        let begun = Instant::now();
        goes_on(load, 32);
        for failure in failures {
            let node = random.of(NODES);
            eprintln!("{:>6.1} s: {failure:?} at node {}", begun.elapsed().as_secs_f32(), node + 1);
            // A silent model is called again, or another one is, under the same lease.
            stage.nodes.iter().for_each(|node| {
                node.provider.then(Act::Empty);
            });
            failure.inject(stage, node, random);
            goes_on(load, 16);
            std::thread::sleep(Duration::from_millis(random.below(1_500)));
        }
        let (told, again) = (load.acknowledged.load(Ordering::Relaxed), load.again.load(Ordering::Relaxed));
        eprintln!(
            "{:>6.1} s: {told} appends acknowledged, {again} sent again",
            begun.elapsed().as_secs_f32()
        );
        load.stop.store(true, Ordering::Relaxed);
        let looked: Vec<usize> = watchers.into_iter().map(|one| one.join().unwrap()).collect();
        assert!(looked.iter().all(|times| *times > 10), "{looked:?}");
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

struct Stop<'a>(&'a Load);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Waits until so many more appends are acknowledged.
fn goes_on(load: &Load, more: usize) {
    let enough = load.acknowledged.load(Ordering::Relaxed) + more;
    let begun = Instant::now();
    while load.acknowledged.load(Ordering::Relaxed) < enough {
        assert!(begun.elapsed() < LIMIT, "nothing is acknowledged any more");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn check(seed: u64, failures: impl FnOnce(&mut Random) -> Vec<Failure>) {
    eprintln!("EPITOME_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let failures = failures(&mut random);
    let stage = Stage::set(Writes::Provider);
    record_leases(&stage);
    let told = under_load(&stage, seed, &failures, &mut random);
    stage.nodes.iter().for_each(Node::until_ready);

    // Everything due is done in the end.
    stage.settle();
    let behind = stage.database.psql(
        "SELECT sessions.name, slots.name, head, covered FROM epitome.slots JOIN epitome.sessions ON id = session
         WHERE head - covered >= CASE slots.name WHEN 'short' THEN 20 ELSE 60 END",
    );
    assert_eq!(behind, "", "summaries are behind");

    // Every acknowledged message once, in order, densely numbered; and no other.
    let mut sessions: BTreeMap<String, Vec<Acknowledged>> = BTreeMap::new();
    for told in told {
        for (session, mut appends) in told {
            sessions.entry(session).or_default().append(&mut appends);
        }
    }
    let mut messages = 0;
    for (session, told) in &sessions {
        let log = stage.log(session);
        messages += log.len();
        let faults = faults(&log, told);
        assert!(faults.is_empty(), "{session}: {faults:#?}");
    }

    // No call without a lease, no fence twice.
    let leases = leases(&stage);
    let without_lease = calls_without_lease(&stage, &leases);
    let stale = fences_that_did_not_grow(&leases);
    let call_counts: Vec<usize> = stage.nodes.iter().map(|node| calls(node).len()).collect();
    eprintln!("{messages} messages, {} leases, {call_counts:?} calls", leases.len());
    assert!(without_lease.is_empty(), "called without a lease: {without_lease:#?}\n{leases:#?}");
    assert!(stale.is_empty(), "{stale:#?}");
    assert!(call_counts.iter().all(|calls| *calls > 0), "every node wrote summaries: {call_counts:?}");

    // No summary by a stale fence, none that reaches less far, no window twice: the checker knows.
    stage.verify();
}

#[test]
fn no_failure_loses_doubles_or_skips_anything() {
    check(seed(), |random| [shuffled(random), shuffled(random)].concat());
}

/// Another seed, and fewer of them.
#[test]
fn failures_in_another_order_lose_nothing() {
    check(seed().wrapping_mul(31).wrapping_add(7), |random| {
        let mut failures = shuffled(random);
        failures.truncate(4);
        failures
    });
}
