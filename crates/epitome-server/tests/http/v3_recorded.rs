//! Calls that were recorded between Honcho's client and Honcho's server, repeated against this server: same status, same
//! keys, same types.
//!
//! The recording is `tests/honcho/wire.jsonl`, one call a line, with the number it had when it was made. It is shortened:
//! polls with equal answers are left out, long lists in answers are cut to two items, and repetitions in a request are
//! written as `{"$repeat": [text, times]}` or `{"$cycle": [count, [items]]}`, where `#` is the item's number. No call
//! contains an id that the server created, so the recording needs no changes.
//!
//! Most values are not compared. The counts of pages, the format of times and ids, and the texts of errors are.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::server::{Answer, Server};

const RECORDED: &str = include_str!("../honcho/wire.jsonl");

/// Timeout of waiting for a summary.
const PATIENCE: Duration = Duration::from_secs(60);

/// A recorded call.
#[derive(Deserialize)]
struct Call {
    line: u32,
    method: String,
    url: String,
    req: Value,
    status: u16,
    resp: Value,
}

/// Where an answer intentionally differs from the recorded one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Leave {
    /// Nowhere.
    None,
    /// A summary may exist or not: it was being written during the call.
    Polled,
    /// The number of workspaces: the recorded server had others before.
    Counts,
}

/// Intended differences, by line.
fn leave(line: u32) -> Leave {
    match line {
        12 | 19 => Leave::Polled,
        34 => Leave::Counts,
        _ => Leave::None,
    }
}

#[test]
fn recorded_requests_get_answers_like_honchos() {
    let calls = recorded();
    let server = Server::start();
    let mut found = String::new();
    for call in &calls {
        let answer = ask(&server, call);
        // `<|endoftext|>` is an ordinary text here.
        let (status, resp) = match call.line {
            40 => taken(&calls),
            _ => (call.status, &call.resp),
        };
        for told in compare((status, resp), (answer.status, &said(&answer)), leave(call.line)) {
            let _ = writeln!(found, "line {} {} {}: {told}", call.line, call.method, call.url);
        }
    }
    assert!(found.is_empty(), "{found}\n{}", server.log());
}

/// Returns the answer to an accepted message.
fn taken(calls: &[Call]) -> (u16, &Value) {
    let call = calls.iter().find(|call| call.line == 50).unwrap();
    (call.status, &call.resp)
}

fn recorded() -> Vec<Call> {
    let calls: Vec<Call> = RECORDED.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((calls.len(), calls.last().map(|call| call.line)), (50, Some(56)));
    calls.into_iter().map(|call| Call { req: long(call.req), resp: long(call.resp), ..call }).collect()
}

/// Expands the shortened form of a request.
fn long(value: Value) -> Value {
    match value {
        Value::Object(map) => match (map.get("$repeat"), map.get("$cycle")) {
            (Some(told), _) => {
                let times = usize::try_from(told[1].as_u64().unwrap()).unwrap();
                Value::String(told[0].as_str().unwrap().repeat(times))
            }
            (_, Some(told)) => {
                let items = told[1].as_array().unwrap().iter().cycle().enumerate();
                let count = usize::try_from(told[0].as_u64().unwrap()).unwrap();
                let numbered = |(at, item): (usize, &Value)| item.to_string().replace('#', &at.to_string());
                items
                    .take(count)
                    .map(|item| serde_json::from_str::<Value>(&numbered(item)).unwrap())
                    .collect()
            }
            _ => Value::Object(map.into_iter().map(|(key, inner)| (key, long(inner))).collect()),
        },
        Value::Array(list) => list.into_iter().map(long).collect(),
        other => other,
    }
}

