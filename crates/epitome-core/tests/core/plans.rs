//! Slots and plans: when a slot fires, and which messages the next summary covers.

use epitome_core::keep::Keep;
use epitome_core::message::{Seq, Span, Timestamp, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::plan::{AuthorSummary, NextStep, NoPlan, PlanInput, Source, SummaryPlan, next_step};
use epitome_core::slot::{CatchUp, Limit, Scope, Slot, SlotState};
use epitome_core::trigger::Trigger;
use epitome_testkit::drawing::outlines;

/// A session with one slot, driven step by step.
struct Scenario {
    slot: Slot,
    log: Vec<Outline>,
    state: SlotState,
    end: Cut,
    input: Tokens,
    authors: Vec<AuthorSummary>,
}

impl Scenario {
    fn new(slot: Slot, drawing: &str) -> Self {
        let mut scenario = Self {
            slot,
            log: Vec::new(),
            state: SlotState::default(),
            end: Cut::Legal,
            input: 1_000_000,
            authors: Vec::new(),
        };
        scenario.append(outlines(drawing).unwrap());
        scenario
    }

    fn append(&mut self, outlines: Vec<Outline>) {
        for outline in outlines {
            self.state.advance(&self.slot, &outline, None);
            self.log.push(outline);
        }
    }

    fn next(&self) -> NextStep {
        let mine = self.log.iter().filter(|o| self.slot.scope.holds(o) && o.seq > self.state.covered);
        let outlines: Vec<Outline> = mine.cloned().collect();
        let (end, input) = (Some(self.end), self.input);
        next_step(
            &self.slot,
            &self.state,
            &PlanInput { outlines: &outlines, end, room: None, input, authors: &self.authors },
        )
    }

    /// Runs until nothing is due. Returns the summarized spans in order.
    fn work(&mut self) -> Vec<(Seq, Seq)> {
        let mut spans = Vec::new();
        loop {
            let step = self.next();
            match &step {
                NextStep::Summarize(plan) => {
                    assert_eq!(plan.prior, self.state.covered, "each is built on the one before");
                    spans.push((plan.span.from, plan.span.through));
                }
                NextStep::Pass { .. } => {}
                NextStep::Nothing(_) => return spans,
            }
            step.settle(&self.slot, &mut self.state, &self.log, None);
        }
    }

    #[track_caller]
    fn plan(&self) -> SummaryPlan {
        match self.next() {
            NextStep::Summarize(plan) => plan,
            other => panic!("expected a plan, got {other:?}"),
        }
    }
}

fn slot(trigger: &str, keep: &str) -> Slot {
    Slot { trigger: trigger.parse().unwrap(), keep: keep.parse().unwrap(), ..Slot::short() }
}

fn dialogue(messages: usize) -> String {
    "u a ".repeat(messages / 2)
}

#[test]
fn message_160_plans_141_to_160_on_the_summary_through_140() {
    let mut scenario = Scenario::new(Slot::short(), &dialogue(160));
    scenario.state.settle(&Slot::short(), 140, 140, &scenario.log.clone(), None);
    let plan = scenario.plan();
    assert_eq!((plan.prior, plan.span), (140, Span { from: 141, through: 160 }));
    assert_eq!(plan.sources, [Source::Messages(Span { from: 141, through: 160 })]);
    assert!(plan.completes && !plan.oversize);
}

#[test]
fn a_hundred_messages_in_one_batch_give_five_windows_in_order() {
    let windows = Scenario::new(Slot::short(), &dialogue(100)).work();
    assert_eq!(windows, [(1, 20), (21, 40), (41, 60), (61, 80), (81, 100)]);
    assert_eq!(Scenario::new(Slot::long(), &dialogue(100)).work(), [(1, 60)]);
}

#[test]
fn thirty_messages_give_one_window_and_the_fortieth_makes_the_next() {
    let all = outlines(&dialogue(40)).unwrap();
    let mut scenario = Scenario::new(Slot::short(), "");
    scenario.append(all[..30].to_vec());
    assert_eq!(scenario.work(), [(1, 20)]);
    scenario.append(all[30..39].to_vec());
    assert_eq!(scenario.next(), NextStep::Nothing(NoPlan::NotDue));
    scenario.append(all[39..].to_vec());
    assert_eq!(scenario.work(), [(21, 40)]);
}

#[test]
fn a_failed_window_is_the_next_one_again() {
    let scenario = Scenario::new(Slot::short(), &dialogue(100));
    // No summary was committed, so the state is unchanged.
    assert_eq!(scenario.plan(), scenario.plan());
    assert_eq!(scenario.plan().span, Span { from: 1, through: 20 });
}

#[test]
fn messages_appended_while_the_model_works_are_not_lost() {
    let all = outlines(&dialogue(60)).unwrap();
    let mut scenario = Scenario::new(Slot::short(), "");
    scenario.append(all[..20].to_vec());
    let plan = scenario.plan();
    scenario.append(all[20..].to_vec());
    scenario.state.settle(&Slot::short(), plan.span.through, plan.firing, &scenario.log.clone(), None);
    assert_eq!(scenario.work(), [(21, 40), (41, 60)]);
}

#[test]
fn keep_holds_the_newest_back() {
    assert_eq!(Scenario::new(slot("messages(20)", "messages(4)"), &dialogue(40)).work(), [(1, 16), (17, 36)]);
}

#[test]
fn a_firing_without_old_messages_passes_and_the_next_one_follows() {
    let mut scenario = Scenario::new(slot("messages(8)", "turns(4)"), &dialogue(8));
    assert_eq!(scenario.next(), NextStep::Pass { firing: 8, why: NoPlan::AllVerbatim });
    assert_eq!(scenario.work(), []);
    scenario.append(outlines(&dialogue(16)).unwrap()[8..].to_vec());
    assert_eq!(scenario.work(), [(1, 8)]);
}

#[test]
fn a_window_never_splits_a_call_batch() {
    let windows =
        Scenario::new(slot("messages(3)", "messages(0)"), "u a(x) r(x) u a(x,y) r(x) r(y) u a").work();
    assert_eq!(windows, [(1, 3), (4, 4), (5, 9)]);
}

#[test]
fn with_no_cut_before_the_firing_the_first_one_after_it_ends_the_window() {
    let mut scenario = Scenario::new(slot("messages(2)", "messages(0)"), "a(x) s");
    scenario.end = Cut::InCall;
    assert_eq!(scenario.next(), NextStep::Nothing(NoPlan::NoLegalCut));
    scenario.append(outlines("a(x) s r(x)").unwrap()[2..].to_vec());
    scenario.end = Cut::Legal;
    assert_eq!(scenario.plan().span, Span { from: 1, through: 3 });
}

#[test]
fn skipped_messages_count_for_nothing_and_are_not_read() {
    let scenario = Scenario::new(slot("messages(3)", "messages(0)"), "u u~ a u~ u a");
    let plan = scenario.plan();
    assert_eq!((plan.firing, plan.span), (5, Span { from: 1, through: 5 }));
    let span = |from, through| Source::Messages(Span { from, through });
    assert_eq!((plan.sources, plan.skipped), (vec![span(1, 1), span(3, 3), span(5, 5)], 2));
}

#[test]
fn a_batch_with_a_skipped_message_is_skipped_whole() {
    let plan = Scenario::new(slot("messages(4)", "messages(0)"), "u a(x) r(x)~ u a").plan();
    let span = |from, through| Source::Messages(Span { from, through });
    assert_eq!((plan.sources, plan.skipped), (vec![span(1, 1), span(4, 5)], 2));
}

#[test]
fn standing_orders_at_the_head_are_covered_and_never_read() {
    let plan = Scenario::new(slot("messages(4)", "messages(0)"), "s d u a s u").plan();
    assert_eq!(plan.sources, [Source::Messages(Span { from: 3, through: 4 })]);
    let only = Scenario::new(slot("messages(2)", "messages(0)"), "s d");
    assert_eq!(only.next(), NextStep::Pass { firing: 2, why: NoPlan::NothingToSay });
}

#[test]
fn a_window_too_large_for_the_model_is_halved_and_nothing_is_left_out() {
    let mut scenario = Scenario::new(Slot::short(), &"u:10 a:10 ".repeat(10));
    scenario.input = 60;
    assert_eq!(scenario.work(), [(1, 5), (6, 8), (9, 14), (15, 20)]);
}

#[test]
fn a_message_too_large_for_the_model_is_marked_oversize() {
    let mut scenario = Scenario::new(slot("messages(3)", "messages(0)"), "u a:900 u");
    scenario.input = 100;
    let first = scenario.plan();
    assert_eq!((first.span.through, first.oversize, first.completes), (1, false, false));
    scenario.state.cover(1);
    let second = scenario.plan();
    assert_eq!((second.span.through, second.oversize, second.completes), (2, true, false));
}

#[test]
fn far_behind_windows_are_joined_up_to_the_models_input() {
    let mut scenario = Scenario::new(Slot::short(), &dialogue(400));
    scenario.input = 100;
    assert_eq!(scenario.plan().joined, 5);
    assert_eq!(scenario.work()[..3], [(1, 100), (101, 200), (201, 220)]);
    let mut step = Scenario::new(Slot { catch_up: CatchUp::Step, ..Slot::short() }, &dialogue(400));
    assert_eq!(step.work().len(), 20);
}

#[test]
fn an_authors_slot_covers_that_author_and_the_results_of_its_calls() {
    let scoped = Slot { scope: Scope::Author("ann".into()), ..slot("messages(3)", "messages(0)") };
    let plan = Scenario::new(scoped, "u a(x)@ann a(y)@bob r(y) r(x) a@ann u").plan();
    let span = |from, through| Source::Messages(Span { from, through });
    assert_eq!(plan.sources, [span(2, 2), span(5, 6)]);
    assert_eq!(plan.span.through, 6);
}

#[test]
fn in_a_scope_a_turn_counts_once_its_author_speaks_in_it() {
    let scoped = Slot { scope: Scope::Author("ann".into()), ..slot("turns(2)", "messages(0)") };
    let scenario = Scenario::new(scoped, "u a@ann a@ann u a@bob u a@ann a@ann");
    assert_eq!(scenario.plan().firing, 7);
}

#[test]
fn a_session_reads_an_authors_own_summary_in_place_of_what_it_covers() {
    let mut scenario = Scenario::new(slot("messages(6)", "messages(0)"), "u a@ann a@ann u a@ann a");
    scenario.authors = vec![AuthorSummary { author: "ann".into(), through: 3, tokens: 4 }];
    let span = |from, through| Source::Messages(Span { from, through });
    let own = Source::Author(AuthorSummary { author: "ann".into(), through: 3, tokens: 4 });
    assert_eq!(scenario.plan().sources, [span(1, 1), own, span(4, 6)]);
}

#[test]
fn a_forced_summary_is_a_firing() {
    let mut scenario =
        Scenario::new(Slot { auto: false, ..slot("messages(2)", "messages(4)") }, &dialogue(38));
    assert_eq!(scenario.next(), NextStep::Nothing(NoPlan::NotDue));
    assert!(scenario.state.force(Timestamp(9)));
    assert_eq!(scenario.work(), [(1, 34)]);
    // Planned again, the same four messages stay, so there is nothing to do.
    assert!(scenario.state.force(Timestamp(10)));
    assert_eq!(scenario.next(), NextStep::Pass { firing: 38, why: NoPlan::AllVerbatim });
    let mut all = Scenario::new(slot("messages(20)", "messages(0)"), &dialogue(20));
    all.work();
    assert!(!all.state.force(Timestamp(10)), "nothing new since");
}

#[test]
fn a_forced_firing_among_others_is_worked_off_in_its_turn() {
    let all = outlines(&dialogue(46)).unwrap();
    let mut scenario = Scenario::new(Slot::short(), "");
    scenario.append(all[..25].to_vec());
    assert!(scenario.state.force(Timestamp(0)) && scenario.state.force(Timestamp(0)));
    scenario.append(all[25..].to_vec());
    assert_eq!(scenario.work(), [(1, 20), (21, 25), (26, 45)]);
}

#[test]
fn undo_then_summarize_now_does_it_again() {
    let mut scenario = Scenario::new(Slot::short(), &dialogue(90));
    scenario.work();
    scenario.state.undo(60, 90, Timestamp(0));
    assert!(scenario.state.force(Timestamp(1)));
    assert_eq!(scenario.work(), [(61, 90)]);
}

#[test]
fn firings_inside_a_loop_wait_for_its_end_and_are_not_lost() {
    for catch_up in [CatchUp::Join, CatchUp::Step] {
        let turn = format!("u a*(x) r(x) {}", "a(x) r(x) ".repeat(130));
        let slot = Slot { catch_up, ..Slot::short() };
        let mut scenario = Scenario::new(slot, &turn);
        scenario.end = Cut::InLoop;
        assert_eq!(scenario.work(), [(1, 1)], "{catch_up:?}");
        assert_eq!(scenario.next(), NextStep::Nothing(NoPlan::NoLegalCut), "{catch_up:?}");
        scenario.append(outlines(&format!("{turn} a u")).unwrap()[263..].to_vec());
        scenario.end = Cut::Legal;
        assert_eq!(scenario.work(), [(2, 264)], "{catch_up:?}");
    }
}

#[test]
fn a_loop_right_after_the_head_is_no_reason_to_pass_its_firings_over() {
    let turn = format!("s a*(x) r(x) {}", "a(x) r(x) ".repeat(30));
    let mut scenario = Scenario::new(Slot::short(), &turn);
    scenario.end = Cut::InLoop;
    assert_eq!(scenario.next(), NextStep::Nothing(NoPlan::NoLegalCut));
    scenario.append(outlines(&format!("{turn} a u")).unwrap()[63..].to_vec());
    scenario.end = Cut::Legal;
    assert_eq!(scenario.work(), [(1, 64)]);
}

#[test]
fn an_authors_summary_is_counted_and_never_tells_what_comes_later() {
    let mut scenario = Scenario::new(slot("messages(6)", "messages(0)"), "u a@ann a@ann u a@ann a u a@ann");
    scenario.authors = vec![AuthorSummary { author: "ann".into(), through: 3, tokens: 70 }];
    assert_eq!(scenario.plan().tokens, 70 + 5);
    scenario.input = 20;
    assert_eq!(scenario.plan().span.through, 2, "halved where it would not fit");
    scenario.authors = vec![AuthorSummary { author: "ann".into(), through: 8, tokens: 1 }];
    scenario.input = 1_000;
    let whole = Source::Messages(Span { from: 1, through: 6 });
    assert_eq!(scenario.plan().sources, [whole], "it reaches beyond the window");
}

#[test]
fn undo_takes_coverage_back_and_counts_from_the_head() {
    let mut scenario = Scenario::new(Slot::short(), &dialogue(90));
    scenario.work();
    assert!(scenario.state.force(Timestamp(0)));
    scenario.state.undo(60, 90, Timestamp(0));
    assert!(scenario.state.due.is_none() && scenario.state.forced.is_empty(), "what was pending is struck");
    assert_eq!(scenario.next(), NextStep::Nothing(NoPlan::NotDue));
    scenario.append(outlines(&dialogue(110)).unwrap()[90..].to_vec());
    assert_eq!(scenario.work(), [(61, 110)]);
}

#[test]
fn flags_changed_later_never_undo_a_firing() {
    let mut scenario = Scenario::new(slot("messages(4)", "messages(0)"), &dialogue(8));
    scenario.log[5].skip = true;
    assert_eq!(scenario.work(), [(1, 4), (5, 8)]);
}

#[test]
fn idle_fires_without_another_message_and_even_if_nobody_was_there_to_see() {
    let mut scenario = Scenario::new(slot("idle(60)", "messages(0)"), "u a+5");
    assert_eq!(scenario.state.due_at, Some(Timestamp(65_000)));
    assert!(!scenario.state.tick(Timestamp(64_999)));
    let mut slept = Scenario::new(slot("idle(60)", "messages(0)"), "u a+5 u+500 a+1");
    assert!(scenario.state.tick(Timestamp(65_000)));
    assert_eq!(scenario.work(), [(1, 2)]);
    assert_eq!(slept.work(), [(1, 2)]);
    assert_eq!(slept.state.due_at, Some(Timestamp(566_000)));
}

#[test]
fn every_counts_from_the_message_at_which_it_last_fired() {
    // Messages at 0, 30, 60, 119, 120 and 130 seconds. A minute ends before a message at its last second.
    let mut scenario = Scenario::new(slot("every(60)", "messages(0)"), "u a+30 u+30 a+59 u+1 a+10");
    assert_eq!(scenario.work(), [(1, 2), (3, 4)]);
}

#[test]
fn a_slot_that_cannot_work_is_refused_by_name() {
    #[track_caller]
    fn refused(slot: &Slot, expected: &str) {
        assert_eq!(slot.check(None).unwrap_err().to_string(), expected);
    }
    let good = Slot::short();
    good.check(None).unwrap();
    refused(
        &Slot { name: "a b".into(), ..good.clone() },
        "name: \"a b\" is not a valid name; use 1 to 64 letters, digits, `_` or `-`",
    );
    refused(
        &Slot { limit: Limit::Tokens(3), ..good.clone() },
        "max_tokens: 3 is too small; a summary needs at least 16",
    );
    refused(
        &Slot { scope: Scope::Author("".into()), ..good.clone() },
        "scope: is empty; set it to an author, or leave it out to cover the whole session",
    );
    for trigger in ["economic", "any(messages(3), window(0.5))"] {
        let slot = Slot { trigger: trigger.parse().unwrap(), ..good.clone() };
        assert_eq!(slot.check(None).unwrap_err().field, "trigger", "{trigger}");
    }
    assert!(Slot { trigger: "window(0.5)".parse().unwrap(), ..good }.check(Some(1_000)).is_ok());
}

#[test]
fn a_form_in_a_file_is_refused_by_the_name_of_what_is_wrong() {
    #[track_caller]
    fn refused<T: serde::de::DeserializeOwned + std::fmt::Debug>(written: &str, expected: &str) {
        let error = serde_json::from_str::<T>(written).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    refused::<Trigger>(
        r#""mesages(3)""#,
        "trigger: position 1: `mesages` is unknown; did you mean `messages`? expected one of messages,",
    );
    refused::<Trigger>("20", r#"expected a trigger such as "messages(20)""#);
    refused::<Keep>(r#""messages(-1)""#, "keep: messages: -1 is not allowed; expected a whole number");
}

#[test]
fn a_slot_state_survives_being_stored() {
    let scenario = Scenario::new(slot("any(messages(4), idle(60))", "messages(1)"), "u a+5 u a u a+1");
    let stored = serde_json::to_string(&scenario.state).unwrap();
    assert_eq!(serde_json::from_str::<SlotState>(&stored).unwrap(), scenario.state);
}
