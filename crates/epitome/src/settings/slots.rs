//! Slots as they are set.

use epitome_core::keep::Keep;
use epitome_core::message::{Author, Tokens};
use epitome_core::outline::Outline;
use epitome_core::prompt::{ProfileSetting, Template};
use epitome_core::slot::{CatchUp, Limit, Scope, Slot};
use epitome_core::trigger::Trigger;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SettingsError, form, wrong};

/// A summary that is kept: when, of what, how large, by whom.
///
/// Its keys in settings are the fields of `Written`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written", into = "Written")]
pub struct SlotSettings {
    /// What the rules need to know of it.
    pub slot: Slot,
    /// What it does when it is far behind, where it says so itself. What holds is in `slot`, and is
    /// worked out from this whenever settings are applied over each other.
    pub catch_up: Option<CatchUp>,
    /// Whether it fires by itself, where it says so itself; in the same way.
    pub auto: Option<bool>,
    /// A template of its own, in place of the profile's.
    pub prompt: Option<Template>,
    /// What sort of conversation it is made for.
    pub profile: ProfileSetting,
    /// The operator's own instructions, said to the model as they are.
    pub instructions: String,
    /// Who writes it, where it says so itself. See [`Settings::models_of`](super::Settings::models_of).
    pub models: Option<Vec<String>>,
}

/// A slot as it is set, `[[slot]]`.
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
struct Written {
    /// What the other keys start from: frequent, long or lean.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::preset", example = &"frequent")]
    preset: Option<Preset>,
    /// Unique within its scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"), example = &"notes")]
    name: Option<String>,
    /// Whose messages it covers: an author's; the whole session's unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), example = &"builder")]
    scope: Option<String>,
    /// When it fires: messages(n), turns(n), tokens(n), chars(n), window(fraction), every(seconds),
    /// idle(seconds), important(n), all(.., ..), any(.., ..).
    #[schemars(schema_with = "form::trigger", example = &"turns(30)")]
    trigger: Option<Trigger>,
    /// What stays out of it: messages(n), turns(n), tokens(n) or a window(fraction).
    #[schemars(schema_with = "form::keep", example = &"turns(2)")]
    keep: Option<Keep>,
    /// How large it may be; or max_chars.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::size", example = 1_500)]
    max_tokens: Option<u64>,
    /// The same in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::size", example = 4_000)]
    max_chars: Option<u64>,
    /// A template of its own, in place of the profile's;
    /// {conversation_text} must be in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::template", example = &"Sum up: {conversation_text}")]
    prompt: Option<Template>,
    /// auto, general, coding, research or support.
    #[schemars(schema_with = "form::profile", example = &"coding")]
    profile: ProfileSetting,
    /// Said to the model as they are.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(example = &"Name every open question.")]
    instructions: String,
    /// Who writes it; summarize.models unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::models", example = ["main"])]
    models: Option<Vec<String>>,
    /// Whether it fires by itself; summarize.auto unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = true)]
    auto: Option<bool>,
    /// What it does when it is far behind; summarize.catch_up unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::catch_up", example = &"step")]
    catch_up: Option<CatchUp>,
}

impl TryFrom<Written> for SlotSettings {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, &'static str> {
        let mut slot = match written.preset {
            Some(preset) => preset.slot(),
            // Without a name it is refused by `check`.
            None => Slot::new("", Limit::Tokens(1_000)),
        };
        slot.limit = match (written.max_tokens, written.max_chars) {
            (Some(_), Some(_)) => return Err("max_tokens and max_chars are both set; set one of them"),
            (Some(tokens), None) => Limit::Tokens(tokens),
            (None, Some(chars)) => Limit::Chars(chars),
            (None, None) => slot.limit,
        };
        slot.name = written.name.unwrap_or(slot.name);
        slot.scope = Scope::from(written.scope.map(Author::from));
        slot.trigger = written.trigger.unwrap_or(slot.trigger);
        slot.keep = written.keep.unwrap_or(slot.keep);
        slot.auto = written.auto.unwrap_or(slot.auto);
        Ok(Self {
            slot,
            catch_up: written.catch_up,
            auto: written.auto,
            prompt: written.prompt,
            profile: written.profile,
            instructions: written.instructions,
            models: written.models,
        })
    }
}

impl From<SlotSettings> for Written {
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
    /// What the model is asked when it is to sum up messages of this shape.
    pub fn template(&self, outlines: &[Outline]) -> Template {
        self.prompt.clone().unwrap_or_else(|| self.profile.choose(outlines).template())
    }
}

impl From<Slot> for SlotSettings {
    /// With everything else as it is by default.
    fn from(slot: Slot) -> Self {
        Self {
            // What differs from the default was meant.
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

/// Refuses slots that could not work whichever model writes them, and two of the same name in the same scope.
pub(super) fn check(slots: &[SlotSettings]) -> Result<(), SettingsError> {
    for (at, SlotSettings { slot, .. }) in slots.iter().enumerate() {
        let wrong = |field: &str, problem| SettingsError::wrong(format!("slot[{at}].{field}"), problem);
        slot.check(Some(Tokens::MAX)).map_err(|error| match error.field {
            "name" if slot.name.is_empty() => {
                wrong("name", "is missing; name the slot, or give a preset".to_owned())
            }
            field => wrong(field, error.problem),
        })?;
        let mut before = slots.iter().take(at);
        if let Some(same) =
            before.position(|old| (&old.slot.name, &old.slot.scope) == (&slot.name, &slot.scope))
        {
            let problem =
                format!("slot[{same}] is called `{}` too; a name is unique within its scope", slot.name);
            return Err(wrong("name", problem));
        }
    }
    Ok(())
}

/// Refuses a trigger that no slot could have, or for a slot that cannot be called so.
pub(super) fn check_trigger(name: &str, trigger: &Trigger) -> Result<(), SettingsError> {
    let tried = Slot { trigger: trigger.clone(), ..Slot::new(name, Limit::Tokens(1_000)) };
    tried.check(Some(Tokens::MAX)).map_err(|error| {
        let problem = match error.field {
            "name" => {
                let given: String = name.chars().take(80).collect();
                format!("slot name: {given:?}; 1 to 64 letters, digits, `_` or `-` are allowed")
            }
            _ => error.problem,
        };
        wrong(&["trigger", name], problem)
    })
}

/// A slot that has proved itself, to start from.
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
    /// Long, busy conversations: every 20 turns, the newest 5 stay, 1,000 characters.
    Frequent,
    /// Conversations whose details matter: every 50 turns, the newest 15 stay, 1,500 characters.
    Long,
    /// Small windows: every 15 messages, the newest 3 turns stay, 1,000 characters.
    Lean,
}

impl Preset {
    /// The slot itself, under the preset's name.
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
            let given: String = name.chars().take(60).collect();
            format!("`{given}` is unknown; frequent, long and lean are allowed")
        })
    }
}
