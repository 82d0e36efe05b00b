//! Reads requests field by field, and refuses them with a list of faults, each with its location.
//!
//! Programs written for Honcho expect its error format, and some of them parse it. In Honcho it comes from a validation
//! library; here are the same kinds, locations and messages. This module is pure: it takes a JSON value, and returns
//! what it means or all its faults. It has a reader for each body and query. `values.rs` reads single values, objects
//! and lists, `notes.rs` reads metadata and configurations, and `fault.rs` limits the length of an error. Unknown
//! fields are ignored, as in Honcho.

mod fault;
mod notes;
#[cfg(test)]
mod tests;
mod values;

use serde_json::{Map, Value};

pub(super) use fault::{Faults, clipped};
pub(super) use notes::member;

use values::{Fields, Read, any_text, dict, flag, list, moment, name, number, text, whole};

/// Reads a body. A `null` body counts as missing.
pub(super) fn body<T>(sent: &Value, read: impl FnOnce(&Value) -> Read<T>) -> Read<T> {
    let read = if sent.is_null() { Err(Faults::missing(sent)) } else { read(sent) };
    read.map_err(|faults| faults.within("body"))
}

/// Reads decoded query parameters. The last value of a repeated parameter applies, and unknown parameters are ignored.
/// Native routes refuse both. Here the client sends parameters without a meaning for Epitome, and may send more.
fn query<T>(pairs: &[(String, String)], read: impl FnOnce(&mut Fields<'_>) -> T) -> Read<T> {
    let last: Map<_, _> = pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let last = Value::Object(last);
    let mut fields = Fields::of(&last)?;
    let read = read(&mut fields);
    fields.give(read).map_err(|faults| faults.within("query"))
}

type Object = Map<String, Value>;

/// A workspace, a session or a peer to get or create.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NewIn {
    /// Its name.
    pub(super) id: String,
    pub(super) metadata: Option<Object>,
    /// The members of a session, in the order in which they were sent.
    pub(super) peers: Option<Object>,
    pub(super) configuration: Option<Object>,
}

/// The bodies of `POST …/workspaces`, `…/sessions` and `…/peers`.
pub(super) const NEW_WORKSPACE: fn(&Value) -> Read<NewIn> = |sent| new(sent, false, notes::of_session);
pub(super) const NEW_SESSION: fn(&Value) -> Read<NewIn> = |sent| new(sent, true, notes::of_session);
pub(super) const NEW_PEER: fn(&Value) -> Read<NewIn> = |sent| new(sent, false, notes::of_peer);

fn new(sent: &Value, has_peers: bool, configuration: fn(&Value) -> Read<Object>) -> Read<NewIn> {
    let mut fields = Fields::of(sent)?;
    let read = NewIn {
        id: fields.must("id", name),
        metadata: fields.may("metadata", notes::notes),
        peers: if has_peers { fields.may("peers", members) } else { None },
        configuration: fields.may("configuration", configuration),
    };
    fields.give(read)
}

/// New values of a workspace, a session or a peer. A field that is left out stays unchanged.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Put {
    pub(super) metadata: Option<Object>,
    pub(super) configuration: Option<Object>,
}

/// The body of a `PUT` of a workspace or a session, and of a peer.
pub(super) const PUT: fn(&Value) -> Read<Put> = |sent| put(sent, notes::of_session);
pub(super) const PUT_PEER: fn(&Value) -> Read<Put> = |sent| put(sent, notes::of_peer);

fn put(sent: &Value, configuration: fn(&Value) -> Read<Object>) -> Read<Put> {
    let mut fields = Fields::of(sent)?;
    let metadata = fields.may("metadata", notes::notes);
    let configuration = fields.may("configuration", configuration);
    fields.give(Put { metadata, configuration })
}

/// The body of a `PUT` of a message.
pub(super) fn metadata(sent: &Value) -> Read<Option<Object>> {
    let mut fields = Fields::of(sent)?;
    let metadata = fields.may("metadata", notes::notes);
    fields.give(metadata)
}

/// Reads the peers who join a session, in the order in which they were sent, and their settings.
pub(super) fn members(sent: &Value) -> Read<Object> {
    let (mut fields, mut members) = (Fields::of_any(sent)?, Object::new());
    for (called, how) in fields.given {
        fields.part(called, name(&called.as_str().into()).map_err(|wrong| wrong.within("[key]")));
        let how = if how.is_null() { Ok(Object::new().into()) } else { member(how) };
        members.extend(fields.part(called, how).map(|how| (called.clone(), how)));
    }
    fields.give(members)
}

/// Reads the peers who leave a session.
pub(super) fn names(sent: &Value) -> Read<Vec<String>> {
    list(sent, 0..=usize::MAX, name)
}

/// A message to add.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MessageIn {
    /// Its text, without NUL characters.
    pub(super) content: String,
    /// Its author.
    pub(super) peer_id: String,
    pub(super) metadata: Option<Object>,
    pub(super) configuration: Option<Object>,
    /// When it was sent, as the caller wrote it. The code that parses it reports a wrong time ([`Faults::no_moment`]).
    pub(super) created_at: Option<String>,
}

