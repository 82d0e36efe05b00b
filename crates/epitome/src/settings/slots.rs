//! Defines the settings of summary slots, `[[slot]]`.

use epitome_core::keep::Keep;
use epitome_core::message::{Author, Tokens};
use epitome_core::outline::Outline;
use epitome_core::prompt::{ProfileSetting, Template};
use epitome_core::slot::{CatchUp, Limit, Scope, Slot};
use epitome_core::suggest::did_you_mean;
use epitome_core::trigger::Trigger;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SettingsError, form, invalid_setting};

/// Settings of one slot: when a summary is written, of which messages, how large it may be, and by which model.
///
/// In the settings, the keys of a slot are the fields of `SlotTable`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "SlotTable", into = "SlotTable")]
pub struct SlotSettings {
    /// The slot as the core rules use it.
    pub slot: Slot,
    /// How the slot catches up when several of its summaries are due; `None` if this is not set for the slot. The value
    /// in effect is in `slot`. It is derived from this field each time settings are merged.
    pub catch_up: Option<CatchUp>,
    /// Whether summaries are written automatically; `None` if this is not set for the slot. The value in effect is in
    /// `slot`.
    pub auto: Option<bool>,
    /// A prompt template to use instead of the profile's template; `None` for the profile's template.
    pub prompt: Option<Template>,
    /// The kind of conversation that the summary is for.
    pub profile: ProfileSetting,
    /// The operator's extra instructions, passed unchanged to the model.
    pub instructions: String,
    /// The models that write the summary; `None` if they are not set for the slot. See
    /// [`Settings::models_of`](super::Settings::models_of).
    pub models: Option<Vec<String>>,
}

/// One slot as a table in the settings, `[[slot]]`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend(
    "anyOf" = [
        {"required": ["name"], "properties": {"name": {"type": "string"}}},
        {"required": ["preset"], "properties": {"preset": {"type": "string"}}},
    ],
    "not" = {
        "required": ["max_tokens", "max_chars"],
        "properties": {"max_tokens": {"type": "integer"}, "max_chars": {"type": "integer"}},
    },
))]
#[derive(Default)]
struct SlotTable {
    /// Preset with defaults for the other keys: frequent, long or lean.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::preset", example = &"frequent")]
    preset: Option<Preset>,
    /// Name of the slot, unique within its scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"), example = &"notes")]
    name: Option<String>,
    /// Author whose messages the slot covers. Default: the whole session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), example = &"builder")]
    scope: Option<String>,
    /// When a summary is due: messages(n), turns(n), tokens(n), chars(n), window(fraction), every(seconds),
    /// idle(seconds), important(n), all(.., ..), any(.., ..).
    #[schemars(schema_with = "form::trigger", example = &"turns(30)")]
    trigger: Option<Trigger>,
    /// Newest messages not summarized: messages(n), turns(n), tokens(n) or window(fraction).
    #[schemars(schema_with = "form::keep", example = &"turns(2)")]
    keep: Option<Keep>,
    /// Largest size of the summary, in tokens; or set max_chars.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::size", example = 1_500)]
    max_tokens: Option<u64>,
    /// Largest size of the summary, in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::size", example = 4_000)]
    max_chars: Option<u64>,
    /// A prompt template to use instead of the profile's template;
    /// it must contain {conversation_text}.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::template", example = &"Sum up: {conversation_text}")]
    prompt: Option<Template>,
    /// Kind of conversation: auto, general, coding, research or support.
    #[schemars(schema_with = "form::profile", example = &"coding")]
    profile: ProfileSetting,
    /// Extra instructions, passed unchanged to the model.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(example = &"Name every open question.")]
    instructions: String,
    /// Models that write the summary. Default: summarize.models.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::models", example = ["main"])]
    models: Option<Vec<String>>,
    /// Whether summaries are written automatically. Default: summarize.auto.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = true)]
    auto: Option<bool>,
    /// How the slot catches up. Default: summarize.catch_up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::catch_up", example = &"step")]
    catch_up: Option<CatchUp>,
}

impl TryFrom<SlotTable> for SlotSettings {
    type Error = &'static str;

    fn try_from(table: SlotTable) -> Result<Self, &'static str> {
        let mut slot = match table.preset {
            Some(preset) => preset.slot(),
            // `check` rejects an empty name.
            None => Slot::new("", Limit::Tokens(1_000)),
        };
        slot.limit = match (table.max_tokens, table.max_chars) {
            (Some(_), Some(_)) => return Err("max_tokens and max_chars are both set; set only one of them"),
            (Some(tokens), None) => Limit::Tokens(tokens),
            (None, Some(chars)) => Limit::Chars(chars),
            (None, None) => slot.limit,
        };
        slot.name = table.name.unwrap_or(slot.name);
        slot.scope = Scope::from(table.scope.map(Author::from));
        slot.trigger = table.trigger.unwrap_or(slot.trigger);
        slot.keep = table.keep.unwrap_or(slot.keep);
        slot.auto = table.auto.unwrap_or(slot.auto);
        Ok(Self {
            slot,
            catch_up: table.catch_up,
            auto: table.auto,
            prompt: table.prompt,
            profile: table.profile,
            instructions: table.instructions,
            models: table.models,
        })
    }
}

