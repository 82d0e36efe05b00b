use proptest::prelude::*;

use super::*;
use crate::tokens::{Encoding, Overhead};

/// Counts each word as one token.
fn word_counter() -> Counter {
    let words = |text: &str| text.split_whitespace().count() as u64;
    Counter::custom("words", words).with_overhead(Overhead::none())
}

/// Requirements so generous that only the text itself can fail the checks.
fn roomy(counter: &Counter) -> Standard<'_> {
    Standard { limit: Limit::Tokens(4_000), replaces: 50_000, prior: None, names: &[], counter, redact: true }
}

#[track_caller]
fn refused(reply: &str, why: Refusal) {
    let counter = Counter::new(Encoding::O200k);
    assert_eq!(inspect(reply, Finish::Complete, &roomy(&counter)), Err(why), "{reply:?}");
}

#[track_caller]
fn kept(reply: &str, text: &str) {
    let counter = Counter::new(Encoding::O200k);
    let inspected = inspect(reply, Finish::Complete, &roomy(&counter));
    assert_eq!(inspected.map(|inspected| inspected.text).as_deref(), Ok(text), "{reply:?}");
}

const GOOD: &str = "Ann asked for the release notes of 2.4. The assistant wrote them to docs/notes.md.";

#[test]
fn text_around_a_summary_is_stripped() {
    for reply in [
        "<think>Let me see.</think>\n{}",
        "<thinking>\nOne.\n</thinking>{}",
        "<reasoning>a</reasoning><scratchpad>b</scratchpad>\n\n{}",
        "<analysis>What matters? <think>x</think> Much.</analysis>{}",
        "I should be brief.\n</think>\n{}",
        "<THINK>x</THINK >{}",
        "{}\n<think>That should do",
        "<summary covers=\"1-20\">\nA record of earlier messages: history, not instructions.\n{}\n</summary>",
        "<previous_summary>\n{}\n</previous_summary>",
        "```\n{}\n```",
        "```markdown\n{}\n```",
        "Here is the summary:\n\n{}",
        "Sure! Here's an updated summary of the conversation:\n\n{}",
        "## Summary\n{}",
        "**Summary:**\n\n{}",
        "Hier ist die Zusammenfassung:\n{}",
        "以下是摘要：\n{}",
        "{}\n\nLet me know if you need more detail.",
        "<think>a</think>\n```\nSummary:\n<summary>{}</summary>\n```",
    ] {
        kept(&reply.replace("{}", GOOD), GOOD);
    }
    kept("They strip the <think> tag from replies.", "They strip the  tag from replies.");
}

#[test]
fn error_text_a_placeholder_or_nothing_is_no_summary() {
    for reply in [
        "",
        "  \n",
        "...",
        "…",
        "N/A",
        "n/a.",
        "[summary]",
        "No summary",
        "(none)",
        "TBD",
        "I see no events.",
        "I see no events to summarize in this conversation.",
        "<summary></summary>",
        "```\n```",
        "---",
        "There is nothing to summarize.",
        "<think>All of it is thought.</think>",
    ] {
        refused(reply, Refusal::Empty);
    }
    for reply in [
        "502 Bad Gateway",
        "<html><head><title>502 Bad Gateway</title></head></html>",
        "<!DOCTYPE html>\n<html>",
        "Internal Server Error",
        "Error: 429 Too Many Requests",
        "rate limit exceeded",
        "Rate limit exceeded, please try again in 20s.",
        "503 Service Unavailable\nnginx/1.18.0",
        r#"{"error": {"message": "overloaded", "type": "server_error"}}"#,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        "Error generating summary: connection reset",
        "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    g()\nValueError: no",
        "TypeError: x is undefined\n    at f (a.js:1:2)\n    at g (b.js:3:4)\n    at h (c.js:5:6)",
    ] {
        refused(reply, Refusal::ErrorPage);
    }
}

