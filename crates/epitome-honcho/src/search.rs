//! Full-text search of messages: first those with all words of the query, then those with some of them.

use std::collections::HashMap;

use epitome::search::is_dense;
use epitome::{Error, Found, HitCursor, SEARCH_BYTES};

use super::check::SearchIn;
use super::out::{MESSAGE_FIELDS, Scribe};
use super::prelude::*;

/// Maximum number of words of a query that are searched for, the longest ones.
const MOST_WORDS: usize = 8;

/// Minimum length of a word. Shorter words carry little information, and are in every message.
const SHORTEST: usize = 3;

/// Maximum number of messages with the same word that are ranked.
const WEIGHED: usize = 100;

/// Maximum number of pages that are read when earlier hits are from other authors or do not match the filter.
const PAGES: usize = 10;

/// Searches one session.
pub(super) async fn in_session(May(access): Reads, Body(body, _charged): Body) -> Answer {
    search(&access, Some(access.session()), &body, None).await
}

/// Searches all sessions of the workspace.
pub(super) async fn everywhere(May(access): Reads, Body(body, _charged): Body) -> Answer {
    search(&access, None, &body, None).await
}

/// Searches the messages of a peer.
pub(super) async fn of_peer(May(access): Reads, Body(body, _charged): Body) -> Answer {
    search(&access, None, &body, Some(access.named("peer").to_owned())).await
}

async fn search(access: &Access, only: Option<Session>, body: &Value, peer: Option<String>) -> Answer {
    let SearchIn { query, filters, limit } = check::body(body, check::search)?;
    let filter = Filter::read(&filters, MESSAGE_FIELDS).map_err(unfit)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let app = &access.app;
    let _turn = app.load.paging.acquire().await;
    let mut seeker = Seeker { access, only, filter, peer, sessions: HashMap::new() };
    let mut hits = seeker.ranked(&query, limit).await?;
    hits.truncate(limit);
    let size = hits.iter().map(|hit| hit.message.bytes()).sum();
    elsewhere(size, || {
        let told = hits.iter().filter_map(|hit| Some(seeker.known(hit)?.message(&hit.message)));
        done(StatusCode::OK, &told.collect::<Vec<_>>())
    })
    .await?
}

/// A search in progress.
struct Seeker<'a> {
    access: &'a Access,
    /// The only session that is searched, if set.
    only: Option<Session>,
    filter: Filter,
    /// The only author whose messages are searched, if set.
    peer: Option<String>,
    /// The sessions of the hits; `None` for a session that was deleted meanwhile.
    sessions: HashMap<Arc<str>, Option<Scribe>>,
}

