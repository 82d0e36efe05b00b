//! A fifth provider format, written in this file alone, goes through import, context, condense, `/v1` and the proxy.
//!
//! The program that is tested is this test itself: it registers the format and then is `epitome`, so that the commands and the
//! server are the real ones. Started without `RADIO_UPSTREAM` it runs the tests below against itself.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on should stop, loudly"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};

use epitome::dialect::format::{About, Endpoint, ErrorReply, Format, FormatHint};
use epitome::dialect::{Dialect, DialectError, Object, PartialUsage, register};
use epitome::rules::message::{Message, Part, Role};
use serde_json::{Value, json};

/// Messages are `{"from": "field", "over": "…"}`, and requests `{"log": […]}`.
#[derive(Debug)]
struct Radio {
    about: About,
}

impl Radio {
    fn at(upstream: &'static str) -> Self {
        let endpoint = Endpoint {
            provider: "radio",
            base_url: upstream,
            route: "transmit",
            route_name: "transmissions",
            client_base: "/radio",
            key_env: "RADIO_KEY",
            key: ("x-call-sign", ""),
            credentials: &[],
            headers: &[],
        };
        Self { about: About { list_field: "log", endpoint: Some(endpoint), ..About::new("radio") } }
    }
}

impl Format for Radio {
    fn about(&self) -> &About {
        &self.about
    }

    fn message_hint(&self, message: &Object) -> Option<FormatHint> {
        (message.contains_key("from") && message.contains_key("over")).then_some(FormatHint::Shape)
    }

    fn read(&self, wire: &Value) -> Result<Message, DialectError> {
        let role = match wire["from"].as_str() {
            Some("base") => Role::System,
            Some("field") => Role::User,
            Some("model") => Role::Assistant,
            _ => return Err(DialectError::new("from", "must be base, field or model")),
        };
        let over = wire["over"].as_str().ok_or_else(|| DialectError::new("over", "must be a text"))?;
        Ok(Message::new(role, [Part::text(over)]))
    }

    fn encode(&self, message: &Message) -> Vec<Value> {
        let from = match message.role {
            Role::System | Role::Developer => "base",
            Role::Assistant => "model",
            Role::User | Role::Peer | Role::Tool => "field",
        };
        let said = message.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        vec![json!({ "from": from, "over": said.collect::<Vec<_>>().join("\n") })]
    }

    fn read_usage(&self, reply: &Value, usage: &mut PartialUsage) {
        usage.input = reply["heard_tokens"].as_u64();
        usage.output = reply["said_tokens"].as_u64();
    }

    fn error_body(&self, error: &ErrorReply<'_>) -> Value {
        json!({ "static": error.message })
    }
}

fn main() -> ExitCode {
    match std::env::var("RADIO_UPSTREAM") {
        Ok(upstream) => {
            register(Box::leak(Box::new(Radio::at(upstream.leak())))).unwrap();
            epitome_server::run()
        }
        Err(_) => {
            let tests: [(&str, fn()); 5] = [
                (
                    "messages_are_imported_and_exported_unchanged",
                    messages_are_imported_and_exported_unchanged,
                ),
                ("a_request_is_condensed", a_request_is_condensed),
                ("a_model_can_use_the_new_format", a_model_can_use_the_new_format),
                ("http_accepts_the_format_by_its_name", http_accepts_the_format_by_its_name),
                (
                    "the_proxy_condenses_requests_and_renders_errors_in_the_format",
                    the_proxy_condenses_requests_and_renders_errors_in_the_format,
                ),
            ];
            let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
            let listed = std::env::args().any(|arg| arg == "--list");
            for (name, test) in tests {
                if listed {
                    println!("{name}: test");
                } else if wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
                    test();
                    println!("test {name} ... ok");
                }
            }
            ExitCode::SUCCESS
        }
    }
}

/// This program as `epitome`, with the fifth format.
fn epitome(folder: &Path, upstream: &str) -> Command {
    let mut run = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars() {
        if name.starts_with("EPITOME_") || name.starts_with("XDG_") {
            run.env_remove(name);
        }
    }
    run.current_dir(folder).env("HOME", folder).env("RADIO_UPSTREAM", upstream).stdin(Stdio::null());
    run
}

