//! What came out of a request, and what requests are made of.

use epitome::dialect::Dialect;
use epitome_core::message::Message;
use epitome_testkit::drawing::draw;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::provider::Provider;
use crate::judges;

pub(crate) const SHAPES: [Dialect; 3] = [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC];

/// What one run of the command gave, or what an upstream got in place of a request.
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

/// A provider on loopback, and what it runs on.
pub(crate) fn provider() -> (Provider, Runtime) {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(Provider::start());
    (provider, runtime)
}

/// A list as a wire spells it, mending nothing.
pub(crate) fn spelled(shape: Dialect, list: &[Message]) -> Value {
    match shape.name() {
        "openai" => judges::chat::spell(list).body,
        "responses" => judges::responses::spell(list).body,
        _ => judges::anthropic::spell(list).body,
    }
}

pub(crate) fn complaints(shape: Dialect, body: &Value) -> Vec<String> {
    match shape.name() {
        "openai" => judges::chat::complaints(body),
        "responses" => judges::responses::complaints(body),
        _ => judges::anthropic::complaints(body),
    }
}

/// What is asked and answered about one parcel, which can be told from the others.
pub(crate) fn turn(n: usize) -> [Value; 2] {
    [
        json!({ "role": "user", "content": format!(
            "Where is parcel P-{n}0071? It was sent to Oslo on {} May and the customer, number {n}4711, is waiting.", n % 28 + 1) }),
        json!({ "role": "assistant", "content": format!(
            "Parcel P-{n}0071 left Bergen at 14:{:02}, is with the carrier now, and comes on Monday before noon.", n % 60) }),
    ]
}

/// A chat of so many turns about parcels.
pub(crate) fn talk(turns: usize) -> Vec<Value> {
    (1..=turns).flat_map(turn).collect()
}

/// A talk under a system prompt, that ends with the user.
pub(crate) fn request(turns: usize) -> Value {
    let mut list = vec![json!({ "role": "system", "content": "You are a harbour master. Be brief." })];
    list.extend(talk(turns));
    list.push(json!({ "role": "user", "content": "And what about berth 9?" }));
    json!({ "model": "some-model", "messages": list })
}
