//! Reads requests field by field. Refuses an invalid request with a list of its faults. Each fault has a location.
//!
//! Programs that were written for Honcho expect Honcho's error format, and some of them parse it. In Honcho, a
//! validation library creates these errors. This module creates faults with the same kinds, locations and messages.
//!
//! This module has one function for each body and query. A function takes a JSON value, and returns either the parsed
//! value or all its faults. `values.rs` reads single values, objects and lists. `metadata.rs` reads metadata and
//! configurations. `fault.rs` limits the length of an error. As in Honcho, unknown fields are ignored.

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

/// Reads decoded query parameters. Only the last value of a repeated parameter is used. Unknown parameters are ignored,
/// because Honcho's client also sends parameters that have no meaning for Epitome. Native routes refuse repeated and
/// unknown parameters.
fn query<T>(pairs: &[(String, String)], read: impl FnOnce(&mut ObjectReader<'_>) -> T) -> Parsed<T> {
    let last: Map<_, _> = pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let last = Value::Object(last);
    let mut fields = ObjectReader::of(&last)?;
    let read = read(&mut fields);
    fields.finish(read).map_err(|faults| faults.within("query"))
}

type Object = Map<String, Value>;

/// The body of a request that gets or creates a workspace, a session or a peer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NewIn {
    /// The name.
    pub(super) id: String,
    pub(super) metadata: Option<Object>,
    /// The members of a session, in the order in which they were sent.
    pub(super) peers: Option<Object>,
    pub(super) configuration: Option<Object>,
}

/// Reads the body of `POST …/workspaces`.
pub(super) const NEW_WORKSPACE: fn(&Value) -> Parsed<NewIn> = |value| new(value, false, metadata::of_session);
/// Reads the body of `POST …/sessions`.
pub(super) const NEW_SESSION: fn(&Value) -> Parsed<NewIn> = |value| new(value, true, metadata::of_session);
/// Reads the body of `POST …/peers`.
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

/// The body of a request that changes a workspace, a session or a peer. If a field is `None`, the stored value stays
/// unchanged.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Put {
    pub(super) metadata: Option<Object>,
    pub(super) configuration: Option<Object>,
}

/// Reads the body of a `PUT` of a workspace or a session.
pub(super) const PUT: fn(&Value) -> Parsed<Put> = |value| put(value, metadata::of_session);
/// Reads the body of a `PUT` of a peer.
pub(super) const PUT_PEER: fn(&Value) -> Parsed<Put> = |value| put(value, metadata::of_peer);

fn put(value: &Value, configuration: fn(&Value) -> Parsed<Object>) -> Parsed<Put> {
    let mut fields = ObjectReader::of(value)?;
    let metadata = fields.optional("metadata", metadata::metadata);
    let configuration = fields.optional("configuration", configuration);
    fields.finish(Put { metadata, configuration })
}

/// Reads the body of a `PUT` of a message, and returns the new metadata.
pub(super) fn message_metadata(value: &Value) -> Parsed<Option<Object>> {
    let mut fields = ObjectReader::of(value)?;
    let metadata = fields.optional("metadata", metadata::metadata);
    fields.finish(metadata)
}

/// Reads the peers that join a session, with their settings. The result has the order of the request.
pub(super) fn members(value: &Value) -> Parsed<Object> {
    let (mut fields, mut members) = (ObjectReader::of_any(value)?, Object::new());
    for (peer, config) in fields.entries {
        fields.part(peer, name(&peer.as_str().into()).map_err(|error| error.within("[key]")));
        let config = if config.is_null() { Ok(Object::new().into()) } else { member(config) };
        members.extend(fields.part(peer, config).map(|config| (peer.clone(), config)));
    }
    fields.finish(members)
}

/// Reads the names of the peers that leave a session.
pub(super) fn names(value: &Value) -> Parsed<Vec<String>> {
    list(value, 0..=usize::MAX, name)
}

/// A message to add.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MessageIn {
    /// The text, without NUL characters.
    pub(super) content: String,
    /// The author's name.
    pub(super) peer_id: String,
    pub(super) metadata: Option<Object>,
    pub(super) configuration: Option<Object>,
    /// When the message was sent, as the caller wrote it; `None` if the caller sent no time. The code that parses this
    /// text reports an invalid time ([`Faults::invalid_time`]).
    pub(super) created_at: Option<String>,
}

/// Reads one message. Also reads the form fields of an upload; their `content` is empty.
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

/// Returns the filters in the body of `POST …/list`, or `null` if the body has no filters. `filter.rs` parses them.
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

/// The body of a search request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SearchIn {
    pub(super) query: String,
    /// The filters, in the form that [`filters`] returns.
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
    /// Whether the newest items come first.
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

/// The query parameters of a context request.
#[derive(Debug, PartialEq)]
pub(super) struct ContextIn {
    /// The token budget; `None` for the default budget. A budget of 0 or less is accepted, and the context is then
    /// empty.
    pub(super) tokens: Option<i64>,
    /// Whether the context may contain a summary.
    pub(super) summary: bool,
    /// The peer that the context should describe.
    pub(super) peer_target: Option<String>,
    /// The peer from whose view the context should describe `peer_target`.
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
            // Epitome offers no representations. Their parameters are checked and not used.
            fields.optional("search_top_k", |value| whole(value, 1..=100));
            fields.optional("search_max_distance", |value| number(value, 0.0..=1.0));
            fields.optional("include_most_frequent", flag);
            fields.optional("max_conclusions", |value| whole(value, 1..=100));
            read
        })
    }

    /// Returns why these parameters cannot be combined; `None` if they can be combined. The reason becomes the `detail`
    /// of a 422 response, which in this case is a text and not a list.
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
