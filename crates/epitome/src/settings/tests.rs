use std::time::Duration;

use epitome_core::keep::Keep;
use epitome_core::prompt::{Profile, ProfileSetting};
use epitome_core::slot::Limit;
use epitome_core::trigger::Trigger;
use serde_json::json;

use super::*;

fn patch(value: Value) -> Patch {
    Patch::from_value(value).unwrap()
}

fn with(value: Value) -> Settings {
    Settings::default().with(&patch(value)).unwrap()
}

/// Checks that a document is rejected with this error.
#[track_caller]
fn refused(value: Value, expected: &str) {
    let error = Patch::from_value(value).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(expected.starts_with(error.key()), "{expected} names {}", error.key());
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let settings = Settings::default();
    assert_eq!(
        settings.to_value(),
        json!({
            "encoding": "o200k_base",
            "context": {"summary_share": 0.4, "max_tokens": 100_000},
            "slot": [
                {
                    "name": "short", "trigger": "messages(20)", "keep": "messages(0)", "max_tokens": 1_000,
                    "profile": "auto"
                },
                {
                    "name": "long", "trigger": "messages(60)", "keep": "messages(0)", "max_tokens": 4_000,
                    "profile": "auto"
                },
            ],
            "trigger": {},
            "summarize": {
                "models": ["local"], "auto": true, "instructions": "", "stand_in_after": "10m", "redact": true, "catch_up": "join",
                "spend_cap_per_day": null, "breaker_after": 5, "breaker_for": "1m",
            },
            "condense": {
                "enabled": true, "strategy": "summarize", "trigger": "default", "keep": "default", "keep_first": 0,
                "model": "local", "wait": false, "window": null, "max_tokens": "default", "min_worth": 0.1,
                "summary_role": "user", "prompt": "default", "profile": "auto", "instructions": "",
            },
            "models": {},
            "prices": {},
            "limits": {"message": 1_048_576, "batch": 1_000, "body": 16_777_216, "metadata": 65_536},
        })
    );
    settings.check().unwrap();
    assert_eq!(settings.limits.of_message(), message::Limits::default());
    assert_eq!(settings.slots[0].slot, Slot::short());
    assert_eq!(settings.slots[1].slot, Slot::long());
}

#[test]
fn an_empty_patch_changes_nothing() {
    assert_eq!(with(json!({})), Settings::default());
    assert_eq!(with(json!({"context": {}, "summarize": null, "prices": {}})), Settings::default());
    assert_eq!(with(json!({"context": {"max_tokens": null}, "slot": null})), Settings::default());
}

/// Every key, each with a value that differs from the default.
fn everything() -> Value {
    json!({
        "encoding": "cl100k_base",
        "context": {"summary_share": 0.333_333, "max_tokens": 32_000},
        "slot": [
            {
                "name": "notes", "scope": "ann", "trigger": "any(tokens(8000), idle(60))", "keep": "turns(2)",
                "max_chars": 900, "auto": false, "profile": "coding", "prompt": "Sum up: {conversation_text}",
                "instructions": "Name every date.", "models": ["cheap", "local"], "catch_up": "step"
            },
            {"name": "notes", "trigger": "window(0.5)", "keep": "window(0.1)", "max_tokens": 700},
        ],
        "summarize": {
            "models": ["cheap", "main"], "stand_in_after": "never", "redact": false, "catch_up": "step"
        },
        "condense": {
            "enabled": false, "strategy": "pipeline(mask, amortized(turns(2)))", "trigger": "any(tokens(9000), economic)",
            "keep": "tokens(500)", "keep_first": 3, "model": "cheap", "wait": true, "window": 32_000, "max_tokens": 900,
            "min_worth": 0.25, "summary_role": "system", "prompt": "Sum up: {conversation_text}", "profile": "support",
            "instructions": "Name every date.",
        },
        "prices": {
            "gpt-4.1": {"input": 2.0, "output": 8.0, "cache_read": 0.5, "cache_write": 2.0},
            "nano": {"input": 0.05, "output": 0.4}
        },
        "limits": {"message": 1, "batch": 2, "body": 3, "metadata": 4},
    })
}

