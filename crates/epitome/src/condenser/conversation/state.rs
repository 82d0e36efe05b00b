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

/// The state of a conversation between two calls. The transitions are methods that take the state.
///
/// ```text
///   Idle ── begun ──▶ Preparing ── fallback ──▶ Fallback        any ── stopped ──▶ Stopped
///     ◀── taken_if ──┘   ◀───────── own ─────────┘                  ◀── resumed ──┘
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
    /// Condensing did not help, by the provider's count. Nothing is begun ahead of time until it helps again.
    Stopped { at: Tokens, untold: Option<Untold>, preparing: Option<Preparing> },
}

/// While a fallback is in use: the last summary that the model wrote itself, and what it has not read since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::condenser) struct Untold {
    pub(super) prior: Option<String>,
    pub(super) places: Vec<Seq>,
    pub(super) tokens: Tokens,
}

impl State {
    /// By the size at which it was stopped, what the model has yet to read, and the summary that is being written.
    pub(super) fn of(at: Option<Tokens>, untold: Option<Untold>, preparing: Option<Preparing>) -> Self {
        match (at, untold, preparing) {
            (Some(at), untold, preparing) => Self::Stopped { at, untold, preparing },
            (None, Some(untold), preparing) => Self::Fallback { untold, preparing },
            (None, None, Some(preparing)) => Self::Preparing(preparing),
            (None, None, None) => Self::Idle,
        }
    }

    fn parts(self) -> (Option<Tokens>, Option<Untold>, Option<Preparing>) {
        match self {
            Self::Idle => (None, None, None),
            Self::Preparing(preparing) => (None, None, Some(preparing)),
            Self::Fallback { untold, preparing } => (None, Some(untold), preparing),
            Self::Stopped { at, untold, preparing } => (Some(at), untold, preparing),
        }
    }

    /// The size of the request at which it was stopped.
    pub(super) fn stopped_at(&self) -> Option<Tokens> {
        if let Self::Stopped { at, .. } = self { Some(*at) } else { None }
    }

    /// What the model has yet to read, while a fallback is in use.
    pub(super) fn untold(&self) -> Option<&Untold> {
        match self {
            Self::Idle | Self::Preparing(_) => None,
            Self::Fallback { untold, .. } => Some(untold),
            Self::Stopped { untold, .. } => untold.as_ref(),
        }
    }

    /// The summary that is being written.
    pub(super) fn preparing(&self) -> Option<&Preparing> {
        match self {
            Self::Idle => None,
            Self::Preparing(preparing) => Some(preparing),
            Self::Fallback { preparing, .. } | Self::Stopped { preparing, .. } => preparing.as_ref(),
        }
    }

    /// A summary is begun in the background.
    pub(super) fn begun(self, preparing: Preparing) -> Self {
        let (at, untold, _) = self.parts();
        Self::of(at, untold, Some(preparing))
    }

    /// `local` wrote a summary in the model's place, which has this yet to read.
    pub(super) fn fallback(self, unread: Untold) -> Self {
        let (at, untold, preparing) = self.parts();
        let untold = match untold {
            None => unread,
            Some(Untold { prior, mut places, tokens }) => {
                places.extend(unread.places);
                Untold { prior, places, tokens: tokens.saturating_add(unread.tokens) }
            }
        };
        Self::of(at, Some(untold), preparing)
    }

    /// The model's own summary came after `local` had written one in its place: the next is built on it.
    pub(super) fn late(self, text: &str, read: &[Seq]) -> Self {
        let (at, mut untold, preparing) = self.parts();
        if let Some(untold) = &mut untold {
            untold.prior = Some(text.to_owned());
            untold.places.retain(|place| !read.contains(place));
        }
        Self::of(at, untold, preparing)
    }

    /// The model's own summary is in use.
    pub(super) fn own(self) -> Self {
        let (at, _, preparing) = self.parts();
        Self::of(at, None, preparing)
    }

    /// Condensing did not help at this size.
    pub(super) fn stopped(self, at: Tokens) -> Self {
        let (_, untold, preparing) = self.parts();
        Self::of(Some(at), untold, preparing)
    }

    /// Condensing helps again.
    pub(super) fn resumed(self) -> Self {
        let (_, untold, preparing) = self.parts();
        Self::of(None, untold, preparing)
    }

    /// The list is another one: what was written and read of the old one is forgotten.
    pub(super) fn forgotten(self) -> Self {
        Self::of(self.stopped_at(), None, None)
    }

    /// The state of a fork, which takes the summary over that is being written where it suits.
    pub(super) fn forked(&mut self, suits: impl FnOnce(&Preparing) -> bool) -> Self {
        let preparing = self.taken_if(suits);
        Self::of(self.stopped_at(), self.untold().cloned(), preparing)
    }

    /// Takes the summary that is being written, where it is the one that is sought.
    pub(super) fn taken_if(&mut self, sought: impl FnOnce(&Preparing) -> bool) -> Option<Preparing> {
        if !self.preparing().is_some_and(sought) {
            return None;
        }
        let (at, untold, preparing) = std::mem::take(self).parts();
        *self = Self::of(at, untold, None);
        preparing
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
