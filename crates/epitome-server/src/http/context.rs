//! A session in so many tokens.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::HeaderValue;
use axum::response::Response;
use epitome::dialect::Dialect;
use epitome::rules::context::Oversize;
use epitome::{Context, ContextRequest, ShownSummary};
use epitome_http::figures;
use epitome_http::gate::Reads;
use epitome_http::kept::{Given, Question};
use epitome_http::problem::Problem;
use epitome_http::query::Query;
use epitome_http::reply::{Known, Written};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::messages::Format;
use super::openapi::ContextAnswer;
use super::wire::{ContextOut, MessageOut, ReportOut, ShownOut};

/// What a context of another form holds and leaves out; its body is as its provider wants it.
const REPORT: &str = "x-epitome-report";

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// The budget; unless told, and at most, `context.max_tokens` of the settings (100,000).
    #[param(minimum = 1)]
    tokens: Option<u64>,
    /// Whether a summary may be in it.
    #[param(default = true)]
    summary: Option<bool>,
    /// Only this author's messages and summaries.
    scope: Option<String>,
    /// As if the session ended with this message.
    #[param(minimum = 1)]
    as_of: Option<u64>,
    /// In whose form, ready to be sent; with its report and as Epitome keeps messages unless told.
    format: Option<Format>,
    /// Who is the assistant among peers.
    assistant: Option<String>,
    /// What happens when the newest message alone is over the budget.
    oversize: Option<OversizeIn>,
    /// Whether a summary too large for its share may be shortened on the spot.
    #[param(default = true)]
    fit: Option<bool>,
    /// Spends what is left of the budget on older messages.
    #[serde(default)]
    fill: bool,
    /// Moves the start in steps, for prompt caches.
    #[serde(default)]
    steady: bool,
}

/// What happens when the newest message alone is over the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, ToSchema)]
#[schema(as = Oversize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OversizeIn {
    /// The context is empty, and says why.
    Empty,
    /// A marked excerpt of it is given.
    Clip,
}

/// The conversation in so many tokens. It is there at once, whatever the summaries' state.
///
/// With `format` the body holds the fields of that provider's request and nothing else (`messages`; `input` and
/// `instructions`; `system` and `messages`); what is in it is told in the header `x-epitome-report`.
#[utoipa::path(get, path = "/v1/sessions/{session}/context", tag = "context", params(
    ("session" = String, Path, description = "Its name"),
    Asked,
), responses(
    (status = 200, description = "The context", body = ContextAnswer, headers(
        ("x-epitome-report" = Option<String>, description = "With `format`: the report, as JSON"),
    )),
))]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    Reads(access): Reads,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
    known: Known,
) -> Result<Response, Problem> {
    let session = access.workspace.session(name.as_str());
    let stamp = session.stamp().await?;
    let question = Question { workspace: Arc::from(access.workspace.name()), session: name, asked };
    if let Some(given) = app.kept.get(&question, stamp) {
        figures::given_again(given.tokens);
        return Ok(answer(&known, &given));
    }
    let given = {
        let _turn = app.load.context().await;
        let asked = &question.asked;
        written(&session.context(asked.request()).await?, asked.format)?
    };
    let answer = answer(&known, &given);
    app.kept.put(question, stamp, given);
    Ok(answer)
}

fn answer(known: &Known, given: &Given) -> Response {
    let mut answer = known.given(&given.written);
    if let Some(report) = &given.report {
        answer.headers_mut().insert(REPORT, report.clone());
    }
    answer
}

fn written(context: &Context, format: Option<Format>) -> Result<Given, Problem> {
    let tokens = context.report.tokens.total();
    let report = ReportOut::new(&context.report, context.through, &context.encoding);
    let Some(format) = format else {
        return Ok(Given { written: native(context, report)?, report: None, tokens });
    };
    let told = serde_json::to_string(&report).unwrap_or_default();
    let written = Written::new(&Dialect::from(format).write(&context.messages))?;
    Ok(Given { written, report: HeaderValue::from_str(&told).ok(), tokens })
}

impl Asked {
    fn request(&self) -> ContextRequest {
        let default = ContextRequest::default();
        ContextRequest {
            tokens: self.tokens,
            summary: self.summary.unwrap_or(default.summary),
            scope: self.scope.as_deref().map(Into::into),
            as_of: self.as_of,
            assistant: self.assistant.as_deref().map(Into::into),
            oversize: match self.oversize {
                Some(OversizeIn::Clip) => Oversize::Clip,
                Some(OversizeIn::Empty) | None => Oversize::Empty,
            },
            fit: self.fit.unwrap_or(default.fit),
            fill: self.fill,
            steady: self.steady,
            share: None,
        }
    }
}

fn native(context: &Context, report: ReportOut) -> Result<Written, Problem> {
    let messages = context.messages.iter().map(MessageOut::from).collect();
    let age = context.summary.as_ref().and_then(|summary| summary.age_millis);
    let out = ContextOut { messages, report, summary: context.summary.as_ref().map(shown) };
    match age {
        Some(age) => Written::aging(&out, age, "}}"),
        None => Written::new(&out),
    }
}

fn shown(summary: &ShownSummary) -> ShownOut<'_> {
    ShownOut {
        id: summary.id,
        joined: summary.joined,
        slot: summary.slot.as_deref(),
        model: summary.model.as_deref(),
        stand_in: summary.stand_in,
        through: summary.through,
        created: summary.created.map(|at| at.0),
        text: &summary.text,
        age: summary.age_millis,
    }
}
