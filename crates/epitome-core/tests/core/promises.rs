//! Property tests of the core's promises, on generated sessions with every kind of malformed history.

use std::collections::HashSet;

use epitome_core::context::{Entry, Oversize, Request};
use epitome_core::message::{Message, Part, Role, Seq, Timestamp};
use epitome_core::outline::{Cut, Outline};
use epitome_core::plan::{NextStep, NoPlan, PlanInput, Source, next_step};
use epitome_core::slot::{CatchUp, Slot, SlotState};
use epitome_core::tokens::{Counter, Encoding, Overhead};
use epitome_testkit::drawing::{draw, word_counter};
use proptest::prelude::*;

use crate::drawn::{Drawn, DrawnContext, Log, plain_session, session, summaries};
use crate::validator::{complaints, reasoning_complaints, says_something};

/// Words with some overhead: sums stay easy to follow, and nothing is free.
pub(crate) fn counter() -> Counter {
    word_counter().with_overhead(Overhead { message: 3, author: 1, call: 2, tool: 5 })
}

/// Settings of the property tests.
pub(crate) fn config() -> ProptestConfig {
    epitome_testkit::budget::config(4_000)
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let tokens = prop_oneof![6 => (1..400u64).prop_map(Some), 1 => Just(None)];
    let flags = (prop::bool::weighted(0.8), any::<bool>(), 0..3u8, any::<bool>(), any::<bool>());
    (tokens, flags).prop_map(|(tokens, (summary, fit, mode, clip, assistant))| Request {
        assistant: assistant.then(|| "ann".into()),
        tokens,
        summary,
        fit,
        fill: mode == 1,
        steady: mode == 2,
        oversize: if clip { Oversize::Clip } else { Oversize::Empty },
        ..Request::default()
    })
}

pub(crate) fn picks() -> impl Strategy<Value = Vec<(u16, u8)>> {
    prop::collection::vec(any::<(u16, u8)>(), 0..3)
}

/// Returns whether the list contains a message of the log: by its `seq`, or by its text if it was merged with the reply
/// before it.
pub(crate) fn shows(list: &[Message], message: &Message) -> bool {
    let calls: HashSet<_> = message.calls().map(|call| call.arguments.clone()).collect();
    list.iter().any(|shown| {
        let called = shown.calls().any(|call| calls.contains(&call.arguments));
        let said = shown.parts.iter().any(|part| match part {
            Part::Text { text } => text.split_whitespace().all(|word| word == format!("m{}", message.seq)),
            _ => false,
        });
        let both_reply = shown.role == Role::Assistant && message.role == Role::Assistant;
        shown.seq == message.seq || (both_reply && (said || called))
    })
}

/// Returns the skipped messages, with their batches.
pub(crate) fn skipped(outlines: &[Outline]) -> HashSet<Seq> {
    let mut out = HashSet::new();
    let mut batch: Vec<&Outline> = Vec::new();
    for outline in outlines {
        if outline.cut != Cut::InCall {
            batch.clear();
        }
        batch.push(outline);
        if batch.iter().any(|outline| outline.skip) {
            out.extend(batch.iter().map(|outline| outline.seq));
        }
    }
    // A batch may be skipped by its last message only.
    for at in (1..outlines.len()).rev() {
        if outlines[at].cut == Cut::InCall && out.contains(&outlines[at].seq) {
            out.insert(outlines[at - 1].seq);
        }
    }
    out
}

