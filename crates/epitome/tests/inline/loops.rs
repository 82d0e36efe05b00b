//! Long loops: every strategy, on every wire, with counts that differ and upstreams that change their mind.

use std::sync::atomic::{AtomicUsize, Ordering};

use epitome::dialect::Dialect;
use epitome::model::{ModelError, Reply};
use epitome::rules::message::Tokens;
use epitome::{Condenser, CondenserBuilder};
use epitome_testkit::scripted::Scripted;
use serde_json::json;

use crate::agent_loop::{Agent, RULE, SYSTEM, WINDOW, tools};
use epitome_testkit::upstream::{Manner, Upstream};

const WIRES: [Dialect; 3] = [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC];

/// So many calls each agent makes, at least.
const CALLS: u64 = 300;

fn manner() -> Manner {
    Manner { window: WINDOW, always: &[SYSTEM, RULE], ..Manner::default() }
}

/// Upstreams that count otherwise, take less than was said, or find too long what is not.
fn manners() -> [Manner; 4] {
    [
        Manner { skew: 0.6, ..manner() },
        Manner { skew: 1.5, grumbles: Some(40), ..manner() },
        Manner { shrinks: Some((60, WINDOW * 5 / 8)), ..manner() },
        Manner { window: WINDOW / 2, skew: 0.8, grumbles: Some(25), ..manner() },
    ]
}

/// What became of an agent.
struct Ran {
    agent: Agent,
    upstream: Upstream,
    condensed: usize,
    /// Why it could not go on, where it could not.
    stuck: Option<String>,
}

fn builder(dialect: Dialect, window: Tokens, condense: &serde_json::Value) -> CondenserBuilder {
    let settings = json!({ "condense": condense });
    let builder = Condenser::builder().window(window).output_reserve(0).tools(tools(dialect));
    builder.settings(&settings.to_string())
}

async fn run(strategy: &str, dialect: Dialect, manner: Manner) -> Ran {
    let settings = json!({ "strategy": strategy, "threshold": 0.75, "max_tokens": 1_200 });
    run_with(builder(dialect, WINDOW, &settings), dialect, manner, "Go on").await
}

async fn run_with(builder: CondenserBuilder, dialect: Dialect, manner: Manner, asked: &str) -> Ran {
    run_on(builder.build().unwrap(), dialect, manner, asked).await
}

async fn run_on(condenser: Condenser, dialect: Dialect, manner: Manner, asked: &str) -> Ran {
    let upstream = Upstream::start(manner).await;
    let mut agent = Agent::new(dialect, &upstream.url(), condenser).unwrap();
    let (mut condensed, mut stuck) = (0, None);
    while agent.spent.calls < CALLS && stuck.is_none() {
        match agent.work(&format!("{asked} after call {}.", agent.spent.calls)).await {
            Ok(calls) => condensed += calls.iter().filter(|call| call.notice.is_some()).count(),
            Err(error) => stuck = Some(error.to_string()),
        }
    }
    Ran { agent, upstream, condensed, stuck }
}

impl Ran {
    /// Nothing was refused for its shape, nothing was sent twice that was refused, what must stay was in every request, and
    /// between two passes the list only grew.
    fn went_well(&self, told: &str) {
        let Self { agent, upstream, condensed, stuck } = self;
        assert_eq!(upstream.misshapen(), Vec::<String>::new(), "{told}");
        assert_eq!((stuck, upstream.repeated(), upstream.lacking()), (&None, 0, 0), "{told}");
        assert!(agent.spent.calls >= CALLS && agent.tokens > 10 * WINDOW, "{told}: {} tokens", agent.tokens);
        assert!(upstream.begun_anew() <= *condensed, "{told}: {} of {condensed}", upstream.begun_anew());
    }
}

/// One strategy on all wires, each against two kinds of upstream.
async fn goes_on_for_ever(strategy: &str) {
    for (at, dialect) in WIRES.into_iter().enumerate() {
        for manner in [manners()[at].clone(), manners()[(at + strategy.len()) % 4].clone()] {
            let told = format!("{strategy} on {dialect}, {manner:?}");
            run(strategy, dialect, manner).await.went_well(&told);
        }
    }
}

#[tokio::test]
async fn a_list_that_is_summarized_goes_on_for_ever() {
    goes_on_for_ever("summarize").await;
}

#[tokio::test]
async fn a_list_that_is_summarized_rarely_goes_on_for_ever() {
    goes_on_for_ever("amortized").await;
}

#[tokio::test]
async fn a_list_of_the_newest_goes_on_for_ever() {
    goes_on_for_ever("recent(messages(12))").await;
}

#[tokio::test]
async fn a_list_that_is_masked_and_then_summarized_goes_on_for_ever() {
    goes_on_for_ever("pipeline(mask, summarize)").await;
}

#[tokio::test]
async fn a_list_that_keeps_whole_turns_goes_on_for_ever() {
    goes_on_for_ever("amortized(turns(1))").await;
}

/// These two cannot go on for ever: words are never masked. What they send until then is as good, and the last word is
/// why it ends.
#[tokio::test]
async fn a_list_that_only_loses_outputs_ends_with_a_reason_and_without_a_repeat() {
    for strategy in ["noop", "mask"] {
        for (dialect, manner) in WIRES.into_iter().zip(manners()) {
            let told = format!("{strategy} on {dialect}, {manner:?}");
            let Ran { upstream, stuck, .. } = run(strategy, dialect, manner).await;
            assert_eq!(upstream.misshapen(), Vec::<String>::new(), "{told}");
            assert_eq!((upstream.repeated(), upstream.lacking()), (0, 0), "{told}");
            if let Some(why) = stuck {
                assert!(why.starts_with("too long, and nothing more can leave: "), "{told}: {why}");
            }
        }
    }
}

/// A summarizer that is gone each other time, and slow to nobody: `local` stands in for it.
fn unsteady() -> Scripted {
    let asked = AtomicUsize::new(0);
    Scripted::new().named("unsteady").otherwise(move |ask| {
        let asked = asked.fetch_add(1, Ordering::Relaxed);
        if asked % 2 == 1 {
            return Err(ModelError::Busy { retry_after: None });
        }
        Ok(Reply::complete(format!("Up to message {} files were ported one by one.", ask.through)))
    })
}

#[tokio::test]
async fn a_summarizer_that_fails_each_other_time_stops_nobody() {
    for (dialect, wait) in WIRES.into_iter().zip([false, true, false]) {
        let settings = json!({ "threshold": 0.75, "model": "unsteady", "wait": wait, "max_tokens": 1_200 });
        let builder = builder(dialect, WINDOW, &settings).model("unsteady", unsteady());
        let told = format!("{dialect}, wait: {wait}");
        run_with(builder, dialect, manner(), "Go on").await.went_well(&told);
    }
}

#[tokio::test]
async fn agents_that_share_a_condenser_never_hear_of_each_other() {
    let settings = json!({ "strategy": "amortized", "threshold": 0.75, "max_tokens": 1_200 });
    let condenser = builder(Dialect::OPENAI, WINDOW, &settings).build().unwrap();
    let run = |own: &'static str, other| {
        run_on(condenser.clone(), Dialect::OPENAI, Manner { never: Some(other), ..manner() }, own)
    };
    let (ann, bob) = tokio::join!(run("Ann's quay", "Bob's dock"), run("Bob's dock", "Ann's quay"));
    for (name, ran) in [("Ann", ann), ("Bob", bob)] {
        ran.went_well(name);
        assert_eq!(ran.upstream.foreign(), 0, "{name}");
    }
}
