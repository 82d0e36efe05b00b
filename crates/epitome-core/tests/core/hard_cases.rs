//! Failures of other systems that Epitome must not repeat. `docs/hard-cases.md` maps each case to its test; the
//! last test here checks that map.
//!
//! This file contains the cases that need only decisions. Cases that need a store and a worker are in
//! `crates/epitome/tests/engine/hard_cases.rs`; the others are next to the code that they need.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use epitome_core::condense::Unchanged;
use epitome_core::context::{Empty, Oversize, Request};
use epitome_core::cut::{Cuts, Press};
use epitome_core::message::{Media, MediaSource, Message, Part, Role, Seq, Span};
use epitome_core::outline::{Cut, Outline};
use epitome_core::plan::{NextStep, NoPlan, PlanInput, Source, next_step};
use epitome_core::slot::{Slot, SlotState};
use epitome_core::tokens::{Counter, Encoding, Factor};
use epitome_core::track::Tracker;
use epitome_core::view::repair;
use epitome_testkit::cuts::choose;
use epitome_testkit::drawing::{draw, messages, outlines, word_counter};

use crate::drawn::{Drawn, DrawnContext, Log};
use crate::validator::complaints;

fn log(drawing: &str) -> Log {
    Drawn(drawing.to_owned()).log(&word_counter())
}

fn gist(through: Seq) -> (Seq, String) {
    (through, "They spoke.".to_owned())
}

/// Checks that a context of this session is valid and within the budget, for every budget.
#[track_caller]
fn survives(drawing: &str, summaries: &[(Seq, String)]) {
    let log = log(drawing);
    for tokens in 1..=200 {
        let request = Request { tokens: Some(tokens), ..Request::default() };
        let given = log.context(log.len(), &request, summaries);
        assert_eq!(complaints(&given.messages), Vec::<String>::new(), "{drawing} in {tokens}");
        assert!(log.tokens(&given.messages) <= tokens, "{drawing} in {tokens}");
    }
}

#[track_caller]
fn whole(drawing: &str) -> DrawnContext {
    let log = log(drawing);
    let given = log.context(log.len(), &Request::default(), &[]);
    assert_eq!(complaints(&given.messages), Vec::<String>::new());
    given
}

fn ahead(outlines: &[Outline], end: Cut, input: u64) -> PlanInput<'_> {
    PlanInput { outlines, end: Some(end), room: None, input, authors: &[] }
}

fn append(state: &mut SlotState, slot: &Slot, outlines: &[Outline]) {
    for outline in outlines {
        state.advance(slot, outline, None);
    }
}

fn advanced(slot: &Slot, log: &Log) -> SlotState {
    let mut state = SlotState::default();
    append(&mut state, slot, &log.outlines);
    state
}

// A. An invalid transcript

#[test]
fn every_remaining_result_has_its_call_before_it_and_every_remaining_call_one_result() {
    survives("u:9 a(x):9 r(x):9 a(y):9 r(y):9 a:9 u:9 a(z):9 r(z):9 a:9", &[gist(3), gist(6)]);
}

#[test]
fn in_a_run_of_results_each_id_counts_not_any() {
    let given = whole("u r(p) a(x,y) r(q) r(y) r(x) a");
    assert_eq!(draw(&given.messages), "u a(x,y) r(y) r(x) a");
}

#[test]
fn orphans_duplicates_and_late_results_leave_the_view_and_never_the_log() {
    let given = whole("u r(z) a(x) r(x):2 r(x):7 a(y) u r(y):9 a");
    assert_eq!(draw(&given.messages), "u a(x) r(x):2 a(y) r(y):3 u a", "the first result wins");
    assert_eq!((given.layout.report.strays, given.layout.report.exhaustive), (3, true));
    survives("r(a) r(b) u r(c) a(x) u r(x) r(x)", &[]);
}

#[test]
fn a_rejection_or_an_error_answers_its_call() {
    let mut log = messages("u a(x) r(x) u").unwrap();
    if let Part::ToolResult(result) = &mut log[2].parts[0] {
        result.error = true;
    }
    assert_eq!(repair(log.clone()), log);
}

