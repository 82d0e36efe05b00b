//! Summaries by a provider through Honcho's routes: a failing provider leaves no gap, and no request waits for a slow one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api_models::served;
use crate::provider::{Act, Request};
use crate::server::{Client, Server};

/// Timeout of waiting, only for tests that would hang otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session of the workspace `w`, used through Honcho's routes.
struct Theirs {
    client: Client,
    path: String,
    /// The same session through the native routes.
    own: Client,
    name: String,
}

impl Theirs {
    fn new(server: &Server, name: &str) -> Self {
        let path = format!("/v3/workspaces/w/sessions/{name}");
        let own = server.client().with("x-epitome-workspace", "w");
        Self { client: server.client(), path, own, name: name.to_owned() }
    }

    /// Adds messages; each number and name gives a different text.
    fn tell(&mut self, from: usize, through: usize) {
        let name = &self.name;
        let line = |at: usize| {
            let said =
                format!("In {name}, parcel P-{at} went from Oslo to Bergen on day {at}; who signed for it?");
            json!({"peer_id": if at % 2 == 1 { "ann" } else { "bot" }, "content": said})
        };
        let messages: Vec<Value> = (from..=through).map(line).collect();
        let added = self.client.post(&format!("{}/messages", self.path), &json!({"messages": messages})).ok();
        assert_eq!(added.as_array().unwrap().len(), messages.len());
    }

    /// Returns the ids of all messages, in order.
    fn ids(&mut self) -> Vec<Value> {
        let mut ids = Vec::new();
        for page in 1.. {
            let list = format!("{}/messages/list?size=100&page={page}", self.path);
            let page = self.client.post(&list, &json!({})).ok();
            ids.extend(page["items"].as_array().unwrap().iter().map(|message| message["id"].clone()));
            if page["total"] == ids.len() {
                break;
            }
        }
        ids
    }

