//! Checks a candidate summary before it is stored.
//!
//! Models sometimes answer with reasoning, an apology, an error page, half a text or the same line a hundred times.
//! Some models continue the conversation instead of summarizing it. Other systems have stored such answers as
//! summaries, and the summarized messages were lost. [`inspect`] extracts the summary from a reply. If a reply contains
//! no usable summary, [`inspect`] returns a [`Refusal`], and the previous summary stays unchanged. The caller can then
//! call the model again, with the refusal as the reason.
//!
//! The checks examine the shape of the text. They also recognise a few typical openings, in several languages. A good
//! summary must pass even if it mentions errors, refusals or think tags. The checks cannot determine whether a summary
//! is *true*. If important names are missing in a summary, [`inspect`] adds them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::message::Tokens;
use crate::prompt::SMALL;
use crate::redact::redact;
use crate::slot::Limit;
use crate::tokens::Counter;
use crate::words::count_words;

mod names;
mod signs;
mod strip;

pub use crate::refusal::Refusal;
pub use names::names_due;

/// Minimum number of words of a summary. A shorter text contains nothing useful.
const FEWEST_WORDS: u32 = 3;

/// How a model's reply ended, as reported by its provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model finished its reply.
    Complete,
    /// The model reached its output limit.
    Length,
    /// The provider's content filter stopped the reply.
    Filtered,
    /// The provider did not report how the reply ended. In that case, the text is checked for signs that its end is
    /// missing.
    #[default]
    Unknown,
}

/// The requirements for a summary.
#[derive(Debug, Clone)]
pub struct Standard<'a> {
    /// Maximum size of the summary. A summary that exceeds a token limit is rejected. A summary that exceeds a
    /// character limit is cut.
    pub limit: Limit,
    /// Number of tokens of everything that the summary replaces: the messages and the previous summary.
    pub replaces: Tokens,
    /// The previous summary; `None` if there is no previous summary.
    pub prior: Option<&'a str>,
    /// The names that the summary should contain. The name that is most likely to be needed comes first. See
    /// [`names_due`].
    pub names: &'a [&'a str],
    /// Counts the tokens of the summary.
    pub counter: &'a Counter,
    /// Whether secrets are redacted.
    pub redact: bool,
}

/// A summary that passed all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Text of the summary.
    pub text: String,
    /// Size in tokens.
    pub tokens: Tokens,
    /// The names that were missing in the summary and were added.
    pub added: Vec<String>,
    /// Whether the text was cut at its character limit.
    pub cut: bool,
}

