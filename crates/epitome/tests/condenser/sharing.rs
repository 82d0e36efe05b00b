//! Tests one condenser with several agents, several condensers, and lists that do not only grow.

use std::sync::Arc;

use epitome::Condenser;
use epitome::rules::condense::{ListState, Press};
use epitome::rules::message::Message;
use epitome_testkit::scripted::{Gate, Scripted};

use crate::support::{complaints, forced, summary, talk, talk_of, texts, until, words};

const AGENTS: usize = 8;

/// Returns the message of an agent at position `n`: the same for all agents, except sometimes for a word in the middle
/// of a long text.
fn said(agent: usize, n: usize) -> Message {
    let user = n % 2 == 1;
    let text = match n % 7 {
        3 => format!(
            "{0}secret{agent} is the word of this one. {0}",
            "A line that all of them share, as it is. ".repeat(8)
        ),
        _ => format!("Order {n} goes to berth {} on ship S{n}042 and nobody knows why.", n % 9),
    };
    if user { Message::user(text) } else { Message::assistant(text) }
}

fn assert_own(agent: usize, shown: &[Message], history: &[Message]) {
    let all = texts(shown);
    for other in (0..AGENTS).filter(|other| *other != agent) {
        assert!(!all.contains(&format!("secret{other}")), "{agent} was shown a word of {other}");
    }
    assert_eq!(shown.last(), history.last(), "{agent}: the last message is its own");
    assert_eq!(complaints(shown), Vec::<String>::new(), "{agent}");
}

async fn run_session(
    condenser: Condenser,
    agent: usize,
    turns: usize,
    continues_with_returned: bool,
) -> usize {
    let mut history = vec![Message::system("You are one of several.")];
    let (mut n, mut passes) = (0, 0);
    for turn in 0..turns {
        for _ in 0..1 + turn % 2 * 2 {
            n += 1;
            history.push(said(agent, n));
        }
        let ready = condenser.before_model(&history).await;
        assert_own(agent, &ready, &history);
        passes += usize::from(ready.report.condensed);
        if continues_with_returned {
            history = ready.into_messages();
        }
        if turn % 5 == agent % 5 {
            tokio::task::yield_now().await;
        }
    }
    passes
}

