//! The context and the summaries of a session.

use std::collections::HashSet;

use epitome::rules::context::Oversize;
use epitome::rules::message::{Message, Part, Seq};
use epitome::rules::tokens::{Counter, Encoding};
use epitome::rules::trigger::Fraction;
use epitome::store::SummaryState;
use epitome::{Context, ContextRequest, Error, Page, ShownSummary};
use epitome_http::reply::{CachedContext, ContextKey};
use epitome_http::reply::{IfNoneMatch, Rendered};
use serde::Serialize;

use super::prelude::*;
use super::state::ContextParams;
use super::validate::ContextIn;
use super::wire::{MessageOut, MessageRenderer};

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

/// Returns a context: a summary and messages, which together fit the token budget. The route never waits for a model.
/// If the session does not exist, the context is empty.
pub(super) async fn read(
    Authorized(access): CanRead,
    params: QueryParams,
    if_none_match: IfNoneMatch,
) -> Answer {
    let (app, name) = (Arc::clone(&access.app), access.path_param("session"));
    let request = ContextIn::read(&params.0)?;
    if let Some(detail) = request.invalid_combination() {
        return Err(unprocessable(detail));
    }
    if params.get("scope").is_some_and(|scope| !scope.is_empty()) {
        return Err(not_offered());
    }
    let target = request.peer_target.is_some();
    let tokens = match request.tokens.map(u64::try_from) {
        Some(Err(_)) | Some(Ok(0)) => return if_none_match.respond(&ContextOut::new(name, target)),
        Some(Ok(tokens)) => Some(tokens),
        None => None,
    };
    let session = access.session();
    let Some(stamp) = existing(session.stamp().await)? else {
        return if_none_match.respond(&ContextOut::new(name, target));
    };
    let params = ContextParams { tokens, summary: request.summary, target };
    let (workspace, name) = (Arc::from(access.workspace.name()), name.to_owned());
    let key = ContextKey { workspace, session: name, params };
    if let Some(cached) = app.contexts.get(&key, stamp) {
        return Ok(if_none_match.respond_rendered(&cached.body));
    }
    let context = {
        let _permit = app.permits.contexts.acquire().await;
        match context(&session, &key.params).await {
            Ok(context) => with_blank_messages(&session, context).await,
            Err(error) => Err(error),
        }
    };
    let Some(context) = existing(context)? else {
        return if_none_match.respond(&ContextOut::new(&key.session, target));
    };
    let session = (key.session.as_str(), stamp.session);
    let renderer = app.renderer(&key.workspace, session, &context.encoding).await?;
    let bytes = context.messages.iter().fold(0, |sum: u64, message| sum.saturating_add(message.bytes()));
    let tokens = context.report.tokens.total();
    let render = || render(&context, &renderer, &key.session, key.params.target);
    let cached = CachedContext { body: run_blocking(bytes, render).await??, report: None, tokens };
    let answer = if_none_match.respond_rendered(&cached.body);
    app.contexts.put(key, stamp, cached);
    Ok(answer)
}

/// Builds a context without gaps and duplicates. Honcho's format has no field that could report a gap.
async fn context(session: &Session, params: &ContextParams) -> Result<Context, Error> {
    // If the newest message alone exceeds the budget, the context contains a shortened form of the message.
    let request = ContextRequest {
        tokens: params.tokens,
        summary: params.summary,
        oversize: Oversize::Clip,
        ..ContextRequest::default()
    };
    let context = match complete(session, &request).await {
        // Honcho's clients may request more tokens than the server allows. Then the server's maximum is used.
        Err(Error::Invalid(_)) if params.tokens.is_some() => {
            complete(session, &ContextRequest { tokens: None, ..request.clone() }).await?
        }
        context => context?,
    };
    match &context.summary {
        Some(summary) if summary.text_through >= context.through => {
            with_newest_verbatim(session, &request, context).await
        }
        _ => Ok(context),
    }
}

/// Builds a context that leaves no message out. If some messages are neither covered by the stored summary nor shown,
/// adds their best lines to the summary at once, without a model. If these messages are far more than the budget
/// allows, returns only the newest messages and no summary, because a summary would make the context look complete.
async fn complete(session: &Session, request: &ContextRequest) -> Result<Context, Error> {
    let mut context = session.context(request.clone()).await?;
    let tokens = Some(context.report.budget);
    if request.summary && !context.report.exhaustive && context.report.empty.is_none() {
        // Honcho reserves two fifths of the budget for the summary.
        let share = Fraction::new(0.4).ok();
        context = session.context(ContextRequest { tokens, fill: true, share, ..request.clone() }).await?;
    }
    if request.summary && (context.report.empty.is_some() || !context.report.exhaustive) {
        context = session.context(ContextRequest { tokens, summary: false, ..request.clone() }).await?;
    }
    Ok(context)
}

