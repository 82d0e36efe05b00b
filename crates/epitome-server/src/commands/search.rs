//! `epitome search`: searches messages for words.

use epitome::{Remedy, SearchHit};

use super::prelude::*;
use crate::http::wire::search_hit;
use crate::show::Style;

const EXAMPLES: &str = "\
Examples:
  epitome search parser \"line 12\"            a word and a phrase; both must occur
  epitome search 7071 --session ann --limit 3
  epitome search --json refund | jq .message.seq

Finds messages that contain all the words, in any order. A word also matches inside a longer word,
in upper or lower case and in any script. The newest match comes first. With --json, each line is
one match, with its session, message, excerpt and cursor.";

/// Searches all messages for words, including summarized messages
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Words to search for; an argument with spaces is a phrase
    #[arg(value_name = "WORDS", required = true)]
    words: Vec<String>,
    /// Searches only this session
    #[arg(short, long, value_name = "NAME")]
    session: Option<String>,
    /// Maximum number of matches
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = super::whole, allow_negative_numbers = true)]
    limit: u64,
}

/// Number of matches per query to the store.
const PAGE: u64 = 50;

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let query = query(&args.words);
    let session = match &args.session {
        Some(name) => Some(database.session(name).await?.0),
        None => None,
    };
    let terms = terms(&query);
    let (mut cursor, mut left) = (None, args.limit);
    let more = loop {
        let limit = usize::try_from(left.min(PAGE)).unwrap_or(1);
        let page = match &session {
            Some(session) => session.search(&query, None, cursor.take(), limit).await,
            None => database.workspace.search(&query, cursor.take(), limit).await,
        };
        let page = page.map_err(|error| match error.remedy() {
            Remedy::FixRequest => Failure::Misused(error.to_string()),
            _ => error.into(),
        })?;
        let more = page.more;
        for hit in page.items {
            cursor = Some(hit.cursor.clone());
            left -= 1;
            if show.json {
                show.json(&as_json(hit))?;
            } else {
                show.line(line(&hit, &terms, show.style))?;
            }
        }
        show.flush()?;
        if left == 0 || !more {
            break more;
        }
    };
    if !show.json && left == args.limit {
        show.note("no message found")?;
    } else if !show.json && more {
        show.note(format!("there are more matches; use --limit {}", args.limit.saturating_mul(5)))?;
    }
    Ok(())
}

/// Builds the query from the arguments. An argument with spaces becomes a phrase in quotes, unless the argument already
/// contains quotes.
fn query(words: &[String]) -> String {
    let quoted = |word: &String| match word.contains(char::is_whitespace) && !word.contains('"') {
        true => format!("\"{word}\""),
        false => word.clone(),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Returns the words and phrases of a query, to highlight them in the matches.
fn terms(query: &str) -> Vec<Vec<char>> {
    let pieces = query.split('"').enumerate();
    let words = pieces.flat_map(|(at, piece)| match at % 2 {
        1 => vec![piece],
        _ => piece.split_whitespace().collect(),
    });
    words.map(|word| word.chars().map(fold).collect::<Vec<_>>()).filter(|term| !term.is_empty()).collect()
}

/// Lowercases a character to exactly one character, so that positions stay the same.
fn fold(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

/// Returns a match as the HTTP API does, and adds the field `cursor`, which earlier releases had in each match.
fn as_json(hit: SearchHit) -> Value {
    let cursor = json!(hit.cursor);
    let mut object = search_hit(hit);
    if let Some(fields) = object.as_object_mut() {
        fields.insert("cursor".to_owned(), cursor);
    }
    object
}

fn line(hit: &SearchHit, terms: &[Vec<char>], style: Style) -> String {
    let place = format!("{} {}", printable(&hit.session), hit.message.seq);
    format!("{}  {}", style.cyan(&place), highlighted(&printable(&hit.excerpt), terms, style))
}

/// Returns the text with the search terms in colour.
fn highlighted(text: &str, terms: &[Vec<char>], style: Style) -> String {
    if !style.is_painted() {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    let folded: Vec<char> = letters.iter().copied().map(fold).collect();
    let mut line = String::new();
    let mut at = 0;
    while let Some(rest) = folded.get(at..).filter(|rest| !rest.is_empty()) {
        let found = terms.iter().filter(|term| rest.starts_with(term)).map(Vec::len).max();
        let length = found.unwrap_or(1);
        let piece: String = letters.iter().skip(at).take(length).collect();
        line.push_str(&if found.is_some() { style.yellow(&piece) } else { piece });
        at += length;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Color;

    #[test]
    fn an_argument_with_spaces_is_a_phrase() {
        let query = |words: &[&str]| query(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(query(&["parser", "line 12"]), r#"parser "line 12""#);
        assert_eq!(query(&[r#"parser "line 12""#]), r#"parser "line 12""#);
        assert_eq!(terms(r#"Parser "Line 12""#).len(), 2);
    }

    #[test]
    fn the_search_words_are_highlighted() {
        let style = Style::new(Color::Always, false, &|_| None);
        let terms = terms("parser 12");
        assert_eq!(
            highlighted("the PARSER, 12", &terms, style),
            "the \u{1b}[33mPARSER\u{1b}[0m, \u{1b}[33m12\u{1b}[0m"
        );
        assert_eq!(highlighted("the parser", &terms, Style::default()), "the parser");
    }
}
