//! Every command, right and wrong.

use epitome::rules::message::{Message, Part};
use serde_json::json;

use crate::bin::{TestFolder, result_of, talk};

#[test]
fn list_shows_sessions_with_what_their_summaries_cover() {
    let place = TestFolder::with_sessions();
    let out = place.good(&["list"]);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("session  messages  turns  tokens  updated"), "{out}");
    assert!(lines[1].starts_with("ann ") && lines[1].ends_with("long 1-60, short 1-60"), "{out}");
    assert!(lines[1].contains("just now") && lines[2].starts_with("anne "), "{out}");
    let (_, out, errors) = place.on_db(&["list", "--limit", "1"]);
    assert_eq!(out.lines().count(), 2);
    assert_eq!(errors, "there are more sessions; use --after \"ann\"\n");
    assert!(place.good(&["list", "--after", "ann"]).lines().nth(1).unwrap().starts_with("anne "));
    let sessions = place.json_lines(&["list"]);
    assert_eq!((&sessions[0]["name"], &sessions[0]["messages"]), (&json!("ann"), &json!(60)));
    assert_eq!(sessions[0]["slots"][0]["covered"], 60);
    let (code, out, errors) = place.on_db(&["list", "--workspace", "empty"]);
    assert_eq!(
        (code, out.as_str(), errors.as_str()),
        (Some(0), "", "the workspace \"empty\" has no sessions in epitome.db\n")
    );
}

#[test]
fn context_is_text_with_a_report_on_standard_error() {
    let place = TestFolder::with_sessions();
    let (code, out, report) = place.on_db(&["context", "ann", "--tokens", "600"]);
    assert_eq!(code, Some(0));
    assert!(report.contains(" of 600 tokens · ") && report.contains("exhaustive"), "{report}");
    assert!(report.contains("summary of messages 1-60"), "{report}");
    assert!(out.contains("\nuser\n<summary covers=\"1-60\">"), "{out}");
    let bare = place.good(&["context", "--session", "anne", "--no-summary"]);
    assert!(bare.contains("assistant\nOrder 10071 was sent from Oslo"), "{bare}");
    let early = place.good(&["context", "ann", "--no-summary", "--as-of", "2"]);
    assert!(early.contains("order 10071") && !early.contains("order 20071"), "{early}");
}

#[test]
fn context_for_a_provider_is_one_object() {
    let place = TestFolder::with_sessions();
    for format in ["openai", "responses", "anthropic", "epitome"] {
        let out = place.good(&["context", "ann", "--format", format]);
        assert!(serde_json::from_str::<serde_json::Value>(&out).unwrap().is_object(), "{format}: {out}");
    }
    let whole = place.json(&["context", "ann", "--tokens", "700", "--fill"]);
    assert_eq!(whole["report"]["budget"], 700);
    assert!(!whole["messages"].as_array().unwrap().is_empty());
}

#[test]
fn a_context_into_which_nothing_fits_says_why() {
    let place = TestFolder::with_sessions();
    place.engine(|engine| async move {
        engine.session("large").append(Message::user("word ".repeat(2_000))).await.unwrap();
    });
    place.fails(
        &["context", "large", "--tokens", "50"],
        1,
        "nothing fits in 50 tokens: the newest message, with its tool calls and results, exceeds the budget that \
         remains after pinned messages; increase --tokens, or use --oversize clip to show an excerpt of the \
         newest message",
    );
    assert!(!place.good(&["context", "large", "--tokens", "50", "--oversize", "clip"]).is_empty());
    let (code, _, errors) = place.on_db(&["context", "ann", "--tokens", "0"]);
    assert_eq!((code, errors.lines().count()), (Some(2), 1), "{errors}");
    let (code, _, errors) = place.on_db(&["context", "ann", "--json", "--format", "openai"]);
    assert_eq!((code, errors.lines().count()), (Some(2), 1), "{errors}");
}

