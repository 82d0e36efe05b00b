//! Sessions to measure on: everyday agent work, drawn with dice and the same in every run.
//!
//! A turn is a question, up to three rounds of one to three parallel calls with their results, and
//! an answer. Every third turn is thought through, every tenth is small talk flagged `skip`, every
//! sixth is worked off by a second author, and four of the first hundred questions are pinned. A
//! message comes to some 180 tokens on average.
//!
//! Where the count of tokens is not what is measured, [`size`] stands for it.

use std::collections::VecDeque;

use epitome_core::context::{Candidate, SessionShape};
use epitome_core::cut::Cuts;
use epitome_core::message::{Author, Message, Part, Role, Timestamp, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::plan::{NextStep, PlanInput, next_step};
use epitome_core::slot::{Slot, SlotState};
use epitome_core::track::Tracker;

/// How many tokens of messages the summarizing model can read at once.
pub(crate) const INPUT: Tokens = 100_000;

const WORDS: &str = "the build fails because a module that nobody imports was renamed last week and the test \
    which would have caught it is skipped on this platform so please look at configuration first then retry \
    Zürich naïve façade 模型 上下文 トークン 토큰 контекст 🙂 isn't we'll they've src/lib.rs max_tokens";
const SYLLABLES: &str =
    "ba ren tok mi sul per ven qua zor ith lam ek dro fin hul ast ny gre pol ux ca shi wod jel";

/// Small and good enough.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// An endless session, message by message.
pub(crate) struct Talk {
    dice: Dice,
    sentences: Vec<String>,
    turn: usize,
    calls: usize,
    at: Timestamp,
    waiting: VecDeque<Message>,
}

impl Talk {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let sentences = (0..400).map(|_| sentence(&mut dice)).collect();
        let mut talk =
            Self { dice, sentences, turn: 0, calls: 0, at: Timestamp(0), waiting: VecDeque::new() };
        let orders = talk.text(12, 1);
        talk.waiting.push_back(Message::system(orders));
        talk
    }

    /// So many sentences, or up to `more` beyond them.
    pub(crate) fn text(&mut self, least: usize, more: usize) -> String {
        let many = least + self.dice.roll(more);
        let from = self.dice.roll(self.sentences.len() - many);
        self.sentences[from..from + many].join(" ")
    }

    /// Whether the last message given was the last of its turn.
    fn between_turns(&self) -> bool {
        self.waiting.is_empty()
    }

    fn think_up_turn(&mut self) {
        self.turn += 1;
        let turn = self.turn;
        let mut question = Message::user(self.text(1, 5));
        question.pinned = turn % 25 == 3 && turn < 100;
        self.waiting.push_back(question);
        let small_talk = turn % 10 == 7;
        let rounds = if small_talk { 0 } else { self.dice.roll(4) };
        for _ in 0..rounds {
            self.think_up_round(turn.is_multiple_of(3));
        }
        let answer = Message::assistant(self.text(3, 12));
        self.waiting.push_back(answer);
        let bob = (turn % 6 == 5).then(|| Author::from("bob"));
        for message in &mut self.waiting {
            message.skip = small_talk;
            if message.role == Role::Assistant {
                message.author.clone_from(&bob);
            }
        }
    }

    fn think_up_round(&mut self, thinking: bool) {
        let ids: Vec<String> =
            (0..1 + self.dice.roll(3)).map(|n| format!("call_{}", self.calls + n)).collect();
        self.calls += ids.len();
        let mut parts = Vec::new();
        if thinking {
            parts.push(Part::thinking(self.text(2, 6)));
        }
        if self.dice.roll(2) == 0 {
            parts.push(Part::text(self.text(1, 2)));
        }
        for id in &ids {
            let arguments = serde_json::json!({ "path": "src/lib.rs", "find": self.text(1, 1) });
            parts.push(Part::call(id.as_str(), "search", arguments.to_string()));
        }
        self.waiting.push_back(Message::new(Role::Assistant, parts));
        // Parallel calls do not come back in order.
        for id in ids.iter().rev() {
            let text = self.text(4, 27);
            self.waiting.push_back(Message::new(Role::Tool, [Part::result(id.as_str(), text)]));
        }
    }
}

impl Iterator for Talk {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.waiting.is_empty() {
            self.think_up_turn();
        }
        self.at = self.at.plus_seconds(20);
        self.waiting.pop_front().map(|message| Message { at: self.at, ..message })
    }
}

/// Six to sixteen words; every third is coined, since no vocabulary holds the names in real text.
fn sentence(dice: &mut Dice) -> String {
    let [words, syllables] = [WORDS, SYLLABLES].map(|list| list.split_whitespace().collect::<Vec<_>>());
    let mut sentence = String::from("Then");
    for _ in 0..5 + dice.roll(11) {
        sentence.push(' ');
        match dice.roll(9) {
            0..3 => {
                for _ in 0..2 + dice.roll(3) {
                    sentence.push_str(syllables[dice.roll(syllables.len())]);
                }
            }
            3 => sentence.push_str(&dice.roll(10_000).to_string()),
            _ => sentence.push_str(words[dice.roll(words.len())]),
        }
    }
    sentence.push('.');
    sentence
}

/// Four bytes a token and four for the message: near enough.
pub(crate) fn size(message: &Message) -> Tokens {
    message.bytes() / 4 + 4
}

pub(crate) fn sized(message: Message) -> (Message, Tokens) {
    let tokens = size(&message);
    (message, tokens)
}

