//! Having one summary written: who is asked, with what, and what is taken of the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use epitome_core::inspect::{Refusal, Standard, inspect};
use epitome_core::message::{Content, Media, MediaSource, Message, Part, Span, Timestamp};
use epitome_core::outline::Outline;
use epitome_core::plan::{Plan, Source};
use epitome_core::prompt::{SMALL, lines_of};
use epitome_core::slot::{Limit, Scope};
use epitome_core::tokens::Counter;

use super::draft::{Base, DROPPED, Draft, KEPT, REUSED, Spent};
use super::job::{PROMPT_OVERHEAD, UNKNOWN_INPUT};
use crate::breaker;
use crate::engine::{Shared, Writer, lock};
use crate::error::Error;
use crate::hook::{Leaving, Running};
use crate::model::{Ask, Model, ModelError, Reply, Tally, Told};
use crate::retry::Failure;
use crate::settings::{Money, Settings, SlotSettings};
use crate::store::{Pick, SessionId, SessionKey, Sources, SummaryRow, UsageQuery, UsageRow};

/// What is recorded as the writer of lines that needed none.
const VERBATIM: &str = "verbatim";

/// So many messages are read at a time.
const AT_A_TIME: usize = 32;

/// So many names a model's summary is looked through for.
const NAMES: usize = 30;

/// A day, in milliseconds.
const DAY: i64 = 24 * 3_600 * 1_000;

/// One summary to be written.
pub(super) struct Task<'a> {
    pub(super) shared: &'a Shared,
    pub(super) key: &'a SessionKey,
    pub(super) id: SessionId,
    pub(super) settings: &'a Settings,
    pub(super) order: &'a SlotSettings,
    pub(super) counter: &'a Counter,
    pub(super) plan: &'a Plan,
    pub(super) base: &'a Base,
    /// Summaries of single authors, which may stand for their messages.
    pub(super) authors: &'a [SummaryRow],
    pub(super) log: &'a [Outline],
    pub(super) focus: &'a str,
    /// The moment it was begun, by the store's clock and by ours.
    pub(super) begun: (Timestamp, Instant),
    /// Whether what was answered before to the same question will not do.
    pub(super) anew: bool,
    /// Who is asked, first choice first.
    pub(super) chain: &'a [Writer],
}

/// Why there is none.
pub(super) enum Failed {
    /// A model could not read so much at once.
    TooLong,
    /// Nobody gave one that may be kept.
    Failure(Failure),
    /// There are messages, but not a word in them.
    Nothing,
    /// What is to be read could not be had.
    Store(Error),
}

