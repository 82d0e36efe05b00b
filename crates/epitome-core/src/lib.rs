//! The decision logic of Epitome. It decides when a summary is due, where a message log may be cut, what a context
//! contains, how a message list is condensed, and which summaries are accepted.
//!
//! Epitome keeps long agent conversations within a model's context window. This crate contains only pure functions: no
//! IO, clock, async runtime or environment variables. The same input produces the same decision on every machine. Every
//! rule can therefore be tested without a database, a model or a delay.
//!
//! # From a log to a context
//!
//! ```
//! use epitome_core::context::{PlaceholderCosts, Request, SessionShape, lay_out};
//! use epitome_core::cut::Cuts;
//! use epitome_core::local::Extracts;
//! use epitome_core::message::Message;
//! use epitome_core::plan::{PlanInput, NextStep, next_step};
//! use epitome_core::context_texts::ContextTexts;
//! use epitome_core::slot::{Slot, SlotState};
//! use epitome_core::tokens::{Counter, Encoding};
//! use epitome_core::track::Tracker;
//! use epitome_core::context_texts::render;
//!
//! // 1. Messages arrive. The tracker computes the outline of each message, and the slot counts the message.
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
//! // 2. After twenty messages a summary is due. The plan contains the messages to summarize.
//! let plan_input =
//!     PlanInput { outlines: &shapes, end: Some(tracker.cut_at_end()), room: None, input: 100_000, authors: &[] };
//! let step = next_step(&slot, &state, &plan_input);
//! let NextStep::Summarize(plan) = &step else { panic!("due at 20") };
//! assert_eq!((plan.span.from, plan.span.through), (1, 20));
//!
//! // 3. A model or the built-in extractive summarizer writes the summary. Then `settle` advances the slot.
//! let mut extracts = Extracts::default();
//! log[..20].iter().for_each(|message| extracts.read(message));
//! let text = extracts.summarize(slot.limit, &counter);
//! step.settle(&slot, &mut state, &shapes, None);
//!
//! // 4. A context of 300 tokens contains the summary and the messages after the summary.
//! let mut texts = ContextTexts::new(&counter, &log).with_summary(20, text);
//! let candidates = texts.candidates();
//! let session = SessionShape::whole(Cuts::new(&shapes, tracker.cut_at_end()), &candidates);
//! let request = Request { tokens: Some(300), ..Request::default() };
//! let layout = lay_out(&request, &session, &PlaceholderCosts::of(&counter), &mut texts)?;
//! assert!(layout.report.exhaustive);
//! let context = render(&layout, &texts)?;
//! assert_eq!(context.len(), 1 + 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # From a long list to a shorter list
//!
//! An agent that stores its own history needs no log. [`condense`] shortens the agent's message list before a model
//! call. The documentation of that module has an example. [`local`] writes summaries without a model.
//!
//! # Reading order
//!
//! | module | question that it answers |
//! |---|---|
//! | [`message`] | What does a session consist of? |
//! | [`tokens`], [`media`] | How many tokens does a message have? |
//! | [`outline`] | What is the shape of a message, without its text? |
//! | [`track`] | Which tool calls are open, and where may the log be cut? |
//! | [`cut`] | Which of the legal cuts is chosen? |
//! | [`trigger`], [`economic`], [`keep`] | When is a summary due, and which messages stay verbatim? |
//! | [`slot`] | Which summaries are configured, and which messages does each summary cover? |
//! | [`plan`] | Which messages are summarized next? |
//! | [`context`] | Which messages and summaries fit the agent's budget? |
//! | [`view`] | How do the selected messages become a list that every provider accepts? |
//! | [`strategy`], [`condense`] | How is a message list shortened before a model call? |
//! | [`prompt`] | Which prompt is sent to the summarizing model? |
//! | [`inspect`] | Is the model's answer a usable summary? |
//! | [`redact`] | Which text must not appear in a summary? |
//! | [`names`], [`ledger`] | Which names must a summary repeat verbatim? |
//! | [`local`] | How is a summary written without a model? |
//! | [`excerpt`] | How is a single message shortened? |
//! | [`setting`] | Why was a setting rejected? |
//! | [`suggest`] | Which name did a user probably mean? |
//! | [`context_texts`] | Where are message and summary texts stored while a context is assembled? |
//! | [`valid`] | Which message lists would a provider reject? |
//!
//! Examples describe a session in one line, such as `u a(x) r(x)`. The `drawing` module of the test kit documents this
//! notation.
//!
//! # Glossary
//!
//! | term | meaning |
//! |---|---|
//! | message | One entry of the log: `seq` (consecutive, from 1), role, author, parts, flags, timestamp. |
//! | turn | A user message and every message up to the next user message; messages before the first user message are turn 0. |
//! | part | Text, reasoning, a tool call, a tool result, or media. |
//! | outline | The shape of a message without its text, which is all that planning needs. |
//! | cut | A position where the log may be divided. |
//! | batch | The tool calls of one reply and their results, which a cut never divides. |
//! | stray | A tool result without a matching open call, or a repeated call, which stays in the log but is never sent. |
//! | slot | The configuration of one summary of a session: trigger, keep, limit, scope. |
//! | scope | The messages that a slot covers: the whole session, or one author's messages. |
//! | firing | A trigger event, identified by the position of the message at which a slot became due. |
//! | span | Consecutive messages, written as `from..=through`. |
//! | summary | A text that covers the messages `1..=through` of its scope. |
//! | context | What the agent receives: pinned messages, a summary and recent messages, within a token budget. |
//! | condense | To shorten a message list before a model call; the result is a valid list. |
//! | strategy | The method by which a list is condensed. |
//! | ledger | The names that a summary must repeat verbatim, ranked by how likely they are needed again. |
//! | extract | A piece of a message from which `local` builds its summaries. |
//!
//! # What this crate does not depend on
//!
//! This crate depends on no provider, store, protocol or clock. Dialects handle the message formats of providers.
//! [`plan`], [`cut`], [`trigger`] and [`context`] read outlines and sizes, never text. No input makes this crate panic.

pub mod condense;
pub mod context;
pub mod context_texts;
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
pub mod slot;
pub mod strategy;
pub mod suggest;
mod timestamp;
pub mod tokens;
pub mod track;
pub mod trigger;
pub mod valid;
pub mod view;
mod words;
