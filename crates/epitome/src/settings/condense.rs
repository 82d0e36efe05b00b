//! How a list is condensed inline, as it is set.

use epitome_core::condense::{Policy, PolicyError, SummaryRole};
use epitome_core::keep::Keep;
use epitome_core::message::Tokens;
use epitome_core::outline::Outline;
use epitome_core::prompt::{ProfileSetting, Template};
use epitome_core::strategy::Strategy;
use epitome_core::trigger::{Fraction, Trigger};
use serde_json::{Value, json};

use super::read::{self, Table};
use super::{Set, SettingsError};
use crate::names::LOCAL;

const KEYS: &str = "enabled, strategy, trigger, threshold, keep, keep_last, keep_first, model, wait, window, max_tokens, \
    min_worth, summary_role, prompt, profile, instructions";

/// What is said where a setting has a default that depends on others.
const DEFAULT: &str = "default";

/// How large a summary may be where the trigger is `economic`, unless somebody says otherwise.
const ECONOMIC_LIMIT: Tokens = 1_000;

const ROLES: &str = "\"user\" or \"system\"";
const WINDOW: &str = "a whole number from 1, or \"none\"";
const LIMIT: &str = "a whole number, or \"default\"";
const MODEL: &str = "the name of a model, such as \"local\"";

/// Settings that say the same in a short form and a long one.
const FORMS: [(&str, &str); 2] =
    [("condense.threshold", "condense.trigger"), ("condense.keep_last", "condense.keep")];

/// The other form of a setting that can be said in two. Whoever sets one in a layer takes back what a layer below said in
/// the other; in one layer only one of them may stand.
///
/// ```
/// use epitome::settings::other_form;
///
/// assert_eq!(other_form("condense.threshold"), Some("condense.trigger"));
/// assert_eq!(other_form("condense.trigger"), Some("condense.threshold"));
/// assert_eq!(other_form("condense.model"), None);
/// ```
#[must_use]
pub fn other_form(key: &str) -> Option<&'static str> {
    FORMS.into_iter().find_map(|(short, long)| match key {
        _ if key == short => Some(long),
        _ if key == long => Some(short),
        _ => None,
    })
}

/// How the lists of agents are condensed that hold their history themselves.
///
/// | key | default | meaning |
/// |---|---|---|
/// | `enabled` | `true` | false lets lists through as they are |
/// | `strategy` | `"summarize"` | by which means |
/// | `trigger` | `"any(tokens(170000), window(0.75))"`¹ | when |
/// | `threshold` | | short form: `0.75` is `trigger = "window(0.75)"` |
/// | `keep` | the strategy's | how much of the newest stays |
/// | `keep_last` | | short form: `50` is `keep = "messages(50)"` |
/// | `keep_first` | `0` | how many messages stay after the leading ones |
/// | `model` | `"local"` | who writes summaries; `"same"`² for whoever the list is for |
/// | `wait` | `false` | whether a turn waits for it |
/// | `window` | the model's | how much the model reads that the list is for, where nobody else says |
/// | `max_tokens` | `4000`; `1000` with `economic` | how large a summary may be |
/// | `min_worth` | `0.1` | the part of a request that a condensation must save |
/// | `summary_role` | `"user"` | in which role the summary is sent: `"system"` |
/// | `prompt`, `profile`, `instructions` | | as a slot's |
///
/// ¹ Where nobody knows the model's window, `tokens(170000)` alone. `"default"` says the same for `trigger`, `keep`,
/// `max_tokens` and `prompt`, where a layer below set another.
///
/// ² Where requests pass through with their caller's key, and only while that request is open; elsewhere, and until its
/// summary is there, `local`.
///
/// ```
/// use epitome::settings::{Patch, Settings};
///
/// let settings = Settings::default().with(&Patch::parse(r#"{"condense": {"threshold": 0.5, "keep_last": 20}}"#)?)?;
/// let policy = settings.condense.policy(Some(100_000)).unwrap();
/// assert_eq!(policy.trigger.to_string(), "window(0.5)");
/// assert_eq!(policy.keep.unwrap().to_string(), "messages(20)");
/// # Ok::<(), epitome::settings::SettingsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CondenseSettings {
    /// Whether anything is condensed at all.
    pub enabled: bool,
    /// By which means.
    pub strategy: Strategy,
    /// When, where somebody said so. What holds is in [`CondenseSettings::policy`].
    pub trigger: Option<Trigger>,
    /// How much of the newest stays, where somebody said so; else as much as the strategy likes.
    pub keep: Option<Keep>,
    /// How many messages after the leading ones stay.
    pub keep_first: usize,
    /// Who writes summaries: one of `models`, `local`, or [`CondenseSettings::SAME`].
    pub model: String,
    /// Whether a turn waits for it. Where not, `local` writes until its summary is there.
    pub wait: bool,
    /// How many tokens the model reads and writes in all that the list is for, where nobody else says.
    pub window: Option<Tokens>,
    /// The most tokens a summary may have, where somebody said so; the key is `max_tokens`.
    pub limit: Option<Tokens>,
    /// The part of the request that a condensation must save; the key is `min_worth`.
    pub worth: Fraction,
    /// In which role the summary is sent.
    pub summary_role: SummaryRole,
    /// A template of its own, in place of the profile's.
    pub prompt: Option<Template>,
    /// What sort of conversation it is.
    pub profile: ProfileSetting,
    /// The operator's own instructions, said to the model as they are.
    pub instructions: String,
}

