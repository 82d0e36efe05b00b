//! The official Python clients, pinned and unchanged, through the proxy.
//!
//! The programs are in `tests/clients/`. They were written for the providers and know nothing of Epitome: all that differs is
//! the address, in the variable where the client looks for it. Each is also run without the proxy, to see that it can fail.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::runtime::Runtime;

use crate::python::installed;
use crate::server::Server;
use crate::upstream::{Manner, Upstream};
use epitome_testkit::postgres_server;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

/// What callers of the upstream come with.
const KEY: &str = "sk-stand-in-0123456789abcdef";

/// What the agents must still know at the end; all of it is in the first thing they are asked.
const FACTS: &[(&str, &str)] = &[
    ("the task", "Port the harbour's billing from floats to whole øre"),
    ("the first file", "src/fees/winter.rs"),
    ("the second file", "src/fees/guests.rs"),
    ("the ticket", "HB-2214"),
    ("the rule", "never edit migrations/0007_berths.sql"),
];

/// An upstream that reads 16,000 tokens, and what it runs on.
fn upstream() -> (Upstream, Runtime) {
    let runtime = Runtime::new().unwrap();
    let manner = Manner { window: 16_000, facts: FACTS, key: Some(KEY), ..Manner::default() };
    (runtime.block_on(Upstream::start(manner)), runtime)
}

/// A proxy before it, on a new database.
fn proxy(upstream: &Upstream) -> Server {
    proxy_with(upstream, &[])
}

/// The same with more flags. The upstream's model is one that nobody knows, so that its window has to be said.
fn proxy_with(upstream: &Upstream, more: &[&str]) -> Server {
    let origin = upstream.origin();
    let flags = ["--openai-upstream", &origin, "--anthropic-upstream", &origin];
    let flags = flags.into_iter().chain(more.iter().copied());
    let settings = [
        "condense.window=16000",
        "condense.strategy=amortized",
        "condense.threshold=0.75",
        "condense.max_tokens=1500",
    ];
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    Server::with(&flags.chain(settings).collect::<Vec<_>>(), &[])
}

/// Where a client is to look: at the proxy, or at the upstream itself.
struct Addresses {
    openai: String,
    anthropic: String,
    proxied: bool,
}

impl Addresses {
    fn of(server: &Server) -> Self {
        let at = format!("http://{}", server.address);
        Self { openai: format!("{at}/openai/v1"), anthropic: format!("{at}/anthropic"), proxied: true }
    }

    fn direct(upstream: &Upstream) -> Self {
        Self { openai: upstream.url(), anthropic: upstream.origin(), proxied: false }
    }
}

/// What a program printed, and whether it ended well.
fn run(program: &Path, flags: &[&str], at: &Addresses) -> Result<String, String> {
    let python = installed(
        "clients",
        &Path::new(FOLDER).join("requirements.txt"),
        Path::new(env!("CARGO_TARGET_TMPDIR")),
    )
    .join("bin/python");
    let mut run = Command::new(python);
    for (name, _) in std::env::vars() {
        if ["OPENAI_", "ANTHROPIC_", "EPITOME"].iter().any(|start| name.starts_with(start)) {
            run.env_remove(name);
        }
    }
    run.arg(program).args(flags).env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", FOLDER);
    run.env("OPENAI_BASE_URL", &at.openai).env("ANTHROPIC_BASE_URL", &at.anthropic);
    run.env("OPENAI_API_KEY", KEY).env("ANTHROPIC_API_KEY", KEY);
    // Nothing may stand between a client and a server on this machine.
    run.env("NO_PROXY", "127.0.0.1");
    if at.proxied {
        run.env("EPITOME", "1");
    }
    let said = run.output().unwrap();
    let out = String::from_utf8_lossy(&said.stdout).into_owned();
    if said.status.success() {
        Ok(out)
    } else {
        Err(format!("{out}\n{}", String::from_utf8_lossy(&said.stderr)))
    }
}

