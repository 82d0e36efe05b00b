//! Several agents in one session, each with its own summary.

use epitome::model::SummaryInput;
use epitome::rules::message::{Message, Seq};
use epitome::{ContextRequest, Page, Session, Summarize, Summary};
use epitome_testkit::scripted::{Gate, Scripted};

use crate::support::{
    Home, current_summary, fast_pace, on_every_store, prompt_messages, shown, talk, wait_until,
    with_settings, within_timeout,
};

const AGENTS: &str = r#", "slot": [
    {"name": "own", "scope": "ann", "trigger": "messages(10)"},
    {"name": "own", "scope": "bob", "trigger": "messages(10)"},
    {"name": "all", "trigger": "messages(40)"}]"#;

/// Ann and Bob in turn.
fn agents(from: usize, through: usize) -> Vec<Message> {
    let mut said = talk(from, through);
    for (n, message) in (from..).zip(&mut said) {
        message.author = Some(if n % 2 == 1 { "ann" } else { "bob" }.into());
    }
    said
}

async fn own(session: &Session, author: &str) -> Option<Summary> {
    let all = session.summaries().await.unwrap();
    all.into_iter().find(|summary| summary.scope.as_deref() == Some(author))
}

fn every_other(from: Seq, through: Seq) -> Vec<Seq> {
    (from..=through).step_by(2).collect()
}

#[tokio::test]
async fn each_agents_messages_are_summarized_separately() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(with_settings(&model, AGENTS)).await;
        let session = engine.session("s");
        session.append(agents(1, 24)).await.unwrap();
        session.work().await.unwrap();
        let (ann, bob) = (own(&session, "ann").await.unwrap(), own(&session, "bob").await.unwrap());
        assert_eq!((ann.through, bob.through), (19, 20));
        let mut read: Vec<Vec<Seq>> = model.requests().iter().map(prompt_messages).collect();
        read.sort();
        assert_eq!(read, [every_other(1, 19), every_other(2, 20)]);
        let beneath = session.expand(ann.id, Page::default()).await.unwrap();
        assert_eq!(beneath.iter().map(|message| message.seq).collect::<Vec<_>>(), every_other(1, 19));
        let request = ContextRequest { scope: Some("ann".into()), ..4_000.into() };
        let context = session.context(request).await.unwrap();
        assert!(context.report.exhaustive);
        assert_eq!(context.summary.as_ref().unwrap().id, Some(ann.id));
        assert!(shown(&context).iter().all(|seq| seq % 2 == 1));
        assert!(shown(&context).ends_with(&[21, 23]));
        // The context of the whole session does not use the summary of one agent.
        let whole = session.context(4_000).await.unwrap();
        assert!(whole.summary.is_none() && shown(&whole).len() == 24);
        assert_eq!(session.undo(bob.id).await.unwrap(), None);
        assert_eq!(own(&session, "ann").await.unwrap().id, ann.id);
    })
    .await;
}

#[tokio::test]
async fn the_sessions_summarizer_sees_an_agents_summary_in_place_of_its_messages() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(with_settings(&model, AGENTS)).await;
        let session = engine.session("s");
        session.append(agents(1, 26)).await.unwrap();
        session.work().await.unwrap();
        session.append(agents(27, 30)).await.unwrap();
        session.append(talk(31, 40)).await.unwrap();
        session.work().await.unwrap();
        let (ann, bob) = (own(&session, "ann").await.unwrap(), own(&session, "bob").await.unwrap());
        assert_eq!(current_summary(&session, "all").await.unwrap().through, 40);
        let ask =
            model.requests().into_iter().find(|ask| ask.inputs.iter().any(|told| told.message().is_none()));
        let ask = ask.expect("the session's slot was shown summaries");
        let told: Vec<(&str, &str)> = ask
            .inputs
            .iter()
            .filter_map(|told| match told {
                SummaryInput::Summary { author, text } => Some((&**author, text.as_str())),
                SummaryInput::Message(_) => None,
            })
            .collect();
        assert_eq!(told, [("ann", ann.text.as_str()), ("bob", bob.text.as_str())]);
        let rest: Vec<Seq> = (1..=40)
            .filter(|seq| *seq > 30 || if seq % 2 == 1 { *seq > ann.through } else { *seq > bob.through })
            .collect();
        assert_eq!(prompt_messages(&ask), rest);
        assert!(ask.prompt(50_000).unwrap().user.contains(&ann.text));
        let context = session.context(4_000).await.unwrap();
        assert!(context.report.exhaustive && context.summary.unwrap().through == 40);
    })
    .await;
}

