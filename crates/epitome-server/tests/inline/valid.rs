//! A. No invalid transcript goes out.

use crate::cases;
use crate::cases::out::SHAPES;
use crate::run::Runner;

#[test]
fn cases_1_2_no_result_without_its_call_comes_out_of_the_command() {
    cases::valid::no_result_without_its_call();
}

#[test]
fn case_3_orphans_duplicates_and_late_results_do_not_brick_the_command() {
    cases::valid::orphans_duplicates_and_late_results();
}

#[test]
fn case_4_a_rejection_is_an_answer_for_the_command() {
    cases::valid::a_rejection_is_an_answer();
}

#[test]
fn case_5_a_thinking_loop_leaves_the_command_whole_or_without_its_reasoning() {
    cases::valid::a_thinking_loop_is_whole_or_without_its_reasoning();
}

#[test]
fn case_6_the_command_keeps_parallel_calls_together() {
    cases::valid::parallel_calls_stay_together();
}

#[test]
fn case_7_what_the_command_gives_to_anthropic_takes_turns() {
    cases::valid::anthropic_takes_turns();
}

#[test]
fn case_8_a_user_message_is_always_in_what_the_command_gives() {
    cases::valid::a_user_message_is_always_there();
}

#[test]
fn case_9_arguments_are_json_in_what_the_command_gives() {
    cases::valid::arguments_are_json();
}

#[test]
fn case_10_the_command_pairs_items_by_either_id() {
    cases::valid::items_are_paired_by_either_id();
}

#[test]
fn case_11_the_command_leaves_the_system_prompt_first_and_untouched() {
    cases::valid::the_system_prompt_is_first_and_untouched();
}

#[test]
fn case_12_the_command_with_strip_leaves_no_field_of_ours() {
    cases::valid::no_field_of_ours_is_left();
    // Unless it is told to, they are kept: a later pass still knows.
    let runner = Runner::new();
    for shape in SHAPES {
        let body = cases::valid::pinned(shape);
        let kept = runner.condense(shape, &body.to_string(), &["--force", "--keep-messages", "2"]);
        assert!(kept.is_condensed().text.contains("\"pinned\":true"), "{}", kept.text);
    }
}
