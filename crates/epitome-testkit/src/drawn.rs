//! Generates sessions of all kinds for property tests. A session may be well formed or malformed. A counterexample is
//! printed as its one-line drawing.

use std::fmt;

use crate::drawing;
use epitome_core::context::{Candidate, Layout, PlaceholderCosts, Request, SessionShape, lay_out};
use epitome_core::context_texts::{ContextTexts, render};
use epitome_core::cut::Cuts;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Seq, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Limit;
use epitome_core::tokens::Counter;
use epitome_core::track::Tracker;
use proptest::prelude::*;

/// A generated session, printed as its drawing.
#[derive(Clone, PartialEq)]
pub struct Drawn(pub String);

impl fmt::Debug for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Drawn {
    pub fn messages(&self) -> Vec<Message> {
        drawing::messages(&self.0).expect("a generated drawing is valid")
    }

    /// Returns the log that a session with these messages would have.
    pub fn log(&self, counter: &Counter) -> Log {
        Log::new(self.messages(), counter.clone())
    }
}

/// A session with its outlines and trackers.
pub struct Log {
    pub messages: Vec<Message>,
    pub outlines: Vec<Outline>,
    pub counter: Counter,
    trackers: Vec<Tracker>,
}

impl Log {
    pub fn new(messages: Vec<Message>, counter: Counter) -> Self {
        let mut tracker = Tracker::default();
        let mut trackers = vec![tracker.clone()];
        let mut outlines = Vec::new();
        for message in &messages {
            outlines.push(tracker.push(message, &counter));
            trackers.push(tracker.clone());
        }
        Self { messages, outlines, counter, trackers }
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn end(&self, at: usize) -> Cut {
        self.trackers[at].cut_at_end()
    }

    pub fn legal(&self, place: usize) -> bool {
        self.outlines.get(place).map_or(self.end(self.len()), |o| o.cut) == Cut::Legal
    }

    /// Returns the context after the first `at` messages.
    pub fn context(&self, at: usize, request: &Request, summaries: &[(Seq, String)]) -> DrawnContext {
        self.context_from(0, at, request, summaries)
    }

    /// Like [`Log::context`], but the layout uses only the messages from position `from` on, as a store would provide
    /// them.
    pub fn context_from(
        &self,
        from: usize,
        at: usize,
        request: &Request,
        summaries: &[(Seq, String)],
    ) -> DrawnContext {
        let mut texts = ContextTexts::new(&self.counter, &self.messages[..at]);
        for (through, text) in summaries {
            texts = texts.with_summary(*through, text.clone());
        }
        let candidates: Vec<Candidate> = texts.candidates();
        let mut shape = SessionShape::whole(Cuts::new(&self.outlines[..at], self.end(at)), &candidates);
        if from > 0 {
            shape.recent = Cuts::new(&self.outlines[from..at], self.end(at));
            shape.from = from as Seq + 1;
            shape.opener = self.outlines[..from].iter().rfind(|outline| outline.opens_turn);
        }
        let layout = lay_out(request, &shape, &PlaceholderCosts::of(&self.counter), &mut texts)
            .expect("valid request");
        let messages = render(&layout, &texts).expect("all texts are available");
        DrawnContext { layout, messages }
    }

    /// Returns the context after the first `at` messages, with summaries by `local`. `throughs` contains at most two
    /// positions. For each position, `local` writes one summary, which covers the messages up to this position. The
    /// context may also contain the two summaries joined.
    pub fn local_context(&self, at: usize, request: &Request, throughs: &[Seq]) -> DrawnContext {
        let written = throughs.iter().zip([40, 12]).map(|(through, limit)| {
            let mut extracts = Extracts::default();
            let read = self.messages.iter().filter(|m| m.seq <= *through && !m.role.is_system());
            read.for_each(|message| extracts.read(message));
            let text = extracts.summarize(Limit::Tokens(limit), &self.counter);
            (*through, text, extracts)
        });
        let written: Vec<_> = written.filter(|(_, text, _)| !text.is_empty()).collect();
        let mut texts = ContextTexts::new(&self.counter, &self.messages[..at]);
        for (through, text, extracts) in &written {
            texts = texts.with_extracts(*through, text.as_str(), extracts);
        }
        texts = texts.with_joined();
        let candidates: Vec<Candidate> = texts.candidates();
        let shape = SessionShape::whole(Cuts::new(&self.outlines[..at], self.end(at)), &candidates);
        let layout = lay_out(request, &shape, &PlaceholderCosts::of(&self.counter), &mut texts)
            .expect("valid request");
        let messages = render(&layout, &texts).expect("all texts are available");
        DrawnContext { layout, messages }
    }

    /// Returns the context of one author's messages.
    pub fn scoped_context(
        &self,
        author: &str,
        request: &Request,
        summaries: &[(Seq, String)],
    ) -> DrawnContext {
        let outlines: Vec<Outline> =
            self.outlines.iter().filter(|o| o.author.as_deref() == Some(author)).cloned().collect();
        let own = |message: &&Message| outlines.iter().any(|o| o.seq == message.seq);
        let messages: Vec<Message> = self.messages.iter().filter(own).cloned().collect();
        let mut texts = ContextTexts::new(&self.counter, &messages);
        for (through, text) in summaries {
            texts = texts.with_summary(*through, text.clone());
        }
        let candidates = texts.candidates();
        let tracker = &self.trackers[self.len()];
        let author = author.into();
        let cuts = Cuts::own(&outlines, tracker.own_cut_at_end(&author));
        let shape = SessionShape::whole(cuts, &candidates);
        let layout = lay_out(request, &shape, &PlaceholderCosts::of(&self.counter), &mut texts)
            .expect("valid request");
        let messages = render(&layout, &texts).expect("all texts are available");
        DrawnContext { layout, messages }
    }

    pub fn tokens(&self, messages: &[Message]) -> Tokens {
        messages.iter().map(|message| self.counter.message(message)).sum()
    }
}

/// The layout of a context, and the messages of the context.
#[derive(Debug, Clone, PartialEq)]
pub struct DrawnContext {
    pub layout: Layout,
    pub messages: Vec<Message>,
}

fn id() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["w", "x", "y", "z", "ix"])
}