#[test]
fn a_thinking_loop_is_whole_or_its_reasoning_leaves() {
    let drawing = "u:3 a*(x):9 r(x):9 a(y):9 r(y):9 a(z):9 r(z):9";
    survives(drawing, &[]);
    let thinks = |given: &DrawnContext| {
        given.messages.iter().flat_map(|m| &m.parts).any(|p| matches!(p, Part::Thinking { .. }))
    };
    let log = log(drawing);
    let tight = log.context(7, &Request { tokens: Some(30), ..Request::default() }, &[]);
    let roomy = log.context(7, &Request { tokens: Some(300), ..Request::default() }, &[]);
    assert!(!thinks(&tight) && thinks(&roomy));
}

#[test]
fn parallel_calls_stay_together_and_no_summary_comes_between() {
    survives("u:9 a(x,y,z):9 r(z):9 r(x):9 r(y):9 a:9 u:9", &[gist(1), gist(5)]);
    let slot = Slot { trigger: "messages(3)".parse().unwrap(), ..Slot::short() };
    let log = log("u a(x,y) r(x) r(y) a");
    let NextStep::Summarize(plan) =
        next_step(&slot, &advanced(&slot, &log), &ahead(&log.outlines, Cut::Legal, 999))
    else {
        panic!("due")
    };
    assert_eq!(plan.span.through, 1);
}

#[test]
fn a_user_message_is_always_there_and_first() {
    survives("s a:9 a(x):9 r(x):9 a:9", &[]);
    survives("u:90 a(x):9 r(x):9 a(y):9 r(y):9", &[gist(3)]);
    assert_eq!(draw(&whole("s a a").messages), "s u a a");
}

#[test]
fn arguments_nested_too_deep_for_a_reader_are_carried_as_words() {
    let nested = |depth: usize| {
        let [open, close] = ["{\"a\":[", "]}"].map(|mark| mark.repeat(depth / 2));
        format!("{open}{close}")
    };
    let called_with = |arguments: &str| {
        let mut log = messages("u a r(x) u").unwrap();
        log[1] = Message::new(Role::Assistant, [Part::call("x", "f", arguments)]);
        repair(log)
    };
    for depth in [2, 100, 102, 126, 128, 130, 20_000] {
        let repaired = called_with(&nested(depth));
        assert_eq!(complaints(&repaired), Vec::<String>::new(), "{depth} deep");
        let arguments = &repaired[1].calls().next().unwrap().arguments;
        let told: serde_json::Value = serde_json::from_str(arguments).unwrap();
        match depth {
            ..=100 => assert_eq!(*arguments, nested(depth)),
            _ => assert_eq!(told["arguments"], nested(depth).as_str()),
        }
    }
    // Brackets inside strings do not nest.
    let spoken = format!("{{\"a\": \"\\\"{}\"}}", "[".repeat(500));
    assert_eq!(called_with(&spoken)[1].calls().next().unwrap().arguments, spoken);
}

#[test]
fn arguments_that_are_not_json_are_wrapped_and_shortened_ones_still_parse() {
    let mut log = messages("u a(x) r(x)").unwrap();
    if let Part::ToolCall(call) = &mut log[1].parts[1] {
        call.arguments = r#"{"path": "src/lib.rs", "text": "cut o"#.to_owned();
    }
    let repaired = repair(log.clone());
    assert_eq!(complaints(&repaired), Vec::<String>::new());
    assert!(repaired[1].calls().next().unwrap().arguments.contains("src/lib.rs"), "no word is lost");
    if let Part::ToolCall(call) = &mut log[1].parts[1] {
        call.arguments =
            serde_json::json!({ "path": "a.rs", "text": "word ".repeat(900), "line": 7 }).to_string();
    }
    let short = epitome_core::excerpt::excerpt(&log[1..], 60, &word_counter()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&short[0].calls().next().unwrap().arguments).unwrap();
    assert_eq!((&value["path"], &value["line"]), (&"a.rs".into(), &7.into()));
    assert!(value["text"].as_str().unwrap().contains("left out"));
}

#[test]
fn a_result_by_call_id_or_by_item_id_finds_its_call() {
    let given = whole("u a(call_1=fc_1) r(fc_1) a(call_2=fc_2) r(call_2) a");
    assert_eq!(draw(&given.messages), "u a(call_1=fc_1) r(call_1) a(call_2=fc_2) r(call_2) a");
}

