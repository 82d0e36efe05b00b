//! Defines prompt templates with placeholders, and the built-in profiles.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::outline::Outline;
use crate::setting::{self, SettingError};
use crate::suggest::did_you_mean;

/// The placeholders of a template.
pub(super) const CONVERSATION: &str = "{conversation_text}";
pub(super) const PREVIOUS: &str = "{previous_summary}";
pub(super) const MAX_WORDS: &str = "{max_words}";
pub(super) const INSTRUCTIONS: &str = "{instructions}";

/// A prompt with placeholders.
///
/// The placeholders are `{conversation_text}`, `{previous_summary}`, `{max_words}` and `{instructions}`. Only
/// `{conversation_text}` is required. Any other text in braces stays unchanged. If `{previous_summary}` is missing, the
/// previous summary is placed before the conversation. If `{instructions}` is missing, the instructions are placed at
/// the end.
///
/// ```
/// use epitome_core::prompt::Template;
///
/// let own = "Return JSON like {\"facts\": []}.\n{conversation_text}";
/// assert_eq!(Template::parse(own)?.to_string(), own);
/// assert_eq!(
///     Template::parse("Summarize, please.").unwrap_err().to_string(),
///     "prompt: {conversation_text} is missing; without it, the model does not receive the conversation",
/// );
/// # Ok::<(), epitome_core::setting::SettingError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Template(Cow<'static, str>);

impl Template {
    /// Parses a template.
    pub fn parse(text: impl Into<String>) -> Result<Self, SettingError> {
        let text = text.into();
        if !text.contains(CONVERSATION) {
            let problem =
                "{conversation_text} is missing; without it, the model does not receive the conversation";
            return Err(SettingError::new("prompt", problem));
        }
        for place in [CONVERSATION, PREVIOUS] {
            if text.matches(place).count() > 1 {
                let problem = format!("{place} appears twice; use it once");
                return Err(SettingError::new("prompt", problem));
            }
        }
        Ok(Self(Cow::Owned(text)))
    }

    /// Creates a built-in template. Tests check that all built-in templates parse.
    pub(super) fn shipped(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub(super) fn has(&self, place: &str) -> bool {
        self.0.contains(place)
    }

    /// Replaces the placeholders in one pass. Inserted text is therefore never searched for placeholders. If a line
    /// contains only a placeholder with an empty value, the line is removed.
    pub(super) fn fill(&self, places: &[(&str, &str)]) -> String {
        let mut out = String::with_capacity(self.0.len());
        let mut rest: &str = &self.0;
        while let Some(at) = rest.find('{') {
            let (head, tail) = rest.split_at_checked(at).unwrap_or((rest, ""));
            out.push_str(head);
            let found = places.iter().find_map(|(place, words)| Some((words, tail.strip_prefix(*place)?)));
            let Some((words, after)) = found else {
                out.push('{');
                rest = tail.get(1..).unwrap_or("");
                continue;
            };
            let blank = words.is_empty() && (out.is_empty() || out.ends_with('\n'));
            rest = if blank { after.trim_start_matches('\n') } else { after };
            out.push_str(words);
        }
        out.push_str(rest);
        out
    }
}

impl Default for Template {
    fn default() -> Self {
        Profile::General.template()
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Template {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        Self::parse(text)
    }
}

setting::from_text!(Template);
setting::from_text!(ProfileSetting);

/// The kind of conversation for which a prompt is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Any conversation. The summary contains decisions, shared information, actions that were taken or planned, and
    /// facts to remember.
    #[default]
    General,
    /// Work on code. The summary contains the task and its progress, decisions, files, commands, errors, failed
    /// attempts and next steps.
    Coding,
    /// Research. The summary contains the question, the sources, findings with their numbers, and open points.
    Research,
    /// A support case. The summary contains the customer, the customer's goal, facts, actions, promises and open
    /// points.
    Support,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 4] = [Self::General, Self::Coding, Self::Research, Self::Support];

    /// Returns the profile's prompt template.
    pub fn template(self) -> Template {
        Template::shipped(match self {
            Self::General => include_str!("../../prompts/general.md"),
            Self::Coding => include_str!("../../prompts/coding.md"),
            Self::Research => include_str!("../../prompts/research.md"),
            Self::Support => include_str!("../../prompts/support.md"),
        })
    }

