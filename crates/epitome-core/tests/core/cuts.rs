//! Drawings of the positions where a log may be cut.

use epitome_core::condense::Unchanged;
use epitome_core::cut::{Cuts, Press};
use epitome_core::outline::Cut;
use epitome_testkit::cuts::{after_head, choose};
use epitome_testkit::drawing::{draw_cuts, outlines};

/// Checks that the bars in the drawing are exactly the legal cuts.
#[track_caller]
fn check(drawing: &str) {
    assert_eq!(draw_cuts(drawing).unwrap(), drawing);
}

#[test]
fn a_call_is_never_parted_from_its_result() {
    check("u | a(x) r(x) | a");
}

#[test]
fn parallel_calls_stay_together_until_the_last_result() {
    check("u | a(x,y) r(y) r(x) | u");
}

#[test]
fn an_abandoned_call_does_not_block_later_cuts() {
    check("u | a | u | a(x) | u | a");
    check("u | a(x,y) r(x) | u | a");
}

#[test]
fn orphans_and_duplicates_block_nothing() {
    check("u | r(x) | a | u");
    check("u | a(x) r(x) | r(x) | a");
    check("u | a(x) | u | r(x) | a");
}

#[test]
fn a_result_finds_its_call_by_either_id() {
    check("u | a(x=i) r(i) | a");
    check("u | a(x=i) r(x) | a");
    check("u | a(x=y,y=x) r(x) r(y) | a");
}

#[test]
fn a_result_inside_a_user_message_closes_its_call() {
    check("u | a(x) u(x) | a");
    check("u | a(x) u-(x) | a");
    check("u | a(x,y) u(x) | a");
}

#[test]
fn a_reply_logged_in_pieces_is_one_batch() {
    check("u | a(x) a(y) r(x) r(y) | u");
    check("u | a(x) a r(x) | u");
}

#[test]
fn a_thinking_loop_is_entered_only_at_reasoning_of_its_own() {
    check("u | a*(x) r(x) a(y) r(y) a | u");
    check("u | a*(x) r(x) | a*(y) r(y) a(z) r(z) a | u");
    check("u | a*(x) r(x) a(y) r(y) | u");
    check("u | a*(x) r(x) | u | a(y) r(y) | a | u");
    check("u | a*(x) r(x) a | a | u");
}

#[test]
fn reasoning_without_calls_opens_no_loop() {
    check("u | a* | a | u");
}

#[test]
fn reasoning_alone_is_no_way_into_a_loop() {
    check("u | a*(x) r(x) a*- a(y) r(y) | u");
}

#[test]
fn a_system_message_inside_a_batch_is_no_place_to_cut() {
    check("s | u | a(x) s r(x) | s | a");
}

#[test]
fn two_agents_at_once_block_each_other_in_the_session_and_not_in_their_scopes() {
    let drawing = "u a(x)@ann a(y)@bob r(x) a(z)@ann r(y) r(z)";
    assert_eq!(draw_cuts(drawing).unwrap(), "u | a(x)@ann a(y)@bob r(x) a(z)@ann r(y) r(z)");
    let log = outlines(drawing).unwrap();
    let own = |name: &str| -> Vec<Cut> {
        log.iter().filter(|o| o.author.as_deref() == Some(name)).map(|o| o.own_cut).collect()
    };
    assert_eq!(own("ann"), [Cut::Legal, Cut::InCall, Cut::Legal, Cut::InCall]);
    assert_eq!(own("bob"), [Cut::Legal, Cut::InCall]);
}

#[test]
fn a_log_that_only_ever_calls_does_not_grow_the_state() {
    let drawing: Vec<String> = (0..3_000).map(|n| format!("a(c{n})")).collect();
    let mut tracker = epitome_core::track::Tracker::default();
    for message in epitome_testkit::drawing::messages(&drawing.join(" ")).unwrap() {
        tracker.push_sized(&message, 1);
    }
    assert_eq!(tracker.open_calls(), epitome_core::track::MAX_OPEN_CALLS);
}

#[track_caller]
fn chosen(drawing: &str, keep: &str, press: Press) -> Result<(usize, Option<usize>), Unchanged> {
    let log = outlines(drawing).unwrap();
    let cuts = Cuts::new(&log, Cut::Legal);
    choose(&cuts, 0, &keep.parse().unwrap(), None, press).map(|chosen| (chosen.place, chosen.carried))
}

