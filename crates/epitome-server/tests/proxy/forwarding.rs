//! What goes through, and as what: bytes, headers, keys, and what is refused here.

use std::io::Write;

use serde_json::{Value, json};

use crate::server::{Answer, connect};
use crate::stage::{KEY, ROUTES, Stage, Talk, done, key, report};
use crate::streams::eventually;
use crate::upstream::Behavior;

/// Requests as somebody's own program might spell them: nothing of it may change.
const ODD: [&str; 3] = [
    "{ \"model\":\"nobody-knows\",\n\t\"messages\" : [ {\"content\":\"Sh\\u00e6ll \\/ we? \u{1f6a2}\", \"role\":\"user\"} ], \
     \"temperature\": 1.0e0, \"seed\":12345678901234567890123, \"stop\":null }\r\n",
    "{\"input\":\"Which berths are free?\",\"model\":\"nobody-knows\",\"metadata\":{\"b\":\"2\",\"a\":\"1\"}}  ",
    "{\"max_tokens\":64,\"system\":[{\"type\":\"text\",\"text\":\"Be brief.\",\"cache_control\":{\"type\":\"ephemeral\"}}],\
     \"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Which?\"}]}],\"model\":\"nobody-knows\"}",
];

fn send(stage: &Stage, route: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let headers: Vec<_> =
        [("content-type", "application/json")].into_iter().chain(headers.iter().copied()).collect();
    stage.client().send("POST", route, &headers, Some(body))
}

#[test]
fn under_the_threshold_the_body_is_forwarded_byte_for_byte() {
    let stage = Stage::new(&[]);
    for ((route, there), body) in ROUTES.into_iter().zip(ODD) {
        let answer = send(&stage, route, &[], body.as_bytes());
        assert_eq!((answer.status, done(&answer)), (200, "untouched"), "{}", answer.text());
        let got = stage.got();
        assert_eq!((got.path.as_str(), String::from_utf8(got.body).unwrap()), (there, body.to_owned()));
    }
}

#[test]
fn only_epitomes_flags_are_removed() {
    let stage = Stage::new(&[]);
    let flagged = r#"{"model": "nobody-knows",  "messages": [{"role":"user","content":"Hi","epitome":{"pinned":true}}]}"#;
    let plain = r#"{"model": "nobody-knows",  "messages": [{"role":"user","content":"Hi"}]}"#;
    for (mode, word) in [("", "untouched"), ("off", "off"), ("shadow", "shadow")] {
        let headers = [("x-epitome", mode)];
        let headers = if mode.is_empty() { &[][..] } else { &headers[..] };
        let answer = send(&stage, ROUTES[0].0, headers, flagged.as_bytes());
        assert_eq!((answer.status, done(&answer)), (200, word));
        assert_eq!(String::from_utf8(stage.got().body).unwrap(), plain);
    }
}

#[test]
fn other_routes_are_forwarded_unchanged() {
    let stage = Stage::new(&[]);
    let bytes: Vec<u8> = (0..=255).collect();
    for (method, path, body) in [
        ("GET", "/v1/models?limit=2&after=a%2Fb%20c", None),
        ("DELETE", "/v1/files/file%2F1", None),
        ("POST", "/v1/embeddings", Some(&b"{\"input\": [1,2]}"[..])),
        ("PUT", "/v1/files/raw", Some(&bytes[..])),
        ("POST", "/v1/messages/count_tokens", Some(&b"{}"[..])),
        ("PATCH", "/v1/x", Some(&b""[..])),
        ("HEAD", "/v1/models", None),
        ("OPTIONS", "/v1/models", None),
    ] {
        for side in ["/openai", "/anthropic"] {
            let headers =
                [("content-type", "application/x-own"), ("x-own", "kept"), ("x-request-id", "mine")];
            let answer = stage.client().send(method, &format!("{side}{path}"), &headers, body);
            assert_eq!((answer.status, done(&answer)), (200, "passed"), "{method} {path}");
            let got = stage.got();
            assert_eq!((got.method.as_str(), got.path.as_str()), (method, path));
            assert_eq!(got.body, body.unwrap_or_default(), "{method} {path}");
            for (name, value) in headers {
                assert_eq!(got.header(name), Some(value), "{method} {path}");
            }
            assert_eq!(got.header("host"), Some(stage.upstream.origin().trim_start_matches("http://")));
            let ours =
                got.headers.iter().find(|(name, _)| name.starts_with("x-epitome") || name == "connection");
            assert_eq!(ours, None, "{method} {path}");
        }
    }
}

