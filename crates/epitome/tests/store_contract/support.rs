//! Support for store tests: a settable clock, sessions from drawings, and a minimal engine.

#![allow(dead_code, reason = "not every test program needs all of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use epitome::store::{
    Changes, CopiedSession, Decide, Listing, Load, NewMessage, PostgresOptions, SessionId, SessionKey,
    SessionRow, SessionState, SlotRow, SqliteOptions, Store, SummaryRow, SummaryState, WorkspaceRow,
    content_json,
};
use epitome_core::message::{Message, Seq, Timestamp};
use epitome_core::outline::Cut;
use epitome_core::slot::{Scope, Slot};
use epitome_core::track::Tracker;
use epitome_testkit::drawing::{messages, word_counter};

/// A clock that stands still until it is set.
#[derive(Clone, Default)]
pub(crate) struct Clock(Arc<AtomicI64>);

impl Clock {
    pub(crate) fn set(&self, millis: i64) {
        self.0.store(millis, Ordering::SeqCst);
    }

    pub(crate) fn options(&self) -> SqliteOptions {
        let clock = self.clone();
        SqliteOptions {
            clock: Arc::new(move || Timestamp(clock.0.load(Ordering::SeqCst))),
            index_pause: std::time::Duration::from_millis(2),
            ..SqliteOptions::default()
        }
    }
}

impl Clock {
    pub(crate) fn postgres(&self) -> PostgresOptions {
        let clock = self.clone();
        PostgresOptions {
            clock: Some(Arc::new(move || Timestamp(clock.0.load(Ordering::SeqCst)))),
            index_pause: std::time::Duration::from_millis(2),
            connections: 8,
            ..PostgresOptions::default()
        }
    }
}

/// A store under test, with the values that must live as long as it.
pub(crate) struct Made {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) kept: Box<dyn std::any::Any + Send>,
}

pub(crate) fn key(name: &str) -> SessionKey {
    SessionKey::new("w", name)
}

/// Returns the row of a session without messages.
pub(crate) fn new_row(now: Timestamp) -> SessionRow {
    SessionRow {
        id: 0,
        encoding: "words".to_owned(),
        tracker: Tracker::default(),
        opener: 0,
        batch_from: 0,
        batch_skipped: false,
        skipped: 0,
        settings: String::new(),
        metadata: serde_json::Map::new(),
        attributes: serde_json::Map::new(),
        created: now,
        updated: now,
    }
}

/// Returns the changes that append these messages, as an engine would decide them.
pub(crate) fn appended(standing: &SessionState, said: &[Message], orders: &[Slot]) -> Changes {
    let mut row = standing.session.clone().unwrap_or_else(|| new_row(standing.now));
    row.updated = standing.now;
    let mut slots = standing.slots.clone();
    for order in orders {
        if standing.slot(&order.scope, &order.name).is_none() {
            slots.push(SlotRow::new(order.scope.clone(), order.name.clone()));
        }
    }
    let mut kept = Vec::new();
    for message in said {
        let outline = row.tracker.push(message, &word_counter());
        if outline.opens_turn {
            row.opener = outline.seq;
        }
        if outline.cut >= Cut::InLoop || row.batch_from == 0 {
            row.batch_from = outline.seq;
            row.batch_skipped = false;
        }
        if row.batch_skipped {
            row.skipped += 1;
        } else if outline.skip {
            row.batch_skipped = true;
            row.skipped += outline.seq - row.batch_from + 1;
        }
        for slot in &mut slots {
            let order = orders.iter().find(|order| order.name == slot.name && order.scope == slot.scope);
            if let Some(order) = order {
                slot.state.advance(order, &outline, None);
                slot.update_waiting_since(standing.now);
            }
        }
        kept.push(NewMessage { opener: row.opener, body: content_json(message).unwrap(), outline });
    }
    Changes { session: Some(row), messages: kept, slots, ..Changes::default() }
}

pub(crate) fn append(said: Vec<Message>, orders: Vec<Slot>) -> Decide {
    Box::new(move |standing| Some(appended(standing, &said, &orders)))
}

/// Appends the messages of a drawing.
pub(crate) async fn say(store: &dyn Store, key: &SessionKey, drawing: &str) {
    say_all(store, key, messages(drawing).unwrap()).await;
}

pub(crate) async fn say_all(store: &dyn Store, key: &SessionKey, said: Vec<Message>) {
    assert!(store.change(key, Load::default(), append(said, Vec::new())).await.unwrap().is_some());
}

/// Appends the messages of a drawing to a session with these slots.
pub(crate) async fn say_with(store: &dyn Store, key: &SessionKey, drawing: &str, orders: &[Slot]) {
    let decide = append(messages(drawing).unwrap(), orders.to_vec());
    assert!(store.change(key, Load::default(), decide).await.unwrap().is_some());
}

pub(crate) async fn standing(store: &dyn Store, key: &SessionKey) -> SessionState {
    store.session_state(key, Load::default()).await.unwrap()
}

pub(crate) async fn row(store: &dyn Store, key: &SessionKey) -> SessionRow {
    standing(store, key).await.session.unwrap()
}

/// Returns a summary that is not stored yet.
pub(crate) fn summary(scope: &Scope, slot: &str, through: Seq, parent: Option<i64>) -> SummaryRow {
    SummaryRow {
        id: 0,
        scope: scope.clone(),
        slot: slot.to_owned(),
        through,
        state: SummaryState::Current,
        parent,
        text: format!("up to {through}"),
        sources: r#"{"ledger":{"names":{},"now":0}}"#.to_owned(),
        facts: epitome::store::Facts { tokens: 3, shown: 5, ..Default::default() },
        created: Timestamp(1),
    }
}

/// Stores a summary as the current one, which supersedes the previous one.
pub(crate) async fn summarize(
    store: &dyn Store,
    key: &SessionKey,
    scope: &Scope,
    slot: &str,
    through: Seq,
) -> i64 {
    let (scope, slot) = (scope.clone(), slot.to_owned());
    let (of, name) = (scope.clone(), slot.clone());
    let decide: Decide = Box::new(move |standing| {
        let mut row =
            standing.slot(&of, &name).cloned().unwrap_or_else(|| SlotRow::new(of.clone(), name.clone()));
        row.state.covered = through;
        let states = row.active.map(|id| (id, SummaryState::Superseded)).into_iter().collect();
        let summary = Some(summary(&of, &name, through, row.active));
        Some(Changes { slots: vec![row], summary, states, ..Changes::default() })
    });
    assert!(store.change(key, Load::default(), decide).await.unwrap().is_some());
    standing(store, key).await.slot(&scope, &slot).unwrap().active.unwrap()
}

/// Sets a workspace's settings; with `None` reads them and writes nothing.
pub(crate) async fn set_workspace(store: &dyn Store, name: &str, settings: Option<&'static str>) {
    let decide = move |before: Option<&WorkspaceRow>| {
        let before = before.cloned().unwrap_or_default();
        settings.map(|settings| WorkspaceRow { settings: settings.to_owned(), ..before })
    };
    store.change_workspace(name, Box::new(decide)).await.unwrap();
}

/// Returns a workspace's settings.
pub(crate) async fn settings(store: &dyn Store, workspace: &str) -> String {
    let found = store.workspaces(Listing::named(workspace)).await.unwrap();
    found.first().map(|row| row.settings).unwrap_or_default()
}

/// Returns a copied session without slots and summaries.
pub(crate) fn bare_copy(id: SessionId, row: SessionRow) -> CopiedSession {
    CopiedSession { id, row, slots: vec![], summaries: vec![], events: vec![] }
}
