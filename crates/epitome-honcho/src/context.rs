//! Contexts of a session, and its summaries.

use std::collections::HashSet;

use epitome::rules::context::Oversize;
use epitome::rules::message::{Message, Part, Seq};
use epitome::rules::tokens::{Counter, Encoding};
use epitome::rules::trigger::Fraction;
use epitome::store::SummaryState;
use epitome::{Context, ContextRequest, Error, Page, ShownSummary};
use epitome_http::reply::{Given, Question};
use epitome_http::reply::{Known, Written};
use serde::Serialize;

use super::check::ContextIn;
use super::out::{MessageOut, Scribe};
use super::prelude::*;
use super::state::Asked;

#[derive(Serialize)]
struct ContextOut<'a> {
    id: &'a str,
    messages: Vec<MessageOut<'a>>,
    summary: Option<Value>,
    peer_representation: Option<&'static str>,
    peer_card: Option<()>,
}

impl<'a> ContextOut<'a> {
    fn new(session: &'a str, target: bool) -> Self {
        let peer_representation = target.then_some("");
        Self { id: session, messages: Vec::new(), summary: None, peer_representation, peer_card: None }
    }
}

/// Returns the conversation within a token budget, summary and messages together, without waiting for a model. For a
/// session that does not exist the context is empty.
pub(super) async fn read(May(access): Reads, pairs: Pairs, known: Known) -> Answer {
    let (app, name) = (Arc::clone(&access.app), access.named("session"));
    let given = ContextIn::read(&pairs.0)?;
    if let Some(detail) = given.unfit() {
        return Err(unfit(detail));
    }
    if pairs.get("scope").is_some_and(|scope| !scope.is_empty()) {
        return Err(not_offered());
    }
    let target = given.peer_target.is_some();
    let tokens = match given.tokens.map(u64::try_from) {
        Some(Err(_)) | Some(Ok(0)) => return known.read(&ContextOut::new(name, target)),
        Some(Ok(tokens)) => Some(tokens),
        None => None,
    };
    let session = access.session();
    let Some(stamp) = found(session.stamp().await)? else {
        return known.read(&ContextOut::new(name, target));
    };
    let asked = Asked { tokens, summary: given.summary, target };
    let (workspace, name) = (Arc::from(access.workspace.name()), name.to_owned());
    let question = Question { workspace, session: name, asked };
    if let Some(given) = app.kept.get(&question, stamp) {
        return Ok(known.given(&given.written));
    }
    let context = {
        let _turn = app.load.contexts.acquire().await;
        match context(&session, &question.asked).await {
            Ok(context) => with_blank(&session, context).await,
            Err(error) => Err(error),
        }
    };
    let Some(context) = found(context)? else {
        return known.read(&ContextOut::new(&question.session, target));
    };
    let about = (question.session.as_str(), stamp.session);
    let scribe = app.scribe(&question.workspace, about, &context.encoding).await?;
    let bytes = context.messages.iter().fold(0, |sum: u64, message| sum.saturating_add(message.bytes()));
    let tokens = context.report.tokens.total();
    let write = || written(&context, &scribe, &question.session, question.asked.target);
    let given = Given { written: elsewhere(bytes, write).await??, report: None, tokens };
    let answer = known.given(&given.written);
    app.kept.put(question, stamp, given);
    Ok(answer)
}

/// Builds a context without gaps and without duplicates, because the answer has no field to report them.
async fn context(session: &Session, asked: &Asked) -> Result<Context, Error> {
    // Part of a message that exceeds the budget is better than nothing of it.
    let request = ContextRequest {
        tokens: asked.tokens,
        summary: asked.summary,
        oversize: Oversize::Clip,
        ..ContextRequest::default()
    };
    let made = match whole(session, &request).await {
        // The server's limit may be lower than what Honcho's clients may request.
        Err(Error::Invalid(_)) if asked.tokens.is_some() => {
            whole(session, &ContextRequest { tokens: None, ..request.clone() }).await?
        }
        made => made?,
    };
    match &made.summary {
        Some(summary) if summary.told >= made.through => newest_apart(session, &request, made).await,
        _ => Ok(made),
    }
}

/// Builds a context that leaves nothing out: messages that no summary covers yet are digested at once. If there are far
/// more of them than the budget holds, the newest messages come alone, without a summary that would look complete.
async fn whole(session: &Session, request: &ContextRequest) -> Result<Context, Error> {
    let mut made = session.context(request.clone()).await?;
    let tokens = Some(made.report.budget);
    if request.summary && !made.report.exhaustive && made.report.empty.is_none() {
        // In Honcho a summary always gets two fifths of the budget.
        let share = Fraction::new(0.4).ok();
        made = session.context(ContextRequest { tokens, fill: true, share, ..request.clone() }).await?;
    }
    if request.summary && (made.report.empty.is_some() || !made.report.exhaustive) {
        made = session.context(ContextRequest { tokens, summary: false, ..request.clone() }).await?;
    }
    Ok(made)
}