#[test]
fn every_key_can_be_set() {
    let settings = with(everything());
    assert_eq!(settings.encoding, Encoding::Cl100k);
    assert_eq!(settings.context.summary_share, Fraction::new(0.333_333).unwrap());
    assert_eq!(settings.context.max_tokens, 32_000);
    let notes = settings.slot(&Scope::Author("ann".into()), "notes").unwrap();
    assert_eq!(notes.slot.trigger, Trigger::any([Trigger::Tokens(8_000), Trigger::Idle(60)]));
    assert_eq!((notes.slot.keep, notes.slot.limit), (Keep::Turns(2), Limit::Chars(900)));
    assert_eq!((notes.slot.auto, notes.slot.catch_up), (false, CatchUp::Step));
    assert_eq!(notes.profile, ProfileSetting::Always(Profile::Coding));
    assert_eq!(notes.template(&[]).to_string(), "Sum up: {conversation_text}");
    assert_eq!(notes.instructions, "Name every date.");
    assert_eq!(settings.models_of(notes), ["cheap", "local"]);
    let plain = settings.slot(&Scope::Session, "notes").unwrap();
    assert_eq!(plain.slot.limit, Limit::Tokens(700));
    assert_eq!(plain.template(&[]), Profile::General.template());
    assert_eq!(settings.models_of(plain), ["cheap", "main"]);
    assert!(settings.slot(&Scope::Session, "short").is_none());
    assert_eq!(settings.summarize.stand_in_after, StandIn::Never);
    assert!(!settings.summarize.redact);
    let condense = &settings.condense;
    assert!(!condense.enabled && condense.wait);
    assert_eq!((condense.model.as_str(), condense.window), ("cheap", Some(32_000)));
    assert_eq!(condense.template(&[]).to_string(), "Sum up: {conversation_text}");
    assert_eq!(condense.profile, ProfileSetting::Always(Profile::Support));
    assert_eq!(condense.instructions, "Name every date.");
    assert_eq!(
        serde_json::to_value(condense.policy(Some(1)).unwrap()).unwrap(),
        json!({
            "strategy": "pipeline(mask, amortized(turns(2)))", "trigger": "any(tokens(9000), economic)",
            "keep": "tokens(500)", "keep_first": 3, "worth": 0.25, "max_tokens": 900, "summary_role": "system",
        })
    );
    let nano = settings.price("nano").unwrap();
    assert_eq!((nano.cache_read, nano.cache_write), (nano.input, nano.input));
    assert_eq!(settings.limits, Limits { message: 1, batch: 2, body: 3, metadata: 4 });
}

#[test]
fn serialized_settings_parse_to_the_same_settings() {
    for settings in [Settings::default(), with(everything()), with(json!({"slot": [{"preset": "long"}]}))] {
        let text = serde_json::to_string(&settings.patch()).unwrap();
        let read: Patch = serde_json::from_str(&text).unwrap();
        assert_eq!(read, settings.patch());
        assert_eq!(Settings::default().with(&read).unwrap(), settings);
        settings.check().unwrap();
    }
}

#[test]
fn unknown_keys_are_refused() {
    refused(
        json!({"contexts": {}}),
        "contexts: no such setting; did you mean context? allowed here are encoding, context, slot, trigger, summarize, condense, models, prices, limits",
    );
    refused(
        json!({"context": {"tokens": 5}}),
        "context.tokens: no such setting; did you mean max_tokens? allowed here are summary_share, max_tokens",
    );
    refused(
        json!({"summarize": {"model": "x"}}),
        "summarize.model: no such setting; did you mean models? allowed here are models, auto, instructions, stand_in_after, redact, catch_up, \
         spend_cap_per_day, breaker_after, breaker_for",
    );
    refused(
        json!({"limits": {"bodies": 5}}),
        "limits.bodies: no such setting; allowed here are message, batch, body, metadata",
    );
    refused(
        json!({"slot": [{"name": "a"}, {"name": "b", "max_words": 5}]}),
        "slot[1].max_words: no such setting; allowed here are preset, name, scope, trigger, keep, max_tokens, \
         max_chars, prompt, profile, instructions, models, auto, catch_up",
    );
    refused(
        json!({"prices": {"gpt-4.1": {"in": 5}}}),
        "prices.\"gpt-4.1\".in: no such setting; allowed here are input, output, cache_read, cache_write",
    );
    // Unknown keys are rejected even if their value is null.
    refused(json!({"a.b": null}), &unknown_at_the_top("\"a.b\""));
}

fn unknown_at_the_top(key: &str) -> String {
    format!(
        "{key}: no such setting; allowed here are encoding, context, slot, trigger, summarize, condense, models, prices, limits"
    )
}

#[test]
fn settings_of_a_model_are_merged_key_by_key() {
    let settings = with(json!({"models": {
        "cheap": {"provider": "openai", "model": "gpt-5-mini"},
        "own": {
            "provider": "openai", "model": "qwen", "base_url": "http://127.0.0.1:11434/v1/", "key_env": "MY_KEY",
            "timeout": "30s", "window": 32_000, "output_reserve": 2_000, "stream": true,
        },
        "again": {"provider": "local"},
    }}));
    let own = &settings.models["own"];
    assert_eq!(own.base_url.as_deref(), Some("http://127.0.0.1:11434/v1"));
    assert_eq!((own.timeout, own.stream), (Duration::from_secs(30), true));
    assert_eq!(settings.models["cheap"], ModelSettings::new(Provider::OPENAI, "gpt-5-mini"));
    // A later layer changes only the keys it contains.
    let later =
        settings.with(&patch(json!({"models": {"own": {"provider": "openai", "model": "phi"}}}))).unwrap();
    assert_eq!((later.models["own"].model.as_str(), later.models["own"].window), ("phi", Some(32_000)));
    let text = serde_json::to_string(&settings.patch()).unwrap();
    assert_eq!(Settings::default().with(&Patch::parse(&text).unwrap()).unwrap(), settings);
}

