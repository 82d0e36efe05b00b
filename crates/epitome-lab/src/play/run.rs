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

use super::{Conversation, DISTANCES, ListMethod, Outcome, PlayOptions, Policy, ReplayEvent};
use crate::evaluation::cost::{PromptCache, SentMessage};
use crate::evaluation::{Need, Questions, Recorded, SaidAbout, Shown, text_of};

/// Maximum number of faults that are listed for a conversation.
const MAX_FAULTS: usize = 8;

/// Model name of the built-in extractive summarizer, which costs nothing.
const LOCAL: &str = "local";

/// The message list of one request.
struct RequestList<'a> {
    messages: &'a [Message],
    /// Fingerprint and size of each piece of the list. A piece is a message, or one tool result of a message with
    /// several results.
    sent: &'a [SentMessage],
    /// Whether the policy changed the list. If not, an invalid list comes from the recording and is not a fault of the
    /// policy.
    changed: bool,
}

/// Plays a conversation through a policy, and passes every context, request and summary to `on_event`. Returns one
/// outcome for each budget, or a single outcome if the policy has no budget.
pub async fn play(
    conversation: &Conversation,
    policy: &Policy,
    options: &PlayOptions,
    on_event: &mut (dyn FnMut(ReplayEvent<'_>) + Send),
) -> Result<Vec<Outcome>, Error> {
    let mut scorer = Scorer::new(conversation, options);
    match &policy.method {
        ListMethod::Whole => Ok(vec![whole(conversation, &mut scorer, on_event)]),
        ListMethod::Inline { window } => inline(conversation, policy, *window, &mut scorer, on_event).await,
        ListMethod::Context(request) => {
            contexts(conversation, policy, request, &mut scorer, options, on_event).await
        }
    }
}

/// Plays the policy that sends all messages. The list of a call begins with the whole previous list, so each message is
/// counted only once.
fn whole(
    conversation: &Conversation,
    scorer: &mut Scorer<'_>,
    on_event: &mut (dyn FnMut(ReplayEvent<'_>) + Send),
) -> Outcome {
    let (mut track, mut sent, mut appended) = (OutcomeBuilder::default(), Vec::new(), 0);
    for at in scorer.calls() {
        for message in conversation.messages.get(appended..at).unwrap_or_default() {
            scorer.send(message, &mut sent);
        }
        appended = at;
        let list = RequestList {
            messages: conversation.messages.get(..at).unwrap_or_default(),
            sent: &sent,
            changed: false,
        };
        track.add_request(scorer, at, &list, on_event);
        track.measure_at(scorer, at, list.messages, on_event);
    }
    track.outcome
}

async fn inline(
    conversation: &Conversation,
    policy: &Policy,
    window: Option<Tokens>,
    scorer: &mut Scorer<'_>,
    on_event: &mut (dyn FnMut(ReplayEvent<'_>) + Send),
) -> Result<Vec<Outcome>, Error> {
    let mut builder = Condenser::builder().settings(policy.patch.clone());
    if let Some(window) = window {
        builder = builder.window(window);
    }
    let condenser = builder.build()?;
    let mut history = conversation.messages.clone();
    pin(&mut history, conversation.pinned);
    let mut track = OutcomeBuilder::default();
    for at in scorer.calls() {
        let ready = condenser.before_model(history.get(..at).unwrap_or_default()).await;
        let sent = scorer.sizes_of(&ready);
        track.add_request(
            scorer,
            at,
            &RequestList { messages: &ready, sent: &sent, changed: !ready.is_untouched() },
            on_event,
        );
        track.measure_at(scorer, at, &ready, on_event);
        for problem in &ready.report.problems {
            track.fault(at, problem);
        }
        // In the original conversation, a summary that starts now would be finished before the next call. A replay is
        // faster, so the replay waits for the summary.
        let later = ready.turn().settled().await;
        for spent in
            ready.report.spent.iter().chain(&later).filter(|spent| has_price(&spent.model, &spent.outcome))
        {
            track.outcome.cost.summarized(spent.input, spent.output);
            on_event(ReplayEvent::Summarizer { budget: None, input: spent.input, output: spent.output });
        }
    }
    Ok(vec![track.outcome])
}

async fn contexts(
    conversation: &Conversation,
    policy: &Policy,
    request: &ContextRequest,
    scorer: &mut Scorer<'_>,
    options: &PlayOptions,
    on_event: &mut (dyn FnMut(ReplayEvent<'_>) + Send),
) -> Result<Vec<Outcome>, Error> {
    // The engine has no workers. A replay is faster than the original conversation, so this function writes each due
    // summary before it appends the next message. `context.max_tokens` is raised, so that the settings do not limit the
    // measured budgets.
    let largest = Patch::from_value(json!({ "context": { "max_tokens": u32::MAX } }))
        .map_err(|problem| Error::Invalid(problem.to_string()))?;
    let engine =
        Engine::builder().settings(policy.patch.merged(&largest)).without_summaries().memory().await?;
    let session = engine.session("replayed");
    let head: Tokens = conversation
        .messages
        .iter()
        .take(conversation.pinned)
        .map(|message| scorer.counter.message(message))
        .sum();
    let mut tracks: Vec<OutcomeBuilder> =
        options.budgets.iter().map(|budget| OutcomeBuilder::of(*budget)).collect();
    let mut appended = 0;
    for at in scorer.calls() {
        while let Some(message) = conversation.messages.get(appended).filter(|_| appended < at) {
            let mut message = message.clone();
            message.seq = 0;
            message.pinned |= appended < conversation.pinned;
            session.append(vec![message]).await?;
            if request.summary {
                session.work().await?;
            }
            appended += 1;
        }
        for (track, budget) in tracks.iter_mut().zip(&options.budgets) {
            let ask = |more: Tokens| {
                let tokens = Some(budget.saturating_add(head).saturating_add(more));
                session.context(ContextRequest { tokens, oversize: Oversize::Clip, ..request.clone() })
            };
            let context = ask(0).await?;
            track.outcome.gaps += u64::from(!context.report.exhaustive);
            if context.report.tokens.total() > budget.saturating_add(head) {
                track.fault(at, "the context is larger than its budget");
            }
            let sent = scorer.sizes_of(&context.messages);
            track.add_request(
                scorer,
                at,
                &RequestList { messages: &context.messages, sent: &sent, changed: true },
                on_event,
            );
            if scorer.is_position(at) {
                let context = measured(context, ask, scorer, head, *budget).await?;
                track.measure_at(scorer, at, &context.messages, on_event);
            }
        }
    }
    // The session exists only if a message was appended.
    if appended > 0 {
        spent(&session, &mut tracks, on_event).await?;
        for failure in session.explain().await?.slots.into_iter().filter_map(|slot| slot.last_error) {
            tracks.iter_mut().for_each(|track| track.fault(appended, &failure));
        }
    }
    engine.close().await;
    Ok(tracks.into_iter().map(|track| track.outcome).collect())
}

/// Maximum number of further requests for a larger context.
const MAX_RETRIES: usize = 3;

/// Returns the largest context that fits the budget as the measures count tokens: the tokens of the texts, plus four
/// for each message. The engine also counts the tags around a summary and the syntax of a tool call. So the engine gets
/// a budget that is larger by this difference.
async fn measured<A: Future<Output = Result<Context, Error>>>(
    first: Context,
    ask: impl Fn(Tokens) -> A,
    scorer: &Scorer<'_>,
    head: Tokens,
    budget: Tokens,
) -> Result<Context, Error> {
    let overhead = |context: &Context| {
        let used = scorer.tokens(&scorer.shown(&context.messages));
        (used, context.report.tokens.total().saturating_sub(head).saturating_sub(used))
    };
    let (mut best, mut added) = (first, 0);
    let mut more = overhead(&best).1;
    for _ in 0..MAX_RETRIES {
        if more <= added {
            break;
        }
        let context = ask(more).await?;
        let (used, extra) = overhead(&context);
        if used <= budget {
            (best, added, more) = (context, more, extra);
        } else {
            // The larger budget selected other messages, which have less overhead.
            more = extra.min(more.saturating_sub(used - budget));
        }
    }
    Ok(best)
}

/// Adds the cost of the model calls in the engine's usage records. This cost is the same for every budget.
async fn spent(
    session: &Session,
    tracks: &mut [OutcomeBuilder],
    on_event: &mut (dyn FnMut(ReplayEvent<'_>) + Send),
) -> Result<(), Error> {
    for sum in session.usage().await?.into_iter().filter(|sum| has_price(&sum.model, &sum.outcome)) {
        // A usage record contains the sum of several calls. The sum is divided evenly among the calls. Any other
        // division would result in the same total cost.
        let share = |of: Tokens, call: u64| of / sum.calls + u64::from(call < of % sum.calls);
        for track in &mut *tracks {
            for call in 0..sum.calls {
                let (input, output) = (share(sum.input, call), share(sum.output, call));
                track.outcome.cost.summarized(input, output);
                on_event(ReplayEvent::Summarizer { budget: track.outcome.budget, input, output });
            }
        }
    }
    Ok(())
}

/// Returns whether a summary has a price: a model other than `local` wrote it, and no stored reply was reused.
fn has_price(model: &str, outcome: &str) -> bool {
    model != LOCAL && outcome != REUSED
}

fn pin(messages: &mut [Message], pinned: usize) {
    messages.iter_mut().take(pinned).for_each(|message| message.pinned = true);
}

/// Returns the names that the calls at a position need, each with what was said about it.
fn needs(recorded: &Recorded, at: usize) -> Vec<(Need, SaidAbout)> {
    let said = |need: Need| {
        let said = recorded.said_about(&need.name, at);
        (need, said)
    };
    recorded.needs(at).into_iter().map(said).collect()
}

/// Scores lists: determines which names and answers the recording needs, and checks which of them a list contains.
struct Scorer<'a> {
    conversation: &'a Conversation,
    recorded: Recorded,
    /// The questions about the conversation; `None` if the recording has no questions.
    questions: Option<Questions>,
    /// The positions at which a list is scored, sorted. A position is the number of messages before it.
    positions: Vec<usize>,
    /// The needs at each position, which every budget is scored with.
    needs: HashMap<usize, Vec<(Need, SaidAbout)>>,
    costs: bool,
    counter: Counter,
    hash: RandomState,
    sizes: HashMap<u64, Tokens>,
}

impl<'a> Scorer<'a> {
    fn new(conversation: &'a Conversation, options: &PlayOptions) -> Self {
        let recorded = Recorded::new(conversation.pinned, &conversation.messages);
        let has_questions = !conversation.questions.is_empty();
        let questions = has_questions.then(|| Questions::new(&recorded, &conversation.questions));
        let positions = if has_questions { vec![conversation.messages.len()] } else { recorded.positions() };
        let counter = Counter::new(Encoding::O200k);
        let needs = match &questions {
            None => positions.iter().map(|at| (*at, needs(&recorded, *at))).collect(),
            Some(_) => HashMap::new(),
        };
        let (hash, sizes) = (RandomState::new(), HashMap::new());
        Self {
            conversation,
            recorded,
            questions,
            positions,
            needs,
            costs: options.costs,
            counter,
            hash,
            sizes,
        }
    }

    /// Returns whether the list after `at` messages is scored.
    fn is_position(&self, at: usize) -> bool {
        self.positions.binary_search(&at).is_ok()
    }

    /// Returns the positions at which a list is built: all calls of the agent's model, and the positions at which a
    /// list is scored. A call is before each reply or, in a recording without replies, after each message.
    fn calls(&self) -> Vec<usize> {
        let mut calls = Vec::new();
        if self.costs {
            let appended = &self.conversation.messages;
            let reply = |message: &Message| message.role == Role::Assistant;
            let replies = |(at, message): (usize, &Message)| (at > 0 && reply(message)).then_some(at);
            calls.extend(appended.iter().enumerate().filter_map(replies));
            if calls.is_empty() {
                calls.extend(1..=appended.len());
            }
        }
        calls.extend(&self.positions);
        calls.sort_unstable();
        calls.dedup();
        calls
    }

    /// Returns the texts of a list, without the messages that are always shown.
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

    /// Returns the fingerprint and the size of each piece of a list. The tokens of a message are counted only once,
    /// even if many requests contain the message.
    fn sizes_of(&mut self, list: &[Message]) -> Vec<SentMessage> {
        let mut sent = Vec::with_capacity(list.len());
        list.iter().for_each(|message| self.send(message, &mut sent));
        sent
    }

    fn send(&mut self, message: &Message, sent: &mut Vec<SentMessage>) {
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

    fn piece(&mut self, message: &Message) -> SentMessage {
        let mut state = self.hash.build_hasher();
        // Serializing cannot fail, because the message was deserialized before. After a failure, the message would
        // count as empty.
        state
            .write(&serde_json::to_vec(&(message.role, &message.author, &message.parts)).unwrap_or_default());
        let hash = state.finish();
        let tokens = *self.sizes.entry(hash).or_insert_with(|| self.counter.message(message));
        SentMessage { hash, tokens }
    }
}

/// Collects the results for one budget.
#[derive(Default)]
struct OutcomeBuilder {
    outcome: Outcome,
    cache: PromptCache,
}

impl OutcomeBuilder {
    fn of(budget: Tokens) -> Self {
        Self { outcome: Outcome { budget: Some(budget), ..Outcome::default() }, ..Self::default() }
    }

    fn fault(&mut self, at: usize, what: &str) {
        self.outcome.faulty += 1;
        if self.outcome.faults.len() < MAX_FAULTS {
            self.outcome.faults.push(format!("after message {at}: {what}"));
        }
    }

    /// Adds the request that is sent after `at` messages: its cost, and the faults of its list.
    fn add_request(
        &mut self,
        scorer: &mut Scorer<'_>,
        at: usize,
        list: &RequestList<'_>,
        on_event: &mut (dyn FnMut(ReplayEvent<'_>) + Send),
    ) {
        let budget = self.outcome.budget;
        if scorer.costs {
            self.outcome.cuts += u64::from(!self.cache.continues(list.sent));
            let cost = self.cache.send(&mut self.outcome.cost, list.sent);
            self.outcome.curve.push(self.outcome.curve.last().copied().unwrap_or(0.0) + cost);
            let tokens: Vec<Tokens> = list.sent.iter().map(|sent| sent.tokens).collect();
            on_event(ReplayEvent::Request { budget, messages: list.messages, tokens: &tokens });
        }
        if list.changed {
            for complaint in complaints(list.messages) {
                self.fault(at, &complaint);
            }
        }
    }

    /// Scores the list if `at` is a position at which lists are scored.
    fn measure_at(
        &mut self,
        scorer: &mut Scorer<'_>,
        at: usize,
        list: &[Message],
        on_event: &mut (dyn FnMut(ReplayEvent<'_>) + Send),
    ) {
        if !scorer.is_position(at) {
            return;
        }
        let shown = scorer.shown(list);
        let tokens = scorer.tokens(&shown);
        self.outcome.size.add(tokens as f64);
        self.measure(scorer, at, &shown);
        if let Some(budget) = self.outcome.budget {
            if tokens > budget {
                self.fault(at, "the context is larger than its budget");
            }
            on_event(ReplayEvent::Context { at, budget, shown: &shown, tokens });
        }
    }

    fn measure(&mut self, scorer: &mut Scorer<'_>, at: usize, shown: &Shown) {
        let outcome = &mut self.outcome;
        if let Some(questions) = &mut scorer.questions {
            let (answers, evidence) = questions.score(shown);
            answers.into_iter().for_each(|value| outcome.ar.add(value));
            evidence.into_iter().for_each(|value| outcome.er.add(value));
            return;
        }
        // If the whole conversation fits the budget, nothing was condensed, so names are not scored.
        if outcome.budget.is_some_and(|budget| scorer.recorded.size(at) <= budget) {
            return;
        }
        outcome.lists.add(&shown.summary);
        for (need, said) in scorer.needs.get(&at).into_iter().flatten() {
            let found = if shown.contains(&need.name) { 1.0 } else { 0.0 };
            outcome.fer.add(found);
            let explained = shown.explains(&need.name, said);
            outcome.fem.add(if explained { 1.0 } else { 0.0 });
            if need.is_far() {
                outcome.fer_far.add(found);
            }
            let bin = DISTANCES.iter().position(|most| need.back <= *most).unwrap_or(DISTANCES.len());
            if let Some(mean) = outcome.by_distance.get_mut(bin) {
                mean.add(found);
            }
        }
    }
}