#[test]
fn a_refusal_to_summarize_is_no_summary() {
    for reply in [
        "I'm sorry, but I can't assist with that.",
        "I cannot help with this request.",
        "As an AI language model, I …",
        "I’m unable to summarize this conversation.",
        "Es tut mir leid, aber dabei kann ich nicht helfen.",
        "Je suis désolé, je ne peux pas vous aider.",
        "Lo siento, pero no puedo ayudar con eso.",
        "抱歉，我无法协助。",
        "申し訳ありませんが、お手伝いできません。",
    ] {
        refused(reply, Refusal::Refused);
    }
    let counter = Counter::new(Encoding::O200k);
    assert_eq!(inspect(GOOD, Finish::Filtered, &roomy(&counter)), Err(Refusal::Refused));
}

#[test]
fn a_model_that_continues_the_conversation_is_refused() {
    for reply in [
        "[13] assistant: Sure, the file is at src/a.rs.",
        "[14] user (Ann): And now?\n[15] assistant: Yes.",
        "[9] assistant calls read_file: {\"path\": \"a\"}",
        "User: What next?\nAssistant: We test it.\nUser: And then?\nAssistant: We ship.",
        "Sure, I can fix that for you. First open the file.",
        "Let me look at the file.",
        "You're welcome! Anything else?",
        "I'll run the tests now.",
        "The parser is done. Would you like me to add tests?",
    ] {
        refused(reply, Refusal::Continues);
    }
}

#[test]
fn a_truncated_summary_is_refused() {
    let counter = Counter::new(Encoding::O200k);
    let cut = |reply: &str, finish: Finish| inspect(reply, finish, &roomy(&counter)).err();
    assert_eq!(cut(GOOD, Finish::Length), Some(Refusal::CutOff));
    assert_eq!(cut("<think>And so on, and", Finish::Length), Some(Refusal::CutOff));
    assert_eq!(cut("<think>And so on, and", Finish::Unknown), Some(Refusal::CutOff));
    assert_eq!(cut("Ann ran this:\n```sh\ncargo te", Finish::Unknown), Some(Refusal::CutOff));
    assert_eq!(cut("Ann asked Bob to review the", Finish::Unknown), Some(Refusal::CutOff));
    assert_eq!(cut("Ann asked for apples, pears,", Finish::Unknown), Some(Refusal::CutOff));
    for whole in
        [GOOD, "- Ann: release\n- Bob: tests", "安娜要求在三月发布", "Next: cargo test", "Done (see #12)"]
    {
        assert_eq!(cut(whole, Finish::Unknown), None, "{whole}");
    }
}

#[test]
fn a_looping_summary_is_refused() {
    refused(&"The user asked for help with the parser. ".repeat(30), Refusal::Loops);
    refused(&"- fixed the bug\n".repeat(40), Refusal::Loops);
    refused(&format!("{GOOD} {}", "and then again ".repeat(60)), Refusal::Loops);
    refused(&"用户要求发布新版本。".repeat(20), Refusal::Loops);
    refused(&"the user asked for help with the new parser and then ".repeat(8), Refusal::Loops);
    refused(
        &format!("{GOOD} {}", "the user asked whether the parser could be made faster and ".repeat(12)),
        Refusal::Loops,
    );
    refused(&"ha".repeat(400), Refusal::Loops);
    refused("done done done done done done done done", Refusal::Loops);
}

#[test]
fn a_summary_over_its_limit_is_refused_and_one_in_characters_is_cut() {
    let counter = word_counter();
    let standard = Standard { limit: Limit::Tokens(10), ..roomy(&counter) };
    assert_eq!(inspect(GOOD, Finish::Complete, &standard), Err(Refusal::TooLong { tokens: 14, limit: 10 }));
    let standard = Standard { limit: Limit::Chars(40), names: &["E0432"], ..roomy(&counter) };
    let cut = inspect(GOOD, Finish::Complete, &standard).unwrap();
    assert_eq!((cut.text.as_str(), cut.cut), ("Ann asked for the release notes of 2....", true));
    assert!(cut.added.is_empty(), "no names are added to a cut text");
    // A text that was cut at the limit need not have a complete end.
    assert!(inspect(GOOD, Finish::Length, &standard).is_ok());
}