#[test]
fn summarize_writes_a_summary_unless_nothing_is_new() {
    let place = TestFolder::with_sessions();
    place.engine(|engine| async move { talk(&engine.session("ann"), 3).await });
    let (code, out, errors) = place.on_db(&["summarize", "ann", "--slot", "short"]);
    assert_eq!(code, Some(0));
    assert!(errors.contains("(short): messages 1-66, ") && errors.contains("written by local"), "{errors}");
    assert!(out.contains("Oslo"), "{out}");
    let again = place.json(&["summarize", "ann", "--slot", "short"]);
    assert_eq!((&again["status"], &again["summary"]["through"]), (&json!("nothing_new"), &json!(66)));
    let rebuilt = place.json(&["summarize", "ann", "--slot", "short", "--rebuild"]);
    assert_eq!((&rebuilt["status"], &rebuilt["summary"]["span"]["from"]), (&json!("written"), &json!(1)));
    let noted = place.json(&["summarize", "anne", "--no-wait"]);
    assert_eq!(noted["status"], "pending");
    assert!(place.good(&["explain"]).starts_with("1 due, "));
    place.fails(
        &["summarize", "ann", "--slot", "none"],
        1,
        "there is no slot \"none\"; the session's slots are long, short",
    );
}

#[test]
fn a_summary_that_cannot_be_written_yet_says_why() {
    let place = TestFolder::new();
    place.engine(|engine| async move {
        let mut call = Message::assistant("");
        call.parts = vec![Part::call("c", "run", "{}")];
        engine.session("open").append(call).await.unwrap();
    });
    let line = "not written yet: the worker waits until the tool call or loop in progress ends";
    place.fails(&["summarize", "open"], 1, line);
    let (code, out, errors) = place.on_db(&["summarize", "open", "--json"]);
    assert_eq!((code, errors.as_str()), (Some(1), ""));
    assert!(out.contains("\"status\": \"pending\""), "{out}");
    assert!(place.good(&["explain", "open"]).contains("parked"));
}

#[test]
fn commands_work_while_another_process_has_the_database_open() {
    let place = TestFolder::with_sessions();
    let there = &place;
    place.engine(|engine| async move {
        talk(&engine.session("ann"), 3).await;
        let written = there.json(&["summarize", "ann", "--slot", "short"]);
        assert_eq!(written["summary"]["through"], 66);
        let seen = engine.session("ann").summaries().await.unwrap();
        assert!(seen.iter().any(|summary| summary.slot == "short" && summary.through == 66));
        there.good(&["undo", "ann", "--slot", "short"]);
        let seen = engine.session("ann").summaries().await.unwrap();
        assert!(seen.iter().any(|summary| summary.slot == "short" && summary.through == 60));
        assert!(there.good(&["verify"]).contains("no faults"));
    });
}

#[test]
fn undo_reverts_the_current_summary() {
    let place = TestFolder::with_sessions();
    let out = place.good(&["undo", "ann", "--slot", "short"]);
    assert!(out.contains("is undone; summary ") && out.ends_with("is current again\n"), "{out}");
    let (code, _, errors) = place.on_db(&["undo", "ann"]);
    assert_eq!(code, Some(2));
    assert!(errors.starts_with("epitome: several summaries are current: "), "{errors}");
    let long = place.json(&["undo", "ann", "--slot", "long"]);
    assert_eq!(long["stands"], json!(null));
    let id = long["undone"].to_string();
    let line = format!("summary {id} is not the current summary of its slot; undo the current one first");
    place.fails(&["undo", "ann", "--summary", &id], 1, &line);
    place.fails(&["undo", "anne"], 1, "the session has no current summary");
    place.fails(&["undo", "ann", "--summary", "999"], 1, "summary 999 not found");
}