#[test]
fn the_system_prompt_is_never_condensed() {
    let log = log("s:5 d:5 u:9 a:9 u:9 a:9");
    for tokens in 20..100 {
        let given = log.context(6, &Request { tokens: Some(tokens), ..Request::default() }, &[gist(4)]);
        if !given.messages.is_empty() {
            assert_eq!(given.messages[..2], log.messages[..2], "in {tokens}");
        }
    }
}

#[test]
fn inserted_messages_are_recognised_by_their_missing_seq() {
    // Inserted messages have no `seq`; messages of the log keep theirs.
    let given = log("a(x) u a").context(3, &Request::default(), &[]);
    let ours: Vec<&Message> = given.messages.iter().filter(|message| message.seq == 0).collect();
    assert_eq!(draw(&given.messages), "u a(x) r(x):3 u a");
    assert_eq!(ours.len(), 2);
}

// B. Loops and no progress

#[test]
fn an_overflow_that_history_did_not_cause_is_named() {
    let given = log("s:500 u a").context(3, &Request { tokens: Some(100), ..Request::default() }, &[gist(2)]);
    assert_eq!(given.layout.report.empty, Some(Empty::PinnedOverBudget));
}

#[test]
fn a_list_that_stays_verbatim_is_not_condensed_and_the_reason_is_returned() {
    let log = outlines("u a u a").unwrap();
    let keep = "messages(9)".parse().unwrap();
    let cuts = Cuts::new(&log, Cut::Legal);
    assert_eq!(choose(&cuts, 0, &keep, None, Press::Hard), Err(Unchanged::AllVerbatim));
}

#[test]
fn one_tool_loop_over_the_whole_view_is_no_reason_for_an_empty_summary() {
    let log = log("a*(x) r(x) a(y) r(y)");
    let slot = Slot { trigger: "messages(4)".parse().unwrap(), ..Slot::short() };
    let planned = next_step(&slot, &advanced(&slot, &log), &ahead(&log.outlines, log.end(4), 999));
    assert_eq!(planned, NextStep::Nothing(NoPlan::NoLegalCut));
}

#[test]
fn the_providers_count_decides() {
    // An estimate stays above the threshold forever while the provider reports half as much.
    let mut factor = Factor::default();
    for _ in 0..20 {
        factor.learn(100_000, 52_000);
    }
    let counter = Counter::new(Encoding::O200k);
    assert!(factor.apply(counter.text(&"word ".repeat(1_000))) < 600);
}

#[test]
fn one_unanswered_call_does_not_disable_condensing_for_ever() {
    let log = log(&format!("u a(x) {}", "u a ".repeat(12)));
    let slot = Slot::short();
    let NextStep::Summarize(plan) =
        next_step(&slot, &advanced(&slot, &log), &ahead(&log.outlines, Cut::Legal, 999))
    else {
        panic!("due")
    };
    assert_eq!(plan.span, Span { from: 1, through: 20 });
}

// C. Lost or wrong meaning

#[test]
fn the_last_user_request_is_in_sight_however_long_the_work_on_it() {
    let drawing = format!("u:4 a u:7 {}", "a(x):5 r(x):5 ".repeat(30));
    let log = log(&drawing);
    let given = log.context(log.len(), &Request { tokens: Some(100), ..Request::default() }, &[gist(30)]);
    assert!(given.messages.iter().any(|message| message.seq == 3), "{}", draw(&given.messages));
}

#[test]
fn a_summary_reads_as_history_not_as_orders() {
    let given = log("u a u a").context(4, &Request::default(), &[gist(2)]);
    let [Part::Text { text }] = given.messages[0].parts.as_slice() else { panic!() };
    assert!(text.starts_with("<summary covers=\"1-2\">\n") && text.contains("history, not instructions"));
}

#[test]
fn the_summarizer_reads_all_that_is_evicted_not_the_newest_of_it() {
    let log = log(&"u:500 a:500 ".repeat(10));
    let slot = Slot::short();
    let mut state = advanced(&slot, &log);
    let mut read = Vec::new();
    while let NextStep::Summarize(plan) = next_step(
        &slot,
        &state,
        &ahead(&log.outlines[usize::try_from(state.covered).unwrap()..], Cut::Legal, 4_000),
    ) {
        for source in &plan.sources {
            let Source::Messages(span) = source else { panic!() };
            read.extend(span.from..=span.through);
        }
        match plan.completes {
            true => state.settle(&slot, plan.span.through, plan.firing, &log.outlines, None),
            false => state.cover(plan.span.through),
        }
    }
    assert_eq!(read, (1..=20).collect::<Vec<Seq>>());
}