fn program(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// The agent runs ten times past the window, streaming and not, and still knows what it began with. Without the proxy it is
/// refused.
fn goes_on(name: &str) {
    let (upstream, _runtime) = upstream();
    goes_on_through(&proxy(&upstream), &upstream, name, &[&[], &["--stream"]]);
    let refused = run(&program(name), &[], &Addresses::direct(&upstream)).unwrap_err();
    assert!(refused.contains("BadRequestError"), "{name}: {refused}");
}

/// It does so in each of these manners.
fn goes_on_through(server: &Server, upstream: &Upstream, name: &str, manners: &[&[&str]]) {
    for flags in manners {
        let said = run(&program(name), flags, &Addresses::of(server));
        let said = said.unwrap_or_else(|error| panic!("{name} {flags:?}: {error}\n{}", server.log()));
        let told: Value = serde_json::from_str(&said).unwrap();
        assert!(told["bytes"].as_u64().unwrap() > 10 * 16_000 * 3, "{told}");
        let answer = told["answer"].as_str().unwrap();
        for (what, fact) in FACTS {
            assert!(
                answer.contains(&format!("{what}: {fact}")),
                "{name} {flags:?}: {what} is forgotten: {answer}"
            );
        }
    }
    assert_eq!(upstream.invalid(), Vec::<String>::new(), "{name}");
    assert_eq!(upstream.repeated(), 0, "{name}");
    only_theirs(upstream);
}

/// Nothing of ours goes on to the upstream, and their key does.
fn only_theirs(upstream: &Upstream) {
    let seen = upstream.seen();
    assert!(!seen.is_empty());
    for request in seen {
        let ours = request.headers.iter().find(|(name, _)| name.starts_with("x-epitome"));
        assert_eq!(ours, None, "{}", request.path);
    }
}

#[test]
fn an_agent_on_chat_completions_runs_ten_times_past_its_window() {
    goes_on("openai_chat_agent.py");
}

/// What is kept of lists is the same for all three, so one of them will do.
#[test]
fn an_agent_runs_ten_times_past_its_window_on_postgres() {
    let database = postgres_server::server().database();
    let (upstream, _runtime) = upstream();
    let server = proxy_with(&upstream, &["--db", &database.url()]);
    goes_on_through(&server, &upstream, "openai_chat_agent.py", &[&["--stream"]]);
    assert_ne!(database.psql("SELECT count(*) FROM epitome.inline"), "0", "nothing is kept");
}

#[test]
fn an_agent_on_responses_runs_ten_times_past_its_window() {
    goes_on("openai_responses_agent.py");
}

#[test]
fn an_agent_on_anthropics_messages_runs_ten_times_past_its_window() {
    goes_on("anthropic_agent.py");
}

/// What a client's programs lean on holds through the proxy as it does without.
fn features_hold(name: &str) {
    let (upstream, _runtime) = upstream();
    let gone = |proxied: &str, since: usize| {
        // Four were given up on by their callers: two without a word from the upstream, and two in mid-stream.
        let start = Instant::now();
        while upstream.in_progress() != (0, since + 4) {
            assert!(start.elapsed() < Duration::from_secs(60), "{proxied}: {:?}", upstream.in_progress());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    run(&program(name), &[], &Addresses::direct(&upstream)).unwrap_or_else(|error| panic!("{name}: {error}"));
    gone("direct", 0);
    let server = proxy(&upstream);
    run(&program(name), &[], &Addresses::of(&server))
        .unwrap_or_else(|error| panic!("{name} proxied: {error}\n{}", server.log()));
    gone("proxied", 4);
    only_theirs(&upstream);
    assert!(!server.log().contains(KEY) && !server.log().contains("berths"), "{}", server.log());
}

#[test]
fn openais_client_works_through_the_proxy() {
    features_hold("openai_features.py");
}

#[test]
fn anthropics_client_works_through_the_proxy() {
    features_hold("anthropic_features.py");
}

/// The README's quick starts, as they are written there but for the port.
#[test]
fn the_quick_starts_work_as_documented() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let shown = readme.split("```python\n").skip(1).filter_map(|rest| rest.split("```").next());
    let shown: Vec<&str> = shown.filter(|code| code.contains("base_url=\"http://127.0.0.1:7878/")).collect();
    assert!(shown.len() == 2, "one for each client: {shown:?}");
    let (upstream, _runtime) = upstream();
    let server = proxy(&upstream);
    // Nothing but what the code says leads to the proxy.
    let nowhere = Addresses {
        openai: "http://127.0.0.1:9/v1".to_owned(),
        anthropic: "http://127.0.0.1:9".to_owned(),
        proxied: true,
    };
    for code in shown {
        let place = server.folder.join("shown.py");
        std::fs::write(&place, code.replace("127.0.0.1:7878", &server.address)).unwrap();
        let said = run(&place, &[], &nowhere).unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
        assert!(said.contains("the berths on the north quay are free"), "{said}");
    }
    assert_eq!(upstream.requests().0, 2);
}
