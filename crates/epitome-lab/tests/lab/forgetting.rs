//! A model that forgets half of the names: the share of the names needed by later calls that its text contains, and the
//! share that the stored summary contains. An agent's work is played through the engine's slots and through the condenser.

use std::fmt::Write;

use epitome::rules::inspect::{Finish, Standard, inspect};
use epitome::rules::message::{Message, Part, Role, Tokens};
use epitome::rules::slot::Limit;
use epitome::rules::tokens::{Counter, Encoding};
use epitome::rules::view::split;
use epitome::settings::Patch;
use epitome_lab::evaluation::{Mean, Recorded, contains_name, text_of};
use epitome_lab::play::{Conversation, ListMethod, PlayOptions, Policy, ReplayEvent, play};
use epitome_testkit::provider::{Act, Provider, forgetful};
use serde_json::{Value, json};

/// Maximum size of a summary.
const LIMIT: Tokens = 2_000;

/// Number of files, each with a function of its own.
const FILES: usize = 36;

/// An agent that reads a repository file by file, and returns at every step to a function that it has not seen for long.
fn work(steps: usize) -> Vec<Message> {
    let part = |n: usize| ["quay", "crane", "berth", "tide", "buoy", "pilot"][n % 6];
    let file = |n: usize| format!("src/{}/dock_{n}.rs", part(n));
    let function = |n: usize| format!("{}_of_dock_{n}", part(n + 1));
    let mut log = vec![
        Message::system("You are a careful engineer with a shell."),
        Message::user("Go through the harbour's code, file by file, and mend what you find."),
    ];
    for step in 0..steps {
        // Steps of 7 and 11 come to every file, in an order that is not that of the files.
        let (now, then) = (step * 7 % FILES, step * 11 % FILES);
        let (id, command) = (format!("c{step}"), format!("grep -n {} {}", function(then), file(now)));
        let arguments = json!({ "command": command }).to_string();
        log.push(Message::new(Role::Assistant, [Part::call(&*id, "bash", arguments)]));
        let mut printed = format!("{}:{}: fn {}() {{\n", file(now), 100 + step, function(then));
        for line in 0..12 {
            let _ =
                writeln!(printed, "    let depth = sounding.at({line}, {step}).max(depth); // by the chart");
        }
        log.push(Message::tool(&*id, printed));
    }
    log
}

/// Of the names that a later call needs and no message contains any more, the share that a summary contains.
#[derive(Default)]
struct NameShares {
    /// In the model's text, inspected without names to add.
    by_model: Mean,
    /// In the stored summary.
    with_names: Mean,
}

/// Contexts by one slot, whose summaries the model `main` writes.
fn slots() -> (ListMethod, Value) {
    let slot = json!({ "name": "short", "trigger": "messages(20)", "max_tokens": LIMIT, "models": ["main"] });
    (Policy::steady().method, json!({ "slot": [slot] }))
}

/// Plays the work through a policy whose summaries the forgetful model writes.
async fn played((method, mut settings): (ListMethod, Value)) -> NameShares {
    let provider = Provider::start().await;
    provider.always(Act::Forgets);
    let model = json!({ "provider": "openai", "model": "stand-in-1", "base_url": provider.url() });
    settings["models"] = json!({ "main": model });
    let patch = Patch::from_value(settings).unwrap();
    let policy = Policy { name: "forgetful".to_owned(), method, patch };
    let conversation = Conversation { messages: work(150), pinned: 2, ..Conversation::named("harbour") };
    let options = PlayOptions { budgets: vec![6_000], costs: true };
    let mut lists = Vec::new();
    let mut take = |made: ReplayEvent<'_>| {
        if let ReplayEvent::Request { messages, .. } = made {
            lists.push(messages.to_vec());
        }
    };
    let outcome = play(&conversation, &policy, &options, &mut take).await.unwrap().remove(0);
    assert_eq!((outcome.faulty, outcome.gaps), (0, 0), "{:?}", outcome.faults);
    assert_eq!(outcome.cost.summaries, provider.calls() as u64, "what was asked for is paid for");
    measured(&conversation, &lists, &provider)
}

/// Measures, for every request, which of the names that its reply needs the summary contains.
fn measured(conversation: &Conversation, lists: &[Vec<Message>], provider: &Provider) -> NameShares {
    let counter = Counter::new(Encoding::O200k);
    let standard = Standard {
        limit: Limit::Tokens(LIMIT),
        replaces: Tokens::MAX,
        prior: None,
        names: &[],
        counter: &counter,
        redact: true,
    };
    let answers: Vec<String> = provider
        .requests()
        .iter()
        .map(|request| inspect(&forgetful(request), Finish::Complete, &standard).unwrap().text)
        .collect();
    let recorded = Recorded::new(conversation.pinned, &conversation.messages);
    let replies = (1..).zip(&conversation.messages[1..]).filter(|(_, one)| one.role == Role::Assistant);
    let mut shares = NameShares::default();
    for ((at, _), list) in replies.zip(lists) {
        let (mut summary, mut shown) = (String::new(), String::new());
        for message in &list[conversation.pinned..] {
            match split(message) {
                Some((found, rest)) => {
                    summary = found.text;
                    shown.push_str(&rest.map(|rest| text_of(&rest)).unwrap_or_default());
                }
                None => shown.push_str(&text_of(message)),
            }
            shown.push('\n');
        }
        if summary.is_empty() {
            continue;
        }
        assert!(counter.text(&summary) <= LIMIT, "over its limit: {summary}");
        let by_model = answers.iter().filter(|answer| summary.starts_with(answer.as_str()));
        let by_model = by_model.max_by_key(|answer| answer.len()).expect("a summary that nobody wrote");
        for need in recorded.needs(at).iter().filter(|need| !contains_name(&shown, &need.name)) {
            let yes = |text: &str| if contains_name(text, &need.name) { 1.0 } else { 0.0 };
            shares.by_model.add(yes(by_model));
            shares.with_names.add(yes(&summary));
        }
    }
    shares
}

/// Checks that the model's text lacks about half of the names, and the stored summary almost none.
#[track_caller]
#[expect(clippy::print_stdout, reason = "the numbers are in docs/fidelity.md; `--nocapture` shows them")]
fn assert_names_are_added(way: &str, shares: &NameShares) {
    let (by_model, with_names) = (shares.by_model.value().unwrap(), shares.with_names.value().unwrap());
    println!("| {way} | {} | {by_model:.2} | {with_names:.2} |", shares.with_names.count);
    assert!(shares.with_names.count >= 100, "{way}: {} names were needed", shares.with_names.count);
    assert!((0.3..=0.7).contains(&by_model), "{way}: the model's text contains {by_model:.3}");
    assert!(with_names >= 0.97, "{way}: the stored summary contains {with_names:.3}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_a_model_forgot_are_in_the_summaries_of_slots() {
    assert_names_are_added("slots", &played(slots()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_a_model_forgot_are_in_the_summaries_of_a_list() {
    let rules =
        json!({ "model": "main", "max_tokens": LIMIT, "trigger": "tokens(6000)", "keep": "tokens(2000)" });
    let method = ListMethod::Inline { window: Some(128_000) };
    assert_names_are_added("inline", &played((method, json!({ "condense": rules }))).await);
}

/// The check itself fails if nothing was added to the model's text.
#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "the stored summary contains 0.")]
async fn a_summary_to_which_nothing_was_added_is_noticed() {
    let shares = played(slots()).await;
    assert_names_are_added("planted", &NameShares { with_names: shares.by_model, ..shares });
}
