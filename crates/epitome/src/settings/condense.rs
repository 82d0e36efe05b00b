//! Defines the settings in the section `[condense]`, for agents that store their own message history.

use epitome_core::condense::{Policy, SummaryRole};
use epitome_core::keep::Keep;
use epitome_core::message::Tokens;
use epitome_core::outline::Outline;
use epitome_core::prompt::{ProfileSetting, Template};
use epitome_core::setting::SettingError;
use epitome_core::strategy::Strategy;
use epitome_core::trigger::{Fraction, Trigger};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::form;
use super::{SettingsError, invalid_setting};
use crate::names::LOCAL;

/// Default of the setting `max_tokens` if the trigger contains `economic`.
const ECONOMIC_LIMIT: Tokens = 1_000;

/// The settings of this section that have two forms: pairs of the short form and the long form.
const FORMS: [(&str, &str); 2] = [("threshold", "trigger"), ("keep_last", "keep")];

/// Returns the other form of a setting that has a short and a long form. A layer that sets one form overrides the other
/// form in the layers below it. A layer may set only one of the two forms.
///
/// ```
/// use epitome::settings::other_form;
///
/// assert_eq!(other_form("condense.threshold").unwrap(), "condense.trigger");
/// assert_eq!(other_form("condense.trigger").unwrap(), "condense.threshold");
/// assert_eq!(other_form("condense.model"), None);
/// ```
pub fn other_form(key: &str) -> Option<String> {
    let name = key.strip_prefix("condense.")?;
    let both_ways = FORMS.into_iter().flat_map(|(short, long)| [(short, long), (long, short)]);
    both_ways.into_iter().find(|(one, _)| *one == name).map(|(_, other)| format!("condense.{other}"))
}

/// Removes from the older layer each setting that the newer layer sets in its other form.
pub fn drop_other_forms(older: &mut Map<String, Value>, newer: &Map<String, Value>) {
    let (Some(Value::Object(older)), Some(newer)) = (older.get_mut("condense"), newer.get("condense")) else {
        return;
    };
    for (short, long) in FORMS {
        for (form, other) in [(short, long), (long, short)] {
            if is_set(newer, form) {
                older.shift_remove(other);
            }
        }
    }
}

fn is_set(table: &Value, key: &str) -> bool {
    table.get(key).is_some_and(|value| !value.is_null())
}

// fields: one flat table of settings, one key per field.
/// Settings in the section `[condense]`, for agents that store their own message history.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("allOf" = [
    {"not": {"required": ["trigger", "threshold"], "properties": {"trigger": {"type": "string"}, "threshold": {"type": "number"}}}},
    {"not": {"required": ["keep", "keep_last"], "properties": {"keep": {"type": "string"}, "keep_last": {"type": "integer"}}}},
]))]
pub struct CondenseSettings {
    /// Whether message lists are condensed inline (`epitome condense`, POST /v1/condense, the proxy). If false,
    /// lists stay unchanged.
    #[schemars(example = false)]
    pub enabled: bool,
    /// How lists are shortened: noop, recent, mask, summarize, amortized, or pipeline(.., ..) of these. Each
    /// strategy can set which of the newest messages stay, as in recent(messages(50)).
    #[schemars(schema_with = "form::strategy", example = &"pipeline(mask, summarize)")]
    pub strategy: Strategy,
    /// When a list is condensed. By default any(tokens(170000), window(0.75)), or tokens(170000) if the window of
    /// the model is unknown.
    #[serde(serialize_with = "form::or_default")]
    #[schemars(schema_with = "form::trigger_or_default", example = &"any(tokens(100000), economic)")]
    pub trigger: Option<Trigger>,
    /// Short form of trigger: 0.5 means window(0.5). Set only one of the two.
    ///
    /// Parsing moves the value to `trigger`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::share", example = 0.5)]
    pub threshold: Option<Fraction>,
    /// Which of the newest messages stay: messages(n), turns(n), tokens(n) or window(fraction). The default
    /// depends on the strategy: 6 messages for summarize and amortized, 10 for mask, 50 for recent.
    #[serde(serialize_with = "form::or_default")]
    #[schemars(schema_with = "form::keep_or_default", example = &"turns(3)")]
    pub keep: Option<Keep>,
    /// Short form of keep: 20 means messages(20). Set only one of the two.
    ///
    /// Parsing moves the value to `keep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::count", example = 20)]
    pub keep_last: Option<u64>,
    /// Number of messages that stay at the start of the list, directly after the leading system messages. They
    /// stay only until the list has a summary.
    #[schemars(schema_with = "form::count", example = 2)]
    pub keep_first: usize,
    /// The model that writes the summaries: a name in models, or `local`, which needs no key and no network. In
    /// the proxy, "same" is also allowed. Then the model of the request writes the summaries; it is called with
    /// the client's key while the request is open.
    #[schemars(schema_with = "form::model", example = &"cheap")]
    pub model: String,
    /// Whether a request waits for the model's summary. If false, `local` writes a summary whenever the model's
    /// summary is not ready in time.
    #[schemars(example = true)]
    pub wait: bool,
    /// The context window, in tokens, of the model that receives the list; "none" if it is unknown. Used if
    /// neither the request nor the shipped model table contains the window.
    #[schemars(schema_with = "form::positive_or_none", example = 128_000)]
    pub window: Option<Tokens>,
    /// Largest size of a summary, in tokens. By default 4000, or 1000 if the trigger contains economic.
    #[serde(rename = "max_tokens", serialize_with = "form::or_default")]
    #[schemars(schema_with = "form::size_or_default", example = 2_000)]
    pub limit: Option<Tokens>,
    /// The smallest share of a request that condensing must save: more than 0 and at most 1.
    #[serde(rename = "min_worth")]
    #[schemars(schema_with = "form::share", example = 0.2)]
    pub worth: Fraction,
    /// Role of the message that contains the summary: user or system.
    #[schemars(schema_with = "form::summary_role", example = &"system")]
    pub summary_role: SummaryRole,
    /// A prompt template to use instead of the profile's template;
    /// it must contain {conversation_text}.
    #[serde(serialize_with = "form::or_default")]
    #[schemars(schema_with = "form::template_or_default", example = &"Sum up: {conversation_text}")]
    pub prompt: Option<Template>,
    /// The kind of conversation, which selects the prompt: auto, general, coding, research or support.
    #[schemars(schema_with = "form::profile", example = &"coding")]
    pub profile: ProfileSetting,
    /// Extra instructions, passed unchanged to the model.
    #[schemars(example = &"Name every open question.")]
    pub instructions: String,
}

