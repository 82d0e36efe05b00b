//! What is sent: checked against a table, and refused with a list of faults, each with its place.
//!
//! Programs written for the original know its refusals, and some read them. They come from the library that checks what
//! it is sent; here are the same kinds, places and words. Pure: a JSON value in, what was meant or all that was wrong
//! with it out. The tables below say what each body and query may hold; `shape.rs` reads a value by such a table, `values.rs`
//! single values and what callers keep with things, and `fault.rs` keeps a refusal short. What is not known is passed over, as there.

mod fault;
mod shape;
#[cfg(test)]
mod tests;
mod values;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(super) use fault::{Faults, clipped};

use fault::{At, Found, Wrong};
use shape::Need::{May, Must, Or};
use shape::Of;
use shape::Shape::{
    self, Configuration, Dict, Flag, List, Members, Model, Moment, Name, Notes, Number, Text, Whole,
};

type Field = shape::Field;

const ID: Field = ("id", Must, Name);
const METADATA: Field = ("metadata", May, Notes);
const CONFIGURATION: Field = ("configuration", May, Configuration(Of::Session));
const PEER_CONFIGURATION: Field = ("configuration", May, Configuration(Of::Peer));

/// The bodies of `POST …/workspaces`, `…/sessions` and `…/peers`: a [`NewIn`].
pub(super) const NEW_WORKSPACE: Shape = Model(&[ID, METADATA, CONFIGURATION]);
pub(super) const NEW_SESSION: Shape = Model(&[ID, METADATA, ("peers", May, Members), CONFIGURATION]);
pub(super) const NEW_PEER: Shape = Model(&[ID, METADATA, PEER_CONFIGURATION]);

/// The body of a `PUT` of a workspace or a session, a peer, a message: a [`Put`].
pub(super) const PUT: Shape = Model(&[METADATA, CONFIGURATION]);
pub(super) const PUT_PEER: Shape = Model(&[METADATA, PEER_CONFIGURATION]);
pub(super) const PUT_MESSAGE: Shape = Model(&[METADATA]);

/// The body of `POST` and `PUT …/sessions/{s}/peers`: who shall take part, in the order they were sent in, and how.
pub(super) const MEMBERS: Shape = Members;

/// The body of `PUT …/peers/{p}/config`: how a peer takes part in a session.
pub(super) const MEMBER: Shape = Model(MEMBER_FIELDS);
const MEMBER_FIELDS: &[Field] = &[("observe_others", May, Flag), ("observe_me", May, Flag)];

/// The body of `DELETE …/sessions/{s}/peers`: who shall take part no longer.
pub(super) const NAMES: Shape = List(&Name, 0..=usize::MAX);

/// The body of `POST …/messages`: [`MessagesIn`].
pub(super) const MESSAGES: Shape = Model(&[("messages", Must, List(&MESSAGE, 1..=100))]);

/// One by itself, a [`MessageIn`]: the fields of an upload too, with nothing or its words for `content`.
pub(super) const MESSAGE: Shape = Model(&[
    ("content", Must, Text(0..=25_000)),
    ("peer_id", Must, Name),
    METADATA,
    ("configuration", May, Configuration(Of::Message)),
    ("created_at", May, Moment),
]);

const FILTERS: Field = ("filters", May, Dict);

/// The body of `POST …/search`: a [`SearchIn`].
pub(super) const SEARCH: Shape =
    Model(&[("query", Must, Text(1..=usize::MAX)), FILTERS, ("limit", Or, Whole(1..=100))]);

/// The parameters of every list: [`Paging`].
const PAGING: Shape =
    Model(&[("page", Or, Whole(1..=i64::MAX)), ("size", Or, Whole(1..=100)), ("reverse", Or, Flag)]);

