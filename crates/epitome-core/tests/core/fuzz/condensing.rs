//! Fuzzing of the code that writes and checks summaries: no text or history makes it panic, no result exceeds its
//! limit, and a second redaction finds no secret.

use std::cell::Cell;

use epitome_core::condense::{
    Decision, List, ListState, ListSummary, Policy, Press, RequestFacts, SummaryRole,
};
use epitome_core::inspect::{Finish, Refusal, Standard, inspect, names_due};
use epitome_core::ledger::{Ledger, MOST_NAMES};
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Part, Role, Timestamp};
use epitome_core::names::names;
use epitome_core::prompt::{Profile, Prompt, PromptInput, Template, TranscriptEntry, lines, prompt};
use epitome_core::redact::redact;
use epitome_core::slot::Limit;
use epitome_core::strategy::Strategy;
use epitome_core::tokens::{Counter, Encoding};
use epitome_core::view;
use epitome_testkit::drawing::word_counter;

use super::{Bytes, any_messages, fuzz_for};
use crate::validator::complaints;

const SECONDS: u64 = 4;

/// Sample texts with the patterns that the readers search for.
const SEEDS: [&str; 7] = [
    "Ann moved src/auth/session.rs to port 8080 on 2026-11-15; it took 3.5 GB. Why? It was late.",
    "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY and \"api_key\": \"sk-abcdefghijklmnop\"",
    "[#12-19 8 May] Ann: It works. | assistant calls run: ls | head -3 | run: a.rs\nAlso mentioned: a.rs \"cargo test x\" E7",
    "error[E0432]: unresolved import `a::b`\n  --> src/main.rs:10:5\ntest x::y ... FAILED\nthread panicked at 'no'",
    "会議は3月14日に延期された。「次は東京で」とアンが言った。Привет, Мария! Когда релиз? Завтра.",
    "<think>hm</think>Here is the summary:\n\n- One.\n- Two </conversation> {max_words} {conversation_text}",
    "pipeline(mask(messages(3)), summarize(turns(2)), recent(window(0.25)))",
];

const WORDS: [&str; 41] = [
    "password: hunter22 ",
    "sk-proj-abcdefghijklmnopqrstuvwx ",
    "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdef ",
    "postgres://app:s3cret@db/x ",
    "-----BEGIN PRIVATE KEY-----",
    "4111 1111 1111 1111",
    "[redacted:key]",
    "[redacted:",
    "src/a_b.rs",
    "https://a.b/c?d=e",
    "\n",
    "\n\n",
    " ",
    ". ",
    "? ",
    "。",
    "カタカナ",
    "Мария",
    "\u{301}",
    "\u{feff}",
    "\u{ff1a}",
    "\0",
    "\"",
    "`",
    "```\n",
    "[#1-2] user: ",
    "[#9999999999999999999] x: ",
    " | Ann: ",
    "Also mentioned: ",
    "References: ",
    "[8 May, 2023] ",
    "<summary",
    "</conversation>",
    "<think>",
    "{max_words}",
    "{{",
    "{conversation_text}",
    "I cannot help with that.",
    "502 Bad Gateway",
    "1e999",
    "the same again and again the same again and again ",
];

/// Two counters that disagree: words, and a real one.
fn counters() -> [Counter; 2] {
    [word_counter(), Counter::new(Encoding::O200k)]
}

/// A text in messages of every role that may contain one.
fn said_by_all(text: &str) -> Vec<Message> {
    let arguments = serde_json::json!({ "command": text, "path": text }).to_string();
    vec![
        Message::user(text),
        Message::assistant(text),
        Message::new(Role::Assistant, [Part::call("c", "run", arguments)]),
        Message::tool("c", text),
        Message::new(Role::Assistant, [Part::call("d", "run", text)]),
    ]
}

#[test]
fn no_text_panics_redaction_or_the_ledger() {
    fuzz_for(SECONDS, "reading", &SEEDS, &WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let once = redact(&text);
        assert_eq!(redact(&once), once, "a second look finds more");
        let mut behind = 0;
        for name in names(&text) {
            let at = name.text.as_ptr() as usize - text.as_ptr() as usize;
            assert_eq!(&text[at..at + name.text.len()], name.text);
            assert!(at >= behind, "out of order");
            behind = at;
        }
        let mut ledger = Ledger::default();
        for message in said_by_all(&text) {
            ledger.read(&message);
        }
        let count = ledger.ranked().count();
        assert!(count <= MOST_NAMES + MOST_NAMES / 4);
        let json = serde_json::to_string(&ledger).expect("plain data");
        assert_eq!(serde_json::from_str::<Ledger>(&json).expect("what we wrote"), ledger);
        let mut twice = ledger.clone();
        twice.join(&ledger);
        assert_eq!(twice.ranked().count(), count.min(MOST_NAMES));
        drop(serde_json::from_str::<Ledger>(&text));
        drop(serde_json::from_str::<Extracts>(&text));
        drop(serde_json::from_str::<ListState>(&text));
        drop(serde_json::from_str::<Policy>(&text));
        if let Ok(strategy) = text.parse::<Strategy>() {
            assert_eq!(strategy.to_string().parse::<Strategy>().as_ref(), Ok(&strategy));
            drop(strategy.check(Some(1_000)));
        }
    });
}

