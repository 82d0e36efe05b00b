//! What is sent: read by hand, and refused with a list of faults, each with its place.
//!
//! Programs written for the original know its refusals, and some read them. They come from the library that checks what
//! it is sent; here are the same kinds, places and words. Pure: a JSON value in, what was meant or all that was wrong
//! with it out. `given.rs` reads one value, `tables.rs` notes and configurations, `query.rs` what stands after the `?`,
//! and `fault.rs` keeps a refusal short. What is not known is passed over, as there.

mod fault;
mod given;
mod query;
mod tables;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub(super) use fault::Faults;
pub(super) use query::{ContextIn, Paging};

use fault::Found;
use given::{At, body, flag, list, name, sized, whole};
use tables::{clean, configuration, message_configuration, metadata, peer_configuration};

/// A workspace or a peer to get or make.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NewIn {
    /// What it is called.
    pub(super) id: String,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) configuration: Option<Map<String, Value>>,
}

impl NewIn {
    /// The body of `POST …/workspaces`.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        Self::with(sent, configuration)
    }

    /// The body of `POST …/peers`.
    pub(super) fn read_peer(sent: &Value) -> Result<Self, Faults> {
        Self::with(sent, peer_configuration)
    }

    fn with(sent: &Value, configuration: Table) -> Result<Self, Faults> {
        body(sent, |at, found| {
            let fields = at.model(found);
            Self {
                id: fields.needed("id", found, name),
                metadata: fields.optional("metadata", found, metadata),
                configuration: fields.optional("configuration", found, configuration),
            }
        })
    }
}

/// Reads notes or a configuration.
type Table = fn(&At<'_>, &mut Found) -> Map<String, Value>;

/// A session to get or make.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SessionIn {
    /// What it is called.
    pub(super) id: String,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) configuration: Option<Map<String, Value>>,
    /// Who takes part in it, in the order they were sent in.
    pub(super) peers: Option<Vec<(String, MemberIn)>>,
}

impl SessionIn {
    /// The body of `POST …/sessions`.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        body(sent, |at, found| {
            let fields = at.model(found);
            Self {
                id: fields.needed("id", found, name),
                metadata: fields.optional("metadata", found, metadata),
                peers: fields.optional("peers", found, members),
                configuration: fields.optional("configuration", found, configuration),
            }
        })
    }
}

/// What a workspace, a session or a peer shall hold from now on. What is left out stays.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Put {
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) configuration: Option<Map<String, Value>>,
}

impl Put {
    /// The body of `PUT …/workspaces/{w}` and of `PUT …/sessions/{s}`.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        Self::with(sent, configuration)
    }

    /// The body of `PUT …/peers/{p}`.
    pub(super) fn read_peer(sent: &Value) -> Result<Self, Faults> {
        Self::with(sent, peer_configuration)
    }

    fn with(sent: &Value, configuration: Table) -> Result<Self, Faults> {
        body(sent, |at, found| {
            let fields = at.model(found);
            Self {
                metadata: fields.optional("metadata", found, metadata),
                configuration: fields.optional("configuration", found, configuration),
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
    /// The body of `PUT …/peers/{p}/config`.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        body(sent, Self::member)
    }

    fn member(at: &At<'_>, found: &mut Found) -> Self {
        let fields = at.model(found);
        Self {
            observe_others: fields.optional("observe_others", found, flag),
            observe_me: fields.optional("observe_me", found, flag),
        }
    }
}

/// Who shall take part in a session, in the order they were sent in.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MembersIn(pub(super) Vec<(String, MemberIn)>);

impl MembersIn {
    /// The body of `POST` and `PUT …/sessions/{s}/peers`.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        body(sent, |at, found| Self(members(at, found)))
    }
}

fn members(at: &At<'_>, found: &mut Found) -> Vec<(String, MemberIn)> {
    let mut members = Vec::new();
    for (called, at) in at.dict(found).each() {
        let called = name(&at.inner("[key]", &called.into()), found);
        let member = match at.value {
            Value::Null => MemberIn::default(),
            _ => MemberIn::member(&at, found),
        };
        members.push((called, member));
    }
    members
}

/// Who shall take part no longer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NamesIn(pub(super) Vec<String>);

impl NamesIn {
    /// The body of `DELETE …/sessions/{s}/peers`.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        body(sent, |at, found| Self(list(at, found, name)))
    }
}

/// So many messages are taken at once.
const MESSAGES: usize = 100;

/// So many characters a message may have.
const CONTENT: usize = 25_000;

/// Messages to add, in order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MessagesIn {
    pub(super) messages: Vec<MessageIn>,
}

impl MessagesIn {
    /// The body of `POST …/messages`.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        body(sent, |at, found| Self { messages: at.model(found).needed("messages", found, messages) })
    }
}

fn messages(at: &At<'_>, found: &mut Found) -> Vec<MessageIn> {
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
        _ => return list(at, found, MessageIn::message),
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
        body(sent, Self::message)
    }

    fn message(at: &At<'_>, found: &mut Found) -> Self {
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

/// What a message's notes shall be from now on.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MessagePut {
    /// Nothing where they stay as they are.
    pub(super) metadata: Option<Map<String, Value>>,
}

impl MessagePut {
    /// The body of `PUT …/messages/{id}`.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        body(sent, |at, found| Self { metadata: at.model(found).optional("metadata", found, metadata) })
    }
}

/// Which items of a list are wanted.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ListIn {
    /// An object; what it says is read elsewhere (`filter.rs`).
    pub(super) filters: Option<Value>,
}

impl ListIn {
    /// The body of `POST …/list`, or `null` where there is none.
    pub(super) fn read(sent: &Value) -> Result<Self, Faults> {
        match sent {
            Value::Null => Ok(Self::default()),
            _ => {
                body(sent, |at, found| Self { filters: at.model(found).optional("filters", found, filters) })
            }
        }
    }
}

/// What is searched for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SearchIn {
    pub(super) query: String,
    /// As in [`ListIn`].
    pub(super) filters: Option<Value>,
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
                filters: fields.optional("filters", found, filters),
                limit: fields.or(10, "limit", found, whole(1..=100)).unsigned_abs(),
            }
        })
    }
}

fn filters(at: &At<'_>, found: &mut Found) -> Value {
    at.dict(found);
    at.value.clone()
}
