//! Sends generated and written histories through the proxy, like an agent.
//!
//! A [`Runner`] is a server whose upstream accepts and stores every request. The command has flags; the proxy has one
//! workspace with the same settings for each set of flags.

use std::collections::HashMap;
use std::sync::Mutex;

use epitome::dialect::Dialect;
use epitome_testkit::drawing::messages;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::cases::out::{Out, SHAPES, complaints, spelled};
use crate::judges::signed;
use crate::server::{Answer, Server};
use crate::upstream::{Manner, Upstream};
use epitome_testkit::provider::Provider;

pub(crate) struct Runner {
    pub(crate) server: Server,
    pub(crate) upstream: Upstream,
    /// The workspace of each set of flags.
    workspaces: Mutex<HashMap<String, String>>,
    _runtime: Runtime,
}

impl Runner {
    pub(crate) fn new() -> Self {
        Self::with("", Manner { window: 100_000_000, ..Manner::default() })
    }

    /// Creates a server on which `--model main` is this provider, with a context window of `window` tokens.
    pub(crate) fn with_model(provider: &Provider, window: u64) -> Self {
        let settings = format!(
            "[models.main]\nprovider = \"openai\"\nmodel = \"stand-in-1\"\nbase_url = \"{}\"\nwindow = {window}\n\
             output_reserve = 500\n[prices.\"stand-in-1\"]\ninput = 2.0\noutput = 10.0\n",
            provider.url()
        );
        Self::with(&settings, Manner { window: 100_000_000, ..Manner::default() })
    }

    /// Creates a server with these settings and an upstream with this behavior.
    pub(crate) fn with(settings: &str, manner: Manner) -> Self {
        let runtime = Runtime::new().unwrap();
        let upstream = runtime.block_on(Upstream::start(manner));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("epitome.toml"), settings).unwrap();
        let origin = upstream.origin();
        let flags = ["--openai-upstream", &origin, "--anthropic-upstream", &origin];
        let server = Server::in_folder(folder, &flags, &[]);
        Self { server, upstream, workspaces: Mutex::default(), _runtime: runtime }
    }

    /// Returns the workspace whose settings have the effect of these flags.
    fn workspace(&self, args: &[&str]) -> String {
        let mut workspaces = self.workspaces.lock().unwrap();
        let next = format!("w{}", workspaces.len());
        let name = workspaces.entry(args.join(" ")).or_insert_with(|| {
            let settings = json!({ "settings": { "condense": condense(args) } });
            let mut client = self.server.client().with("x-epitome-workspace", &next);
            client.json("PUT", "/v1/workspace", &settings).ok();
            next
        });
        name.clone()
    }

    /// Sends a request through the proxy, and returns the response.
    pub(crate) fn send(&self, shape: Dialect, text: &str, args: &[&str]) -> Answer {
        let path = match shape.name() {
            "anthropic" => "/anthropic/v1/messages",
            "responses" => "/openai/v1/responses",
            _ => "/openai/v1/chat/completions",
        };
        let mut client = self.server.client().with("x-epitome-workspace", &self.workspace(args));
        client.send("POST", path, &[("content-type", "application/json")], Some(text.as_bytes()))
    }

    /// Returns the request that the upstream receives for this text.
    #[track_caller]
    pub(crate) fn condense(&self, shape: Dialect, text: &str, args: &[&str]) -> Out {
        let answer = self.send(shape, text, args);
        let report: Value = serde_json::from_str(answer.header("x-epitome-report"))
            .unwrap_or_else(|error| panic!("{error}: {answer:?} {}", self.server.log()));
        let got = String::from_utf8(self.upstream.last().unwrap().body).unwrap();
        // What was condensed before stays so, until it is again.
        let word = answer.header("x-epitome");
        assert!(
            word == "condensed" || (word == "untouched" && report["condensed"] == json!(false)),
            "{word}: {report}"
        );
        Out { shape, came: text.to_owned(), text: got, report, errors: String::new() }
    }

    /// A drawn history in all three shapes. What comes out condensed has nothing a strict provider refuses.
    #[track_caller]
    pub(crate) fn drawn(&self, drawing: &str, args: &[&str]) -> Vec<Out> {
        let list = signed(&messages(drawing).unwrap());
        SHAPES.into_iter().map(|shape| self.strict(shape, &spelled(shape, &list), args)).collect()
    }

    /// The same for a request that is there already, which gets what every request has.
    #[track_caller]
    pub(crate) fn strict(&self, shape: Dialect, body: &Value, args: &[&str]) -> Out {
        let mut body = body.clone();
        if body.get("model").is_none() {
            body["model"] = json!("some-model");
        }
        if shape == Dialect::ANTHROPIC {
            body["max_tokens"] = json!(1);
        }
        let out = self.condense(shape, &body.to_string(), args);
        if out.report["condensed"] == json!(true) {
            let complaints = complaints(shape, &out.body());
            assert_eq!(complaints, Vec::<String>::new(), "{shape}: {body} became {}", out.text);
        }
        out
    }
}

/// The flags of the command as settings. Whatever is forced there is due at once here, and our own fields always leave.
fn condense(args: &[&str]) -> Map<String, Value> {
    let mut condense = Map::new();
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let mut value = || (*args.next().unwrap()).to_owned();
        let number = |value: String| json!(value.parse::<u64>().unwrap());
        let (key, value) = match *flag {
            "--force" => ("trigger", json!("tokens(1)")),
            "--strip" => continue,
            "--keep-messages" => ("keep", json!(format!("messages({})", value()))),
            "--keep-first" => ("keep_first", number(value())),
            "--window" => ("window", number(value())),
            "--strategy" => ("strategy", json!(value())),
            "--trigger" => ("trigger", json!(value())),
            "--model" => ("model", json!(value())),
            "--max-tokens" => ("max_tokens", number(value())),
            other => panic!("the proxy is not told {other}"),
        };
        condense.insert(key.to_owned(), value);
    }
    condense
}
