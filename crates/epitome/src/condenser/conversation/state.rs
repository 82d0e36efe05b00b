//! The state of a conversation between two calls, and the summary that is being written for it.

use std::sync::{Arc, Mutex};

use epitome_core::condense::Plan;
use epitome_core::message::{Seq, Tokens};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::condenser::scribe::Outcome;
use crate::hook::Running;
use crate::lock::lock;
use crate::model::ModelError;

/// The state of a conversation between two calls.
///
/// ```text
///            begun                      fallback
///   Idle ───────────▶ Preparing ─────────────────────▶ Fallback
///     ▲ ◀─── taken ──────┘ ▲                             │  │ ▲
///     │                    └── own (one still written) ──┘  └─┘ begun, taken, fallback
///     └──────────────────────── own ─────────────────────┘
///   any ── stopped ──▶ Stopped ── resumed ──▶ as it was
/// ```
#[derive(Default)]
pub(super) enum State {
    /// No summary is being written, and the one in use, if any, is the model's own.
    #[default]
    Idle,
    /// A summary is being written in the background.
    Preparing(Preparing),
    /// A fallback summary by `local` is in use. The model's own may be on its way.
    Fallback { untold: Untold, preparing: Option<Preparing> },
    /// Condensing did not help, by the provider's count. Nothing new is begun until the request has grown by half.
    Stopped { at: Tokens, then: Box<State> },
}

/// While a fallback is in use: the last summary that the model wrote itself, and what it has not read since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::condenser) struct Untold {
    pub(super) prior: Option<String>,
    pub(super) places: Vec<Seq>,
    pub(super) tokens: Tokens,
}

impl State {
    /// One that is not stopped.
    pub(super) fn of(untold: Option<Untold>, preparing: Option<Preparing>) -> Self {
        match (untold, preparing) {
            (Some(untold), preparing) => Self::Fallback { untold, preparing },
            (None, Some(preparing)) => Self::Preparing(preparing),
            (None, None) => Self::Idle,
        }
    }

    /// The summary that is being written.
    pub(super) fn preparing(&self) -> Option<&Preparing> {
        match self {
            Self::Idle => None,
            Self::Preparing(preparing) => Some(preparing),
            Self::Fallback { preparing, .. } => preparing.as_ref(),
            Self::Stopped { then, .. } => then.preparing(),
        }
    }

    /// What the model has yet to read, while a fallback is in use.
    pub(super) fn untold(&self) -> Option<&Untold> {
        match self {
            Self::Idle | Self::Preparing(_) => None,
            Self::Fallback { untold, .. } => Some(untold),
            Self::Stopped { then, .. } => then.untold(),
        }
    }

    /// The size of the request at which it was stopped.
    pub(super) fn stopped_at(&self) -> Option<Tokens> {
        match self {
            Self::Stopped { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// A summary is begun in the background.
    pub(super) fn begun(self, preparing: Preparing) -> Self {
        self.map(|state| match state {
            Self::Fallback { untold, .. } => Self::Fallback { untold, preparing: Some(preparing) },
            _ => Self::Preparing(preparing),
        })
    }

    /// `local` wrote a summary in the model's place, which has this yet to read.
    pub(super) fn fallback(self, unread: Untold) -> Self {
        self.map(|state| match state {
            Self::Fallback { mut untold, preparing } => {
                untold.places.extend(unread.places);
                untold.tokens = untold.tokens.saturating_add(unread.tokens);
                Self::Fallback { untold, preparing }
            }
            Self::Preparing(preparing) => Self::of(Some(unread), Some(preparing)),
            _ => Self::of(Some(unread), None),
        })
    }

    /// The model's own summary came after `local` had written one in its place: the next is built on it.
    pub(super) fn late(self, text: &str, read: &[Seq]) -> Self {
        self.map(|state| match state {
            Self::Fallback { mut untold, preparing } => {
                untold.prior = Some(text.to_owned());
                untold.places.retain(|place| !read.contains(place));
                Self::Fallback { untold, preparing }
            }
            other => other,
        })
    }

    /// The model's own summary is in use.
    pub(super) fn own(self) -> Self {
        self.map(|state| match state {
            Self::Fallback { preparing, .. } => Self::of(None, preparing),
            other => other,
        })
    }

    /// Condensing did not help at this size.
    pub(super) fn stopped(self, at: Tokens) -> Self {
        Self::Stopped { at, then: Box::new(self.resumed()) }
    }

    /// Condensing helps again.
    pub(super) fn resumed(self) -> Self {
        match self {
            Self::Stopped { then, .. } => *then,
            other => other,
        }
    }

    /// The list is another one: what was written and read of the old one is forgotten.
    pub(super) fn forgotten(self) -> Self {
        self.map(|_| Self::Idle)
    }

    /// The state of a fork, which takes the summary over that is being written where it suits.
    pub(super) fn forked(&mut self, suits: impl FnOnce(&Preparing) -> bool) -> Self {
        let preparing = self.taken_if(suits);
        let fork = Self::of(self.untold().cloned(), preparing);
        match self.stopped_at() {
            Some(at) => fork.stopped(at),
            None => fork,
        }
    }

    /// Takes the summary that is being written, where it is the one that is sought.
    pub(super) fn taken_if(&mut self, sought: impl FnOnce(&Preparing) -> bool) -> Option<Preparing> {
        if !self.preparing().is_some_and(sought) {
            return None;
        }
        let mut taken = None;
        let state = std::mem::take(self);
        *self = state.map(|state| match state {
            Self::Preparing(preparing) => {
                taken = Some(preparing);
                Self::Idle
            }
            Self::Fallback { untold, preparing } => {
                taken = preparing;
                Self::Fallback { untold, preparing: None }
            }
            other => other,
        });
        taken
    }

    /// Changes what is within a stop, which goes on.
    fn map(self, change: impl FnOnce(Self) -> Self) -> Self {
        match self {
            Self::Stopped { at, then } => Self::Stopped { at, then: Box::new(change(*then)) },
            other => change(other),
        }
    }
}

/// A summary that is being written in the background.
pub(in crate::condenser) struct Preparing {
    pub(in crate::condenser) plan: Plan,
    pub(in crate::condenser) done: Slip,
    /// Closed when the task has ended, however it did.
    pub(in crate::condenser) ended: watch::Receiver<()>,
    /// Whether its model was lent, and may be taken back at any time.
    pub(in crate::condenser) lent: bool,
    /// The size of the messages that the task holds.
    pub(in crate::condenser) bytes: usize,
    /// Aborted when this is dropped.
    pub(in crate::condenser) _running: Running<()>,
}

/// Where a task leaves its result.
pub(in crate::condenser) type Slip = Arc<Mutex<Option<Outcome>>>;

impl Preparing {
    /// The result, once there is one.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let outcome = lock(&self.done).take();
        outcome.or_else(|| {
            self.has_ended().then(|| Outcome {
                written: Err(ModelError::no_answer("whoever wrote it was stopped").into()),
                spent: Vec::new(),
                problems: Vec::new(),
            })
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    /// Whether it ended without a summary.
    pub(super) fn has_failed(&self) -> bool {
        self.has_ended() && lock(&self.done).as_ref().is_none_or(|outcome| outcome.written.is_err())
    }

    /// Whether its model was taken back before it had answered, which is no failure.
    pub(super) fn was_taken_back(&self) -> bool {
        self.lent && self.has_ended() && lock(&self.done).is_none()
    }
}