impl From<SlotSettings> for SlotTable {
    fn from(settings: SlotSettings) -> Self {
        let Slot { name, scope, trigger, keep, limit, .. } = settings.slot;
        let (max_tokens, max_chars) = match limit {
            Limit::Tokens(tokens) => (Some(tokens), None),
            Limit::Chars(chars) => (None, Some(chars)),
        };
        Self {
            preset: None,
            name: Some(name),
            scope: Option::<Author>::from(scope).map(|author| author.to_string()),
            trigger: Some(trigger),
            keep: Some(keep),
            max_tokens,
            max_chars,
            prompt: settings.prompt,
            profile: settings.profile,
            instructions: settings.instructions,
            models: settings.models,
            auto: settings.auto,
            catch_up: settings.catch_up,
        }
    }
}

impl SlotSettings {
    /// Returns the prompt template for a summary of messages with these outlines.
    pub fn template(&self, outlines: &[Outline]) -> Template {
        self.prompt.clone().unwrap_or_else(|| self.profile.choose(outlines).template())
    }
}

impl From<Slot> for SlotSettings {
    /// Creates settings for a slot, with defaults for everything else.
    fn from(slot: Slot) -> Self {
        Self {
            // Only a value that differs from the default counts as set.
            catch_up: Some(slot.catch_up).filter(|catch_up| *catch_up != CatchUp::default()),
            auto: Some(slot.auto).filter(|auto| !auto),
            slot,
            prompt: None,
            profile: ProfileSetting::default(),
            instructions: String::new(),
            models: None,
        }
    }
}

/// Rejects slots that cannot work with any model, and two slots with the same name in the same scope.
pub(super) fn check(slots: &[SlotSettings]) -> Result<(), SettingsError> {
    for (at, SlotSettings { slot, .. }) in slots.iter().enumerate() {
        let invalid = |field: &str, problem| SettingsError::new(format!("slot[{at}].{field}"), problem);
        slot.check(Some(Tokens::MAX)).map_err(|error| match error.field {
            "name" if slot.name.is_empty() => {
                invalid("name", "is missing; set the slot's name, or a preset".to_owned())
            }
            field => invalid(field, error.problem),
        })?;
        let mut before = slots.iter().take(at);
        if let Some(earlier) =
            before.position(|other| (&other.slot.name, &other.slot.scope) == (&slot.name, &slot.scope))
        {
            let problem =
                format!("slot[{earlier}] is also named `{}`; names must be unique within a scope", slot.name);
            return Err(invalid("name", problem));
        }
    }
    Ok(())
}

/// Rejects a trigger that no slot can have, and an invalid slot name.
pub(super) fn check_trigger(name: &str, trigger: &Trigger) -> Result<(), SettingsError> {
    let slot = Slot { trigger: trigger.clone(), ..Slot::new(name, Limit::Tokens(1_000)) };
    slot.check(Some(Tokens::MAX)).map_err(|error| {
        let problem = match error.field {
            "name" => {
                let name: String = name.chars().take(80).collect();
                format!("slot name: {name:?}; 1 to 64 letters, digits, `_` or `-` are allowed")
            }
            _ => error.problem,
        };
        invalid_setting(&["trigger", name], problem)
    })
}

/// A predefined slot that has worked well in practice. Other keys of the slot's settings can override its values.
///
/// ```
/// use epitome::settings::Preset;
///
/// let lean = Preset::Lean.slot();
/// assert_eq!((lean.trigger.to_string(), lean.keep.to_string()), ("messages(15)".into(), "turns(3)".into()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Preset {
    /// For long, busy conversations. A summary of at most 1,000 characters is due every 20 turns and leaves out the
    /// newest 5 turns.
    Frequent,
    /// For conversations whose details matter. A summary of at most 1,500 characters is due every 50 turns and leaves
    /// out the newest 15 turns.
    Long,
    /// For models with small context windows. A summary of at most 1,000 characters is due every 15 messages and leaves
    /// out the newest 3 turns.
    Lean,
}

impl Preset {
    /// Returns the preset's slot, named after the preset.
    pub fn slot(self) -> Slot {
        let (name, trigger, keep, chars) = match self {
            Self::Frequent => ("frequent", Trigger::Turns(20), Keep::Turns(5), 1_000),
            Self::Long => ("long", Trigger::Turns(50), Keep::Turns(15), 1_500),
            Self::Lean => ("lean", Trigger::Messages(15), Keep::Turns(3), 1_000),
        };
        Slot { trigger, keep, ..Slot::new(name, Limit::Chars(chars)) }
    }
}

impl TryFrom<String> for Preset {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let all = [Self::Frequent, Self::Long, Self::Lean];
        all.into_iter().find(|preset| preset.slot().name == name).ok_or_else(|| {
            let name: String = name.chars().take(60).collect();
            let similar = did_you_mean(&name, ["frequent", "long", "lean"]);
            format!("`{name}` is unknown; {similar}frequent, long and lean are allowed")
        })
    }
}
