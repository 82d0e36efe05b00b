//! Tests long agent loops: every strategy, in every format, with different token counts and changing upstreams.

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

/// Minimum number of calls of each agent.
const CALLS: u64 = 300;

fn manner() -> Manner {
    Manner { window: WINDOW, always: &[SYSTEM, RULE], ..Manner::default() }
}

/// Upstreams that count differently, have a smaller limit than documented, or reject requests that are not too long.
fn manners() -> [Manner; 4] {
    [
        Manner { skew: 0.6, ..manner() },
        Manner { skew: 1.5, grumbles: Some(40), ..manner() },
        Manner { shrinks: Some((60, WINDOW * 5 / 8)), ..manner() },
        Manner { window: WINDOW / 2, skew: 0.8, grumbles: Some(25), ..manner() },
    ]
}

/// The result of an agent's run.
struct RunResult {
    agent: Agent,
    upstream: Upstream,
    condensed: usize,
    /// Why the agent could not continue, if it could not.
    stuck: Option<String>,
}

fn builder(dialect: Dialect, window: Tokens, condense: &serde_json::Value) -> CondenserBuilder {
    let settings = json!({ "condense": condense });
    let builder = Condenser::builder().window(window).output_reserve(0).tools(tools(dialect));
    builder.settings(&settings.to_string())
}

async fn run(strategy: &str, dialect: Dialect, manner: Manner) -> RunResult {
    let settings = json!({ "strategy": strategy, "threshold": 0.75, "max_tokens": 1_200 });
    run_with(builder(dialect, WINDOW, &settings), dialect, manner, "Go on").await
}

async fn run_with(builder: CondenserBuilder, dialect: Dialect, manner: Manner, asked: &str) -> RunResult {
    run_on(builder.build().unwrap(), dialect, manner, asked).await
}

async fn run_on(condenser: Condenser, dialect: Dialect, manner: Manner, asked: &str) -> RunResult {
    let upstream = Upstream::start(manner).await;
    let mut agent = Agent::new(dialect, &upstream.url(), condenser).unwrap();
    let (mut condensed, mut stuck) = (0, None);
    while agent.spent.calls < CALLS && stuck.is_none() {
        match agent.work(&format!("{asked} after call {}.", agent.spent.calls)).await {
            Ok(calls) => condensed += calls.iter().filter(|call| call.notice.is_some()).count(),
            Err(error) => stuck = Some(error.to_string()),
        }
    }
    RunResult { agent, upstream, condensed, stuck }
}

impl RunResult {
    /// Checks that no request was invalid, that no refused request was repeated, that every request contained the
    /// messages that must stay, and that the list only grew between two condensations.
    fn assert_ok(&self, told: &str) {
        let Self { agent, upstream, condensed, stuck } = self;
        assert_eq!(upstream.invalid(), Vec::<String>::new(), "{told}");
        assert_eq!((stuck, upstream.repeated(), upstream.without_required_text()), (&None, 0, 0), "{told}");
        assert!(agent.spent.calls >= CALLS && agent.tokens > 10 * WINDOW, "{told}: {} tokens", agent.tokens);
        assert!(upstream.restarted() <= *condensed, "{told}: {} of {condensed}", upstream.restarted());
    }
}

/// Runs one strategy in all formats, each against two kinds of upstream.
async fn never_ends(strategy: &str) {
    for (at, dialect) in WIRES.into_iter().enumerate() {
        for manner in [manners()[at].clone(), manners()[(at + strategy.len()) % 4].clone()] {
            let told = format!("{strategy} on {dialect}, {manner:?}");
            run(strategy, dialect, manner).await.assert_ok(&told);
        }
    }
}

#[tokio::test]
async fn a_summarized_list_never_ends() {
    never_ends("summarize").await;
}

#[tokio::test]
async fn an_amortized_list_never_ends() {
    never_ends("amortized").await;
}

#[tokio::test]
async fn a_list_of_recent_messages_never_ends() {
    never_ends("recent(messages(12))").await;
}

#[tokio::test]
async fn a_masked_and_summarized_list_never_ends() {
    never_ends("pipeline(mask, summarize)").await;
}

#[tokio::test]
async fn a_list_of_whole_turns_never_ends() {
    never_ends("amortized(turns(1))").await;
}

/// These two strategies must end: text is never masked. Their requests until then are valid, and the last error says
/// why the run ends.
#[tokio::test]
async fn a_list_that_is_only_masked_ends_with_a_reason_and_without_a_loop() {
    for strategy in ["noop", "mask"] {
        for (dialect, manner) in WIRES.into_iter().zip(manners()) {
            let told = format!("{strategy} on {dialect}, {manner:?}");
            let RunResult { upstream, stuck, .. } = run(strategy, dialect, manner).await;
            assert_eq!(upstream.invalid(), Vec::<String>::new(), "{told}");
            assert_eq!((upstream.repeated(), upstream.without_required_text()), (0, 0), "{told}");
            if let Some(why) = stuck {
                assert!(why.starts_with("too long, and no more messages can be removed: "), "{told}: {why}");
            }
        }
    }
}

/// Returns a summarizer that fails every second time without delay: `local` writes a fallback.
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
async fn a_summarizer_that_fails_every_second_time_stops_no_agent() {
    for (dialect, wait) in WIRES.into_iter().zip([false, true, false]) {
        let settings = json!({ "threshold": 0.75, "model": "unsteady", "wait": wait, "max_tokens": 1_200 });
        let builder = builder(dialect, WINDOW, &settings).model("unsteady", unsteady());
        let told = format!("{dialect}, wait: {wait}");
        run_with(builder, dialect, manner(), "Go on").await.assert_ok(&told);
    }
}

#[tokio::test]
async fn agents_that_share_a_condenser_never_see_each_others_messages() {
    let settings = json!({ "strategy": "amortized", "threshold": 0.75, "max_tokens": 1_200 });
    let condenser = builder(Dialect::OPENAI, WINDOW, &settings).build().unwrap();
    let run = |own: &'static str, other| {
        run_on(condenser.clone(), Dialect::OPENAI, Manner { never: Some(other), ..manner() }, own)
    };
    let (ann, bob) = tokio::join!(run("Ann's quay", "Bob's dock"), run("Bob's dock", "Ann's quay"));
    for (name, ran) in [("Ann", ann), ("Bob", bob)] {
        ran.assert_ok(name);
        assert_eq!(ran.upstream.foreign(), 0, "{name}");
    }
}