/// Repeats a recorded call. If the recorded answer has both summaries, repeats it until they exist.
fn ask(server: &Server, call: &Call) -> Answer {
    let start = Instant::now();
    let there = |resp: &Value| resp["short_summary"].is_object() && resp["long_summary"].is_object();
    loop {
        let mut client = server.client();
        let answer = match &call.req {
            Value::Null => client.send(&call.method, &call.url, &[], None),
            body => client.json(&call.method, &call.url, body),
        };
        let over = answer.status != call.status || start.elapsed() > PATIENCE;
        if over || !there(&call.resp) || there(&said(&answer)) {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn said(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or(Value::Null)
}

/// Returns every difference between an answer and the recorded one.
fn compare(recorded: (u16, &Value), ours: (u16, &Value), leave: Leave) -> Vec<String> {
    if recorded.0 != ours.0 {
        return vec![format!("the status is {}, and was {}: {}", ours.0, recorded.0, brief(ours.1))];
    }
    let mut found = Vec::new();
    alike(recorded.1, ours.1, "", leave, &mut found);
    found
}

fn alike(recorded: &Value, ours: &Value, place: &str, leave: Leave, found: &mut Vec<String>) {
    match (recorded, ours) {
        (Value::Object(theirs), Value::Object(ours)) if place.ends_with("/sessions") => {
            // Sessions of a queue, under ids that the server created.
            match (theirs.values().next(), ours.values().next()) {
                (Some(theirs), Some(ours)) => alike(theirs, ours, &format!("{place}/*"), leave, found),
                (theirs, ours) if theirs.is_some() == ours.is_some() => {}
                _ => found.push(format!("{place}: one is empty, the other is not")),
            }
        }
        (Value::Object(theirs), Value::Object(ours)) => {
            for key in theirs.keys().filter(|key| !ours.contains_key(*key)) {
                found.push(format!("{place}/{key} is missing"));
            }
            for key in ours.keys().filter(|key| !theirs.contains_key(*key)) {
                found.push(format!("{place}/{key} was not there"));
            }
            for (key, theirs, ours) in theirs.iter().filter_map(|(key, one)| Some((key, one, ours.get(key)?)))
            {
                alike(theirs, ours, &format!("{place}/{key}"), leave, found);
            }
            looks(theirs, ours, place, leave, found);
        }
        (Value::Array(theirs), Value::Array(ours)) => match (theirs.first(), ours.first()) {
            (Some(theirs), Some(ours)) => alike(theirs, ours, &format!("{place}/0"), leave, found),
            (None, None) => {}
            _ => found.push(format!("{place}: one is empty, the other is not")),
        },
        _ if kind(recorded) == kind(ours) => {}
        (Value::Null, Value::Object(_)) | (Value::Object(_), Value::Null)
            if leave == Leave::Polled && place.ends_with("_summary") => {}
        _ => {
            found.push(format!("{place} is {}, and was {}: {}", kind(ours), kind(recorded), brief(ours)));
        }
    }
}

/// Compares more than types: counts of pages, formats of times and ids, texts of errors.
fn looks(
    theirs: &Map<String, Value>,
    ours: &Map<String, Value>,
    place: &str,
    leave: Leave,
    found: &mut Vec<String>,
) {
    // Ids of messages and summaries; other ids are names.
    let counted = theirs.contains_key("token_count");
    for (key, theirs, ours) in theirs.iter().filter_map(|(key, one)| Some((key, one, ours.get(key)?))) {
        let same = match key.as_str() {
            "total" | "pages" => theirs == ours || leave == Leave::Counts,
            "page" | "size" | "type" | "loc" | "msg" => theirs == ours,
            "detail" => theirs == ours || theirs.is_array(),
            "created_at" => picture(theirs) == picture(ours),
            "id" | "message_id" if counted => length(theirs) == length(ours),
            _ => true,
        };
        if !same {
            found.push(format!("{place}/{key} is {}, and was {}", brief(ours), brief(theirs)));
        }
    }
}

/// Returns a time with every digit replaced by 9.
fn picture(value: &Value) -> Option<String> {
    let digit = |char: char| if char.is_ascii_digit() { '9' } else { char };
    value.as_str().map(|text| text.chars().map(digit).collect())
}

fn length(value: &Value) -> Option<usize> {
    value.as_str().map(|text| text.chars().count())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(number) if number.is_f64() => "a float",
        Value::Number(_) => "an int",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn brief(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}

/// Returns the differences that are found after one change of a recorded answer.
fn planted(line: u32, change: impl FnOnce(&mut u16, &mut Value)) -> Vec<String> {
    let call = recorded().into_iter().find(|call| call.line == line).unwrap();
    let (mut status, mut resp) = (call.status, call.resp.clone());
    change(&mut status, &mut resp);
    compare((call.status, &call.resp), (status, &resp), leave(line))
}

#[test]
fn an_answer_equals_itself() {
    for call in recorded() {
        assert_eq!(planted(call.line, |_, _| {}), Vec::<String>::new(), "line {}", call.line);
    }
}

#[test]
fn a_different_status_is_detected() {
    assert!(planted(1, |status, _| *status = 200)[0].contains("the status is 200, and was 201"));
}

#[test]
fn a_missing_or_new_key_is_detected() {
    let message = |resp: &mut Value| resp["items"][0].as_object_mut().cloned().unwrap();
    let missing = planted(9, |_, resp| {
        let mut less = message(resp);
        less.remove("token_count");
        resp["items"][0] = Value::Object(less);
    });
    assert_eq!(missing, ["/items/0/token_count is missing"]);
    let new = planted(9, |_, resp| resp["items"][0]["seq"] = json!(1));
    assert_eq!(new, ["/items/0/seq was not there"]);
    assert_eq!(planted(39, |_, resp| resp["detail"][0]["ctx"]["more"] = json!(1)).len(), 1);
    assert_eq!(planted(25, |_, resp| resp["sessions"] = json!({"x": {}})).len(), 5);
}

#[test]
fn a_different_type_is_detected() {
    for (line, place, value) in [
        (7, "/0/token_count", json!("8")),
        (7, "/0/token_count", json!(8.0)),
        (7, "/0/metadata", Value::Null),
        (20, "/long_summary", Value::Null),
        (24, "/peer_representation", Value::Null),
        (26, "/sessions", json!({})),
        (31, "/is_active", json!(1)),
        (36, "/messages", Value::Null),
        (38, "/summary", json!("")),
    ] {
        let found = planted(line, |_, resp| *resp.pointer_mut(place).unwrap() = value);
        assert!(found.len() == 1 && found[0].starts_with(place), "line {line} {place}: {found:?}");
    }
}

#[test]
fn a_different_text_form_is_detected() {
    for (line, place, value) in [
        (7, "/0/id", json!("7")),
        (7, "/0/created_at", json!("2026-11-15T02:17:04Z")),
        (20, "/short_summary/created_at", json!("2026-11-15 02:17:04")),
        (9, "/total", json!(99)),
        (36, "/messages", json!([1])),
        (23, "/messages", json!([])),
        (45, "/detail/0/msg", json!("too large")),
        (49, "/detail", json!("no")),
    ] {
        let found = planted(line, |_, resp| *resp.pointer_mut(place).unwrap() = value);
        assert!(found.len() == 1 && found[0].starts_with(place), "line {line} {place}: {found:?}");
    }
}

#[test]
fn intended_differences_are_accepted() {
    let none = Vec::<String>::new();
    assert_eq!(planted(12, |_, resp| resp["short_summary"] = json!({})), none);
    assert_eq!(planted(19, |_, resp| resp["short_summary"] = Value::Null), none);
    assert_eq!(planted(34, |_, resp| resp["total"] = json!(1)), none);
}
