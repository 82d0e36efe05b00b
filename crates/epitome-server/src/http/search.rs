//! Routes that search messages for words. A search also finds summarized messages.

use epitome::{HitCursor, Portion, SearchHit};

use super::call::whole_number;
use super::prelude::*;
use super::wire;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SearchQuery {
    /// Words to search for. A match contains all the words, in any order. A word also matches inside a longer word.
    /// `"In quotes"` is a phrase.
    #[param(min_length = 1, max_length = 1000, pattern = r#"[^\s"]"#, format = "words")]
    q: String,
    /// The value `next` of the previous page.
    #[param(pattern = r"^[0-9]{1,18}\..", format = "place")]
    after: Option<String>,
    /// Maximum number of matches.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionSearchQuery {
    /// Words to search for. A match contains all the words, in any order. A word also matches inside a longer word.
    /// `"In quotes"` is a phrase.
    #[param(min_length = 1, max_length = 1000, pattern = r#"[^\s"]"#, format = "words")]
    q: String,
    /// Searches only messages that this summary covers.
    #[param(minimum = 1)]
    summary: Option<u64>,
    /// The value `next` of the previous page. The page has messages before this message.
    after: Option<u64>,
    /// Maximum number of matches.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// Searches the messages of one session for words. The newest match comes first.
#[utoipa::path(get, path = "/v1/sessions/{session}/search", tag = "search", params(SessionSearchQuery), responses(
    (status = 200, description = "A page of matches", body = Page<openapi::Found>),
))]
pub(crate) async fn in_session(call: Reading<SessionSearchQuery>) -> Answer {
    let (query, session) = (&call.query, call.session());
    let limit = page_limit(query.limit)?;
    let after = query.after.map(|seq| HitCursor { session: session.name().into(), seq });
    // No summary can have an id beyond the database's integer range.
    let summary = query.summary.map(|summary| i64::try_from(summary).unwrap_or(i64::MAX));
    let _turn = call.app.permits.pages.acquire().await;
    let hits = session.search(checked_words(&query.q)?, summary, after, limit).await;
    page(call.or_suggest(hits).await?, &call.if_none_match, |cursor| cursor.seq.to_string())
}

/// Searches the messages of all sessions in the workspace for words. Matches in the newest session come first.
#[utoipa::path(get, path = "/v1/search", tag = "search", params(SearchQuery), responses(
    (status = 200, description = "A page of matches", body = Page<openapi::Found>),
))]
pub(crate) async fn everywhere(call: Reading<SearchQuery>) -> Answer {
    let query = &call.query;
    let (limit, after) = (page_limit(query.limit)?, query.after.as_deref().map(parse_cursor).transpose()?);
    let _turn = call.app.permits.pages.acquire().await;
    let hits = call.access.workspace.search(checked_words(&query.q)?, after, limit).await?;
    page(hits, &call.if_none_match, render_cursor)
}

/// Maximum length of a query, in characters.
const MAX_CHARS: usize = 1_000;

fn checked_words(words: &str) -> Result<&str, Problem> {
    match words.chars().nth(MAX_CHARS) {
        None => Ok(words),
        Some(_) => Err(Problem::invalid(format!("q: at most {MAX_CHARS} characters are allowed"))),
    }
}

fn page(
    hits: Portion<SearchHit>,
    if_none_match: &IfNoneMatch,
    cursor: impl Fn(&HitCursor) -> String,
) -> Answer {
    let next = hits.last().filter(|_| hits.more).map(|last| cursor(&last.cursor));
    if_none_match.respond(&Page { items: hits.into_iter().map(wire::search_hit).collect(), next })
}

/// Renders the message after which a search continues, as the message's position and its session.
fn render_cursor(cursor: &HitCursor) -> String {
    format!("{}.{}", cursor.seq, cursor.session)
}

fn parse_cursor(after: &str) -> Result<HitCursor, Problem> {
    let cursor = after.split_once('.').and_then(|(seq, session)| {
        let seq = whole_number(seq)?;
        epitome::is_name(session).then(|| HitCursor { session: session.into(), seq })
    });
    cursor.ok_or_else(|| Problem::invalid("after: is not the `next` of a page; omit it for the first page"))
}
