//! What stands after the `?`, decoded already: of one that is given twice the last holds, and unknown ones do nothing.
//!
//! Native routes refuse both (`../query.rs`). Here the client sends some that mean nothing to us, and may send more.

use serde_json::{Map, Value};

use super::fault::{Faults, Found};
use super::given::{Fields, flag, number, text, whole};
use super::place::At;

/// Reads parameters: texts, each with its name.
fn query<T>(
    pairs: &[(String, String)],
    read: impl FnOnce(&Fields<'_>, &mut Found) -> T,
) -> Result<T, Faults> {
    let last: Map<_, _> = pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let (mut found, last) = (Found::default(), Value::Object(last));
    let at = At { value: &last, step: "query".into(), within: None };
    let read = read(&at.dict(&mut found), &mut found);
    found.give(read)
}

/// Which page of a list is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Paging {
    /// From 1.
    pub(crate) page: u64,
    /// So many items a page.
    pub(crate) size: u64,
    /// The newest first.
    pub(crate) reverse: bool,
}

impl Paging {
    /// The parameters of every list.
    pub(crate) fn read(pairs: &[(String, String)]) -> Result<Self, Faults> {
        query(pairs, |given, found| Self {
            page: given.or(1, "page", found, whole(1..=i64::MAX)).unsigned_abs(),
            size: given.or(50, "size", found, whole(1..=100)).unsigned_abs(),
            reverse: given.or(false, "reverse", found, flag),
        })
    }
}

/// No larger context is given, in tokens.
const TOKENS: i64 = 100_000;

/// What context is wanted.
#[derive(Debug, PartialEq)]
pub(crate) struct ContextIn {
    /// How large it may be. Nothing and less is taken, and gets nothing.
    pub(crate) tokens: Option<i64>,
    /// Whether a summary may stand in it.
    pub(crate) summary: bool,
    /// Of whom something is to be told.
    pub(crate) peer_target: Option<String>,
    /// As seen by whom.
    pub(crate) peer_perspective: Option<String>,
    limit_to_session: bool,
    sessions: Vec<String>,
    scope: Option<String>,
}

impl ContextIn {
    /// The parameters of `GET …/context`. Those that say how a representation is made are checked and not kept: there
    /// are none here.
    pub(crate) fn read(pairs: &[(String, String)]) -> Result<Self, Faults> {
        query(pairs, |given, found| {
            let context = Self {
                tokens: given.optional("tokens", found, whole(i64::MIN..=TOKENS)),
                summary: given.or(true, "summary", found, flag),
                peer_target: given.optional("peer_target", found, text),
                peer_perspective: given.optional("peer_perspective", found, text),
                limit_to_session: given.or(false, "limit_to_session", found, flag),
                sessions: all(pairs, "sessions"),
                scope: given.optional("scope", found, text),
            };
            given.optional("search_top_k", found, whole(1..=100));
            given.optional("search_max_distance", found, number(0.0..=1.0));
            given.optional("include_most_frequent", found, flag);
            given.optional("max_conclusions", found, whole(1..=100));
            context
        })
    }

    /// Why these parameters do not go together: the `detail` of a 422, which is no list then.
    pub(crate) fn unfit(&self) -> Option<&'static str> {
        let Self { peer_target, peer_perspective, scope, sessions, .. } = self;
        let chosen = !sessions.is_empty();
        match peer_target {
            None if peer_perspective.is_some() => {
                Some("peer_target must be provided if peer_perspective is provided")
            }
            None if scope.is_some() => Some("peer_target must be provided if scope is provided"),
            None if chosen => Some("peer_target must be provided if sessions is provided"),
            _ if chosen && scope.is_some() => Some("sessions and scope are mutually exclusive"),
            _ if chosen && self.limit_to_session => {
                Some("sessions and limit_to_session are mutually exclusive")
            }
            _ if scope.is_some() && peer_perspective.is_some() => {
                Some("scope and peer_perspective are mutually exclusive")
            }
            _ => None,
        }
    }
}

/// Every value of a parameter that may be given more than once.
fn all(pairs: &[(String, String)], name: &str) -> Vec<String> {
    pairs.iter().filter(|(given, _)| given == name).map(|(_, value)| value.clone()).collect()
}