    /// Guesses the profile from the outlines of the messages, without reading their text. If you know the profile, set
    /// it explicitly.
    ///
    /// If at least half of the messages contain tool calls or results, the profile is research or coding. It is
    /// research if the results are long and few. Otherwise it is coding.
    ///
    /// If fewer messages contain tool calls or results, the profile is support or general. It is support if there are
    /// several short turns and some tool calls. Otherwise it is general.
    ///
    /// ```
    /// use epitome_testkit::drawing::outlines;
    /// use epitome_core::prompt::Profile;
    ///
    /// let auto = |drawing: &str| Profile::auto(&outlines(drawing).unwrap());
    /// assert_eq!(auto(&format!("u {}", "a(x) r(x):40 ".repeat(9))), Profile::Coding);
    /// assert_eq!(auto(&"u a(x) r(x):3000 a ".repeat(3)), Profile::Research);
    /// assert_eq!(auto(&"u:9 a:20 u:12 a(x) r(x):30 a:20 ".repeat(3)), Profile::Support);
    /// assert_eq!(auto(&"u:200 a:300 ".repeat(5)), Profile::General);
    /// ```
    pub fn auto(outlines: &[Outline]) -> Self {
        let (mut messages, mut tools, mut results, mut turns) = (0u64, 0u64, 0u64, 0u64);
        let (mut read, mut user_tokens) = (0u64, 0u64);
        for outline in outlines.iter().filter(|outline| !outline.skip && !outline.leading) {
            messages += 1;
            tools += u64::from(outline.calls > 0 || outline.answers > 0);
            if outline.answers > 0 {
                results += 1;
                read = read.saturating_add(outline.tokens);
            }
            if outline.opens_turn {
                turns += 1;
                user_tokens = user_tokens.saturating_add(outline.tokens);
            }
        }
        if messages > 0 && tools * 2 >= messages {
            let long = results > 0 && read / results >= 1_500;
            let few = results <= turns.saturating_mul(4);
            return if long && few { Self::Research } else { Self::Coding };
        }
        let short = turns >= 4 && user_tokens / turns.max(1) <= 60;
        if short && tools * 8 >= messages { Self::Support } else { Self::General }
    }

    fn name(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Coding => "coding",
            Self::Research => "research",
            Self::Support => "support",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A profile setting: one of the profiles, or `auto`. With `auto`, the profile is guessed from the messages.
///
/// ```
/// use epitome_core::prompt::{Profile, ProfileSetting};
///
/// assert_eq!("auto".parse(), Ok(ProfileSetting::Auto));
/// assert_eq!("coding".parse(), Ok(ProfileSetting::Always(Profile::Coding)));
/// assert_eq!(ProfileSetting::Auto.choose(&[]), Profile::General);
/// assert_eq!(
///     "poetry".parse::<ProfileSetting>().unwrap_err().to_string(),
///     "profile: `poetry` is unknown; auto, general, coding, research and support are allowed",
/// );
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum ProfileSetting {
    /// [`Profile::auto`] chooses the profile of each summary.
    #[default]
    Auto,
    /// Every summary uses this profile.
    #[serde(untagged)]
    Always(Profile),
}

impl ProfileSetting {
    /// Returns the profile for messages with these outlines.
    pub fn choose(self, outlines: &[Outline]) -> Profile {
        match self {
            Self::Auto => Profile::auto(outlines),
            Self::Always(profile) => profile,
        }
    }
}

impl fmt::Display for ProfileSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Always(profile) => profile.fmt(f),
        }
    }
}

impl FromStr for ProfileSetting {
    type Err = SettingError;

    fn from_str(name: &str) -> Result<Self, SettingError> {
        if name == "auto" {
            return Ok(Self::Auto);
        }
        let profile = Profile::ALL.into_iter().find(|profile| profile.name() == name);
        profile.map(Self::Always).ok_or_else(|| {
            let name: String = name.chars().take(80).collect();
            let allowed = "auto, general, coding, research and support";
            let similar = did_you_mean(&name, Profile::ALL.map(Profile::name).into_iter().chain(["auto"]));
            SettingError::new("profile", format!("`{name}` is unknown; {similar}{allowed} are allowed"))
        })
    }
}