#[test]
fn invalid_models_are_refused_with_their_key() {
    let model = |key: &str, value: Value| {
        let mut model = json!({"provider": "openai", "model": "m"});
        model[key] = value;
        json!({"models": {"main": model}})
    };
    refused(
        model("provider", json!("mistral")),
        "models.main.provider: \"mistral\" is not allowed; expected openai, anthropic or local",
    );
    refused(
        json!({"models": {"main": {"model": "m"}}}),
        "models.main.provider: is missing; expected \"openai\", \"anthropic\" or \"local\"",
    );
    refused(
        json!({"models": {"main": {"provider": "anthropic"}}}),
        "models.main.model: is missing; name it as the provider does, such as \"gpt-5-mini\"",
    );
    refused(
        json!({"models": {"local": {"provider": "local"}}}),
        "models.local: is the name of the built-in extractive summarizer; use another one",
    );
    for url in
        ["api.openai.com", "ftp://x", "http://", "https://user:key@x.org/v1", "http://x y", "http://x/?k=1"]
    {
        let error = Patch::from_value(model("base_url", json!(url))).unwrap_err().to_string();
        assert!(error.contains("expected an address that begins with http:// or https://"), "{error}");
    }
    for time in [json!("0s"), json!("2h"), json!("soon")] {
        let error = Patch::from_value(model("timeout", time)).unwrap_err().to_string();
        assert!(error.contains("expected a time from \"1s\" to \"1h\""), "{error}");
    }
    let both = json!({"provider": "openai", "model": "m", "window": 1_000, "output_reserve": 1_000});
    refused(
        json!({"models": {"main": both}}),
        "models.main.output_reserve: 1000 tokens for the answer leave no tokens for the input in a window of 1000",
    );
    for cap in [json!(-1), json!("much"), json!(true)] {
        let expected = format!(
            "summarize.spend_cap_per_day: {cap} is not allowed; expected an amount from 0 to 1000000000, such as 2.50, or \"none\""
        );
        refused(json!({"summarize": {"spend_cap_per_day": cap}}), &expected);
    }
}

#[test]
fn mistyped_names_are_answered_with_the_name_that_was_meant() {
    for (document, error) in [
        ("[sumarize]\n", "sumarize: no such setting; did you mean summarize? allowed here are"),
        ("[context]\nmax_token = 5", "line 2: context.max_token: no such setting; did you mean max_tokens? "),
        (
            "summarize.catch_up = 'stepp'",
            "summarize.catch_up: \"stepp\" is not allowed; did you mean `step`? expected",
        ),
        (
            "summarize.stand_in_after = 'nevr'",
            "\"nevr\" is not allowed; did you mean `never`? expected \"never\"",
        ),
        (
            "condense.strategy = 'pipeline(mask, sumarize)'",
            "`sumarize` is unknown; did you mean `summarize`? ",
        ),
        ("condense.summary_role = 'sytem'", "\"sytem\" is not allowed; did you mean `system`? "),
        ("condense.profile = 'codng'", "condense.profile: `codng` is unknown; did you mean `coding`? auto,"),
        ("encoding = 'o20k_base'", "encoding: `o20k_base` is unknown; did you mean `o200k_base`? "),
        (
            "trigger.short = 'mesages(5)'",
            "trigger.short: position 1: `mesages` is unknown; did you mean `messages`? ",
        ),
        (
            "[[slot]]\nname = 'a'\nkeep = 'turn(2)'",
            "line 3: slot[0].keep: position 1: `turn` is unknown; did you mean `turns`? ",
        ),
        (
            "[[slot]]\npreset = 'frequnt'",
            "line 2: slot[0].preset: `frequnt` is unknown; did you mean `frequent`? ",
        ),
        (
            "[models.c]\nprovider = 'opnai'\nmodel = 'm'",
            "line 2: models.c.provider: \"opnai\" is not allowed; did you mean `openai`? ",
        ),
        (
            "[models.c]\nprovider = 'openai'\nmodle = 'm'",
            "line 3: models.c.modle: no such setting; did you mean model? ",
        ),
        (
            "[prices.m]\ninput = 1\noutpt = 2",
            "line 3: prices.m.outpt: no such setting; did you mean output? ",
        ),
    ] {
        let refused = Patch::parse(document).unwrap_err().to_string();
        assert!(refused.contains(error), "{document}: {refused}");
    }
}

