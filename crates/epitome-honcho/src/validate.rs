//! Reads requests field by field, and refuses them with a list of faults, each with its location.
//!
//! Programs written for Honcho expect its error format, and some of them parse it. In Honcho it comes from a validation
//! library; here are the same kinds, locations and messages. This module is pure: it takes a JSON value, and returns
//! what it means or all its faults. It has a reader for each body and query. `values.rs` reads single values, objects
//! and lists, `metadata.rs` reads metadata and configurations, and `fault.rs` limits the length of an error. Unknown
//! fields are ignored, as in Honcho.

mod fault;
mod metadata;
#[cfg(test)]
mod tests;
mod values;

use serde_json::{Map, Value};

pub(super) use fault::{Faults, clipped};
pub(super) use metadata::member;

use values::{ObjectReader, Parsed, any_text, dict, flag, list, name, number, text, time_text, whole};

/// Reads a body. A `null` body counts as missing.
pub(super) fn body<T>(value: &Value, read: impl FnOnce(&Value) -> Parsed<T>) -> Parsed<T> {
    let read = if value.is_null() { Err(Faults::missing(value)) } else { read(value) };
    read.map_err(|faults| faults.within("body"))
}

/// Reads decoded query parameters. The last value of a repeated parameter applies, and unknown parameters are ignored.
/// Native routes refuse both. Here the client sends parameters without a meaning for Epitome, and may send more.
fn query<T>(pairs: &[(String, String)], read: impl FnOnce(&mut ObjectReader<'_>) -> T) -> Parsed<T> {
    let last: Map<_, _> = pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let last = Value::Object(last);
    let mut fields = ObjectReader::of(&last)?;
    let read = read(&mut fields);
    fields.finish(read).map_err(|faults| faults.within("query"))
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
pub(super) const NEW_WORKSPACE: fn(&Value) -> Parsed<NewIn> = |value| new(value, false, metadata::of_session);
pub(super) const NEW_SESSION: fn(&Value) -> Parsed<NewIn> = |value| new(value, true, metadata::of_session);
pub(super) const NEW_PEER: fn(&Value) -> Parsed<NewIn> = |value| new(value, false, metadata::of_peer);

fn new(value: &Value, has_peers: bool, configuration: fn(&Value) -> Parsed<Object>) -> Parsed<NewIn> {
    let mut fields = ObjectReader::of(value)?;
    let read = NewIn {
        id: fields.required("id", name),
        metadata: fields.optional("metadata", metadata::metadata),
        peers: if has_peers { fields.optional("peers", members) } else { None },
        configuration: fields.optional("configuration", configuration),
    };
    fields.finish(read)
}

/// New values of a workspace, a session or a peer. A field that is left out stays unchanged.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Put {
    pub(super) metadata: Option<Object>,
    pub(super) configuration: Option<Object>,
}

/// The body of a `PUT` of a workspace or a session, and of a peer.
pub(super) const PUT: fn(&Value) -> Parsed<Put> = |value| put(value, metadata::of_session);
pub(super) const PUT_PEER: fn(&Value) -> Parsed<Put> = |value| put(value, metadata::of_peer);

fn put(value: &Value, configuration: fn(&Value) -> Parsed<Object>) -> Parsed<Put> {
    let mut fields = ObjectReader::of(value)?;
    let metadata = fields.optional("metadata", metadata::metadata);
    let configuration = fields.optional("configuration", configuration);
    fields.finish(Put { metadata, configuration })
}

/// The body of a `PUT` of a message.
pub(super) fn message_metadata(value: &Value) -> Parsed<Option<Object>> {
    let mut fields = ObjectReader::of(value)?;
    let metadata = fields.optional("metadata", metadata::metadata);
    fields.finish(metadata)
}

/// Reads the peers who join a session, in the order in which they were sent, and their settings.
pub(super) fn members(value: &Value) -> Parsed<Object> {
    let (mut fields, mut members) = (ObjectReader::of_any(value)?, Object::new());
    for (peer, config) in fields.entries {
        fields.part(peer, name(&peer.as_str().into()).map_err(|error| error.within("[key]")));
        let config = if config.is_null() { Ok(Object::new().into()) } else { member(config) };
        members.extend(fields.part(peer, config).map(|config| (peer.clone(), config)));
    }
    fields.finish(members)
}

/// Reads the peers who leave a session.
pub(super) fn names(value: &Value) -> Parsed<Vec<String>> {
    list(value, 0..=usize::MAX, name)
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
    /// When it was sent, as the caller wrote it. The code that parses it reports a wrong time ([`Faults::invalid_time`]).
    pub(super) created_at: Option<String>,
}

/// Reads one message. Also reads the fields of an upload, whose `content` is empty.
pub(super) fn message(value: &Value) -> Parsed<MessageIn> {
    let mut fields = ObjectReader::of(value)?;
    let read = MessageIn {
        content: fields.required("content", |value| text(value, 0..=25_000)),
        peer_id: fields.required("peer_id", name),
        metadata: fields.optional("metadata", metadata::metadata),
        configuration: fields.optional("configuration", metadata::of_message),
        created_at: fields.optional("created_at", time_text),
    };
    fields.finish(read)
}

/// Reads messages to add, in order.
pub(super) fn messages(value: &Value) -> Parsed<Vec<MessageIn>> {
    let mut fields = ObjectReader::of(value)?;
    let messages = fields.required("messages", |value| list(value, 1..=100, message));
    fields.finish(messages)
}

/// Returns the filters in the body of `POST …/list`, or `null` if there are none. They are parsed elsewhere
/// (`filter.rs`).
pub(super) fn filters(value: &Value) -> Parsed<Value> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    body(value, |value| {
        let mut fields = ObjectReader::of(value)?;
        let filters = fields.optional("filters", dict).cloned();
        fields.finish(filters.map_or(Value::Null, Value::Object))
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

pub(super) fn search(value: &Value) -> Parsed<SearchIn> {
    let mut fields = ObjectReader::of(value)?;
    let read = SearchIn {
        query: fields.required("query", |value| text(value, 1..=usize::MAX)),
        filters: fields.optional("filters", dict).cloned().map_or(Value::Null, Value::Object),
        limit: fields.or_default("limit", 10, |value| whole(value, 1..=100)).unsigned_abs(),
    };
    fields.finish(read)
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
    pub(super) fn read(pairs: &[(String, String)]) -> Parsed<Self> {
        query(pairs, |fields| Self {
            page: fields.or_default("page", 1, |value| whole(value, 1..=i64::MAX)).unsigned_abs(),
            size: fields.or_default("size", 50, |value| whole(value, 1..=100)).unsigned_abs(),
            reverse: fields.or_default("reverse", false, flag),
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
    pub(super) fn read(pairs: &[(String, String)]) -> Parsed<Self> {
        query(pairs, |fields| {
            let read = Self {
                tokens: fields.optional("tokens", |value| whole(value, i64::MIN..=100_000)),
                summary: fields.or_default("summary", true, flag),
                peer_target: fields.optional("peer_target", any_text),
                peer_perspective: fields.optional("peer_perspective", any_text),
                limit_to_session: fields.or_default("limit_to_session", false, flag),
                sessions: fields.optional("sessions", any_text),
                scope: fields.optional("scope", any_text),
            };
            // Parameters of representations, which are not offered: they are checked and not used.
            fields.optional("search_top_k", |value| whole(value, 1..=100));
            fields.optional("search_max_distance", |value| number(value, 0.0..=1.0));
            fields.optional("include_most_frequent", flag);
            fields.optional("max_conclusions", |value| whole(value, 1..=100));
            read
        })
    }

    /// Returns why these parameters cannot be combined: the `detail` of a 422, which is a text and not a list in this
    /// case.
    pub(super) fn invalid_combination(&self) -> Option<&'static str> {
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
        rules.into_iter().find(|(broken, _)| *broken).map(|(_, detail)| detail)
    }
}
