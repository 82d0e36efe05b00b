//! Without failures, no request fails.

use serde_json::json;

use crate::history::{Acknowledged, faults};
use crate::request::send;
use crate::stage::{LIMIT, Stage, Writes};

const WRITERS: usize = 16;
const APPENDS: usize = 25;

#[test]
fn appends_to_one_session_from_many_nodes_get_dense_numbers_and_no_errors() {
    let stage = Stage::set(Writes::Local);
    let nodes = stage.addresses();
    let write = |writer: usize| {
        let append = |number: usize| {
            let texts: Vec<String> =
                (0..=number % 3).map(|part| format!("writer {writer} says {number}, part {part}")).collect();
            let body = texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
            let node = nodes[(writer + number) % nodes.len()];
            let answer = send(node, ("POST", "/v1/sessions/one/messages"), None, Some(&body), LIMIT);
            let told = answer.unwrap().ok();
            let number = |name: &str| told[name].as_u64().unwrap();
            Acknowledged { writer, from: number("from"), through: number("through"), texts }
        };
        (0..APPENDS).map(append).collect::<Vec<_>>()
    };
    let told: Vec<Acknowledged> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    stage.settle();
    let faults = faults(&stage.log("one"), &told);
    assert!(faults.is_empty(), "{faults:#?}");
    stage.verify();
}
