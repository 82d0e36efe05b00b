//! Tests that hooks get the removed messages and the result, and that custom prompts and profiles reach the model.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use epitome::hook::{Condensed, DueMessages, Hook, HookError};
use epitome_testkit::scripted::Scripted;

use crate::support::{settle, talk, until, words};

/// Records its calls.
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

impl Memory {
    /// Returns the positions of the messages of each call.
    fn offered(&self) -> Vec<Vec<u64>> {
        let positions = |due: &DueMessages| due.messages.iter().map(|message| message.seq).collect();
        self.due.lock().unwrap().iter().map(positions).collect()
    }

    fn done(&self) -> Vec<Condensed> {
        self.done.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_hook_gets_the_removed_messages_and_its_text_is_in_the_prompt() {
    let (memory, model) = (Memory::default(), Scripted::new());
    let settings = r#""trigger": "messages(20)", "keep": "messages(4)", "model": "m", "wait": true, "instructions": "Be brief.""#;
    let condenser =
        words(settings).model("m", model.clone()).hook(memory.clone()).name("agent one").build().unwrap();
    let mut history = talk(1, 21);
    history[2].pinned = true;
    history[5].skip = true;
    let ready = condenser.before_model(&history).await;
    assert!(ready.report.condensed);
    let left: Vec<u64> = (1..=17).filter(|place| ![3, 6].contains(place)).collect();
    assert_eq!(memory.offered(), [left]);
    until("told of it", || memory.done().len() == 1).await;
    let done = &memory.done()[0];
    assert_eq!(
        (done.covers.from, done.covers.through, &*done.session, &*done.slot),
        (1, 17, "agent one", "condense")
    );
    assert_eq!((&*done.model, done.stand_in), ("scripted", false));
    assert_eq!(
        (done.tokens_before, done.tokens_after),
        (ready.report.tokens_before, ready.report.tokens_after)
    );
    let prompt = model.requests()[0].prompt(20_000).unwrap();
    assert!(prompt.user.contains("From memory: Ann is a wholesaler. 15 messages leave."), "{}", prompt.user);
    assert!(prompt.user.contains("Be brief."));
}

#[tokio::test]
async fn without_a_model_a_hook_gets_each_message_once() {
    for strategy in ["recent", "summarize"] {
        let memory = Memory::default();
        let settings =
            format!(r#""trigger": "messages(20)", "keep": "messages(4)", "strategy": "{strategy}""#);
        let condenser = words(&settings).hook(memory.clone()).build().unwrap();
        let history = talk(1, 90);
        for len in [20, 50, 90] {
            assert!(condenser.before_model(&history[..len]).await.report.condensed);
            settle().await;
        }
        until("offered and told", || memory.offered().len() == 3 && memory.done().len() == 3).await;
        let positions = |from: u64, through: u64| (from..=through).collect::<Vec<u64>>();
        assert_eq!(memory.offered(), [positions(1, 16), positions(17, 46), positions(47, 86)], "{strategy}");
        let taken: Vec<u64> = memory.done().iter().map(|done| done.messages).collect();
        assert_eq!(taken, [16, 30, 40], "{strategy}");
    }
}

#[tokio::test]
async fn a_hook_gets_masked_tool_results() {
    let memory = Memory::default();
    let settings = r#""trigger": "messages(6)", "strategy": "mask(messages(2))""#;
    let condenser = words(settings).hook(memory.clone()).build().unwrap();
    let history =
        epitome_testkit::drawing::messages("s u:40 a(x) r(x):60 a:5 u:30 a(y) r(y):50 a u").unwrap();
    assert!(condenser.before_model(&history).await.report.condensed);
    until("offered", || memory.offered().len() == 1).await;
    assert_eq!(memory.offered(), [[4, 8]]);
}

/// Never returns.
struct Hangs;

#[async_trait]
impl Hook for Hangs {
    fn name(&self) -> &'static str {
        "hangs"
    }

    async fn before(&self, _: &DueMessages) -> Result<Option<String>, HookError> {
        std::future::pending().await
    }

    async fn after(&self, _: &Condensed) -> Result<(), HookError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_delays_no_turn() {
    for (model, strategy) in [("local", "summarize"), ("local", "recent"), ("m", "summarize")] {
        let settings = format!(
            r#""trigger": "messages(20)", "keep": "messages(4)", "model": "{model}", "strategy": "{strategy}""#
        );
        let condenser = words(&settings).model("m", Scripted::new()).hook(Hangs).build().unwrap();
        let start = tokio::time::Instant::now();
        let history = talk(1, 60);
        for len in 1..=60 {
            condenser.before_model(&history[..len]).await;
        }
        assert_eq!(start.elapsed(), std::time::Duration::ZERO, "{model}, {strategy}");
        assert!(condenser.totals().condensed >= 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_the_model_waits_for_hooks_until_their_timeout() {
    let settings = r#""trigger": "messages(20)", "keep": "messages(4)", "model": "m", "wait": true"#;
    let condenser = words(settings).model("m", Scripted::new()).hook(Hangs).build().unwrap();
    let history = talk(1, 20);
    let ready = condenser.before_model(&history).await;
    assert_eq!(ready.report.model.as_deref(), Some("scripted"));
    assert_eq!(ready.report.problems, ["hangs (before): took longer than 5s"]);
}

#[tokio::test]
async fn a_custom_prompt_or_profile_reaches_the_model() {
    let asked = async |settings: &str| {
        let model = Scripted::new();
        let settings = format!(
            r#""trigger": "messages(20)", "keep": "messages(4)", "model": "m", "wait": true, {settings}"#
        );
        let condenser = words(&settings).model("m", model.clone()).build().unwrap();
        condenser.before_model(&talk(1, 20)).await;
        let prompt = model.requests()[0].prompt(20_000).unwrap();
        assert_eq!(model.requests()[0].counter.name(), "words");
        prompt.user
    };
    let own = asked(r#""prompt": "Say it in rhyme: {conversation_text}""#).await;
    assert!(own.starts_with("Say it in rhyme: "), "{own}");
    let (coding, support) = (asked(r#""profile": "coding""#).await, asked(r#""profile": "support""#).await);
    assert_ne!(coding, support);
    assert!(asked(r#""instructions": "In Norwegian.""#).await.contains("In Norwegian."));
}
