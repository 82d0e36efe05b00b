//! A model that forgets half of the names: what a later call would miss by its words alone, and what is missing
//! of what was kept. An agent's work is played through the engine's slots and through the condenser.

use std::fmt::Write;

use epitome::rules::inspect::{Finish, Standard, inspect};
use epitome::rules::message::{Message, Part, Role, Tokens};
use epitome::rules::slot::Limit;
use epitome::rules::tokens::{Counter, Encoding};
use epitome::rules::view::split;
use epitome::settings::Patch;
use epitome_lab::measure::{Mean, Recorded, holds_name, text_of};
use epitome_lab::play::{Conversation, Form, Made, Options, Policy, play};
use epitome_testkit::provider::{Act, Provider, forgetful};
use serde_json::{Value, json};

/// How large summaries may be.
const LIMIT: Tokens = 2_000;

/// Files there are, each with a function and a test of its own.
const FILES: usize = 36;

/// An agent that goes through a repository, and at every step comes back to something it has not touched for long.
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

/// Of the names a later call needs and no message shows any more, how many a summary held.
#[derive(Default)]
struct Held {
    /// By the model's words alone, as they were inspected with no names to look for.
    written: Mean,
    /// By what was kept.
    kept: Mean,
}

/// Contexts by one slot, whose summaries the model `main` writes.
fn slots() -> (Form, Value) {
    let slot = json!({ "name": "short", "trigger": "messages(20)", "max_tokens": LIMIT, "models": ["main"] });
    (Policy::steady().form, json!({ "slot": [slot] }))
}

/// Plays the work through a policy whose summaries the forgetful model writes.
async fn played((form, mut settings): (Form, Value)) -> Held {
    let provider = Provider::start().await;
    provider.always(Act::Forgets);
    let model = json!({ "provider": "openai", "model": "stand-in-1", "base_url": provider.url() });
    settings["models"] = json!({ "main": model });
    let patch = Patch::from_value(settings).unwrap();
    let policy = Policy { name: "forgetful".to_owned(), form, patch };
    let conversation = Conversation { messages: work(150), pinned: 2, ..Conversation::named("harbour") };
    let options = Options { budgets: vec![6_000], costs: true };
    let mut lists = Vec::new();
    let mut take = |made: Made<'_>| {
        if let Made::Request { messages, .. } = made {
            lists.push(messages.to_vec());
        }
    };
    let outcome = play(&conversation, &policy, &options, &mut take).await.unwrap().remove(0);
    assert_eq!((outcome.faulty, outcome.gaps), (0, 0), "{:?}", outcome.faults);
    assert_eq!(outcome.cost.summaries, provider.calls() as u64, "what was asked for is paid for");
    measured(&conversation, &lists, &provider)
}

/// Looks at what every request held of what its reply needs.
fn measured(conversation: &Conversation, lists: &[Vec<Message>], provider: &Provider) -> Held {
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
    let mut held = Held::default();
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
        let written = answers.iter().filter(|answer| summary.starts_with(answer.as_str()));
        let written = written.max_by_key(|answer| answer.len()).expect("a summary that nobody wrote");
        for need in recorded.needs(at).iter().filter(|need| !holds_name(&shown, &need.name)) {
            let yes = |text: &str| if holds_name(text, &need.name) { 1.0 } else { 0.0 };
            held.written.add(yes(written));
            held.kept.add(yes(&summary));
        }
    }
    held
}

/// About half is lost by the model's words, and hardly anything of what is kept.
#[track_caller]
#[expect(clippy::print_stdout, reason = "the numbers are told in docs/fidelity.md; `--nocapture` shows them")]
fn assert_mended(way: &str, held: &Held) {
    let (written, kept) = (held.written.value().unwrap(), held.kept.value().unwrap());
    println!("| {way} | {} | {written:.2} | {kept:.2} |", held.kept.count);
    assert!(held.kept.count >= 100, "{way}: {} names were needed", held.kept.count);
    assert!((0.3..=0.7).contains(&written), "{way}: the model's words held {written:.3}");
    assert!(kept >= 0.97, "{way}: what was kept held {kept:.3}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_a_model_forgot_are_in_the_summaries_of_slots() {
    assert_mended("slots", &played(slots()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_a_model_forgot_are_in_the_summaries_of_a_list() {
    let rules =
        json!({ "model": "main", "max_tokens": LIMIT, "trigger": "tokens(6000)", "keep": "tokens(2000)" });
    let form = Form::Inline { window: Some(128_000) };
    assert_mended("inline", &played((form, json!({ "condense": rules }))).await);
}

/// The checker itself: held against what the model wrote, it tells the loss.
#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "what was kept held 0.")]
async fn a_summary_to_which_nothing_was_added_is_noticed() {
    let held = played(slots()).await;
    assert_mended("planted", &Held { kept: held.written, ..held });
}