/// The parameters of `GET …/context`: a [`ContextIn`]. The last four say how a representation is made, and are not kept:
/// there are none here.
const CONTEXT: Shape = Model(&[
    ("tokens", May, Whole(i64::MIN..=100_000)),
    ("summary", Or, Flag),
    ("peer_target", May, Text(0..=usize::MAX)),
    ("peer_perspective", May, Text(0..=usize::MAX)),
    ("limit_to_session", Or, Flag),
    ("sessions", May, Text(0..=usize::MAX)),
    ("scope", May, Text(0..=usize::MAX)),
    ("search_top_k", May, Whole(1..=100)),
    ("search_max_distance", May, Number(0.0..=1.0)),
    ("include_most_frequent", May, Flag),
    ("max_conclusions", May, Whole(1..=100)),
]);

/// Reads a body. One that is `null` was left out.
pub(super) fn body<T: Default + DeserializeOwned>(sent: &Value, shape: &Shape) -> Result<T, Faults> {
    read(&At { value: sent, step: "body".into(), within: None }, shape)
}

/// Reads what stands after the `?`, decoded already: of a parameter that is given twice the last holds, and unknown ones do
/// nothing. Native routes refuse both. Here the client sends some that mean nothing to us, and may send more.
fn query<T: Default + DeserializeOwned>(pairs: &[(String, String)], shape: &Shape) -> Result<T, Faults> {
    let last: Map<_, _> = pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    read(&At { value: &Value::Object(last), step: "query".into(), within: None }, shape)
}

fn read<T: Default + DeserializeOwned>(at: &At<'_>, shape: &Shape) -> Result<T, Faults> {
    let mut found = Found::default();
    let read = match at.value {
        Value::Null => found.refuse(at, Wrong::missing()),
        _ => shape.read(at, &mut found),
    };
    // What has no fault has the form of what is wanted.
    found.give(serde_json::from_value(read).unwrap_or_default())
}

/// A workspace, a session or a peer to get or make.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub(super) struct NewIn {
    /// What it is called.
    pub(super) id: String,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) configuration: Option<Map<String, Value>>,
    /// Who takes part in a session, in the order they were sent in.
    pub(super) peers: Option<Map<String, Value>>,
}

/// What a workspace, a session, a peer or a message shall hold from now on. What is left out stays.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub(super) struct Put {
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) configuration: Option<Map<String, Value>>,
}

/// Messages to add, in order.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub(super) struct MessagesIn {
    pub(super) messages: Vec<MessageIn>,
}

/// A message to add.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
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

/// The filters in the body of `POST …/list`, or `null` where there is none. What they say is read elsewhere (`filter.rs`).
pub(super) fn filters(sent: &Value) -> Result<Value, Faults> {
    match sent {
        Value::Null => Ok(Value::Null),
        _ => Ok(body::<Map<_, _>>(sent, &Model(&[FILTERS]))?.remove("filters").unwrap_or_default()),
    }
}

/// What is searched for.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub(super) struct SearchIn {
    pub(super) query: String,
    /// As in [`filters`].
    #[serde(default)]
    pub(super) filters: Value,
    /// So many messages are wanted at most.
    #[serde(default = "ten")]
    pub(super) limit: u64,
}

fn ten() -> u64 {
    10
}

/// Which page of a list is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Paging {
    /// From 1.
    pub(super) page: u64,
    /// So many items a page.
    pub(super) size: u64,
    /// The newest first.
    pub(super) reverse: bool,
}

impl Default for Paging {
    fn default() -> Self {
        Self { page: 1, size: 50, reverse: false }
    }
}

impl Paging {
    pub(super) fn read(pairs: &[(String, String)]) -> Result<Self, Faults> {
        query(pairs, &PAGING)
    }

    /// So many come before that page.
    pub(super) fn skip(&self) -> u64 {
        self.page.saturating_sub(1).saturating_mul(self.size)
    }
}

/// What context is wanted.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(default)]
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

impl Default for ContextIn {
    fn default() -> Self {
        let (peer_target, peer_perspective, sessions, scope) = (None, None, None, None);
        let (tokens, summary, limit_to_session) = (None, true, false);
        Self { tokens, summary, peer_target, peer_perspective, limit_to_session, sessions, scope }
    }
}

impl ContextIn {
    pub(super) fn read(pairs: &[(String, String)]) -> Result<Self, Faults> {
        query(pairs, &CONTEXT)
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