impl Default for CondenseSettings {
    fn default() -> Self {
        let Policy { strategy, keep, keep_first, worth, summary_role, .. } = Policy::default();
        Self {
            enabled: true,
            strategy,
            trigger: None,
            keep,
            keep_first,
            model: LOCAL.to_owned(),
            wait: false,
            window: None,
            limit: None,
            worth,
            summary_role,
            prompt: None,
            profile: ProfileSetting::default(),
            instructions: String::new(),
        }
    }
}

impl CondenseSettings {
    /// The name that stands for the model a list is for.
    pub const SAME: &'static str = "same";

    /// What the rules need to know of it, for a model with so much room: its window less its output reserve, where that
    /// is known. Refused is what could not work there, a share of a window nobody knows say.
    ///
    /// ```
    /// use epitome::settings::CondenseSettings;
    ///
    /// let settings = CondenseSettings::default();
    /// let trigger = |room| settings.policy(room).unwrap().trigger.to_string();
    /// assert_eq!(trigger(Some(128_000)), "any(tokens(170000), window(0.75))");
    /// // Nobody asked for a share of the window, so nobody is told that it is not known.
    /// assert_eq!(trigger(None), "tokens(170000)");
    /// ```
    pub fn policy(&self, room: Option<Tokens>) -> Result<Policy, PolicyError> {
        let default = || match room {
            Some(_) => Policy::default().trigger,
            None => Trigger::Tokens(170_000),
        };
        let trigger = self.trigger.clone().unwrap_or_else(default);
        // Who cuts where it costs least pays for the summary again at every cut.
        let usual = if trigger.is_economic() { ECONOMIC_LIMIT } else { Policy::default().limit };
        let policy = Policy {
            strategy: self.strategy.clone(),
            trigger,
            keep: self.keep,
            keep_first: self.keep_first,
            worth: self.worth,
            limit: self.limit.unwrap_or(usual),
            summary_role: self.summary_role,
        };
        policy.check(room)?;
        Ok(policy)
    }

    /// What the model is asked when it is to sum up messages of this shape.
    #[must_use]
    pub fn template(&self, outlines: &[Outline]) -> Template {
        match &self.prompt {
            Some(prompt) => prompt.clone(),
            None => self.profile.choose(outlines).template(),
        }
    }

