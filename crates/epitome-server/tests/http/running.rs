//! How the server starts, says whether it is ready, and ends.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::provider::{Act, Provider};
use crate::rough::Raw;
use crate::server::{Server, command, db};
use crate::signal;

/// What `serve` says where it cannot: its exit code and its one line.
pub fn refused(folder: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let mut run = command(folder);
    run.arg("serve").args(flags);
    if !flags.contains(&"--db") {
        run.args(["--db", &db(folder)]);
    }
    let out = run.output().unwrap();
    assert!(out.stdout.is_empty());
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

#[test]
fn an_unusable_address_is_one_line_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (listen, code, told) in [
        (address.as_str(), 1, "another program listens there"),
        ("192.0.2.1:7878", 1, "this machine does not have this address"),
        ("127.0.0.1", 2, "ADDRESS:PORT"),
        ("127.0.0.1:99999", 2, "ADDRESS:PORT"),
        ("127.0.0.1:http", 2, "ADDRESS:PORT"),
        ("", 2, "ADDRESS:PORT"),
    ] {
        let (given, line) = refused(folder.path(), &["--listen", listen]);
        assert_eq!(given, Some(code), "{listen}: {line}");
        assert!(line.starts_with("epitome: ") && line.contains(told), "{listen}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "no database was made");
}

/// Whether these tests were started by `nohup` or the like: then a server that they start stays, and rightly, when it is
/// hung up on.
fn outlives_terminal() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 == 1
}

#[test]
fn the_server_shuts_down_in_order() {
    let signals = if outlives_terminal() { &["TERM", "INT"][..] } else { &["TERM", "INT", "HUP"] };
    for signal in signals {
        let mut server = Server::start();
        let mut client = server.client();
        client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "Hi."})).ok();
        let mut listener = Raw::send(&server, b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert!(listener.line().starts_with("HTTP/1.1 200"));
        let mut idle = Raw::send(&server, b"");
        let mut half = Raw::send(&server, b"GET /healthz HT");
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0), "{signal}");
        assert!(!server.log().contains("cut off"), "nobody had to be waited for");
        assert!(listener.rest().ends_with("0\r\n\r\n"), "the stream is ended, not broken");
        assert_eq!((idle.rest(), half.rest()), (String::new(), String::new()));
        let log = server.log();
        let told: Vec<&str> = ["starting", "ready", "stopping", "stopped"]
            .into_iter()
            .filter(|word| log.contains(&format!("\"message\":\"{word}\"")))
            .collect();
        assert_eq!(told, ["starting", "ready", "stopping", "stopped"], "{log}");
    }
}

