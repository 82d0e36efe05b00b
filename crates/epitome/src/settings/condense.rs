//! How a list is condensed inline, as it is set.

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
use super::{SettingsError, wrong};
use crate::names::LOCAL;

/// How large a summary may be where the trigger is `economic` and nothing else is set.
const ECONOMIC_LIMIT: Tokens = 1_000;

/// Settings of this section that say the same in a short form and a long one.
const FORMS: [(&str, &str); 2] = [("threshold", "trigger"), ("keep_last", "keep")];

/// The other form of a setting that can be said in two. Whoever sets one in a layer takes back what a layer below said in
/// the other; in one layer only one of them may stand.
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

/// Takes out of a layer what a newer one says in the other form.
pub fn give_way(older: &mut Map<String, Value>, newer: &Map<String, Value>) {
    let (Some(Value::Object(older)), Some(newer)) = (older.get_mut("condense"), newer.get("condense")) else {
        return;
    };
    for (short, long) in FORMS {
        for (said, other) in [(short, long), (long, short)] {
            if says(newer, said) {
                older.shift_remove(other);
            }
        }
    }
}

fn says(table: &Value, key: &str) -> bool {
    table.get(key).is_some_and(|value| !value.is_null())
}

// fields: one flat table of settings, a key each.
/// How the lists of agents are condensed that hold their history themselves.
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
    /// Whether lists are condensed inline (`epitome condense`, POST /v1/condense, the proxy); false lets them
    /// through as they are.
    #[schemars(example = false)]
    pub enabled: bool,
    /// By which means: noop, recent, mask, summarize, amortized, or pipeline(.., ..) of them. Each may say what
    /// it keeps, as in recent(messages(50)).
    #[schemars(schema_with = "form::strategy", example = &"pipeline(mask, summarize)")]
    pub strategy: Strategy,
    /// When. By default any(tokens(170000), window(0.75)), and tokens(170000) where nobody knows the model's
    /// window.
    #[serde(serialize_with = "form::or_default")]
    #[schemars(schema_with = "form::trigger_or_default", example = &"any(tokens(100000), economic)")]
    pub trigger: Option<Trigger>,
    /// Short form of trigger: 0.5 is window(0.5). Of the two, set one.
    ///
    /// Settings that were read have it as their `trigger`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::share", example = 0.5)]
    pub threshold: Option<Fraction>,
    /// What stays of the newest: messages(n), turns(n), tokens(n) or window(fraction). By default as much as
    /// the strategy likes: 6 messages for summarize and amortized, 10 for mask, 50 for recent.
    #[serde(serialize_with = "form::or_default")]
    #[schemars(schema_with = "form::keep_or_default", example = &"turns(3)")]
    pub keep: Option<Keep>,
    /// Short form of keep: 20 is messages(20). Of the two, set one.
    ///
    /// Settings that were read have it as their `keep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::count", example = 20)]
    pub keep_last: Option<u64>,
    /// How many messages stay after the leading system ones, until a summary stands.
    #[schemars(schema_with = "form::count", example = 2)]
    pub keep_first: usize,
    /// Who writes the summaries: one of models, or `local`, which needs no key and no network. In the proxy
    /// also "same": the request's own model, with the caller's key, while the request is open.
    #[schemars(schema_with = "form::model", example = &"cheap")]
    pub model: String,
    /// Whether an agent's turn waits for the model. Where not, `local` writes until its summary is there.
    #[schemars(example = true)]
    pub wait: bool,
    /// The window of the model a list is for, where neither the request nor the shipped table tells; "none"
    /// where it is not known.
    #[schemars(schema_with = "form::positive_or_none", example = 128_000)]
    pub window: Option<Tokens>,
    /// How large a summary may be. By default 4000, and 1000 where the trigger is economic.
    #[serde(rename = "max_tokens", serialize_with = "form::or_default")]
    #[schemars(schema_with = "form::size_or_default", example = 2_000)]
    pub limit: Option<Tokens>,
    /// The part of a request that a condensation must save, more than 0 and at most 1.
    #[serde(rename = "min_worth")]
    #[schemars(schema_with = "form::share", example = 0.2)]
    pub worth: Fraction,
    /// In which role the summary is sent: user or system.
    #[schemars(schema_with = "form::summary_role", example = &"system")]
    pub summary_role: SummaryRole,
    /// A template of its own, in place of the profile's;
    /// {conversation_text} must be in it.
    #[serde(serialize_with = "form::or_default")]
    #[schemars(schema_with = "form::template_or_default", example = &"Sum up: {conversation_text}")]
    pub prompt: Option<Template>,
    /// auto, general, coding, research or support.
    #[schemars(schema_with = "form::profile", example = &"coding")]
    pub profile: ProfileSetting,
    /// Said to the model as they are.
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
    pub fn policy(&self, room: Option<Tokens>) -> Result<Policy, SettingError> {
        let default = || match room {
            Some(_) => Policy::default().trigger,
            None => Trigger::Tokens(170_000),
        };
        let trigger = self.threshold.map(Trigger::Window).or_else(|| self.trigger.clone());
        let trigger = trigger.unwrap_or_else(default);
        // Who cuts where it costs least pays for the summary again at every cut.
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

    /// What the model is asked when it is to sum up messages of this shape.
    pub fn template(&self, outlines: &[Outline]) -> Template {
        self.prompt.clone().unwrap_or_else(|| self.profile.choose(outlines).template())
    }

    /// Takes short forms over into the long ones, and refuses what could not work whichever model a list is for.
    pub(super) fn settle(&mut self) -> Result<(), SettingsError> {
        if let Some(share) = self.threshold.take() {
            self.trigger = Some(Trigger::Window(share));
        }
        if let Some(last) = self.keep_last.take() {
            self.keep = Some(Keep::Messages(last));
        }
        self.policy(Some(Tokens::MAX)).map(|_| ()).map_err(|error| {
            let problem = if error.field == "max_tokens" { error.to_string() } else { error.problem };
            wrong(&["condense", error.field], problem)
        })
    }
}

/// Refuses a layer that says the same in two forms.
pub(super) fn check_forms(entries: &Map<String, Value>) -> Result<(), SettingsError> {
    let Some(table) = entries.get("condense") else { return Ok(()) };
    for (short, long) in FORMS {
        if says(table, short) && says(table, long) {
            return Err(wrong(&["condense", short], format!("{long} is set too; set one of them")));
        }
    }
    Ok(())
}
