//! What the log tells, and what it never does.

use serde_json::{Value, json};

use crate::rough::Raw;
use crate::server::Server;

/// Stands for everything that is somebody's: words, names, keys, parameters.
const MARK: &str = "Zq7Secret";

/// The lines of a log that hold something of somebody's.
fn leaks(log: &str) -> Vec<&str> {
    let mark = MARK.to_ascii_lowercase();
    log.lines().filter(|line| line.to_ascii_lowercase().contains(&mark)).collect()
}

#[test]
fn the_log_check_detects_a_planted_leak() {
    assert_eq!(leaks("{\"message\":\"ready\"}\n{\"route\":\"/v1/sessions/{session}\"}\n"), [""; 0]);
    let planted = format!("{{\"message\":\"ready\"}}\nsession={MARK}\n");
    assert_eq!(leaks(&planted), [format!("session={MARK}")]);
    assert_eq!(leaks(&MARK.to_uppercase()).len(), 1);
}

/// All there is to be said of a request, for every route and method there is: in its path, its parameters, its headers
/// and its body.
fn requests(description: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let paths = description["paths"].as_object().unwrap();
    for (path, methods) in paths {
        let named: String = path
            .split('/')
            .map(|part| if part.starts_with('{') { MARK.to_owned() } else { part.to_owned() })
            .collect::<Vec<_>>()
            .join("/");
        // As above, with numbers where numbers are wanted.
        let first = format!("{{{}}}", "session");
        let numbered: String = path
            .replace(&first, MARK)
            .split('/')
            .map(|part| if part.starts_with('{') { "1".to_owned() } else { part.to_owned() })
            .collect::<Vec<_>>()
            .join("/");
        for (method, what) in methods.as_object().unwrap() {
            let method = method.to_uppercase();
            let parameters = what["parameters"].as_array().cloned().unwrap_or_default();
            let mut queries = vec![String::new(), format!("?{MARK}={MARK}")];
            for parameter in parameters.iter().filter(|parameter| parameter["in"] == "query") {
                queries.push(format!("?{}={MARK}", parameter["name"].as_str().unwrap()));
            }
            let bodies = [
                String::new(),
                format!("{{\"{MARK}"),
                format!("\"{MARK}\""),
                json!({MARK: MARK, "messages": [{"role": MARK, "content": MARK}]}).to_string(),
                json!({"role": "user", "content": MARK, "name": MARK, MARK: MARK}).to_string(),
                json!({"focus": MARK, "slot": MARK, "name": MARK, "metadata": {MARK: MARK}}).to_string(),
            ];
            for place in [&named, &numbered] {
                for query in &queries {
                    all.push(request(&method, place, query, &bodies[0], ""));
                }
                for body in &bodies[1..] {
                    all.push(request(&method, place, "", body, ""));
                }
                all.push(request(
                    &method,
                    place,
                    "",
                    &bodies[4],
                    &format!("authorization: Bearer {MARK}\r\n"),
                ));
                all.push(request(&method, place, "", &bodies[4], &format!("authorization: {MARK}\r\n")));
            }
        }
    }
    all
}

fn request(method: &str, path: &str, query: &str, body: &str, headers: &str) -> String {
    format!(
        "{method} {path}{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-epitome-workspace: {MARK}\r\n\
         user-agent: {MARK}\r\ncookie: a={MARK}\r\nidempotency-key: {MARK}\r\nif-none-match: {MARK}\r\n\
         last-event-id: {MARK}\r\n{headers}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn the_log_contains_no_user_data() {
    for format in ["text", "json"] {
        let server = Server::with(&["--log-level", "debug", "--log-format", format], &[]);
        let mut client = server.client().with("x-epitome-workspace", MARK);
        let part = json!([{"type": "text", "text": format!("{MARK} and more of {MARK}")}]);
        let message = json!({"role": "user", "parts": part, "author": MARK, "metadata": {MARK: MARK}});
        let many = json!(vec![message; 40]);
        client.post(&format!("/v1/sessions/{MARK}/messages"), &many).ok();
        client.post(&format!("/v1/sessions/{MARK}/summaries?wait"), &json!({"focus": MARK})).ok();
        client.get(&format!("/v1/sessions/{MARK}/context?tokens=500&scope={MARK}")).ok();
        client.get(&format!("/v1/sessions/{MARK}/search?q={MARK}")).ok();
        let description = client.get("/openapi.json").ok();
        let all = requests(&description);
        assert!(all.len() > 200, "{}", all.len());
        for request in &all {
            let status = Raw::send(&server, request.as_bytes()).line();
            assert!(status.starts_with("HTTP/1.1 "), "{status:?} to {request}");
        }
        for odd in [
            format!("GET /{MARK} HTTP/1.1\r\nhost: {MARK}\r\n\r\n"),
            format!("{MARK} / HTTP/1.1\r\n\r\n"),
            MARK.to_owned() + "\r\n\r\n",
        ] {
            Raw::send(&server, odd.as_bytes()).line();
        }
        let log = server.log();
        let told = log.matches("answered").count() + log.matches("failed").count();
        assert!(told > all.len(), "{told} of {} requests are in the log", all.len());
        assert!(log.contains("/v1/sessions/{session}/messages"), "by the shape of their path");
        assert_eq!(leaks(&log), [""; 0]);
    }
}

#[test]
fn a_piped_log_is_json_lines_of_the_chosen_level() {
    let server = Server::start();
    server.client().get("/v1/sessions").ok();
    let log = server.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines.iter().map(|line| line["message"].as_str().unwrap()).collect::<Vec<_>>(),
        ["starting", "ready"]
    );
    assert_eq!((&lines[0]["level"], &lines[0]["keys"]), (&json!("INFO"), &json!("off")));
    assert_eq!(lines[0]["address"], server.address);
    let quiet = Server::with(&["--log-level", "error"], &[]);
    quiet.client().get("/v1/sessions").ok();
    assert_eq!(quiet.log(), "");
    let all = Server::with(&["--log-level", "debug"], &[]);
    let answer = all.client().get("/v1/sessions");
    let id = answer.header("x-request-id").to_owned();
    let log = all.log();
    let line: Value =
        serde_json::from_str(log.lines().find(|line| line.contains("answered")).unwrap()).unwrap();
    assert_eq!((&line["request_id"], &line["route"]), (&json!(id), &json!("/v1/sessions")));
    assert_eq!((&line["method"], &line["status"]), (&json!("GET"), &json!(200)));
    assert!(line["duration_ms"].is_number(), "{line}");
}

#[test]
fn a_trigger_without_a_slot_is_logged_once() {
    let server = Server::with(&["--set", "trigger.shrt=messages(5)"], &[]);
    let log = server.log();
    assert_eq!(log.matches("no slot is named `shrt`").count(), 1, "{log}");
    assert!(log.contains("WARN") && log.contains("did you mean trigger.short?"), "{log}");
}