#[test]
fn expand_returns_every_covered_message() {
    let place = TestFolder::with_sessions();
    let all = place.json_lines(&["expand", "ann", "--slot", "long"]);
    let seqs: Vec<u64> = all.iter().map(|message| message["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=60).collect::<Vec<_>>());
    let some =
        place.good(&["expand", "--session", "ann", "--slot", "short", "--after", "10", "--limit", "2"]);
    assert!(some.starts_with("11 user\nPlease look at order 60071"), "{some}");
    assert_eq!(some.matches("order").count() + some.matches("Order").count(), 2, "{some}");
}

#[test]
fn expand_and_search_continue_past_a_page() {
    let place = TestFolder::new();
    place.engine(|engine| async move {
        talk(&engine.session("long"), 250).await;
        engine.work().await.unwrap();
    });
    assert_eq!(place.json_lines(&["expand", "long", "--slot", "short"]).len(), 500);
    assert_eq!(place.json_lines(&["expand", "long", "--slot", "short", "--limit", "201"]).len(), 201);
    assert_eq!(place.json_lines(&["search", "order", "--limit", "120"]).len(), 120);
}

#[test]
fn search_finds_summarized_messages() {
    let place = TestFolder::with_sessions();
    let out = place.good(&["search", "order 70071"]);
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(out.starts_with("ann 14  Order 70071 was sent"), "{out}");
    let (_, out, errors) = place.on_db(&["search", "order", "--limit", "3", "--session", "ann"]);
    assert_eq!((out.lines().count(), errors.as_str()), (3, "there are more matches; use --limit 15\n"));
    let found = place.json_lines(&["search", "OSLO", "yesterday", "--session", "anne"]);
    assert_eq!((found.len(), &found[0]["message"]["seq"]), (1, &json!(2)));
    let (code, out, errors) = place.on_db(&["search", "zebra"]);
    assert_eq!((code, out.as_str(), errors.as_str()), (Some(0), "", "no message found\n"));
    let (code, _, errors) = place.on_db(&["search", " "]);
    assert_eq!((code, errors.lines().count()), (Some(2), 1), "{errors}");
}

#[test]
fn explain_shows_the_state_of_every_slot() {
    let place = TestFolder::with_sessions();
    let out = place.good(&["explain", "ann"]);
    for word in [
        "ann: 60 messages, 30 turns",
        "\nshort  idle  not due",
        "covers   messages 1-60 of 60",
        "models   local",
        "cost",
    ] {
        assert!(out.contains(word), "{word} in {out}");
    }
    let whole = place.json(&["explain", "ann"]);
    assert_eq!(
        (&whole["slots"][0]["covered"], &whole["usage"]["items"][0]["model"]),
        (&json!(60), &json!("local"))
    );
    assert_eq!(place.json(&["explain"])["due"], 0);
    assert!(place.good(&["explain"]).starts_with("0 due, 0 being written"));
}

#[test]
fn a_backup_passes_verify_and_replaces_no_file() {
    let place = TestFolder::with_sessions();
    assert_eq!(place.good(&["verify"]), "epitome.db: no faults\n");
    assert_eq!(place.json(&["verify"])["ok"], true);
    let out = place.good(&["backup", "copy.db"]);
    assert!(out.starts_with("epitome.db copied to copy.db, "), "{out}");
    assert_eq!(place.run(&["verify", "--db", "copy.db"]).0, Some(0));
    let line = "copy.db cannot be opened: a file exists already, and a backup never replaces a file; use another path";
    place.fails(&["backup", "copy.db"], 1, line);
    assert!(place.json(&["backup", "other.db"])["bytes"].as_u64().unwrap() > 0);
}

#[test]
fn similar_names_are_suggested_for_a_missing_session() {
    let place = TestFolder::with_sessions();
    for command in ["context", "summarize", "undo", "expand", "explain"] {
        place.fails(&[command, "Ann1"], 1, "there is no session \"Ann1\"; similar names: ann, anne");
    }
    place.fails(&["context", "zzz"], 1, "there is no session \"zzz\"; `epitome list` shows all sessions");
    place.fails(&["search", "x", "--session", "an"], 1, "there is no session \"an\"; did you mean ann?");
    place.fails(
        &["context", "ann", "--workspace", "w"],
        1,
        "there is no session \"ann\": the workspace \"w\" has no sessions in epitome.db",
    );
    let (code, _, errors) = place.on_db(&["context"]);
    assert_eq!(code, Some(2));
    assert!(errors.starts_with("epitome: the session's name is missing"), "{errors}");
}

#[test]
fn reading_commands_create_no_database() {
    let place = TestFolder::new();
    let line = "there is no database at epitome.db; `epitome import` creates one, and `epitome demo` shows an example";
    for args in [
        ["list"].as_slice(),
        &["context", "a"],
        &["summarize", "a"],
        &["undo", "a"],
        &["expand", "a"],
        &["search", "a"],
        &["explain"],
        &["verify"],
        &["backup", "b.db"],
    ] {
        place.fails(args, 1, line);
    }
    let usual = place.path(".local/share/epitome/epitome.db");
    let (code, _, errors) = place.run(&["list"]);
    assert_eq!(code, Some(1));
    assert!(errors.starts_with(&format!("epitome: there is no database at {}", usual.display())), "{errors}");
    assert_eq!(place.folder.path().read_dir().unwrap().count(), 0, "something was made");
}

#[test]
fn piped_output_is_plain_unless_colours_are_requested() {
    let place = TestFolder::with_sessions();
    for args in [
        ["list"].as_slice(),
        &["explain", "ann"],
        &["search", "oslo"],
        &["expand", "ann", "--slot", "long"],
        &["verify"],
    ] {
        assert!(!place.good(args).contains('\u{1b}'), "{args:?}");
        assert!(place.good(&[args, &["--color", "always"]].concat()).contains('\u{1b}'), "{args:?}");
    }
    let no_color =
        result_of(place.epitome(&["list", "--db", "epitome.db"]).env("NO_COLOR", "1").output().unwrap());
    assert!(!no_color.1.contains('\u{1b}'));
}

#[test]
fn control_characters_in_messages_and_names_are_escaped() {
    let place = TestFolder::new();
    place.engine(|engine| async move {
        let mut call = Message::assistant("");
        call.parts = vec![Part::call("c", "run", r#"{"cmd": "ls"}"#)];
        let messages = [Message::user("red \u{1b}[31m words"), call];
        engine.session("odd\u{202e}name").append(messages).await.unwrap();
    });
    let out = place.good(&["context", "odd\u{202e}name"]);
    assert!(out.contains("red \\u{1b}[31m words") && out.contains("→ run {\"cmd\": \"ls\"}"), "{out}");
}

#[test]
fn a_context_without_a_message_to_answer_says_so() {
    let place = TestFolder::with_sessions();
    std::fs::write(place.path("orders.jsonl"), "{\"role\":\"system\",\"content\":\"Be brief.\"}\n").unwrap();
    place.good(&["import", "orders.jsonl"]);
    let (code, out, errors) = place.on_db(&["context", "orders"]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let line = "epitome: the session has no message that a model could answer: ";
    assert!(errors.starts_with(line), "{errors}");
    place.fails(&["context", "anne", "--as-of", "3"], 1, "--as-of 3: the session's newest message is 2");
    place.good(&["context", "anne", "--as-of", "2"]);
}

#[test]
fn a_context_of_an_author_without_messages_names_similar_authors() {
    let place = TestFolder::new();
    place.engine(|engine| async move {
        let by = |author: &str, text: &str| Message { author: Some(author.into()), ..Message::user(text) };
        let messages = [by("Priya", "The ferry leaves at noon."), by("Omar", "Thank you.")];
        engine.session("team").append(messages).await.unwrap();
    });
    assert!(place.good(&["context", "team", "--scope", "Priya"]).contains("ferry"));
    let line = "no message of the session is by `Pria`; did you mean Priya?";
    place.fails(&["context", "team", "--scope", "Pria"], 1, line);
    place.fails(&["context", "team", "--scope", "Zoltan"], 1, "no message of the session is by `Zoltan`");
    let early = ["context", "team", "--scope", "Omar", "--as-of", "1"];
    place.fails(&early, 1, "no message of the session up to message 1 is by `Omar`");
}
