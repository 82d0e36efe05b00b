//! Having one summary written: what is read for it, and what is taken of an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use epitome_core::inspect::Refusal;
use epitome_core::message::{Message, Span, Timestamp};
use epitome_core::outline::Outline;
use epitome_core::plan::{Plan, Source};
use epitome_core::prompt::SMALL;
use epitome_core::slot::Scope;
use epitome_core::tokens::Counter;

use super::draft::{Base, Draft, Spent};
use super::job::Job;
use crate::engine::{Shared, Writer};
use crate::error::Error;
use crate::hook::Leaving;
use crate::model::{Ask, Reply, Tally, Told};
use crate::retry::Failure;
use crate::settings::{Settings, SlotSettings};
use crate::store::{Pick, SessionId, SessionKey, Sources, SummaryRow, UsageRow};
use crate::writing::{Judged, VERBATIM, judge, says_something, verbatim, without_bytes};

/// So many messages are read at a time.
const AT_A_TIME: usize = 32;

/// One summary to be written.
pub(super) struct Task<'a> {
    /// Under whose lease.
    pub(super) job: &'a Job<'a>,
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
    /// The slot is somebody else's by now.
    Lost,
    /// As many wait for its model already as may. Nobody was asked; it is to be looked at again after so long.
    Full(Duration),
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
                        let (limit, bytes) = (AT_A_TIME, None);
                        let page = Pick::Page { scope, within: rest, reverse: false, limit, bytes };
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
        let (text, tokens) = verbatim(self.base.text.as_deref(), told, self.order.slot.limit, self.counter)?;
        let mut ledger = self.base.ledger();
        told.iter().filter_map(Told::message).for_each(|message| ledger.read(message));
        let sources = Sources { extracts: None, ledger: Some(ledger) };
        Some(Draft { text, tokens, model: VERBATIM.to_owned(), sources, added: Vec::new(), asked: None })
    }

    /// The operator's instructions, and what hooks add to them.
    async fn instructions(&self, told: &[Told]) -> String {
        let mut text = self.settings.instructions_of(self.order).to_owned();
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

    /// What is taken of an answer.
    pub(super) fn judge(&self, ask: &Ask, reply: Reply, model: &str) -> Result<Draft, Refusal> {
        let Judged { text, tokens, extracts, ledger, added } = judge(ask, reply, || self.base.ledger())?;
        let (model, sources) = (model.to_owned(), Sources { extracts, ledger });
        Ok(Draft { text, tokens, model, sources, added, asked: None })
    }

    pub(super) fn usage(&self, writer: &Writer, outcome: &str, tally: &Tally, millis: u64) -> UsageRow {
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
