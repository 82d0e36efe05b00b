//! A node that was frozen while its lease expired.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::leases::{calls, leases, past, record_leases};
use crate::provider::Act;
use crate::request::{read, send};
use crate::stage::{LEASE, LIMIT, Node, Stage, Writes};

/// Waits for something that must come.
fn until(what: &str, mut come: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !come() {
        assert!(begun.elapsed() < LIMIT, "in vain it was waited until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Twenty messages: one summary is due.
fn fill(node: &Node, session: &str) {
    let body: Value = (0..20)
        .map(|n| json!({"role": "user", "content": format!("in {session} somebody says number {n}: the parcel went \
            from Oslo to Bergen by ship and Ann wants to know who signed for it at the door")}))
        .collect();
    let path = format!("/v1/sessions/{session}/messages");
    send(node.address, ("POST", &path), None, Some(&body), LIMIT).unwrap().ok();
}

fn summaries(node: &Node, session: &str) -> usize {
    let path = format!("/v1/sessions/{session}/summaries");
    read(node.address, &path, LIMIT).unwrap().ok()["items"].as_array().unwrap().len()
}

fn lost(node: &Node) -> bool {
    let figures = read(node.address, "/metrics", LIMIT).unwrap().text();
    figures.lines().any(|line| line.starts_with("epitome_lease_losses_total") && !line.ends_with(" 0"))
}

/// The node is frozen while it waits for its model. Meanwhile its lease runs out, another node does the work, and the
/// model's connection breaks. Another model would be next, and it must not be called: either the lease cannot be renewed, or
/// the clock says that it ran out, whichever is seen first.
#[test]
fn a_node_that_wakes_after_its_lease_calls_no_model_and_stores_nothing() {
    let stage = Stage::set(Writes::Provider);
    record_leases(&stage);
    let [one, two, three] = stage.nodes.as_slice() else { panic!("there are three") };
    // The first one alone, and its model says nothing.
    two.kill();
    three.kill();
    one.provider.always(Act::Silent);
    fill(one, "s-a");
    until("the model is called", || one.provider.calls() == 1);
    one.freeze();
    two.start();
    two.until_ready();
    std::thread::sleep(past(LEASE));
    until("another node has written it", || summaries(two, "s-a") == 1);
    stage.lose_calls(one);
    one.provider.heal();
    one.wake();
    until("it has noticed", || lost(one));
    // It is well again: what is due now it may do.
    two.kill();
    fill(one, "s-b");
    until("it works again", || summaries(one, "s-b") == 1);
    let called: Vec<String> = calls(one).into_iter().map(|call| call.session).collect();
    assert_eq!(called, ["s-a", "s-b"], "once before it was frozen, and then only for its new lease");
    let leases: Vec<(String, String)> =
        leases(&stage).into_iter().map(|lease| (lease.node, lease.session)).collect();
    let known = [("node_1", "s-a"), ("node_2", "s-a"), ("node_1", "s-b")];
    assert_eq!(leases, known.map(|(node, session)| (node.to_owned(), session.to_owned())));
    stage.verify();
}
