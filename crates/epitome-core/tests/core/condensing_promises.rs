//! Property tests of condensing, on generated sessions with every kind of malformed history, and on
//! conversations that grow through many condensations.

use std::collections::HashSet;

use epitome_core::condense::{
    CondensePlan, Decision, List, ListState, Policy, Press, RequestFacts, SummaryRole, Unchanged,
};
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Part, Role};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Limit;
use epitome_core::tokens::{Counter, Encoding};
use epitome_core::trigger::{Fraction, SOFT};
use epitome_core::view;
use epitome_testkit::drawing::{draw, messages};
use proptest::prelude::*;

use crate::condensing::{Caller, facts, forced, output, policy, so};
use crate::drawn::{Drawn, Log, session};
use crate::promises::{config, counter, shows, skipped};
use crate::validator::{complaints, reasoning_complaints};
use crate::wire::complaints_of_all;

fn strategies() -> impl Strategy<Value = String> {
    let keep = || {
        prop::sample::select(vec![
            "messages(0)",
            "messages(1)",
            "messages(2)",
            "messages(4)",
            "turns(1)",
            "turns(2)",
            "tokens(20)",
            "tokens(60)",
            "window(0.25)",
        ])
    };
    let one = || {
        (prop::sample::select(vec!["recent", "mask", "summarize", "amortized"]), keep())
            .prop_map(|(name, keep)| format!("{name}({keep})"))
    };
    prop_oneof![
        8 => one(),
        2 => (one(), one()).prop_map(|(a, b)| format!("pipeline({a}, {b})")),
        1 => Just("noop".to_owned()),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    let trigger = prop::sample::select(vec![
        "messages(1)",
        "tokens(40)",
        "tokens(100000)",
        "any(turns(3), window(0.5))",
    ]);
    let worth = prop::sample::select(vec![0.1, 0.01, 0.3]);
    (strategies(), trigger, 0..4usize, worth, prop::bool::weighted(0.2)).prop_map(
        |(strategy, trigger, keep_first, worth, system)| Policy {
            trigger: trigger.parse().unwrap(),
            keep_first: keep_first.saturating_sub(1),
            worth: Fraction::new(worth).unwrap(),
            summary_role: if system { SummaryRole::System } else { SummaryRole::User },
            ..policy(&strategy)
        },
    )
}

fn situations() -> impl Strategy<Value = RequestFacts> {
    let force = prop_oneof![1 => Just(None), 3 => Just(Some(Press::Gently)), 2 => Just(Some(Press::Hard))];
    (force, prop::option::of(20..400u64), 0..60u64).prop_map(|(force, room, fixed)| RequestFacts {
        force,
        room,
        fixed,
        ..facts()
    })
}

/// Well-formed turns: every call is answered, and every turn ends.
fn good_session() -> impl Strategy<Value = Drawn> {
    let size = || 1..30u32;
    let step = (any::<bool>(), size(), size()).prop_map(|(two, a, r)| match two {
        true => format!("a(x,y):{a} r(x):{r} r(y)"),
        false => format!("a(x):{a} r(x):{r}"),
    });
    let flag = prop_oneof![9 => Just(""), 1 => Just("!"), 1 => Just("~")];
    let turn = (flag, size(), prop::collection::vec(step, 0..3), size()).prop_map(|(flag, u, steps, a)| {
        [vec![format!("u{flag}:{u}")], steps, vec![format!("a:{a}")]].concat().join(" ")
    });
    (prop::sample::select(vec!["", "s ", "s:7 d "]), prop::collection::vec(turn, 2..7))
        .prop_map(|(head, turns)| Drawn(format!("{head}{}", turns.join(" "))))
}

/// Gives every call its own id, as providers do.
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

/// Returns the number of summary frames in the list.
fn frames(list: &[Message]) -> usize {
    let text = |part: &Part| match part {
        Part::Text { text } => text.matches("<summary").count(),
        _ => 0,
    };
    list.iter().flat_map(|message| &message.parts).map(text).sum()
}

fn check_valid(caller: &Caller) -> Result<(), TestCaseError> {
    let shown = caller.shown();
    let size: u64 = shown.iter().map(|message| caller.counter.message(message)).sum();
    prop_assert_eq!(caller.list.tokens(), size);
    prop_assert_eq!(caller.list.shown_len(), shown.len());
    if caller.list.state().rounds == 0 {
        prop_assert_eq!(&shown, &caller.history);
        return Ok(());
    }
    let drawn = draw(&shown);
    prop_assert_eq!(complaints(&shown), Vec::<String>::new(), "{}", drawn);
    prop_assert_eq!(complaints_of_all(&shown), Vec::<String>::new(), "{}", drawn);
    prop_assert_eq!(reasoning_complaints(&shown, &caller.history), Vec::<String>::new(), "{}", drawn);
    let summaries: Vec<_> = shown.iter().filter_map(view::recognise).collect();
    prop_assert!(summaries.len() <= 1 && frames(&shown) == summaries.len(), "{drawn}");
    Ok(())
}

fn check_list(caller: &Caller) -> Result<(), TestCaseError> {
    check_valid(caller)?;
    if caller.list.state().rounds == 0 { Ok(()) } else { check_stays(caller) }
}

/// Checks that the messages that always stay are shown in order. A message is found by its text, which contains its
/// `seq`.
fn check_stays(caller: &Caller) -> Result<(), TestCaseError> {
    let shown = caller.shown();
    let drawn = draw(&shown);
    let log = Log::new(caller.history.clone(), caller.counter.clone());
    let leading = log.outlines.iter().take_while(|outline| outline.leading).count();
    let says: Vec<&Message> = log.messages[..leading]
        .iter()
        .zip(&log.outlines)
        .filter(|(_, outline)| !outline.stray)
        .map(|(message, _)| message)
        .collect();
    prop_assert!(shown.iter().zip(&says).all(|(shown, said)| shown == *said), "the head moved: {}", drawn);
    for (message, outline) in log.messages.iter().zip(&log.outlines) {
        if message.pinned && !outline.stray {
            prop_assert!(shows(&shown, message), "pinned {} is gone: {}", message.seq, drawn);
        }
    }
    if let Some(user) = log.outlines.iter().rposition(|outline| outline.opens_turn) {
        prop_assert!(shows(&shown, &log.messages[user]), "the last request is gone: {}", drawn);
    }
    let open = log.outlines.last().map_or(0, |outline| outline.open);
    if open > 0 {
        // The open calls come after the last position without open calls.
        let from = log.outlines.iter().rposition(|outline| outline.cut != Cut::InCall);
        for (message, outline) in log.messages.iter().zip(&log.outlines).skip(from.unwrap_or(0)) {
            prop_assert!(
                outline.stray || shows(&shown, message),
                "{} of an open batch is gone: {}",
                message.seq,
                drawn
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_condensed_list_is_valid_smaller_and_true(
        drawn in session(), policy in policies(), facts in situations(), rounds in 1..4usize,
    ) {
        let mut caller = Caller::new(drawn.messages(), &counter());
        check_list(&caller)?;
        for _ in 0..rounds {
            let (before, size) = (caller.shown(), caller.list.tokens());
            let over = facts.room.is_some_and(|room| caller.list.request(&facts) > room);
            let told = caller.step(&policy, &facts);
            check_list(&caller)?;
            match told {
                Ok(report) => {
                    prop_assert_eq!(report.tokens_before, size + facts.fixed);
                    prop_assert_eq!(report.tokens_after, caller.list.tokens() + facts.fixed);
                    prop_assert_eq!(report.messages_before, before.len() as u64);
                    prop_assert_eq!(report.messages_after, caller.shown().len() as u64);
                    let saved = report.tokens_before.saturating_sub(report.tokens_after);
                    // A list that does not fit only has to fit afterwards.
                    prop_assert!(saved > 0 && (over || saved >= policy.worth.of_rounded_up(report.tokens_before)));
                }
                Err(_) => prop_assert_eq!(&before, &caller.shown()),
            }
        }
    }

    #[test]
    fn a_returned_list_is_valid_or_unchanged(drawn in session(), policy in policies(), hard in any::<bool>()) {
        let list = output(&drawn, &policy, if hard { Press::Hard } else { Press::Gently });
        prop_assert!(list == drawn.messages() || complaints_of_all(&list).is_empty());
    }

    #[test]
    fn exactly_the_messages_that_leave_are_read(
        drawn in session(), keep in 0..5u64, keep_first in 0..3usize, hard in any::<bool>(), amortized in any::<bool>(),
    ) {
        let name = if amortized { "amortized" } else { "summarize" };
        let policy = Policy { keep_first, ..policy(&format!("{name}(messages({keep}))")) };
        let press = if hard { Press::Hard } else { Press::Gently };
        let all = drawn.messages();
        let half = all.len() / 2;
        let mut caller = Caller::new(all[..half].to_vec(), &counter());
        for more in [0, all.len() - half, 0] {
            caller.say(all[caller.history.len()..caller.history.len() + more].to_vec());
            let _ = caller.step(&policy, &forced(press));
        }
        let log = drawn.log(&counter());
        let skipped = skipped(&log.outlines);
        let shown = caller.shown();
        let mut read = HashSet::new();
        for seq in &caller.read {
            prop_assert!(read.insert(*seq), "{seq} was read twice");
        }
        for (message, outline) in log.messages.iter().zip(&log.outlines) {
            let known = read.contains(&outline.seq) || skipped.contains(&outline.seq);
            prop_assert!(outline.stray || known || shows(&shown, message), "{} was lost: {}", outline.seq, draw(&shown));
            // A request that was taken out of a skipped batch is a separate message from then on.
            let carried = outline.opens_turn && !outline.skip;
            let unread = outline.leading || (skipped.contains(&outline.seq) && !carried);
            prop_assert!(!(read.contains(&outline.seq) && unread), "{} was read", outline.seq);
        }
    }

    #[test]
    fn the_prefix_is_steady_while_the_list_grows(
        drawn in session(), policy in policies(), facts in situations(), at in any::<prop::sample::Index>(),
    ) {
        let all = drawn.messages();
        let at = at.index(all.len() + 1);
        let mut caller = Caller::new(all[..at].to_vec(), &counter());
        let _ = caller.step(&policy, &facts);
        let log = drawn.log(&counter());
        let mut before: Option<Vec<Message>> = None;
        for next in at..=all.len() {
            if next > at {
                caller.say([all[next - 1].clone()]);
            }
            check_list(&caller)?;
            let again = List::resume(&caller.history, caller.list.state(), &caller.counter);
            prop_assert_eq!(&*again.shown(&caller.history), &caller.shown()[..], "after a restart");
            prop_assert_eq!((again.tokens(), again.totals()), (caller.list.tokens(), caller.list.totals()));
            // A model can be called only where no call is open.
            if log.end(next) == Cut::InCall {
                continue;
            }
            let shown = caller.shown();
            if let Some(before) = before {
                prop_assert!(shown.starts_with(&before), "[{}] does not start with [{}]", draw(&shown), draw(&before));
            }
            before = Some(shown);
        }
    }

    #[test]
    fn a_second_pass_finds_nothing_to_do(drawn in session(), policy in policies()) {
        let mut caller = Caller::new(drawn.messages(), &counter());
        let facts = forced(Press::Gently);
        let halves = policy.strategy.to_string().contains("amortized");
        let stages = policy.strategy.stages().count();
        let mut passes = 0;
        while caller.step(&policy, &facts).is_ok() {
            passes += 1;
            prop_assert!(passes <= if halves { 12 } else { stages }, "goes on and on");
        }
        // It also ends if condensing is forced hard.
        while caller.step(&policy, &forced(Press::Hard)).is_ok() {
            passes += 1;
            prop_assert!(passes < 24, "goes on and on");
        }
    }

    #[test]
    fn the_full_history_and_the_stored_list_give_the_same(
        first in good_session(), second in good_session(), policy in policies(), hard in any::<bool>(),
    ) {
        // The stored list contains no trace of messages that `recent` dropped, so they cannot be counted there.
        let strategy = policy.strategy.to_string().replace("recent", "summarize").parse().unwrap();
        // It does not show which messages came later either, so only size triggers fire in the same way.
        let policy = Policy { strategy, trigger: "tokens(40)".parse().unwrap(), ..policy };
        let press = forced(if hard { Press::Hard } else { Press::Gently });
        let counter = counter();
        let head = messages(&first.0).unwrap();
        let line = format!("{} {}", first.0, second.0.replace(['s', 'd'], "u"));
        let all = numbered(messages(&line).unwrap());
        let mut full = Caller::new(all[..head.len()].to_vec(), &counter);
        let once = full.step(&policy, &press);
        let mut stored = Caller::new(full.shown(), &counter);
        for caller in [&mut full, &mut stored] {
            caller.say(all[head.len()..].to_vec());
        }
        prop_assert_eq!(full.list.tokens(), stored.list.tokens());
        prop_assert_eq!(full.shown(), stored.shown());
        let texts = |caller: &mut Caller| caller.step_with(&policy, &press, &|plan, read| {
            let seen: Vec<_> = read.iter().map(|message| format!("m{}", message.seq)).collect();
            format!("{} {}", plan.prior.is_some(), seen.join(" "))
        });
        let told = (texts(&mut full), texts(&mut stored));
        prop_assert_eq!(draw(&full.shown()), draw(&stored.shown()), "{:?}, then {:?}", once, told);
        prop_assert_eq!(full.shown(), stored.shown());
    }

    #[test]
    fn a_stored_list_that_comes_back_keeps_the_rules(
        first in session(), second in session(), policy in policies(), facts in situations(),
    ) {
        let policy = Policy { summary_role: SummaryRole::User, ..policy };
        let mut list = first.messages();
        for more in [second.messages(), first.messages(), Vec::new()] {
            for (message, seq) in list.iter_mut().zip(1..) {
                message.seq = seq;
            }
            let mut caller = Caller::new(list, &counter());
            let size = caller.list.tokens();
            if caller.step(&policy, &facts).is_ok() {
                prop_assert!(caller.list.tokens() < size);
                check_valid(&caller)?;
                let ours =
                    |m: &Message| view::recognise(m).is_some() || m.parts == view::note().parts;
                let log = Log::new(caller.history.clone(), caller.counter.clone());
                let asked = |(m, o): (&Message, &Outline)| o.opens_turn && !ours(m);
                if let Some(user) = log.messages.iter().zip(&log.outlines).rposition(asked) {
                    prop_assert!(shows(&caller.shown(), &log.messages[user]), "the last request is gone");
                }
            }
            list = caller.shown();
            list.extend(more);
        }
    }

    #[test]
    fn any_state_can_be_resumed(
        drawn in session(), front in prop::collection::vec(0..40u64, 0..6), from in 0..40u64, masked in 0..40u64,
        stripped in any::<bool>(), length in 0..40u64, searched in 0..40u64, rounds in 0..3u64,
    ) {
        // The state may come from a store that another program wrote to: any values give a valid list.
        let state = ListState { front, from, masked, stripped, length, searched, rounds, ..ListState::default() };
        let json = serde_json::to_string(&state).unwrap();
        prop_assert_eq!(&serde_json::from_str::<ListState>(&json).unwrap(), &state);
        let history = drawn.messages();
        let list = List::resume(&history, &state, &counter());
        if rounds > 0 {
            prop_assert_eq!(complaints(&list.shown(&history)), Vec::<String>::new());
        }
    }

    #[test]
    fn real_tokens_keep_the_rules_too(drawn in session(), policy in policies(), facts in situations()) {
        let mut caller = Caller::new(drawn.messages(), &Counter::new(Encoding::O200k));
        let _ = caller.step(&policy, &facts);
        check_list(&caller)?;
    }
}

// --- Growth -----------------------------------------------------------------------------------

/// Grows a conversation by hundreds of turns under one policy. Returns the number of condensations.
fn grow(policy: &Policy, answer: &dyn Fn(&CondensePlan, &[Message]) -> String, stored: bool) -> usize {
    let counter = counter();
    let mut caller = Caller::new(messages("s:5 u!:6 a:3").unwrap(), &counter);
    let (mut condensed, mut largest) = (0, 0);
    for turn in 0..600 {
        let words =
            format!("u:{} a(x{turn}):4 r(x{turn}):{} a:{}", 2 + turn % 7, 10 + turn % 23, 3 + turn % 5);
        caller.say(messages(&words).unwrap());
        let due = caller.list.due(policy, &facts(), SOFT).is_now();
        match caller.step_with(policy, &facts(), answer) {
            Ok(report) => {
                assert!(due, "soft comes before hard");
                assert!(report.tokens_after < report.tokens_before);
                condensed += 1;
                let asked = caller.asked;
                let again = caller.step_with(policy, &facts(), answer);
                assert_eq!(again, Err(Unchanged::NotDue), "nothing new was said");
                assert_eq!(caller.asked, asked);
            }
            Err(reason) => assert_eq!(reason, Unchanged::NotDue, "turn {turn}"),
        }
        let shown = caller.shown();
        largest = largest.max(caller.list.tokens());
        assert_eq!(complaints_of_all(&shown), Vec::<String>::new());
        let found: Vec<_> = shown.iter().filter_map(view::recognise).collect();
        assert!(found.len() <= 1 && frames(&shown) == found.len(), "one summary, and none inside it");
        assert!(shown.iter().any(|message| message.pinned), "the pinned rule is gone");
        assert_eq!(shown[0].role, Role::System);
        if stored {
            let asked = caller.asked;
            caller = Caller { asked, ..Caller::new(shown, &counter) };
        }
    }
    assert!(largest < 1_000, "{largest} tokens");
    condensed
}

/// An agent at work for a long time: a rule that is pinned, a task, and then step after step.
fn long_work(steps: usize) -> Vec<Message> {
    let mut rule = Message::user("Never edit src/billing.rs, whatever happens.");
    rule.pinned = true;
    let mut log = vec![Message::system("You are a careful engineer."), rule];
    log.push(Message::user(
        "Port the harbour timetable of ticket HARB-77 to the new tide service by Friday.",
    ));
    for n in 0..steps {
        let place = ["tides", "berths", "fares", "crew", "weather"][n % 5];
        let arguments = format!(r#"{{"command":"cargo test {place}_{n}"}}"#);
        let call = Part::call(format!("c{n}"), "run", arguments);
        log.push(Message::new(
            Role::Assistant,
            [Part::text(format!("I try {place} number {n} next.")), call],
        ));
        let output = format!(
            "running {n} tests\nerror: expected {n} rows in src/{place}_{n}.rs, found 0\n{}",
            "note\n".repeat(9)
        );
        log.push(Message::tool(format!("c{n}"), output));
        if n % 9 == 8 {
            log.push(Message::assistant(format!(
                "The {place} table of part {n} is done; only its index is left."
            )));
            log.push(Message::user(format!("Good. Now part {}, and mind the leap second.", n + 1)));
        }
    }
    log
}

/// The built-in summarizer, through at least fifty condensations: with its stored extracts, and with only the list that
/// it returned.
#[test]
fn with_the_local_summarizer_the_task_and_the_rules_survive_fifty_condensations() {
    let counter = Counter::new(Encoding::O200k);
    let work = long_work(1_500);
    for (stored, strategy) in [(false, "summarize"), (true, "summarize"), (true, "pipeline(mask, amortized)")]
    {
        let policy = Policy { trigger: "tokens(3000)".parse().unwrap(), limit: 500, ..policy(strategy) };
        let mut caller = Caller::new(work[..3].to_vec(), &counter);
        let mut kept: Option<Extracts> = None;
        let mut condensed = 0;
        for more in work[3..].chunks(2) {
            caller.say(more.iter().cloned());
            match caller.list.decide(&caller.history, &policy, &facts(), &counter) {
                Decision::Unchanged(reason) => assert_eq!(reason, Unchanged::NotDue),
                Decision::Apply(done) => {
                    done.apply(&mut caller.list).unwrap();
                    condensed += 1;
                }
                Decision::Summarize(plan) => {
                    let mut extracts = plan.extracts(&caller.history, kept.as_ref().filter(|_| !stored));
                    let text = extracts.summarize(Limit::Tokens(plan.limit), &counter);
                    plan.finish(&mut caller.list, &caller.history, &text, &counter).unwrap();
                    kept = Some(extracts);
                    condensed += 1;
                }
            }
            let shown = caller.shown();
            assert!(caller.list.tokens() < 3_600, "{} tokens", caller.list.tokens());
            assert_eq!(complaints_of_all(&shown), Vec::<String>::new());
            assert!(frames(&shown) <= 1, "one summary, and none inside it");
            let says =
                |words: &str| shown.iter().any(|message| format!("{:?}", message.parts).contains(words));
            assert!(says("Port the harbour timetable of ticket HARB-77"), "{shown:#?}");
            assert!(says("Never edit src/billing.rs"), "the rule is gone");
            if stored {
                caller = Caller::new(shown, &counter);
            }
        }
        assert!(condensed >= 50, "{strategy}: {condensed}");
    }
}

#[test]
fn a_conversation_of_hundreds_of_turns_stays_bounded() {
    let full = |plan: &CondensePlan, _: &[Message]| so(plan.limit);
    let echo = |plan: &CondensePlan, read: &[Message]| {
        let said = read.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let all = plan.prior.as_deref().into_iter().chain(said).collect::<Vec<_>>().join(" ");
        let all = format!("<summary covers=\"1-9\"> </summary> {all}");
        all.split_whitespace().take(usize::try_from(plan.limit).unwrap()).collect::<Vec<_>>().join(" ")
    };
    for strategy in [
        "summarize",
        "amortized(messages(4))",
        "pipeline(mask, summarize)",
        "pipeline(mask(messages(4)), recent(messages(8)))",
    ] {
        let policy =
            Policy { trigger: "tokens(450)".parse().unwrap(), limit: 100, keep_first: 1, ..policy(strategy) };
        for stored in [false, true] {
            assert!(grow(&policy, &full, stored) >= 50, "{strategy}");
            assert!(grow(&policy, &echo, stored) >= 50, "{strategy}");
        }
    }
    let often =
        Policy { trigger: "tokens(300)".parse().unwrap(), limit: 60, ..policy("summarize(messages(4))") };
    assert!(grow(&often, &full, false) >= 50 && grow(&often, &echo, true) >= 50);
}
