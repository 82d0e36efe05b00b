//! Messages by their words: those that have all of them first, then those that have some.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use epitome::{Error, Found, HitCursor, Portion, SEARCH_BYTES, Session, SessionInfo, Workspace};
use serde_json::Value;

use super::check::SearchIn;
use super::filter::Filter;
use super::gate::{Access, Reads};
use super::out::MessageOut;
use super::refusal::Refusal;
use super::sent::Body;
use super::{found, scribe};
use crate::http::App;
use crate::http::reply::done;

/// So many words of a query are looked for, the longest ones.
const MOST_WORDS: usize = 8;

/// Shorter words say little, and are in every message.
const SHORTEST: usize = 3;

/// So many messages are looked for at a time; with more than that in all, no further word is looked for.
const WEIGHED: usize = 200;

/// Where is looked.
enum Place {
    Session(Session),
    Workspace(Workspace),
}

impl Place {
    async fn search(&self, words: &str) -> Result<Portion<Found>, Error> {
        match self {
            Self::Session(session) => session.search(words, None, None, WEIGHED).await,
            Self::Workspace(workspace) => workspace.search(words, None, WEIGHED).await,
        }
    }
}

/// In one session.
pub(super) async fn in_session(
    State(app): State<Arc<App>>,
    Reads(access): Reads,
    Path((_, name)): Path<(String, String)>,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    let place = Place::Session(access.workspace.session(name));
    search(&app, &access, &place, &body, None).await
}

/// In all the workspace's sessions.
pub(super) async fn everywhere(
    State(app): State<Arc<App>>,
    Reads(access): Reads,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    let place = Place::Workspace(access.workspace.clone());
    search(&app, &access, &place, &body, None).await
}

/// Among what a peer said.
pub(super) async fn of_peer(
    State(app): State<Arc<App>>,
    Reads(access): Reads,
    Path((_, peer)): Path<(String, String)>,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    let place = Place::Workspace(access.workspace.clone());
    search(&app, &access, &place, &body, Some(&peer)).await
}

async fn search(
    app: &App,
    access: &Access,
    place: &Place,
    body: &Value,
    peer: Option<&str>,
) -> Result<Response, Refusal> {
    let SearchIn { query, filters, limit } = SearchIn::read(body)?;
    let filter = Filter::read(&filters.unwrap_or(Value::Null), MessageOut::FIELDS).map_err(Refusal::unfit)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let _turn = app.load.page().await;
    let (mut sessions, mut told): (HashMap<Arc<str>, Option<SessionInfo>>, Vec<Value>) = Default::default();
    for hit in ranked(place, &query).await? {
        if told.len() >= limit {
            break;
        }
        if !sessions.contains_key(&hit.session) {
            let info = found(access.workspace.session(Arc::clone(&hit.session)).info().await)?;
            sessions.insert(Arc::clone(&hit.session), info);
        }
        let Some(Some(info)) = sessions.get(&hit.session) else { continue };
        let message = scribe(app, access.workspace.name(), info).await?;
        let message = message.message(&hit.message);
        let theirs = peer.is_none_or(|peer| message.peer_id == peer);
        if theirs && filter.keeps(|name| message.field(name)) {
            told.push(serde_json::to_value(&message).unwrap_or_default());
        }
    }
    Ok(done(StatusCode::OK, &told)?)
}

/// Those with all words, newest first; then the others, those with most of the words first.
async fn ranked(place: &Place, query: &str) -> Result<Vec<Found>, Refusal> {
    // Quotes would mean something to us that they did not.
    let plain: String = query.chars().map(|c| if c == '"' { ' ' } else { c }).take(1_000).collect();
    let mut ranked: Vec<(usize, Found)> =
        looked(place, &plain).await?.into_iter().map(|hit| (MOST_WORDS, hit)).collect();
    let mut places: HashMap<HitCursor, usize> =
        ranked.iter().enumerate().map(|(at, (_, hit))| (hit.cursor.clone(), at)).collect();
    let mut bytes: u64 = ranked.iter().map(|(_, hit)| hit.message.bytes()).sum();
    for word in words(&plain) {
        if ranked.len() >= WEIGHED || bytes >= SEARCH_BYTES {
            break;
        }
        for hit in looked(place, &word).await? {
            match places.get(&hit.cursor).and_then(|at| ranked.get_mut(*at)) {
                Some((words, _)) => *words = words.saturating_add(1),
                None => {
                    bytes = bytes.saturating_add(hit.message.bytes());
                    places.insert(hit.cursor.clone(), ranked.len());
                    ranked.push((1, hit));
                }
            }
        }
    }
    // Of as many words, they stay as they were found.
    ranked.sort_by_key(|(words, _)| std::cmp::Reverse(*words));
    Ok(ranked.into_iter().map(|(_, hit)| hit).collect())
}

/// What has these words; nothing where there are none to look for.
async fn looked(place: &Place, words: &str) -> Result<Vec<Found>, Refusal> {
    match place.search(words).await {
        Ok(portion) => Ok(portion.items),
        Err(Error::Invalid(_) | Error::NotFound { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// The longest words of a query, each once, longest first; none where it has only one.
fn words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in query.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() >= SHORTEST) {
        let word = word.to_lowercase();
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
    words.truncate(MOST_WORDS);
    if words.len() < 2 { Vec::new() } else { words }
}
