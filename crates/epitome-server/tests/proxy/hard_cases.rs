//! The hard cases A to D that are the same for the proxy as for the command: what the upstream got in place of a request.

use crate::cases::{cost, meaning, progress, valid};

#[test]
fn cases_1_2_no_result_is_sent_without_its_call_through_the_proxy() {
    valid::no_result_without_its_call();
}

#[test]
fn case_3_orphans_duplicates_and_late_results_are_repaired_through_the_proxy() {
    valid::orphans_duplicates_and_late_results();
}

#[test]
fn case_4_a_rejection_is_an_answer_through_the_proxy() {
    valid::a_rejection_is_an_answer();
}

#[test]
fn case_5_a_thinking_loop_is_whole_or_without_its_reasoning_through_the_proxy() {
    valid::a_thinking_loop_is_whole_or_without_its_reasoning();
}

#[test]
fn case_6_parallel_calls_stay_together_through_the_proxy() {
    valid::parallel_calls_stay_together();
}

#[test]
fn case_7_sides_take_turns_through_the_proxy() {
    valid::anthropic_takes_turns();
}

#[test]
fn case_8_a_user_message_is_always_there_through_the_proxy() {
    valid::a_user_message_is_always_there();
}

#[test]
fn case_9_arguments_are_json_through_the_proxy() {
    valid::arguments_are_json();
}

#[test]
fn case_10_items_are_paired_by_either_id_through_the_proxy() {
    valid::items_are_paired_by_either_id();
}

#[test]
fn case_11_the_system_prompt_is_first_and_untouched_through_the_proxy() {
    valid::the_system_prompt_is_first_and_untouched();
}

#[test]
fn case_12_no_field_of_ours_is_left_through_the_proxy() {
    valid::no_field_of_ours_is_left();
}

#[test]
fn case_13_an_overflow_that_history_did_not_cause_is_named_through_the_proxy() {
    progress::an_overflow_that_history_did_not_cause_is_named();
}

#[test]
fn case_14_a_list_that_stays_whole_causes_no_model_call_through_the_proxy() {
    progress::where_all_is_kept_nobody_is_asked();
}

#[test]
fn case_15_one_loop_over_the_whole_list_is_left_alone_through_the_proxy() {
    progress::one_loop_over_the_whole_list_is_left_alone();
}

#[test]
fn case_16_nothing_is_condensed_for_next_to_nothing_through_the_proxy() {
    progress::nothing_is_condensed_for_next_to_nothing();
}

#[test]
fn case_22_an_unanswered_call_stops_nothing_through_the_proxy() {
    progress::a_call_nobody_answered_stops_nothing();
}

#[test]
fn case_23_the_last_request_is_there_through_the_proxy() {
    meaning::the_last_request_is_there();
}

#[test]
fn case_24_a_summary_reads_as_history_through_the_proxy() {
    meaning::a_summary_reads_as_history();
}

#[test]
fn case_30_a_call_that_is_still_open_stays_open_through_the_proxy() {
    meaning::a_call_that_is_still_open_stays_open();
}

#[test]
fn case_36_a_picture_is_no_text_through_the_proxy() {
    cost::a_picture_is_no_text();
}

#[test]
fn case_37_tools_and_system_prompt_are_counted_through_the_proxy() {
    cost::tools_and_system_prompt_are_counted();
}

#[test]
fn case_39_one_giant_message_in_the_tail_is_reported_through_the_proxy() {
    cost::one_giant_message_in_the_kept_tail_is_told();
}

#[test]
fn case_40_under_the_threshold_no_byte_changes_through_the_proxy() {
    cost::under_the_threshold_no_byte_changes();
}

#[test]
fn case_43_text_that_looks_like_a_special_token_passes_through_the_proxy() {
    cost::text_that_looks_like_a_special_token_passes();
}