    /// These, with what a layer says.
    pub(super) fn overlay(&mut self, table: &Table<'_>) -> Result<(), SettingsError> {
        table.only(KEYS)?;
        for (short, long) in [("threshold", "trigger"), ("keep_last", "keep")] {
            if table.has(short) && table.has(long) {
                return Err(table.wrong(short, format!("{long} is set too; set one of them")));
            }
        }
        table.yes_or_no("enabled")?.set(&mut self.enabled);
        table.parsed("strategy")?.set(&mut self.strategy);
        table.parsed_or("trigger", DEFAULT)?.set(&mut self.trigger);
        table.fraction("threshold")?.map(|share| Some(Trigger::Window(share))).set(&mut self.trigger);
        table.parsed_or("keep", DEFAULT)?.set(&mut self.keep);
        table.count("keep_last")?.map(|last| Some(Keep::Messages(last))).set(&mut self.keep);
        table
            .count("keep_first")?
            .map(|first| usize::try_from(first).unwrap_or(usize::MAX))
            .set(&mut self.keep_first);
        let model = |value: &Value| value.as_str().filter(|name| read::is_name(name)).map(str::to_owned);
        table.read("model", MODEL, model)?.set(&mut self.model);
        table.yes_or_no("wait")?.set(&mut self.wait);
        let window = |value: &Value| match value.as_str() {
            Some("none") => Some(None),
            _ => value.as_u64().filter(|tokens| *tokens > 0).map(Some),
        };
        table.read("window", WINDOW, window)?.set(&mut self.window);
        let limit = |value: &Value| match value.as_str() {
            Some(DEFAULT) => Some(None),
            _ => value.as_u64().map(Some),
        };
        table.read("max_tokens", LIMIT, limit)?.set(&mut self.limit);
        table.fraction("min_worth")?.set(&mut self.worth);
        let role = |value: &Value| match value.as_str()? {
            "user" => Some(SummaryRole::User),
            "system" => Some(SummaryRole::System),
            _ => None,
        };
        table.read("summary_role", ROLES, role)?.set(&mut self.summary_role);
        table.parsed_or("prompt", DEFAULT)?.set(&mut self.prompt);
        table.parsed("profile")?.set(&mut self.profile);
        table.text("instructions")?.map(str::to_owned).set(&mut self.instructions);
        // Which model the list will be for is not known yet; everything else can be judged.
        self.policy(Some(Tokens::MAX)).map(|_| ()).map_err(|error| {
            let (key, problem) = match &error {
                PolicyError::Strategy(problem) => ("strategy", problem.to_string()),
                PolicyError::Trigger(problem) => ("trigger", problem.to_string()),
                PolicyError::Keep(problem) => ("keep", problem.to_string()),
                PolicyError::Limit { given } => {
                    ("max_tokens", format!("{given} given; a summary needs at least 16"))
                }
                other => ("strategy", other.to_string()),
            };
            table.wrong(key, problem)
        })
    }

    pub(super) fn to_value(&self) -> Value {
        let default = || DEFAULT.to_owned();
        json!({
            "enabled": self.enabled,
            "strategy": self.strategy.to_string(),
            "trigger": self.trigger.as_ref().map_or_else(default, Trigger::to_string),
            "keep": self.keep.as_ref().map_or_else(default, Keep::to_string),
            "keep_first": self.keep_first,
            "model": self.model,
            "wait": self.wait,
            "window": self.window,
            "max_tokens": self.limit.map_or_else(|| Value::from(DEFAULT), Value::from),
            "min_worth": self.worth.get(),
            "summary_role": match self.summary_role {
                SummaryRole::User => "user",
                SummaryRole::System => "system",
            },
            "prompt": self.prompt.as_ref().map_or_else(default, Template::to_string),
            "profile": self.profile.to_string(),
            "instructions": self.instructions,
        })
    }
}