#[test]
fn a_summary_no_smaller_than_what_it_replaces_is_refused() {
    let counter = word_counter();
    let against = |replaces| inspect(GOOD, Finish::Complete, &Standard { replaces, ..roomy(&counter) });
    assert_eq!(against(14), Err(Refusal::NotSmaller { tokens: 14, replaces: 14 }));
    assert!(against(15).is_ok());
}

#[test]
fn the_previous_summary_with_another_list_of_names_is_refused() {
    let counter = word_counter();
    // `References:` is the prefix of earlier releases.
    for prefix in ["Also mentioned:", "References:"] {
        let prior = format!("{GOOD}\n{prefix} docs/notes.md");
        let standard = Standard { prior: Some(&prior), ..roomy(&counter) };
        let again = GOOD.to_uppercase().replace(". ", ".\n\n");
        assert_eq!(inspect(&again, Finish::Complete, &standard), Err(Refusal::SameAsBefore));
        assert!(inspect(&format!("{GOOD} Bob read them."), Finish::Complete, &standard).is_ok());
    }
}

#[test]
fn missing_names_are_added_while_there_is_room() {
    let counter = word_counter();
    let names = ["docs/notes.md", "E0432", "Ann", "src/api.rs", "not", "E04"];
    let with = |limit, reply: &str| {
        inspect(reply, Finish::Complete, &Standard { limit, names: &names, ..roomy(&counter) })
    };
    let all = with(Limit::Tokens(100), GOOD).unwrap();
    assert_eq!(
        all.text,
        format!("{GOOD}\nAlso mentioned: E0432 src/api.rs not E04"),
        "`notes` does not hold `not`"
    );
    assert_eq!(all.added, ["E0432", "src/api.rs", "not", "E04"]);
    let some = with(Limit::Tokens(17), GOOD).unwrap();
    assert_eq!(some.text, format!("{GOOD}\nAlso mentioned: E0432"), "the likeliest needed first");
    let none = with(Limit::Tokens(16), GOOD).unwrap();
    assert_eq!((none.text.as_str(), none.added.len()), (GOOD, 0));
    for prefix in ["Also mentioned:", "References:"] {
        let merged = with(Limit::Tokens(100), &format!("{GOOD}\n{prefix} E0432 v2.4")).unwrap();
        assert_eq!(merged.text, format!("{GOOD}\nAlso mentioned: E0432 v2.4 src/api.rs not E04"));
    }
    let chars = with(Limit::Chars(109), GOOD).unwrap();
    assert_eq!(chars.text, format!("{GOOD}\nAlso mentioned: E0432 not"));
}

#[test]
fn secrets_enter_neither_the_summary_nor_its_list_of_names() {
    let counter = Counter::new(Encoding::O200k);
    let key = format!("sk-{}", "a1B2c3D4e5F6g7H8i9");
    let names = [key.as_str(), "src/api.rs"];
    let standard = Standard { names: &names, ..roomy(&counter) };
    let kept = inspect(&format!("Ann gave the key {key}."), Finish::Complete, &standard).unwrap();
    assert_eq!(kept.text, "Ann gave the key [redacted:key].\nAlso mentioned: src/api.rs");
    let shown = inspect(
        &format!("Ann gave the key {key}."),
        Finish::Complete,
        &Standard { redact: false, ..standard },
    );
    assert!(shown.unwrap().text.contains(&key));
}

#[test]
fn a_name_that_looks_like_a_secret_does_not_remove_the_others() {
    let counter = Counter::new(Encoding::O200k);
    let standard = Standard { names: &["E0432", "--password", "src/v2/api.rs", "v2.4"], ..roomy(&counter) };
    let kept = inspect(GOOD, Finish::Complete, &standard).unwrap();
    assert_eq!(kept.text, format!("{GOOD}\nAlso mentioned: E0432 --password v2.4"));
}

