//! What is sent: read by hand, and refused with a list of faults, each with its place.
//!
//! Programs written for the original know its refusals, and some read them. They come from the library that checks what
//! it is sent; here are the same kinds, places and words. Pure: a JSON value in, what was meant or all that was wrong
//! with it out. `given.rs` reads one value, `tables.rs` notes and configurations, `query.rs` what stands after the `?`,
//! `place.rs` says where a value stands, and `fault.rs` keeps a refusal short. What is not known is passed over, as there.

mod fault;
mod given;
mod place;
mod query;
mod tables;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub(super) use fault::Faults;
pub(super) use place::clipped;
pub(super) use query::{ContextIn, Paging};

use fault::Found;
use given::{body, flag, list, name, sized, whole};
use place::At;
use tables::{Reader, clean, configuration, message_configuration, metadata, peer_configuration};

/// What a body is about: each takes a configuration of its own kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Workspace,
    Session,
    Peer,
}

impl Of {
    fn configuration(self) -> Reader {
        match self {
            Self::Workspace | Self::Session => configuration,
            Self::Peer => peer_configuration,
        }
    }
}

/// A workspace, a session or a peer to get or make.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NewIn {
    /// What it is called.
    pub(super) id: String,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) configuration: Option<Map<String, Value>>,
    /// Who takes part in a session, in the order they were sent in.
    pub(super) peers: Option<Vec<(String, MemberIn)>>,
}

impl NewIn {
    /// The body of `POST …/workspaces`, `…/sessions` and `…/peers`.
    pub(super) fn read(sent: &Value, of: Of) -> Result<Self, Faults> {
        body(sent, |at, found| {
            let fields = at.model(found);
            Self {
                id: fields.needed("id", found, name),
                metadata: fields.optional("metadata", found, metadata),
                peers: (of == Of::Session).then(|| fields.optional("peers", found, joining)).flatten(),
                configuration: fields.optional("configuration", found, of.configuration()),
            }
        })
    }
}

/// What a workspace, a session, a peer or a message shall hold from now on. What is left out stays.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Put {
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) configuration: Option<Map<String, Value>>,
}

impl Put {
    /// The body of a `PUT`. That of a message, which is none of these, has no configuration.
    pub(super) fn read(sent: &Value, of: Option<Of>) -> Result<Self, Faults> {
        body(sent, |at, found| {
            let fields = at.model(found);
            Self {
                metadata: fields.optional("metadata", found, metadata),
                configuration: of.and_then(|of| fields.optional("configuration", found, of.configuration())),
            }
        })
    }
}

/// How a peer takes part in a session.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MemberIn {
    pub(super) observe_me: Option<bool>,
    pub(super) observe_others: Option<bool>,
}

impl MemberIn {
    fn given(at: &At<'_>, found: &mut Found) -> Self {
        let fields = at.model(found);
        Self {
            observe_others: fields.optional("observe_others", found, flag),
            observe_me: fields.optional("observe_me", found, flag),
        }
    }
}

/// The body of `PUT …/peers/{p}/config`.
pub(super) fn member(sent: &Value) -> Result<MemberIn, Faults> {
    body(sent, MemberIn::given)
}

/// The body of `POST` and `PUT …/sessions/{s}/peers`: who shall take part, in the order they were sent in.
pub(super) fn members(sent: &Value) -> Result<Vec<(String, MemberIn)>, Faults> {
    body(sent, joining)
}

fn joining(at: &At<'_>, found: &mut Found) -> Vec<(String, MemberIn)> {
    let mut members = Vec::new();
    for (called, at) in at.dict(found).each() {
        let called = name(&at.inner("[key]", &called.into()), found);
        let member = match at.value {
            Value::Null => MemberIn::default(),
            _ => MemberIn::given(&at, found),
        };
        members.push((called, member));
    }
    members
}

/// The body of `DELETE …/sessions/{s}/peers`: who shall take part no longer.
pub(super) fn names(sent: &Value) -> Result<Vec<String>, Faults> {
    body(sent, |at, found| list(at, found, name))
}

/// So many messages are taken at once.
const MESSAGES: usize = 100;

/// So many characters a message may have.
const CONTENT: usize = 25_000;

/// The body of `POST …/messages`: messages to add, in order.
pub(super) fn messages(sent: &Value) -> Result<Vec<MessageIn>, Faults> {
    body(sent, |at, found| at.model(found).needed("messages", found, all_messages))
}

fn all_messages(at: &At<'_>, found: &mut Found) -> Vec<MessageIn> {
    let given = at.value.as_array().map(Vec::len);
    let ctx = |bound: &str, count: usize| json!({"field_type": "List", bound: count, "actual_length": given});
    match given {
        Some(0) => {
            let msg = "List should have at least 1 item after validation, not 0";
            found.bound(at, "too_short", msg, ctx("min_length", 1));
        }
        // Their own faults are not told: most of them will be sent otherwise.
        Some(given) if given > MESSAGES => {
            let msg = format!("List should have at most {MESSAGES} items after validation, not {given}");
            found.bound(at, "too_long", msg, ctx("max_length", MESSAGES));
        }
        _ => return list(at, found, MessageIn::given),
    }
    Vec::new()
}

/// A message to add.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MessageIn {
    /// Its words, without NUL characters.
    pub(super) content: String,
    /// Who said it.
    pub(super) peer_id: String,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) configuration: Option<Map<String, Value>>,
    /// When it was said, as it was written: whether it is a moment is seen by whoever reads it ([`Faults::no_moment`]).
    pub(super) created_at: Option<String>,
}

impl MessageIn {
    /// One by itself: the fields of an upload, with nothing or its words for `content`.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        body(sent, Self::given)
    }

    fn given(at: &At<'_>, found: &mut Found) -> Self {
        let fields = at.model(found);
        Self {
            content: clean(&fields.needed("content", found, sized(0..=CONTENT))),
            peer_id: fields.needed("peer_id", found, name),
            metadata: fields.optional("metadata", found, metadata),
            configuration: fields.optional("configuration", found, message_configuration),
            created_at: fields.optional("created_at", found, moment),
        }
    }
}

/// A text, at least.
fn moment(at: &At<'_>, found: &mut Found) -> String {
    let Some(given) = at.value.as_str() else {
        found.fault(at, "datetime_type", "Input should be a valid datetime");
        return String::new();
    };
    given.to_owned()
}

/// The filters in the body of `POST …/list`, or `null` where there is none. What they say is read elsewhere (`filter.rs`).
pub(super) fn filters(sent: &Value) -> Result<Value, Faults> {
    match sent {
        Value::Null => Ok(Value::Null),
        _ => body(sent, |at, found| at.model(found).optional("filters", found, dict).unwrap_or_default()),
    }
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

impl SearchIn {
    /// The body of `POST …/search`.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        body(sent, |at, found| {
            let fields = at.model(found);
            Self {
                query: fields.needed("query", found, sized(1..=usize::MAX)),
                filters: fields.optional("filters", found, dict).unwrap_or_default(),
                limit: fields.or(10, "limit", found, whole(1..=100)).unsigned_abs(),
            }
        })
    }
}

/// An object, as it is.
fn dict(at: &At<'_>, found: &mut Found) -> Value {
    at.dict(found);
    at.value.clone()
}
