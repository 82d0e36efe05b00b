//! Slots as they are set.

use std::str::FromStr;

use epitome_core::keep::Keep;
use epitome_core::message::Tokens;
use epitome_core::outline::Outline;
use epitome_core::prompt::{ProfileSetting, Template};
use epitome_core::slot::{CatchUp, Limit, Scope, Slot, SlotError};
use epitome_core::trigger::Trigger;
use serde_json::{Map, Value, json};

use super::read::Table;
use super::{Set, SettingsError};

const KEYS: &str = "preset, name, scope, trigger, keep, max_tokens, max_chars, prompt, profile, instructions, \
    models, auto, catch_up";

/// A summary that is kept: when, of what, how large, by whom.
///
/// | key | default | meaning |
/// |---|---|---|
/// | `preset` | none | what the other keys start from, see [`Preset`] |
/// | `name` | the preset's | 1 to 64 letters, digits, `_` or `-`; unique within its scope |
/// | `scope` | the whole session | whose messages it covers: an author's |
/// | `trigger` | `"turns(100)"` | when it is due |
/// | `keep` | `"messages(0)"` | what stays out of it |
/// | `max_tokens` or `max_chars` | 1,000 tokens | how large it may be |
/// | `prompt` | the profile's | a template of its own |
/// | `profile` | `"auto"` | `"general"`, `"coding"`, `"research"`, `"support"` |
/// | `instructions` | none | said to the model as they are |
/// | `models` | `summarize.models` | who writes it |
/// | `auto` | `summarize.auto` | whether it fires by itself |
/// | `catch_up` | `summarize.catch_up` | what it does when it is far behind |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSettings {
    /// What the rules need to know of it.
    pub slot: Slot,
    /// What it does when it is far behind, where it says so itself. What holds is in `slot`, and is
    /// worked out from this whenever settings are laid over each other.
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

impl SlotSettings {
    /// What the model is asked when it is to sum up messages of this shape.
    #[must_use]
    pub fn template(&self, outlines: &[Outline]) -> Template {
        match &self.prompt {
            Some(prompt) => prompt.clone(),
            None => self.profile.choose(outlines).template(),
        }
    }

    fn read(table: &Table<'_>) -> Result<Self, SettingsError> {
        table.only(KEYS)?;
        let preset = table.parsed::<Preset>("preset")?;
        let name = table.text("name")?;
        let mut slot = match (preset, name) {
            (Some(preset), _) => preset.slot(),
            (None, Some(name)) => Slot::new(name, Limit::Tokens(1_000)),
            (None, None) => return Err(table.wrong("name", "is missing; name the slot, or give a preset")),
        };
        name.map(str::to_owned).set(&mut slot.name);
        table.text("scope")?.map(|author| Scope::Author(author.into())).set(&mut slot.scope);
        table.parsed::<Trigger>("trigger")?.set(&mut slot.trigger);
        table.parsed::<Keep>("keep")?.set(&mut slot.keep);
        match (table.whole("max_tokens")?, table.whole("max_chars")?) {
            (Some(_), Some(_)) => {
                return Err(table.wrong("max_chars", "max_tokens is set too; set one of them"));
            }
            (Some(tokens), None) => slot.limit = Limit::Tokens(tokens),
            (None, Some(chars)) => slot.limit = Limit::Chars(chars),
            (None, None) => {}
        }
        let auto = table.yes_or_no("auto")?;
        auto.set(&mut slot.auto);
        // Which model it will be is not known yet; everything else can be judged.
        slot.check(Some(Tokens::MAX)).map_err(|error| named(table, &error))?;
        Ok(Self {
            slot,
            catch_up: table.catch_up("catch_up")?,
            auto,
            prompt: table.parsed("prompt")?,
            profile: table.parsed("profile")?.unwrap_or_default(),
            instructions: table.text("instructions")?.unwrap_or_default().to_owned(),
            models: table.models("models")?,
        })
    }

