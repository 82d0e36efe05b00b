//! Conversations over many requests: shortened, steady in between, kept over a restart, and nobody else's.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Answer, Client};
use crate::stage::{KEY, ROUTES, Stage, Talk, done, key, list, report};
use crate::streams::eventually;
use crate::upstream::{Behavior, Manner};

/// Due at three thousand tokens, with the last four messages kept.
pub const SOON: [&str; 6] = [
    "--set",
    "condense.trigger=tokens(3000)",
    "--set",
    "condense.keep=messages(4)",
    "--set",
    "condense.max_tokens=600",
];

/// Goes on until it has just been condensed.
fn until_condensed(talk: &mut Talk, client: &mut Client) -> Answer {
    for _ in 0..30 {
        let answer = talk.go_on(client, 1).remove(0);
        if report(&answer)["condensed"] == true {
            return answer;
        }
    }
    panic!("never condensed");
}

/// Whether the later list goes on where the earlier ended.
fn goes_on(earlier: &[Value], later: &[Value]) -> bool {
    later.len() > earlier.len() && later.starts_with(earlier)
}

#[test]
fn a_long_conversation_is_shortened_with_a_stable_prefix() {
    let stage = Stage::new(&SOON);
    let (mut talk, mut client) = (Talk::new("Ann"), stage.client());
    let (mut swaps, mut before) = (0, Vec::new());
    for turn in 0..60 {
        let answer = talk.go_on(&mut client, 1).remove(0);
        let got = list(&stage.got());
        let told = report(&answer);
        if told["condensed"] == true {
            swaps += 1;
            assert_eq!((done(&answer), told["model"].as_str()), ("condensed", Some("local")));
            assert!(told["saved"].as_u64().unwrap() > 0, "{told}");
        } else if turn > 0 {
            assert!(goes_on(&before, &got), "turn {turn}: between two swaps it only grows");
        }
        assert_eq!(got.first(), talk.list.first(), "standing orders stay");
        before = got;
    }
    assert!((3..20).contains(&swaps), "{swaps}");
    assert_eq!(stage.upstream.refused(), vec![]);
    let whole = talk.body().to_string().len();
    assert!(stage.got().body.len() < whole / 3, "{} of {whole}", stage.got().body.len());
}

