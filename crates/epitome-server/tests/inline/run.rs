//! The command, run on drawn histories and on written ones.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use epitome::dialect::Dialect;
use epitome_core::drawing::{draw, messages};
use epitome_core::message::Message;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::judges::{self, signed};
use crate::provider::Provider;

pub(crate) const SHAPES: [Dialect; 3] = [Dialect::OpenAi, Dialect::Responses, Dialect::Anthropic];

/// What one run of the command gave.
pub(crate) struct Out {
    pub(crate) shape: Dialect,
    pub(crate) came: String,
    pub(crate) text: String,
    pub(crate) report: Value,
    pub(crate) errors: String,
}

impl Out {
    pub(crate) fn body(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.shape.read(&self.body()).unwrap()
    }

    pub(crate) fn drawn(&self) -> String {
        draw(&self.messages())
    }

    pub(crate) fn reason(&self) -> &str {
        self.report["reason"].as_str().unwrap_or_default()
    }

    /// The text of the summary, frame and all.
    pub(crate) fn summary(&self) -> String {
        let all = self.text_of_all();
        let from = all.find("<summary covers=").unwrap_or_else(|| panic!("no summary: {all}"));
        let end = all[from..].find("</summary>").unwrap();
        all[from..from + end].to_owned()
    }

    /// All that is said, in one text.
    pub(crate) fn text_of_all(&self) -> String {
        fn gather(value: &Value, out: &mut String) {
            match value {
                Value::String(text) => {
                    out.push_str(text);
                    out.push('\n');
                }
                Value::Array(values) => values.iter().for_each(|value| gather(value, out)),
                Value::Object(fields) => fields.values().for_each(|value| gather(value, out)),
                _ => {}
            }
        }
        let mut out = String::new();
        gather(&self.body(), &mut out);
        out
    }

    #[track_caller]
    pub(crate) fn is_as_it_was(&self, reason: &str) {
        assert_eq!((self.reason(), &self.report["condensed"]), (reason, &json!(false)), "{}", self.report);
        assert_eq!(self.text, self.came, "byte for byte");
    }

    #[track_caller]
    pub(crate) fn is_condensed(&self) -> &Self {
        assert_eq!(self.report["condensed"], json!(true), "{}: {}", self.shape, self.report);
        self
    }
}

/// A folder of its own, with settings.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Where `--model main` is this provider, who reads so many tokens.
    pub(crate) fn asking(provider: &Provider, window: u64) -> Self {
        let place = Self::new();
        let settings = format!(
            "[models.main]\nprovider = \"openai\"\nmodel = \"stand-in-1\"\nbase_url = \"{}\"\nwindow = {window}\n\
             output_reserve = 500\n[prices.\"stand-in-1\"]\ninput = 2.0\noutput = 10.0\n",
            provider.url()
        );
        std::fs::write(place.folder.path().join("epitome.toml"), settings).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the command on this text; it has to end well, and what it gives to please a strict provider.
    #[track_caller]
    pub(crate) fn condense(&self, shape: Dialect, text: &str, args: &[&str]) -> Out {
        let mut command = Command::new(env!("CARGO_BIN_EXE_epitome"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EPITOME_"))
        {
            command.env_remove(name);
        }
        for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            command.env_remove(name);
        }
        let report = self.path("report.json");
        command.current_dir(self.folder.path()).env("HOME", self.folder.path());
        command.args(["condense", "--format", shape.name(), "--report"]).arg(&report).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let (sent, came) = (text.as_bytes().to_vec(), text.to_owned());
        let writer = std::thread::spawn(move || input.write_all(&sent));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{shape}: {errors}");
        let text = String::from_utf8(output.stdout).unwrap();
        let report = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
        Out { shape, came, text, report, errors }
    }

    /// A drawn history in all three shapes. What comes out condensed has nothing a strict provider refuses.
    #[track_caller]
    pub(crate) fn drawn(&self, drawing: &str, args: &[&str]) -> Vec<Out> {
        let list = signed(&messages(drawing).unwrap());
        SHAPES.into_iter().map(|shape| self.strict(shape, &spelled(shape, &list), args)).collect()
    }

    /// The same for a request that is there already.
    #[track_caller]
    pub(crate) fn strict(&self, shape: Dialect, body: &Value, args: &[&str]) -> Out {
        let out = self.condense(shape, &body.to_string(), args);
        if out.report["condensed"] == json!(true) {
            let mut complaints = complaints(shape, &out.body());
            // A request's other fields are its own.
            complaints.retain(|complaint| !complaint.starts_with("request:"));
            assert_eq!(complaints, Vec::<String>::new(), "{shape}: {body} became {}", out.text);
        }
        out
    }
}

/// A provider on loopback, and what it runs on.
pub(crate) fn provider() -> (Provider, Runtime) {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(Provider::start());
    (provider, runtime)
}

/// A list as a wire spells it, mending nothing.
pub(crate) fn spelled(shape: Dialect, list: &[Message]) -> Value {
    match shape {
        Dialect::OpenAi => judges::chat::spell(list).body,
        Dialect::Responses => judges::responses::spell(list).body,
        _ => judges::anthropic::spell(list).body,
    }
}

pub(crate) fn complaints(shape: Dialect, body: &Value) -> Vec<String> {
    match shape {
        Dialect::OpenAi => judges::chat::complaints(body),
        Dialect::Responses => judges::responses::complaints(body),
        _ => judges::anthropic::complaints(body),
    }
}

/// A chat of so many turns about parcels, each of which can be told from the others.
pub(crate) fn talk(turns: usize) -> Vec<Value> {
    let turn = |n: usize| {
        [
            json!({ "role": "user", "content": format!(
                "Where is parcel P-{n}0071? It was sent to Oslo on {} May and the customer, number {n}4711, is waiting.", n % 28 + 1) }),
            json!({ "role": "assistant", "content": format!(
                "Parcel P-{n}0071 left Bergen at 14:{:02}, is with the carrier now, and comes on Monday before noon.", n % 60) }),
        ]
    };
    (1..=turns).flat_map(turn).collect()
}

/// A talk under a system prompt, that ends with the user.
pub(crate) fn request(turns: usize) -> Value {
    let mut list = vec![json!({ "role": "system", "content": "You are a harbour master. Be brief." })];
    list.extend(talk(turns));
    list.push(json!({ "role": "user", "content": "And what about berth 9?" }));
    json!({ "model": "some-model", "messages": list })
}
