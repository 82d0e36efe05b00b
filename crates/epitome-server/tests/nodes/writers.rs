//! Clients that add messages whatever happens, and one that reads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::failures::Random;
use crate::history::Acknowledged;
use crate::request::{read, send};

/// After so long a client turns to another node.
const PATIENCE: Duration = Duration::from_secs(4);

/// A client that was not heard for so long gives up, and the test fails.
const LIMIT: Duration = Duration::from_secs(120);

/// What clients and whoever starts them share.
#[derive(Default)]
pub struct Load {
    pub stop: AtomicBool,
    /// Appends that were acknowledged.
    pub acknowledged: AtomicUsize,
    /// Requests that failed and were sent again.
    pub again: AtomicUsize,
}

/// What a message says: whose it is, where, the how manieth, and enough else that it is worth a summary.
fn text(session: &str, writer: usize, number: usize) -> String {
    format!(
        "in {session} writer {writer} says number {number}: the parcel went from Oslo to Bergen by ship and Ann wants \
         to know who signed for it at the door"
    )
}

/// In which session a text was said.
pub fn session_of(text: &str) -> Option<&str> {
    text.split_once("in s-")
        .map(|(before, _)| before.len() + 3)
        .and_then(|at| text.get(at..)?.split(' ').next())
}

/// The acknowledged appends of one writer, by session.
pub type AcknowledgedAppends = BTreeMap<String, Vec<Acknowledged>>;

/// Appends messages to the writer's own sessions and to shared sessions until `load.stop` is set. Each append has its
/// own idempotency key, and is sent to a random node until a node acknowledges it.
pub fn write(writer: usize, nodes: &[SocketAddr], seed: u64, load: &Load) -> AcknowledgedAppends {
    let mut random = Random::new(seed.wrapping_add(writer as u64));
    let mut acknowledged = AcknowledgedAppends::new();
    let mut number = 0;
    while !load.stop.load(Ordering::Relaxed) {
        let session = if random.below(3) == 0 {
            format!("s-own-{writer}")
        } else {
            format!("s-all-{}", random.below(4))
        };
        let texts: Vec<String> =
            (0..=random.of(3)).map(|more| text(&session, writer, number + more)).collect();
        number += texts.len();
        let key = format!("{seed}-{writer}-{number}");
        let (from, through) = append(&session, &texts, &key, nodes, &mut random, load);
        acknowledged.entry(session).or_default().push(Acknowledged { writer, from, through, texts });
        load.acknowledged.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20 + random.below(60)));
    }
    acknowledged
}

fn append(
    session: &str,
    texts: &[String],
    key: &str,
    nodes: &[SocketAddr],
    random: &mut Random,
    load: &Load,
) -> (u64, u64) {
    let body: Value = texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
    let path = format!("/v1/sessions/{session}/messages");
    let begun = Instant::now();
    let mut node = random.of(nodes.len());
    loop {
        let said = match send(nodes[node], ("POST", &path), Some(key), Some(&body), PATIENCE) {
            Ok(answer) if answer.status < 300 => {
                let told = answer.json();
                return (told["from"].as_u64().unwrap(), told["through"].as_u64().unwrap());
            }
            Ok(answer) if answer.status >= 500 => format!("{} {}", answer.status, answer.text()),
            Ok(answer) => panic!("{key} was refused: {} {}", answer.status, answer.text()),
            Err(broken) => broken,
        };
        assert!(begun.elapsed() < LIMIT, "{key} is not acknowledged by anybody; the last time: {said}");
        load.again.fetch_add(1, Ordering::Relaxed);
        node = (node + 1) % nodes.len();
        std::thread::sleep(Duration::from_millis(20 + random.below(100)));
    }
}

/// Looks how far summaries reach, at one node after the other, until it is told to stop: whichever node is read, none of
/// them reaches less far than it once did. How often it looked.
pub fn watch(session: &str, nodes: &[SocketAddr], load: &Load) -> usize {
    let mut reached: BTreeMap<String, u64> = BTreeMap::new();
    let mut looked = 0;
    while !load.stop.load(Ordering::Relaxed) {
        for node in nodes {
            let path = format!("/v1/sessions/{session}/summaries");
            let Ok(answer) = read(*node, &path, PATIENCE) else { continue };
            // 404: nobody wrote to it yet.
            if answer.status >= 500 || answer.status == 404 {
                continue;
            }
            looked += 1;
            for summary in answer.ok()["items"].as_array().unwrap() {
                let (slot, through) =
                    (summary["slot"].as_str().unwrap(), summary["through"].as_u64().unwrap());
                let before = reached.insert(slot.to_owned(), through).unwrap_or(0);
                assert!(before <= through, "{session}: {slot} reached {before}, and then only {through}");
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    looked
}