#[test]
fn undefined_models_are_named_with_their_position_and_the_cure() {
    let defined = with(json!({"models": {"cheap": {"provider": "openai", "model": "m"}}}));
    let error = |value: Value| {
        let settings = defined.with(&patch(value)).unwrap();
        let names = settings.models.keys().map(String::as_str);
        settings.check_models(names).unwrap_err().to_string()
    };
    let cure =
        "no model named `chep`; did you mean `cheap`? define [models.chep], or use one of: cheap, local";
    assert_eq!(
        error(json!({"summarize": {"models": ["local", "chep"]}})),
        format!("summarize.models[1]: {cure}")
    );
    let slot = json!({"slot": [{"name": "a"}, {"name": "b", "models": ["chep"]}]});
    assert_eq!(error(slot), format!("slot[1].models[0]: {cure}"));
    assert_eq!(error(json!({"condense": {"model": "chep"}})), format!("condense.model: {cure}, same"));
    let far = error(json!({"summarize": {"models": ["a b"]}}));
    assert_eq!(
        far,
        "summarize.models[0]: no model named `a b`; define [models.\"a b\"], or use one of: cheap, local"
    );
    let tenant = defined.with(&patch(json!({"condense": {"model": "chep"}}))).unwrap();
    let tenant = tenant.check_model_choice(["cheap"]).unwrap_err().to_string();
    assert_eq!(
        tenant,
        "condense.model: no model named `chep`; did you mean `cheap`? use one of: cheap, local, same"
    );
}

#[test]
fn an_api_key_in_the_settings_is_refused_with_the_right_place_for_it() {
    for name in ["api_key", "key", "token"] {
        let document =
            format!("[models.c]\nprovider = 'openai'\nmodel = 'm'\n{name} = 'sk-proj-0123456789abcdef'\n");
        assert_eq!(
            Patch::parse(&document).unwrap_err().to_string(),
            format!(
                "line 4: models.c.{name}: no such setting; put the key into an environment variable, and set key_env to \
                 the variable's name"
            ),
        );
    }
    // Nor does an error in the syntax repeat the line.
    let error = Patch::parse("[models.c]\napi_key = 'sk-proj-0123456789abcdef\n").unwrap_err().to_string();
    assert!(error.starts_with("settings: line 2: not TOML: ") && !error.contains("0123"), "{error}");
}

/// A likely mistake is an API key in place of the variable's name. The error must not repeat the key.
#[test]
fn an_api_key_in_key_env_is_refused_and_not_repeated() {
    let key = "sk-proj-0123456789abcdefghijklmnop";
    let value = json!({"models": {"main": {"provider": "openai", "model": "m", "key_env": key}}});
    let error = Patch::from_value(value).unwrap_err().to_string();
    assert!(error.starts_with("models.main.key_env: ") && error.contains("not the key itself"), "{error}");
    assert!(!error.contains("0123456789"), "{error}");
}

#[test]
fn invalid_values_are_refused_with_their_key() {
    refused(json!([]), "settings: [] is not allowed; expected a table of settings");
    refused(
        json!({"encoding": "o300k"}),
        "encoding: `o300k` is unknown; o200k_base, cl100k_base, p50k_base and r50k_base are allowed",
    );
    refused(json!({"encoding": 5}), "encoding: 5 is not allowed; expected a text");
    refused(json!({"context": 5}), "context: 5 is not allowed; expected a table of settings");
    for share in [json!(0), json!(1.5), json!(-1), json!("0.4")] {
        refused(
            json!({"context": {"summary_share": share}}),
            &format!(
                "context.summary_share: {share} is not allowed; expected a number more than 0 and at most 1, such as 0.4"
            ),
        );
    }
    for key in ["context.max_tokens", "limits.message", "limits.batch", "limits.body", "limits.metadata"] {
        let (table, name) = key.split_once('.').unwrap();
        for given in [json!(0), json!(-5), json!(1.5), json!("many")] {
            let expected = format!("{key}: {given} is not allowed; expected a whole number from 1");
            refused(json!({table: {name: given}}), &expected);
        }
    }
    for given in [json!("soon"), json!("10 days"), json!(-1), json!(true), json!("9999h")] {
        let expected = format!(
            "summarize.stand_in_after: {given} is not allowed; expected \"never\", or a time of at most a year \
             such as \"10m\", \"30s\", \"2h\", \"500ms\" or 600 for seconds"
        );
        refused(json!({"summarize": {"stand_in_after": given}}), &expected);
    }
    refused(
        json!({"summarize": {"redact": "yes"}}),
        "summarize.redact: \"yes\" is not allowed; expected true or false",
    );
    refused(
        json!({"summarize": {"catch_up": "skip"}}),
        "summarize.catch_up: \"skip\" is not allowed; expected \"join\" or \"step\"",
    );
    for given in
        [json!([]), json!("local"), json!(["a", 5]), json!([" "]), json!(["a", "a"]), json!(["a\nb"])]
    {
        let expected = format!(
            "summarize.models: {given} is not allowed; expected a list of model names, at least one and no duplicates, \
             such as [\"local\"]"
        );
        refused(json!({"summarize": {"models": given}}), &expected);
    }
    let long = "x".repeat(500);
    let shown = format!("summarize.redact: \"{}… is not allowed; expected true or false", "x".repeat(59));
    refused(json!({"summarize": {"redact": long}}), &shown);
}