/// The messages of some turns, to be added to a session between two turns.
pub(crate) fn turns(messages: usize) -> Vec<(Message, Tokens)> {
    Talk::new(7).skip(1).take(messages).map(sized).collect()
}

/// One of the two slots that every session has, and its state.
#[derive(Clone)]
pub(crate) struct SlotProgress {
    pub(crate) slot: Slot,
    pub(crate) state: SlotState,
}

impl SlotProgress {
    pub(crate) fn new(slot: Slot) -> Self {
        Self { slot, state: SlotState::default() }
    }

    pub(crate) fn advance(&mut self, outline: &Outline) -> bool {
        self.state.advance(&self.slot, outline, None)
    }

    /// The messages after the coverage, as input of the planner.
    pub(crate) fn ahead<'a>(&self, log: &'a [Outline], tracker: &Tracker) -> PlanInput<'a> {
        let from = log.partition_point(|outline| outline.seq <= self.state.covered);
        let end = Some(tracker.cut_at_end());
        PlanInput { outlines: &log[from..], end, room: None, input: INPUT, authors: &[] }
    }

    /// Completes every pending trigger event that has a legal cut.
    fn settle(&mut self, log: &[Outline], tracker: &Tracker) {
        while let NextStep::Summarize(plan) = next_step(&self.slot, &self.state, &self.ahead(log, tracker)) {
            self.state.settle(&self.slot, plan.span.through, plan.firing, log, None);
        }
    }
}

/// A session whose summaries were always written as soon as they were due.
#[derive(Clone)]
pub(crate) struct Planned {
    pub(crate) tracker: Tracker,
    pub(crate) short: SlotProgress,
    pub(crate) long: SlotProgress,
    pub(crate) log: Vec<Outline>,
}

impl Planned {
    /// So many messages, and then to the end of the turn.
    pub(crate) fn new(messages: u64) -> Self {
        Self::grow(&mut Talk::new(42), messages)
    }

    fn grow(talk: &mut Talk, messages: u64) -> Self {
        let [short, long] = [Slot::short(), Slot::long()].map(SlotProgress::new);
        let mut planned = Self { tracker: Tracker::default(), short, long, log: Vec::new() };
        while planned.tracker.head() < messages || !talk.between_turns() {
            planned.add(&talk.next().unwrap());
            planned.settle();
        }
        planned
    }

    /// True when the short summary fired.
    pub(crate) fn add(&mut self, message: &Message) -> bool {
        let outline = self.tracker.push_sized(message, size(message));
        let fired = self.short.advance(&outline);
        self.long.advance(&outline);
        self.log.push(outline);
        fired
    }

    fn settle(&mut self) {
        self.short.settle(&self.log, &self.tracker);
        self.long.settle(&self.log, &self.tracker);
    }

    /// Just before a message at which the short summary is due, and that message, which ends its
    /// turn.
    pub(crate) fn about_to_fire(messages: u64) -> (Self, Message) {
        let mut talk = Talk::new(42);
        let mut planned = Self::grow(&mut talk, messages);
        loop {
            let before = planned.clone();
            let message = talk.next().unwrap();
            if planned.add(&message) && talk.between_turns() {
                return (before, message);
            }
            planned.settle();
        }
    }

    /// The two summaries as they stand, at their full size.
    pub(crate) fn summaries(&self) -> [Candidate; 2] {
        [
            Candidate { through: self.short.state.covered, tokens: 1_000, elastic: false },
            Candidate { through: self.long.state.covered, tokens: 4_000, elastic: false },
        ]
    }

    /// What a store would hand in for a context of so many tokens: the messages that fit, a few
    /// more, and on to a legal cut; beside them what always stays.
    pub(crate) fn tail(&self, budget: Tokens) -> Tail {
        let head = self.tracker.tokens();
        let fitting = self.log.partition_point(|outline| head - outline.before > budget);
        let cuts = Cuts::new(&self.log, self.tracker.cut_at_end());
        let from = cuts.last_in(0..fitting.saturating_sub(4), Cut::Legal).unwrap_or(0);
        let whole = SessionShape::whole(cuts, &[]);
        let turn = self.log[from].turn;
        let opener = self.log[..from].iter().rev().find(|outline| outline.opens_turn && outline.turn == turn);
        let mut recent = self.log[from..].to_vec();
        recent.reserve(1);
        Tail {
            leading: whole.leading.into_iter().cloned().collect(),
            pinned: whole.pinned.into_iter().cloned().collect(),
            opener: opener.cloned(),
            skipped: whole.skipped,
            recent,
        }
    }
}

/// The end of a session, without the rest.
#[derive(Clone)]
pub(crate) struct Tail {
    leading: Vec<Outline>,
    pinned: Vec<Outline>,
    opener: Option<Outline>,
    skipped: u64,
    pub(crate) recent: Vec<Outline>,
}

impl Tail {
    pub(crate) fn scene<'a>(&'a self, tracker: &Tracker, summaries: &'a [Candidate]) -> SessionShape<'a> {
        SessionShape {
            leading: self.leading.iter().collect(),
            pinned: self.pinned.iter().collect(),
            recent: Cuts::new(&self.recent, tracker.cut_at_end()),
            opener: self.opener.as_ref(),
            from: self.recent.first().map_or(1, |outline| outline.seq),
            summaries,
            skipped: self.skipped,
            open_calls: self.recent.last().map_or(0, |last| last.open),
        }
    }
}