/// A body that is still coming in is waited for, and what it asks for is done.
#[test]
fn shutdown_finishes_open_requests_and_accepts_no_new_ones() {
    let mut server = Server::start();
    let body = br#"{"role":"user","content":"Hi."}"#;
    let head =
        "POST /v1/sessions/ann/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut under_way =
        Raw::send(&server, format!("{head}content-length: {}\r\n\r\n{{", body.len()).as_bytes());
    // It is under way once it is counted.
    while !server
        .client()
        .get("/metrics")
        .text()
        .contains("epitome_http_requests_in_progress{kind=\"request\"} 1")
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.signal("TERM");
    while std::net::TcpStream::connect(&server.address).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    under_way.more(&body[1..]);
    let answer = under_way.answer();
    assert_eq!((answer.status, answer.header("connection")), (201, "close"));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn requests_that_do_not_end_are_cut_off_at_shutdown() {
    let mut server = Server::with(&["--bound", "grace=200"], &[]);
    let head =
        "POST /v1/sessions/ann/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let _never = Raw::send(&server, format!("{head}content-length: 1000\r\n\r\n{{").as_bytes());
    while !server
        .client()
        .get("/metrics")
        .text()
        .contains("epitome_http_requests_in_progress{kind=\"request\"} 1")
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(server.log().contains("cut off"), "{}", server.log());
}

/// A runtime for the stand-in, and the stand-in.
fn provider() -> (tokio::runtime::Runtime, Provider) {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(1).enable_all().build().unwrap();
    let provider = runtime.block_on(Provider::start());
    (runtime, provider)
}

/// A server whose summaries that stand-in writes, and a session for which it was asked.
fn waiting_for(provider: &Provider, folder: &Path, flags: &[&str]) -> Server {
    let settings = format!(
        "[summarize]\nmodels = [\"mine\"]\nstand_in_after = \"never\"\n[models.mine]\nprovider = \"openai\"\n\
         model = \"m\"\nbase_url = {:?}\nstream = false\n[[slot]]\nname = \"short\"\ntrigger = \"messages(20)\"\n",
        provider.url()
    );
    std::fs::write(folder.join("epitome.toml"), settings).unwrap();
    let server = Server::on(folder, flags, &[]);
    let talk: Vec<_> = (1..=20)
        .map(|n| json!({"role": "user", "content": format!("Please look at order {n}0071, it has not arrived in Oslo.")}))
        .collect();
    server.client().post("/v1/sessions/ann/messages", &json!(talk)).ok();
    while provider.calls() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server
}

#[test]
fn shutdown_finishes_the_summary_in_progress() {
    let (_runtime, provider) = provider();
    provider.then(Act::Slow(Duration::from_millis(700)));
    let folder = tempfile::tempdir().unwrap();
    let mut server = waiting_for(&provider, folder.path(), &[]);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let again = Server::on(folder.path(), &[], &[]);
    let summaries = again.client().get("/v1/sessions/ann/summaries").ok();
    assert_eq!(summaries["items"][0]["slot"], "short", "{summaries}");
    assert_eq!(provider.calls(), 1, "nobody was asked again");
}

/// The lease is 30 seconds, and the model far slower than the grace; nobody has to wait for either.
#[test]
fn a_second_signal_releases_the_lease_of_a_slow_summary() {
    let (_runtime, provider) = provider();
    provider.then(Act::Silent);
    let folder = tempfile::tempdir().unwrap();
    let mut server = waiting_for(&provider, folder.path(), &[]);
    server.signal("TERM");
    while !server.log().contains("\"message\":\"stopping\"") {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(143), "{}", server.log());
    // Whoever comes next writes it, at once.
    let began = Instant::now();
    let again = Server::on(folder.path(), &[], &[]);
    while again.client().get("/v1/sessions/ann/summaries").ok()["items"] == json!([]) {
        assert!(began.elapsed() < Duration::from_secs(20), "the lease was not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whoever waits for a summary is told that it is still to come.
#[test]
fn shutdown_answers_clients_that_wait_for_a_summary() {
    let (_runtime, provider) = provider();
    provider.always(Act::Slow(Duration::from_millis(1_500)));
    let folder = tempfile::tempdir().unwrap();
    let mut server = waiting_for(&provider, folder.path(), &[]);
    let ask = b"POST /v1/sessions/ann/summaries?wait HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut waiting = Raw::send(&server, ask);
    while !server
        .client()
        .get("/metrics")
        .text()
        .contains("epitome_http_requests_in_progress{kind=\"summary_wait\"} 1")
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.signal("TERM");
    let answer = waiting.answer();
    assert_eq!(answer.status, 202, "{}", answer.text());
    assert!(answer.text().contains("shutting down"), "{}", answer.text());
    assert_eq!(server.wait().code(), Some(0));
}

/// A model may take minutes: those who wait for it are bounded among themselves.
#[test]
fn waiting_for_a_summary_uses_no_request_permits() {
    let (_runtime, provider) = provider();
    provider.always(Act::Silent);
    let folder = tempfile::tempdir().unwrap();
    let few = ["--bound", "requests=2", "--bound", "waiting=1"];
    let server = waiting_for(&provider, folder.path(), &few);
    let ask = |close: &str| {
        let head = "POST /v1/sessions/ann/summaries?wait HTTP/1.1\r\nhost: localhost\r\n";
        Raw::send(&server, format!("{head}{close}\r\n").as_bytes())
    };
    let _waiting = ask("");
    while !server
        .client()
        .get("/metrics")
        .text()
        .contains("epitome_http_requests_in_progress{kind=\"summary_wait\"} 1")
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..5 {
        let refused = ask("connection: close\r\n").answer();
        refused.refused(503, "limit of 1 requests that wait for a summary is reached");
        assert_eq!(refused.header("retry-after"), "1");
        assert_eq!(server.client().get("/v1/sessions/ann").status, 200);
    }
}

/// `nohup epitome serve &` goes on when the terminal is gone.
#[cfg(target_os = "linux")]
#[test]
fn a_server_started_with_nohup_survives_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut plain = std::process::Command::new("sh");
    plain.arg("-c").arg("trap '' HUP; exec \"$0\" serve --db \"$1\" --listen 127.0.0.1:0");
    plain
        .arg(command(folder.path()).get_program())
        .arg(db(folder.path()))
        .current_dir(folder.path())
        .env("HOME", folder.path());
    let mut child = plain.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("listening on "), "{said}");
    signal::send("HUP", child.id());
    std::thread::sleep(Duration::from_millis(200));
    signal::send("TERM", child.id());
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(log.contains("\"signal\":15"), "it was the second that ended it: {log}");
}
