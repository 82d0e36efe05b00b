//! Plays one conversation through one policy.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use epitome::Condenser;
use epitome::Error;
use epitome::metrics::REUSED;
use epitome::rules::context::Oversize;
use epitome::rules::message::{Message, Role, Tokens};
use epitome::rules::tokens::{Counter, Encoding};
use epitome::rules::valid::complaints;
use epitome::rules::view::split;
use epitome::settings::Patch;
use epitome::{Context, ContextRequest, Engine, Session};
use serde_json::json;

use super::{Conversation, DISTANCES, Form, Made, Options, Outcome, Policy};
use crate::measure::cost::{Run, Sent};
use crate::measure::{Questions, Recorded, Shown, text_of};

/// Maximum number of faults that are listed for a conversation.
const FAULTS: usize = 8;

/// Model name of the built-in extractive summarizer, which costs nothing.
const LOCAL: &str = "local";

/// The message list of one request.
struct List<'a> {
    messages: &'a [Message],
    /// Fingerprint and size of each piece; each tool result is a piece of its own.
    sent: &'a [Sent],
    /// Whether the policy changed the list. An invalid list that was already in the recording is not a fault of the policy.
    made: bool,
}

/// Plays a conversation through a policy, and passes every context and request to `made`. Returns one outcome for each
/// budget, or a single outcome if the policy has no budget.
pub async fn play(
    conversation: &Conversation,
    policy: &Policy,
    options: &Options,
    made: &mut (dyn FnMut(Made<'_>) + Send),
) -> Result<Vec<Outcome>, Error> {
    let mut judge = Judge::new(conversation, options);
    match &policy.form {
        Form::Whole => Ok(vec![whole(conversation, &mut judge, made)]),
        Form::Inline { window } => inline(conversation, policy, *window, &mut judge, made).await,
        Form::Context(request) => contexts(conversation, policy, request, &mut judge, options, made).await,
    }
}

/// Plays the policy that sends all messages. The list only grows, so each message is processed once.
fn whole(
    conversation: &Conversation,
    judge: &mut Judge<'_>,
    made: &mut (dyn FnMut(Made<'_>) + Send),
) -> Outcome {
    let (mut track, mut sent, mut said) = (Track::default(), Vec::new(), 0);
    for at in judge.calls() {
        for message in conversation.messages.get(said..at).unwrap_or_default() {
            judge.send(message, &mut sent);
        }
        said = at;
        let list =
            List { messages: conversation.messages.get(..at).unwrap_or_default(), sent: &sent, made: false };
        track.take(judge, at, &list, made);
        track.look(judge, at, list.messages, made);
    }
    track.outcome
}

async fn inline(
    conversation: &Conversation,
    policy: &Policy,
    window: Option<Tokens>,
    judge: &mut Judge<'_>,
    made: &mut (dyn FnMut(Made<'_>) + Send),
) -> Result<Vec<Outcome>, Error> {
    let mut builder = Condenser::builder().settings(policy.patch.clone());
    if let Some(window) = window {
        builder = builder.window(window);
    }
    let condenser = builder.build()?;
    let mut history = conversation.messages.clone();
    pin(&mut history, conversation.pinned);
    let mut track = Track::default();
    for at in judge.calls() {
        let ready = condenser.before_model(history.get(..at).unwrap_or_default()).await;
        let sent = judge.sent(&ready);
        track.take(judge, at, &List { messages: &ready, sent: &sent, made: !ready.is_untouched() }, made);
        track.look(judge, at, &ready, made);
        for problem in &ready.report.problems {
            track.fault(at, problem);
        }
        // A replay is faster than the original conversation, in which the model would have written the summary before the
        // next call. So the replay waits for it.
        let later = ready.turn().settled().await;
        for spent in
            ready.report.spent.iter().chain(&later).filter(|spent| asked(&spent.model, &spent.outcome))
        {
            track.outcome.cost.summarized(spent.input, spent.output);
            made(Made::Summarizer { budget: None, input: spent.input, output: spent.output });
        }
    }
    Ok(vec![track.outcome])
}

async fn contexts(
    conversation: &Conversation,
    policy: &Policy,
    request: &ContextRequest,
    judge: &mut Judge<'_>,
    options: &Options,
    made: &mut (dyn FnMut(Made<'_>) + Send),
) -> Result<Vec<Outcome>, Error> {
    // A replay is faster than the original conversation, so this task writes each summary before the next message.
    // `context.max_tokens` is raised so that the settings do not limit the measured budgets.
    let largest = Patch::from_value(json!({ "context": { "max_tokens": u32::MAX } }))
        .map_err(|problem| Error::Invalid(problem.to_string()))?;
    let engine =
        Engine::builder().settings(policy.patch.merged(&largest)).without_summaries().memory().await?;
    let session = engine.session("replayed");
    let head: Tokens = conversation
        .messages
        .iter()
        .take(conversation.pinned)
        .map(|message| judge.counter.message(message))
        .sum();
    let mut tracks: Vec<Track> = options.budgets.iter().map(|budget| Track::of(*budget)).collect();
    let mut said = 0;
    for at in judge.calls() {
        while let Some(message) = conversation.messages.get(said).filter(|_| said < at) {
            let mut message = message.clone();
            message.seq = 0;
            message.pinned |= said < conversation.pinned;
            session.append(vec![message]).await?;
            if request.summary {
                session.work().await?;
            }
            said += 1;
        }
        for (track, budget) in tracks.iter_mut().zip(&options.budgets) {
            let ask = |more: Tokens| {
                let tokens = Some(budget.saturating_add(head).saturating_add(more));
                session.context(ContextRequest { tokens, oversize: Oversize::Clip, ..request.clone() })
            };
            let context = ask(0).await?;
            track.outcome.gaps += u64::from(!context.report.exhaustive);
            if context.report.tokens.total() > budget.saturating_add(head) {
                track.fault(at, "over its budget");
            }
            let sent = judge.sent(&context.messages);
            track.take(judge, at, &List { messages: &context.messages, sent: &sent, made: true }, made);
            if judge.is_place(at) {
                let context = measured(context, ask, judge, head, *budget).await?;
                track.look(judge, at, &context.messages, made);
            }
        }
    }
    // Without messages there is no session.
    if said > 0 {
        spent(&session, &mut tracks, made).await?;
        for failure in session.explain().await?.slots.into_iter().filter_map(|slot| slot.last_error) {
            tracks.iter_mut().for_each(|track| track.fault(said, &failure));
        }
    }
    engine.close().await;
    Ok(tracks.into_iter().map(|track| track.outcome).collect())
}

/// Maximum number of further requests for a larger context.
const ASKED: usize = 3;

/// Returns the largest context that fits the budget by the measure's count: the text's tokens plus four for each message.
/// The engine also counts the frame of a summary and the syntax of a call, so it gets a budget that is larger by this
/// difference.
async fn measured<A: Future<Output = Result<Context, Error>>>(
    first: Context,
    ask: impl Fn(Tokens) -> A,
    judge: &Judge<'_>,
    head: Tokens,
    budget: Tokens,
) -> Result<Context, Error> {
    let beside = |context: &Context| {
        let used = judge.tokens(&judge.shown(&context.messages));
        (used, context.report.tokens.total().saturating_sub(head).saturating_sub(used))
    };
    let (mut best, mut asked) = (first, 0);
    let mut more = beside(&best).1;
    for _ in 0..ASKED {
        if more <= asked {
            break;
        }
        let context = ask(more).await?;
        let (used, around) = beside(&context);
        if used <= budget {
            (best, asked, more) = (context, more, around);
        } else {
            // The larger budget selected other messages, which have less overhead.
            more = around.min(more.saturating_sub(used - budget));
        }
    }
    Ok(best)
}

/// Adds the cost of model calls from the engine's usage records. It is the same for every budget.
async fn spent(
    session: &Session,
    tracks: &mut [Track],
    made: &mut (dyn FnMut(Made<'_>) + Send),
) -> Result<(), Error> {
    for sum in session.usage().await?.into_iter().filter(|sum| asked(&sum.model, &sum.outcome)) {
        // The usage records contain sums. How a sum is divided among its calls does not change the cost.
        let share = |of: Tokens, call: u64| of / sum.calls + u64::from(call < of % sum.calls);
        for track in &mut *tracks {
            for call in 0..sum.calls {
                let (input, output) = (share(sum.input, call), share(sum.output, call));
                track.outcome.cost.summarized(input, output);
                made(Made::Summarizer { budget: track.outcome.budget, input, output });
            }
        }
    }
    Ok(())
}

/// Returns whether a call went to a model that has a price.
fn asked(model: &str, outcome: &str) -> bool {
    model != LOCAL && outcome != REUSED
}

fn pin(messages: &mut [Message], pinned: usize) {
    messages.iter_mut().take(pinned).for_each(|message| message.pinned = true);
}

/// Determines what the recording needs at each place, and checks lists for it.
struct Judge<'a> {
    conversation: &'a Conversation,
    recorded: Recorded,
    questions: Option<Questions>,
    /// The measured places: numbers of messages before them, sorted.
    places: Vec<usize>,
    costs: bool,
    counter: Counter,
    hash: RandomState,
    sizes: HashMap<u64, Tokens>,
}

impl<'a> Judge<'a> {
    fn new(conversation: &'a Conversation, options: &Options) -> Self {
        let recorded = Recorded::new(conversation.pinned, &conversation.messages);
        let asked = !conversation.questions.is_empty();
        let questions = asked.then(|| Questions::new(&recorded, &conversation.questions));
        let places = if asked { vec![conversation.messages.len()] } else { recorded.places() };
        let counter = Counter::new(Encoding::O200k);
        let (hash, sizes) = (RandomState::new(), HashMap::new());
        Self { conversation, recorded, questions, places, costs: options.costs, counter, hash, sizes }
    }

    /// Returns whether the place after `at` messages is measured.
    fn is_place(&self, at: usize) -> bool {
        self.places.binary_search(&at).is_ok()
    }

    /// Returns after how many messages the agent's model is called: before each reply or, in a recording without replies,
    /// after each message.
    fn calls(&self) -> Vec<usize> {
        let mut calls = Vec::new();
        if self.costs {
            let said = &self.conversation.messages;
            let reply = |message: &Message| message.role == Role::Assistant;
            let replies = |(at, message): (usize, &Message)| (at > 0 && reply(message)).then_some(at);
            calls.extend(said.iter().enumerate().filter_map(replies));
            if calls.is_empty() {
                calls.extend(1..=said.len());
            }
        }
        calls.extend(&self.places);
        calls.sort_unstable();
        calls.dedup();
        calls
    }

    /// Returns the list without the messages that are always shown.
    fn shown(&self, list: &[Message]) -> Shown {
        let mut head = self.conversation.messages.iter().take(self.conversation.pinned).peekable();
        let mut shown = Shown::default();
        for message in list {
            if head.next_if(|first| first.role == message.role && first.parts == message.parts).is_some() {
                continue;
            }
            match split(message) {
                Some((found, rest)) => {
                    shown.summary = found.text;
                    shown.messages.extend(rest.map(|rest| text_of(&rest)));
                }
                None => shown.messages.push(text_of(message)),
            }
        }
        shown
    }

    /// Counts tokens as the published scorer does: the text's tokens, plus four for each message with text.
    fn tokens(&self, shown: &Shown) -> Tokens {
        let texts = std::iter::once(&shown.summary).chain(&shown.messages);
        texts.filter(|text| !text.is_empty()).map(|text| self.counter.text(text).saturating_add(4)).sum()
    }

    /// Returns the fingerprint and the size of each piece. A message is counted once, even if it is sent often.
    fn sent(&mut self, list: &[Message]) -> Vec<Sent> {
        let mut sent = Vec::with_capacity(list.len());
        list.iter().for_each(|message| self.send(message, &mut sent));
        sent
    }

    fn send(&mut self, message: &Message, sent: &mut Vec<Sent>) {
        if !self.costs {
            return;
        }
        if message.results().count() < 2 {
            sent.push(self.piece(message));
            return;
        }
        for part in &message.parts {
            let mut one = Message::new(message.role, [part.clone()]);
            one.author.clone_from(&message.author);
            sent.push(self.piece(&one));
        }
    }

    fn piece(&mut self, message: &Message) -> Sent {
        let mut state = self.hash.build_hasher();
        // Serializing cannot fail, because the message was deserialized. If it did, the message would count as empty.
        state
            .write(&serde_json::to_vec(&(message.role, &message.author, &message.parts)).unwrap_or_default());
        let hash = state.finish();
        let tokens = *self.sizes.entry(hash).or_insert_with(|| self.counter.message(message));
        Sent { hash, tokens }
    }
}

/// Collects the results for one budget.
#[derive(Default)]
struct Track {
    outcome: Outcome,
    run: Run,
}

impl Track {
    fn of(budget: Tokens) -> Self {
        Self { outcome: Outcome { budget: Some(budget), ..Outcome::default() }, ..Self::default() }
    }

    fn fault(&mut self, at: usize, what: &str) {
        self.outcome.faulty += 1;
        if self.outcome.faults.len() < FAULTS {
            self.outcome.faults.push(format!("after message {at}: {what}"));
        }
    }

    /// Adds the list that is sent after `at` messages.
    fn take(
        &mut self,
        judge: &mut Judge<'_>,
        at: usize,
        list: &List<'_>,
        made: &mut (dyn FnMut(Made<'_>) + Send),
    ) {
        let budget = self.outcome.budget;
        if judge.costs {
            self.outcome.cuts += u64::from(!self.run.goes_on(list.sent));
            let paid = self.run.send(&mut self.outcome.cost, list.sent);
            self.outcome.curve.push(self.outcome.curve.last().copied().unwrap_or(0.0) + paid);
            let tokens: Vec<Tokens> = list.sent.iter().map(|sent| sent.tokens).collect();
            made(Made::Request { budget, messages: list.messages, tokens: &tokens });
        }
        if list.made {
            for complaint in complaints(list.messages) {
                self.fault(at, &complaint);
            }
        }
    }

    /// Measures the list if this place is measured.
    fn look(
        &mut self,
        judge: &mut Judge<'_>,
        at: usize,
        list: &[Message],
        made: &mut (dyn FnMut(Made<'_>) + Send),
    ) {
        if !judge.is_place(at) {
            return;
        }
        let shown = judge.shown(list);
        let tokens = judge.tokens(&shown);
        self.outcome.size.add(tokens as f64);
        self.measure(judge, at, &shown);
        if let Some(budget) = self.outcome.budget {
            if tokens > budget {
                self.fault(at, "over its budget");
            }
            made(Made::Context { at, budget, shown: &shown, tokens });
        }
    }

    fn measure(&mut self, judge: &mut Judge<'_>, at: usize, shown: &Shown) {
        let outcome = &mut self.outcome;
        if let Some(questions) = &mut judge.questions {
            let (answers, evidence) = questions.held(shown);
            answers.into_iter().for_each(|value| outcome.ar.add(value));
            evidence.into_iter().for_each(|value| outcome.er.add(value));
            return;
        }
        // If the whole conversation fits the budget, nothing was condensed.
        if outcome.budget.is_some_and(|budget| judge.recorded.size(at) <= budget) {
            return;
        }
        for need in judge.recorded.needs(at) {
            let held = if shown.holds(&need.name) { 1.0 } else { 0.0 };
            outcome.fer.add(held);
            if need.is_far() {
                outcome.fer_far.add(held);
            }
            let bin = DISTANCES.iter().position(|most| need.back <= *most).unwrap_or(DISTANCES.len());
            if let Some(mean) = outcome.by_distance.get_mut(bin) {
                mean.add(held);
            }
        }
    }
}
