//! The input of a slot's next summary, read from the store, and what the worker lends the summarizer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use epitome_core::message::{Span, Timestamp};
use epitome_core::outline::Outline;
use epitome_core::plan::{Plan, Source};
use epitome_core::slot::Scope;

use super::job::{Ground, Job};
use crate::error::Error;
use crate::model::{Tally, Told};
use crate::purse::Reserved;
use crate::store::{Pick, SummaryRow};
use crate::summarizer::{Base, Draft, Failed, Host, Input, Label, Spending, Summarizer, without_bytes};
use crate::time::later;
use crate::writer::Writer;

/// How many messages are read at a time.
const AT_A_TIME: usize = 32;

/// One summary to be written under a lease.
pub(super) struct Task<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) ground: &'a Ground,
    pub(super) plan: &'a Plan,
    pub(super) base: &'a Base,
    /// Summaries of single authors, which may replace their messages.
    pub(super) authors: &'a [SummaryRow],
    pub(super) log: &'a [Outline],
    /// When it was begun, by this machine's clock; by the store's that was when the ground was read.
    pub(super) begun: Instant,
}

impl Task<'_> {
    pub(super) async fn write(&self, models: &[Writer], spent: &mut Spending) -> Result<Draft, Failed> {
        let (shared, ground) = (self.job.shared, self.ground);
        let order = &ground.order;
        let summarizer = Summarizer {
            models,
            settings: &ground.settings,
            counter: &ground.counter,
            pace: &shared.pace,
            hooks: &shared.models.hooks,
            breakers: Some(&shared.models.breakers),
            label: Label {
                workspace: Arc::clone(&self.job.key.workspace),
                session: Arc::clone(&self.job.key.session),
                slot: order.slot.name.as_str().into(),
                scope: order.slot.scope.clone().into(),
            },
            host: self,
        };
        let input = Input {
            base: self.base,
            said: self.said().await.map_err(Failed::Store)?,
            span: self.plan.span,
            through: self.plan.span.through,
            replaces: self.base.tokens.saturating_add(self.plan.tokens),
            limit: order.slot.limit,
            template: order.template(self.log),
            instructions: ground.settings.instructions_of(order),
            focus: ground.row.work.focus.as_deref().unwrap_or_default(),
            divide: false,
            await_hooks: true,
        };
        let written = summarizer.write(input, spent).await;
        if !shared.models.hooks.is_empty() {
            shared.health.set_hook_trouble(std::mem::take(&mut spent.hook_problems));
        }
        written
    }

    /// What is read of the span, in order.
    async fn said(&self) -> Result<Vec<Told>, Error> {
        let mut said = Vec::new();
        for source in &self.plan.sources {
            match source {
                Source::Messages(span) => {
                    let mut within = Some(*span);
                    while let Some(rest) = within {
                        let scope = Scope::Session;
                        let (limit, bytes) = (AT_A_TIME, None);
                        let page = Pick::Page { scope, within: rest, reverse: false, limit, bytes };
                        let messages = self.job.shared.store.messages(self.job.slot.id, page).await?;
                        let last = messages.last().map(|message| message.seq);
                        said.extend(messages.into_iter().map(without_bytes).map(Told::Message));
                        within = last.and_then(|last| Span::new(last.saturating_add(1), span.through));
                    }
                }
                Source::Author(own) => {
                    let scope = Scope::Author(own.author.clone());
                    let text = self.authors.iter().find(|row| row.scope == scope).map(|row| row.text.clone());
                    let text = text.unwrap_or_default();
                    said.push(Told::Summary { author: own.author.clone(), text });
                }
            }
        }
        Ok(said)
    }
}

#[async_trait]
impl Host for Task<'_> {
    /// The store's clock, as far as can be told without asking it.
    fn now(&self) -> Timestamp {
        later(self.ground.standing.now, self.begun.elapsed())
    }

    fn permit(&self, writer: &Writer, paid: bool) -> Result<(), Duration> {
        self.job.sit(writer, paid)
    }

    async fn is_ours(&self) -> Result<bool, Error> {
        self.job.still_ours().await
    }

    async fn reserve(&self, writer: &Writer, most: &Tally) -> Result<Option<Reserved>, Failed> {
        let (shared, workspace) = (self.job.shared, &self.job.key.workspace);
        shared.reserve(workspace, &self.ground.settings, writer, most, self.now()).await
    }

    async fn recall(&self, asked: &str) -> Result<Option<String>, Error> {
        if self.ground.row.work.rebuild {
            // A rebuild is requested because the answer given before will not do.
            return Ok(None);
        }
        let (workspace, id) = (&self.job.key.workspace, self.job.slot.id);
        Ok(self.job.shared.store.recall(workspace, id, asked).await?)
    }
}
