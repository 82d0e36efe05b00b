//! Computes the demo's numbers: tokens, prices, contexts with several budgets, and which facts these contexts contain.

use std::time::{Duration, Instant};

use epitome::rules::context::Spent;
use epitome::rules::message::{Seq, Span, Tokens};
use epitome::search::text_of;
use epitome::{Context, ContextRequest, Session};
use epitome_terminal::failure::Failure;
use serde_json::{Value, json};

use super::story::FACTS;

/// Budgets of the contexts in the table of budgets, in tokens.
pub(super) const SIZES: [Tokens; 5] = [500, 1_000, 2_000, 4_000, 16_000];

/// Budget of the context whose complete summary is shown, in tokens.
const SHOWN_BUDGET: Tokens = 1_000;

/// Model whose list price is the example. [`PRICE`] is this model's price for a million input tokens, in dollars. With
/// prompt caching, a token that is read from the cache costs a tenth of the price, and a token that is written to the
/// cache costs a quarter more. The source is the page "Pricing" in platform.claude.com/docs.
pub(super) const PRICED_MODEL: &str = "Claude Sonnet 5.5";
pub(super) const PRICE: f64 = 2.0;
const CACHE_READ: f64 = 0.1;
const CACHE_WRITE: f64 = 1.25;

/// The results of playing the story.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) messages: u64,
    pub(super) tokens: Tokens,
    pub(super) tool_calls: u64,
    pub(super) summaries: Vec<WrittenSummary>,
    pub(super) savings: Savings,
}

/// A summary that was written while the story was played.
#[derive(Debug)]
pub(super) struct WrittenSummary {
    pub(super) id: i64,
    pub(super) slot: String,
    pub(super) through: Seq,
    /// Tokens of the previous summary and of the messages after the previous summary. This summary replaces both.
    pub(super) replaced: Tokens,
    pub(super) tokens: Tokens,
    pub(super) millis: u64,
}

impl WrittenSummary {
    pub(super) fn object(&self) -> Value {
        json!({
            "id": self.id,
            "slot": self.slot,
            "covers": [1, self.through],
            "tokens_before": self.replaced,
            "tokens_after": self.tokens,
            "millis": self.millis,
        })
    }
}

/// Compares two ways to make the agent's model calls: each call sends the whole conversation, or each call sends a
/// context.
#[derive(Debug, Default)]
pub(super) struct Savings {
    pub(super) budget: Tokens,
    pub(super) calls: u64,
    /// Number of contexts in which every message is verbatim or covered by the summary.
    pub(super) exhaustive: u64,
    /// Tokens of all calls, if each call sends the whole conversation.
    pub(super) whole: SentTokens,
    /// Tokens of all calls, if each call sends a context.
    pub(super) contexts: SentTokens,
    /// `whole.tokens` divided by `contexts.tokens`.
    pub(super) times: f64,
}

/// Tokens sent in all calls.
#[derive(Debug, Default)]
pub(super) struct SentTokens {
    pub(super) tokens: Tokens,
    /// Tokens of the messages at the beginning that are the same as in the previous call. A prompt cache contains these
    /// tokens.
    pub(super) cached: Tokens,
    pub(super) dollars: f64,
    pub(super) dollars_with_caching: f64,
}

impl SentTokens {
    pub(super) fn add(&mut self, tokens: Tokens, cached: Tokens) {
        self.tokens += tokens;
        self.cached += cached;
        self.dollars = dollars(self.tokens, 1.0);
        let new = self.tokens.saturating_sub(self.cached);
        self.dollars_with_caching = dollars(self.cached, CACHE_READ) + dollars(new, CACHE_WRITE);
    }

    fn object(&self) -> Value {
        json!({
            "tokens": self.tokens,
            "cached": self.cached,
            "dollars": self.dollars,
            "dollars_with_caching": self.dollars_with_caching,
        })
    }
}

