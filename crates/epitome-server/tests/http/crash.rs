//! The server is killed under load, again and again, and told to end under load. Whatever was acknowledged is there,
//! once and in order, and work goes on.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::server::{Answer, Server, command, db, read_answer};

const CLIENTS: u64 = 16;
const SESSIONS: u64 = 5;

/// What became of a request.
enum Became {
    Answered(Answer),
    /// Nothing was answered at all.
    Unanswered,
    /// An answer began and did not end.
    Broken,
}

/// A client's connection, made again where it is gone.
struct Line {
    address: String,
    stream: Option<BufReader<TcpStream>>,
}

impl Line {
    fn ask(&mut self, request: &[u8]) -> Became {
        let connected = || {
            let stream = TcpStream::connect(&self.address).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
            Some(BufReader::new(stream))
        };
        let Some(mut stream) = self.stream.take().or_else(connected) else { return Became::Unanswered };
        if stream.get_mut().write_all(request).is_err() {
            return Became::Unanswered;
        }
        if !stream.fill_buf().is_ok_and(|bytes| !bytes.is_empty()) {
            return Became::Unanswered;
        }
        match read_answer(&mut stream, false) {
            None => Became::Broken,
            Some(answer) => {
                if answer.header("connection") != "close" {
                    self.stream = Some(stream);
                }
                Became::Answered(answer)
            }
        }
    }
}

/// What one client did: each of its batches, from its first to its last number, and whether it was acknowledged.
#[derive(Default)]
struct Done {
    batches: Vec<(u64, u64, bool)>,
    broken: usize,
}

/// Adds its numbers to its session until told to stop: one at a time or some, under a key and again until it is
/// acknowledged, or without one and never again.
fn append(who: u64, address: String, load: &Load) -> Done {
    let mut line = Line { address, stream: None };
    let (mut done, mut next) = (Done::default(), 1);
    while !load.stop.load(Ordering::Relaxed) {
        let last = next + [0, 0, 2, 0, 4][usize::try_from(next % 5).unwrap()];
        let keyed = !(who + next).is_multiple_of(3);
        let request = request(who, next, last, keyed);
        let acknowledged = loop {
            match line.ask(&request) {
                Became::Answered(answer) if matches!(answer.status, 200 | 201) => {
                    let through = answer.json()["through"].as_u64().unwrap();
                    assert_eq!(through - answer.json()["from"].as_u64().unwrap(), last - next);
                    break true;
                }
                Became::Answered(answer) => {
                    assert_eq!(answer.status, 503, "{}", answer.text());
                }
                Became::Broken => done.broken += 1,
                Became::Unanswered => std::thread::sleep(Duration::from_millis(5)),
            }
            if !keyed || load.stop.load(Ordering::Relaxed) {
                break false;
            }
        };
        load.acknowledged.fetch_add(u64::from(acknowledged), Ordering::Relaxed);
        done.batches.push((next, last, acknowledged));
        next = last + 1;
    }
    done
}

fn request(who: u64, next: u64, last: u64, keyed: bool) -> Vec<u8> {
    let text =
        |n: u64| format!("{who} {n} order {n}071 for Oslo, invoice INV-{n}, was packed and sent on Monday");
    let messages: Vec<Value> = (next..=last).map(|n| json!({"role": "user", "content": text(n)})).collect();
    let body = if last == next { messages[0].to_string() } else { json!(messages).to_string() };
    let key = if keyed { format!("idempotency-key: {who}-{next}\r\n") } else { String::new() };
    format!(
        "POST /v1/sessions/s{}/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{key}\
         content-length: {}\r\n\r\n{body}",
        who % SESSIONS,
        body.len()
    )
    .into_bytes()
}

/// All messages of a session, in order: who said which number.
fn said(server: &Server, session: u64) -> Vec<(u64, u64)> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let path = format!("/v1/sessions/s{session}/messages?limit=500&after={after}");
        let page = server.client().get(&path).ok();
        for item in page["items"].as_array().unwrap() {
            after += 1;
            assert_eq!(item["seq"], after, "dense, from 1");
            let text = item["parts"][0]["text"].as_str().unwrap();
            let mut words = text.split(' ').map(str::parse::<u64>);
            all.push((words.next().unwrap().unwrap(), words.next().unwrap().unwrap()));
        }
        if page["next"].is_null() {
            return all;
        }
    }
}