/// Extracts the summary from a reply. Returns a [`Refusal`] if the reply contains no usable summary.
///
/// ```
/// use epitome_core::inspect::{Finish, Refusal, Standard, inspect};
/// use epitome_core::slot::Limit;
/// use epitome_core::tokens::{Counter, Encoding};
///
/// let counter = Counter::new(Encoding::O200k);
/// let names = ["src/api.rs", "E0432"];
/// let standard = Standard {
///     limit: Limit::Tokens(100), replaces: 2_000, prior: None, names: &names, counter: &counter, redact: true,
/// };
/// let reply = "<think>What matters?</think>Here is the summary:\n\nAnn asked why src/api.rs does not build.";
/// let inspected = inspect(reply, Finish::Complete, &standard)?;
/// assert_eq!(inspected.text, "Ann asked why src/api.rs does not build.\nAlso mentioned: E0432");
/// assert_eq!(inspected.added, ["E0432"]);
///
/// assert_eq!(inspect("Ann asked why", Finish::Length, &standard), Err(Refusal::CutOff));
/// assert_eq!(inspect("502 Bad Gateway", Finish::Complete, &standard), Err(Refusal::ErrorPage));
/// # Ok::<(), Refusal>(())
/// ```
pub fn inspect(reply: &str, finish: Finish, standard: &Standard<'_>) -> Result<Inspected, Refusal> {
    if finish == Finish::Filtered {
        return Err(Refusal::Refused);
    }
    // Error pages are checked before tags are stripped, because an error page contains tags of its own.
    if signs::is_error_page(reply.trim()) {
        return Err(Refusal::ErrorPage);
    }
    let stripped = strip::strip(reply);
    if stripped.only_reasoning && finish != Finish::Complete {
        return Err(Refusal::CutOff);
    }
    let mut text = clean(stripped.text, standard);
    if signs::is_empty(&text) {
        return Err(Refusal::Empty);
    }
    let mut cut = false;
    if let Limit::Chars(limit) = standard.limit {
        // The end of a cut text may look like a secret. In that case, redaction inserts a marker, and the text may
        // become too long again.
        for _ in 0..4 {
            let Some(short) = cut_at(&text, limit) else { break };
            text = clean(short, standard);
            cut = true;
        }
    }
    let unfinished = match finish {
        Finish::Length => !cut,
        Finish::Unknown => !cut && signs::is_cut_off(&text),
        Finish::Complete | Finish::Filtered => false,
    };
    if unfinished {
        return Err(Refusal::CutOff);
    }
    let tokens = standard.counter.text(&text);
    match standard.limit {
        Limit::Tokens(limit) if tokens > limit => return Err(Refusal::TooLong { tokens, limit }),
        Limit::Chars(limit) if text.chars().count() as u64 > limit => {
            return Err(Refusal::TooManyChars { chars: text.chars().count() as u64, limit });
        }
        Limit::Tokens(_) | Limit::Chars(_) => {}
    }
    if tokens >= standard.replaces {
        return Err(Refusal::NotSmaller { tokens, replaces: standard.replaces });
    }
    check_content(&text, standard.prior)?;
    // One or two words cannot summarize a conversation.
    if standard.replaces >= SMALL && count_words(&text) < FEWEST_WORDS {
        return Err(Refusal::Empty);
    }
    Ok(names::complete(text, tokens, cut, standard))
}

/// Checks the content of a text whose size was already accepted.
fn check_content(text: &str, prior: Option<&str>) -> Result<(), Refusal> {
    type Sign = fn(&str) -> bool;
    let signs: [(Sign, Refusal); 5] = [
        (signs::is_empty, Refusal::Empty),
        (signs::is_repetitive, Refusal::Loops),
        (signs::is_error_page, Refusal::ErrorPage),
        (signs::declines, Refusal::Refused),
        (signs::continues_conversation, Refusal::Continues),
    ];
    let same = |prior| signs::is_same(prior, text).then_some(Refusal::SameAsBefore);
    let found = signs.into_iter().find(|(shows, _)| shows(text)).map(|(_, refusal)| refusal);
    found.or_else(|| prior.and_then(same)).map_or(Ok(()), Err)
}

/// Strips and redacts a text until it no longer changes. Several rounds may be needed, because stripping may expose a
/// secret, and redaction may leave new text to strip. Returns an empty text if the text still changes after 32 rounds.
fn clean(text: String, standard: &Standard<'_>) -> String {
    let mut text = text;
    for _ in 0..32 {
        let hidden = if standard.redact { redact(&text) } else { Cow::Borrowed(text.as_str()) };
        let stripped = strip::strip(&hidden).text;
        let same = matches!(hidden, Cow::Borrowed(_)) && stripped == text;
        drop(hidden);
        if same {
            return text;
        }
        text = stripped;
    }
    String::new()
}

/// Cuts a text to `limit` characters. This number includes the `...` at the end. Returns `None` if the text is short
/// enough.
fn cut_at(text: &str, limit: u64) -> Option<String> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    text.chars().nth(limit)?;
    let mut short: String = text.chars().take(limit.saturating_sub(3)).collect();
    short.truncate(short.trim_end().len());
    short.push_str("...");
    Some(short)
}

#[cfg(test)]
mod tests;