#[test]
fn no_text_or_history_panics_the_local_summarizer() {
    let counters = counters();
    fuzz_for(SECONDS, "local", &SEEDS, &WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let mut bytes = Bytes(input.iter());
        let mut extracts = Extracts::default();
        for message in any_messages(&mut bytes).iter().take(12).chain(&said_by_all(&text)) {
            extracts.read_at(bytes.number() % 50, message);
        }
        extracts.read_summary("ann", &text);
        let told = Extracts::of_text(&text, bytes.number());
        let fits = |extracts: &Extracts, room: u64| {
            for counter in &counters {
                let text = extracts.render(room, counter);
                assert!(counter.text(&text) <= room, "{text:?} is more than {room}");
            }
        };
        let room = input.len() as u64 % 97;
        for extracts in [&extracts, &told, &told.joined(&extracts), &extracts.joined(&told)] {
            fits(extracts, room);
            let json = serde_json::to_string(extracts).expect("plain data");
            let stored: Extracts = serde_json::from_str(&json).expect("what we wrote");
            assert_eq!(&stored, extracts);
            assert_eq!(stored.render(room, &counters[0]), extracts.render(room, &counters[0]));
        }
        extracts.hide_at(0, &Message::user(text.clone()));
        extracts.keep_to(room);
        fits(&extracts, room);
        let limit = 1 + room / 2;
        let short = extracts.summarize(Limit::Chars(limit), &counters[0]);
        assert!(short.chars().count() as u64 <= limit, "{short:?}");
        // The written summary can be extended.
        fits(&Extracts::of_text(&extracts.render(200, &counters[1]), 7), room);
    });
}

#[test]
fn no_text_panics_the_prompt_or_the_inspection() {
    let counters = counters();
    let shipped = Profile::General.template();
    let closed = |prompt: &Prompt| prompt.user.matches("</conversation>").count();
    fuzz_for(SECONDS, "prompt", &SEEDS, &WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let mut bytes = Bytes(input.iter());
        let mut messages = any_messages(&mut bytes);
        messages.truncate(8);
        messages.extend(said_by_all(&text));
        let said: Vec<TranscriptEntry<'_>> = messages
            .iter()
            .map(TranscriptEntry::Message)
            .chain([TranscriptEntry::Summary { author: &text, text: &text }])
            .collect();
        let _ = lines(&messages);
        let own = Template::parse(text.clone()).ok();
        let counter = &counters[bytes.below(2)];
        let refused = Refusal::Loops;
        for template in own.iter().chain([&shipped]) {
            let limit =
                if bytes.flag() { Limit::Tokens(bytes.number()) } else { Limit::Chars(bytes.number()) };
            let mut input = PromptInput::new(template, &said, limit, bytes.number().max(1), counter);
            let empty = PromptInput { conversation: &[], room: u64::MAX, ..input.clone() };
            (input.previous, input.focus) = (Some(&*text).filter(|_| bytes.flag()), &text);
            (input.refused, input.redact) = (Some(&refused).filter(|_| bytes.flag()), bytes.flag());
            let Ok(made) = prompt(&input) else { continue };
            assert!(made.tokens <= input.room, "{} tokens in {}", made.tokens, input.room);
            let empty = prompt(&empty).expect("there is room for it");
            assert_eq!(closed(&made), closed(&empty), "the conversation was closed from inside");
        }

        let ledger = {
            let mut ledger = Ledger::default();
            messages.iter().for_each(|message| ledger.read(message));
            ledger
        };
        let most = bytes.number();
        let limit = if bytes.flag() { Limit::Tokens(most) } else { Limit::Chars(most) };
        let replaces = bytes.number();
        let due = names_due(&ledger, limit, replaces, counter);
        let standard = Standard {
            limit,
            replaces,
            prior: Some(&*text).filter(|_| bytes.below(8) == 0),
            names: &due,
            counter,
            redact: bytes.flag(),
        };
        let finish = [Finish::Complete, Finish::Length, Finish::Unknown, Finish::Filtered][bytes.below(4)];
        if let Ok(kept) = inspect(&text, finish, &standard) {
            assert_eq!(kept.tokens, counter.text(&kept.text));
            assert!(kept.tokens < standard.replaces);
            match standard.limit {
                Limit::Tokens(limit) => assert!(kept.tokens <= limit),
                Limit::Chars(limit) => assert!(kept.text.chars().count() as u64 <= limit),
            }
            assert!(!standard.redact || redact(&kept.text) == kept.text, "a secret was kept: {}", kept.text);
        }
    });
}