#[test]
fn a_body_too_large_to_inspect_is_forwarded() {
    let stage = Stage::new(&["--set", "limits.body=2000"]);
    let long = format!(
        r#"{{"model":"nobody-knows","messages":[{{"role":"user","content":"{}"}}]}}"#,
        "berth ".repeat(2_000)
    );
    let answer = send(&stage, ROUTES[0].0, &[], long.as_bytes());
    assert_eq!((answer.status, done(&answer)), (200, "passed"), "{}", answer.text());
    assert_eq!(report(&answer)["reason"], "too_large");
    assert!(stage.got().body == long.as_bytes());
    // Nobody says how long it is.
    let mut chunked = format!("POST {} HTTP/1.1\r\nhost: {}\r\n", ROUTES[0].0, stage.server.address);
    chunked.push_str("transfer-encoding: chunked\r\ncontent-type: application/json\r\n\r\n");
    for piece in long.as_bytes().chunks(700) {
        chunked.push_str(&format!("{:x}\r\n{}\r\n", piece.len(), std::str::from_utf8(piece).unwrap()));
    }
    chunked.push_str("0\r\n\r\n");
    let answer = stage.client().raw(chunked.as_bytes(), false);
    assert_eq!((answer.status, done(&answer)), (200, "passed"), "{}", answer.text());
    assert!(stage.got().body == long.as_bytes());
}

#[test]
fn a_body_without_free_memory_is_forwarded_unread() {
    let stage = Stage::new(&["--bound", "passing_kib=4"]);
    let long = format!(
        r#"{{"model":"nobody-knows","messages":[{{"role":"user","content":"{}"}}]}}"#,
        "berth ".repeat(2_000)
    );
    let answer = send(&stage, ROUTES[0].0, &[], long.as_bytes());
    assert_eq!((answer.status, done(&answer)), (200, "passed"), "{}", answer.text());
    assert_eq!(report(&answer)["reason"], "no_room");
    assert!(stage.got().body == long.as_bytes());
    let answer = send(&stage, ROUTES[0].0, &[], ODD[0].as_bytes());
    assert_eq!(done(&answer), "untouched");
}

#[test]
fn a_waiting_request_reserves_only_the_memory_it_needs() {
    // Half of it is one workspace's: room for one body of 100 KiB while it is worked on, and for another that only waits.
    let stage = Stage::new(&["--bound", "passing_kib=900"]);
    let long =
        json!({"model": "nobody-knows", "messages": [{"role": "user", "content": "x".repeat(100 << 10)}]});
    stage.upstream.then(Behavior::Silent);
    let (mut waits, long) = (connect(&stage.server.address), long.to_string());
    let head = format!("POST {} HTTP/1.1\r\nhost: {}\r\n", ROUTES[0].0, stage.server.address);
    let head = format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n", long.len());
    waits.get_mut().write_all(format!("{head}{long}").as_bytes()).unwrap();
    eventually("it waits", || stage.upstream.in_progress().0 == 1);
    let answer = send(&stage, ROUTES[0].0, &[], long.as_bytes());
    assert_eq!(done(&answer), "untouched", "{}", report(&answer)["reason"]);
}

#[test]
fn an_overlong_model_name_is_ignored() {
    let stage = Stage::new(&[]);
    let body = json!({"model": "m".repeat(5_000), "messages": [{"role": "user", "content": "Which?"}]});
    let answer = send(&stage, ROUTES[0].0, &[], body.to_string().as_bytes());
    assert_eq!((answer.status, done(&answer), stage.got().json()), (200, "untouched", body));
    let usage = stage.server.client().get("/v1/usage").ok();
    assert_eq!(usage["proxy"]["items"][0]["model"], "", "nothing is kept by it");
}

#[test]
fn content_length_0_is_forwarded() {
    let stage = Stage::new(&[]);
    for path in ["/openai/v1/batches/b1/cancel", ROUTES[0].0] {
        send(&stage, path, &[], b"");
        assert_eq!(stage.got().header("content-length"), Some("0"), "{path}");
    }
    stage.client().get("/openai/v1/models");
    assert_eq!(stage.got().header("content-length"), None);
}

#[test]
fn an_h2c_offer_is_answered_in_http_1() {
    let stage = Stage::new(&[]);
    let offered = [("connection", "Upgrade, HTTP2-Settings"), ("http2-settings", "AAEAAEAA")];
    let h2c: Vec<_> = offered.into_iter().chain([("upgrade", "h2c")]).collect();
    let answer = send(&stage, ROUTES[0].0, &h2c, ODD[0].as_bytes());
    assert_eq!((answer.status, done(&answer)), (200, "untouched"), "{}", answer.text());
    let got = stage.got();
    assert_eq!((got.header("upgrade"), got.header("http2-settings")), (None, None));
    let another: Vec<_> = offered.into_iter().chain([("upgrade", "websocket")]).collect();
    let answer = send(&stage, ROUTES[0].0, &another, ODD[0].as_bytes());
    assert_eq!((answer.status, done(&answer)), (501, "refused"));
}

