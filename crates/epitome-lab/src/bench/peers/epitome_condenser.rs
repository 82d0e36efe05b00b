//! Plays the plan with Epitome's condenser, with the same messages and turns as the peers.

use std::time::{Duration, Instant};

use epitome::rules::message::Message;
use epitome::{Condenser, Error};
use serde_json::json;

use super::{ListCheck, PeerPlan, PeerResult, Spread, TURN};
use crate::bench::engine::resident;

/// A trigger, in tokens, that no list reaches. It is used for lists that must not be condensed.
const NEVER: u64 = 1_000_000_000;

pub(super) async fn measure(history: &[Message], plan: &PeerPlan) -> Result<PeerResult, Error> {
    let mut checked = ListCheck::default();
    let (session, condensed) = session(history, plan, Some(&mut checked)).await?;
    let mut sessions = vec![session];
    for _ in 1..plan.sessions {
        sessions.push(self::session(history, plan, None).await?.0);
    }
    sessions.sort_by_key(|session| session.iter().sum::<Duration>());
    let session = sessions.swap_remove(sessions.len() / 2);
    let mut turns = Vec::new();
    for messages in &plan.lengths {
        turns.push((*messages, idle_turns(history, *messages, plan).await?));
    }
    Ok(PeerResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        memory: resident(std::process::id()).1,
        turns,
        whole: session.iter().sum::<Duration>().as_secs_f64() * 1_000.0,
        session: Spread::of(session),
        condensed,
        lists: checked.lists,
        rejected: checked.rejected,
        first_error: checked.first_error,
    })
}

/// Plays a session from its first message. Returns the durations of its turns, and how many times its list was
/// condensed.
async fn session(
    history: &[Message],
    plan: &PeerPlan,
    mut checked: Option<&mut ListCheck>,
) -> Result<(Vec<Duration>, u64), Error> {
    let mut player = Player::new(plan.trigger, plan.keep)?;
    let mut turns = Vec::new();
    for turn in 0..plan.session.div_ceil(TURN) {
        turns.push(player.turn(history, turn * TURN, checked.as_deref_mut()).await);
    }
    Ok((turns, player.condensed))
}

/// Measures turns that do not condense the list. The list has `messages` messages before these turns. The first turn is
/// not measured.
async fn idle_turns(history: &[Message], messages: u64, plan: &PeerPlan) -> Result<Spread, Error> {
    let mut player = Player::new(NEVER, plan.keep)?;
    player.add(history, 0, messages);
    player.turn(history, messages, None).await;
    let mut durations = Vec::new();
    for turn in 1..=plan.turns {
        durations.push(player.turn(history, messages + turn * TURN, None).await);
    }
    if player.condensed > 0 {
        return Err(Error::Conflict("a list was condensed although nothing was due".to_owned()));
    }
    Ok(Spread::of(durations))
}

/// An agent that stores its message list and calls the condenser before each model call.
struct Player {
    condenser: Condenser,
    list: Vec<Message>,
    condensed: u64,
}

impl Player {
    fn new(trigger: u64, keep: u64) -> Result<Self, Error> {
        let settings = json!({ "condense": {
            "trigger": format!("tokens({trigger})"),
            "keep": format!("messages({keep})"),
        }});
        let condenser = Condenser::builder().settings(&settings.to_string()).build()?;
        Ok(Self { condenser, list: Vec::new(), condensed: 0 })
    }

    fn add(&mut self, history: &[Message], from: u64, count: u64) {
        let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(history.len());
        self.list.extend_from_slice(history.get(index(from)..index(from + count)).unwrap_or_default());
    }

    /// Plays a turn, which has two model calls. Returns the time that the condenser needed before these two calls.
    async fn turn(
        &mut self,
        history: &[Message],
        start: u64,
        mut checked: Option<&mut ListCheck>,
    ) -> Duration {
        self.add(history, start, 1);
        let first = self.before_call(checked.as_deref_mut()).await;
        self.add(history, start + 1, 2);
        let second = self.before_call(checked).await;
        self.add(history, start + 3, 1);
        first + second
    }

    async fn before_call(&mut self, checked: Option<&mut ListCheck>) -> Duration {
        let started = Instant::now();
        let ready = self.condenser.before_model(&self.list).await;
        let duration = started.elapsed();
        self.condensed += u64::from(ready.report.condensed);
        if let Some(checked) = checked {
            checked.add(&ready);
        }
        duration
    }
}
