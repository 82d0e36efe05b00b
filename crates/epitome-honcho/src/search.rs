//! Full-text search of messages. Messages that contain all words of the query come first, and then messages that
//! contain only some of the words.

use std::collections::HashMap;

use epitome::search::is_dense;
use epitome::{Error, HitCursor, SEARCH_BYTES, SearchHit};

use super::prelude::*;
use super::validate::SearchIn;
use super::wire::{MESSAGE_FIELDS, MessageRenderer};

/// Maximum number of words of a query that are searched for separately. The longest words are used.
const MAX_WORDS: usize = 8;

/// Minimum length of a word in characters. Shorter words carry little information, and most messages contain them.
const MIN_WORD_CHARS: usize = 3;

/// Number of messages with the same word that are enough for the ranking. Also the page size of a search in the store.
const MAX_RANKED: usize = 100;

/// Maximum number of pages of hits that are read for the same words. Several pages are read if hits are from other
/// authors or do not match the filter.
const MAX_PAGES: usize = 10;

/// Searches one session.
pub(super) async fn in_session(Authorized(access): CanRead, Body(body, _memory): Body) -> Answer {
    search(&access, Some(access.session()), &body, None).await
}

/// Searches all sessions of the workspace.
pub(super) async fn everywhere(Authorized(access): CanRead, Body(body, _memory): Body) -> Answer {
    search(&access, None, &body, None).await
}

/// Searches the messages of a peer.
pub(super) async fn of_peer(Authorized(access): CanRead, Body(body, _memory): Body) -> Answer {
    search(&access, None, &body, Some(access.path_param("peer").to_owned())).await
}

async fn search(access: &Access, session: Option<Session>, body: &Value, peer: Option<String>) -> Answer {
    let SearchIn { query, filters, limit } = validate::body(body, validate::search)?;
    let filter = Filter::parse(&filters, MESSAGE_FIELDS).map_err(unprocessable)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let app = &access.app;
    let _permit = app.permits.pages.acquire().await;
    let mut search = Search { access, session, filter, peer, sessions: HashMap::new() };
    let mut hits = search.ranked(&query, limit).await?;
    hits.truncate(limit);
    let size = hits.iter().map(|hit| hit.message.bytes()).sum();
    run_blocking(size, || {
        let shown = hits.iter().filter_map(|hit| Some(search.renderer(hit)?.message(&hit.message)));
        json_response(StatusCode::OK, &shown.collect::<Vec<_>>())
    })
    .await?
}

/// A search in progress.
struct Search<'a> {
    access: &'a Access,
    /// The only session that is searched; `None` for all sessions of the workspace.
    session: Option<Session>,
    filter: Filter,
    /// The only peer whose messages are searched; `None` for all peers.
    peer: Option<String>,
    /// A renderer for each session that has a hit; `None` for a session that was deleted during the search.
    sessions: HashMap<Arc<str>, Option<MessageRenderer>>,
}

