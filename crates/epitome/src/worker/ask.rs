//! Who is asked for a summary, whether they may be, and what becomes of it.
//!
//! The models of a list are tried in order. Nobody is asked whose provider is left alone, nor for money that is not
//! there, nor for what was answered before. What each call cost is noted whatever came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use epitome_core::inspect::Refusal;
use epitome_core::message::Timestamp;
use epitome_core::slot::Limit;

use super::draft::{DROPPED, Draft, KEPT, REUSED, Spent};
use super::job::{PROMPT_OVERHEAD, UNKNOWN_INPUT};
use super::write::{Failed, Task};
use crate::breaker;
use crate::engine::{Writer, lock};
use crate::hook::Running;
use crate::model::{Ask, Model, ModelError, Reply, Tally};
use crate::retry::Failure;
use crate::settings::Money;
use crate::store::UsageQuery;

/// A day, in milliseconds.
const DAY: i64 = 24 * 3_600 * 1_000;

impl Task<'_> {
    /// Asks one after the other, each a second time with the reason where its answer was refused.
    pub(super) async fn ask(&self, ask: &Ask, spent: &mut Spent) -> Result<Draft, Failed> {
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
