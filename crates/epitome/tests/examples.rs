//! Runs the examples and checks their output.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop, loudly")]

#[path = "../examples/agent_loop.rs"]
mod agent_loop;
#[path = "../examples/agents.rs"]
mod agents;
#[path = "../examples/condense_offline.rs"]
mod condense_offline;
#[path = "../examples/context.rs"]
mod context_example;
#[path = "../examples/custom_model.rs"]
mod custom_model;
#[path = "../examples/session.rs"]
mod session;

use epitome::dialect::Dialect;

#[tokio::test]
async fn the_example_of_a_session_shows_summaries_contexts_and_covered_messages() {
    let folder = tempfile::tempdir().unwrap();
    let printed = session::show(&folder.path().join("agent.db")).await.unwrap();
    for expected in [
        "long  covers messages 1-420: ",
        "short covers messages 1-440: ",
        "  1000 ",
        "message 28: order 7071: packed in Oslo, parcel PX-7, due on Monday",
        "undone: the short summary covers up to message 440 again",
        "reopened: 449 messages, 112 turns, 9758 tokens",
    ] {
        assert!(printed.contains(expected), "missing: {expected}\n{printed}");
    }
    assert!(!printed.contains("false"), "every context is exhaustive: {printed}");
}

#[tokio::test]
async fn the_example_of_agents_gives_each_a_summary_of_its_own() {
    let printed = agents::show().await.unwrap();
    for scope in ["all authors", "builder", "reviewer"] {
        assert!(printed.lines().any(|line| line.contains(&format!("of {scope} "))), "{printed}");
    }
    assert!(!printed.contains("exhaustive: false"), "{printed}");
}

#[tokio::test]
async fn the_example_of_a_model_of_ones_own_survives_its_failure() {
    let printed = custom_model::show().await.unwrap();
    for expected in [
        "failed once",
        "a context is exhaustive: true",
        "then: The user asked 8 questions",
        "hook: Condensed 16 messages into a summary",
        "usage: in-house-1 busy: 1 calls",
        "usage: in-house-1 kept: 1 calls",
    ] {
        assert!(printed.contains(expected), "missing: {expected}\n{printed}");
    }
}

#[tokio::test]
async fn the_example_of_an_agent_works_ten_times_past_its_window_and_still_has_the_facts() {
    for (dialect, summarizer) in [
        (Dialect::OPENAI, false),
        (Dialect::OPENAI, true),
        (Dialect::ANTHROPIC, false),
        (Dialect::ANTHROPIC, true),
    ] {
        let printed = agent_loop::show(dialect, summarizer).await.unwrap();
        assert!(
            printed.contains("Requests refused: 0.") && printed.contains(", 10."),
            "{dialect}: {printed}"
        );
        assert!(printed.matches("Condensed ").count() > 10, "{dialect}: {printed}");
        assert_eq!(printed.contains("Summaries by a model: 0."), !summarizer, "{dialect}: {printed}");
        for (name, fact) in agent_loop::FACTS {
            assert!(
                printed.contains(&format!("{name}: {fact}")),
                "{dialect}, {name} is forgotten: {printed}"
            );
        }
    }
}

#[test]
fn the_example_without_a_database_condenses_again_and_again() {
    let printed = condense_offline::show(condense_offline::TRANSCRIPT).unwrap();
    assert!(printed.matches("Condensed ").count() > 4 && printed.contains("Over all calls "), "{printed}");
}

#[test]
fn the_example_of_contexts_stays_within_its_budgets() {
    let printed = context_example::show().unwrap();
    let rows = printed.lines().filter_map(|line| {
        let mut columns = line.split_whitespace().map(str::parse::<u64>);
        Some((columns.next()?.ok()?, columns.next()?.ok()?))
    });
    let rows: Vec<(u64, u64)> = rows.collect();
    assert!(rows.len() >= 6, "{printed}");
    assert!(rows.iter().all(|(budget, used)| used <= budget), "{printed}");
}

#[test]
fn an_invalid_transcript_is_reported_with_its_line() {
    let user = r#"{"role":"user","content":[{"type":"text","text":"Hello there, Ann."}]}"#;
    for (second, expected) in [
        ("not json", "line 2: expected"),
        (r#"{"content":"hi"}"#, "line 2: a message without a role"),
        (r#"{"role":"bard"}"#, "line 2: unknown role bard"),
        ("[]", "line 2: a message without a role"),
    ] {
        let error = condense_offline::show(&format!("{user}\n{second}")).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    // Parts are read, and blank lines are nothing.
    let shown = condense_offline::show(&format!("\u{feff}{user}\n\n")).unwrap();
    assert!(shown.contains("1 messages, ") && shown.contains("Hello there, Ann."), "{shown}");
}

#[test]
fn a_list_that_cannot_be_helped_says_why() {
    let huge = format!(r#"{{"role":"user","content":"{}"}}"#, "so it goes ".repeat(4_000));
    let shown = condense_offline::show(&huge).unwrap();
    assert!(shown.contains("At the end: unchanged; nothing to condense"), "{}", &shown[..300]);
    let odd = r#"{"role":"user","content":"!!! 🎉 !!! 🎉 !!! 🎉 !!! 🎉 !!! 🎉 !!!"}"#;
    let shown = condense_offline::show(&[odd; 800].join("\n")).unwrap();
    assert!(shown.contains("messages without words"), "{}", &shown[..300]);
}

#[tokio::test]
async fn the_settings_that_the_library_page_shows_are_accepted() {
    let page = include_str!("../../../docs/library.md");
    let document = page.split(".settings(r#\"").nth(1).and_then(|rest| rest.split("\"#").next()).unwrap();
    let builder = epitome::Engine::builder().model("main", epitome_testkit::scripted::Scripted::new());
    let engine = builder.settings(document).memory().await.unwrap();
    let names: Vec<&str> = engine.settings().slots.iter().map(|slot| slot.slot.name.as_str()).collect();
    assert_eq!(names, ["short", "log", "lean"]);
    engine.close().await;
}
