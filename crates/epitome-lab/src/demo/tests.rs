use epitome::rules::message::Message;
use epitome_terminal::show::display_width;
use epitome_testkit::OutputBuffer;
use serde_json::Value;

use super::*;

async fn demo(path: &Path, width: Option<usize>) -> Result<String, Failure> {
    let (mut show, out, errors) = OutputBuffer::show(false);
    show.width = width;
    run(&Args { fast: true, tokens: 4_000 }, path.to_str(), &mut show).await?;
    assert_eq!(errors.text(), "");
    Ok(out.text())
}

/// Removes the durations, which differ from run to run.
fn timeless(text: &str) -> String {
    let took = |word: &str| word.parse::<u64>().is_ok();
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if let [.., under, one, "ms"] = words[..] {
            let cut = if (under, one) == ("under", "1") { 3 } else { 2 };
            if took(one) {
                words.truncate(words.len() - cut);
            }
        }
        words.join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn problem(failure: &Failure) -> String {
    failure.line(None).unwrap_or_default()
}

#[tokio::test]
async fn it_is_the_same_every_time_and_replaces_its_own_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demo.db");
    let first = demo(&path, None).await.unwrap();
    let again = demo(&path, None).await.unwrap();
    assert_eq!(timeless(&first), timeless(&again));
    let engine = Engine::open(&path).await.unwrap();
    let session = engine.session(SESSION);
    let numbers = session.history(None, 100).await.unwrap();
    assert_eq!(numbers.last().map(|summary| summary.id), Some(1), "ids begin with 1 again");
    let calls: u64 = session.usage().await.unwrap().iter().map(|sum| sum.calls).sum();
    assert_eq!(calls, numbers.len() as u64, "and so does what was used");
    engine.close().await;
    let wide = first.lines().find(|line| display_width(line) > 80 && !is_command(line));
    assert_eq!(wide, None, "what is piped fits 80 columns");
}

#[tokio::test]
async fn it_fits_every_terminal_width() {
    let folder = tempfile::tempdir().unwrap();
    for width in [20, 40, 60, 80, 120] {
        let shown = demo(&folder.path().join("demo.db"), Some(width)).await.unwrap();
        let wide = shown.lines().find(|line| display_width(line) > width && !is_command(line));
        assert_eq!(wide, None, "at {width}");
        let cut = shown.lines().find(|line| width >= 60 && line.ends_with('…'));
        assert_eq!(cut, None, "at {width}");
        let heads = ["took", "search", "with caching"];
        let whole = |head: &&str| shown.lines().any(|line| line.trim_end().ends_with(head));
        assert!(width < 60 || heads.iter().all(whole), "at {width}: {shown}");
    }
}

#[tokio::test]
async fn a_database_without_a_demo_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let letter = folder.path().join("letter.txt");
    std::fs::write(&letter, "Dear Ann").unwrap();
    assert!(problem(&demo(&letter, None).await.unwrap_err()).contains("letter.txt"));
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "Dear Ann");

    for name in ["demo", "ann"] {
        let mine = folder.path().join(name);
        let engine = Engine::open(&mine).await.unwrap();
        engine.session(name).append(Message::user("Mine.")).await.unwrap();
        let refused = demo(&mine, None).await.unwrap_err();
        assert!(problem(&refused).contains("nothing was changed"), "{refused:?}");
        assert_eq!(engine.session(name).info().await.unwrap().messages, 1);
        engine.close().await;
    }
    assert!(demo(folder.path(), None).await.is_err(), "a folder");
}

#[tokio::test]
async fn a_database_with_another_workspace_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demo.db");
    demo(&path, None).await.unwrap();
    let engine = Engine::open(&path).await.unwrap();
    engine.workspace("mine").session("a").append(Message::user("Mine.")).await.unwrap();
    engine.close().await;
    let refused = demo(&path, None).await.unwrap_err();
    assert!(problem(&refused).contains("nothing was changed"), "{refused:?}");
    let engine = Engine::open(&path).await.unwrap();
    assert_eq!(engine.workspace("mine").session("a").info().await.unwrap().messages, 1);
    engine.close().await;
}

#[test]
fn the_default_path_differs_if_it_is_locked_or_not_writable() {
    let folder = tempfile::tempdir().unwrap();
    let usual = folder.path().join("epitome-demo.db");
    let (path, first) = default_path(folder.path());
    assert_eq!(path, usual);
    let (second, _alone) = default_path(folder.path());
    assert_ne!(second, usual, "while another plays there");
    drop(first);
    assert_eq!(default_path(folder.path()).0, usual);
    // A folder represents another user's file.
    std::fs::create_dir(&usual).unwrap();
    assert_ne!(default_path(folder.path()).0, usual);
}

#[tokio::test]
async fn its_object_agrees_with_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (mut show, out, _) = OutputBuffer::show(true);
    let path = folder.path().join("demo.db");
    run(&Args { fast: false, tokens: 2_000 }, path.to_str(), &mut show).await.unwrap();
    let object: Value = serde_json::from_str(&out.text()).unwrap();
    let contexts = object["contexts"].as_array().unwrap();
    for context in contexts {
        let parts = ["pinned", "summary", "messages"].map(|part| context[part].as_u64().unwrap());
        assert_eq!(parts.iter().sum::<u64>(), context["used"].as_u64().unwrap(), "{context}");
        assert!(context["used"].as_u64() <= context["budget"].as_u64(), "{context}");
        assert_eq!(context["exhaustive"].as_bool().unwrap(), context["gap"].is_null(), "{context}");
    }
    let rule = &object["facts"][0];
    assert_eq!((&rule["message"], &rule["in_contexts"][0]), (&Value::from(2), &Value::from(true)));
    assert!(object["facts"].as_array().unwrap().iter().all(|fact| fact["message"].is_u64()));
    let savings = &object["savings"];
    let (whole, contexts) = (&savings["whole"]["tokens"], &savings["contexts"]["tokens"]);
    assert!(contexts.as_u64().unwrap() <= 2_000 * savings["calls"].as_u64().unwrap());
    let times = whole.as_f64().unwrap() / contexts.as_f64().unwrap();
    assert!((times - savings["times_less"].as_f64().unwrap()).abs() < 0.051, "{savings}");
    for sent in [&savings["whole"], &savings["contexts"]] {
        let dollars =
            sent["tokens"].as_f64().unwrap() * savings["dollars_per_million"].as_f64().unwrap() / 1e6;
        assert!((dollars - sent["dollars"].as_f64().unwrap()).abs() < 0.01, "{sent}");
        assert!(sent["cached"].as_u64() < sent["tokens"].as_u64(), "{sent}");
    }
}

/// Returns whether a line is a command, which is never wrapped.
fn is_command(line: &str) -> bool {
    ["  export ", "  epitome ", "  cargo "].iter().any(|begin| line.starts_with(begin))
}
