//! Which faults a replay attributes to a policy, and which it does not.

use epitome::rules::message::{Content, Message, Part, Role, ToolResult};

use super::{Conversation, Outcome, PlayOptions, Policy, ReplayEvent, play};

async fn played(messages: Vec<Message>, policy: Policy, budget: u64) -> (Outcome, Vec<(usize, u64)>) {
    let conversation = Conversation { messages, ..Conversation::named("talk") };
    let options = PlayOptions { budgets: vec![budget], ..PlayOptions::default() };
    let mut requests = Vec::new();
    let mut take = |made: ReplayEvent<'_>| {
        if let ReplayEvent::Request { tokens, .. } = made {
            requests.push((tokens.len(), tokens.iter().sum()));
        }
    };
    let outcomes = play(&conversation, &policy, &options, &mut take).await.unwrap();
    (outcomes.into_iter().next().unwrap(), requests)
}

fn calls(ids: &[&str]) -> Message {
    Message::new(Role::Assistant, ids.iter().map(|id| Part::call(*id, "read", "{}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_sent_one_by_one() {
    let result = |id: &str| {
        let content = vec![Content::Text { text: format!("result of {id}") }];
        Part::ToolResult(ToolResult { call: id.into(), content, error: false })
    };
    let results = Message::new(Role::Tool, [result("a"), result("b")]);
    let messages =
        vec![Message::user("Read both."), calls(&["a", "b"]), results, Message::assistant("Done.")];
    let (outcome, requests) = played(messages, Policy::whole(), 1_000).await;
    assert_eq!(requests.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(outcome.cost.plain, requests.iter().map(|(_, tokens)| tokens).sum::<u64>());
    assert_eq!((outcome.cost.calls, outcome.cuts), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_recording_is_no_fault_of_a_policy() {
    let twice = || [calls(&["a"]), Message::tool("a", "one"), Message::user("Again.")];
    let mut messages = vec![Message::assistant("I begin.")];
    messages.extend(twice());
    messages.extend(twice());
    messages.push(Message::assistant("Done."));
    for policy in [Policy::whole(), Policy::inline(Some(100_000)), Policy::slots()] {
        let name = policy.name.clone();
        let (outcome, _) = played(messages.clone(), policy, 1_000).await;
        assert_eq!((outcome.faulty, outcome.faults), (0, Vec::new()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_left_out_because_of_a_large_result_are_a_gap_and_no_fault() {
    let mut messages = vec![Message::user("Look at order 7071.")];
    messages
        .extend((0..6).map(|n| Message::assistant(format!("Step {n} of the work on order 7071 is done."))));
    messages.extend([calls(&["a"]), Message::tool("a", "boat ".repeat(2_000)), Message::assistant("Done.")]);
    for (policy, gaps) in [(Policy::slots(), 0), (Policy::recent(), 1)] {
        let (outcome, _) = played(messages.clone(), policy, 300).await;
        assert_eq!((outcome.gaps, outcome.faulty), (gaps, 0), "{:?}", outcome.faults);
        assert!(outcome.cost.peak <= 360, "{}", outcome.cost.peak);
    }
    let (outcome, _) = played(messages, Policy::slots(), 20_000).await;
    assert_eq!(outcome.gaps, 0);
}