#[test]
fn invalid_prices_are_refused_with_their_key() {
    refused(json!({"prices": {"m": 5}}), "prices.m: 5 is not allowed; expected a table of settings");
    refused(json!({"prices": {"m": {"input": 1}}}), "prices.m.output: is missing; for example 2.0");
    refused(json!({"prices": {"m": {}}}), "prices.m.input: is missing; for example 0.25");
    for given in [json!(-0.1), json!("free"), json!(1e9)] {
        refused(
            json!({"prices": {"m": {"input": given, "output": 1}}}),
            &format!(
                "prices.m.input: {given} is not allowed; expected an amount from 0 to 1000000, such as 2.50"
            ),
        );
    }
    refused(
        json!({"prices": {"": {"input": 1, "output": 1}}}),
        "prices.\"\": is not a valid model name: 1 to 128 bytes without control characters",
    );
}

#[test]
fn invalid_slots_are_refused_with_their_key() {
    refused(
        json!({"slot": {"name": "a"}}),
        "slot: {\"name\":\"a\"} is not allowed; expected a list of tables",
    );
    refused(
        json!({"slot": [{"name": "a"}, "b"]}),
        "slot[1]: \"b\" is not allowed; expected a table of settings",
    );
    refused(json!({"slot": [null]}), "slot[0]: null is not allowed; expected a table of settings");
    refused(json!({"slot": [{}]}), "slot[0].name: is missing; set the slot's name, or a preset");
    let one = |key: &str, value: Value| json!({"slot": [{"name": "a"}, {"name": "b", key: value}]});
    refused(
        one("preset", json!("huge")),
        "slot[1].preset: `huge` is unknown; frequent, long and lean are allowed",
    );
    refused(
        json!({"slot": [{"name": "no spaces"}]}),
        "slot[0].name: \"no spaces\" is not a valid name; use 1 to 64 letters, digits, `_` or `-`",
    );
    refused(
        one("scope", json!("")),
        "slot[1].scope: is empty; set it to an author, or leave it out to cover the whole session",
    );
    refused(
        one("trigger", json!("messages(0)")),
        "slot[1].trigger: messages: 0 is not allowed; expected a whole number from 1",
    );
    refused(
        one("trigger", json!("economic")),
        "slot[1].trigger: economic: only an inline condensation has a request with a price; \
         use messages, turns, tokens, chars, window, every, idle or important",
    );
    refused(one("trigger", json!(20)), "slot[1].trigger: 20 is not allowed; expected a text");
    refused(
        one("keep", json!("messages(-1)")),
        "slot[1].keep: messages: -1 is not allowed; expected a whole number",
    );
    refused(
        one("max_tokens", json!(5)),
        "slot[1].max_tokens: 5 is not allowed; expected a whole number from 16",
    );
    refused(
        one("max_chars", json!(0)),
        "slot[1].max_chars: 0 is not allowed; expected a whole number from 16",
    );
    refused(
        json!({"slot": [{"name": "a", "max_tokens": 500, "max_chars": 500}]}),
        "slot[0]: max_tokens and max_chars are both set; set only one of them",
    );
    refused(
        one("prompt", json!("Sum up.")),
        "slot[1].prompt: {conversation_text} is missing; without it, the model does not receive the conversation",
    );
    refused(
        one("profile", json!("poetry")),
        "slot[1].profile: `poetry` is unknown; auto, general, coding, research and support are allowed",
    );
    refused(
        one("instructions", json!(["a"])),
        "slot[1].instructions: [\"a\"] is not allowed; expected a text",
    );
    refused(one("auto", json!(1)), "slot[1].auto: 1 is not allowed; expected true or false");
    refused(
        one("catch_up", json!("no")),
        "slot[1].catch_up: \"no\" is not allowed; expected \"join\" or \"step\"",
    );
    assert_eq!(Patch::from_value(one("models", json!([]))).unwrap_err().key(), "slot[1].models");
}