impl Search<'_> {
    fn renderer(&self, hit: &SearchHit) -> Option<&MessageRenderer> {
        self.sessions.get(&hit.session)?.as_ref()
    }

    fn matches(&self, hit: &SearchHit) -> bool {
        self.renderer(hit).is_some_and(|renderer| {
            let is_author = |peer: &str| renderer.message(&hit.message).peer_id == peer;
            self.peer.as_deref().is_none_or(is_author) && renderer.matches(&hit.message, &self.filter)
        })
    }

    /// Returns the messages that contain all words of the query, newest first. If these are fewer than `limit`, adds
    /// messages that contain some of the words; messages that contain more of the words come first.
    async fn ranked(&mut self, query: &str, limit: usize) -> Result<Vec<SearchHit>, Problem> {
        // In a search of Epitome, quotes mark a phrase. In a search of Honcho they have no meaning, so they are
        // removed.
        let plain: String = query.chars().map(|c| if c == '"' { ' ' } else { c }).take(1_000).collect();
        let all = self.find(&plain, limit).await?;
        let mut bytes: u64 = all.iter().map(|hit| hit.message.bytes()).sum();
        let mut ranked: Vec<(usize, SearchHit)> = all.into_iter().map(|hit| (MAX_WORDS, hit)).collect();
        let mut positions: HashMap<HitCursor, usize> =
            ranked.iter().enumerate().map(|(at, (_, hit))| (hit.cursor.clone(), at)).collect();
        if ranked.len() < limit {
            for word in words(&plain) {
                if bytes >= SEARCH_BYTES {
                    break;
                }
                for hit in self.find(&word, MAX_RANKED).await? {
                    match positions.get(&hit.cursor).and_then(|at| ranked.get_mut(*at)) {
                        Some((words, _)) => *words = words.saturating_add(1),
                        None => {
                            bytes = bytes.saturating_add(hit.message.bytes());
                            positions.insert(hit.cursor.clone(), ranked.len());
                            ranked.push((1, hit));
                        }
                    }
                }
            }
        }
        // The sort is stable: messages that contain the same number of words stay in their order.
        ranked.sort_by_key(|(words, _)| std::cmp::Reverse(*words));
        Ok(ranked.into_iter().map(|(_, hit)| hit).collect())
    }

    async fn new_renderer(&self, session: &Arc<str>) -> Result<Option<MessageRenderer>, Problem> {
        let workspace = &self.access.workspace;
        let Some(info) = existing(workspace.session(Arc::clone(session)).info().await)? else {
            return Ok(None);
        };
        let session = (&*info.name, info.id);
        self.access.app.renderer(workspace.name(), session, &info.encoding).await.map(Some)
    }

    /// Returns messages that contain all these words and match the filter. Reads pages until at least `min` messages
    /// match. Returns no messages if `words` is no valid search, for example because it contains no word.
    async fn find(&mut self, words: &str, min: usize) -> Result<Vec<SearchHit>, Problem> {
        let (mut hits, mut after) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let portion = match &self.session {
                Some(session) => session.search(words, None, after, MAX_RANKED).await,
                None => self.access.workspace.search(words, after, MAX_RANKED).await,
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
                    let renderer = self.new_renderer(&hit.session).await?;
                    self.sessions.insert(Arc::clone(&hit.session), renderer);
                }
            }
            run_blocking(u64::MAX, || hits.extend(portion.into_iter().filter(|hit| self.matches(hit))))
                .await?;
            let bytes = hits.iter().map(|hit: &SearchHit| hit.message.bytes()).sum::<u64>();
            if !more || hits.len() >= min || bytes >= SEARCH_BYTES {
                break;
            }
        }
        Ok(hits)
    }
}

/// Returns the longest words of a query, longest first and without duplicates. Returns no words if the query has only
/// one word, because a search for the whole query already finds it. In scripts without spaces between words, every two
/// adjacent characters count as a word.
fn words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for run in query.split(|c: char| !c.is_alphanumeric()) {
        let run: Vec<char> = run.chars().collect();
        for part in run.chunk_by(|one, two| is_dense(*one) == is_dense(*two)) {
            let size =
                if part.first().is_some_and(|c| is_dense(*c)) { 2 } else { part.len().max(MIN_WORD_CHARS) };
            for word in part.windows(size) {
                let word = String::from_iter(word).to_lowercase();
                if !words.contains(&word) {
                    words.push(word);
                }
            }
        }
    }
    // Japanese endings and particles are written in hiragana, so a pair of hiragana characters carries the least
    // information. Of words with the same length, such pairs come last.
    let is_informative = |word: &str| !word.chars().all(|c| matches!(c, '\u{3040}'..='\u{309F}'));
    words.sort_by_key(|word| std::cmp::Reverse((word.chars().count(), is_informative(word))));
    words.truncate(MAX_WORDS);
    if words.len() < 2 { Vec::new() } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_searched_longest_first_and_a_single_word_only_once() {
        assert_eq!(
            words("What was my favourite colour, again?"),
            ["favourite", "colour", "again", "what", "was"]
        );
        assert_eq!(words("Walrus, WALRUS!"), [""; 0]);
        assert_eq!(words("it is a so"), [""; 0]);
        assert_eq!(words(""), [""; 0]);
        assert_eq!(words("one two three four five six seven eight nine ten").len(), MAX_WORDS);
    }

    #[test]
    fn without_spaces_every_two_characters_are_a_word() {
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