    pub(super) fn to_value(&self) -> Value {
        let slot = &self.slot;
        let mut entries = Map::new();
        let mut put = |key: &str, value: Value| entries.insert(key.to_owned(), value);
        put("name", json!(slot.name));
        if let Scope::Author(author) = &slot.scope {
            put("scope", json!(&**author));
        }
        put("trigger", json!(slot.trigger.to_string()));
        put("keep", json!(slot.keep.to_string()));
        match slot.limit {
            Limit::Tokens(tokens) => put("max_tokens", json!(tokens)),
            Limit::Chars(chars) => put("max_chars", json!(chars)),
        };
        if let Some(auto) = self.auto {
            put("auto", json!(auto));
        }
        put("profile", json!(self.profile.to_string()));
        if let Some(prompt) = &self.prompt {
            put("prompt", json!(prompt.to_string()));
        }
        if !self.instructions.is_empty() {
            put("instructions", json!(self.instructions));
        }
        if let Some(models) = &self.models {
            put("models", json!(models));
        }
        if let Some(catch_up) = self.catch_up {
            put("catch_up", json!(word(catch_up)));
        }
        Value::Object(entries)
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

/// The whole list, in which no two may have the same name in the same scope.
pub(super) fn read(tables: &[Table<'_>]) -> Result<Vec<SlotSettings>, SettingsError> {
    let mut slots: Vec<SlotSettings> = Vec::with_capacity(tables.len());
    for table in tables {
        let new = SlotSettings::read(table)?;
        let same = |old: &SlotSettings| old.slot.name == new.slot.name && old.slot.scope == new.slot.scope;
        if let Some(at) = slots.iter().position(same) {
            let problem =
                format!("slot[{at}] is called `{}` too; a name is unique within its scope", new.slot.name);
            return Err(table.wrong("name", problem));
        }
        slots.push(new);
    }
    Ok(slots)
}

/// Refuses a trigger that no slot could have, or for a slot that cannot be called so.
pub(super) fn check_trigger(table: &Table<'_>, slot: &str, trigger: &Trigger) -> Result<(), SettingsError> {
    let tried = Slot { trigger: trigger.clone(), ..Slot::new(slot, Limit::Tokens(1_000)) };
    tried.check(Some(Tokens::MAX)).map_err(|error| match &error {
        SlotError::Trigger { source, .. } => table.wrong(slot, source.to_string()),
        other => table.wrong(slot, other.to_string()),
    })
}

/// How it is written.
pub(super) fn word(catch_up: CatchUp) -> &'static str {
    match catch_up {
        CatchUp::Join => "join",
        CatchUp::Step => "step",
    }
}

/// What the core has against a slot, under the name of the key.
fn named(table: &Table<'_>, error: &SlotError) -> SettingsError {
    match error {
        SlotError::Name { given } => {
            table.wrong("name", format!("{given:?} given; allowed are 1 to 64 letters, digits, `_` or `-`"))
        }
        SlotError::Scope { .. } => {
            table.wrong("scope", "is empty; name an author, or leave it out for the whole session")
        }
        SlotError::Limit { field, given, .. } => {
            table.wrong(field, format!("{given} given; a summary needs at least 16"))
        }
        SlotError::Trigger { source, .. } => table.wrong("trigger", source.to_string()),
        SlotError::Keep { source, .. } => table.wrong("keep", source.to_string()),
        other => table.wrong("name", other.to_string()),
    }
}

/// A slot that has proved itself, to start from.
///
/// ```
/// use epitome::settings::Preset;
///
/// let lean = Preset::Lean.slot();
/// assert_eq!((lean.trigger.to_string(), lean.keep.to_string()), ("messages(15)".into(), "turns(3)".into()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    #[must_use]
    pub fn slot(self) -> Slot {
        let (name, trigger, keep, chars) = match self {
            Self::Frequent => ("frequent", Trigger::Turns(20), Keep::Turns(5), 1_000),
            Self::Long => ("long", Trigger::Turns(50), Keep::Turns(15), 1_500),
            Self::Lean => ("lean", Trigger::Messages(15), Keep::Turns(3), 1_000),
        };
        Slot { trigger, keep, ..Slot::new(name, Limit::Chars(chars)) }
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "frequent" => Ok(Self::Frequent),
            "long" => Ok(Self::Long),
            "lean" => Ok(Self::Lean),
            other => {
                let given: String = other.chars().take(60).collect();
                Err(format!("`{given}` is unknown; frequent, long and lean are allowed"))
            }
        }
    }
}