#[test]
fn invalid_condense_settings_are_refused_with_their_key() {
    let one = |key: &str, value: Value| {
        let mut table = Map::new();
        table.insert(key.to_owned(), value);
        json!({"condense": table})
    };
    refused(
        one("keep_lst", json!(5)),
        "condense.keep_lst: no such setting; did you mean keep_last? allowed here are enabled, strategy, trigger, threshold, keep, keep_last, \
         keep_first, model, wait, window, max_tokens, min_worth, summary_role, prompt, profile, instructions",
    );
    refused(one("enabled", json!("yes")), "condense.enabled: \"yes\" is not allowed; expected true or false");
    refused(
        one("strategy", json!("sumarize")),
        "condense.strategy: position 1: `sumarize` is unknown; did you mean `summarize`? expected one of noop, recent, mask, summarize, amortized, \
         pipeline",
    );
    refused(
        one("trigger", json!("messages(0)")),
        "condense.trigger: messages: 0 is not allowed; expected a whole number from 1",
    );
    refused(
        one("threshold", json!(75)),
        "condense.threshold: 75 is not allowed; expected a number more than 0 and at most 1, such as 0.4",
    );
    refused(
        one("keep", json!("messages(-1)")),
        "condense.keep: messages: -1 is not allowed; expected a whole number",
    );
    refused(one("keep_last", json!(1.5)), "condense.keep_last: 1.5 is not allowed; expected a whole number");
    refused(one("keep_first", json!(-1)), "condense.keep_first: -1 is not allowed; expected a whole number");
    refused(
        one("model", json!(["a"])),
        "condense.model: [\"a\"] is not allowed; expected the name of a model, such as \"local\"",
    );
    refused(one("wait", json!(1)), "condense.wait: 1 is not allowed; expected true or false");
    refused(
        one("window", json!(0)),
        "condense.window: 0 is not allowed; expected a whole number from 1, or \"none\"",
    );
    refused(
        one("max_tokens", json!(5)),
        "condense.max_tokens: 5 is not allowed; expected a whole number from 16, or \"default\"",
    );
    refused(
        one("min_worth", json!(0)),
        "condense.min_worth: 0 is not allowed; expected a number more than 0 and at most 1, such as 0.4",
    );
    refused(
        one("summary_role", json!("tool")),
        "condense.summary_role: \"tool\" is not allowed; expected \"user\" or \"system\"",
    );
    refused(
        one("prompt", json!("Sum up.")),
        "condense.prompt: {conversation_text} is missing; without it, the model does not receive the conversation",
    );
    refused(
        one("profile", json!("poetry")),
        "condense.profile: `poetry` is unknown; auto, general, coding, research and support are allowed",
    );
    refused(
        json!({"condense": {"trigger": "tokens(5)", "threshold": 0.5}}),
        "condense.threshold: trigger is set too; set only one of them",
    );
    refused(
        json!({"condense": {"keep": "turns(5)", "keep_last": 0}}),
        "condense.keep_last: keep is set too; set only one of them",
    );
}

#[test]
fn short_forms_equal_their_long_forms() {
    let short = patch(json!({"condense": {"threshold": 0.75, "keep_last": 50}}));
    let long = patch(json!({"condense": {"trigger": "window(0.75)", "keep": "messages(50)"}}));
    let with = |patches: &[&Patch]| {
        patches.iter().fold(Settings::default(), |settings, patch| settings.with(patch).unwrap())
    };
    assert_eq!(with(&[&short]), with(&[&long]));
    assert_eq!(with(&[&short]).to_value()["condense"]["trigger"], "window(0.75)");
    // The last layer applies, in either form, and is stored in that form.
    let other = patch(json!({"condense": {"trigger": "tokens(9)", "keep": "turns(9)"}}));
    let none = patch(json!({"condense": {"threshold": null, "keep": null}}));
    for (first, last) in [(&short, &other), (&other, &short), (&other, &none), (&short, &none)] {
        let merged = first.merged(last);
        assert_eq!(Patch::from_value(merged.to_value()).unwrap(), merged);
        if last != &none {
            assert_eq!(with(&[&merged]), with(&[first, last]));
            assert_eq!(with(&[first, last]), with(&[last]));
        }
    }
    // A null only removes a value that was set in the same form.
    assert_eq!(other.merged(&none).to_value(), json!({"condense": {"trigger": "tokens(9)"}}));
}

#[test]
fn a_layer_can_restore_the_default() {
    let set = patch(everything());
    let back = patch(
        json!({"condense": {"trigger": "default", "keep": "default", "prompt": "default", "window": "none"}}),
    );
    let condense = Settings::default().with(&set).unwrap().with(&back).unwrap().condense;
    assert_eq!((condense.trigger.clone(), condense.keep, condense.window), (None, None, None));
    assert_eq!(condense.template(&[]), Profile::Support.template());
}

