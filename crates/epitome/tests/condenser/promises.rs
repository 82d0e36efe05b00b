//! Tests what holds on every turn, for any conversation, any strategy, and either list that the caller continues with.

use epitome::rules::condense::ListState;
use epitome::rules::message::{Message, Part, Role};
use epitome::rules::outline::Cut;
use epitome::rules::trigger::Fraction;
use epitome::{Call, Condenser, ReadyList};
use epitome_testkit::drawing::draw;
use epitome_testkit::scripted::Scripted;
use proptest::prelude::*;

use crate::drawn::{Drawn, Log, session};
use crate::support::{complaints, settle, words, words_counted};

use epitome_testkit::budget::config;

/// The model's input limit.
const WINDOW: u64 = 300;

/// The behaviour of an agent.
#[derive(Debug, Clone)]
struct Agent {
    strategy: &'static str,
    trigger: &'static str,
    model: Writer,
    /// Number of new messages before each call, cyclically.
    bursts: Vec<usize>,
    /// Whether the agent continues with the returned list.
    returned: bool,
    /// Whether models run between two calls.
    slow: bool,
    fixed: u64,
    keep_first: usize,
}

#[derive(Debug, Clone, Copy)]
enum Writer {
    Local,
    Ahead,
    Waited,
}

fn agents() -> impl Strategy<Value = Agent> {
    let strategy = prop::sample::select(vec![
        "noop",
        "recent(messages(3))",
        "mask(messages(2))",
        "summarize(messages(2))",
        "summarize(messages(0))",
        "amortized(messages(2))",
        "pipeline(mask(messages(1)), summarize(messages(3)))",
    ]);
    let trigger = prop::sample::select(vec![
        "messages(6)",
        "tokens(40)",
        "tokens(150)",
        "any(turns(3), window(0.5))",
        "economic",
    ]);
    let model = prop::sample::select(vec![Writer::Local, Writer::Local, Writer::Ahead, Writer::Waited]);
    let bursts = prop_oneof![Just(vec![1]), prop::collection::vec(1..6usize, 1..4), Just(vec![1000])];
    let rest = (any::<bool>(), any::<bool>(), prop::sample::select(vec![0, 0, 25u64]), 0..3usize);
    (strategy, trigger, model, bursts, rest).prop_map(
        |(strategy, trigger, model, bursts, (returned, slow, fixed, keep_first))| Agent {
            strategy,
            trigger,
            model,
            bursts,
            returned,
            slow,
            fixed,
            keep_first: keep_first.saturating_sub(1),
        },
    )
}

impl Agent {
    fn condenser(&self, trigger: &str) -> Condenser {
        let (model, wait) = match self.model {
            Writer::Local => ("local", false),
            Writer::Ahead => ("m", false),
            Writer::Waited => ("m", true),
        };
        let settings = format!(
            r#""strategy": "{}", "trigger": "{trigger}", "model": "{model}", "wait": {wait}, "keep_first": {}"#,
            self.strategy, self.keep_first
        );
        words(&settings).window(WINDOW).model("m", Scripted::new()).build().unwrap()
    }
}

/// Returns whether a message of the log is in the list: by its position, or by its text if it was merged with the reply
/// before it.
fn shows(list: &[Message], message: &Message) -> bool {
    list.iter().any(|shown| {
        let both_reply = shown.role == Role::Assistant && message.role == Role::Assistant;
        let holds = |part: &Part| match part {
            // An id that was used twice may have been renamed; the arguments are the same.
            Part::ToolCall(call) => shown.calls().any(|other| other.arguments == call.arguments),
            Part::Text { .. } => shown.parts.contains(part),
            _ => false,
        };
        shown.seq == message.seq || (both_reply && message.parts.iter().any(holds))
    })
}