fn check_exhaustive(log: &Log, at: usize, given: &DrawnContext) -> Result<(), TestCaseError> {
    let report = &given.layout.report;
    let through = given.layout.summary.map_or(0, |summary| summary.through);
    let skipped = skipped(&log.outlines[..at]);
    let excerpt = |entry: &Entry| match entry {
        Entry::Excerpt { span, .. } => Some(*span),
        _ => None,
    };
    let excerpts: Vec<_> = given.layout.entries.iter().filter_map(excerpt).collect();
    let missing: Vec<Seq> = log.messages[..at]
        .iter()
        .zip(&log.outlines)
        .filter(|(message, outline)| {
            let left_out =
                !shows(&given.messages, message) || excerpts.iter().any(|span| span.contains(message.seq));
            message.seq > through && !outline.stray && !skipped.contains(&message.seq) && left_out
        })
        .map(|(message, _)| message.seq)
        .collect();
    if report.exhaustive {
        prop_assert!(missing.is_empty(), "exhaustive, but {missing:?} are missing");
        prop_assert_eq!(report.gap, None);
    } else {
        let gap = report.gap.expect("what is missing has a name");
        prop_assert!(!missing.is_empty(), "not exhaustive, yet nothing is missing");
        prop_assert_eq!((gap.from, gap.through), (missing[0], missing[missing.len() - 1]), "{:?}", missing);
    }
    Ok(())
}

