//! Workspaces are served in turn: a long backlog or a slow model of one workspace does not delay the others.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use epitome::hook::{Condensed, DueMessages, Hook, HookError};
use epitome::rules::message::Message;
use epitome::settings::Patch;
use epitome::{Builder, Engine};
use epitome_testkit::scripted::{Gate, Scripted};

use crate::support::{Home, fast_pace, talk, wait_until};

const SMALL: [&str; 5] = ["acme", "bolt", "inge", "jazz", "zoom"];

/// Each session has four slots.
const SLOTS: &str = r#""slot": [{"name": "a", "trigger": "messages(2)"}, {"name": "b", "trigger": "messages(2)"},
    {"name": "c", "trigger": "messages(2)"}, {"name": "d", "trigger": "messages(2)"}]"#;

/// Records the workspaces of stored summaries, in order.
#[derive(Clone, Default)]
struct Served(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Hook for Served {
    async fn before(&self, _: &DueMessages) -> Result<Option<String>, HookError> {
        Ok(None)
    }

    async fn after(&self, done: &Condensed) -> Result<(), HookError> {
        self.0.lock().unwrap().push(done.workspace.to_string());
        Ok(())
    }
}

impl Served {
    fn list(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn builder(main: &Scripted, slow: &Scripted) -> Builder {
    let settings = format!(r#"{{{SLOTS}, "summarize": {{"models": ["main"], "stand_in_after": "never"}}}}"#);
    Engine::builder().model("main", main.clone()).model("slow", slow.clone()).settings(&settings).workers(0)
}

/// Two messages, long enough to need a model.
fn long() -> Vec<Message> {
    let words = |n| {
        let line = |item| format!("Item {item} of order {n}0071 was not in the parcel that came on Monday.");
        (1..=20).map(line).collect::<Vec<_>>().join("\n")
    };
    vec![Message::user(words(1)), Message::assistant(words(2))]
}

/// One workspace with ten thousand slots due, and five with a few, which came later.
async fn crowd(home: &Home, main: &Scripted, slow: &Scripted) -> Engine {
    let engine = home.open(builder(main, slow)).await;
    let huge = engine.workspace("huge");
    huge.set(&Patch::parse(r#"{"summarize": {"models": ["slow"]}}"#).unwrap()).await.unwrap();
    // Those that wait longest are long enough to need a model.
    huge.session("first").append(long()).await.unwrap();
    let mut all = tokio::task::JoinSet::new();
    for n in 1..2_500 {
        let session = huge.session(format!("s{n}"));
        all.spawn(async move { session.append(talk(1, 2)).await.unwrap() });
    }
    all.join_all().await;
    for name in SMALL {
        engine.workspace(name).session("s").append(long()).await.unwrap();
    }
    assert_eq!(engine.backlog().await.unwrap().due, 10_020);
    engine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_workspace_with_a_slow_model_delays_no_other_workspace() {
    let home = Home::file();
    let gate = Gate::new();
    let mut slow = Scripted::new().named("slow");
    for _ in 0..4 {
        slow = slow.waits_for(&gate).answers(|ask| Ok(Scripted::plain(ask)));
    }
    let main = Scripted::new();
    let filling = crowd(&home, &main, &slow).await;

    // Alone with one worker: everybody has a turn in each round.
    let served = Served::default();
    gate.open();
    let one = home.open(builder(&main, &slow).hook(served.clone()).pace(fast_pace(1))).await;
    wait_until("three rounds", || async { served.list().len() >= 18 }).await;
    one.close().await;
    let first = served.list();
    let mut round = first[..6].to_vec();
    round.sort();
    assert_eq!(round, ["acme", "bolt", "huge", "inge", "jazz", "zoom"], "{first:?}");
    assert_eq!(first[6..12], first[..6]);
    assert_eq!(first[12..18], first[..6]);
    assert_eq!(filling.verify().await.unwrap(), []);
    filling.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_workspace_occupies_all_workers_while_its_model_does_not_answer() {
    let home = Home::file();
    let gate = Gate::new();
    let mut slow = Scripted::new().named("slow");
    for _ in 0..4 {
        slow = slow.waits_for(&gate).answers(|ask| Ok(Scripted::plain(ask)));
    }
    let main = Scripted::new();
    let filling = home.open(builder(&main, &slow)).await;
    let huge = filling.workspace("huge");
    huge.set(&Patch::parse(r#"{"summarize": {"models": ["slow"]}}"#).unwrap()).await.unwrap();
    for n in 0..50 {
        huge.session(format!("s{n}")).append(long()).await.unwrap();
    }
    let served = Served::default();
    let four = home.open(builder(&main, &slow).hook(served.clone()).pace(fast_pace(4))).await;
    wait_until("it holds four workers", || async { slow.calls() == 4 }).await;
    // Whoever comes now is served all the same, one after the other.
    for name in SMALL {
        four.workspace(name).session("s").append(long()).await.unwrap();
    }
    wait_until("all of the small ones", || async { served.list().len() == 20 }).await;
    assert_eq!(slow.calls(), 4, "there is room for others");
    let list = served.list();
    assert!(list.iter().all(|workspace| workspace != "huge"), "{list:?}");
    gate.open();
    wait_until("the huge one goes on", || async { served.list().iter().any(|name| name == "huge") }).await;
    four.close().await;
    assert_eq!(filling.verify().await.unwrap(), []);
    filling.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_with_a_long_backlog_lets_others_have_their_turns() {
    let home = Home::file();
    let (main, slow) = (Scripted::new(), Scripted::new());
    let filling = home.open(builder(&main, &slow)).await;
    // Two hundred windows of each of its slots are due.
    filling.workspace("huge").session("s").append(talk(1, 400)).await.unwrap();
    for name in SMALL {
        filling.workspace(name).session("s").append(long()).await.unwrap();
    }
    let served = Served::default();
    let one = home.open(builder(&main, &slow).hook(served.clone()).pace(fast_pace(1))).await;
    let small = |list: &[String]| list.iter().filter(|workspace| *workspace != "huge").count();
    wait_until("all of the small ones", || async { small(&served.list()) == 20 }).await;
    let list = served.list();
    let last = list.iter().rposition(|workspace| workspace != "huge").unwrap();
    // Four rounds, in each of which the huge one has a few windows in a row.
    assert!(last < 20 + 5 * 8, "{list:?}");
    one.close().await;
    // Nothing is left out.
    filling.work().await.unwrap();
    assert_eq!(filling.backlog().await.unwrap().due, 0);
    for summary in filling.workspace("huge").session("s").summaries().await.unwrap() {
        assert_eq!(summary.through, 400);
    }
    assert_eq!(filling.verify().await.unwrap(), []);
    filling.close().await;
}
