//! Reads policies from the command line.

use std::collections::HashSet;
use std::path::PathBuf;

use epitome::rules::message::Tokens;
use epitome_terminal::suggest::similar_names;
use serde_json::Value;

use super::Load;
use crate::play::{ListMethod, Policy};

/// The first words of policies.
const POLICY_WORDS: [&str; 7] = ["whole", "recent", "slots", "steady", "inline", "economic", "mask"];

/// Keys of the table `[condense]` that a policy can set without the name of the table.
const SHORT: [&str; 7] = ["strategy", "trigger", "keep", "keep_first", "model", "max_tokens", "wait"];

/// Keys that every policy accepts.
const ANY: [&str; 2] = ["name", "config"];
/// Additional keys of policies that shorten the agent's list.
const LISTS: [&str; 1] = ["window"];
/// Additional keys of policies that build contexts.
const CONTEXTS: [&str; 3] = ["fill", "fit", "steady"];

/// Setting of the `economic` policy: which of the newest messages stay verbatim.
const ECONOMIC_KEEP: &str = "condense.keep=tokens(2000)";

/// Parses a policy, which has the form `WORD KEY=VALUE …`. `window` is the default window of the agent's model.
pub(super) fn read(spec: &str, window: Tokens, load: Load<'_>) -> Result<Policy, String> {
    let mut words = words(spec).into_iter();
    let first = words.next().unwrap_or_default();
    let wrong = |problem: String| format!("--policy {spec:?}: {problem}");
    let mut draft = Draft::new(&first, window).map_err(wrong)?;
    for word in words {
        draft.apply(&word).map_err(wrong)?;
    }
    draft.finish(&first, load).map_err(wrong)
}

/// A policy while it is being parsed.
struct Draft {
    policy: Policy,
    /// The policy's own settings file, from `config=`.
    config: Option<PathBuf>,
    /// `KEY=VALUE` settings of this policy. They are applied after the settings of the command line.
    set: Vec<String>,
    /// Settings of single slots: `slot.NAME.KEY` and its value.
    slots: Vec<(String, String)>,
    /// The words that make up the default name, if `name=` is not set.
    settings: Vec<String>,
    name: Option<String>,
}

impl Draft {
    /// Starts a draft with the first word of the policy.
    fn new(first: &str, window: Tokens) -> Result<Self, String> {
        let policy = match first {
            "whole" => Policy::whole(),
            "recent" => Policy::recent(),
            "slots" => Policy::slots(),
            "steady" => Policy::steady(),
            "inline" | "economic" | "mask" => Policy::inline(Some(window)),
            other => {
                let hint = match similar_names(other, POLICY_WORDS, 1).first() {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => format!("there are {}", POLICY_WORDS.join(", ")),
                };
                return Err(format!("no policy begins with {other:?}; {hint}"));
            }
        };
        let set = match first {
            "economic" => vec!["condense.trigger=economic", ECONOMIC_KEEP],
            "mask" => vec!["condense.strategy=mask", "condense.trigger=messages(1)"],
            _ => Vec::new(),
        };
        let set = set.into_iter().map(str::to_owned).collect();
        Ok(Self { policy, config: None, set, slots: Vec::new(), settings: Vec::new(), name: None })
    }

    /// Applies one `KEY=VALUE` setting.
    fn apply(&mut self, word: &str) -> Result<(), String> {
        let pair = word.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
        let (key, value) = pair.ok_or_else(|| format!("{word:?} is not KEY=VALUE"))?;
        match (key, &mut self.policy.method) {
            ("name", _) => {
                self.name = Some(value.to_owned());
                return Ok(());
            }
            ("config", _) => {
                self.config = Some(PathBuf::from(value));
                return Ok(());
            }
            ("window", ListMethod::Inline { window }) => {
                let tokens = value.parse().ok().filter(|tokens| *tokens > 0);
                let wrong = || format!("window: {value:?}; expected a whole number from 1");
                *window = Some(tokens.ok_or_else(wrong)?);
                return Ok(());
            }
            ("fill" | "fit" | "steady", ListMethod::Context(request)) => {
                let on = value.parse().map_err(|_| format!("{key}: {value:?}; expected true or false"))?;
                match key {
                    "fill" => request.fill = on,
                    "fit" => request.fit = on,
                    _ => request.steady = on,
                }
            }
            ("model", ListMethod::Context(_)) => self.set.push(format!("summarize.models={value}")),
            (short, ListMethod::Inline { .. }) if SHORT.contains(&short) => {
                self.set.push(format!("condense.{short}={value}"));
            }
            (key, _) if key.starts_with("slot.") => self.slots.push((key.to_owned(), value.to_owned())),
            _ => self.set.push(word.to_owned()),
        }
        self.settings.push(word.to_owned());
        Ok(())
    }