#[test]
fn a_share_of_an_unknown_window_is_refused_where_it_was_set() {
    let policy = |value: Value, room| with(json!({"condense": value})).condense.policy(room);
    assert_eq!(policy(json!({}), None).unwrap().trigger.to_string(), "tokens(170000)");
    assert_eq!(policy(json!({}), Some(9)).unwrap(), epitome_core::condense::Policy::default());
    let unknown = "the model's window is unknown; set `window` for that model";
    for (value, expected) in [
        (json!({"threshold": 0.5}), format!("trigger: window(0.5): {unknown}")),
        (json!({"keep": "window(0.5)"}), format!("keep: window(0.5): {unknown}")),
        (json!({"strategy": "recent(window(0.5))"}), format!("strategy: recent: window(0.5): {unknown}")),
    ] {
        assert_eq!(policy(value.clone(), None).unwrap_err().to_string(), expected);
        policy(value, Some(10_000)).unwrap();
    }
}

#[test]
fn a_name_is_unique_within_its_scope() {
    refused(
        json!({"slot": [{"name": "a"}, {"preset": "lean"}, {"name": "a"}]}),
        "slot[2].name: slot[0] is also named `a`; names must be unique within a scope",
    );
    let both =
        with(json!({"slot": [{"name": "a"}, {"name": "a", "scope": "ann"}, {"name": "a", "scope": "bob"}]}));
    assert_eq!(both.slots.len(), 3);
    assert_eq!(with(json!({"slot": []})).slots, []);
}

#[test]
fn presets_are_a_base_that_other_keys_override() {
    let slots = with(json!({"slot": [
        {"preset": "frequent"},
        {"preset": "long"},
        {"preset": "lean"},
        {"preset": "lean", "name": "mine", "keep": "turns(1)", "max_tokens": 300},
    ]}))
    .slots;
    let shown: Vec<String> = slots
        .iter()
        .map(|SlotSettings { slot, .. }| {
            format!("{} {} {} {:?}", slot.name, slot.trigger, slot.keep, slot.limit)
        })
        .collect();
    assert_eq!(
        shown,
        [
            "frequent turns(20) turns(5) Chars(1000)",
            "long turns(50) turns(15) Chars(1500)",
            "lean messages(15) turns(3) Chars(1000)",
            "mine messages(15) turns(1) Tokens(300)",
        ]
    );
}

#[test]
fn layers_are_merged_key_by_key() {
    let workspace = patch(json!({
        "context": {"max_tokens": 50_000, "summary_share": 0.2},
        "slot": [{"preset": "lean"}],
        "prices": {"a": {"input": 1, "output": 2, "cache_read": 0.5}, "b": {"input": 3, "output": 4}},
    }));
    let session = patch(json!({
        "context": {"max_tokens": 8_000, "summary_share": null},
        "summarize": {"redact": false},
        "prices": {"a": {"input": 5, "output": 6}},
    }));
    let settings = Settings::default().with(&workspace).unwrap().with(&session).unwrap();
    assert_eq!(settings.context.max_tokens, 8_000);
    // A null leaves the value of the layer below.
    assert_eq!(settings.context.summary_share, Fraction::new(0.2).unwrap());
    assert_eq!(settings.slots.len(), 1);
    assert!(!settings.summarize.redact);
    // A model's price is replaced as a whole.
    let a = settings.price("a").unwrap();
    assert_eq!((a.input, a.cache_read), (Money::from(5.0), Money::from(5.0)));
    assert_eq!(settings.price("b").unwrap().output, Money::from(4.0));
}

#[test]
fn slots_without_catch_up_use_the_common_setting() {
    let ways = |settings: &Settings| settings.slots.iter().map(|slot| slot.slot.catch_up).collect::<Vec<_>>();
    let step = patch(json!({"summarize": {"catch_up": "step"}}));
    let one_says = patch(json!({"slot": [{"name": "a"}, {"name": "b", "catch_up": "join"}]}));
    let settings = Settings::default().with(&step).unwrap();
    assert_eq!(ways(&settings), [CatchUp::Step, CatchUp::Step]);
    // The order of the layers does not matter.
    let first = settings.with(&one_says).unwrap();
    let last = Settings::default().with(&one_says).unwrap().with(&step).unwrap();
    assert_eq!(ways(&first), [CatchUp::Step, CatchUp::Join]);
    assert_eq!(first, last);
}

#[test]
fn merged_patches_equal_applied_layers() {
    let old = patch(everything());
    let newer = patch(json!({
        "encoding": "o200k_base",
        "context": {"max_tokens": 9},
        "slot": [{"name": "only"}],
        "prices": {"nano": {"input": 1, "output": 1}},
        "summarize": {"stand_in_after": 30},
    }));
    let merged = old.merged(&newer);
    let layered = Settings::default().with(&old).unwrap().with(&newer).unwrap();
    assert_eq!(Settings::default().with(&merged).unwrap(), layered);
    assert_eq!(layered.summarize.stand_in_after, StandIn::After(Duration::from_secs(30)));
}