/// Rebuilds a context whose summary also covers the newest message. Such a context shows no message that a model could
/// answer. Returns the newest message verbatim, together with a context of the messages before it.
async fn with_newest_verbatim(
    session: &Session,
    request: &ContextRequest,
    context: Context,
) -> Result<Context, Error> {
    let newest = Page { after: context.through.checked_sub(1), limit: 1, ..Page::default() };
    let Some(newest) = session.messages(newest).await?.into_iter().next() else { return Ok(context) };
    let counter = Counter::new(context.encoding.parse::<Encoding>().unwrap_or_default());
    let size = counter.message(&newest);
    let rest = context.report.budget.saturating_sub(size);
    let as_of = newest.seq.checked_sub(1).filter(|before| *before > 0);
    let alone = ContextRequest { tokens: Some(context.report.budget), summary: false, ..request.clone() };
    let (Some(before), true) = (as_of, rest > 0) else { return session.context(alone).await };
    let earlier = ContextRequest { tokens: Some(rest), as_of: Some(before), ..request.clone() };
    let mut earlier = complete(session, &earlier).await?;
    let covers_newest = |summary: &ShownSummary| summary.text_through > before;
    if earlier.report.empty.is_some() || earlier.summary.as_ref().is_some_and(covers_newest) {
        return session.context(alone).await;
    }
    earlier.messages.push(newest);
    earlier.through = context.through;
    earlier.report.budget = context.report.budget;
    earlier.report.tokens.messages = earlier.report.tokens.messages.saturating_add(size);
    Ok(earlier)
}

/// Maximum distance, in messages, between the first and the last message that a context does not show. If the distance
/// is larger, no blank messages are added.
const MAX_BLANK_DISTANCE: u64 = 1_000;

/// Maximum size of the messages that are read to find blank messages, in bytes.
const MAX_BLANK_BYTES: u64 = 1 << 20;

/// Adds the messages without text that the context leaves out. They are of no use to a model, but Honcho's clients
/// expect them.
async fn with_blank_messages(session: &Session, mut context: Context) -> Result<Context, Error> {
    let shown: HashSet<Seq> = context.messages.iter().map(|message| message.seq).collect();
    let covered = context.summary.as_ref().map(|summary| summary.text_through);
    let own = |message: &&Message| message.seq > 0 && !message.pinned && !message.role.is_system();
    let first = context.messages.iter().filter(own).map(|message| message.seq).min();
    // Without a summary, the search for blank messages starts at the first shown message, because older messages may
    // have been left out only because they did not fit.
    let Some(from) = covered.map(|covered| covered.saturating_add(1)).or(first) else {
        return Ok(context);
    };
    let missing: Vec<Seq> = (from..=context.through).filter(|seq| !shown.contains(seq)).collect();
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(context) };
    if last.saturating_sub(*first) > MAX_BLANK_DISTANCE {
        return Ok(context);
    }
    let (after, before) = (first.checked_sub(1), last.checked_add(1));
    let page = Page { after, before, limit: 1_000, bytes: Some(MAX_BLANK_BYTES), ..Page::default() };
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

fn render(
    context: &Context,
    renderer: &MessageRenderer,
    session: &str,
    target: bool,
) -> Result<Rendered, Problem> {
    // Honcho's format has a separate field for the summary. So the message with the summary is left out, and so are
    // other messages that Epitome inserts for the model. Inserted messages have the sequence number 0.
    let summary = context.summary.as_ref().filter(|summary| summary.text_through > 0);
    let covered = summary.map_or(0, |summary| summary.text_through);
    let is_shown = |message: &&Message| {
        let always = message.pinned || message.role.is_system();
        message.seq > covered || (message.seq > 0 && always)
    };
    let mut messages: Vec<_> = context.messages.iter().filter(is_shown).collect();
    messages.sort_by_key(|message| message.seq);
    messages.dedup_by_key(|message| message.seq);
    let messages = messages.into_iter().map(|message| renderer.message(message)).collect();
    let summary = summary.map(|summary| render_summary(summary, renderer));
    Rendered::new(&ContextOut { messages, summary, ..ContextOut::new(session, target) })
}

fn render_summary(summary: &ShownSummary, renderer: &MessageRenderer) -> Value {
    let created = summary.created.map_or_else(now, |at| IsoTime::from_millis(at.0));
    let slot = summary.slot.as_deref().unwrap_or_default();
    wire::summary(&summary.text, &renderer.id(summary.text_through), slot, created, summary.tokens)
}

/// Returns the short and the long summary. A summary that does not exist is `null`.
pub(super) async fn summaries(Authorized(access): CanRead) -> Answer {
    let session = access.session();
    let mut body = json!({"id": access.path_param("session"), "short_summary": null, "long_summary": null});
    if let Some(stamp) = existing(session.stamp().await)? {
        let ids = access.app.ids().await?.prefix(stamp.session);
        for summary in existing(session.summaries().await)?.unwrap_or_default() {
            let field = body.get_mut(format!("{}_summary", summary.slot));
            let is_current = summary.scope.is_none() && summary.state == SummaryState::Current;
            if let Some(field) = field.filter(|_| is_current) {
                let (id, created) = (ids.message(summary.through), IsoTime::from_millis(summary.created.0));
                *field = wire::summary(&summary.text, &id, &summary.slot, created, summary.tokens);
            }
        }
    }
    json_response(StatusCode::OK, &body)
}