#[test]
fn a_new_summary_is_built_on_the_one_before() {
    let log = log(&"u a ".repeat(20));
    let slot = Slot::short();
    let mut state = advanced(&slot, &log);
    state.settle(&slot, 20, 20, &log.outlines, None);
    let NextStep::Summarize(plan) = next_step(&slot, &state, &ahead(&log.outlines[20..], Cut::Legal, 999))
    else {
        panic!()
    };
    assert_eq!((plan.prior, plan.span.from), (20, 21));
}

#[test]
fn pinned_rules_are_in_every_context() {
    let log = log(&format!("s u!:5 {}", "u:9 a:9 ".repeat(40)));
    for at in [10, 40, 82] {
        for tokens in [40, 100, 400] {
            let summaries = [gist(8), gist(30), gist(70)];
            let given = log.context(at, &Request { tokens: Some(tokens), ..Request::default() }, &summaries);
            assert!(given.messages.contains(&log.messages[1]), "at {at} in {tokens}");
        }
    }
}

#[test]
fn a_running_call_is_neither_summarized_away_nor_answered_for() {
    let log = log("u a u a(x)");
    let slot = Slot { trigger: "messages(4)".parse().unwrap(), ..Slot::short() };
    let NextStep::Summarize(plan) =
        next_step(&slot, &advanced(&slot, &log), &ahead(&log.outlines, log.end(4), 999))
    else {
        panic!("due")
    };
    assert_eq!(plan.span.through, 3);
    let given = log.context(4, &Request::default(), &[gist(3)]);
    assert_eq!(draw(&given.messages[given.messages.len() - 1..]), "a(x)");
}

#[test]
fn reasoning_is_not_what_a_digest_is_made_of() {
    let mut said = messages(&format!("u:5 a*:5 {}", "u:9 ".repeat(6))).unwrap();
    said[1].parts[0] = Part::thinking("SECRETLY I doubt it");
    let log = Log::new(said, word_counter());
    let request = Request { tokens: Some(60), fill: true, ..Request::default() };
    let given = log.context(8, &request, &[]);
    assert!(given.layout.summary.unwrap().digested.unwrap().contains(2));
    assert!(!format!("{:?}", given.messages).contains("SECRETLY"));
}

#[test]
fn a_window_that_failed_is_in_the_next_summary() {
    let log = log(&"u a ".repeat(30));
    let slot = Slot::short();
    let state = advanced(&slot, &log);
    // The model failed at 20 and again at 40; nothing was settled.
    let NextStep::Summarize(plan) = next_step(&slot, &state, &ahead(&log.outlines, Cut::Legal, 999)) else {
        panic!()
    };
    assert_eq!((plan.prior, plan.span), (0, Span { from: 1, through: 20 }));
}

// D. Size and cost

#[test]
fn base64_is_counted_as_a_picture_and_not_as_text() {
    let counter = Counter::new(Encoding::O200k);
    let image = Media {
        mime: "image/png".into(),
        source: MediaSource::Base64("A".repeat(1 << 20)),
        size: Some((1024, 1024)),
    };
    let tokens = counter.message(&Message::new(Role::User, [Part::Media(image)]));
    assert!((500..5_000).contains(&tokens), "{tokens}");
}

#[test]
fn tools_and_the_system_prompt_are_counted_and_skew_is_learned() {
    let counter = Counter::new(Encoding::O200k);
    let schema = serde_json::json!({ "name": "read", "parameters": { "type": "object" } });
    assert!(counter.tools(&[schema]) > 10);
    let given = log("s:30 u").context(2, &Request::default(), &[]);
    assert_eq!(given.layout.report.tokens.leading, 30);
    let mut factor = Factor::default();
    (0..20).for_each(|_| factor.learn(50_000, 61_000));
    assert_eq!(factor.apply(1_000), 1_220);
}

#[test]
fn the_summarizer_itself_never_overflows() {
    let log = log(&"u:500 a:500 ".repeat(10));
    let slot = Slot::short();
    let NextStep::Summarize(plan) =
        next_step(&slot, &advanced(&slot, &log), &ahead(&log.outlines, Cut::Legal, 1_200))
    else {
        panic!("due")
    };
    assert!(plan.tokens <= 1_200 && !plan.completes);
}