    /// Waits until the summaries cover this many messages each; 0 means that there is none.
    fn summed_up(&mut self, short: usize, long: usize) {
        let ids = self.ids();
        let wanted =
            [short, long].map(|place| place.checked_sub(1).map_or(Value::Null, |at| ids[at].clone()));
        let start = Instant::now();
        loop {
            let told = self.summaries();
            let found = ["short_summary", "long_summary"].map(|key| told[key]["message_id"].clone());
            if found == wanted {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{short} and {long} are not reached: {told}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn summaries(&mut self) -> Value {
        self.client.get(&format!("{}/summaries", self.path)).ok()
    }

    fn context(&mut self) -> Value {
        self.client.get(&format!("{}/context", self.path)).ok()
    }

    /// Waits until each of these slots has failed at the last message.
    fn failed(&mut self, slots: &[&str]) {
        let start = Instant::now();
        loop {
            let told = self.own.get(&format!("/v1/sessions/{}", self.name)).ok();
            let failed = |slot: &&&str| {
                let mut all = told["slots"].as_array().unwrap().iter();
                all.any(|one| one["slot"] == **slot && one["last_error"].is_string())
            };
            if slots.iter().filter(failed).count() == slots.len() {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{slots:?} did not fail: {told}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the numbers of all messages in these requests.
fn shown(requests: &[Request]) -> BTreeSet<u64> {
    requests.iter().flat_map(Request::seqs).collect()
}

#[test]
fn a_window_that_failed_is_in_the_next_summary() {
    let (server, provider, _runtime) = served(Act::Status(500));
    let mut session = Theirs::new(&server, "s");
    session.tell(1, 20);
    session.failed(&["short"]);
    assert_eq!(session.summaries()["short_summary"], Value::Null);
    assert_eq!(
        session.context()["messages"].as_array().unwrap().len(),
        20,
        "what failed is still told in full"
    );
    let asked = provider.calls();
    provider.heal();
    session.tell(21, 40);
    session.summed_up(40, 0);
    assert_eq!(shown(&provider.requests()[asked..]), (1..=40).collect(), "from the first message on");
}

#[test]
fn a_window_that_failed_for_both_is_in_both() {
    let (server, provider, _runtime) = served(Act::Good);
    let mut session = Theirs::new(&server, "s");
    session.tell(1, 50);
    session.summed_up(40, 0);
    provider.always(Act::Status(500));
    session.tell(51, 60);
    session.failed(&["short", "long"]);
    session.summed_up(40, 0);
    let asked = provider.calls();
    provider.heal();
    session.tell(61, 120);
    session.summed_up(120, 120);
    let requests = &provider.requests()[asked..];
    // The short summary continues after 40; only the long one needs what comes before.
    let (long, short): (Vec<Request>, Vec<Request>) =
        requests.iter().cloned().partition(|request| request.seqs().first() <= Some(&40));
    assert_eq!(long[0].seqs().first(), Some(&1));
    assert!(shown(&long).is_superset(&(1..=60).collect()), "{:?}", shown(&long));
    assert!(shown(&short).is_superset(&(41..=120).collect()), "{:?}", shown(&short));
    let (context, ids) = (session.context(), session.ids());
    let given: Vec<Value> =
        context["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect();
    let after = ids.iter().position(|id| *id == context["summary"]["message_id"]).unwrap() + 1;
    assert_eq!(given, ids[after..], "every message after the summary, once");
}

#[test]
fn every_session_has_both_summaries_however_fast_the_model_is() {
    let (server, _provider, _runtime) = served(Act::Good);
    let mut sessions: Vec<Theirs> = (0..20).map(|at| Theirs::new(&server, &format!("s{at}"))).collect();
    for session in &mut sessions {
        session.tell(1, 60);
    }
    for session in &mut sessions {
        session.summed_up(60, 60);
    }
}

#[test]
fn no_request_waits_for_a_silent_model() {
    let (server, provider, _runtime) = served(Act::Silent);
    let mut session = Theirs::new(&server, "s");
    session.tell(1, 20);
    while provider.calls() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let queue = session.client.get("/v3/workspaces/w/queue/status?session_id=s").ok();
    assert_eq!((&queue["in_progress_work_units"], &queue["sessions"]), (&json!(1), &Value::Null), "{queue}");
    for at in 21..=30 {
        session.tell(at, at);
        let context = session.context();
        assert_eq!((context["messages"].as_array().unwrap().len(), &context["summary"]), (at, &Value::Null));
    }
    assert_eq!(provider.open(), 1, "the call is still open");
}

#[test]
fn a_sessions_status_is_complete_when_the_queue_is_longer_than_its_list() {
    let (server, _provider, _runtime) = served(Act::Silent);
    let mut own = server.client().with("x-epitome-workspace", "w");
    let every = json!({"settings": {"trigger": {"short": "messages(1)", "long": "messages(1)"}}});
    own.json("PUT", "/v1/workspace", &every).ok();
    // Long enough for a model to be called.
    let said: String = (0..60).map(|at| format!("Parcel P-{at} went from Oslo to Bergen. ")).collect();
    let said = json!({"messages": [{"peer_id": "ann", "content": said}]});
    let mut client = server.client();
    let names: Vec<String> = (0..=505).map(|at| format!("s{at}")).collect();
    for name in &names {
        client.post(&format!("/v3/workspaces/w/sessions/{name}/messages"), &said).ok();
    }
    let all = client.get("/v3/workspaces/w/queue/status").ok();
    assert_eq!(all["total_work_units"], 2 * names.len(), "{all}");
    for name in &names {
        let theirs = client.get(&format!("/v3/workspaces/w/queue/status?session_id={name}")).ok();
        assert_eq!((&theirs["total_work_units"], &theirs["sessions"]), (&json!(2), &Value::Null), "{name}");
    }
    for nobody in ["nobody", "%00", &"x".repeat(600)] {
        let none = client.get(&format!("/v3/workspaces/w/queue/status?session_id={nobody}")).ok();
        assert_eq!((&none["total_work_units"], &none["sessions"]), (&json!(0), &Value::Null), "{none}");
    }
}

/// A model's summary cannot be shortened message by message, so an older summary is used.
#[test]
fn no_message_is_next_to_a_summary_that_covers_it() {
    let (server, _provider, _runtime) = served(Act::Good);
    let mut session = Theirs::new(&server, "s");
    for (through, long) in [(20, 0), (40, 0), (60, 60), (80, 60), (100, 60)] {
        session.tell(through - 19, through);
        session.summed_up(through, long);
        let ids = session.ids();
        for tokens in [60, 150, 400, 800, 1_500, 3_000, 50_000] {
            let context = session.client.get(&format!("{}/context?tokens={tokens}", session.path)).ok();
            let place = |id: &Value| ids.iter().position(|one| one == id).unwrap() + 1;
            let messages = context["messages"].as_array().unwrap();
            let places: Vec<usize> = messages.iter().map(|message| place(&message["id"])).collect();
            assert_eq!(places.last(), Some(&through), "the question is there: {context}");
            if let Some(text) = context["summary"]["content"].as_str() {
                let told = place(&context["summary"]["message_id"]);
                assert_eq!(places.first(), Some(&(told + 1)), "{context}");
                // The model's text, if the context has only that.
                let last = text.split(" to ").nth(1).and_then(|rest| rest.split(':').next()?.parse().ok());
                assert!(
                    last.is_none_or(|last: usize| last <= told),
                    "{last:?} is told, {told} said: {context}"
                );
            }
        }
    }
}