impl Default for CondenseSettings {
    fn default() -> Self {
        let Policy { strategy, keep, keep_first, worth, summary_role, .. } = Policy::default();
        Self {
            enabled: true,
            strategy,
            trigger: None,
            threshold: None,
            keep,
            keep_last: None,
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
    /// The model name that means "the model of the request".
    pub const SAME: &'static str = "same";

    /// Returns the condensation policy for a model. `room` is the model's input limit in tokens: the context window
    /// minus the output reserve, or `None` if the window is unknown. Returns an error for values that cannot work with
    /// this model, such as a share of an unknown window.
    ///
    /// ```
    /// use epitome::settings::CondenseSettings;
    ///
    /// let settings = CondenseSettings::default();
    /// let trigger = |room| settings.policy(room).unwrap().trigger.to_string();
    /// assert_eq!(trigger(Some(128_000)), "any(tokens(170000), window(0.75))");
    /// // If the window is unknown, the default trigger contains no share of the window.
    /// assert_eq!(trigger(None), "tokens(170000)");
    /// ```
    pub fn policy(&self, room: Option<Tokens>) -> Result<Policy, SettingError> {
        let default = || match room {
            Some(_) => Policy::default().trigger,
            None => Trigger::Tokens(170_000),
        };
        let trigger = self.threshold.map(Trigger::Window).or_else(|| self.trigger.clone());
        let trigger = trigger.unwrap_or_else(default);
        // An economic trigger condenses often, and the provider bills the summary again after every cut.
        let usual = if trigger.is_economic() { ECONOMIC_LIMIT } else { Policy::default().limit };
        let policy = Policy {
            strategy: self.strategy.clone(),
            trigger,
            keep: self.keep_last.map(Keep::Messages).or(self.keep),
            keep_first: self.keep_first,
            worth: self.worth,
            limit: self.limit.unwrap_or(usual),
            summary_role: self.summary_role,
        };
        policy.check(room)?;
        Ok(policy)
    }

    /// Returns the prompt template for a summary of messages with these outlines.
    pub fn template(&self, outlines: &[Outline]) -> Template {
        self.prompt.clone().unwrap_or_else(|| self.profile.choose(outlines).template())
    }

    /// Moves the values of short forms to the long forms, and rejects values that cannot work for any model.
    pub(super) fn normalize(&mut self) -> Result<(), SettingsError> {
        if let Some(share) = self.threshold.take() {
            self.trigger = Some(Trigger::Window(share));
        }
        if let Some(last) = self.keep_last.take() {
            self.keep = Some(Keep::Messages(last));
        }
        self.policy(Some(Tokens::MAX)).map(|_| ()).map_err(|error| {
            let problem = if error.field == "max_tokens" { error.to_string() } else { error.problem };
            invalid_setting(&["condense", error.field], problem)
        })
    }
}

/// Rejects a layer that sets both forms of one setting.
pub(super) fn check_forms(entries: &Map<String, Value>) -> Result<(), SettingsError> {
    let Some(table) = entries.get("condense") else { return Ok(()) };
    for (short, long) in FORMS {
        if is_set(table, short) && is_set(table, long) {
            return Err(invalid_setting(
                &["condense", short],
                format!("{long} is set too; set only one of them"),
            ));
        }
    }
    Ok(())
}