impl Seeker<'_> {
    fn known(&self, hit: &Found) -> Option<&Scribe> {
        self.sessions.get(&hit.session)?.as_ref()
    }

    fn keeps(&self, hit: &Found) -> bool {
        self.known(hit).is_some_and(|scribe| {
            let said = |peer: &str| scribe.message(&hit.message).peer_id == peer;
            self.peer.as_deref().is_none_or(said) && scribe.wants(&hit.message, &self.filter)
        })
    }

    /// Returns the messages with all words, newest first, and then the others, those with most of the words first.
    async fn ranked(&mut self, query: &str, limit: usize) -> Result<Vec<Found>, Problem> {
        // In Epitome quotes mark a phrase, in Honcho they do not.
        let plain: String = query.chars().map(|c| if c == '"' { ' ' } else { c }).take(1_000).collect();
        let all = self.look(&plain, limit).await?;
        let mut bytes: u64 = all.iter().map(|hit| hit.message.bytes()).sum();
        let mut ranked: Vec<(usize, Found)> = all.into_iter().map(|hit| (MOST_WORDS, hit)).collect();
        let mut places: HashMap<HitCursor, usize> =
            ranked.iter().enumerate().map(|(at, (_, hit))| (hit.cursor.clone(), at)).collect();
        if ranked.len() < limit {
            for word in words(&plain) {
                if bytes >= SEARCH_BYTES {
                    break;
                }
                for hit in self.look(&word, WEIGHED).await? {
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
        }
        // Messages with the same number of words stay in their order.
        ranked.sort_by_key(|(words, _)| std::cmp::Reverse(*words));
        Ok(ranked.into_iter().map(|(_, hit)| hit).collect())
    }

    async fn scribe(&self, session: &Arc<str>) -> Result<Option<Scribe>, Problem> {
        let workspace = &self.access.workspace;
        let Some(info) = found(workspace.session(Arc::clone(session)).info().await)? else { return Ok(None) };
        let about = (&*info.name, info.id);
        self.access.app.scribe(workspace.name(), about, &info.encoding).await.map(Some)
    }

    /// Returns messages that have these words and match the filter, at least `least` if there are that many. Returns
    /// none if there is nothing to search for.
    async fn look(&mut self, words: &str, least: usize) -> Result<Vec<Found>, Problem> {
        let (mut kept, mut after) = (Vec::new(), None);
        for _ in 0..PAGES {
            let portion = match &self.only {
                Some(session) => session.search(words, None, after, WEIGHED).await,
                None => self.access.workspace.search(words, after, WEIGHED).await,
            };
            let portion = match portion {
                Ok(portion) => portion,
                Err(Error::Invalid(_) | Error::NotFound { .. } | Error::Conflict(_)) => break,
                Err(error) => return Err(error.into()),
            };
            let more = portion.more;
            after = portion.last().map(|hit| hit.cursor.clone());
            for hit in &portion {
                if !self.sessions.contains_key(&hit.session) {
                    let scribe = self.scribe(&hit.session).await?;
                    self.sessions.insert(Arc::clone(&hit.session), scribe);
                }
            }
            elsewhere(u64::MAX, || kept.extend(portion.into_iter().filter(|hit| self.keeps(hit)))).await?;
            let bytes = kept.iter().map(|hit: &Found| hit.message.bytes()).sum::<u64>();
            if !more || kept.len() >= least || bytes >= SEARCH_BYTES {
                break;
            }
        }
        Ok(kept)
    }
}

/// Returns the longest words of a query, each once, longest first. Returns none if there is only one to search for. In
/// scripts without spaces between words, every two adjacent characters count as a word.
fn words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for run in query.split(|c: char| !c.is_alphanumeric()) {
        let run: Vec<char> = run.chars().collect();
        for part in run.chunk_by(|one, two| is_dense(*one) == is_dense(*two)) {
            let size = if part.first().is_some_and(|c| is_dense(*c)) { 2 } else { part.len().max(SHORTEST) };
            for word in part.windows(size) {
                let word = String::from_iter(word).to_lowercase();
                if !words.contains(&word) {
                    words.push(word);
                }
            }
        }
    }
    // Pairs of endings and particles alone (hiragana) carry the least information.
    let telling = |word: &str| !word.chars().all(|c| matches!(c, '\u{3040}'..='\u{309F}'));
    words.sort_by_key(|word| std::cmp::Reverse((word.chars().count(), telling(word))));
    words.truncate(MOST_WORDS);
    if words.len() < 2 { Vec::new() } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_looked_for_longest_first_and_one_alone_is_not() {
        assert_eq!(
            words("What was my favourite colour, again?"),
            ["favourite", "colour", "again", "what", "was"]
        );
        assert_eq!(words("Walrus, WALRUS!"), [""; 0]);
        assert_eq!(words("it is a so"), [""; 0]);
        assert_eq!(words(""), [""; 0]);
        assert_eq!(words("one two three four five six seven eight nine ten").len(), MOST_WORDS);
    }

    #[test]
    fn where_no_space_parts_words_every_two_characters_are_one() {
        assert_eq!(words("東京の天気"), ["東京", "京の", "の天", "天気"]);
        assert!(words("東京の天気").iter().any(|pair| "東京都の天気はどうですか".contains(pair.as_str())));
        assert_eq!(words("서울 날씨가"), ["서울", "날씨", "씨가"]);
        assert_eq!(words("iPhoneの値段は?"), ["iphone", "の値", "値段", "段は"]);
        // Two characters are one word, which is searched for already. One character is none.
        assert_eq!(words("天気"), [""; 0]);
        assert_eq!(words("猫 犬"), [""; 0]);
        // Of many pairs, those that carry information.
        let long = words("明日の東京の天気はどうなるのでしょうか");
        assert_eq!(long, ["明日", "日の", "の東", "東京", "京の", "の天", "天気", "気は"]);
    }
}
