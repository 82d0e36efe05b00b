//! Messages by their words: those that have all of them first, then those that have some.

use std::collections::HashMap;

use epitome::search::is_dense;
use epitome::{Error, Found, HitCursor, SEARCH_BYTES};

use super::check::SearchIn;
use super::out::{MESSAGE_FIELDS, Scribe};
use super::prelude::*;

/// So many words of a query are looked for, the longest ones.
const MOST_WORDS: usize = 8;

/// Shorter words say little, and are in every message.
const SHORTEST: usize = 3;

/// So many messages with the same words are weighed.
const WEIGHED: usize = 100;

/// So often the next ones are looked at, where those before were somebody else's or not wanted.
const PAGES: usize = 10;

/// In one session.
pub(super) async fn in_session(May(access): Reads, Body(body, _charged): Body) -> Answer {
    search(&access, Some(access.session()), &body, None).await
}

/// In all the workspace's sessions.
pub(super) async fn everywhere(May(access): Reads, Body(body, _charged): Body) -> Answer {
    search(&access, None, &body, None).await
}

/// Among what a peer said.
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

/// Looks for messages.
struct Seeker<'a> {
    access: &'a Access,
    /// The one session in which is looked.
    only: Option<Session>,
    filter: Filter,
    /// Whose messages are wanted, where not everybody's are.
    peer: Option<String>,
    /// The sessions in which something was found; nothing of those that are gone by now.
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

    /// Those with all words, newest first; then the others, those with most of the words first.
    async fn ranked(&mut self, query: &str, limit: usize) -> Result<Vec<Found>, Problem> {
        // Quotes would mean something to us that they did not.
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
        // Of as many words, they stay as they were found.
        ranked.sort_by_key(|(words, _)| std::cmp::Reverse(*words));
        Ok(ranked.into_iter().map(|(_, hit)| hit).collect())
    }

    async fn scribe(&self, session: &Arc<str>) -> Result<Option<Scribe>, Problem> {
        let workspace = &self.access.workspace;
        let Some(info) = found(workspace.session(Arc::clone(session)).info().await)? else { return Ok(None) };
        let about = (&*info.name, info.id);
        self.access.app.scribe(workspace.name(), about, &info.encoding).await.map(Some)
    }

    /// What has these words and is wanted, at least so many where there are; nothing where there are no words to look for.
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

/// The longest words of a query, each once, longest first; none where there is only one to look for. Where words are written
/// without spaces between them, every two characters that stand together are one.
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
    // Of pairs, those of endings and particles alone say least.
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
        // Two are one word, and so are looked for already; one is none.
        assert_eq!(words("天気"), [""; 0]);
        assert_eq!(words("猫 犬"), [""; 0]);
        // Of many, those that say something.
        let long = words("明日の東京の天気はどうなるのでしょうか");
        assert_eq!(long, ["明日", "日の", "の東", "東京", "京の", "の天", "天気", "気は"]);
    }
}