/// Checks that the messages that always stay are there, unchanged.
fn check_stays(shown: &[Message], log: &Log, own: &Log, returned: bool) -> Result<(), TestCaseError> {
    let drawn = draw(shown);
    let told = log.messages.iter().zip(&log.outlines);
    let head: Vec<&Message> =
        told.clone().take_while(|(_, o)| o.leading).filter(|(_, o)| !o.stray).map(|(m, _)| m).collect();
    prop_assert!(
        // An untouched list may begin with messages without text.
        shown
            .iter()
            .filter(|shown| !["s:0", "d:0", "s-", "d-"].contains(&draw(std::slice::from_ref(shown)).as_str()))
            .zip(&head)
            .all(|(shown, said)| shown.parts == said.parts),
        "the head: {}",
        drawn
    );
    prop_assert!(shown.len() >= head.len());
    // The result of a call that was marked as given up is dropped.
    let late = |message: &Message| returned && message.results().next().is_some();
    for (message, outline) in told.clone() {
        if message.pinned && !outline.stray && !late(message) {
            prop_assert!(shows(shown, message), "pinned {} is gone: {}", message.seq, drawn);
        }
    }
    if let Some(user) = log.outlines.iter().rposition(|outline| outline.opens_turn) {
        let asked = &log.messages[user];
        let said = |part: &&Part| matches!(part, Part::Text { text } if !text.trim().is_empty());
        let whole = asked.parts.iter().filter(said).all(|part| shown.iter().any(|m| m.parts.contains(part)));
        prop_assert!(whole, "the last request is gone: {}", drawn);
    }
    // A caller that continues with the returned list continues with calls that were marked as given up.
    if own.outlines.last().is_some_and(|outline| outline.open > 0) {
        let from = own.outlines.iter().rposition(|outline| outline.cut != Cut::InCall).unwrap_or(0);
        for (message, outline) in own.messages.iter().zip(&own.outlines).skip(from) {
            let there = outline.stray || shows(shown, message);
            prop_assert!(there, "{} of an open batch is gone: {}", message.seq, drawn);
        }
    }
    Ok(())
}

/// Returns the size of the request if nothing had been due: the previous list with the new messages.
async fn undone(agent: &Agent, list: &[Message], before: Option<(&ListState, usize)>) -> (u64, u64) {
    let never = agent.condenser("tokens(1000000)");
    if let Some((standing, len)) = before.filter(|_| !agent.returned) {
        never.resume(&list[..len], standing);
    }
    // The window does not apply here.
    let ready = never.before(Call { fixed: agent.fixed, room: Some(1_000_000), ..Call::of(list) }).await;
    (ready.report.messages_before, ready.report.tokens_before)
}

async fn check_report(
    agent: &Agent,
    ready: &ReadyList<'_>,
    list: &[Message],
    before: Option<(&ListState, usize)>,
) -> Result<(), TestCaseError> {
    let (report, counter) = (&ready.report, words_counted());
    let tokens: u64 = ready.iter().map(|message| counter.message(message)).sum::<u64>() + agent.fixed;
    prop_assert_eq!(
        (report.tokens_after, report.messages_after),
        (tokens, ready.len() as u64),
        "{:?}",
        report
    );
    if !report.condensed {
        prop_assert_eq!(report.tokens_before, report.tokens_after);
        prop_assert_eq!(report.messages_before, report.messages_after);
        prop_assert_eq!((report.covers, report.stand_in), (None, false));
        return Ok(());
    }
    let saved = report.tokens_before.saturating_sub(report.tokens_after);
    let worth = saved >= Fraction::new(0.1).unwrap().of_rounded_up(report.tokens_before).max(1);
    // A list that did not fit, and does now, may have saved less.
    let fits = report.tokens_before > WINDOW && report.tokens_after <= WINDOW;
    prop_assert!(worth || fits, "{:?}", report);
    prop_assert_eq!((report.messages_before, report.tokens_before), undone(agent, list, before).await);
    let [from, through] = report.covers.unwrap();
    prop_assert!(1 <= from && from <= through && through <= list.len() as u64, "{:?}", report);
    Ok(())
}

