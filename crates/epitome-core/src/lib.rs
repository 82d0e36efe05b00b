//! The rules of Epitome: when a summary is due, where a log may be cut, what a context holds, how a
//! list becomes shorter, what a good summary is.
//!
//! Epitome keeps long agent conversations inside a model's window without losing the thread. This
//! crate decides and does nothing else: values in, values out, with no IO, clock, async or
//! environment. The same values give the same decision on every machine, so every rule here can be
//! tried without a database, a model or a wait.
//!
//! # From a log to a context
//!
//! ```
//! use epitome_core::context::{Costs, Request, Scene, lay_out};
//! use epitome_core::cut::Cuts;
//! use epitome_core::local::Extracts;
//! use epitome_core::message::Message;
//! use epitome_core::plan::{Ahead, Next, next};
//! use epitome_core::shelf::Shelf;
//! use epitome_core::slot::{Slot, SlotState};
//! use epitome_core::tokens::{Counter, Encoding};
//! use epitome_core::track::Tracker;
//! use epitome_core::shelf::render;
//!
//! // 1. Messages come in; the tracker tells each one's shape, the slot counts it.
//! let counter = Counter::new(Encoding::O200k);
//! let (mut tracker, mut log, mut shapes) = (Tracker::default(), Vec::new(), Vec::new());
//! let (slot, mut state) = (Slot::short(), SlotState::default());
//! for n in 1..=25u64 {
//!     let mut message = Message::user(format!("Order {n} was shipped to Oslo."));
//!     message.seq = n;
//!     let shape = tracker.push(&message, &counter);
//!     state.advance(&slot, &shape, None);
//!     log.push(message);
//!     shapes.push(shape);
//! }
//!
//! // 2. Twenty messages: a summary is due. The plan says of what.
//! let ahead =
//!     Ahead { outlines: &shapes, end: Some(tracker.cut_at_end()), room: None, input: 100_000, authors: &[] };
//! let step = next(&slot, &state, &ahead);
//! let Next::Summarize(plan) = &step else { panic!("due at 20") };
//! assert_eq!((plan.span.from, plan.span.through), (1, 20));
//!
//! // 3. Somebody writes it: a model, or the summarizer that is built in. Then the slot moves on.
//! let mut extracts = Extracts::default();
//! log[..20].iter().for_each(|message| extracts.read(message));
//! let text = extracts.summarize(slot.limit, &counter);
//! step.settle(&slot, &mut state, &shapes, None);
//!
//! // 4. The conversation in 300 tokens: the summary, and the messages after it.
//! let mut shelf = Shelf::new(&counter, &log).with_summary(20, text);
//! let candidates = shelf.candidates();
//! let scene = Scene::whole(Cuts::new(&shapes, tracker.cut_at_end()), &candidates);
//! let request = Request { tokens: Some(300), ..Request::default() };
//! let layout = lay_out(&request, &scene, &Costs::of(&counter), &mut shelf)?;
//! assert!(layout.report.exhaustive);
//! let context = render(&layout, &shelf)?;
//! assert_eq!(context.len(), 1 + 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # From a long list to a shorter one
//!
//! An agent that holds its own history needs no log: [`condense`] makes its list shorter before a call,
//! and its module page shows how. [`local`] writes summaries without a model.
//!
//! # Reading order
//!
//! | module | answers |
//! |---|---|
//! | [`message`] | what is a session made of? |
//! | [`tokens`], [`media`] | how large is it? |
//! | [`outline`] | what is its shape, without the words? |
//! | [`track`] | which calls are open, where may the log be cut? |
//! | [`cut`] | which of those places to take? |
//! | [`trigger`], [`economic`], [`keep`] | when is it time, and what stays? |
//! | [`slot`] | what was ordered, and where does it stand? |
//! | [`plan`] | what is summarized next? |
//! | [`context`] | what does the agent get for its budget? |
//! | [`view`] | how does that become a list every provider accepts? |
//! | [`strategy`], [`condense`] | how does a list become shorter, inline? |
//! | [`prompt`] | what is a model asked? |
//! | [`inspect`] | is its answer a summary? |
//! | [`redact`] | what must not be in it? |
//! | [`names`], [`ledger`] | what must be in it, word for word? |
//! | [`local`] | how is one written without a model? |
//! | [`excerpt`] | how is one message made smaller? |
//! | [`setting`] | why was a setting refused? |
//! | [`shelf`] | who holds the words meanwhile? |
//! | [`valid`] | what would a provider refuse? |
//!
//! Examples draw their sessions in a line, `u a(x) r(x)`; `drawing` in the test kit says how.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | message | one entry of the log: `seq` (dense, from 1), role, author, parts, flags, time |
//! | turn | a user message and everything up to the next one; what comes before the first is turn 0 |
//! | part | text, thinking, tool call, tool result, or media |
//! | outline | a message's shape without its words: what planning needs |
//! | cut | a place where the log may be divided |
//! | batch | a reply's calls and their results: kept or left together |
//! | stray | a result or call that answers or repeats what is not there; in the log, never in the view |
//! | slot | a standing order for a summary: trigger, keep, limit, scope |
//! | scope | whose messages a slot covers: the whole session, or one author's |
//! | firing | the message at which a slot became due |
//! | span | a run of messages, `from..=through` |
//! | summary | text standing for its scope's messages `1..=through` |
//! | context | what the agent is given: pinned, summary, recent messages, under a budget |
//! | condense | the inline form: a list of messages in, a shorter valid list out |
//! | strategy | by which means a list is condensed |
//! | ledger | the names that must survive word for word, and which will be needed again |
//! | extract | a piece of what was said that `local` makes its summaries of |
//!
//! # What is not known here
//!
//! No provider, store, protocol or clock. How a provider spells a message is a dialect's matter.
//! [`plan`], [`cut`], [`trigger`] and [`context`] see outlines and sizes, never text. Nothing here
//! panics, whatever comes in.

pub mod condense;
pub mod context;
pub mod cut;
pub mod economic;
pub mod excerpt;
mod expr;
pub mod inspect;
pub mod keep;
pub mod ledger;
pub mod local;
pub mod media;
pub mod message;
pub mod names;
mod num;
pub mod outline;
mod pattern;
pub mod plan;
pub mod prompt;
mod reading;
pub mod redact;
mod refusal;
pub mod setting;
pub mod shelf;
pub mod slot;
pub mod strategy;
pub mod tokens;
pub mod track;
pub mod trigger;
pub mod valid;
pub mod view;
mod words;
