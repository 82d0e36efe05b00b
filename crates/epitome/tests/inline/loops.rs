//! Long loops: every strategy, on every wire, with counts that differ and upstreams that change their mind.

use epitome::dialect::Dialect;
use serde_json::json;

use crate::agent_loop::upstream::{Manner, Upstream};
use crate::agent_loop::{Agent, RULE, SYSTEM, WINDOW};

const WIRES: [Dialect; 3] = [Dialect::OpenAi, Dialect::Responses, Dialect::Anthropic];

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

async fn run(strategy: &str, dialect: Dialect, manner: Manner) -> Ran {
    let upstream = Upstream::start(manner).await;
    let settings = json!({ "condense": { "strategy": strategy, "threshold": 0.75, "max_tokens": 1_200 } });
    let mut agent = Agent::new(dialect, &upstream.url(), &settings).unwrap();
    let (mut condensed, mut stuck) = (0, None);
    while agent.spent.calls < CALLS && stuck.is_none() {
        match agent.work(&format!("Go on after call {}.", agent.spent.calls)).await {
            Ok(calls) => condensed += calls.iter().filter(|call| call.notice.is_some()).count(),
            Err(error) => stuck = Some(error.to_string()),
        }
    }
    Ran { agent, upstream, condensed, stuck }
}

/// Runs one strategy on all wires, against every kind of upstream in turn. Never is anything refused for its shape, nothing is
/// sent twice that was refused, what must stay is in every request, and between two passes a list only grows.
async fn goes_on_for_ever(strategy: &str) {
    for (at, dialect) in WIRES.into_iter().enumerate() {
        for manner in [manners()[at].clone(), manners()[(at + strategy.len()) % 4].clone()] {
            let told = format!("{strategy} on {dialect}, {manner:?}");
            let Ran { agent, upstream, condensed, stuck } = run(strategy, dialect, manner).await;
            assert_eq!(upstream.misshapen(), Vec::<String>::new(), "{told}");
            assert_eq!((stuck, upstream.repeated(), upstream.lacking()), (None, 0, 0), "{told}");
            assert!(
                agent.spent.calls >= CALLS && agent.tokens > 10 * WINDOW,
                "{told}: {} tokens",
                agent.tokens
            );
            assert!(upstream.begun_anew() <= condensed, "{told}: {} of {condensed}", upstream.begun_anew());
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