/// Reads one message. Also reads the fields of an upload, whose `content` is empty.
pub(super) fn message(sent: &Value) -> Read<MessageIn> {
    let mut fields = Fields::of(sent)?;
    let read = MessageIn {
        content: fields.must("content", |value| text(value, 0..=25_000)),
        peer_id: fields.must("peer_id", name),
        metadata: fields.may("metadata", notes::notes),
        configuration: fields.may("configuration", notes::of_message),
        created_at: fields.may("created_at", moment),
    };
    fields.give(read)
}

/// Reads messages to add, in order.
pub(super) fn messages(sent: &Value) -> Read<Vec<MessageIn>> {
    let mut fields = Fields::of(sent)?;
    let messages = fields.must("messages", |value| list(value, 1..=100, message));
    fields.give(messages)
}

/// Returns the filters in the body of `POST …/list`, or `null` if there are none. They are parsed elsewhere
/// (`filter.rs`).
pub(super) fn filters(sent: &Value) -> Read<Value> {
    if sent.is_null() {
        return Ok(Value::Null);
    }
    body(sent, |sent| {
        let mut fields = Fields::of(sent)?;
        let filters = fields.may("filters", dict).cloned();
        fields.give(filters.map_or(Value::Null, Value::Object))
    })
}

/// A search.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SearchIn {
    pub(super) query: String,
    /// As in [`filters`].
    pub(super) filters: Value,
    /// Maximum number of messages to return.
    pub(super) limit: u64,
}

pub(super) fn search(sent: &Value) -> Read<SearchIn> {
    let mut fields = Fields::of(sent)?;
    let read = SearchIn {
        query: fields.must("query", |value| text(value, 1..=usize::MAX)),
        filters: fields.may("filters", dict).cloned().map_or(Value::Null, Value::Object),
        limit: fields.or("limit", 10, |value| whole(value, 1..=100)).unsigned_abs(),
    };
    fields.give(read)
}

/// The requested page of a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Paging {
    /// The page number, from 1.
    pub(super) page: u64,
    /// Number of items per page.
    pub(super) size: u64,
    /// Whether the newest come first.
    pub(super) reverse: bool,
}

impl Paging {
    pub(super) fn read(pairs: &[(String, String)]) -> Read<Self> {
        query(pairs, |fields| Self {
            page: fields.or("page", 1, |value| whole(value, 1..=i64::MAX)).unsigned_abs(),
            size: fields.or("size", 50, |value| whole(value, 1..=100)).unsigned_abs(),
            reverse: fields.or("reverse", false, flag),
        })
    }

    /// Returns the number of items before this page.
    pub(super) fn skip(&self) -> u64 {
        self.page.saturating_sub(1).saturating_mul(self.size)
    }
}

/// The requested context.
#[derive(Debug, PartialEq)]
pub(super) struct ContextIn {
    /// Its token budget. A budget of 0 or less is accepted, and the answer is empty.
    pub(super) tokens: Option<i64>,
    /// Whether it may contain a summary.
    pub(super) summary: bool,
    /// The peer that the context should describe.
    pub(super) peer_target: Option<String>,
    /// The peer from whose view it should describe that peer.
    peer_perspective: Option<String>,
    limit_to_session: bool,
    sessions: Option<String>,
    scope: Option<String>,
}

impl ContextIn {
    pub(super) fn read(pairs: &[(String, String)]) -> Read<Self> {
        query(pairs, |fields| {
            let read = Self {
                tokens: fields.may("tokens", |value| whole(value, i64::MIN..=100_000)),
                summary: fields.or("summary", true, flag),
                peer_target: fields.may("peer_target", any_text),
                peer_perspective: fields.may("peer_perspective", any_text),
                limit_to_session: fields.or("limit_to_session", false, flag),
                sessions: fields.may("sessions", any_text),
                scope: fields.may("scope", any_text),
            };
            // Parameters of representations, which are not offered: they are checked and not used.
            fields.may("search_top_k", |value| whole(value, 1..=100));
            fields.may("search_max_distance", |value| number(value, 0.0..=1.0));
            fields.may("include_most_frequent", flag);
            fields.may("max_conclusions", |value| whole(value, 1..=100));
            read
        })
    }

    /// Returns why these parameters cannot be combined: the `detail` of a 422, which is a text and not a list in this
    /// case.
    pub(super) fn unfit(&self) -> Option<&'static str> {
        let (target, perspective) = (self.peer_target.is_some(), self.peer_perspective.is_some());
        let (scope, chosen) = (self.scope.is_some(), self.sessions.is_some());
        let rules = [
            (!target && perspective, "peer_target must be provided if peer_perspective is provided"),
            (!target && scope, "peer_target must be provided if scope is provided"),
            (!target && chosen, "peer_target must be provided if sessions is provided"),
            (chosen && scope, "sessions and scope are mutually exclusive"),
            (chosen && self.limit_to_session, "sessions and limit_to_session are mutually exclusive"),
            (scope && perspective, "scope and peer_perspective are mutually exclusive"),
        ];
        rules.into_iter().find(|(broken, _)| *broken).map(|(_, told)| told)
    }
}