#[track_caller]
fn good(folder: &Path, args: &[&str]) -> String {
    let done = epitome(folder, "http://127.0.0.1:1").args(args).args(["--db", "a.db"]).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn talk(turns: usize) -> Vec<Value> {
    let mut log = vec![json!({ "from": "base", "over": "You look after the harbour.", "channel": 16 })];
    for turn in 1..=turns {
        let filler = format!("berth {turn} on the north quay, rope {}, ", turn * 7).repeat(8);
        log.push(
            json!({ "from": "field", "over": format!("Where is ship S{turn}? {filler}"), "x": [turn, 1.5] }),
        );
        log.push(json!({ "over": format!("Ship S{turn} is at its berth."), "from": "model" }));
    }
    log.push(json!({ "from": "field", "over": "And the last one?" }));
    log
}

/// A request whose other fields and messages are spelled as only this program would.
fn request(turns: usize) -> String {
    let log: Vec<String> = talk(turns).iter().map(|message| format!("  {message}")).collect();
    format!(
        "{{\"band\": 1.0e0,\n \"log\": [\n{}\n], \"model\": \"vhf-1\", \"q\": \"\\u00e9\"}}",
        log.join(",\n")
    )
}

/// The log of a request, its messages as they are spelled.
fn log(body: &str) -> Vec<Value> {
    serde_json::from_str::<Value>(body).unwrap()["log"].as_array().unwrap().clone()
}

/// Whether `shorter` is the same request with fewer messages, those that stay letter for letter.
#[track_caller]
fn is_shorter(shorter: &str, whole: &str) {
    let (now, before) = (log(shorter), log(whole));
    assert!(now.len() < before.len() && shorter.len() < whole.len(), "{shorter}");
    assert!(
        shorter.starts_with("{\"band\": 1.0e0,\n \"log\": [") && shorter.ends_with("\"q\": \"\\u00e9\"}"),
        "{shorter}"
    );
    let last = before.last().unwrap().to_string();
    assert!(shorter.contains(&last) && now.iter().any(|message| !before.contains(message)), "{shorter}");
    assert!(now.iter().filter(|message| before.contains(message)).count() + 1 >= now.len(), "{shorter}");
}

fn a_model_can_use_the_new_format() {
    let folder = tempfile::tempdir().unwrap();
    let run = |provider: &str| {
        let file = format!(
            "[models.m]\nprovider = \"{provider}\"\nmodel = \"x\"\nbase_url = \"http://127.0.0.1:1/v1\"\n"
        );
        std::fs::write(folder.path().join("epitome.toml"), file).unwrap();
        std::fs::write(folder.path().join("request.json"), request(2)).unwrap();
        epitome(folder.path(), "http://127.0.0.1:1").args(["condense", "request.json"]).output().unwrap()
    };
    assert!(run("radio").status.success());
    let refused = String::from_utf8(run("telegraph").stderr).unwrap();
    assert!(refused.contains("expected openai, anthropic, radio or local"), "{refused}");
}

fn messages_are_imported_and_exported_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = talk(3).iter().map(Value::to_string).collect();
    std::fs::write(folder.path().join("lines.jsonl"), lines.join("\n")).unwrap();
    std::fs::write(folder.path().join("whole.json"), request(3)).unwrap();
    for (file, flags) in [("lines.jsonl", &[][..]), ("whole.json", &["--format", "radio"][..])] {
        good(folder.path(), &[&["import", file], flags].concat());
    }
    for session in ["lines", "whole"] {
        let given = good(folder.path(), &["export", session, "--format", "radio"]);
        assert_eq!(given.lines().collect::<Vec<_>>(), lines, "{session}");
        let context = good(folder.path(), &["context", session, "--tokens", "2000", "--format", "radio"]);
        let plain: Vec<Value> = talk(3)
            .into_iter()
            .map(|message| json!({ "from": message["from"], "over": message["over"] }))
            .collect();
        assert_eq!(serde_json::from_str::<Value>(&context).unwrap(), json!({ "log": plain }));
        let chat = good(folder.path(), &["context", session, "--tokens", "2000", "--format", "openai"]);
        assert_eq!(serde_json::from_str::<Value>(&chat).unwrap()["messages"][0]["role"], "system");
    }
}