#[test]
fn a_null_removes_a_key_from_a_stored_patch() {
    let stored =
        patch(json!({"context": {"max_tokens": 9}, "slot": [], "prices": {"m": {"input": 1, "output": 1}}}));
    let without = stored.merged(&patch(json!({"context": {"max_tokens": null}, "slot": null})));
    assert_eq!(without.to_value(), json!({"prices": {"m": {"input": 1, "output": 1}}}));
    assert_eq!(without.merged(&patch(json!({"prices": {"m": null}}))), Patch::default());
    assert!(Patch::default().merged(&patch(json!({"limits": {"body": null}, "encoding": null}))).is_empty());
    assert!(stored.merged(&patch(json!({"context": null}))).entries().get("context").is_none());
    assert_eq!(stored.merged(&Patch::default()), stored);
}

#[test]
fn invalid_json_is_refused_with_its_position() {
    let error = Patch::parse("{\"context\": ").unwrap_err();
    assert_eq!(error.to_string(), "settings: not JSON: EOF while parsing a value at line 1 column 12");
    assert_eq!(error.key(), "settings");
    let error = serde_json::from_str::<Patch>("{\"limits\": {\"body\": 0}}").unwrap_err();
    assert_eq!(error.to_string(), "limits.body: 0 is not allowed; expected a whole number from 1");
}

#[test]
fn settings_built_by_hand_can_be_checked() {
    let mut settings = Settings::default();
    settings.slots.push(Slot::short().into());
    assert_eq!(settings.check().unwrap_err().key(), "slot[2].name");
    settings.slots.pop();
    settings.summarize.models.clear();
    assert_eq!(settings.check().unwrap_err().key(), "summarize.models");
}

#[test]
fn a_price_can_be_set_for_local_too() {
    let priced = with(json!({"prices": {"local": {"input": 1, "output": 0}}}));
    assert_eq!(priced.price("local").unwrap().input, Money::from(1.0));
}

#[test]
fn a_slots_trigger_can_be_changed_without_the_whole_list() {
    let workspace =
        Patch::parse(r#"{"trigger": {"short": "messages(10)"}, "summarize": {"auto": false}}"#).unwrap();
    let session = Patch::parse(r#"{"trigger": {"long": "messages(30)"}}"#).unwrap();
    let settings = Settings::default().with(&workspace).unwrap().with(&session).unwrap();
    let triggers: Vec<String> = settings.slots.iter().map(|slot| slot.slot.trigger.to_string()).collect();
    assert_eq!(triggers, ["messages(10)", "messages(30)"]);
    assert!(settings.slots.iter().all(|slot| !slot.slot.auto));
    assert_eq!(Settings::default().with(&settings.patch()).unwrap(), settings);
    // `auto` can be set to true again, for all slots or for one.
    let on = Patch::parse(r#"{"summarize": {"auto": true}}"#).unwrap();
    assert!(settings.with(&on).unwrap().slots.iter().all(|slot| slot.slot.auto));
    let own = Patch::parse(r#"{"slot": [{"name": "short", "auto": true}, {"name": "notes"}]}"#).unwrap();
    let own = settings.with(&own).unwrap();
    assert_eq!(own.slots.iter().map(|slot| slot.slot.auto).collect::<Vec<_>>(), [true, false]);
    // A new list of slots drops the triggers of the layers below.
    assert_eq!(own.slots[0].slot.trigger.to_string(), "turns(100)");
    let refused = Patch::parse(r#"{"trigger": {"short": "messages(0)"}}"#).unwrap_err();
    assert_eq!(refused.key(), "trigger.short");
    let refused = Patch::parse(r#"{"trigger": {"no such": "messages(5)"}}"#).unwrap_err();
    assert!(refused.key().starts_with("trigger."), "{refused}");
}

#[test]
fn slots_without_instructions_use_the_common_ones() {
    let patch = r#"{"summarize": {"instructions": "Be brief."}, "slot": [{"name": "a"}, {"name": "b", "instructions": "Be long."}]}"#;
    let settings = Settings::default().with(&Patch::parse(patch).unwrap()).unwrap();
    let said: Vec<&str> = settings.slots.iter().map(|slot| settings.instructions_of(slot)).collect();
    assert_eq!(said, ["Be brief.", "Be long."]);
}

proptest::proptest! {
    #![proptest_config(epitome_testkit::budget::config(1_000))]

    /// A randomly damaged document is rejected, or can be parsed, written and parsed again with the same result.
    #[test]
    fn damaged_documents_are_rejected_or_round_trip(
        edits in proptest::collection::vec((0..4_000_usize, 0..8_usize, "[0-9a-z(){}\\[\\]\",:._-]{0,6}"), 1..6),
    ) {
        let mut text = Settings::default().to_value().to_string();
        for (at, cut, put) in edits {
            let at = at % (text.len() + 1);
            text.replace_range(at..(at + cut).min(text.len()), &put);
        }
        if let Ok(settings) = Settings::parse(&text) {
            proptest::prop_assert_eq!(Settings::default().with(&settings.patch()).unwrap(), settings);
        }
    }
}