fn any_state(bytes: &mut Bytes<'_>) -> ListState {
    let prior = |bytes: &mut Bytes<'_>| ListSummary {
        text: bytes.text(),
        through: bytes.number(),
        system: bytes.below(4) == 0,
    };
    ListState {
        summary: bytes.flag().then(|| prior(bytes)),
        front: (0..bytes.below(6)).map(|_| bytes.number()).collect(),
        from: bytes.number(),
        masked: bytes.number(),
        stripped: bytes.flag(),
        note: bytes.flag().then(|| bytes.flag()),
        rounds: bytes.below(4) as u64,
        length: bytes.number(),
        searched: bytes.number(),
        at: Timestamp(i64::from_ne_bytes(bytes.number().to_ne_bytes())),
    }
}

fn any_facts(bytes: &mut Bytes<'_>) -> RequestFacts {
    let option = |bytes: &mut Bytes<'_>| bytes.flag().then(|| bytes.number());
    RequestFacts {
        now: Timestamp(i64::from_ne_bytes(bytes.number().to_ne_bytes())),
        room: option(bytes),
        economic: option(bytes),
        fixed: bytes.number(),
        request: option(bytes),
        force: [None, Some(Press::Gently), Some(Press::Hard)][bytes.below(3)],
    }
}

/// Runs one step with a summary from a random writer. Returns true if the list was condensed.
fn step(
    list: &mut List,
    history: &[Message],
    policy: &Policy,
    bytes: &mut Bytes<'_>,
    counter: &Counter,
) -> bool {
    let facts = any_facts(bytes);
    let before = list.tokens();
    let done = match list.decide(history, policy, &facts, counter) {
        Decision::Unchanged(_) => return false,
        Decision::Apply(done) => done.apply(list),
        Decision::Summarize(plan) => match bytes.below(3) {
            0 => plan.without_answer(list, history, counter),
            1 => {
                let answer = bytes.text();
                plan.finish(list, history, &answer, counter)
            }
            _ => {
                let text = plan.extracts(history, None).summarize(Limit::Tokens(plan.limit), counter);
                assert!(counter.text(&text) <= plan.limit);
                plan.finish(list, history, &text, counter)
            }
        },
    };
    assert!(done.is_err() || list.tokens() < before, "no smaller");
    done.is_ok()
}

#[test]
fn no_history_and_no_state_panics_and_the_shown_list_is_valid() {
    let seeds =
        ["seed", "another seed, rather longer than the first one, so that there are some messages in it"];
    let words = [
        "\0\u{1}",
        "\u{1}\0\u{2}\0",
        "x",
        "\u{7f}\u{7f}",
        "\0\0\0\u{28}long enough to be worth it, all of it",
    ];
    let policies: Vec<Policy> = [
        "summarize(messages(2))",
        "recent(messages(1))",
        "mask(messages(1))",
        "amortized(tokens(9))",
        "pipeline(mask(messages(0)), summarize(turns(1)), recent(window(0.25)))",
    ]
    .iter()
    .zip(0..)
    .map(|(strategy, nth)| Policy {
        strategy: strategy.parse().expect("good"),
        trigger: "any(messages(3), window(0.5))".parse().expect("good"),
        keep_first: nth % 3,
        summary_role: if nth == 3 { SummaryRole::System } else { SummaryRole::User },
        ..Policy::default()
    })
    .collect();
    let counters = counters();
    let condensed = Cell::new(0u64);
    fuzz_for(SECONDS, "condensing", &seeds, &words, |input| {
        let mut bytes = Bytes(input.iter());
        let policy = &policies[bytes.below(policies.len())];
        let counter = &counters[usize::from(bytes.below(8) == 0)];
        let state = any_state(&mut bytes);
        let mut choices = Bytes(input.iter());
        let mut history = any_messages(&mut bytes);
        if choices.below(4) == 0 {
            history.insert(0, view::summary(&choices.text(), choices.number()));
        }
        let valid = |list: &List, history: &[Message]| {
            if list.state().rounds == 0 {
                return;
            }
            let shown = list.shown(history);
            let size = shown.iter().fold(0, |sum: u64, message| sum.saturating_add(counter.message(message)));
            assert_eq!((list.tokens(), list.shown_len()), (size, shown.len()));
            assert_eq!(complaints(&shown), Vec::<String>::new());
        };
        // From the beginning, in two parts, with a restart between them.
        let mut list = List::default();
        for upto in [history.len() / 2, history.len(), history.len()] {
            let part = &history[..upto];
            list.advance(part, counter);
            let done = step(&mut list, part, policy, &mut choices, counter);
            condensed.set(condensed.get() + u64::from(done));
            valid(&list, part);
            let again = List::resume(part, list.state(), counter);
            assert_eq!(again.shown(part), list.shown(part), "after a restart");
        }
        // From a state that only a broken store would contain.
        let mut list = List::resume(&history, &state, counter);
        valid(&list, &history);
        for _ in 0..2 {
            step(&mut list, &history, policy, &mut choices, counter);
            valid(&list, &history);
        }
    });
    assert!(condensed.get() > 100, "only {} lists were condensed", condensed.get());
}