#[test]
fn unreadable_and_remote_history_requests_are_forwarded_unchanged() {
    let stage = Stage::new(&["--set", "condense.trigger=messages(2)", "--set", "condense.keep=messages(1)"]);
    let long: Vec<Value> =
        (0..20).map(|at| json!({"role": if at % 2 == 0 { "user" } else { "assistant" }, "content": "berth ".repeat(50)})).collect();
    let elsewhere = [
        (1, json!({"model": "m", "input": long, "previous_response_id": "resp_1"})),
        (1, json!({"model": "m", "input": long, "conversation": "conv_1"})),
        (1, json!({"model": "m", "input": long, "context_management": [{"type": "compaction"}]})),
        (2, json!({"model": "m", "max_tokens": 5, "messages": long, "context_management": {"edits": []}})),
    ];
    for (route, body) in elsewhere {
        let answer = send(&stage, ROUTES[route].0, &[], body.to_string().as_bytes());
        assert_eq!(
            (done(&answer), report(&answer)["reason"].as_str()),
            ("passed", Some("elsewhere")),
            "{body}"
        );
        assert_eq!(stage.got().json(), body);
    }
    for wrong in [
        "",
        "[]",
        "[{\"role\":\"user\",\"content\":\"Hi\"}]",
        "{",
        "{\"messages\": 5}",
        "\u{feff}x",
        "{\"model\": \"m\"}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\", \"epitome\": {\"pined\": true}}]}",
        "null",
    ] {
        let answer = send(&stage, ROUTES[0].0, &[], wrong.as_bytes());
        assert_eq!((done(&answer), answer.status), ("passed", 400), "{wrong}: {}", answer.text());
        assert_eq!(stage.got().body, wrong.as_bytes());
    }
    let packed = send(&stage, ROUTES[0].0, &[("content-encoding", "gzip")], &[0x1f, 0x8b, 0x08, 0xff]);
    assert_eq!((done(&packed), stage.got().body.as_slice()), ("passed", &[0x1f, 0x8b, 0x08, 0xff][..]));
}

#[test]
fn a_header_switches_condensing_off_for_one_request() {
    let stage = Stage::new(&["--set", "condense.trigger=tokens(1000)"]);
    let mut talk = Talk::new("Ann");
    let mut client = stage.client();
    let words: Vec<String> =
        talk.go_on(&mut client, 12).iter().map(|answer| done(answer).to_owned()).collect();
    assert!(words.contains(&"condensed".to_owned()), "{words:?}");
    let body = talk.ask().body();
    let answer = client.send("POST", ROUTES[0].0, &[("x-epitome", "off")], Some(body.to_string().as_bytes()));
    assert_eq!((done(&answer), stage.got().json()), ("off", body));
    assert_eq!(done(&talk.send(&mut client)), "condensed");
}