/// Shrunk counterexamples of earlier runs.
#[test]
fn sessions_that_once_broke_a_promise_keep_it() {
    let sessions =
        ["u a-(z) r(z) a(x)@ann r(x)@ann a:5 u(w)@ann:4 a(w,x)@ann u:3 a(z,x)@ann a(w)", "s:7 d u"];
    for drawing in sessions {
        let log = Drawn(drawing.to_owned()).log(&counter());
        for tokens in [Some(99), Some(90_000), None] {
            let request = Request { tokens, summary: false, fit: false, ..Request::default() };
            let given = log.context(log.len(), &request, &[]);
            assert_eq!(complaints(&given.messages), Vec::<String>::new(), "{drawing}");
            assert!(log.tokens(&given.messages) <= request.budget().unwrap(), "{drawing}");
            check_exhaustive(&log, log.len(), &given).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_context_is_bounded(drawn in session(), request in request(), picks in picks()) {
        let log = drawn.log(&counter());
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        let budget = request.budget().unwrap();
        let used = log.tokens(&given.messages);
        prop_assert!(used <= budget, "{used} tokens for {budget}");
        let told = given.layout.report.tokens.total();
        prop_assert!(used <= told && told <= budget, "{used} used, {told} told, {budget} allowed");
    }

    #[test]
    fn a_context_is_valid(drawn in session(), request in request(), picks in picks()) {
        let log = drawn.log(&counter());
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        prop_assert_eq!(complaints(&given.messages), Vec::<String>::new());
        prop_assert_eq!(reasoning_complaints(&given.messages, &log.messages), Vec::<String>::new());
        // The context is empty only with a reason; otherwise the head is unchanged.
        prop_assert_eq!(given.messages.is_empty(), given.layout.report.empty.is_some());
        if !given.messages.is_empty() {
            let leading = log.messages.iter().take_while(|m| m.role.is_system()).filter(|m| says_something(m));
            prop_assert!(leading.zip(&given.messages).all(|(said, shown)| said == shown));
        }
    }

    #[test]
    fn a_context_says_truly_what_it_covers(drawn in session(), request in request(), picks in picks()) {
        let log = drawn.log(&counter());
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        check_exhaustive(&log, log.len(), &given)?;
    }

    #[test]
    fn a_context_with_local_summaries_keeps_every_promise(
        drawn in session(), request in request(), picks in picks(),
    ) {
        let log = drawn.log(&counter());
        let mut throughs: Vec<Seq> = summaries(&log, &picks).into_iter().map(|(through, _)| through).collect();
        throughs.sort_unstable();
        let given = log.local_context(log.len(), &request, &throughs);
        let used = log.tokens(&given.messages);
        let told = given.layout.report.tokens.total();
        prop_assert!(used <= told && told <= request.budget().unwrap(), "{used} used, {told} told");
        prop_assert_eq!(complaints(&given.messages), Vec::<String>::new());
        prop_assert_eq!(reasoning_complaints(&given.messages, &log.messages), Vec::<String>::new());
        check_exhaustive(&log, log.len(), &given)?;
    }

    #[test]
    fn with_local_summaries_the_prefix_is_steady_while_the_budget_does_not_cut(
        drawn in session(), picks in prop::collection::vec(any::<(u16, u8)>(), 1..3),
    ) {
        let log = drawn.log(&counter());
        let mut throughs: Vec<Seq> = summaries(&log, &picks).into_iter().map(|(through, _)| through).collect();
        throughs.sort_unstable();
        let through = throughs.last().map_or(0, |through| usize::try_from(*through).unwrap());
        let request = Request { tokens: Some(90_000), ..Request::default() };
        let mut before: Option<DrawnContext> = None;
        let begun = |at: usize| log.outlines[through..at].iter().any(|outline| !outline.stray);
        for at in (through + 1..=log.len()).filter(|at| log.end(*at) != Cut::InCall && begun(*at)) {
            let given = log.local_context(at, &request, &throughs);
            // Strays alone produce no summary, and none is stored.
            if given.layout.summary.is_none() {
                continue;
            }
            if let Some(before) = before {
                let (now, then) = (draw(&given.messages), draw(&before.messages));
                prop_assert!(given.messages.starts_with(&before.messages), "at {at}: [{now}] after [{then}]");
            }
            before = Some(given);
        }
    }

    #[test]
    fn no_message_is_shown_twice_or_out_of_order(drawn in session(), request in request(), picks in picks()) {
        let log = drawn.log(&counter());
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        let mut seen = HashSet::new();
        let mut last = 0;
        for entry in &given.layout.entries {
            if let Entry::Message(seq) | Entry::Relocated(seq) = entry {
                prop_assert!(seen.insert(*seq), "{seq} twice");
            }
            if let Entry::Message(seq) = entry {
                prop_assert!(*seq > last);
                last = *seq;
            }
        }
    }

    #[test]
    fn pinned_messages_and_the_newest_one_are_in_every_context_that_is_not_empty(
        drawn in session(), request in request(), picks in picks(),
    ) {
        let log = drawn.log(&counter());
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        if given.messages.is_empty() {
            return Ok(());
        }
        for (message, outline) in log.messages.iter().zip(&log.outlines) {
            if message.pinned && !outline.stray {
                prop_assert!(shows(&given.messages, message), "pinned {} is gone", message.seq);
            }
        }
        let newest = log.outlines.iter().rposition(|outline| !outline.stray && !outline.leading);
        if let Some(newest) = newest {
            let message = &log.messages[newest];
            let clipped = given.layout.entries.iter().any(
                |entry| matches!(entry, Entry::Excerpt { span, .. } if span.contains(message.seq)),
            );
            prop_assert!(clipped || shows(&given.messages, message), "the newest is gone");
        }
    }

    #[test]
    fn a_store_may_hand_in_only_the_newest_messages(
        drawn in plain_session(), tokens in 30..400u64, picks in picks(),
    ) {
        // Passes all messages that could fit the budget and a few more, as a store does.
        let log = drawn.log(&counter());
        let request = Request { tokens: Some(tokens), fit: false, ..Request::default() };
        let all = summaries(&log, &picks);
        let mut from = log.len();
        let mut sum = 0;
        while from > 0 && sum <= tokens {
            from -= 1;
            sum += if log.outlines[from].stray { 0 } else { log.outlines[from].tokens };
        }
        while from > 0 && log.outlines[from].cut == Cut::InCall {
            from -= 1;
        }
        let whole = log.context(log.len(), &request, &all);
        let part = log.context_from(from, log.len(), &request, &all);
        prop_assert_eq!(draw(&whole.messages), draw(&part.messages));
        prop_assert_eq!(&whole.messages, &part.messages);
        prop_assert_eq!(whole.layout.report.exhaustive, part.layout.report.exhaustive);
    }

    #[test]
    fn the_prefix_is_steady_while_the_budget_does_not_cut(drawn in session(), pick in any::<(u16, u8)>()) {
        let log = drawn.log(&counter());
        let summaries = summaries(&log, &[pick]);
        let through = summaries.first().map_or(0, |(through, _)| usize::try_from(*through).unwrap());
        let request = Request { tokens: Some(90_000), ..Request::default() };
        let mut before: Option<DrawnContext> = None;
        // From the first message after the coverage on. A model is called only where no call is open, so a context in
        // between is never sent.
        let begun = |at: usize| log.outlines[through..at].iter().any(|outline| !outline.stray);
        for at in (through + 1..=log.len()).filter(|at| log.end(*at) != Cut::InCall && begun(*at)) {
            let given = log.context(at, &request, &summaries);
            if given.layout.report.empty.is_some() {
                continue;
            }
            prop_assert!(!given.layout.report.cut);
            if let Some(before) = before {
                let steady = given.messages.starts_with(&before.messages);
                prop_assert!(steady, "at {at}: [{}] does not start with [{}]", draw(&given.messages), draw(&before.messages));
            }
            before = Some(given);
        }
    }

    #[test]
    fn a_steady_start_moves_in_steps(
        sizes in prop::collection::vec(1..12u64, 20..120), budget in 60..200u64, turn in 2..50usize,
    ) {
        let line: Vec<String> = sizes.iter().enumerate()
            .map(|(at, size)| format!("{}:{size}", if at % turn == 0 { "u" } else { "a" })).collect();
        let log = Drawn(line.join(" ")).log(&word_counter());
        let request = Request { tokens: Some(budget), steady: true, ..Request::default() };
        let (mut starts, mut before) = (HashSet::new(), Vec::<Message>::new());
        for at in 1..=log.len() {
            let given = log.context(at, &request, &[]);
            let in_place = |entry: &&Entry| matches!(entry, Entry::Message(_));
            let start = given.layout.entries.iter().find(in_place).map(|entry| format!("{entry:?}"));
            if starts.insert(start) {
                before.clear();
            }
            prop_assert!(given.messages.starts_with(&before), "the prefix moved without a step");
            before = given.messages;
        }
        let said: u64 = sizes.iter().sum();
        let most = said / (budget / 4) + 2;
        prop_assert!(starts.len() as u64 <= most, "{} starts, at most {most} expected", starts.len());
    }

    #[test]
    fn an_authors_context_is_valid_bounded_and_true(
        drawn in session(), tokens in 1..300u64, fit in any::<bool>(), pick in any::<Option<u16>>(),
    ) {
        let log = drawn.log(&counter());
        let request = Request { tokens: Some(tokens), fit, ..Request::default() };
        let own: Vec<&Outline> = log.outlines.iter().filter(|o| o.author.as_deref() == Some("ann")).collect();
        let legal: Vec<Seq> = own.windows(2).filter(|w| w[1].own_cut == Cut::Legal).map(|w| w[0].seq).collect();
        let through = pick.and_then(|pick| legal.get(usize::from(pick) % legal.len().max(1)));
        let summaries: Vec<_> = through.map(|through| (*through, "Ann spoke of 3 things.".to_owned())).into_iter().collect();
        let given = log.scoped_context("ann", &request, &summaries);
        if given.layout.report.exhaustive {
            let through = given.layout.summary.map_or(0, |summary| summary.through);
            for outline in own.iter().filter(|o| o.seq > through && !o.stray && !o.skip) {
                let batch = own.iter().any(|o| o.skip);
                let said = &log.messages[usize::try_from(outline.seq - 1).unwrap()];
                prop_assert!(batch || shows(&given.messages, said), "{} is missing", outline.seq);
            }
        }
        prop_assert!(log.tokens(&given.messages) <= tokens);
        prop_assert_eq!(complaints(&given.messages), Vec::<String>::new());
        let anns = |seq| log.outlines.iter().any(|o| o.seq == seq && o.author.as_deref() == Some("ann"));
        prop_assert!(given.messages.iter().all(|message| message.seq == 0 || anns(message.seq)));
    }

    #[test]
    fn real_tokens_and_multiples_of_them_stay_bounded_too(
        drawn in session(), tokens in 20..600u64, picks in picks(), fill in any::<bool>(), percent in 60..250u64,
    ) {
        let plain = Counter::new(Encoding::O200k);
        let counter = Counter::custom("multiplied", move |text| (plain.text(text) * percent).div_ceil(100));
        let log = drawn.log(&counter);
        let request = Request { tokens: Some(tokens), fill, oversize: Oversize::Clip, ..Request::default() };
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        prop_assert!(log.tokens(&given.messages) <= tokens);
        prop_assert_eq!(complaints(&given.messages), Vec::<String>::new());
    }

    #[test]
    fn planning_terminates_and_coverage_only_moves_forward(
        drawn in session(),
        trigger in prop::sample::select(vec![
            "messages(3)", "messages(1)", "turns(2)", "tokens(20)", "any(messages(5), important(15))", "all(messages(2), chars(9))",
        ]),
        keep in prop::sample::select(vec!["messages(0)", "messages(2)", "turns(1)", "tokens(12)"]),
        input in 1..200u64,
        scoped in prop::bool::weighted(0.3),
        step in any::<bool>(),
    ) {
        let log = drawn.log(&counter());
        let slot = Slot {
            trigger: trigger.parse().unwrap(),
            keep: keep.parse().unwrap(),
            scope: scoped.then(|| "ann".into()).into(),
            catch_up: if step { CatchUp::Step } else { CatchUp::Join },
            ..Slot::short()
        };
        let mut state = SlotState::default();
        for outline in &log.outlines {
            state.advance(&slot, outline, None);
        }
        let mine: Vec<Outline> = log.outlines.iter().filter(|o| slot.scope.holds(o)).cloned().collect();
        let end = match &slot.scope {
            epitome_core::slot::Scope::Session => log.end(log.len()),
            epitome_core::slot::Scope::Author(_) => Cut::InCall,
        };
        let mut summarized: HashSet<Seq> = HashSet::new();
        for round in 0.. {
            prop_assert!(round < 4 * log.len() + 4, "does not end");
            let ahead: Vec<Outline> = mine.iter().filter(|o| o.seq > state.covered).cloned().collect();
            let ahead = PlanInput { outlines: &ahead, end: Some(end), room: None, input, authors: &[] };
            let before = state.clone();
            match next_step(&slot, &state, &ahead) {
                NextStep::Nothing(why) => {
                    prop_assert!(matches!(why, NoPlan::NotDue | NoPlan::NoLegalCut));
                    break;
                }
                NextStep::Pass { firing, .. } => state.settle(&slot, before.covered, firing, &mine, None),
                NextStep::Summarize(plan) => {
                    prop_assert_eq!(plan.prior, before.covered);
                    prop_assert_eq!(plan.span.from, before.covered + 1);
                    prop_assert!(plan.oversize == (plan.tokens > input));
                    for source in &plan.sources {
                        let Source::Messages(span) = source else { panic!("no authors were given") };
                        for seq in span.from..=span.through {
                            prop_assert!(summarized.insert(seq), "{seq} is read twice");
                            prop_assert!(plan.span.contains(seq));
                        }
                    }
                    // Never inside a batch.
                    let after = mine.iter().find(|o| o.seq > plan.span.through);
                    let cut = after.map_or(end, |o| if scoped { o.own_cut } else { o.cut });
                    prop_assert_eq!(cut, Cut::Legal);
                    if plan.completes {
                        state.settle(&slot, plan.span.through, plan.firing, &mine, None);
                    } else {
                        state.cover(plan.span.through);
                    }
                    prop_assert!(state.covered > before.covered);
                }
            }
            prop_assert!(state.covered >= before.covered && state != before, "stands still");
        }
        // Every covered message was read, is skipped, or always stays.
        let skipped = skipped(&mine.iter().cloned().map(|mut o| {
            if scoped { o.cut = o.own_cut; }
            o
        }).collect::<Vec<_>>());
        for outline in mine.iter().filter(|o| o.seq <= state.covered && !o.leading) {
            prop_assert!(summarized.contains(&outline.seq) || skipped.contains(&outline.seq), "{} was lost", outline.seq);
        }
    }

    #[test]
    fn firings_found_again_are_the_firings_there_were(
        drawn in session(),
        waits in prop::collection::vec((0..90u64, prop::bool::weighted(0.1), prop::bool::weighted(0.2)), 80),
        trigger in prop::sample::select(vec![
            "messages(3)", "turns(2)", "idle(60)", "every(100)", "any(messages(4), idle(50))", "all(messages(2), every(70))",
        ]),
    ) {
        let slot = Slot { trigger: trigger.parse().unwrap(), catch_up: CatchUp::Step, ..Slot::short() };
        let (mut state, mut live, mut now) = (SlotState::default(), Vec::new(), Timestamp(0));
        let mut log = drawn.log(&counter());
        for (outline, (wait, forced, watched)) in log.outlines.iter_mut().zip(&waits) {
            now = now.plus_seconds(*wait);
            outline.at = now;
            // A worker may or may not check the time in between.
            if *watched {
                state.tick(now);
            }
            state.advance(&slot, outline, None);
            if *forced {
                state.force(now);
            }
            live.extend(state.newest.map(|firing| firing.seq));
        }
        live.dedup();
        // Finally all firings are processed in order. Two in one step count as one here.
        let mut found = Vec::new();
        while let Some(due) = state.due {
            found.push(due.seq);
            state.settle(&slot, 0, due.seq, &log.outlines, None);
        }
        prop_assert!(live.iter().all(|seq| found.contains(seq)), "there were {live:?}, found {found:?}");
        prop_assert!(found.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn cuts_found_message_by_message_agree_with_a_look_at_the_whole_log(drawn in session()) {
        // An independent definition: a cut is safe if no call before it is answered after it, and no call is open there
        // that the user has not abandoned.
        let log = drawn.log(&counter());
        struct Open { who: Option<String>, id: String, item: Option<String>, passed: bool, rounds: u32 }
        let mut open: Vec<Open> = Vec::new();
        let mut crossing = vec![false; log.len() + 1];
        for (at, message) in log.messages.iter().enumerate() {
            let words = says_something(message);
            let user = matches!(message.role, Role::User | Role::Peer);
            let author = message.author.as_deref().map(str::to_owned);
            // After eight rounds of other results and new replies, the call is abandoned.
            if message.role == Role::Assistant {
                for call in open.iter_mut().filter(|call| call.who == author && call.passed) {
                    (call.passed, call.rounds) = (false, call.rounds + 1);
                }
                open.retain(|call| call.rounds < 8);
            }
            let before = !open.is_empty();
            let mut asker = None;
            if matches!(message.role, Role::User | Role::Tool) {
                for result in message.results() {
                    let id = result.call.to_string();
                    let item = Some(id.clone());
                    let by_id = |call: &Open| call.id == id;
                    let by_item = |call: &Open| call.item == item;
                    let same = |call: &Open| asker.as_ref() == Some(&call.who);
                    let own = |call: &Open| call.who == author;
                    let wanted: [&dyn Fn(&Open) -> bool; 8] = [
                        &|call| same(call) && by_id(call) && own(call), &|call| same(call) && by_id(call),
                        &|call| same(call) && by_item(call) && own(call), &|call| same(call) && by_item(call),
                        &|call| by_id(call) && own(call), &by_id,
                        &|call| by_item(call) && own(call), &by_item,
                    ];
                    let found = wanted.iter().find_map(|wanted| open.iter().position(wanted));
                    if let Some(found) = found {
                        let answered = open.remove(found);
                        open.iter_mut().filter(|call| call.who == answered.who).for_each(|call| call.passed = true);
                        asker.get_or_insert(answered.who);
                    }
                }
            }
            crossing[at] = before && !(user && words && asker.is_none());
            if user && words {
                open.clear();
            }
            if message.role == Role::Assistant {
                for call in message.calls() {
                    if !open.iter().any(|open| *open.id == *call.id && open.who == author) {
                        open.push(Open {
                            who: author.clone(),
                            id: call.id.to_string(),
                            item: call.item_id.as_deref().map(str::to_owned),
                            passed: false,
                            rounds: 0,
                        });
                    }
                }
            }
        }
        for (outline, crossing) in log.outlines.iter().zip(&crossing) {
            prop_assert_eq!(outline.cut == Cut::InCall, *crossing, "before {}", outline.seq);
        }
        prop_assert_eq!(log.end(log.len()) == Cut::InCall, !open.is_empty());
    }
}