#[test]
fn one_giant_message_in_the_tail_is_shown_as_an_excerpt() {
    let request = Request { tokens: Some(100), oversize: Oversize::Clip, ..Request::default() };
    let given = log("u a(x) r(x):9000").context(3, &request, &[]);
    assert!(!given.messages.is_empty());
    assert!(format!("{:?}", given.messages).contains("characters left out"));
}

#[test]
fn under_the_budget_the_prefix_stays_byte_for_byte() {
    let log = log(&"u:9 a(x):9 r(x):9 a:9 ".repeat(10));
    let given = |at| log.context(at, &Request::default(), &[gist(8)]).messages;
    for at in (9..40).filter(|at| log.end(*at) == Cut::Legal) {
        let (before, after) = (given(at), given(40));
        assert!(after.starts_with(&before), "at {at}");
    }
}

#[test]
fn a_message_is_counted_once_and_never_again() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    let counted = Arc::new(AtomicU64::new(0));
    let seen = counted.clone();
    let counter = Counter::custom("spy", move |text| {
        seen.fetch_add(1, Ordering::Relaxed);
        text.len() as u64
    });
    let mut tracker = Tracker::default();
    let drawn: Vec<_> = messages(&"u a ".repeat(100)).unwrap();
    let outlines: Vec<_> = drawn.iter().map(|message| tracker.push(message, &counter)).collect();
    assert_eq!(counted.swap(0, Ordering::Relaxed), 200);
    let slot = Slot::short();
    let mut state = SlotState::default();
    append(&mut state, &slot, &outlines);
    drop(next_step(&slot, &state, &ahead(&outlines, Cut::Legal, 9)));
    assert_eq!(counted.load(Ordering::Relaxed), 0, "planning reads no text");
}

#[test]
fn text_that_looks_like_a_special_token_is_text() {
    let counter = Counter::new(Encoding::O200k);
    assert!(counter.text("<|endoftext|><|im_start|>") > 4);
}

// E. Concurrency

#[test]
fn a_message_appended_during_the_models_call_is_not_lost() {
    let log = log(&"u a ".repeat(21));
    let slot = Slot::short();
    let mut state = SlotState::default();
    append(&mut state, &slot, &log.outlines[..20]);
    let NextStep::Summarize(plan) = next_step(&slot, &state, &ahead(&log.outlines[..20], Cut::Legal, 999))
    else {
        panic!()
    };
    append(&mut state, &slot, &log.outlines[20..]);
    state.settle(&slot, plan.span.through, plan.firing, &log.outlines, None);
    assert_eq!((state.covered, state.due.map(|due| due.seq)), (20, Some(40)));
}

/// Reads the rows `| 12 | claim | test |` of the map. Returns, for each case, the named tests, or why there is none yet.
fn map() -> BTreeMap<u32, String> {
    let rows = include_str!("../../../../docs/hard-cases.md").lines().filter_map(|line| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let case: u32 = cells.next()?.parse().ok()?;
        Some((case, cells.nth(1)?.to_owned()))
    });
    rows.collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "reads the project's own sources, to check the map against them"
)]
fn sources(folder: &Path, out: &mut String) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|end| end == "rs") {
            out.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_map_of_hard_cases_is_complete_and_every_test_it_names_exists() {
    let map = map();
    assert_eq!(map.keys().copied().collect::<Vec<_>>(), (1..=52).collect::<Vec<_>>());
    let crates: PathBuf = [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect();
    let mut code = String::new();
    sources(&crates, &mut code);
    for (case, tests) in map {
        let mut named = tests.split('`').skip(1).step_by(2).peekable();
        assert!(named.peek().is_some() || tests.starts_with("to come"), "case {case}: {tests}");
        for test in named {
            assert!(
                code.contains(&format!("#[test]\nfn {test}()"))
                    || code.contains(&format!("#[test]\n    fn {test}("))
                    || ["#[tokio::test]", "worker_threads = 2)]"]
                        .iter()
                        .any(|mark| code.contains(&format!("{mark}\nasync fn {test}()"))),
                "case {case}: no test `{test}`"
            );
        }
    }
}