/// Rebuilds a context whose summary covers the newest message too, which leaves nothing to answer to. Returns that
/// message verbatim, and a summary of what came before it.
async fn newest_apart(session: &Session, request: &ContextRequest, made: Context) -> Result<Context, Error> {
    let newest = Page { after: made.through.checked_sub(1), limit: 1, ..Page::default() };
    let Some(newest) = session.messages(newest).await?.into_iter().next() else { return Ok(made) };
    let counter = Counter::new(made.encoding.parse::<Encoding>().unwrap_or_default());
    let size = counter.message(&newest);
    let rest = made.report.budget.saturating_sub(size);
    let as_of = newest.seq.checked_sub(1).filter(|before| *before > 0);
    let alone = ContextRequest { tokens: Some(made.report.budget), summary: false, ..request.clone() };
    let (Some(before), true) = (as_of, rest > 0) else { return session.context(alone).await };
    let beside = ContextRequest { tokens: Some(rest), as_of: Some(before), ..request.clone() };
    let mut beside = whole(session, &beside).await?;
    if beside.report.empty.is_some() || beside.summary.as_ref().is_some_and(|summary| summary.told > before) {
        return session.context(alone).await;
    }
    beside.messages.push(newest);
    beside.through = made.through;
    beside.report.budget = made.report.budget;
    beside.report.tokens.messages = beside.report.tokens.messages.saturating_add(size);
    Ok(beside)
}

/// Maximum distance between the first and the last missing message.
const MOST_BLANK: u64 = 1_000;

/// Maximum size of the missing messages that are read, in bytes.
const BLANK_BYTES: u64 = 1 << 20;

/// Adds messages without text. They are of no use to models, but Honcho's clients expect them.
async fn with_blank(session: &Session, mut context: Context) -> Result<Context, Error> {
    let shown: HashSet<Seq> = context.messages.iter().map(|message| message.seq).collect();
    let told = context.summary.as_ref().map(|summary| summary.told);
    let own = |message: &&Message| message.seq > 0 && !message.pinned && !message.role.is_system();
    let first = context.messages.iter().filter(own).map(|message| message.seq).min();
    // Without a summary, the oldest messages may be missing because they did not fit.
    let Some(from) = told.map(|told| told.saturating_add(1)).or(first) else {
        return Ok(context);
    };
    let missing: Vec<Seq> = (from..=context.through).filter(|seq| !shown.contains(seq)).collect();
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(context) };
    if last.saturating_sub(*first) > MOST_BLANK {
        return Ok(context);
    }
    let (after, before) = (first.checked_sub(1), last.checked_add(1));
    let page = Page { after, before, limit: 1_000, bytes: Some(BLANK_BYTES), ..Page::default() };
    let counter = Counter::new(context.encoding.parse::<Encoding>().unwrap_or_default());
    let mut left = context.report.budget.saturating_sub(context.report.tokens.total());
    for message in session.messages(page).await? {
        let blank = matches!(message.parts.as_slice(), [Part::Text { text }] if text.trim().is_empty());
        let size = counter.message(&Message { author: None, ..message.clone() });
        let size = size.saturating_sub(counter.overhead().message);
        if blank && !message.skip && missing.contains(&message.seq) && size <= left {
            left = left.saturating_sub(size);
            context.messages.push(message);
        }
    }
    Ok(context)
}

fn written(context: &Context, scribe: &Scribe, session: &str, target: bool) -> Result<Written, Problem> {
    // The summary has its own field, and messages that Epitome inserts for the model are left out.
    let summary = context.summary.as_ref().filter(|summary| summary.told > 0);
    let told = summary.map_or(0, |summary| summary.told);
    let wanted = |message: &&Message| {
        let stays = message.pinned || message.role.is_system();
        message.seq > told || (message.seq > 0 && stays)
    };
    let mut messages: Vec<_> = context.messages.iter().filter(wanted).collect();
    messages.sort_by_key(|message| message.seq);
    messages.dedup_by_key(|message| message.seq);
    let messages = messages.into_iter().map(|message| scribe.message(message)).collect();
    let summary = summary.map(|summary| shown(summary, scribe));
    Written::new(&ContextOut { messages, summary, ..ContextOut::new(session, target) })
}

fn shown(summary: &ShownSummary, scribe: &Scribe) -> Value {
    let created = summary.created.map_or_else(now, |at| Moment::from_millis(at.0));
    let slot = summary.slot.as_deref().unwrap_or_default();
    out::summary(&summary.text, &scribe.id(summary.told), slot, created, summary.tokens)
}

/// Returns both summaries, as far as they exist.
pub(super) async fn summaries(May(access): Reads) -> Answer {
    let session = access.session();
    let mut told = json!({"id": access.named("session"), "short_summary": null, "long_summary": null});
    if let Some(stamp) = found(session.stamp().await)? {
        let mark = access.app.ids().await?.mark(stamp.session);
        for summary in found(session.summaries().await)?.unwrap_or_default() {
            let place = told.get_mut(format!("{}_summary", summary.slot));
            let stands = summary.scope.is_none() && summary.state == SummaryState::Standing;
            if let Some(place) = place.filter(|_| stands) {
                let (id, created) = (mark.message(summary.through), Moment::from_millis(summary.created.0));
                *place = out::summary(&summary.text, &id, &summary.slot, created, summary.tokens);
            }
        }
    }
    done(StatusCode::OK, &told)
}