/// Everything acknowledged is there once, in order and in one piece; what was not is there whole or not at all.
fn check(server: &Server, done: &HashMap<u64, Done>) -> u64 {
    let mut acknowledged = 0;
    for session in 0..SESSIONS {
        let said = said(server, session);
        for (who, done) in done.iter().filter(|(who, _)| *who % SESSIONS == session) {
            let places: Vec<(usize, u64)> = said
                .iter()
                .enumerate()
                .filter(|(_, (by, _))| by == who)
                .map(|(at, (_, n))| (at, *n))
                .collect();
            assert!(places.is_sorted_by(|one, other| one.1 < other.1), "client {who}: once each, in order");
            for (from, through, was) in &done.batches {
                let there: Vec<usize> =
                    places.iter().filter(|(_, n)| (from..=through).contains(&n)).map(|(at, _)| *at).collect();
                let whole = there.len() as u64 == through - from + 1;
                assert!(
                    whole || (there.is_empty() && !was),
                    "client {who}: {from}..={through} {was} {there:?}"
                );
                assert!(there.is_sorted_by(|one, other| one + 1 == *other), "in one piece");
                acknowledged += u64::from(*was);
            }
        }
    }
    acknowledged
}

fn verify(folder: &Path) {
    let out = command(folder).args(["verify", "--db", &db(folder)]).output().unwrap();
    let told = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{told}");
}

/// What all clients share.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    acknowledged: AtomicU64,
}

impl Load {
    /// Waits until so many more are acknowledged.
    fn wait_for(&self, more: u64) {
        let enough = self.acknowledged.load(Ordering::Relaxed) + more;
        let began = Instant::now();
        while self.acknowledged.load(Ordering::Relaxed) < enough {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing is acknowledged any more");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Starts the clients, does something, stops them, and tells what they did.
fn under_load(address: &str, act: impl FnOnce(&Load)) -> HashMap<u64, Done> {
    let load = Arc::new(Load::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|who| {
            let (address, load) = (address.to_owned(), Arc::clone(&load));
            std::thread::spawn(move || (who, append(who, address, &load)))
        })
        .collect();
    act(&load);
    load.stop.store(true, Ordering::Relaxed);
    clients.into_iter().map(|client| client.join().unwrap()).collect()
}

#[test]
fn a_server_killed_under_load_loses_nothing_it_acknowledged() {
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
    let mut random = u64::from(seed) | 1;
    let folder = tempfile::tempdir().unwrap();
    // Short, since what a killed one held is waited for.
    let lease = ["--lease", "2000"];
    let mut server = Server::on(folder.path(), &lease, &[]);
    let address = server.address.clone();
    let again = [&lease[..], &["--listen", &address]].concat();
    let done = under_load(&address, |load| {
        for _ in 0..10 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            load.wait_for(20);
            std::thread::sleep(Duration::from_millis((random >> 33) % 200));
            server.signal("KILL");
            server.wait();
            server = Server::on(folder.path(), &again, &[]);
        }
        load.wait_for(20);
    });
    let acknowledged = check(&server, &done);
    assert!(acknowledged > 200, "{acknowledged} (seed {seed})");
    // What a killed one held is free after its lease; then all that is due gets done.
    let began = Instant::now();
    loop {
        let figures = server.client().get("/metrics").text();
        let left = |state: &str| !figures.contains(&format!("epitome_queue_slots{{state=\"{state}\"}} 0"));
        if !left("due") && !left("working") && !left("waiting") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "work does not go on: {figures}");
        std::thread::sleep(Duration::from_millis(100));
    }
    for session in 0..SESSIONS {
        let summaries = server.client().get(&format!("/v1/sessions/s{session}/summaries")).ok();
        assert!(!summaries["items"].as_array().unwrap().is_empty(), "session {session} is summarized");
    }
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    verify(folder.path());
}

#[test]
fn a_server_stopped_under_load_sends_no_partial_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::on(folder.path(), &[], &[]);
    let done = under_load(&server.address.clone(), |load| {
        load.wait_for(100);
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0));
    });
    assert_eq!(done.values().map(|done| done.broken).sum::<usize>(), 0, "no answer is broken off");
    let again = Server::on(folder.path(), &[], &[]);
    let acknowledged = check(&again, &done);
    assert!(acknowledged >= 100, "{acknowledged}");
    drop(again);
    verify(folder.path());
}