#[test]
fn choosing_looks_backwards_so_that_more_is_kept() {
    assert_eq!(chosen("u a u a(x) r(x) a", "messages(2)", Press::Gently), Ok((3, Some(2))));
    assert_eq!(chosen("u a u a u a", "messages(2)", Press::Gently), Ok((4, None)));
}

#[test]
fn choosing_looks_forwards_only_when_something_must_go() {
    assert_eq!(chosen("a(x) r(x) a", "messages(2)", Press::Gently), Err(Unchanged::NoLegalCut));
    assert_eq!(chosen("a(x) r(x) a", "messages(2)", Press::Hard), Ok((2, None)));
}

#[test]
fn the_last_user_message_before_the_cut_is_carried() {
    assert_eq!(chosen("u a a a a", "messages(2)", Press::Gently), Ok((3, Some(0))));
}

#[test]
fn keep_first_protects_the_head_up_to_a_legal_cut() {
    let log = outlines("s d u a(x) r(x) a u a").unwrap();
    let cuts = Cuts::new(&log, Cut::Legal);
    let head: Vec<usize> = (0..5).map(|keep_first| after_head(&cuts, keep_first)).collect();
    assert_eq!(head, [2, 3, 5, 5, 6]);
    let keep = "messages(2)".parse().unwrap();
    assert_eq!(choose(&cuts, after_head(&cuts, 4), &keep, None, Press::Gently), Err(Unchanged::AllVerbatim));
    assert_eq!(choose(&cuts, after_head(&cuts, 0), &keep, None, Press::Gently).unwrap().place, 6);
}

#[test]
fn two_agents_may_use_the_same_id_at_once() {
    check("u | a(x)@ann a(x)@bob r(x)@bob r(x)@ann | u");
    let log = epitome_testkit::drawing::messages("u a(x)@ann a(x)@bob r(x)@bob:2 r(x)@ann:3 u").unwrap();
    let repaired = epitome_core::view::repair(log);
    assert_eq!(epitome_testkit::drawing::draw(&repaired), "u a(x)@ann r(x)@ann:3 a(x_2)@bob r(x_2)@bob:2 u");
}

#[test]
fn a_call_without_a_result_is_abandoned_after_eight_rounds() {
    // After seven rounds its result may still come; after eight the call is abandoned.
    let rounds = |n: usize| format!("u | a(x) {}", vec!["a(y) r(y)"; n].join(" "));
    check(&rounds(8));
    check(&format!("{} | a", rounds(8)));
    check(&format!("{} r(x) | a", rounds(7)));
    // All pieces of one reply are one round.
    let pieces: Vec<String> = (0..20).map(|n| format!("a(c{n})")).collect();
    check(&format!("u | {}", pieces.join(" ")));
}

#[test]
fn a_message_that_answers_somebody_goes_on_answering_them() {
    // Both use the id x. The first message answers ann's call w, so its x is hers too; the second x stays open.
    let log = outlines("u a(x) a(w,x)@ann r(w,x)@bob r(x)").unwrap();
    let whose: Vec<Option<&str>> = log.iter().map(|outline| outline.author.as_deref()).collect();
    assert_eq!(whose, [None, None, Some("ann"), Some("ann"), None]);
    assert_eq!((log[3].answers, log[3].own_answers), (2, 2));
    let mixed = outlines("u a(x)@ann a(y)@bob r(x,y)").unwrap();
    assert_eq!((mixed[3].answers, mixed[3].own_answers), (2, 1));
}

#[test]
fn blank_text_says_nothing() {
    check("u | a(x) u:0 r(x) | a");
    let repaired = epitome_core::view::repair(
        epitome_testkit::drawing::messages("u a:0(x) r(x) a:0 u:0 s:0 a").unwrap(),
    );
    assert_eq!(epitome_testkit::drawing::draw(&repaired), "u a-(x) r(x) a");
}

#[test]
fn a_log_in_which_everybody_starts_a_loop_does_not_grow_the_state() {
    let drawing: Vec<String> = (0..3_000).map(|n| format!("a*(c{n})@w{n}")).collect();
    let mut tracker = epitome_core::track::Tracker::default();
    for message in epitome_testkit::drawing::messages(&drawing.join(" ")).unwrap() {
        tracker.push_sized(&message, 1);
    }
    let stored = serde_json::to_string(&tracker).unwrap();
    assert!(stored.len() < 200_000, "{}", stored.len());
    assert_eq!(serde_json::from_str::<epitome_core::track::Tracker>(&stored).unwrap(), tracker);
}