#[tokio::test]
async fn two_agents_are_summarized_concurrently() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(with_settings(&model, AGENTS).pace(fast_pace(4))).await;
        let session = engine.session("s");
        for round in 1..=4usize {
            let gates = [Gate::new(), Gate::new()];
            for gate in &gates {
                let _ = model.clone().waits_for(gate).answers(|ask| Ok(Scripted::plain(ask)));
            }
            session.append(agents(round * 20 - 19, round * 20)).await.unwrap();
            within_timeout("both calls", async { tokio::join!(gates[0].reached(), gates[1].reached()) })
                .await;
            gates.iter().for_each(Gate::open);
            let ends_at = round as u64 * 20;
            wait_until("both summaries", || async {
                let both = (own(&session, "ann").await, own(&session, "bob").await);
                let (Some(ann), Some(bob)) = both else { return false };
                (ann.through, bob.through) == (ends_at - 1, ends_at)
            })
            .await;
            within_timeout("the rest", engine.work()).await.unwrap();
        }
        let all = session.history(None, 100).await.unwrap();
        for author in ["ann", "bob"] {
            let own: Vec<_> = all.iter().filter(|summary| summary.scope.as_deref() == Some(author)).collect();
            assert_eq!(own.len(), 4);
            assert!(own.windows(2).all(|pair| pair[0].parent == Some(pair[1].id)));
        }
        assert_eq!(engine.verify().await.unwrap(), []);
        engine.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_forced_summary_can_be_limited_to_one_agent() {
    let home = Home::memory();
    let model = Scripted::new();
    let engine = home.open(with_settings(&model, AGENTS)).await;
    let session = engine.session("s");
    session.append(agents(1, 15)).await.unwrap();
    let wish = Summarize { scope: Some("bob".into()), ..Summarize::default() };
    let done = session.summarize(wish.clone()).await.unwrap();
    assert_eq!(done.summary().unwrap().through, 14);
    assert_eq!(prompt_messages(&model.requests()[0]), every_other(2, 14));
    assert!(own(&session, "ann").await.is_none());
    // Ann speaks, which is nothing new for Bob.
    session.append(agents(17, 17)).await.unwrap();
    let again = session.summarize(wish).await.unwrap();
    assert_eq!((again.summary().unwrap().through, model.calls()), (14, 1));
}

#[tokio::test]
async fn short_messages_with_short_author_summaries_need_no_model() {
    let home = Home::memory();
    let model = Scripted::new();
    let more = r#", "slot": [
        {"name": "own", "scope": "ann", "trigger": "messages(4)"},
        {"name": "all", "trigger": "messages(8)"}]"#;
    let engine = home.open(with_settings(&model, more)).await;
    let session = engine.session("s");
    let word =
        |n: usize, author: &str| Message { author: Some(author.into()), ..Message::user(format!("word{n}")) };
    session
        .append((1..=8).map(|n| word(n, if n <= 4 { "ann" } else { "bob" })).collect::<Vec<_>>())
        .await
        .unwrap();
    session.work().await.unwrap();
    let all = current_summary(&session, "all").await.unwrap();
    assert_eq!((all.through, all.model.as_str(), model.calls()), (8, "verbatim", 0));
    assert!((1..=8).all(|n| all.text.contains(&format!("word{n}"))), "{}", all.text);
}

#[tokio::test]
async fn the_sessions_summarizer_gets_the_agent_summary_that_covers_most() {
    for (short, long) in [("a", "b"), ("b", "a")] {
        let slots = format!(
            r#", "slot": [{{"name": "{short}", "scope": "ann", "trigger": "messages(4)"}},
                {{"name": "{long}", "scope": "ann", "trigger": "messages(10)"}},
                {{"name": "all", "trigger": "messages(40)"}}]"#
        );
        let model = Scripted::new();
        let engine = Home::memory().open(with_settings(&model, &slots)).await;
        let session = engine.session("s");
        session.append(agents(1, 26)).await.unwrap();
        session.work().await.unwrap();
        let all = session.summaries().await.unwrap();
        let furthest = all.iter().find(|summary| summary.slot == short).unwrap();
        assert_eq!(all.iter().map(|summary| summary.through).min(), Some(19));
        assert_eq!(furthest.through, 23);
        session.append(talk(27, 40)).await.unwrap();
        session.work().await.unwrap();
        let ask = model.requests().pop().unwrap();
        let told = ask.inputs.iter().find_map(|told| match told {
            SummaryInput::Summary { text, .. } => Some(text.as_str()),
            SummaryInput::Message(_) => None,
        });
        assert_eq!(told, Some(furthest.text.as_str()));
        assert!(prompt_messages(&ask).iter().all(|seq| seq % 2 == 0 || *seq > 23));
    }
}
