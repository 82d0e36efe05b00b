//! A session in so many tokens, and its summaries.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use epitome::core::context::Oversize;
use epitome::core::message::Seq;
use epitome::store::SummaryState;
use epitome::{Context, ContextRequest, Error, Session, ShownSummary};
use serde::Serialize;
use serde_json::json;

use super::check::ContextIn;
use super::found;
use super::gate::{Reads, now};
use super::ids::Ids;
use super::moment::Moment;
use super::out::{LONG, MessageOut, SHORT, Scribe, SummaryOut, summary_type};
use super::refusal::Refusal;
use super::sent::Pairs;
use crate::http::App;
use crate::http::body::elsewhere;
use crate::http::figures;
use crate::http::kept::{Given, Question};
use crate::http::reply::{Known, Written, done};

/// What a context is asked by, as far as it matters here.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    tokens: Option<u64>,
    summary: bool,
    /// For somebody: of whom nothing is told.
    target: bool,
}

#[derive(Serialize)]
struct ContextOut<'a> {
    id: &'a str,
    messages: Vec<MessageOut<'a>>,
    summary: Option<SummaryOut<'a>>,
    peer_representation: Option<&'static str>,
    peer_card: Option<()>,
}

impl<'a> ContextOut<'a> {
    fn new(session: &'a str, target: bool) -> Self {
        let peer_representation = target.then_some("");
        Self { id: session, messages: Vec::new(), summary: None, peer_representation, peer_card: None }
    }
}

/// The conversation in so many tokens, summary and messages together. There at once, also of a session that is not
/// there: then it is empty.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    Reads(access): Reads,
    Path((_, name)): Path<(String, String)>,
    pairs: Pairs,
    known: Known,
) -> Result<Response, Refusal> {
    let given = ContextIn::read(&pairs.0)?;
    if let Some(detail) = given.unfit() {
        return Err(Refusal::unfit(detail));
    }
    if pairs.get("scope").is_some_and(|scope| !scope.is_empty()) {
        return Err(super::not_offered());
    }
    let target = given.peer_target.is_some();
    let tokens = match given.tokens.map(u64::try_from) {
        Some(Err(_)) | Some(Ok(0)) => return Ok(known.read(&ContextOut::new(&name, target))?),
        Some(Ok(tokens)) => Some(tokens),
        None => None,
    };
    let session = access.workspace.session(name.as_str());
    let Some(stamp) = found(session.stamp().await)? else {
        return Ok(known.read(&ContextOut::new(&name, target))?);
    };
    let asked = Asked { tokens, summary: given.summary, target };
    let question = Question { workspace: Arc::from(access.workspace.name()), session: name, asked };
    if let Some(given) = app.v3.kept.get(&question, stamp) {
        figures::given_again(given.tokens);
        return Ok(known.given(&given.written));
    }
    let context = {
        let _turn = app.load.context().await;
        context(&session, &question.asked).await
    };
    let Some(context) = found(context)? else {
        return Ok(known.read(&ContextOut::new(&question.session, target))?);
    };
    let ids = app.v3.ids(&app).await?;
    let bytes = context.messages.iter().fold(0, |sum: u64, message| sum.saturating_add(message.bytes()));
    let tokens = context.report.tokens.total();
    let (app, question) = (Arc::clone(&app), question);
    let write = move || {
        let Question { workspace, session, asked } = &question;
        let about = (&**workspace, session.as_str());
        let scribe = Scribe::new((&ids, &app.v3.counts), about, stamp.session, &context.encoding);
        let given =
            Given { written: written(&context, &scribe, session, asked.target)?, report: None, tokens };
        let answer = known.given(&given.written);
        app.v3.kept.put(question, stamp, given);
        Ok::<_, Refusal>(answer)
    };
    elsewhere(usize::try_from(bytes).unwrap_or(usize::MAX), write).await?
}