async fn share(condenser: Condenser, turns: usize) {
    let agents: Vec<_> = (0..AGENTS)
        .map(|agent| tokio::spawn(run_session(condenser.clone(), agent, turns, agent % 3 == 2)))
        .collect();
    for agent in agents {
        assert!(agent.await.unwrap() > 5, "it was condensed now and then");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn agents_that_share_a_condenser_never_see_each_others_messages() {
    let settings = r#""trigger": "messages(9)", "keep": "messages(4)""#;
    share(words(settings).build().unwrap(), 200).await;
    share(words(&format!(r#"{settings}, "strategy": "recent""#)).build().unwrap(), 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nor_when_they_wait_for_a_model() {
    let settings = r#""trigger": "messages(9)", "keep": "messages(4)", "model": "m""#;
    for wait in ["true", "false"] {
        let builder = words(&format!(r#"{settings}, "wait": {wait}"#)).model("m", Scripted::new());
        share(builder.build().unwrap(), 60).await;
    }
}

#[tokio::test]
async fn a_list_that_differs_in_one_unsampled_word_is_another_conversation() {
    // The condenser has seen only the first agent, and its list is condensed. The difference is in the middle of a long
    // text.
    let condenser = words(r#""trigger": "messages(30)", "keep": "messages(12)""#).build().unwrap();
    let list = |agent| (1..=31).map(|n| said(agent, n)).collect::<Vec<_>>();
    let (first, second) = (list(0), list(1));
    assert_own(0, &condenser.before_model(&first).await, &first);
    assert_own(1, &condenser.before_model(&second).await, &second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_added_while_another_caller_waits_are_not_shown_to_that_caller() {
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate);
    let settings = r#""trigger": "messages(12)", "keep": "messages(4)", "model": "m", "wait": true"#;
    let condenser = words(settings).model("m", model.clone()).build().unwrap();
    let history = talk(1, 13);
    let waiting = tokio::spawn({
        let (condenser, history) = (condenser.clone(), history.clone());
        async move { condenser.before_model(&history).await.into_messages() }
    });
    gate.reached().await;
    let mut other = history.clone();
    other.push(Message::assistant("Nobody else's."));
    let gone_on = tokio::spawn(async move { condenser.before_model(&other).await.into_messages() });
    until("both ask", || model.calls() == 2).await;
    gate.open();
    let shown = waiting.await.unwrap();
    assert!(!texts(&shown).contains("Nobody else's."));
    assert_eq!(shown.last(), history.last());
    assert_eq!(texts(&gone_on.await.unwrap()).matches("Nobody else's.").count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_list_from_two_tasks_at_once_is_right_for_both() {
    let condenser = words(r#""trigger": "messages(12)", "keep": "messages(4)""#).build().unwrap();
    let history = Arc::new(talk(1, 200));
    for len in 1..=200 {
        let ask = |condenser: Condenser, history: Arc<Vec<Message>>| async move {
            condenser.before_model(&history[..len]).await.into_messages()
        };
        let one = tokio::spawn(ask(condenser.clone(), Arc::clone(&history)));
        let two = tokio::spawn(ask(condenser.clone(), Arc::clone(&history)));
        for shown in [one.await.unwrap(), two.await.unwrap()] {
            assert_eq!(shown.last(), history[..len].last());
            assert!(complaints(&shown).is_empty() && shown.len() <= 20, "{len}: {}", shown.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_callers_that_wait_for_a_summary_one_inserts_it_and_both_get_it() {
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate).answers(|ask| Ok(Scripted::plain(ask)));
    let settings = r#""trigger": "messages(12)", "keep": "messages(4)", "model": "m", "wait": true"#;
    let condenser = words(settings).model("m", model.clone()).build().unwrap();
    let history = Arc::new(talk(1, 14));
    let ask = |condenser: Condenser, history: Arc<Vec<Message>>| async move {
        let ready = condenser.before_model(&history).await;
        (ready.report.reason.clone(), ready.report.problems.clone(), ready.into_messages())
    };
    let one = tokio::spawn(ask(condenser.clone(), Arc::clone(&history)));
    gate.reached().await;
    let two = ask(condenser.clone(), Arc::clone(&history)).await;
    gate.open();
    let one = one.await.unwrap();
    assert_eq!(model.calls(), 2);
    assert_eq!((two.0.as_str(), one.0.as_str()), ("due", "not_due"));
    assert!(one.1.is_empty() && one.2 == two.2);
    assert_eq!(condenser.totals().calls, 2, "both are told of");
}

#[tokio::test]
async fn two_agents_with_two_condensers_share_nothing() {
    let one = words(r#""trigger": "messages(12)", "keep": "messages(4)""#).build().unwrap();
    let two = one.another();
    let history = talk(1, 12);
    assert!(one.before_model(&history).await.report.condensed);
    assert_eq!((one.totals().turns, two.totals().turns), (1, 0));
    // The other condenser has never seen the list, so it condenses it itself.
    assert!(two.before_model(&history).await.report.condensed);
    assert!(!one.before_model(&history).await.report.condensed);
    assert_eq!((one.totals().condensed, two.totals().condensed), (1, 1));
}

#[tokio::test]
async fn an_evicted_conversation_is_condensed_from_the_start_and_correct() {
    let condenser = words(r#""trigger": "messages(12)", "keep": "messages(4)""#).build().unwrap();
    let list = |agent: usize| {
        let mut list = vec![Message::system(format!("You are number {agent}."))];
        list.extend(talk(100 * agent + 1, 12));
        list
    };
    let lists: Vec<Vec<Message>> = (0..70).map(list).collect();
    for list in &lists {
        assert!(condenser.before_model(list).await.report.condensed);
    }
    // The newest are cached, so nothing is due. The oldest were evicted, and are condensed from the start.
    assert!(!condenser.before_model(&lists[69]).await.report.condensed);
    assert!(!condenser.before_model(&lists[6]).await.report.condensed);
    let again = condenser.before_model(&lists[0]).await;
    assert!(again.report.condensed);
    assert_eq!(again[0], lists[0][0]);
    // A conversation in use is not evicted.
    for list in &lists[1..40] {
        condenser.before_model(list).await;
        assert!(!condenser.before_model(&lists[69]).await.report.condensed);
    }
}

#[tokio::test]
async fn a_message_edited_in_place_is_noticed_before_a_cut() {
    let condenser = words(r#""trigger": "messages(300)", "keep": "messages(4)""#).build().unwrap();
    let mut history = talk(1, 290);
    condenser.before_model(&history).await;
    history[100] = Message::user("Password reset for Bob: this was edited.");
    history.extend(talk(291, 10));
    let ready = condenser.before_model(&history).await;
    assert!(ready.report.condensed && ready.report.covers == Some([1, 296]));
    // A change in a message that stays is noticed immediately.
    let mut edited = history.clone();
    edited[298] = Message::user("The newest was edited.");
    let ready = condenser.before_model(&edited).await;
    assert!(texts(&ready).contains("The newest was edited."), "{}", texts(&ready));
}

#[tokio::test]
async fn a_list_that_is_shortened_and_continued_differently_keeps_its_summary() {
    let condenser = words(r#""trigger": "messages(12)", "keep": "messages(4)""#).build().unwrap();
    let mut history = talk(1, 12);
    let before = condenser.before_model(&history).await.into_messages();
    history.extend(talk(13, 3));
    condenser.before_model(&history).await;
    // The agent tries again: its last two messages are removed, and others follow.
    history.truncate(13);
    history.push(Message::assistant("Said in another way."));
    let again = condenser.before_model(&history).await;
    assert!(!again.report.condensed && again.starts_with(&before));
    assert!(again.last() == history.last() && complaints(&again).is_empty());
    // A list shorter than the condensed part is another conversation, and complete.
    history.truncate(6);
    let again = condenser.before_model(&history).await;
    assert!(again.is_untouched() && *again == *history);
}

#[tokio::test]
async fn a_fork_inherits_the_providers_counts() {
    let condenser = words(r#""trigger": "tokens(3000)", "keep": "messages(4)""#).build().unwrap();
    let mut history = talk_of(1, 40, 100);
    let ready = condenser.before_model(&history).await;
    assert!(ready.report.condensed);
    ready.turn().reported(200);
    drop(ready);
    history.extend(talk_of(41, 20, 100));
    let ready = condenser.before_model(&history).await;
    assert!(!ready.report.condensed && ready.report.tokens_before < 2_300, "{:?}", ready.report);
    let tokens = ready.report.tokens_before;
    drop(ready);
    history.pop();
    history.push(Message::assistant("Another end."));
    let again = condenser.before_model(&history).await;
    assert!(!again.report.condensed && again.report.tokens_before <= tokens, "{:?}", again.report);
}

#[tokio::test]
async fn forks_of_one_conversation_are_independent() {
    let condenser = words(r#""trigger": "messages(12)", "keep": "messages(4)""#).build().unwrap();
    let trunk = talk(1, 12);
    let start = condenser.before_model(&trunk).await.into_messages();
    let mut forks: Vec<Vec<Message>> = (0..5).map(|_| trunk.clone()).collect();
    for turn in 0..4 {
        for (at, fork) in forks.iter_mut().enumerate() {
            fork.push(Message::user(format!("Only fork {at} says this, in turn {turn}.")));
            let ready = condenser.before_model(fork).await;
            assert!(ready.starts_with(&start));
            let all = texts(&ready);
            for other in (0..5).filter(|other| *other != at) {
                assert!(!all.contains(&format!("Only fork {other}")));
            }
        }
    }
}

#[tokio::test]
async fn a_conversation_resumes_after_a_restart_byte_for_byte() {
    let build = || words(r#""trigger": "messages(12)", "keep": "messages(4)""#).build().unwrap();
    let condenser = build();
    let mut history = talk(1, 12);
    condenser.before_model(&history).await;
    history.extend(talk(13, 3));
    let ready = condenser.before_model(&history).await;
    let stored = serde_json::to_string(&ready.turn().list_state()).unwrap();
    let standing: ListState = serde_json::from_str(&stored).unwrap();

    let restarted = build();
    restarted.resume(&history, &standing);
    let again = restarted.before_model(&history).await;
    assert!(!again.report.condensed && *again == *ready);
    assert_eq!(again.report.tokens_after, ready.report.tokens_after);
    drop((ready, again));
    // Both continue in the same way.
    for (from, count) in [(16, 2), (18, 9), (27, 3), (30, 9)] {
        history.extend(talk(from, count));
        let (one, two) = (condenser.before_model(&history).await, restarted.before_model(&history).await);
        assert_eq!((one.report.condensed, one.report.covers), (two.report.condensed, two.report.covers));
        assert_eq!(one.len(), two.len());
    }
}

#[tokio::test]
async fn a_caller_that_continues_with_the_returned_list_is_recognised_and_builds_on_its_summary() {
    let condenser = words(r#""trigger": "messages(12)", "keep": "messages(4)""#).build().unwrap();
    let mut list = talk(1, 12);
    list = condenser.before_model(&list).await.into_messages();
    assert_eq!(list.len(), 5);
    for n in 0..40 {
        list.extend(talk(13 + n, 1));
        let ready = condenser.before_model(&list).await;
        assert!(summary(&ready).is_some() && complaints(&ready).is_empty());
        list = ready.into_messages();
    }
    let again = forced(&condenser, &list, Press::Gently).await;
    let found: Vec<_> = again.iter().filter_map(epitome::rules::view::recognise).collect();
    assert_eq!(found.len(), 1);
    assert!(found[0].through > 40, "places count the whole conversation: {}", found[0].through);
}
