//! The hard cases of other systems, condensed by each strategy. The numbers are those of `docs/hard-cases.md`.

use epitome_core::condense::{List, ListState, Policy, Press, RequestFacts, SummaryRole, Unchanged};
use epitome_core::message::{Content, Part};
use epitome_testkit::drawing::{messages, word_counter};

use crate::condensing::{Caller, check, check_with, facts, forced, listing, policy, refused, sketch};
use crate::validator::complaints;

#[test]
fn case_1_2_a_result_never_outlives_its_call() {
    check("summarize(messages(1))", "u:50 a(x):50 r(x) a(y) r(y)", "u:50 S a(y) r(y)");
    check("recent(messages(2))", "u:50 a(x,y):50 r(x) r(y) a u:9 a(z) r(z)", "u:9 a(z) r(z)");
}

#[test]
fn case_3_broken_histories_come_out_whole() {
    check("recent(messages(5))", "u:50 a:50 r(q) u a(x) r(x) r(x) a u", "u a(x) r(x) a u");
}

#[test]
fn case_4_an_error_that_answers_is_shown_by_its_first_line() {
    let mut history = messages("u a(x) r(x):90 a u a").unwrap();
    let Part::ToolResult(result) = &mut history[2].parts[0] else { panic!() };
    result.error = true;
    result.content = vec![Content::Text { text: format!("denied by Ann\n{}", "at x ".repeat(90)) }];
    let mut caller = Caller::new(history, &word_counter());
    caller.step(&policy("mask(messages(2))"), &forced(Press::Gently)).unwrap();
    assert!(listing(&caller.shown()).contains("error: denied by Ann]"));
}

#[test]
fn case_5_a_thinking_loop_is_whole_or_its_reasoning_leaves() {
    let drawing = "u:9 a*(x):50 r(x):50 a(y) r(y) a(z) r(z)";
    refused("summarize(messages(2))", drawing, "no_legal_cut");
    check_with(&policy("summarize(messages(2))"), &forced(Press::Hard), drawing, "u:9 S a(z) r(z)");
    // A pinned batch of the loop does not replace the loop's beginning.
    let pinned = "u u:50 a*(x) r(x):90 a(y)! r(y)! a*(z) r(z)";
    check("recent(messages(2))", pinned, "u:50 a(y)! r(y)! a(z) r(z)");
    check("summarize(messages(2))", pinned, "u:50 a(y)! r(y)! S a*(z) r(z)");
    // A loop may be entered at a message that has its own reasoning.
    check("summarize(messages(2))", "u:9 a*(x):50 r(x):50 a*(y) r(y)", "u:9 S a*(y) r(y)");
}

#[test]
fn case_6_parallel_calls_stay_together() {
    check("summarize(messages(2))", "u:50 a:50 u a(x,y,z) r(x) r(y) r(z)", "u S a(x,y,z) r(x) r(y) r(z)");
}

#[test]
fn case_8_a_list_without_a_user_gets_one() {
    check("recent(messages(1))", "s a:50 a:5", "s u a:5");
    let system = Policy { summary_role: SummaryRole::System, ..policy("summarize(messages(1))") };
    let mut caller = Caller::drawn("s a:50 a:50 a:5");
    caller.step(&system, &forced(Press::Gently)).unwrap();
    assert_eq!(sketch(&caller.shown()), "s u S a:5");
    assert_eq!(complaints(&caller.shown()), Vec::<String>::new());
}

#[test]
fn case_9_arguments_are_json_in_the_view() {
    let mut history = messages("u:50 a:50 u a(x) r(x)").unwrap();
    let Part::ToolCall(call) = &mut history[3].parts[1] else { panic!() };
    call.arguments = "{\"path\": \"a".to_owned();
    let mut caller = Caller::new(history, &word_counter());
    caller.step(&policy("summarize(messages(3))"), &forced(Press::Gently)).unwrap();
    assert_eq!(complaints(&caller.shown()), Vec::<String>::new());
}

#[test]
fn case_10_both_ids_of_a_call_pair_it() {
    check("recent(messages(1))", "u:50 a:50 u a(x=ix) r(ix)", "u a(x=ix) r(x)");
    // Masking finds the tool's name by either id.
    let mut caller = Caller::drawn("u a(x=ix) r(ix):90 a u a");
    caller.step(&policy("mask(messages(2))"), &forced(Press::Gently)).unwrap();
    assert!(listing(&caller.shown()).contains("[output of f left out"));
}

#[test]
fn case_11_the_system_prompt_stays_first_and_untouched() {
    check("summarize(messages(1))", "s:9 d:9 u:50 s:50 a:9 u", "s:9 d:9 S u");
}

#[test]
fn case_14_15_nothing_to_cut_means_no_model_call() {
    let mut caller = Caller::drawn("u:9 a*(x):50 r(x):50 a(y):50 r(y):50");
    assert_eq!(
        caller.step(&policy("summarize(messages(1))"), &forced(Press::Gently)),
        Err(Unchanged::NoLegalCut)
    );
    assert_eq!(caller.step(&policy("summarize"), &forced(Press::Gently)), Err(Unchanged::AllVerbatim));
    assert_eq!(caller.asked, 0);
}

#[test]
fn case_16_too_little_saved_is_not_worth_a_model() {
    let mut caller = Caller::drawn("u:20 a:9 u:500 a:500 u:500");
    let told = caller.step(&policy("summarize(messages(3))"), &forced(Press::Gently));
    assert!(matches!(told, Err(Unchanged::NotWorth { .. } | Unchanged::NotSmaller { .. })), "{told:?}");
    assert_eq!(caller.asked, 0);
}