impl Savings {
    pub(super) fn object(&self) -> Value {
        json!({
            "budget": self.budget,
            "calls": self.calls,
            "exhaustive": self.exhaustive,
            "whole": self.whole.object(),
            "contexts": self.contexts.object(),
            "times_less": self.times,
            "priced_as": PRICED_MODEL,
            "dollars_per_million": PRICE,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 tokens")]
fn dollars(tokens: Tokens, factor: f64) -> f64 {
    tokens as f64 * factor * PRICE / 1_000_000.0
}

/// A context of the conversation with one budget.
#[derive(Debug)]
pub(super) struct ContextSize {
    pub(super) budget: Tokens,
    pub(super) used: Tokens,
    pub(super) spent: Spent,
    /// Number of the last message that the summary covers; `None` without a summary.
    pub(super) summary_through: Option<Seq>,
    /// Number of verbatim messages.
    pub(super) verbatim: u64,
    pub(super) exhaustive: bool,
    /// The messages that the context leaves out, if any.
    pub(super) gap: Option<Span>,
    pub(super) micros: u64,
    /// The context's text, in which facts are searched.
    text: String,
    /// The text of a context with the same budget but without a summary.
    recent: String,
}

impl ContextSize {
    pub(super) fn object(&self) -> Value {
        json!({
            "budget": self.budget,
            "used": self.used,
            "pinned": self.pinned(),
            "summary": self.spent.summary,
            "messages": self.spent.messages,
            "covers": self.summary_through.map(|through| [1, through]),
            "verbatim": self.verbatim,
            "exhaustive": self.exhaustive,
            "gap": self.gap.map(|gap| [gap.from, gap.through]),
            "micros": self.micros,
        })
    }

    /// Returns the tokens of the parts before the summary: leading system messages, pinned messages, and the
    /// placeholder at the beginning of a list that would not begin with a user message.
    pub(super) fn pinned(&self) -> Tokens {
        self.spent.leading + self.spent.pinned + self.spent.marks
    }
}

/// Requests a context for each budget of [`SIZES`].
pub(super) async fn sizes(session: &Session) -> Result<Vec<ContextSize>, Failure> {
    let mut sizes = Vec::new();
    for budget in SIZES {
        let start = Instant::now();
        let context = session.context(budget).await?;
        let took = start.elapsed();
        let recent = session.context(ContextRequest { summary: false, ..budget.into() }).await?;
        let verbatim = context.messages.iter().filter(|message| message.seq > 0).count() as u64;
        sizes.push(ContextSize {
            budget,
            used: context.report.tokens.total(),
            spent: context.report.tokens,
            summary_through: context.report.covers.map(|span| span.through),
            verbatim,
            exhaustive: context.report.exhaustive,
            gap: context.report.gap,
            micros: micros(took),
            text: context_text(&context),
            recent: context_text(&recent),
        });
    }
    Ok(sizes)
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// Returns all text of the context that a model would read.
fn context_text(context: &Context) -> String {
    context.messages.iter().map(text_of).collect::<Vec<_>>().join("\n")
}

/// Shows whether contexts and a search still contain one fact from early in the conversation.
#[derive(Debug)]
pub(super) struct FactCheck {
    pub(super) what: &'static str,
    /// The search query for the fact.
    pub(super) query: String,
    /// Number of the first message that contains the fact. A search in the messages that the newest summary covers
    /// finds this message. `None` if the search finds nothing.
    pub(super) message: Option<Seq>,
    /// Excerpt of this message from the search result.
    pub(super) excerpt: Option<String>,
    /// For each context, whether the context contains the fact.
    pub(super) in_contexts: Vec<bool>,
    /// For each context without a summary, whether the context contains the fact.
    pub(super) in_recent: Vec<bool>,
}

impl FactCheck {
    pub(super) fn object(&self) -> Value {
        json!({
            "what": self.what,
            "query": self.query,
            "message": self.message,
            "excerpt": self.excerpt,
            "in_contexts": self.in_contexts,
            "in_recent_messages_alone": self.in_recent,
        })
    }
}

pub(super) async fn facts(session: &Session, sizes: &[ContextSize]) -> Result<Vec<FactCheck>, Failure> {
    let newest = session.summaries().await?.iter().max_by_key(|summary| summary.through).map(|it| it.id);
    let mut found = Vec::new();
    for fact in &FACTS {
        // Hits are sorted newest first, so the last hit is the first mention.
        let hits = session.search(&fact.query(), newest, None, 1_000).await?;
        let first = hits.into_iter().next_back();
        found.push(FactCheck {
            what: fact.what,
            query: fact.query(),
            message: first.as_ref().map(|hit| hit.message.seq),
            excerpt: first.map(|hit| hit.excerpt),
            in_contexts: sizes.iter().map(|size| fact.is_in(&size.text)).collect(),
            in_recent: sizes.iter().map(|size| fact.is_in(&size.recent)).collect(),
        });
    }
    Ok(found)
}

/// The summary in one context.
#[derive(Debug)]
pub(super) struct OneSummary {
    pub(super) budget: Tokens,
    pub(super) through: Seq,
    pub(super) tokens: Tokens,
    pub(super) text: String,
}

impl OneSummary {
    pub(super) fn object(&self) -> Value {
        json!({
            "budget": self.budget,
            "covers": [1, self.through],
            "tokens": self.tokens,
            "text": self.text,
        })
    }
}

pub(super) async fn one_summary(session: &Session) -> Result<OneSummary, Failure> {
    let context = session.context(SHOWN_BUDGET).await?;
    let (through, text) = context.summary.map(|summary| (summary.through, summary.text)).unwrap_or_default();
    Ok(OneSummary { budget: SHOWN_BUDGET, through, tokens: context.report.tokens.summary, text })
}
