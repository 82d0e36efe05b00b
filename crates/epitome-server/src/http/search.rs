//! Routes that search messages by their words, summarized or not.

use epitome::{Found, HitCursor, Portion};

use super::call::whole;
use super::prelude::*;
use super::wire;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Words {
    /// Words that must all occur, in any order; each also matches inside a longer word. `"In quotes"` is a phrase.
    #[param(min_length = 1, max_length = 1000, pattern = r#"[^\s"]"#, format = "words")]
    q: String,
    /// `next` of the previous page.
    #[param(pattern = r"^[0-9]{1,18}\..", format = "place")]
    after: Option<String>,
    /// Maximum number of matches.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WordsBeneath {
    /// Words that must all occur, in any order; each also matches inside a longer word. `"In quotes"` is a phrase.
    #[param(min_length = 1, max_length = 1000, pattern = r#"[^\s"]"#, format = "words")]
    q: String,
    /// Only messages that this summary covers.
    #[param(minimum = 1)]
    summary: Option<u64>,
    /// `next` of the previous page: messages before this one.
    after: Option<u64>,
    /// Maximum number of matches.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// Searches the messages of one session by their words, newest first.
#[utoipa::path(get, path = "/v1/sessions/{session}/search", tag = "search", params(WordsBeneath), responses(
    (status = 200, description = "A page of matches", body = Page<openapi::Found>),
))]
pub(crate) async fn in_session(call: Reading<WordsBeneath>) -> Answer {
    let (words, session) = (&call.query, call.session());
    let limit = limit(words.limit)?;
    let after = words.after.map(|seq| HitCursor { session: session.name().into(), seq });
    // An id beyond the database's integer range cannot exist.
    let beneath = words.summary.map(|summary| i64::try_from(summary).unwrap_or(i64::MAX));
    let _turn = call.app.load.paging.acquire().await;
    let found = session.search(in_bounds(&words.q)?, beneath, after, limit).await?;
    page(found, &call.known, |cursor| cursor.seq.to_string())
}

/// Searches the messages of all sessions in the workspace by their words, newest session first.
#[utoipa::path(get, path = "/v1/search", tag = "search", params(Words), responses(
    (status = 200, description = "A page of matches", body = Page<openapi::Found>),
))]
pub(crate) async fn everywhere(call: Reading<Words>) -> Answer {
    let words = &call.query;
    let (limit, after) = (limit(words.limit)?, words.after.as_deref().map(place).transpose()?);
    let _turn = call.app.load.paging.acquire().await;
    let found = call.access.workspace.search(in_bounds(&words.q)?, after, limit).await?;
    page(found, &call.known, cursor)
}

/// Maximum length of a query, in characters.
const LONGEST: usize = 1_000;

fn in_bounds(words: &str) -> Result<&str, Problem> {
    match words.chars().nth(LONGEST) {
        None => Ok(words),
        Some(_) => Err(Problem::invalid(format!("q: at most {LONGEST} characters are allowed"))),
    }
}

fn page(found: Portion<Found>, known: &Known, place: impl Fn(&HitCursor) -> String) -> Answer {
    let next = found.last().filter(|_| found.more).map(|last| place(&last.cursor));
    known.read(&Page { items: found.into_iter().map(wire::found).collect(), next })
}

/// Renders the position after which a search continues: a message of a session.
fn cursor(cursor: &HitCursor) -> String {
    format!("{}.{}", cursor.seq, cursor.session)
}

fn place(after: &str) -> Result<HitCursor, Problem> {
    let place = after.split_once('.').and_then(|(seq, session)| {
        let seq = whole(seq)?;
        epitome::is_name(session).then(|| HitCursor { session: session.into(), seq })
    });
    place.ok_or_else(|| Problem::invalid("after: is not the `next` of a page"))
}
