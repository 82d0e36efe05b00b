//! Hooks see the summarized messages, add to the prompt, get the result, and cannot prevent a summary by failing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use epitome::hook::{Condensed, DueMessages, Hook, HookError};
use epitome::rules::message::Message;
use epitome_testkit::scripted::Scripted;

use crate::support::{
    Home, coverage, current_summary, fast_pace, history, on_every_store, one_slot, talk, wait_until,
    with_settings, within_timeout,
};

/// Writes down what it is shown.
#[derive(Clone, Default)]
struct Memory {
    due: Arc<Mutex<Vec<DueMessages>>>,
    done: Arc<Mutex<Vec<Condensed>>>,
}

#[async_trait]
impl Hook for Memory {
    async fn before(&self, due: &DueMessages) -> Result<Option<String>, HookError> {
        self.due.lock().unwrap().push(due.clone());
        Ok(Some(format!("From memory: Ann is a wholesaler. {} messages leave.", due.messages.len())))
    }

    async fn after(&self, done: &Condensed) -> Result<(), HookError> {
        self.done.lock().unwrap().push(done.clone());
        Ok(())
    }
}

#[tokio::test]
async fn before_sees_exactly_the_summarized_messages_and_its_text_reaches_the_prompt() {
    on_every_store(async |home| {
        let (memory, model) = (Memory::default(), Scripted::new());
        let slots = r#", "slot": [{"name": "short", "trigger": "messages(20)", "keep": "messages(4)", "instructions": "Be brief."}]"#;
        let engine = home.open(with_settings(&model, slots).hook(memory.clone())).await;
        let session = engine.workspace("acme").session("s");
        let mut said = talk(1, 40);
        said[6].skip = true;
        session.append(said).await.unwrap();
        session.work().await.unwrap();
        let due = memory.due.lock().unwrap().clone();
        let log = session.messages(epitome::Page::default()).await.unwrap();
        let seqs = |due: &DueMessages| due.messages.iter().map(|m| m.seq).collect::<Vec<_>>();
        assert_eq!(due.len(), 1);
        assert_eq!(seqs(&due[0]), (1..=17).filter(|seq| *seq != 7).collect::<Vec<u64>>());
        assert!(due[0].messages.iter().all(|message| log[message.seq as usize - 1] == *message));
        assert_eq!((&*due[0].workspace, &*due[0].session, &*due[0].slot), ("acme", "s", "short"));
        assert_eq!((due[0].span.from, due[0].span.through, &due[0].scope), (1, 17, &None));
        let prompt = model.requests()[0].prompt(20_000).unwrap();
        assert!(prompt.user.contains("From memory: Ann is a wholesaler. 16 messages leave."), "{}", prompt.user);
        assert!(prompt.user.contains("Be brief."));
    })
    .await;
}

#[tokio::test]
async fn after_gets_the_result_and_a_notice() {
    let home = Home::memory();
    let (memory, model) = (Memory::default(), Scripted::new());
    let engine = home.open(one_slot(&model).hook(memory.clone())).await;
    let session = engine.session("s");
    session.append(talk(1, 40)).await.unwrap();
    session.work().await.unwrap();
    let done = memory.done.lock().unwrap().clone();
    let all = history(&session, "short").await;
    assert_eq!(done.len(), 2);
    for (done, summary) in done.iter().zip(&all) {
        assert_eq!(
            done.to_string(),
            format!(
                "Condensed 20 messages into a summary, {} → {} tokens",
                summary.replaced_tokens, summary.tokens
            )
        );
        assert_eq!((done.covers.through, &*done.model, done.stand_in), (summary.through, "scripted", false));
    }
}

#[tokio::test]
async fn hooks_get_short_messages_too_although_no_model_is_called() {
    let home = Home::memory();
    let (memory, model) = (Memory::default(), Scripted::new());
    let engine = home.open(one_slot(&model).hook(memory.clone())).await;
    let session = engine.session("s");
    session.append(vec![Message::user("Ping"); 20]).await.unwrap();
    session.work().await.unwrap();
    assert_eq!((model.calls(), memory.due.lock().unwrap().len()), (0, 1));
    assert_eq!(memory.due.lock().unwrap()[0].messages.len(), 20);
    assert_eq!(memory.done.lock().unwrap().len(), 1);
}

/// Everything a hook can do wrong.
#[derive(Clone, Copy)]
pub(crate) enum Bad {
    Fails,
    Panics,
    Hangs,
}

#[async_trait]
impl Hook for Bad {
    fn name(&self) -> &str {
        "bad"
    }

    async fn before(&self, _: &DueMessages) -> Result<Option<String>, HookError> {
        self.act().await.map(|()| None)
    }

    async fn after(&self, _: &Condensed) -> Result<(), HookError> {
        self.act().await
    }
}

impl Bad {
    async fn act(self) -> Result<(), HookError> {
        match self {
            Self::Fails => Err(HookError::new("the memory is full")),
            Self::Panics => panic!("a hook panics, as it is meant to"),
            Self::Hangs => std::future::pending().await,
        }
    }
}

#[tokio::test]
async fn hooks_that_fail_panic_or_hang_stop_no_summary_and_are_reported() {
    for (bad, told) in
        [(Bad::Fails, "the memory is full"), (Bad::Panics, "panicked"), (Bad::Hangs, "took longer than 30ms")]
    {
        for workers in [0, 2] {
            let home = Home::memory();
            let (memory, model) = (Memory::default(), Scripted::new());
            let builder =
                one_slot(&model).hook(bad).hook(memory.clone()).hook_timeout(Duration::from_millis(30));
            let engine = home.open(builder.pace(fast_pace(workers))).await;
            let session = engine.session("s");
            session.append(talk(1, 40)).await.unwrap();
            within_timeout("work", engine.work()).await.unwrap();
            wait_until("the summaries", || async { coverage(&session, "short").await == [20, 40] }).await;
            // The other hook did its work.
            assert_eq!(memory.due.lock().unwrap().len(), 2);
            let prompt = model.requests()[0].prompt(20_000).unwrap();
            assert!(prompt.user.contains("Ann is a wholesaler"));
            wait_until("the last word", || async {
                engine.worker_problem().is_some_and(|line| line.contains("after"))
            })
            .await;
            // It is still there when the worker has looked around again.
            tokio::time::sleep(Duration::from_millis(40)).await;
            assert_eq!(engine.worker_problem().unwrap(), format!("bad (after): {told}"));
            assert!(current_summary(&session, "short").await.is_some());
            engine.close().await;
        }
    }
}