/// Gives every call its own id, as providers do. A repeated id is renamed in the returned list, and a caller that
/// continues with that list cannot answer under the old id.
fn numbered(mut history: Vec<Message>) -> Vec<Message> {
    let mut turn = 0;
    for message in &mut history {
        turn += usize::from(message.calls().next().is_some());
        for part in &mut message.parts {
            match part {
                Part::ToolCall(call) => call.id = format!("{}{turn}", call.id).into(),
                Part::ToolResult(result) => result.call = format!("{}{turn}", result.call).into(),
                _ => {}
            }
        }
    }
    history
}

/// Runs a whole session, and returns how often its list was condensed.
async fn run_session(agent: &Agent, drawn: &Drawn) -> Result<usize, TestCaseError> {
    let all = if agent.returned { numbered(drawn.messages()) } else { drawn.messages() };
    let condenser = agent.condenser(agent.trigger);
    let whole = Log::new(all.clone(), words_counted());
    let (mut list, mut at, mut passes) = (Vec::new(), 0, 0);
    let mut before: Option<(Vec<Message>, ListState, usize)> = None;
    let mut bursts = agent.bursts.iter().cycle();
    while at < all.len() {
        let next = (at + bursts.next().unwrap()).min(all.len());
        list.extend_from_slice(&all[at..next]);
        at = next;
        let ready = condenser.before(Call { fixed: agent.fixed, ..Call::of(&list) }).await;
        let stood = before.as_ref().map(|(_, standing, len)| (standing, *len));
        check_report(agent, &ready, &list, stood).await?;
        if ready.is_untouched() {
            prop_assert_eq!(&*ready, &list[..]);
        } else {
            prop_assert_eq!(complaints(&ready), Vec::<String>::new(), "{}", draw(&ready));
        }
        let log = |messages: &[Message]| Log::new(messages.to_vec(), words_counted());
        check_stays(&ready, &log(&all[..at]), &log(&list), agent.returned)?;
        let may_call = whole.end(at) != Cut::InCall;
        if ready.report.condensed {
            passes += 1;
        } else if let Some((shown, ..)) = &before
            && may_call
        {
            let steady = ready.starts_with(shown);
            prop_assert!(steady, "[{}] does not start with [{}]", draw(&ready), draw(shown));
        }
        let standing = ready.turn().list_state();
        let len = list.len();
        // A model is called only if no tool call is open; until then the end of the list may change.
        let shown = match before {
            _ if may_call => ready.to_vec(),
            Some((shown, ..)) if !ready.report.condensed => shown,
            _ => Vec::new(),
        };
        before = Some((shown, standing, len));
        if agent.returned {
            list = ready.into_messages();
        } else {
            drop(ready);
        }
        if !agent.slow {
            settle().await;
        }
    }
    Ok(passes)
}

fn run(agent: &Agent, drawn: &Drawn) -> Result<usize, TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run_session(agent, drawn))
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn every_turn_of_every_agent_keeps_the_promises(agent in agents(), drawn in session(), more in session()) {
        let more: String = more.0.split_whitespace().filter(|word| !word.starts_with('s')).collect::<Vec<_>>().join(" ");
        run(&agent, &Drawn(format!("{} {more}", drawn.0)))?;
    }
}

#[test]
fn most_agents_are_condensed_many_times() {
    // Without this check, the property above would also hold for a condenser that does nothing.
    let turns: Vec<String> = (0..40)
        .map(|n| format!("u:{} a(x{n}):4 r(x{n}):{} a:{}", 2 + n % 7, 10 + n % 23, 3 + n % 5))
        .collect();
    let drawn = Drawn(format!("s:5 u!:6 a:3 {}", turns.join(" ")));
    for returned in [false, true] {
        for model in [Writer::Local, Writer::Ahead, Writer::Waited] {
            for strategy in ["recent(messages(3))", "summarize(messages(3))", "amortized(messages(2))"] {
                let agent = Agent {
                    strategy,
                    trigger: "tokens(150)",
                    model,
                    bursts: vec![1],
                    returned,
                    slow: false,
                    fixed: 0,
                    keep_first: 0,
                };
                let passes = run(&agent, &drawn).unwrap();
                assert!(passes >= 5, "{passes} with {agent:?}");
            }
        }
    }
}
