//! Route that returns a session within a token budget.

use epitome::rules::context::Oversize;
use epitome::{Context, ContextRequest};
use epitome_http::reply::Written;
use epitome_http::reply::{Given, Question};
use epitome_terminal::flags::whole;

use super::condense::REPORT;
use super::openapi::ContextAnswer;
use super::prelude::*;
use super::wire::{ContextOut, report, shown};

/// A request for a context: parameters of the route, and flags of `epitome context`, which has two of them in another form.
#[derive(Debug, Default, PartialEq, Eq, Hash, clap::Args, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// Token budget; by default, and at most, the setting context.max_tokens
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    #[param(minimum = 1)]
    tokens: Option<u64>,
    /// Whether the context may contain a summary.
    #[arg(skip)]
    #[param(default = true)]
    summary: Option<bool>,
    /// Only this author's messages and summaries
    #[arg(long, value_name = "NAME")]
    scope: Option<String>,
    /// Treats this message as the last of the session
    #[arg(long, value_name = "SEQ", value_parser = whole, allow_negative_numbers = true)]
    #[param(minimum = 1)]
    pub(crate) as_of: Option<u64>,
    /// Provider format, ready to be sent. Without it: messages in Epitome's format, with the report.
    #[arg(skip)]
    format: Option<Format>,
    /// Peer that plays the assistant's role
    #[arg(long, value_name = "NAME")]
    assistant: Option<String>,
    /// If the newest message exceeds the budget: empty, or clip
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    pub(crate) oversize: Option<OversizeIn>,
    /// Whether a summary that is too large for its share of the budget may be shortened for this context.
    #[arg(skip)]
    #[param(default = true)]
    fit: Option<bool>,
    /// Spends the rest of the budget on older messages
    #[arg(long, conflicts_with = "steady")]
    #[serde(default)]
    fill: bool,
    /// Moves the first message in steps, for prompt caches
    #[arg(long)]
    #[serde(default)]
    steady: bool,
}

/// What to return when the newest message alone exceeds the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, ToSchema, clap::ValueEnum)]
#[schema(as = Oversize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OversizeIn {
    /// An empty context whose report says why.
    Empty,
    /// A marked excerpt of the message.
    Clip,
}

/// Returns the conversation within a token budget. Never waits for a model or a summary.
///
/// With `format` the body contains only fields of that provider's request (`messages`; `input` and `instructions`; `system`
/// and `messages`). The report is then in the header `x-epitome-report`.
#[utoipa::path(get, path = "/v1/sessions/{session}/context", tag = "context", params(Asked), responses(
    (status = 200, description = "The context", body = ContextAnswer, headers(
        ("x-epitome-report" = Option<String>, description = "With `format`: the report, as JSON"),
    )),
))]
pub(crate) async fn read(call: Reading<Asked>) -> Answer {
    let (session, name) = (call.session(), call.named("session").to_owned());
    let stamp = session.stamp().await?;
    let (app, known) = (call.app, call.known);
    let workspace = Arc::from(call.access.workspace.name());
    let question = Question { workspace, session: name, asked: call.query };
    if let Some(given) = app.kept.get(&question, stamp) {
        return Ok(answer(&known, &given));
    }
    let given = {
        let _turn = app.load.contexts.acquire().await;
        let asked = &question.asked;
        written(session.context(asked.request()).await?, asked.format)?
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

fn written(context: Context, format: Option<Format>) -> Result<Given, Problem> {
    let tokens = context.report.tokens.total();
    let report = report(&context);
    let Some(format) = format else {
        return Ok(Given { written: native(context, report)?, report: None, tokens });
    };
    let written = Written::new(&format.0.write(&context.messages))?;
    Ok(Given { written, report: HeaderValue::from_str(&report.to_string()).ok(), tokens })
}

impl Asked {
    pub(crate) fn request(&self) -> ContextRequest {
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

fn native(context: Context, report: Value) -> Result<Written, Problem> {
    let messages = context.messages.into_iter().map(shown).collect();
    let age = context.summary.as_ref().and_then(|summary| summary.age_millis);
    let out = ContextOut { messages, report, summary: context.summary.as_ref() };
    match age {
        Some(age) => Written::aging(&out, age, "}}"),
        None => Written::new(&out),
    }
}
