//! The file that `--write-config` writes: every key, its default, its meaning, an example.
//!
//! A line `#key = value` is a default: without its `#` it changes nothing. A line `# words` is a remark or an
//! example.

use epitome::settings::Settings;
use serde_json::Value;

use super::keys::{KEYS, Key, SCHEMA, SLOT_KEYS, meaning};
use super::{Server, tree_of};

const HEAD: &str = "\
# Settings of Epitome. Flags go over the environment, the environment over this file.
#
# A line that begins with # and a key is a default: take the # away and change it. Every key can also be
# set in the environment (context.max_tokens is EPITOME_CONTEXT_MAX_TOKENS) and by a flag
# (--set context.max_tokens=50000). `epitome --check-config` says what holds, and tries the models.

";

/// The whole file.
pub(crate) fn template() -> String {
    let defaults = Value::Object(tree_of(Server::default(), &Settings::default()));
    let mut text = HEAD.to_owned();
    let mut section = "";
    // What stands in no section comes before all sections.
    let fixed = KEYS.iter().filter(|key| !key.path.contains('*') && key.path != "slot");
    let mut fixed: Vec<&Key> = fixed.collect();
    fixed.sort_by_key(|key| key.path.contains('.'));
    for key in fixed {
        let (table, name) = key.path.rsplit_once('.').unwrap_or(("", &key.path));
        if table != section {
            text.push_str(&format!("[{table}]\n"));
            section = table;
        }
        remark(&mut text, key.meaning);
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
        named(&mut text, table, section(table));
    }
    text
}

fn slots(text: &mut String, defaults: &Value, meaning: &str) {
    remark(text, meaning);
    for slot in defaults.get("slot").and_then(Value::as_array).into_iter().flatten() {
        text.push_str("#[[slot]]\n");
        for (key, value) in slot.as_object().into_iter().flatten() {
            text.push_str(&format!("#{key} = {value}\n"));
        }
        text.push('\n');
    }
    text.push_str(
        "# Example of a slot with all there is to set; of max_tokens and max_chars, set one.\n# [[slot]]\n",
    );
    for key in SLOT_KEYS.iter() {
        example_of(text, &key.path, key);
    }
    text.push('\n');
}

/// A section of tables by names of the user's own.
fn named(text: &mut String, table: &str, schema: &Value) {
    remark(text, meaning(schema));
    let name = schema.pointer("/examples/0").and_then(Value::as_str).unwrap_or("name");
    text.push_str(&format!("# [{table}.{name}]\n"));
    for key in KEYS.iter() {
        if let Some(bare) = key.path.strip_prefix(table).and_then(|rest| rest.strip_prefix(".*.")) {
            example_of(text, bare, key);
        }
    }
    text.push('\n');
}

/// A key of an example with its meaning behind it, or above it where that takes several lines. Without its first
/// `#`, each line is what it should be.
fn example_of(text: &mut String, name: &str, Key { example, meaning, .. }: &Key) {
    if meaning.contains('\n') {
        for line in meaning.lines() {
            text.push_str(&format!("# # {line}\n"));
        }
        text.push_str(&format!("# {name} = {example}\n"));
    } else {
        text.push_str(&format!("# {name} = {example}  # {meaning}\n"));
    }
}

fn remark(text: &mut String, words: &str) {
    for line in words.lines() {
        text.push_str(&format!("# {line}\n"));
    }
}
