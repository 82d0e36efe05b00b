//! Renders the file that `--write-config` writes: every key with its help text, its default and an example.
//!
//! A line `#key = value` shows a default, so removing the `#` does not change the settings. A line `# text` is a
//! comment or an example.

use epitome::settings::Settings;
use serde_json::Value;

use super::keys::{KEYS, SCHEMA, SLOT_KEYS, SettingKey, meaning};
use super::{ServerSettings, tree_of};

const HEAD: &str = "\
# Settings of Epitome. Flags override environment variables, and environment variables override this file.
#
# A line that begins with # and a key shows the default of this key. To change the value, remove the # and
# write another value. You can also set every key by an environment variable, such as
# EPITOME_CONTEXT_MAX_TOKENS, or by a flag, such as --set context.max_tokens=50000.
# `epitome --check-config` shows the settings in effect, and tests the models.

";

/// Returns the text of the file.
pub(crate) fn template() -> String {
    let defaults = Value::Object(tree_of(ServerSettings::default(), &Settings::default()));
    let mut text = HEAD.to_owned();
    let mut section = "";
    // Keys outside of sections come before all sections.
    let fixed = KEYS.iter().filter(|key| !key.path.contains('*') && key.path != "slot");
    let mut fixed: Vec<&SettingKey> = fixed.collect();
    fixed.sort_by_key(|key| key.path.contains('.'));
    for key in fixed {
        let (table, name) = key.path.rsplit_once('.').unwrap_or(("", &key.path));
        if table != section {
            text.push_str(&format!("[{table}]\n"));
            section = table;
        }
        comment(&mut text, key.meaning);
        match defaults.pointer(&format!("/{}", key.path.replace('.', "/"))) {
            Some(Value::Null) => text.push_str(&format!("#{name} = \"none\"\n")),
            Some(value) => text.push_str(&format!("#{name} = {value}\n")),
            None => {}
        }
        text.push_str(&format!("# Example: {name} = {}\n\n", key.example));
    }
    let section = |name: &str| SCHEMA.pointer(&format!("/properties/{name}")).unwrap_or_default();
    slots(&mut text, &defaults, meaning(section("slot")));
    for table in ["models", "prices"] {
        named_tables(&mut text, table, section(table));
    }
    text
}

fn slots(text: &mut String, defaults: &Value, meaning: &str) {
    comment(text, meaning);
    for slot in defaults.get("slot").and_then(Value::as_array).into_iter().flatten() {
        text.push_str("#[[slot]]\n");
        for (key, value) in slot.as_object().into_iter().flatten() {
            text.push_str(&format!("#{key} = {value}\n"));
        }
        text.push('\n');
    }
    text.push_str(
        "# Example of a slot with every key; set either max_tokens or max_chars, not both.\n# [[slot]]\n",
    );
    for key in SLOT_KEYS.iter() {
        example(text, &key.path, key);
    }
    text.push('\n');
}

/// Writes a section such as `models`, which has tables whose names the user chooses.
fn named_tables(text: &mut String, table: &str, schema: &Value) {
    comment(text, meaning(schema));
    let name = schema.pointer("/examples/0").and_then(Value::as_str).unwrap_or("name");
    text.push_str(&format!("# [{table}.{name}]\n"));
    for key in KEYS.iter() {
        if let Some(bare) = key.path.strip_prefix(table).and_then(|rest| rest.strip_prefix(".*.")) {
            example(text, bare, key);
        }
    }
    text.push('\n');
}

/// Writes a key of an example. The key's help text comes after the value, or above the key if the text has several
/// lines. If the first `#` of each line is removed, the lines are valid TOML.
fn example(text: &mut String, name: &str, SettingKey { example, meaning, .. }: &SettingKey) {
    if meaning.contains('\n') {
        for line in meaning.lines() {
            text.push_str(&format!("# # {line}\n"));
        }
        text.push_str(&format!("# {name} = {example}\n"));
    } else {
        text.push_str(&format!("# {name} = {example}  # {meaning}\n"));
    }
}

fn comment(text: &mut String, lines: &str) {
    for line in lines.lines() {
        text.push_str(&format!("# {line}\n"));
    }
}