impl Task<'_> {
    /// Writes it: the lines themselves where there are few, otherwise whoever of the chain can.
    pub(super) async fn write(&self, spent: &mut Spent) -> Result<Draft, Failed> {
        let told = self.told().await.map_err(Failed::Store)?;
        // Hooks are told in any case: what leaves the window leaves it, whoever writes.
        let instructions = self.instructions(&told).await;
        let replaces = self.base.tokens.saturating_add(self.plan.tokens);
        if !told.iter().any(says_something) {
            // No model could make anything of it. What stood before says it all.
            let same = self.verbatim(&told).filter(|_| self.base.text.is_some());
            return same.ok_or(Failed::Nothing);
        }
        if replaces < SMALL
            && let Some(draft) = self.verbatim(&told)
        {
            return Ok(draft);
        }
        let ask = Ask {
            template: Arc::new(self.order.template(self.log)),
            previous: self.base.text.clone(),
            extracts: self.base.extracts.clone(),
            through: self.plan.span.through,
            limit: self.order.slot.limit,
            instructions: instructions.into(),
            focus: self.focus.into(),
            refused: None,
            replaces,
            counter: self.counter.clone(),
            redact: self.settings.summarize.redact,
            said: told.into(),
        };
        self.ask(&ask, spent).await
    }

    /// What is read of the span, in order.
    async fn told(&self) -> Result<Vec<Told>, Error> {
        let mut told = Vec::new();
        for source in &self.plan.sources {
            match source {
                Source::Messages(span) => {
                    let mut within = Some(*span);
                    while let Some(rest) = within {
                        let scope = Scope::Session;
                        let page = Pick::Page { scope, within: rest, reverse: false, limit: AT_A_TIME };
                        let messages = self.shared.store.messages(self.id, page).await?;
                        let last = messages.last().map(|message| message.seq);
                        told.extend(messages.into_iter().map(without_bytes).map(Told::Message));
                        within = last.and_then(|last| Span::new(last.saturating_add(1), span.through));
                    }
                }
                Source::Author(own) => {
                    let scope = Scope::Author(own.author.clone());
                    let text = self.authors.iter().find(|row| row.scope == scope).map(|row| row.text.clone());
                    let text = text.unwrap_or_default();
                    told.push(Told::Summary { author: own.author.clone(), text });
                }
            }
        }
        Ok(told)
    }

    /// The attributed lines themselves, where they are few and fit: no model could say it in less.
    fn verbatim(&self, told: &[Told]) -> Option<Draft> {
        let lines = lines_of(told.iter().map(Told::said));
        let text = match &self.base.text {
            Some(before) if !lines.is_empty() => format!("{before}\n{lines}"),
            Some(before) => before.to_string(),
            None => lines,
        };
        let tokens = self.counter.text(&text);
        let fits = match self.order.slot.limit {
            Limit::Tokens(limit) => tokens <= limit,
            Limit::Chars(limit) => text.chars().count() as u64 <= limit,
        };
        if text.trim().is_empty() || !fits {
            return None;
        }
        let mut ledger = self.base.ledger();
        told.iter().filter_map(Told::message).for_each(|message| ledger.read(message));
        let sources = Sources { extracts: None, ledger: Some(ledger) };
        Some(Draft { text, tokens, model: VERBATIM.to_owned(), sources, added: Vec::new(), asked: None })
    }

    /// The operator's instructions, and what hooks add to them.
    async fn instructions(&self, told: &[Told]) -> String {
        let mut text = self.order.instructions.clone();
        if self.shared.hooks.is_empty() {
            return text;
        }
        let messages: Vec<Message> = told.iter().filter_map(Told::message).cloned().collect();
        let leaving = Leaving {
            workspace: Arc::clone(&self.key.workspace),
            session: Arc::clone(&self.key.session),
            slot: self.order.slot.name.as_str().into(),
            scope: self.order.slot.scope.clone().into(),
            span: self.plan.span,
            messages: messages.into(),
        };
        let added = self.shared.hooks.before(&leaving).await;
        self.shared.set_hook_trouble(added.problems);
        if !added.text.is_empty() {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&added.text);
        }
        text
    }

    /// Asks one after the other, each a second time with the reason where its answer was refused.
    async fn ask(&self, ask: &Ask, spent: &mut Spent) -> Result<Draft, Failed> {
        let mut last = Failed::Failure(ModelError::no_answer("no model is named in the settings").into());
        let mut too_long = false;
        for writer in self.chain {
            if spent.down.contains_key(&writer.name) {
                continue;
            }
            let asked = writer.model.reusable().then(|| fingerprint(writer, ask)).flatten();
            if let Some(draft) = self.recall(writer, ask, asked.as_deref(), spent).await? {
                return Ok(draft);
            }
            let tried = self.try_one(writer, ask, asked, spent).await?;
            if let Err(failure) = &tried {
                spent.missed.push(format!("`{}` did not write it: {failure}", writer.name));
            }
            match tried {
                Ok(draft) => return Ok(draft),
                Err(Failure::Model(ModelError::TooLong { .. })) => too_long = true,
                // Whose answer was refused may be asked again for a smaller piece; whoever failed may not.
                Err(failure @ Failure::Answer(_)) => last = Failed::Failure(failure),
                Err(failure) => {
                    spent.down.insert(writer.name.clone(), failure.clone());
                    last = Failed::Failure(failure);
                }
            }
        }
        if too_long {
            // Whatever the others said: a shorter one may be written by whom this one was too long for.
            return Err(Failed::TooLong);
        }
        // Whoever may be asked soonest is the one to wait for. The others are left alone by the breaker.
        let soonest = spent.down.values().min_by_key(|failure| failure.retry_after());
        Err(soonest.cloned().map_or(last, Failed::Failure))
    }

    /// Asks one model, a second time with the reason where its answer was refused.
    async fn try_one(
        &self,
        writer: &Writer,
        ask: &Ask,
        asked: Option<String>,
        spent: &mut Spent,
    ) -> Result<Result<Draft, Failure>, Failed> {
        let mut ask = ask.clone();
        // `local` would only say the same again.
        let times = if writer.is_local() { 1 } else { 2 };
        let mut last = Failure::from(ModelError::no_answer("it was not asked"));
        for _ in 0..times {
            if let Err(failure) = self.may_ask(writer, &ask, spent).await? {
                return Ok(Err(failure));
            }
            let started = Instant::now();
            spent.under_way = Some(self.usage(writer, DROPPED, &Tally::default(), 0));
            let answer = self.answer(&writer.model, &ask).await;
            spent.under_way = None;
            let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            let cost = answer.as_ref().map_or(0, |reply| {
                let tally = self.tally(&ask, reply);
                writer.price(self.settings).map_or(0, |price| price.cost(&tally).to_millionths())
            });
            if let Some(reserved) = spent.reserved.last_mut() {
                reserved.settle(cost);
            }
            self.note(writer, answer.as_ref().err());
            let reply = match answer {
                Ok(reply) => reply,
                Err(error) => {
                    spent.add(self.usage(writer, error.kind(), &Tally::default(), millis));
                    return Ok(Err(error.into()));
                }
            };
            let tally = self.tally(&ask, &reply);
            match self.judge(&ask, reply, writer.model.name()) {
                Ok(draft) => {
                    spent.add(self.usage(writer, KEPT, &tally, millis));
                    return Ok(Ok(Draft { asked, ..draft }));
                }
                Err(refusal) => {
                    spent.add(self.usage(writer, word(&refusal), &tally, millis));
                    last = refusal.clone().into();
                    ask.refused = Some(refusal);
                }
            }
        }
        Ok(Err(last))
    }

    /// An answer that was given before to the very same question, judged anew; nothing where there is none, or where
    /// another one is wanted.
    async fn recall(
        &self,
        writer: &Writer,
        ask: &Ask,
        asked: Option<&str>,
        spent: &mut Spent,
    ) -> Result<Option<Draft>, Failed> {
        let Some(asked) = asked.filter(|_| !self.anew) else { return Ok(None) };
        let found = self.shared.store.recall(&self.key.workspace, self.id, asked).await;
        let Some(text) = found.map_err(|error| Failed::Store(error.into()))? else { return Ok(None) };
        let Ok(draft) = self.judge(ask, Reply::complete(text), writer.model.name()) else { return Ok(None) };
        spent.add(self.usage(writer, REUSED, &Tally::default(), 0));
        Ok(Some(Draft { asked: Some(asked.to_owned()), ..draft }))
    }

    /// Whether a model may be asked: its provider is not left alone, and there is money for it.
    async fn may_ask(
        &self,
        writer: &Writer,
        ask: &Ask,
        spent: &mut Spent,
    ) -> Result<Result<(), Failure>, Failed> {
        if writer.is_local() {
            return Ok(Ok(()));
        }
        if let Some(cap) = self.shared.cap(self.settings) {
            let Some(price) = writer.price(self.settings) else {
                return Ok(Err(Failure::Unpriced { model: writer.name.clone() }));
            };
            let now = self.now().0;
            let day = now.rem_euclid(DAY);
            let since = Timestamp(now.saturating_sub(day));
            let workspace = Arc::clone(&self.key.workspace);
            let query = UsageQuery { workspace, session: None, since };
            let rows = self.shared.store.usage(query).await.map_err(|error| Failed::Store(error.into()))?;
            let so_far: Money = rows.iter().filter_map(|row| row.cost).map(Money::millionths).sum();
            let more = price.cost(&Tally {
                input: ask.replaces.saturating_add(PROMPT_OVERHEAD),
                cached: 0,
                output: match ask.limit {
                    Limit::Tokens(tokens) | Limit::Chars(tokens) => tokens,
                },
            });
            match self.shared.purse.reserve(&self.key.workspace, so_far, more, cap) {
                Ok(reserved) => spent.reserved.push(reserved),
                Err(held) => {
                    let wait = Duration::from_millis(u64::try_from(DAY.saturating_sub(day)).unwrap_or(0));
                    return Ok(Err(Failure::Spent { cap, spent: so_far + held, more, wait }));
                }
            }
        }
        let provider = writer.model.provider();
        let mut breakers = lock(&self.shared.breakers);
        let Some(breaker) = breakers.get_mut(provider) else { return Ok(Ok(())) };
        Ok(breaker.ask(provider, &self.breaker_limits(), self.now()))
    }

    /// Notes for everybody how a provider fared.
    fn note(&self, writer: &Writer, error: Option<&ModelError>) {
        if writer.is_local() {
            return;
        }
        let mut breakers = lock(&self.shared.breakers);
        match error {
            None => drop(breakers.remove(writer.model.provider())),
            Some(error) => {
                let breaker = breakers.entry(writer.model.provider().to_owned()).or_default();
                breaker.failed(error, &self.breaker_limits(), self.now());
            }
        }
    }

    /// The moment, by the store's clock as far as can be told without asking it.
    fn now(&self) -> Timestamp {
        let (begun, at) = self.begun;
        Timestamp(begun.0.saturating_add(i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX)))
    }

    fn breaker_limits(&self) -> breaker::Limits {
        breaker::Limits {
            after: self.settings.summarize.breaker_after,
            pause: self.settings.summarize.breaker_for,
            most_asked: self.shared.pace.backoff.most_asked,
        }
    }

    /// One call of a model, in a task of its own: neither its panic nor its silence is ours.
    async fn answer(&self, model: &Arc<dyn Model>, ask: &Ask) -> Result<Reply, ModelError> {
        let time_out = model.time_out().unwrap_or(self.shared.pace.time_out);
        let (model, ask) = (Arc::clone(model), ask.clone());
        let mut call = Running(tokio::spawn(async move { model.write(&ask).await }));
        match tokio::time::timeout(time_out, &mut call.0).await {
            Ok(Ok(answer)) => answer,
            // What it panicked with may hold anything, so it is not repeated.
            Ok(Err(_)) => Err(ModelError::no_answer("the model panicked")),
            Err(_) => Err(ModelError::no_answer(&format!("no answer within {time_out:?}"))),
        }
    }

    /// What is taken of an answer. What `local` picked is the conversation's own words, so it is measured only;
    /// its signs would be the conversation's.
    fn judge(&self, ask: &Ask, reply: Reply, model: &str) -> Result<Draft, Refusal> {
        if let Some(extracts) = reply.extracts {
            let tokens = self.counter.text(&reply.text);
            if reply.text.trim().is_empty() {
                return Err(Refusal::Empty);
            }
            if tokens >= ask.replaces {
                return Err(Refusal::NotSmaller { tokens, replaces: ask.replaces });
            }
            let sources = Sources { extracts: Some(extracts), ledger: None };
            return Ok(Draft {
                text: reply.text,
                tokens,
                model: model.to_owned(),
                sources,
                added: Vec::new(),
                asked: None,
            });
        }
        let mut ledger = self.base.ledger();
        for told in ask.said.iter() {
            if let Some(message) = told.message() {
                ledger.read(message);
            }
        }
        let names: Vec<&str> = ledger.ranked().take(NAMES).map(|name| name.text).collect();
        let standard = Standard {
            limit: ask.limit,
            replaces: ask.replaces,
            prior: ask.previous.as_deref(),
            names: &names,
            counter: self.counter,
            redact: ask.redact,
        };
        let kept = inspect(&reply.text, reply.finish, &standard)?;
        let sources = Sources { extracts: None, ledger: Some(ledger) };
        Ok(Draft {
            text: kept.text,
            tokens: kept.tokens,
            model: model.to_owned(),
            sources,
            added: kept.added,
            asked: None,
        })
    }

    /// What the provider counted, or what we do where it does not tell.
    fn tally(&self, ask: &Ask, reply: &Reply) -> Tally {
        reply.tally.unwrap_or_else(|| Tally {
            input: ask.replaces,
            cached: 0,
            output: self.counter.text(&reply.text),
        })
    }

    fn usage(&self, writer: &Writer, outcome: &str, tally: &Tally, millis: u64) -> UsageRow {
        let cost = writer.price(self.settings).map(|price| price.cost(tally).to_millionths());
        let scope: Option<epitome_core::message::Author> = self.order.slot.scope.clone().into();
        UsageRow {
            workspace: self.key.workspace.to_string(),
            session: self.key.session.to_string(),
            scope: scope.as_deref().unwrap_or("").to_owned(),
            slot: self.order.slot.name.clone(),
            model: writer.model.name().to_owned(),
            outcome: outcome.to_owned(),
            input: tally.input,
            cached: tally.cached,
            output: tally.output,
            cost,
            millis,
            at: Timestamp(0),
        }
    }
}

