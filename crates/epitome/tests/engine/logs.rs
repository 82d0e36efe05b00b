//! Log lines of the worker: they name a slot by a hash, and the hash leads back to the slot.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use epitome::rules::message::{Author, Message};
use epitome::{Engine, Error, Update};
use epitome_testkit::scripted::Scripted;
use serde_json::Map;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::failing::down;
use crate::support::{Home, on_every_store, one_slot, talk, with_settings};

/// Collects the fields of log lines.
#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("epitome")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = BTreeMap::new();
        event.record(&mut Fields(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_failure_is_logged_with_a_hash_that_leads_to_the_slot_and_without_names() {
    on_every_store(async |home| {
        let lines = LogLines::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let model = Scripted::new().named("gpt-test").fails(down());
        let engine = home.open(one_slot(&model)).await;
        let session = engine.workspace("acme").session("secret-project");
        engine.workspace("acme").session("other").append(talk(1, 2)).await.unwrap();
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();

        let lines = lines.0.lock().unwrap().clone();
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(line["message"], "no summary was written; the worker retries");
        assert_eq!(line["model"], "gpt-test");
        assert_eq!(line["reason"], "no answer from the model: connection refused");
        let text = format!("{line:?}");
        assert!(!text.contains("acme") && !text.contains("secret") && !text.contains("short"), "{text}");

        let hash = &line["slot"];
        assert!(epitome::is_log_hash(hash));
        assert_eq!(session.log_hash(None, "short").await.unwrap(), *hash);
        let found = engine.find_logged(hash).await.unwrap();
        assert_eq!((&*found.workspace, &*found.session), ("acme", "secret-project"));
        assert_eq!((found.slot.as_deref(), found.scope), (Some("short"), None));
        let found = engine.find_logged(hash.rsplit_once('-').unwrap().0).await.unwrap();
        assert_eq!((&*found.session, found.slot), ("secret-project", None));
        session.delete().await.unwrap();
        let deleted = engine.find_logged(hash).await.unwrap_err();
        assert!(matches!(deleted, Error::NotFound { .. }));
        let text = format!(
            "session for the hash {hash} not found; it was deleted, or the log line was written for another database"
        );
        assert_eq!(deleted.to_string(), text);
        assert!(matches!(engine.find_logged("secret-project").await, Err(Error::Invalid(_))));
    })
    .await;
}

#[tokio::test]
async fn a_fallback_summary_is_logged_with_the_failure_of_the_model() {
    let lines = LogLines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let model = Scripted::new().named("gpt-test").fails(down());
    let settings = r#", "slot": [{"name": "own", "scope": "ann", "trigger": "messages(20)"}],
        "summarize": {"models": ["main"], "stand_in_after": 0}"#;
    let engine = Home::memory().open(with_settings(&model, settings)).await;
    let session = engine.session("s");
    let ann = Author::from("ann");
    let messages = talk(1, 20)
        .into_iter()
        .map(|message| Message { author: Some(ann.clone()), ..message })
        .collect::<Vec<_>>();
    session.append(messages).await.unwrap();
    session.work().await.unwrap();
    let lines = lines.0.lock().unwrap().clone();
    assert_eq!(lines[0]["message"], "models fail; `local` writes a fallback summary");
    assert_eq!((&*lines[0]["model"], lines.len()), ("gpt-test", 1));
    let found = engine.find_logged(&lines[0]["slot"]).await.unwrap();
    assert_eq!((found.slot.as_deref(), found.scope), (Some("own"), Some(ann)));
}

#[tokio::test]
async fn a_session_is_found_among_more_sessions_and_workspaces_than_one_page() {
    let engine = Home::memory().open(Engine::builder().workers(0)).await;
    for n in 0..1_001 {
        engine.workspace("large").session(format!("s{n:04}")).set_metadata(Map::new()).await.unwrap();
        engine.workspace(format!("w{n:04}")).update(Update::default()).await.unwrap();
    }
    let last = engine.workspace("w9999").session("last");
    last.set_metadata(Map::new()).await.unwrap();
    for session in [engine.workspace("large").session("s1000"), last] {
        let found = engine.find_logged(&session.log_hash(None, "long").await.unwrap()).await.unwrap();
        assert_eq!((&*found.session, found.slot.as_deref()), (session.name(), Some("long")));
    }
}