    /// Sets the name and loads the settings.
    fn finish(mut self, first: &str, load: Load<'_>) -> Result<Policy, String> {
        if let ListMethod::Context(request) = &self.policy.method
            && request.fill
            && request.steady
        {
            return Err("fill and steady exclude each other".to_owned());
        }
        let default = [&[first.to_owned()], self.settings.as_slice()].concat();
        self.policy.name = self.name.unwrap_or_else(|| default.join(" "));
        let explained = |error: String| {
            let prefixes = ["--set slot: ", "--set: ", "--set "];
            let error = prefixes.iter().find_map(|prefix| error.strip_prefix(prefix)).unwrap_or(&error);
            misspelt(error, &self.policy.method).unwrap_or_else(|| error.to_owned())
        };
        let (settings, mut patch) = load(self.config.as_deref(), &self.set).map_err(explained)?;
        if !self.slots.is_empty() {
            self.set.extend(slot_settings(settings.to_value(), &self.slots)?);
            let by_name = |error: String| {
                let names = settings.slots.iter().map(|slot| slot.slot.name.as_str());
                explained(names.enumerate().fold(error, |error, (at, name)| {
                    error.replace(&format!("slot[{at}]"), &format!("slot.{name}"))
                }))
            };
            (_, patch) = load(self.config.as_deref(), &self.set).map_err(by_name)?;
        }
        self.policy.patch = patch;
        Ok(self.policy)
    }
}

/// Returns a better error text for an unknown key without a dot, because such a key may be a misspelt short key.
/// Returns `None` for any other error.
fn misspelt(error: &str, form: &ListMethod) -> Option<String> {
    let (key, _) = error.split_once(": no such setting")?;
    if key.contains('.') {
        return None;
    }
    let own: Vec<&str> = match form {
        ListMethod::Inline { .. } => SHORT.into_iter().chain(LISTS).collect(),
        ListMethod::Context(_) => CONTEXTS.to_vec(),
        ListMethod::Whole => Vec::new(),
    };
    let allowed: Vec<&str> = own.into_iter().chain(ANY).collect();
    Some(match similar_names(key, allowed.iter().copied(), 1).first() {
        Some(meant) => format!("{key}: no such setting; did you mean {meant}?"),
        None => format!(
            "{key}: no such setting; allowed are {}, and full names such as context.max_tokens",
            allowed.join(", ")
        ),
    })
}

/// Converts settings of single slots (`slot.NAME.KEY`) to `KEY=VALUE` settings. The settings loader accepts only the
/// complete `slot` list, so the result contains the whole list with the changed keys.
fn slot_settings(mut settings: Value, keys: &[(String, String)]) -> Result<Vec<String>, String> {
    let mut sets = Vec::new();
    let mut list = settings.get_mut("slot").map(Value::take).unwrap_or_default();
    for (key, value) in keys {
        let mut slots = list.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
        let names: Vec<String> =
            slots.by_ref().filter_map(|slot| Some(slot.get("name")?.as_str()?.to_owned())).collect();
        let Some((name, key_of)) = key.strip_prefix("slot.").and_then(|key| key.rsplit_once('.')) else {
            return Err(format!("{key}: expected slot.NAME.KEY, for example slot.short.max_tokens=500"));
        };
        let mut slots = list.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
        let Some(slot) = slots.find(|slot| slot.get("name").and_then(Value::as_str) == Some(name)) else {
            return Err(format!("{key}: there is no slot {name:?}; there are {}", names.join(", ")));
        };
        match key_of {
            // A `trigger.NAME` setting would override the slot's own trigger, so `trigger.NAME` is set too.
            "trigger" => sets.push(format!("trigger.{name}={value}")),
            "max_tokens" => drop(slot.remove("max_chars")),
            "max_chars" => drop(slot.remove("max_tokens")),
            _ => {}
        }
        let read = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value.as_str()));
        slot.insert(key_of.to_owned(), read);
    }
    sets.insert(0, format!("slot={list}"));
    Ok(sets)
}

/// Returns an error if two policies have the same name.
pub(super) fn distinct(policies: &[Policy]) -> Result<(), String> {
    let mut seen = HashSet::new();
    match policies.iter().find(|policy| !seen.insert(policy.name.as_str())) {
        Some(twice) => Err(format!("--policy: {:?} is used twice; set name=… on one of them", twice.name)),
        None => Ok(()),
    }
}

/// Splits at white space, except inside brackets and quotes.
fn words(spec: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut depth, mut quoted) = (0u32, false);
    for c in spec.chars() {
        match c {
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c.is_whitespace() && depth == 0 && !quoted {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        } else {
            word.push(c);
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_inside_brackets_and_quotes_do_not_split() {
        assert_eq!(
            words("inline  trigger=any(tokens(5), turns(3)) x=\"a b\""),
            ["inline", "trigger=any(tokens(5), turns(3))", "x=\"a b\""]
        );
        assert_eq!(words("  "), [] as [String; 0]);
    }
}
