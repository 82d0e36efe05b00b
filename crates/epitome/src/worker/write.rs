//! The input of a slot's next summary, read from the store, and what the worker lends the summarizer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use epitome_core::message::{Span, Timestamp};
use epitome_core::plan::Source;
use epitome_core::slot::Scope;

use super::job::{Ground, Job, Task};
use crate::error::Error;
use crate::lock::lock;
use crate::model::{Ask, Tally, Told};
use crate::purse::Reserved;
use crate::store::Pick;
use crate::summarizer::{Answer, Draft, Failed, Host, Input, Label, Spending, Summarizer, without_bytes};
use crate::time::later;
use crate::writer::Writer;

/// How many messages are read at a time.
const AT_A_TIME: usize = 32;

impl Job<'_> {
    /// Has a summary written by these models.
    pub(super) async fn write(
        &self,
        task: Task<'_>,
        models: &[Writer],
        spent: &mut Spending,
    ) -> Result<Draft, Failed> {
        let Task { ground, plan, base, log, .. } = task;
        let (shared, order) = (self.shared, &ground.order);
        let mut summarizer = Summarizer {
            models,
            settings: &ground.settings,
            pace: &shared.pace,
            hooks: &shared.models.hooks,
            breakers: Some(&shared.models.memory.breakers),
            label: Label {
                workspace: Arc::clone(&self.key.workspace),
                session: Arc::clone(&self.key.session),
                slot: order.slot.name.as_str().into(),
                scope: order.slot.scope.clone().into(),
            },
            host: &Writing { job: self, ground },
            spent,
        };
        let ask = Ask {
            template: Arc::new(order.template(log)),
            previous: base.text.clone(),
            extracts: base.extracts.clone(),
            said: self.said(task).await.map_err(Failed::Store)?.into(),
            through: plan.span.through,
            limit: order.slot.limit,
            instructions: ground.settings.instructions_of(order).into(),
            focus: ground.row.work.focus.as_deref().unwrap_or_default().into(),
            refused: None,
            replaces: base.tokens.saturating_add(plan.tokens),
            counter: ground.counter.clone(),
            redact: ground.settings.summarize.redact,
        };
        let input = Input { ask, base, span: plan.span, divide: false, await_hooks: true };
        let written = summarizer.write(input).await;
        if !shared.models.hooks.is_empty() {
            let problems = std::mem::take(&mut spent.hook_problems);
            *lock(&shared.health.hook_trouble) = problems.into_iter().next();
        }
        written
    }

    /// What is read of the span, in order.
    async fn said(&self, task: Task<'_>) -> Result<Vec<Told>, Error> {
        let mut said = Vec::new();
        for source in &task.plan.sources {
            match source {
                Source::Messages(span) => {
                    let mut within = Some(*span);
                    while let Some(rest) = within {
                        let scope = Scope::Session;
                        let (limit, bytes) = (AT_A_TIME, None);
                        let page = Pick::Page { scope, within: rest, reverse: false, limit, bytes };
                        let messages = self.shared.store.messages(self.slot.id, page).await?;
                        let last = messages.last().map(|message| message.seq);
                        said.extend(messages.into_iter().map(without_bytes).map(Told::Message));
                        within = last.and_then(|last| Span::new(last.saturating_add(1), span.through));
                    }
                }
                Source::Author(own) => {
                    let scope = Scope::Author(own.author.clone());
                    let text = task.authors.iter().find(|row| row.scope == scope).map(|row| row.text.clone());
                    let text = text.unwrap_or_default();
                    said.push(Told::Summary { author: own.author.clone(), text });
                }
            }
        }
        Ok(said)
    }
}

/// What the summarizer may do under a job's lease.
struct Writing<'a> {
    job: &'a Job<'a>,
    ground: &'a Ground,
}

#[async_trait]
impl Host for Writing<'_> {
    /// The store's clock, as far as can be told without asking it.
    fn now(&self) -> Timestamp {
        later(self.ground.standing.now, self.ground.read.elapsed())
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

    async fn recall(&self, asked: &str) -> Result<Option<Answer>, Error> {
        if self.ground.row.work.rebuild {
            // A rebuild is requested because the answer given before will not do.
            return Ok(None);
        }
        let (workspace, id) = (&self.job.key.workspace, self.job.slot.id);
        let found = self.job.shared.store.recall(workspace, id, asked).await?;
        Ok(found.map(|text| Answer::Accepted(text.into())))
    }
}