#[test]
fn a_restart_keeps_the_condensed_prefix() {
    let mut stage = Stage::new(&SOON);
    let mut talk = Talk::new("Ann");
    until_condensed(&mut talk, &mut stage.client());
    talk.go_on(&mut stage.client(), 1);
    let before = list(&stage.got());
    let folder = stage.server.folder.clone();
    for how in ["TERM", "KILL"] {
        stage.server.signal(how);
        stage.server.wait();
        // The folder goes with the first server.
        let again = Stage::serve(&stage.upstream.origin(), Some(&folder), &SOON);
        let first = std::mem::replace(&mut stage.server, again);
        std::mem::forget(first);
        let mut client = stage.client();
        let answer = talk.ask().send(&mut client);
        assert_eq!(
            (done(&answer), report(&answer)["condensed"].as_bool()),
            ("condensed", Some(false)),
            "{how}"
        );
        assert!(goes_on(&before, &list(&stage.got())), "{how}: the prefix is the same to the letter");
        talk.reply();
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn forks_and_edits_are_separate_conversations() {
    let stage = Stage::new(&SOON);
    let mut client = stage.client();
    let mut ann = Talk::new("Ann");
    until_condensed(&mut ann, &mut client);
    let before = list(&stage.got());
    // Two go on from the same place.
    let mut other = Talk { mark: "Bob".to_owned(), ..ann.clone() };
    ann.mark = "ANN-LATER".to_owned();
    ann.go_on(&mut client, 3);
    other.go_on(&mut client, 3);
    let got = list(&stage.got());
    assert!(goes_on(&before, &got), "a fork after the swap goes on with what was handed out");
    assert!(!json!(got).to_string().contains("ANN-LATER"), "and with nothing of the other");
    // What was said early is changed: nothing that was made of it may be shown.
    let mut edited = ann.clone();
    edited.list[1] =
        json!({"role": "user", "content": "Something else was asked in the beginning, about a lost anchor."});
    let secret = ann.list[1]["content"].as_str().unwrap()[..24].to_owned();
    let answer = edited.ask().send(&mut client);
    let got = json!(list(&stage.got())).to_string();
    assert_eq!(answer.status, 200);
    assert!(!got.contains(&secret), "{secret} in {got}");
    // And back to a beginning, as when somebody takes back what they said.
    let mut back = ann.clone();
    back.list.truncate(3);
    let answer = back.ask().send(&mut client);
    assert_eq!((done(&answer), stage.got().json()), ("untouched", back.body()));
}

#[test]
fn two_clients_with_the_same_opening_are_separate() {
    let stage = Stage::new(&SOON);
    let mut client = stage.client();
    let (mut ann, mut bob) = (Talk::new("Same"), Talk::new("Same"));
    ann.go_on(&mut client, 2);
    bob.go_on(&mut client, 2);
    (ann.mark, bob.mark) = ("ANN-ONLY".to_owned(), "BOB-ONLY".to_owned());
    for _ in 0..20 {
        ann.go_on(&mut client, 1);
        assert!(!String::from_utf8(stage.got().body).unwrap().contains("BOB-ONLY"));
        bob.go_on(&mut client, 1);
        assert!(!String::from_utf8(stage.got().body).unwrap().contains("ANN-ONLY"));
    }
}

#[test]
fn conversations_are_separate_by_tenant_and_provider_key() {
    let stage = Stage::new(&[&SOON[..], &["--require-keys", "always"]].concat());
    let (one, two) = (key(&stage.server, "one"), key(&stage.server, "two"));
    let mut talk = Talk::new("Ann");
    let mut first = stage.client().with("x-epitome-key", &one);
    until_condensed(&mut talk, &mut first);
    talk.go_on(&mut first, 1);
    let run = |answer: &Answer| report(answer)["run"].as_str().unwrap().to_owned();
    let mine = talk.ask().send(&mut first);
    assert_eq!(report(&mine)["condensed"], false);
    // The very same list, from elsewhere: it is condensed anew, by itself.
    for mut other in [
        stage.client().with("x-epitome-key", &two),
        stage.server.client().with("authorization", "Bearer sk-another").with("x-epitome-key", &one),
        stage
            .server
            .client()
            .with("authorization", &format!("Bearer {KEY}"))
            .with("x-epitome-key", &one)
            .with("x-epitome-session", "a"),
    ] {
        let answer = talk.send(&mut other);
        assert_eq!(report(&answer)["condensed"], true, "{:?}", other.headers);
        assert_ne!(run(&answer), run(&mine));
    }
    // What was saved is told to its own workspace.
    let usage =
        |secret: &str| stage.server.client().key(secret).get("/v1/usage").ok()["proxy"]["total"].clone();
    assert_eq!(usage(&two)["requests"], 1);
    assert!(usage(&one)["requests"].as_u64().unwrap() > 5);
}

#[test]
fn a_header_can_name_a_conversation() {
    let stage = Stage::new(&SOON);
    let mut client = stage.client().with("x-epitome-session", "harbour-7");
    let mut talk = Talk::new("Ann");
    let answer = until_condensed(&mut talk, &mut client);
    assert_eq!(report(&answer)["run"], "harbour-7");
    // Another list under the same name is given nothing of the first.
    let mut other = Talk::new("BOB-ONLY");
    other.go_on(&mut client, 1);
    assert_eq!(stage.got().json()["messages"][1], other.list[1]);
    assert!(!String::from_utf8(stage.got().body).unwrap().contains("Ann"));
    let wrong = stage.client().with("x-epitome-session", "").post(ROUTES[0].0, &talk.body());
    assert_eq!(wrong.status, 400);
}

#[test]
fn the_first_savings_use_the_providers_count() {
    // It counts half of what we do, and nobody knew.
    let stage = Stage::with(Manner { window: 100_000, skew: 0.4, ..Manner::default() }, &SOON);
    let mut client = stage.client();
    let mut talk = Talk::new("Ann");
    (0..60).for_each(|_| {
        talk.ask().reply();
    });
    talk.go_on(&mut client, 1);
    let told = report(&talk.ask().send(&mut client));
    let told = told["saved"].as_f64().unwrap() / told["tokens_after"].as_f64().unwrap();
    let (full, sent) = (talk.body().to_string().len() as f64, stage.got().body.len() as f64);
    let is = (full - sent) / sent;
    assert!((told / is - 1.0).abs() < 0.2, "{told:.2} times what was sent, and not {is:.2}");
}

#[test]
fn callers_with_the_same_conversation_name_see_their_own_savings() {
    let stage = Stage::new(&SOON);
    let named =
        |secret: &str| stage.server.client().with("authorization", secret).with("x-epitome-session", "main");
    let mut ann = named("Bearer sk-ann");
    let mut talk = Talk::new("Ann");
    until_condensed(&mut talk, &mut ann);
    talk.go_on(&mut ann, 1);
    let saved = |answer: &Answer| report(answer)["so_far"]["saved"].as_u64().unwrap();
    assert!(saved(&talk.ask().send(&mut ann)) > 0);
    let others = [named("Bearer sk-bob"), named("Bearer sk-ann").with("x-epitome", "shadow")];
    for (mut other, mark) in others.into_iter().zip(["Bob", "Cid"]) {
        assert_eq!(saved(&Talk::new(mark).ask().send(&mut other)), 0, "{mark}");
    }
}

#[test]
fn a_request_that_is_too_long_is_condensed_and_retried_once() {
    let stage = Stage::new(&[]);
    let (mut talk, mut client) = (Talk::new("Ann"), stage.client());
    (0..20).for_each(|_| {
        talk.ask().reply();
    });
    talk.ask();
    let seen = || stage.upstream.seen().len();
    stage.upstream.then(Behavior::TooLong);
    let answer = talk.send(&mut client);
    assert_eq!((answer.status, done(&answer), seen()), (200, "retried", 2), "{}", answer.text());
    let sent = stage.upstream.seen();
    assert!(sent[1].body.len() < sent[0].body.len());
    assert_eq!(sent[0].json(), talk.body(), "it was not due before");
    let shorter = list(&sent[1]);
    // It stays as it was made.
    talk.reply();
    let answer = talk.ask().send(&mut client);
    assert_eq!((done(&answer), seen()), ("condensed", 3));
    assert!(goes_on(&shorter, &list(&stage.got())));
    // Twice is told as it is, and nothing is tried a third time.
    stage.upstream.then(Behavior::TooLong).then(Behavior::TooLong);
    talk.reply();
    let answer = talk.ask().send(&mut client);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(seen() <= 5);
    // Where nothing can leave, the refusal is handed on at once.
    let mut short = Talk::new("Bob");
    stage.upstream.then(Behavior::TooLong);
    let before = seen();
    let answer = short.ask().send(&mut client);
    assert_eq!((answer.status, done(&answer), seen()), (400, "untouched", before + 1));
    assert_eq!(stage.upstream.repeated(), 0);
}

#[test]
fn a_smaller_window_is_learned_from_the_provider() {
    let stage = Stage::with(Manner { window: 3_000, ..Manner::default() }, &[]);
    let (mut talk, mut client) = (Talk::new("Ann"), stage.client());
    talk.go_on(&mut client, 60);
    let refused = stage.upstream.refused().len();
    assert!((1..=3).contains(&refused), "{refused} refusals, none of which the caller saw");
}

#[test]
fn shadow_mode_changes_nothing_and_reports_what_would_change() {
    let stage = Stage::new(&[&SOON[..], &["--shadow"]].concat());
    let (mut talk, mut client) = (Talk::new("Ann"), stage.client());
    let mut saved = 0;
    for _ in 0..25 {
        talk.ask();
        let answer = talk.send(&mut client);
        assert_eq!((done(&answer), stage.got().json()), ("shadow", talk.body()));
        saved = report(&answer)["saved"].as_u64().unwrap();
        talk.reply();
    }
    assert!(saved > 1_000, "{saved}");
    let usage = stage.server.client().get("/v1/usage").ok();
    let line = &usage["proxy"]["items"][0];
    assert_eq!((line["shadow"].as_bool(), line["requests"].as_u64()), (Some(true), Some(25)), "{usage}");
    assert!(line["saved"].as_u64().unwrap() > 5_000, "{usage}");
}

#[test]
fn savings_are_reported_in_tokens_and_money_by_the_providers_count() {
    let prices = ["--set", "prices.nobody-knows.input=2", "--set", "prices.nobody-knows.output=10"];
    let cached =
        ["--set", "prices.nobody-knows.cache_read=0.2", "--set", "prices.nobody-knows.cache_write=2"];
    let stage = Stage::new(&[&SOON[..], &prices[..], &cached[..]].concat());
    let (mut talk, mut client) = (Talk::new("Ann"), stage.client());
    let answers = talk.go_on(&mut client, 80);
    let counted: u64 =
        answers.iter().map(|answer| answer.json()["usage"]["prompt_tokens"].as_u64().unwrap()).sum();
    let output: u64 =
        answers.iter().map(|answer| answer.json()["usage"]["completion_tokens"].as_u64().unwrap()).sum();
    let usage = stage.server.client().get("/v1/usage").ok();
    let line = &usage["proxy"]["items"][0];
    assert_eq!(
        (line["model"].as_str(), line["requests"].as_u64()),
        (Some("nobody-knows"), Some(80)),
        "{usage}"
    );
    assert_eq!((line["input"].as_u64(), line["output"].as_u64()), (Some(counted), Some(output)), "{usage}");
    assert!(line["shorter"].as_u64().unwrap() > 40 && line["uncounted"] == 0, "{usage}");
    assert!(line["saved"].as_u64().unwrap() > counted / 2, "{usage}");
    let cost = line["cost"].as_f64().unwrap();
    let most = (counted as f64 * 2.0 + output as f64 * 10.0) / 1e6;
    assert!(cost > 0.0 && cost <= most * 1.001, "{usage}");
    assert!(line["saved_cost"].as_f64().unwrap() > 0.0, "{usage}");
}

#[test]
fn the_requests_log_contains_requests_as_sent() {
    let stage = Stage::new(&[&SOON[..], &["--log-requests", "requests.jsonl"]].concat());
    let (mut talk, mut client) = (Talk::new("Ann"), stage.client());
    talk.go_on(&mut client, 20);
    let file = stage.server.folder.join("requests.jsonl");
    stage.server.signal("TERM");
    let mut stage = stage;
    stage.server.wait();
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sent: Vec<Vec<Value>> = stage.upstream.seen().iter().map(list).collect();
    assert_eq!(lines.len(), sent.len());
    for (line, sent) in lines.iter().zip(sent) {
        assert_eq!(line["run"], lines[0]["run"]);
        let mut written = line["messages"].as_array().unwrap().clone();
        for message in &mut written {
            let tokens = message.as_object_mut().unwrap().remove("tokens");
            assert!(tokens.unwrap().as_u64().unwrap() > 4);
        }
        assert_eq!(written, sent);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn the_servers_model_writes_in_the_background() {
    let writer = Stage::with(Manner::default(), &[]);
    let base = format!("models.cheap.base_url={}", writer.upstream.url());
    let model = ["--set", "models.cheap.provider=openai", "--set", "models.cheap.model=w", "--set", &base];
    let more = ["--set", "condense.model=cheap", "--set", "condense.window=100000"];
    let stage = Stage::new(&[&SOON[..], &model[..], &more[..]].concat());
    let (mut talk, mut client) = (Talk::new("Ann"), stage.client());
    // It says nothing, ever: the first swap is by `local`.
    writer.upstream.always(Behavior::Silent);
    let answer = until_condensed(&mut talk, &mut client);
    let told = report(&answer);
    assert_eq!((told["model"].as_str(), told["stand_in"].as_bool()), (Some("local"), Some(true)), "{told}");
    eventually("it is asked, and waited for by nobody", || writer.upstream.in_progress().0 > 0);
    // Nobody's key but its own went there.
    assert!(writer.upstream.seen().iter().all(|seen| seen.header("authorization").is_none()));
}

/// Whether a summary by the request's own model was written.
fn is_kept(stage: &Stage) -> bool {
    let usage = stage.server.client().get("/v1/usage").ok();
    let calls = usage["items"].as_array().unwrap();
    calls.iter().any(|call| call["model"] == "nobody-knows" && call["outcome"] == "kept")
}

#[test]
fn the_callers_model_writes_with_its_key_while_the_request_is_open() {
    let same = ["--set", "condense.model=same", "--set", "condense.window=100000"];
    let stage = Stage::with(
        Manner { window: 100_000, key: Some(KEY), ..Manner::default() },
        &[&SOON[..], &same[..]].concat(),
    );
    let (mut talk, mut client) = (Talk::new("Ann"), stage.client());
    let mut told = Value::Null;
    for _ in 0..30 {
        // A request that stays open: time enough to write what is due soon. Then its caller leaves, and asks again.
        talk.ask();
        let mut stream = crate::server::connect(&stage.server.address);
        let body = talk.body().to_string();
        let head =
            format!("POST {} HTTP/1.1\r\nhost: {}\r\nx-act: stalls", ROUTES[0].0, stage.server.address);
        let head = format!("{head}\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.get_mut().write_all((head + &body).as_bytes()).unwrap();
        let mut lines = stream.lines().map(Result::unwrap).take_while(|line| !line.is_empty());
        let said = lines.find_map(|line| line.strip_prefix("x-epitome-report: ").map(str::to_owned)).unwrap();
        told = serde_json::from_str(&said).unwrap();
        if told["condensed"] == true {
            break;
        }
        // At 0.8 of the trigger it is asked for, and has a while to answer.
        let started = Instant::now();
        while told["tokens_after"].as_u64().unwrap() > 2_200
            && !is_kept(&stage)
            && started.elapsed() < Duration::from_secs(3)
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(lines);
        assert_eq!(talk.send(&mut client).status, 200);
        talk.reply();
    }
    assert!(stage.upstream.requests().1 > 0, "it was asked for a summary: {told}");
    assert_eq!((told["model"].as_str(), told["stand_in"].as_bool()), (Some("nobody-knows"), None), "{told}");
    assert!(is_kept(&stage));
    let log = stage.server.log();
    assert!(!log.contains(KEY), "{log}");
}