fn call() -> impl Strategy<Value = String> {
    prop_oneof![6 => id().prop_map(str::to_owned), 1 => id().prop_map(|id| format!("{id}=i{id}"))]
}

fn marks(flags: bool) -> BoxedStrategy<String> {
    let size = prop_oneof![
        8 => Just(String::new()),
        6 => (2..30u32).prop_map(|n| format!(":{n}")),
        1 => Just(":0".to_owned()),
    ];
    let author = prop_oneof![5 => Just(""), 1 => Just("@ann"), 1 => Just("@bob")];
    let flag = if flags {
        prop_oneof![12 => Just(""), 1 => Just("!"), 1 => Just("~")].boxed()
    } else {
        Just("").boxed()
    };
    (flag, author, size).prop_map(|(flag, author, size)| format!("{flag}{author}{size}")).boxed()
}

fn one(flags: bool) -> impl Strategy<Value = String> {
    let ids = prop::collection::vec(call(), 1..3).prop_map(|ids| ids.join(","));
    let results = || prop::collection::vec(id(), 1..3).prop_map(|ids| ids.join(","));
    let body = prop_oneof![
        5 => Just("u".to_owned()),
        5 => Just("a".to_owned()),
        1 => Just("a*".to_owned()),
        1 => Just("a*-".to_owned()),
        1 => Just("a-".to_owned()),
        6 => (prop::bool::weighted(0.3), prop::bool::weighted(0.3), ids).prop_map(|(thinks, silent, ids)| {
            format!("a{}{}({ids})", if thinks { "*" } else { "" }, if silent { "-" } else { "" })
        }),
        8 => results().prop_map(|ids| format!("r({ids})")),
        1 => results().prop_map(|ids| format!("u({ids})")),
        1 => results().prop_map(|ids| format!("u-({ids})")),
        1 => prop::sample::select(vec!["s", "d", "p", "r", "u-", "s-"]).prop_map(str::to_owned),
    ];
    (body, marks(flags)).prop_map(|(body, marks)| format!("{body}{marks}"))
}

/// Generates one turn as a real agent would produce it: a user message and a tool loop. The loop is sometimes
/// interrupted.
fn turn(flags: bool) -> impl Strategy<Value = Vec<String>> {
    let step = (0..4u8, prop::bool::weighted(0.3), marks(flags)).prop_map(|(kind, thinks, marks)| {
        let thinks = if thinks { "*" } else { "" };
        match kind {
            0 => vec![format!("a{thinks}(x){marks}"), format!("r(x){marks}")],
            1 => vec![format!("a{thinks}(x,y)"), format!("r(y){marks}"), "r(x)".to_owned()],
            2 => vec![format!("a{thinks}(x){marks}")],
            _ => vec![format!("a{thinks}-(z)"), "r(z)".to_owned()],
        }
    });
    (marks(flags), prop::collection::vec(step, 0..4), prop::bool::weighted(0.8)).prop_map(
        |(marks, steps, answers)| {
            let mut words = vec![format!("u{marks}")];
            words.extend(steps.into_iter().flatten());
            words.extend(answers.then(|| "a:5".to_owned()));
            words
        },
    )
}

fn session_with(flags: bool) -> impl Strategy<Value = Drawn> {
    let block = prop_oneof![2 => turn(flags), 1 => prop::collection::vec(one(flags), 1..8)];
    let head = prop::sample::select(vec!["", "s", "s:7 d", "s!"]);
    (head, prop::collection::vec(block, 0..8)).prop_map(|(head, blocks)| {
        let mut words: Vec<String> = head.split_whitespace().map(str::to_owned).collect();
        words.extend(blocks.into_iter().flatten());
        Drawn(words.join(" "))
    })
}

/// Generates a session of any kind.
pub fn session() -> impl Strategy<Value = Drawn> {
    session_with(true)
}

/// Generates a session of any kind, but without pinned or skipped messages.
pub fn plain_session() -> impl Strategy<Value = Drawn> {
    session_with(false)
}

/// Returns summaries that end at legal cuts, as pairs of the last covered message and the text.
pub fn summaries(log: &Log, picks: &[(u16, u8)]) -> Vec<(Seq, String)> {
    let legal: Vec<usize> = (1..=log.len()).filter(|place| log.legal(*place)).collect();
    picks
        .iter()
        .filter_map(|(at, lines)| {
            let place = *legal.get(*at as usize % legal.len().max(1))?;
            let text: Vec<String> = (0..=*lines % 8)
                .map(|line| format!("In line {line} they said 4{line} things about F{line}."))
                .collect();
            Some((place as Seq, text.join("\n")))
        })
        .collect()
}