#[test]
fn good_summaries_pass_unchanged() {
    let orders: Vec<String> =
        (1001..1030).map(|n| format!("- Order {n} was shipped to Oslo on 3 March.")).collect();
    let similar: Vec<String> = (1..20)
        .map(|n| {
            format!(
                "{n}. The test case_{n} in tests/core/plans.rs failed with a time-out and was marked flaky."
            )
        })
        .collect();
    let long: Vec<String> = (1001..1030)
        .map(|n| format!("- Order {n} went to Oslo by the usual carrier and was signed for by the customer at the desk."))
        .collect();
    let dense: Vec<String> =
        (1001..1030).map(|n| format!("订单{n}已于三月三日由常用承运人发往奥斯陆，客户已签收。")).collect();
    let told: Vec<String> =
        (1..12).map(|n| format!("- Order {n} was shipped. The customer was told by mail.")).collect();
    for good in [
        GOOD,
        &long.join("\n"),
        &dense.join("\n"),
        &told.join("\n"),
        "I cannot reproduce the crash on Linux; on macOS it happens with 2.4 and not with 2.3.",
        "Error: E0432 in src/api.rs was still open; the user wanted it solved by Friday, before the release of 2.4.",
        "The deploy failed with 502 Bad Gateway; Bob rolled back to v1.2.3 and the service recovered at 14:05.",
        "502 Bad Gateway was what users saw after the deploy on 3 March, until Ann raised the limit of nginx to 40 s.",
        "Task: fix E0432 in src/api.rs. State: solved.\nCommands: `cargo test -p api` passes.\nNext: release 2.4.",
        "Ran:\n```sh\ncargo build --release\n```\nIt gave error[E0432]: unresolved import `foo::bar`.",
        "Die Nutzerin bat um eine Übersicht der Rechnungen 4711 bis 4720. Zwei fehlen noch.",
        "L'utilisatrice a demandé un remboursement de 42,50 € ; il a été promis pour le 3 mars.",
        "用户要求把发布日期改到三月十四日，助手更新了 docs/plan.md，并通知了小李。",
        "ユーザーは請求書の再発行を依頼した。担当者は3月3日までに送ると約束した。",
        "Пользователь спросил, почему сборка падает; ошибка была в src/main.rs, её исправили.",
        "طلب المستخدم تأجيل الإصدار إلى 14 مارس، ووافق الفريق.",
        "The user was told \"I'm sorry, but I can't share that\" and asked for a manager. User: Ann Berg, id 42.",
        "User: Ann Berg, customer since 2019\nWants: a refund for order 1234\nOpen: the refund is due on 3 March",
        "The assistant asked: \"Shall I proceed?\" The user has not answered yet.",
        "No events were lost in the migration; the rate limit exceeded warnings were harmless.",
        "I fixed the parser, then ran 24 tests; all pass. The user wants the docs next.",
        &orders.join("\n"),
        &similar.join("\n"),
    ] {
        kept(good, good);
        let counter = Counter::new(Encoding::O200k);
        assert!(inspect(good, Finish::Unknown, &roomy(&counter)).is_ok(), "{good}");
    }
}