/// Their answers have no place to say that something is missing, so nothing is: what no summary tells yet is digested on
/// the spot.
async fn context(session: &Session, asked: &Asked) -> Result<Context, Error> {
    // One message that is larger than the budget is better told in part than not at all.
    let request = ContextRequest {
        tokens: asked.tokens,
        summary: asked.summary,
        oversize: Oversize::Clip,
        ..ContextRequest::default()
    };
    let mut made = match session.context(request.clone()).await {
        // Whoever runs the server allows less than their clients may ask for.
        Err(Error::Invalid(_)) if asked.tokens.is_some() => {
            session.context(ContextRequest { tokens: None, ..request.clone() }).await?
        }
        made => made?,
    };
    if asked.summary && !made.report.exhaustive && made.report.empty.is_none() {
        let filled = ContextRequest { tokens: Some(made.report.budget), fill: true, ..request.clone() };
        made = session.context(filled).await?;
    }
    // There is far more to tell than there is room for: then the newest messages, and nothing that seems to be all.
    if made.summary.is_some() && !made.report.exhaustive {
        let plain = ContextRequest { tokens: Some(made.report.budget), summary: false, ..request };
        made = session.context(plain).await?;
    }
    Ok(made)
}

fn written(context: &Context, scribe: &Scribe<'_>, session: &str, target: bool) -> Result<Written, Refusal> {
    // The summary is told apart, and what was put between messages for a model's sake is not told at all.
    let mut messages: Vec<_> = context.messages.iter().filter(|message| message.seq > 0).collect();
    messages.sort_by_key(|message| message.seq);
    // A summary may tell more than it has to: it stands for what comes before those that are shown in one run.
    let run = messages.iter().rev().filter(|message| !message.pinned && !message.role.is_system());
    let before = run.map(|message| message.seq).fold(Seq::MAX, |first, seq| match first {
        Seq::MAX => seq.saturating_sub(1),
        before if seq == before => seq.saturating_sub(1),
        before => before,
    });
    let messages = messages.into_iter().map(|message| scribe.message(message)).collect();
    let summary = context.summary.as_ref().map(|summary| shown(summary, before, scribe));
    Ok(Written::new(&ContextOut { messages, summary, ..ContextOut::new(session, target) })?)
}

fn shown<'a>(summary: &'a ShownSummary, before: Seq, scribe: &Scribe<'_>) -> SummaryOut<'a> {
    let created = summary.created.map_or_else(now, |at| Moment::from_millis(at.0));
    SummaryOut {
        content: &summary.text,
        message_id: scribe.id(summary.through.min(before)),
        summary_type: summary_type(summary.slot.as_deref().unwrap_or_default()),
        created_at: created.seconds(),
        token_count: summary.tokens,
    }
}

/// Both summaries, as far as there are any yet.
pub(super) async fn summaries(
    State(app): State<Arc<App>>,
    Reads(access): Reads,
    Path((_, name)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let session = access.workspace.session(name.as_str());
    let (mut short, mut long) = (None, None);
    let standing = match found(session.stamp().await)? {
        None => Vec::new(),
        Some(stamp) => {
            let ids: Ids = app.v3.ids(&app).await?;
            let mark = ids.mark(stamp.session);
            let standing = found(session.summaries().await)?.unwrap_or_default();
            standing.into_iter().map(|summary| (mark.message(summary.through), summary)).collect()
        }
    };
    for (message_id, summary) in &standing {
        if summary.scope.is_some() || summary.state != SummaryState::Standing {
            continue;
        }
        let told = SummaryOut {
            content: &summary.text,
            message_id: message_id.clone(),
            summary_type: summary_type(&summary.slot),
            created_at: Moment::from_millis(summary.created.0).seconds(),
            token_count: summary.tokens,
        };
        match summary.slot.as_str() {
            SHORT => short = Some(told),
            LONG => long = Some(told),
            _ => {}
        }
    }
    Ok(done(StatusCode::OK, &json!({"id": name, "short_summary": short, "long_summary": long}))?)
}
