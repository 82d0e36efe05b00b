//! Route that returns a session within a token budget.

use epitome::rules::context::Oversize;
use epitome::{Context, ContextRequest};
use epitome_http::reply::{CachedContext, ContextKey, Rendered};
use epitome_terminal::flags::whole;

use super::condense::REPORT_HEADER;
use super::openapi::ContextAnswer;
use super::prelude::*;
use super::wire::{ContextOut, report};

/// A request for a context: the parameters of the route, and most flags of `epitome context`. The command defines its
/// own flags for `summary` and `format`, and has no flag for `fit`.
#[derive(Debug, Default, PartialEq, Eq, Hash, clap::Args, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ContextQuery {
    /// Token budget [default and maximum: the setting context.max_tokens]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    #[param(minimum = 1)]
    tokens: Option<u64>,
    /// Whether the context may contain a summary.
    #[arg(skip)]
    #[param(default = true)]
    summary: Option<bool>,
    /// Includes only this author's messages and summaries
    #[arg(long, value_name = "NAME")]
    pub(crate) scope: Option<String>,
    /// Treats this message as the last message of the session
    #[arg(long, value_name = "SEQ", value_parser = whole, allow_negative_numbers = true)]
    #[param(minimum = 1)]
    pub(crate) as_of: Option<u64>,
    /// Provider format of the response, ready to be sent. If omitted: messages in Epitome's format, and the report.
    #[arg(skip)]
    format: Option<Format>,
    /// Peer whose messages get the role `assistant`
    #[arg(long, value_name = "NAME")]
    assistant: Option<String>,
    /// What to return if the newest message exceeds the budget: empty or clip
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    pub(crate) oversize: Option<OversizeIn>,
    /// Whether a summary that is too large for its share of the budget may be shortened for this context.
    #[arg(skip)]
    #[param(default = true)]
    fit: Option<bool>,
    /// Uses the rest of the budget for older messages
    #[arg(long, conflicts_with = "steady")]
    #[serde(default)]
    fill: bool,
    /// Changes the first message of the context rarely, for prompt caches
    #[arg(long)]
    #[serde(default)]
    steady: bool,
}

/// What to return when the newest message alone exceeds the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, ToSchema, clap::ValueEnum)]
#[schema(as = Oversize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OversizeIn {
    /// An empty context. The report says why the context is empty.
    Empty,
    /// An excerpt of the message, marked as an excerpt.
    Clip,
}

/// Returns the conversation within a token budget. Never waits for a model or a summary.
///
/// With `format`, the body contains only fields of that provider's request: `messages` for OpenAI's chat completions,
/// `input` and `instructions` for OpenAI's Responses, or `system` and `messages` for Anthropic. The report is then in
/// the header `x-epitome-report`.
#[utoipa::path(get, path = "/v1/sessions/{session}/context", tag = "context", params(ContextQuery), responses(
    (status = 200, description = "The context", body = ContextAnswer, headers(
        ("x-epitome-report" = Option<String>, description = "The report as JSON; only with `format`"),
    )),
))]
pub(crate) async fn read(call: Reading<ContextQuery>) -> Answer {
    let (session, name) = (call.session(), call.path_param("session").to_owned());
    let stamp = call.or_suggest(session.stamp().await).await?;
    let (app, if_none_match) = (call.app, call.if_none_match);
    let workspace = Arc::from(call.access.workspace.name());
    let key = ContextKey { workspace, session: name, params: call.query };
    if let Some(cached) = app.contexts.get(&key, stamp) {
        return Ok(respond(&if_none_match, &cached));
    }
    let cached = {
        let _turn = app.permits.contexts.acquire().await;
        let query = &key.params;
        render(session.context(query.request()).await?, query.format)?
    };
    let answer = respond(&if_none_match, &cached);
    app.contexts.put(key, stamp, cached);
    Ok(answer)
}

fn respond(if_none_match: &IfNoneMatch, cached: &CachedContext) -> Response {
    let mut answer = if_none_match.respond_rendered(&cached.body);
    if let Some(report) = &cached.report {
        answer.headers_mut().insert(REPORT_HEADER, report.clone());
    }
    answer
}

fn render(context: Context, format: Option<Format>) -> Result<CachedContext, Problem> {
    let tokens = context.report.tokens.total();
    let Some(format) = format else {
        return Ok(CachedContext { body: render_native(context)?, report: None, tokens });
    };
    let body = Rendered::new(&format.0.write(&context.messages))?;
    let report = HeaderValue::from_str(&report(&context).to_string()).ok();
    Ok(CachedContext { body, report, tokens })
}

impl ContextQuery {
    /// Returns the request for the engine.
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

fn render_native(context: Context) -> Result<Rendered, Problem> {
    let age = context.summary.as_ref().and_then(|summary| summary.age_millis);
    let out = ContextOut::new(context);
    match age {
        Some(age) => Rendered::with_age(&out, age, "}}"),
        None => Rendered::new(&out),
    }
}