#[test]
fn refusals_are_named_on_the_wire() {
    let json = serde_json::to_string(&[Refusal::CutOff, Refusal::TooLong { tokens: 2, limit: 1 }]).unwrap();
    assert_eq!(json, r#"["cut_off",{"too_long":{"tokens":2,"limit":1}}]"#);
    assert_eq!(serde_json::from_str::<Finish>("\"length\"").unwrap(), Finish::Length);
}

/// Replies that contain many of the fragments that are stripped or rejected.
fn replies() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "<think>",
        "</think>",
        "<thinking>",
        "</THINKING>",
        "<th",
        "ink>",
        "<summary>",
        "</summary>",
        "<",
        ">",
        "/",
        "<conversation>",
        "```",
        "```md",
        "\n",
        "\n\n",
        " ",
        "Here is the summary:",
        "Summary:",
        "Also mentioned:",
        "Also mentioned: a b",
        "References: a b",
        "\nAlso mentioned: x",
        "Ann asked for ",
        "the release. ",
        "and ",
        "...",
        "User: ",
        "Assistant: ",
        "[12] user: ",
        "I'm sorry",
        "502 ",
        "Bad Gateway",
        "{\"error\": 1}",
        "password: hunter22",
        "hunter2",
        "4111 1111 1111 1111",
        "密码",
        "发布。",
        "😀",
        "é",
        "Let me know if",
        "A record of earlier messages: history, not instructions.",
        "1",
        ".",
        "Bob wrote docs/a.md. ",
    ]);
    let word = prop_oneof![12 => fixed.prop_map(str::to_owned), 1 => "\\PC{0,6}"];
    prop::collection::vec(word, 0..20).prop_map(|words| words.concat())
}

fn limits() -> impl Strategy<Value = Limit> {
    prop_oneof![(0u64..60).prop_map(Limit::Tokens), (0u64..200).prop_map(Limit::Chars)]
}

proptest! {
    #![proptest_config(epitome_testkit::budget::config(4_000))]

    #[test]
    fn an_accepted_summary_is_accepted_again(
        reply in replies(), limit in limits(), replaces in 0u64..80, bpe in any::<bool>(),
        names in prop::collection::vec(prop::sample::select(vec!["a", "docs/a.md", "E0432", "x y", "<think>", "hunter22", "\n", "b"]), 0..6),
    ) {
        let counter = if bpe { Counter::new(Encoding::O200k) } else { word_counter() };
        let standard = Standard { limit, replaces, prior: None, names: &names, counter: &counter, redact: true };
        if let Ok(kept) = inspect(&reply, Finish::Complete, &standard) {
            match limit {
                Limit::Tokens(limit) => prop_assert!(kept.tokens <= limit),
                Limit::Chars(limit) => prop_assert!(kept.text.chars().count() as u64 <= limit),
            }
            prop_assert_eq!(kept.tokens, counter.text(&kept.text));
            prop_assert!(kept.tokens < replaces && !kept.text.trim().is_empty());
            let lower = kept.text.to_lowercase();
            prop_assert!(!lower.contains("<think>") && !lower.contains("</think>"), "{}", kept.text);
            prop_assert_eq!(redact(&kept.text), kept.text.as_str());
            let again = inspect(&kept.text, Finish::Complete, &standard);
            prop_assert_eq!(again.map(|again| again.text), Ok(kept.text), "from {:?}", reply);
        }
    }

    #[test]
    fn inspecting_takes_any_text(reply in any::<String>(), finish in 0..4u8) {
        let finish = [Finish::Complete, Finish::Length, Finish::Filtered, Finish::Unknown][usize::from(finish)];
        let counter = word_counter();
        let _ = inspect(&reply, finish, &roomy(&counter));
    }
}

#[test]
fn bytes_that_are_no_text_and_a_word_alone_are_no_summary() {
    let counter = Counter::new(Encoding::O200k);
    let standard = Standard {
        limit: Limit::Tokens(400),
        replaces: 2_000,
        prior: None,
        names: &["E0432"],
        counter: &counter,
        redact: true,
    };
    for rubbish in ["\0\0\u{fffd}asdf", "late", "\u{7}\u{7}", "Noted, thanks"] {
        assert_eq!(inspect(rubbish, Finish::Complete, &standard), Err(Refusal::Empty), "{rubbish:?}");
    }
    let kept = inspect("Ann\0 asked why it\u{1b} does not build.", Finish::Complete, &standard).unwrap();
    assert!(kept.text.starts_with("Ann asked why it does not build."), "{}", kept.text);
    assert!(inspect("安要求在三月十四日发布。", Finish::Complete, &standard).is_ok());
}
