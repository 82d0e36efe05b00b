//! A candidate summary, judged before it is kept.
//!
//! Models answer with reasoning, apologies, error pages, half a text, the same line a hundred times,
//! or go on with the conversation instead of summing it up. Each of these was stored as a summary
//! somewhere, and what it replaced was gone. [`inspect`] takes what is usable of a reply and refuses
//! the rest by name; what stood before then stays, exactly, and the model may be asked again with the
//! [`Refusal`] as the reason.
//!
//! Judging is by shape and by a few telling openings, in any language, and a good summary must pass
//! even where it speaks of errors, refusals or think tags. Whether a summary is *true* is not known
//! here; that the names which matter are in it is seen to, by adding those that are missing.

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

/// With fewer words nothing is told.
const FEWEST_WORDS: u32 = 3;

/// How a model's reply ended, as its provider tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It said all it had to say.
    Complete,
    /// It reached the most it may write.
    Length,
    /// The provider stopped it for what it said.
    Filtered,
    /// Nobody told. The text itself is looked at.
    #[default]
    Unknown,
}

/// What a summary is measured by.
#[derive(Debug, Clone)]
pub struct Standard<'a> {
    /// How large it may be. Over a limit in tokens it is refused; at one in characters it is cut.
    pub limit: Limit,
    /// The tokens of what it stands for: the messages, and the summary before.
    pub replaces: Tokens,
    /// The summary before, where there is one.
    pub prior: Option<&'a str>,
    /// The names that should be in it, the likeliest needed first; see [`names_due`].
    pub names: &'a [&'a str],
    /// How tokens are counted.
    pub counter: &'a Counter,
    /// Whether secrets are taken out.
    pub redact: bool,
}

/// A summary that may be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Its text.
    pub text: String,
    /// Its size.
    pub tokens: Tokens,
    /// The names that were missing and have been added.
    pub added: Vec<String>,
    /// Whether it was cut at its limit in characters.
    pub cut: bool,
}

/// Takes what is usable of a reply, or says why it cannot be a summary.
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
/// let kept = inspect(reply, Finish::Complete, &standard)?;
/// assert_eq!(kept.text, "Ann asked why src/api.rs does not build.\nReferences: E0432");
/// assert_eq!(kept.added, ["E0432"]);
///
/// assert_eq!(inspect("Ann asked why", Finish::Length, &standard), Err(Refusal::CutOff));
/// assert_eq!(inspect("502 Bad Gateway", Finish::Complete, &standard), Err(Refusal::ErrorPage));
/// # Ok::<(), Refusal>(())
/// ```
pub fn inspect(reply: &str, finish: Finish, standard: &Standard<'_>) -> Result<Inspected, Refusal> {
    if finish == Finish::Filtered {
        return Err(Refusal::Refused);
    }
    // Before anything is stripped: an error page has tags of its own.
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
        // A cut can make a secret of what was none; then there is a mark, and perhaps one more cut.
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
    judge(&text, standard.prior)?;
    // A word or two cannot stand for a conversation.
    if standard.replaces >= SMALL && count_words(&text) < FEWEST_WORDS {
        return Err(Refusal::Empty);
    }
    Ok(names::complete(text, tokens, cut, standard))
}

/// What is wrong with a text of a fitting size.
fn judge(text: &str, prior: Option<&str>) -> Result<(), Refusal> {
    type Sign = fn(&str) -> bool;
    let signs: [(Sign, Refusal); 5] = [
        (signs::is_empty, Refusal::Empty),
        (signs::loops, Refusal::Loops),
        (signs::is_error_page, Refusal::ErrorPage),
        (signs::declines, Refusal::Refused),
        (signs::goes_on, Refusal::GoesOn),
    ];
    let same = |prior| signs::is_same(prior, text).then_some(Refusal::SameAsBefore);
    let found = signs.into_iter().find(|(shows, _)| shows(text)).map(|(_, refusal)| refusal);
    found.or_else(|| prior.and_then(same)).map_or(Ok(()), Err)
}

/// Stripped and without secrets, until neither changes anything: a mark may leave bare what was
/// inside, and what is left bare may be a secret. Nothing is left of a text that never comes to rest.
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

/// The text cut to so many characters, `...` included; `None` where it is short enough.
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
