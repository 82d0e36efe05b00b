//! Who is asked for a summary, whether they may be, and what becomes of it.
//!
//! The models of a list are tried in order. Nobody is asked whose provider is left alone, nor for money that is not
//! there, nor for what was answered before, nor where as many wait already as may. What each call cost is noted whatever came of it.

use std::time::Instant;

use epitome_core::message::Timestamp;

use super::draft::{Draft, Spent};
use super::write::{Failed, Task};
use crate::breaker;
use crate::engine::{Reserved, Writer, lock};
use crate::measure::{KEPT, REUSED};
use crate::model::{Ask, ModelError, Reply, Tally};
use crate::retry::Failure;
use crate::settings::Money;
use crate::writing::{DROPPED, answer, fingerprint, most, tally, word};

impl Task<'_> {
    /// Asks one after the other, each a second time with the reason where its answer was refused.
    pub(super) async fn ask(&self, ask: &Ask, spent: &mut Spent) -> Result<Draft, Failed> {
        let mut last = Failure::from(ModelError::no_answer("no model is named in the settings"));
        let mut too_long = false;
        let before = spent.unrecorded.len();
        for writer in self.chain {
            if spent.down.contains_key(&writer.name) {
                continue;
            }
            let asked = fingerprint(writer, ask);
            if let Some(draft) = self.recall(writer, ask, asked.as_deref(), spent).await? {
                return Ok(draft);
            }
            if let Err(wait) = self.job.sit(writer, before > 0) {
                if spent.unrecorded.len() > before {
                    // Whoever comes before it was asked in vain, and would be each time: that is put off as any failure.
                    break;
                }
                return Err(Failed::Full(wait));
            }
            let failure = match self.try_one(writer, ask, asked, spent).await {
                Err(Failed::Failure(failure)) => failure,
                settled => return settled,
            };
            spent.missed.push(format!("`{}` did not write it: {failure}", writer.name));
            match failure {
                Failure::Model(ModelError::TooLong { .. }) => too_long = true,
                // Whose answer was refused may be asked again for a smaller piece; whoever failed may not.
                Failure::Answer(_) => {}
                _ => drop(spent.down.insert(writer.name.clone(), failure.clone())),
            }
            last = failure;
        }
        if too_long {
            // Whatever the others said: a shorter one may be written by whom this one was too long for.
            return Err(Failed::TooLong);
        }
        // Whoever may be asked soonest is the one to wait for. The others are left alone by the breaker.
        let soonest = spent.down.values().min_by_key(|failure| failure.retry_after());
        Err(Failed::Failure(soonest.cloned().unwrap_or(last)))
    }

    /// Asks one model, a second time with the reason where its answer was refused.
    async fn try_one(
        &self,
        writer: &Writer,
        ask: &Ask,
        asked: Option<String>,
        spent: &mut Spent,
    ) -> Result<Draft, Failed> {
        let mut ask = ask.clone();
        // `local` would only say the same again.
        let times = if writer.is_local() { 1 } else { 2 };
        let mut last = Failure::from(ModelError::no_answer("it was not asked"));
        for _ in 0..times {
            let reserved = self.may_ask(writer, &ask).await?;
            let started = Instant::now();
            spent.under_way = Some(self.usage(writer, DROPPED, &Tally::default(), 0));
            let answer = answer(&writer.model, &ask, self.shared.pace.time_out).await;
            spent.under_way = None;
            let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.note(writer, answer.as_ref().err());
            let (tally, judged) = match answer {
                Ok(reply) => {
                    let tally = tally(&ask, &reply);
                    (tally, self.judge(&ask, reply, writer.model.name()).map_err(Failure::from))
                }
                Err(error) => (Tally::default(), Err(error.into())),
            };
            let outcome = match &judged {
                Ok(_) => KEPT,
                Err(Failure::Answer(refusal)) => word(refusal),
                Err(failure) => failure.kind(),
            };
            let row = self.usage(writer, outcome, &tally, millis);
            if let Some(mut reserved) = reserved {
                // Until it is recorded, what it really cost.
                reserved.settle(row.cost.unwrap_or(0));
                spent.reserved.push(reserved);
            }
            spent.add(row);
            match judged {
                Ok(draft) => return Ok(Draft { asked, ..draft }),
                Err(Failure::Answer(refusal)) => {
                    last = refusal.clone().into();
                    ask.refused = Some(refusal);
                }
                Err(failure) => return Err(Failed::Failure(failure)),
            }
        }
        Err(Failed::Failure(last))
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

    /// Whether a model may be asked: the slot is ours, its provider is not left alone, and there is money for it, which
    /// is set aside.
    async fn may_ask(&self, writer: &Writer, ask: &Ask) -> Result<Option<Reserved>, Failed> {
        let reserved = match self.shared.cap(self.settings).filter(|_| !writer.is_local()) {
            Some(cap) => Some(self.reserve(writer, ask, cap).await?),
            None => None,
        };
        // The last thing that is waited for: whoever slept until here sees it.
        if !self.job.still_ours().await.map_err(Failed::Store)? {
            return Err(Failed::Lost);
        }
        if writer.is_local() {
            return Ok(None);
        }
        let provider = writer.model.provider();
        let mut breakers = lock(&self.shared.breakers);
        if let Some(breaker) = breakers.get_mut(provider) {
            breaker.ask(provider, &self.breaker_limits(), self.now()).map_err(Failed::Failure)?;
        }
        Ok(reserved)
    }

    /// Sets aside what a call may cost, where the day's cap allows it.
    async fn reserve(&self, writer: &Writer, ask: &Ask, cap: Money) -> Result<Reserved, Failed> {
        let Some(price) = writer.price(self.settings) else {
            return Err(Failed::Failure(Failure::Unpriced { model: writer.name.clone() }));
        };
        let set_aside = self.shared.set_aside(&self.key.workspace, price.cost(&most(ask)), cap, self.now());
        set_aside.await.map_err(|error| Failed::Store(error.into()))?.map_err(Failed::Failure)
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
}