fn a_request_is_condensed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("request.json"), request(30)).unwrap();
    for flags in [&["--format", "radio"][..], &[]] {
        let shorter = good(folder.path(), &[&["condense", "request.json", "--force"], flags].concat());
        is_shorter(shorter.trim_end(), &request(30));
    }
}

/// A running server, killed when dropped.
struct Server {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(upstream: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut run = epitome(folder.path(), upstream);
        run.args(["serve", "--db", "a.db", "--listen", "127.0.0.1:0"]).args(flags);
        let mut child = run.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address = said.trim().strip_prefix("listening on http://").expect("a server").to_owned();
        Self { child, address, _folder: folder }
    }

    /// Status line and headers in lower case, and the body.
    fn send(&self, method: &str, path: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
        );
        write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), body.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn http_accepts_the_format_by_its_name() {
    let server = Server::start("http://127.0.0.1:1", &[]);
    let body = json!({ "format": "radio", "messages": talk(2) }).to_string();
    let (head, said) = server.send("POST", "/v1/sessions/a/messages", &body);
    assert!(head.starts_with("http/1.1 201"), "{head} {said}");
    let (head, said) = server.send("GET", "/v1/sessions/a/context?tokens=2000&format=radio", "");
    assert!(head.starts_with("http/1.1 200") && said.contains("\"log\""), "{head} {said}");
    let (head, said) = server.send("POST", "/v1/condense?force=true", &request(30));
    assert!(head.starts_with("http/1.1 200"), "{head} {said}");
    is_shorter(&said, &request(30));
    let (_, said) = server.send("GET", "/v1/sessions/a/messages?format=morse", "");
    assert!(said.contains("use one of: openai, responses, anthropic, epitome, radio"), "{said}");
}

/// A provider that answers every request alike, and tells what it got.
fn provider() -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            stream.read_line(&mut line).unwrap();
            loop {
                let mut header = String::new();
                if stream.read_line(&mut header).unwrap() == 0 || header == "\r\n" {
                    break;
                }
                if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let reply = r#"{"over": "Roger.", "heard_tokens": 900, "said_tokens": 3}"#;
            let size = reply.len();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            write!(stream.get_mut(), "{head}content-length: {size}\r\n\r\n{reply}").unwrap();
            if tell.send((line, String::from_utf8(body).unwrap())).is_err() {
                return;
            }
        }
    });
    (address, told)
}

fn the_proxy_condenses_requests_and_renders_errors_in_the_format() {
    let (address, told) = provider();
    let server =
        Server::start(&address, &["--set", "condense.trigger=tokens(2000)", "--set", "condense.model=local"]);
    let small = request(2);
    let (head, said) = server.send("POST", "/radio/v1/transmit", &small);
    assert!(head.contains("x-epitome: untouched") && said.contains("Roger."), "{head} {said}");
    let (line, got) = told.recv().unwrap();
    assert_eq!((line.trim(), got.as_str()), ("POST /v1/transmit HTTP/1.1", small.as_str()));
    let large = request(60);
    let (head, said) = server.send("POST", "/radio/v1/transmit", &large);
    assert!(head.contains("x-epitome: condensed") && said.contains("Roger."), "{head} {said}");
    is_shorter(&told.recv().unwrap().1, &large);
    let (head, _) = server.send("GET", "/radio/v1/stations", "");
    assert!(head.contains("x-epitome: passed"), "{head}");
    assert_eq!(told.recv().unwrap().0.trim(), "GET /v1/stations HTTP/1.1");
    let (head, said) = server.send("GET", "/radio/other", "");
    assert!(head.starts_with("http/1.1 404") && said.starts_with("{\"static\":"), "{head} {said}");
    assert_eq!(Dialect::OPENAI.name(), "openai", "the others are still there");
}
