//! What the demo counts: tokens and prices, the conversation in several sizes, and whether what was said is still found.

use std::time::{Duration, Instant};

use epitome::rules::context::Spent;
use epitome::rules::message::{Seq, Span, Tokens};
use epitome::search::text_of;
use epitome::{Context, ContextRequest, Session};
use epitome_terminal::failure::Failure;
use serde_json::{Value, json};

use super::story::FACTS;

/// The sizes that are shown.
pub(super) const SIZES: [Tokens; 5] = [500, 1_000, 2_000, 4_000, 16_000];

/// The size of the context whose summary is shown whole.
const SHOWN: Tokens = 1_000;

/// Whose list price is taken for an example, and what a million tokens of input cost there, in dollars. With prompt
/// caching, reading costs a tenth of it and writing a quarter more. (platform.claude.com/docs, "Pricing".)
pub(super) const PRICED: &str = "Claude Sonnet 5.5";
pub(super) const PRICE: f64 = 2.0;
const CACHE_READ: f64 = 0.1;
const CACHE_WRITE: f64 = 1.25;

/// What came of playing it.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) messages: u64,
    pub(super) tokens: Tokens,
    pub(super) tool_calls: u64,
    pub(super) summaries: Vec<Written>,
    pub(super) savings: Savings,
}

/// A summary that was written on the way.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) id: i64,
    pub(super) slot: String,
    pub(super) through: Seq,
    /// What it stands in place of: the messages since, and the summary before.
    pub(super) replaced: Tokens,
    pub(super) tokens: Tokens,
    pub(super) millis: u64,
}

impl Written {
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

/// What the model was sent at each of its calls, in two ways.
#[derive(Debug, Default)]
pub(super) struct Savings {
    pub(super) budget: Tokens,
    pub(super) calls: u64,
    /// How many of the contexts covered every message, in their summary or word for word.
    pub(super) exhaustive: u64,
    pub(super) whole: Sent,
    pub(super) contexts: Sent,
    /// How many times fewer tokens.
    pub(super) times: f64,
}

/// Tokens sent over all calls.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) tokens: Tokens,
    /// Those that stood in the same place in the call before, so that a prompt cache had them.
    pub(super) cached: Tokens,
    pub(super) dollars: f64,
    pub(super) dollars_with_caching: f64,
}

impl Sent {
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
            "priced_as": PRICED,
            "dollars_per_million": PRICE,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 tokens")]
fn dollars(tokens: Tokens, factor: f64) -> f64 {
    tokens as f64 * factor * PRICE / 1_000_000.0
}

/// The conversation in one size.
#[derive(Debug)]
pub(super) struct Size {
    pub(super) budget: Tokens,
    pub(super) used: Tokens,
    pub(super) spent: Spent,
    /// The last message its summary stands for.
    pub(super) summary_through: Option<Seq>,
    /// How many messages are in it word for word.
    pub(super) verbatim: u64,
    pub(super) exhaustive: bool,
    /// What it leaves out, where it does.
    pub(super) gap: Option<Span>,
    pub(super) micros: u64,
    /// Its words, to look for facts in.
    text: String,
    /// The words of the newest messages alone that fit the same budget.
    recent: String,
}

impl Size {
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

    /// What stands in every context: standing orders, pinned messages, and our note where there is one.
    pub(super) fn pinned(&self) -> Tokens {
        self.spent.leading + self.spent.pinned + self.spent.marks
    }
}

pub(super) async fn sizes(session: &Session) -> Result<Vec<Size>, Failure> {
    let mut sizes = Vec::new();
    for budget in SIZES {
        let start = Instant::now();
        let context = session.context(budget).await?;
        let took = start.elapsed();
        let recent = session.context(ContextRequest { summary: false, ..budget.into() }).await?;
        let verbatim = context.messages.iter().filter(|message| message.seq > 0).count() as u64;
        sizes.push(Size {
            budget,
            used: context.report.tokens.total(),
            spent: context.report.tokens,
            summary_through: context.report.covers.map(|span| span.through),
            verbatim,
            exhaustive: context.report.exhaustive,
            gap: context.report.gap,
            micros: micros(took),
            text: words(&context),
            recent: words(&recent),
        });
    }
    Ok(sizes)
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// All that a model would read in it.
fn words(context: &Context) -> String {
    context.messages.iter().map(text_of).collect::<Vec<_>>().join("\n")
}

/// Whether something said long ago can still be told.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) what: &'static str,
    /// The words that tell it, as a search takes them.
    pub(super) query: String,
    /// Where it was first said, as a search beneath the summary finds it.
    pub(super) message: Option<Seq>,
    pub(super) excerpt: Option<String>,
    /// Whether it is in the contexts, in their order.
    pub(super) in_contexts: Vec<bool>,
    /// Whether it is in the newest messages alone that fit the same budgets.
    pub(super) in_recent: Vec<bool>,
}

impl Found {
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

pub(super) async fn facts(session: &Session, sizes: &[Size]) -> Result<Vec<Found>, Failure> {
    let beneath = session.summaries().await?.iter().max_by_key(|summary| summary.through).map(|it| it.id);
    let mut found = Vec::new();
    for fact in &FACTS {
        // Newest first: the last one is where it was said first.
        let hits = session.search(&fact.query(), beneath, None, 1_000).await?;
        let first = hits.into_iter().next_back();
        found.push(Found {
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

/// A summary as a context shows it.
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
    let context = session.context(SHOWN).await?;
    let (through, text) = context.summary.map(|summary| (summary.through, summary.text)).unwrap_or_default();
    Ok(OneSummary { budget: SHOWN, through, tokens: context.report.tokens.summary, text })
}