#[test]
fn a_fault_in_condensing_does_not_fail_the_request() {
    // Nobody knows the model's window, so that nothing can be decided by it.
    let stage = Stage::new(&["--set", "condense.trigger=window(0.5)"]);
    let body = Talk::new("Ann").ask().body();
    let answer = stage.client().post(ROUTES[0].0, &body);
    assert_eq!((answer.status, done(&answer)), (200, "passed"));
    let told = report(&answer);
    assert_eq!(told["reason"], "failed");
    assert!(told["problems"][0].as_str().unwrap().contains("window"), "{told}");
    assert_eq!(stage.got().json(), body);
    // A store that is gone keeps nobody from their provider either.
    std::fs::remove_file(stage.server.folder.join("a.db")).unwrap();
    std::fs::write(stage.server.folder.join("a.db"), b"no database at all").unwrap();
    let answer = stage.client().post(ROUTES[0].0, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(stage.got().json(), body);
}

#[test]
fn the_providers_key_is_forwarded_and_epitomes_is_not() {
    let stage = Stage::new(&["--require-keys", "always"]);
    let body = Talk::new("Ann").ask().body();
    let told = |answer: &Answer| answer.json()["error"]["message"].as_str().unwrap().to_owned();
    let bare = stage.client().post(ROUTES[0].0, &body);
    assert_eq!((bare.status, done(&bare)), (401, "refused"));
    assert!(told(&bare).contains("x-epitome-key"), "{}", told(&bare));
    let wrong = stage.client().with("x-epitome-key", "epk_nobody").post(ROUTES[0].0, &body);
    assert_eq!(wrong.status, 401);
    let ours = key(&stage.server, "team");
    for name in ["authorization", "x-api-key"] {
        let bearer = format!("Bearer {ours}");
        let misplaced = stage.server.client().with("x-epitome-key", &ours).with(name, &bearer);
        assert_eq!({ misplaced }.post(ROUTES[0].0, &body).status, 401);
    }
    assert!(stage.upstream.seen().is_empty(), "nobody without a key gets anywhere");
    let elsewhere = stage.client().with("x-epitome-key", &ours).with("x-epitome-workspace", "other");
    assert_eq!({ elsewhere }.post(ROUTES[0].0, &body).status, 403);
    let answer = stage.client().with("x-epitome-key", &ours).post(ROUTES[0].0, &body);
    assert_eq!((answer.status, done(&answer)), (200, "untouched"));
    let got = stage.got();
    assert_eq!(got.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert!(!got.headers.iter().any(|(name, value)| name.starts_with("x-epitome") || value.contains(&ours)));
    // Anthropic's clients are told in their own words.
    let bare = stage.client().post(ROUTES[2].0, &body).json();
    assert_eq!(
        (bare["type"].as_str(), bare["error"]["type"].as_str()),
        (Some("error"), Some("authentication_error"))
    );
}

#[test]
fn a_web_page_cannot_use_the_proxy() {
    let stage = Stage::new(&[]);
    let body = Talk::new("Ann").ask().body();
    let lured = stage.client().with("origin", "https://evil.example").post(ROUTES[0].0, &body);
    assert_eq!(lured.status, 403);
    assert!(stage.upstream.seen().is_empty());
}

#[test]
fn no_path_leaves_the_upstreams_base_path() {
    let stage = Stage::new(&[]);
    for path in ["/openai/v1/../../admin", "/openai/v1/%2e%2e/%2E%2E/admin", "/anthropic/v1/a/../../b"] {
        assert_eq!(stage.client().get(path).status, 400, "{path}");
    }
    for path in ["/openai/chat/completions", "/openai/v2/models", "/anthropic/messages"] {
        let refused = stage.client().get(path);
        assert_eq!(refused.status, 404, "{path}");
        assert!(refused.text().contains("base URL ends in"), "{}", refused.text());
    }
    assert!(stage.upstream.seen().is_empty());
    let upgrade = stage.client().send("GET", "/openai/v1/realtime", &[("upgrade", "websocket")], None);
    assert_eq!(upgrade.status, 501);
}

#[test]
fn provider_errors_are_forwarded_unchanged() {
    let stage = Stage::new(&[]);
    let body = Talk::new("Ann").ask().body();
    for (act, status) in [
        (Behavior::Busy(7), 429),
        (Behavior::Fails, 500),
        (Behavior::Page(503), 503),
        (Behavior::Refuses, 400),
    ] {
        let mut direct = stage.server.client();
        direct.address = stage.upstream.origin().trim_start_matches("http://").to_owned();
        stage.upstream.then(act).then(act);
        let (through, there) = (stage.client().post(ROUTES[0].0, &body), direct.post(ROUTES[0].1, &body));
        assert_eq!((through.status, &through.body), (status, &there.body), "{act:?}");
        assert_eq!(through.header("retry-after"), there.header("retry-after"));
        assert_eq!(through.header("content-type"), there.header("content-type"));
        assert_eq!(done(&through), "untouched");
    }
}

#[test]
fn an_unreachable_upstream_is_an_error_in_its_format() {
    let server = Stage::serve("http://127.0.0.1:9", None, &[]);
    let body = Talk::new("Ann").ask().body();
    let gone = server.client().post(ROUTES[0].0, &body);
    assert_eq!((gone.status, done(&gone)), (502, "refused"));
    let told = gone.json();
    assert_eq!(told["error"]["type"], "api_error");
    assert!(!told.to_string().contains("127.0.0.1"), "{told}");
    let gone = server.client().post(ROUTES[2].0, &body);
    assert_eq!((gone.status, gone.json()["type"].as_str()), (502, Some("error")));
}

#[test]
fn the_log_contains_no_message_and_no_key() {
    let stage = Stage::new(&["--log-level", "debug", "--set", "condense.trigger=tokens(1000)"]);
    let mut talk = Talk::new("MARKER-4711");
    talk.go_on(&mut stage.client(), 12);
    stage.upstream.then(Behavior::TooLong).then(Behavior::Fails);
    talk.ask().send(&mut stage.client());
    let _ = stage.client().get("/openai/v1/files/MARKER-4711?name=MARKER-4711");
    let log = stage.server.log();
    assert!(log.contains("/openai/v1/chat/completions"), "{log}");
    assert!(!log.contains("MARKER-4711") && !log.contains("sk-of-the-caller"), "{log}");
}