#[test]
fn case_21_the_protected_head_does_not_fossilize() {
    let policy = Policy { keep_first: 2, ..policy("summarize(messages(2))") };
    let mut caller = Caller::drawn("s u:9 a:9 u:50 a:50 u:5 a:5");
    caller.step(&policy, &forced(Press::Gently)).unwrap();
    assert_eq!(sketch(&caller.shown()), "s u:9 a:9 S u:5 a:5");
    assert_eq!(caller.read, [4, 5]);
    caller.say(messages("u:50 a:50 u:4 a:4").unwrap());
    caller.step(&policy, &forced(Press::Gently)).unwrap();
    assert_eq!(sketch(&caller.shown()), "s S u:4 a:4");
    assert_eq!(caller.read.len(), 8, "the head was read when it left");
    // Its skipped messages leave without being read.
    let mut caller = Caller::drawn("s u~:9 a:9 u:50 a:50 u:5 a:5");
    caller.step(&policy, &forced(Press::Gently)).unwrap();
    caller.say(messages("u:50 a:50 u:4 a:4").unwrap());
    caller.step(&policy, &forced(Press::Gently)).unwrap();
    assert_eq!(sketch(&caller.shown()), "s S u:4 a:4");
    assert_eq!(caller.read, [4, 5, 3, 6, 7, 1, 2], "numbered anew from the second line on");
    // Without a summary the head would be lost, so it stays.
    let recent = Policy { strategy: "recent(messages(2))".parse().unwrap(), ..policy };
    check_with(&recent, &forced(Press::Gently), "s u:9 a:9 u:50 a:50 u:5 a:5", "s u:9 a:9 u:5 a:5");
}

#[test]
fn case_22_an_unanswered_call_does_not_block_for_ever() {
    check("summarize(messages(2))", "u:9 a(x):50 u:50 a:9 u a", "S u a");
}

#[test]
fn case_23_the_last_request_stays_in_sight() {
    check("summarize(messages(2))", "s u:50 a:50 u:7 a(x):50 r(x) a(y) r(y)", "s u:7 S a(y) r(y)");
    check("recent(messages(2))", "s u:50 a:50 u:7 a(x):50 r(x) a(y) r(y)", "s u:7 a(y) r(y)");
    // The same holds in the next pass, because it is still the last request.
    let mut caller = Caller::drawn("s u:7 a(x):50 r(x):50 a(y) r(y)");
    caller.step(&policy("summarize(messages(2))"), &forced(Press::Gently)).unwrap();
    caller.say(messages("a(w):50 r(w):50 a(z) r(z)").unwrap());
    caller.step(&policy("summarize(messages(2))"), &forced(Press::Gently)).unwrap();
    assert_eq!(sketch(&caller.shown()), "s u:7 S a(z) r(z)");
}

#[test]
fn case_29_pinned_rules_survive_every_pass() {
    let mut caller = Caller::drawn("s u!:5 a:50 u:50 a(x)! r(x) a:9 u a");
    for _ in 0..5 {
        caller.step(&policy("summarize(messages(2))"), &forced(Press::Gently)).unwrap();
        assert_eq!(sketch(&caller.shown()), "s u!:5 a(x)! r(x) S u a");
        caller.say(messages("u:50 a:50 u a").unwrap());
    }
}

#[test]
fn case_30_an_open_call_stays_open() {
    for press in [Press::Gently, Press::Hard] {
        let policy = policy("summarize(messages(0))");
        check_with(&policy, &forced(press), "u:50 a:50 u:9 a(x,y) r(x)", "u:9 S a(x,y) r(x)");
    }
}

#[test]
fn case_39_the_newest_message_stays_however_hard_it_gets() {
    let drawing = "u:9 a*(x):50 r(x):50 a:9";
    check_with(&policy("summarize(messages(2))"), &forced(Press::Hard), drawing, "u:9 S a:9");
}

#[test]
fn over_the_window_something_goes_even_if_less_is_kept() {
    let drawing = "u:50 a:50 u:50 a:50 u:5 a:5";
    for (room, expected) in [(100, "S a:50 u:5 a:5"), (80, "S u:5 a:5")] {
        let mut caller = Caller::drawn(drawing);
        caller
            .step(&policy("summarize(messages(3))"), &RequestFacts { room: Some(room), ..facts() })
            .unwrap();
        assert_eq!(sketch(&caller.shown()), expected);
        assert!(caller.list.tokens() <= room, "{} tokens for {room}", caller.list.tokens());
    }
    check_with(
        &policy("summarize(messages(5))"),
        &forced(Press::Hard),
        "u:9 a(x):80 r(x):80 u:9 a:5",
        "S u:9 a:5",
    );
}

#[test]
fn a_list_resumed_from_a_wrong_state_still_opens_with_the_user() {
    let history = messages("s u:9 a:9 a:9").unwrap();
    let wrong = ListState {
        front: vec![1],
        from: 2,
        rounds: 1,
        length: 4,
        note: Some(false),
        ..ListState::default()
    };
    let list = List::resume(&history, &wrong, &word_counter());
    assert_eq!(complaints(&list.shown(&history)), Vec::<String>::new());
    assert_eq!(list.state().note, Some(true));
}
