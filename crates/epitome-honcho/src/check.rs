//! What is sent: read field by field, and refused with a list of faults, each with its place.
//!
//! Programs written for the original know its refusals, and some read them. They come from the library that checks what
//! it is sent; here are the same kinds, places and words. Pure: a JSON value in, what was meant or all that was wrong
//! with it out. Here is a reader for each body and query; `values.rs` reads single values, objects and lists, `notes.rs` what
//! callers keep with things, and `fault.rs` keeps a refusal short. What is not known is passed over, as there.

mod fault;
mod notes;
#[cfg(test)]
mod tests;
mod values;

use serde_json::{Map, Value};

pub(super) use fault::{Faults, clipped};
pub(super) use notes::member;

use values::{Fields, Read, any_text, dict, flag, list, moment, name, number, text, whole};

/// Reads a body. One that is `null` was left out.
pub(super) fn body<T>(sent: &Value, read: impl FnOnce(&Value) -> Read<T>) -> Read<T> {
    let read = if sent.is_null() { Err(Faults::missing(sent)) } else { read(sent) };
    read.map_err(|faults| faults.within("body"))
}

/// Reads what stands after the `?`, decoded already: of a parameter that is given twice the last holds, and unknown ones do
/// nothing. Native routes refuse both. Here the client sends some that mean nothing to us, and may send more.
fn query<T>(pairs: &[(String, String)], read: impl FnOnce(&mut Fields<'_>) -> T) -> Read<T> {
    let last: Map<_, _> = pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let last = Value::Object(last);
    let mut fields = Fields::of(&last)?;
    let read = read(&mut fields);
    fields.give(read).map_err(|faults| faults.within("query"))
}

type Object = Map<String, Value>;

/// A workspace, a session or a peer to get or make.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NewIn {
    /// What it is called.
    pub(super) id: String,
    pub(super) metadata: Option<Object>,
    /// Who takes part in a session, in the order they were sent in.
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

/// What a workspace, a session or a peer shall hold from now on. What is left out stays.
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

/// Peers who shall take part in a session, in the order they were sent in, and how.
pub(super) fn members(sent: &Value) -> Read<Object> {
    let (mut fields, mut members) = (Fields::of_any(sent)?, Object::new());
    for (called, how) in fields.given {
        fields.part(called, name(&called.as_str().into()).map_err(|wrong| wrong.within("[key]")));
        let how = if how.is_null() { Ok(Object::new().into()) } else { member(how) };
        members.extend(fields.part(called, how).map(|how| (called.clone(), how)));
    }
    fields.give(members)
}

/// Peers who shall take part no longer.
pub(super) fn names(sent: &Value) -> Read<Vec<String>> {
    list(sent, 0..=usize::MAX, name)
}

/// A message to add.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MessageIn {
    /// Its words, without NUL characters.
    pub(super) content: String,
    /// Who said it.
    pub(super) peer_id: String,
    pub(super) metadata: Option<Object>,
    pub(super) configuration: Option<Object>,
    /// When it was said, as it was written: whether it is a moment is seen by whoever reads it ([`Faults::no_moment`]).
    pub(super) created_at: Option<String>,
}

/// One message: the fields of an upload too, with nothing or its words for `content`.
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

/// Messages to add, in order.
pub(super) fn messages(sent: &Value) -> Read<Vec<MessageIn>> {
    let mut fields = Fields::of(sent)?;
    let messages = fields.must("messages", |value| list(value, 1..=100, message));
    fields.give(messages)
}

/// The filters in the body of `POST …/list`, or `null` where there is none. What they say is read elsewhere (`filter.rs`).
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

/// What is searched for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SearchIn {
    pub(super) query: String,
    /// As in [`filters`].
    pub(super) filters: Value,
    /// So many messages are wanted at most.
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

/// Which page of a list is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Paging {
    /// From 1.
    pub(super) page: u64,
    /// So many items a page.
    pub(super) size: u64,
    /// The newest first.
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

    /// So many come before that page.
    pub(super) fn skip(&self) -> u64 {
        self.page.saturating_sub(1).saturating_mul(self.size)
    }
}

/// What context is wanted.
#[derive(Debug, PartialEq)]
pub(super) struct ContextIn {
    /// How large it may be. Nothing and less is taken, and gets nothing.
    pub(super) tokens: Option<i64>,
    /// Whether a summary may stand in it.
    pub(super) summary: bool,
    /// Of whom something is to be told.
    pub(super) peer_target: Option<String>,
    /// As seen by whom.
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
            // How a representation is made, of which there are none here.
            fields.may("search_top_k", |value| whole(value, 1..=100));
            fields.may("search_max_distance", |value| number(value, 0.0..=1.0));
            fields.may("include_most_frequent", flag);
            fields.may("max_conclusions", |value| whole(value, 1..=100));
            read
        })
    }

    /// Why these parameters do not go together: the `detail` of a 422, which is no list then.
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