/// What a model is asked, hashed: the same prior, messages, prompt and model give the same. Nothing where no prompt
/// can be made of it.
fn fingerprint(writer: &Writer, ask: &Ask) -> Option<String> {
    let prompt = ask.prompt(writer.model.room().unwrap_or(UNKNOWN_INPUT)).ok()?;
    let mut hasher = blake3::Hasher::new();
    for part in [writer.model.provider(), writer.model.name(), &prompt.system, &prompt.user] {
        // With their lengths, so that no two lists of parts read the same.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// A message without the bytes of its pictures and sounds. Nobody reads them here, and a window of them would
/// fill the memory.
fn without_bytes(mut message: Message) -> Message {
    let forget = |media: &mut Media| {
        if let MediaSource::Base64(bytes) = &mut media.source {
            *bytes = String::new();
        }
    };
    for part in &mut message.parts {
        match part {
            Part::Media(media) => forget(media),
            Part::ToolResult(result) => result.content.iter_mut().for_each(|content| {
                if let Content::Media(media) = content {
                    forget(media);
                }
            }),
            Part::Text { .. } | Part::Thinking { .. } | Part::ToolCall(_) => {}
        }
    }
    message
}

fn says_something(told: &Told) -> bool {
    !lines_of([told.said()]).trim().is_empty()
}

/// A refusal in a word, for records.
fn word(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Empty => "empty",
        Refusal::CutOff => "cut_off",
        Refusal::TooLong { .. } | Refusal::TooManyChars { .. } => "too_long_answer",
        Refusal::NotSmaller { .. } => "not_smaller",
        Refusal::Loops => "loops",
        Refusal::ErrorPage => "error_page",
        Refusal::Refused => "declined",
        Refusal::GoesOn => "goes_on",
        Refusal::SameAsBefore => "same_as_before",
        _ => "refused_answer",
    }
}
