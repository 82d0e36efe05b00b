//! Tests of how the settings are loaded.

use std::ffi::OsString;

use serde_json::json;

use super::location::Os;
use super::*;

/// A folder, an environment and flags to be tried.
struct Trial {
    folder: tempfile::TempDir,
    environment: Environment,
    flags: SettingsFlags,
}

impl Trial {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        std::fs::create_dir_all(folder.path().join("here")).unwrap();
        std::fs::create_dir_all(&home).unwrap();
        let env = vec![("HOME".into(), home.into_os_string()), ("PATH".into(), "/bin".into())];
        let environment = Environment { env, current_folder: folder.path().join("here"), os: Os::Unix };
        Self { folder, environment, flags: SettingsFlags::default() }
    }

    /// `epitome.toml` in the folder it runs in.
    fn file(self, text: &str) -> Self {
        self.file_at("here/epitome.toml", text)
    }

    fn file_at(self, path: &str, text: &str) -> Self {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.env.push((name.into(), OsString::from(value)));
        self
    }

    fn set(mut self, set: &str) -> Self {
        self.flags.set.push(set.to_owned());
        self
    }

    fn db(mut self, db: &str) -> Self {
        self.flags.db = Some(db.to_owned());
        self
    }

    #[track_caller]
    fn load(&self) -> Loaded {
        load(&self.flags, &self.environment).unwrap()
    }

    #[track_caller]
    fn refused(&self, expected: &str) {
        let wrong = load(&self.flags, &self.environment).unwrap_err();
        assert_eq!(wrong, expected);
        assert_eq!(wrong.lines().count(), 1);
    }
}

impl Loaded {
    /// The file of the database, which is one.
    #[track_caller]
    fn file_of(&self) -> &Path {
        self.db.file().unwrap()
    }
}

#[test]
fn without_any_source_every_setting_has_its_default() {
    let trial = Trial::new();
    let loaded = trial.load();
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.patch.is_empty() && loaded.sources().is_empty() && loaded.differences().is_empty());
    assert_eq!(loaded.server.workspace, "default");
    assert_eq!(loaded.file_of(), trial.folder.path().join("home/.local/share/epitome/epitome.db"));
    assert_eq!(loaded.source("server.db"), Source::Default);
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let file = "[context]\nmax_tokens = 1000\nsummary_share = 0.2\n[limits]\nbatch = 7\n";
    let trial =
        Trial::new().file(file).env("EPITOME_CONTEXT_MAX_TOKENS", "2_000").env("EPITOME_LIMITS_BATCH", "8");
    let trial = trial.set("context.max_tokens=3000");
    let loaded = trial.load();
    assert_eq!(loaded.settings.context.max_tokens, 3_000);
    assert_eq!(loaded.settings.context.summary_share.get(), 0.2);
    assert_eq!(loaded.settings.limits.batch, 8);
    assert_eq!(loaded.settings.limits.body, Settings::default().limits.body);
    let shown: Vec<String> = loaded
        .differences()
        .iter()
        .map(|found| format!("{} {} {}", found.key, found.value, found.source))
        .collect();
    assert_eq!(
        shown,
        [
            "context.summary_share 0.2 epitome.toml",
            "context.max_tokens 3000 --set",
            "limits.batch 8 EPITOME_LIMITS_BATCH",
        ]
    );
    assert_eq!(
        loaded.sources(),
        ["epitome.toml", "EPITOME_CONTEXT_MAX_TOKENS", "EPITOME_LIMITS_BATCH", "--set context.max_tokens"]
    );
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    assert_eq!(
        Trial::new().env("EPITOME_LIMITS_BATCH", "").env("EPITOME_ODD", "").load().settings,
        Settings::default()
    );
}

#[test]
fn the_nearest_file_is_read() {
    let user = "home/.config/epitome/epitome.toml";
    let batch = |trial: &Trial| trial.load().settings.limits.batch;
    let trial = Trial::new().file_at(user, "[limits]\nbatch = 1");
    assert_eq!(batch(&trial), 1);
    let trial = trial.file("[limits]\nbatch = 2");
    assert_eq!(batch(&trial), 2);
    let mut trial =
        trial.file_at("here/other.toml", "[limits]\nbatch = 3").env("EPITOME_CONFIG", "other.toml");
    assert_eq!(batch(&trial), 3);
    trial.flags.config = Some("epitome.toml".into());
    assert_eq!(batch(&trial), 2);
    trial.flags.config = Some("none.toml".into());
    trial.refused("--config: there is no file none.toml");
}

#[test]
fn a_syntax_error_in_the_file_names_line_and_column() {
    let wrong =
        load(&SettingsFlags::default(), &Trial::new().file("[context]\nmax_tokens = = 5\n").environment)
            .unwrap_err();
    assert!(wrong.starts_with("epitome.toml: line 2, column 14: "), "{wrong}");
    let twice =
        load(&SettingsFlags::default(), &Trial::new().file("[limits]\nbatch = 1\nbatch = 2\n").environment)
            .unwrap_err();
    assert!(twice.starts_with("epitome.toml: line 3, column 1: "), "{twice}");
    let trial = Trial::new();
    std::fs::write(trial.environment.current_folder.join("epitome.toml"), [0xff, 0xfe]).unwrap();
    trial.refused("epitome.toml: is not UTF-8 text");
    assert_eq!(Trial::new().file("\u{feff}[limits]\r\nbatch = 9\r\n").load().settings.limits.batch, 9);
    let folder = Trial::new();
    std::fs::create_dir(folder.environment.current_folder.join("epitome.toml")).unwrap();
    assert!(
        load(&folder.flags, &folder.environment).unwrap_err().starts_with("epitome.toml: cannot be read: ")
    );
}

#[test]
fn an_error_names_the_source_of_the_value() {
    let allowed = "no such setting; did you mean max_tokens? allowed here are summary_share, max_tokens";
    Trial::new()
        .file("[context]\nmax_token = 5")
        .refused(&format!("epitome.toml: line 2: context.max_token: {allowed}"));
    Trial::new().set("context.max_token=5").refused(&format!("--set context.max_token: {allowed}"));
    Trial::new()
        .env("EPITOME_CONTEXT_MAX_TOKENS", "many")
        .refused("EPITOME_CONTEXT_MAX_TOKENS: \"many\" is not allowed; expected a whole number from 1");
    Trial::new()
        .set("context.max_tokens=0")
        .refused("--set context.max_tokens: 0 is not allowed; expected a whole number from 1");
    Trial::new()
        .file("[context]\nmax_tokens = 5")
        .set("summarize.redact=maybe")
        .refused("--set summarize.redact: \"maybe\" is not allowed; expected true or false");
    // The core reports what is wrong with a trigger; the settings add the source.
    let slot = Trial::new().env("EPITOME_SLOT", r#"[{"name": "a", "trigger": "sometimes"}]"#);
    let slot = slot.env("EPITOME_LIMITS_BATCH", "5");
    let wrong = load(&slot.flags, &slot.environment).unwrap_err();
    assert!(wrong.starts_with("EPITOME_SLOT: slot[0].trigger: "), "{wrong}");
}

#[test]
fn unknown_sections_and_keys_are_refused() {
    let allowed = "allowed here are server, proxy, encoding, context, slot, trigger, summarize, condense, models, prices, limits";
    Trial::new().file("[mcp]\n").refused(&format!("epitome.toml: line 1: mcp: no such setting; {allowed}"));
    Trial::new().file("[server]\ntls = \"on\"").refused(
        "epitome.toml: line 2: server.tls: no such setting; allowed here are db, connections, patience, workspace, role, \
         listen, require_keys, jwt_secret_env, log_level, log_format",
    );
    Trial::new()
        .file("server = 5")
        .refused("epitome.toml: line 1: server: 5 is not allowed; expected a table of settings");
    Trial::new()
        .file("[server]\ndb = 5")
        .refused("epitome.toml: line 2: server.db: 5 is not allowed; expected a text");
}

#[test]
fn server_settings_come_from_every_source() {
    let file = "[server]\nlisten = \"10.0.0.1:1\"\nrequire_keys = \"always\"\nlog_level = \"debug\"\n";
    let mut trial = Trial::new().file(file).env("EPITOME_SERVER_LISTEN", "10.0.0.1:2");
    trial.flags.own = vec![("--require-keys", "server.require_keys", "never".into())];
    let server = trial.load().server;
    assert_eq!((server.listen.as_str(), server.require_keys), ("10.0.0.1:2", RequireKeys::Never));
    let shown: Vec<String> = trial
        .load()
        .differences()
        .iter()
        .map(|found| format!("{} {} {} {}", found.key, found.value, found.default, found.source))
        .collect();
    assert_eq!(
        shown,
        [
            r#"server.listen "10.0.0.1:2" "127.0.0.1:7878" EPITOME_SERVER_LISTEN"#,
            r#"server.require_keys "never" "off-loopback" --require-keys"#,
            r#"server.log_level "debug" "info" epitome.toml"#,
        ]
    );
    let back =
        Trial::new().file(file).set(r#"server={"listen": null, "require_keys": "off-loopback"}"#).load();
    assert_eq!(
        (back.server.listen.as_str(), back.server.require_keys),
        ("127.0.0.1:7878", RequireKeys::OffLoopback)
    );
}

#[test]
fn invalid_server_settings_are_refused_with_their_names() {
    Trial::new().env("EPITOME_SERVER_REQUIRE_KEYS", "no").refused(
        "EPITOME_SERVER_REQUIRE_KEYS: \"no\" is not allowed; expected \"off-loopback\", \"always\" or \"never\"",
    );
    Trial::new()
        .file("[server]\nrequire_keys = false")
        .refused("epitome.toml: line 2: server.require_keys: false is not allowed; expected \"off-loopback\", \"always\" or \"never\"");
    Trial::new().set("server.log_level=loud").refused(
        "--set server.log_level: \"loud\" is not allowed; expected \"error\", \"warn\", \"info\" or \"debug\"",
    );
    Trial::new()
        .set("server.log_format=xml")
        .refused("--set server.log_format: \"xml\" is not allowed; expected \"auto\", \"text\" or \"json\"");
    let expected = "expected ADDRESS:PORT, such as 127.0.0.1:7878, 0.0.0.0:7878 or [::1]:7878";
    for wrong in ["", "7878", ":7878", "localhost", "localhost:", "localhost:http", "127.0.0.1:70000"] {
        let mut trial = Trial::new();
        trial.flags.own = vec![("--listen", "server.listen", wrong.into())];
        trial.refused(&format!("--listen: {wrong:?} is not allowed; {expected}"));
    }
    for wrong in ["::1:7878", "[::1]", "[here]:1", "http://h:1", "u@h:1", "a b:1", "127.0.0.1:+5"] {
        let set = format!("server.listen={wrong}");
        Trial::new().set(&set).refused(&format!("--set server.listen: {wrong:?} is not allowed; {expected}"));
    }
    for right in ["localhost:0", "[::]:80", "[::1]:7878", "0.0.0.0:65535"] {
        assert_eq!(Trial::new().set(&format!("server.listen={right}")).load().server.listen, right);
    }
}

#[test]
fn only_a_flag_counts_as_naming_the_workspace() {
    let mut trial = Trial::new().env("EPITOME_WORKSPACE", "env");
    assert_eq!(trial.load().workspace_from_flag(), None);
    trial.flags.workspace = Some("flag".to_owned());
    assert_eq!(trial.load().workspace_from_flag(), Some("flag"));
    assert_eq!(Trial::new().set("server.workspace=w").load().workspace_from_flag(), Some("w"));
}

#[test]
fn an_unknown_variable_is_refused() {
    Trial::new()
        .env("EPITOME_CONTEXT_MAX_TOKEN", "5")
        .refused("EPITOME_CONTEXT_MAX_TOKEN: no such setting; did you mean EPITOME_CONTEXT_MAX_TOKENS?");
    Trial::new()
        .env("EPITOME_MCP_TOOLS", "true")
        .refused("EPITOME_MCP_TOOLS: no such setting; `epitome --write-config -` lists all settings");
    for variable in ["EPITOME_MODELS_C_API_KEY", "EPITOME_MODELS_BIG_ONE_TOKEN"] {
        Trial::new().env(variable, "sk-secret").refused(&format!(
            "{variable}: no such setting; put the key into an environment variable, and set key_env to the variable's name"
        ));
    }
    Trial::new().env("EPITOME_CONFIG", "").load();
}

#[test]
fn a_trigger_without_a_slot_is_a_warning() {
    let warnings = |trial: Trial| trial.load().warnings();
    assert_eq!(warnings(Trial::new().set("trigger.short=messages(5)")), [""; 0]);
    assert_eq!(
        warnings(Trial::new().set("trigger.shrt=messages(5)")),
        [
            "--set trigger.shrt: no slot is named `shrt`, so this trigger is not used; did you mean trigger.short?"
        ]
    );
    assert_eq!(
        warnings(Trial::new().file("[trigger]\nweekly = \"messages(5)\"\n")),
        ["epitome.toml: line 2: trigger.weekly: no slot is named `weekly`, so this trigger is not used; \
          the slots are: short, long"]
    );
}

#[test]
fn a_variable_that_holds_a_models_key_is_no_setting() {
    let file = "[models.main]\nprovider = \"openai\"\nmodel = \"m\"\nkey_env = \"EPITOME_OWN_KEY\"\n";
    let loaded = Trial::new().file(file).env("EPITOME_OWN_KEY", "sk-secret").load();
    assert!(!format!("{:?}", loaded.patch).contains("sk-secret"));
}

#[test]
fn an_error_never_repeats_a_secret() {
    for (set, named) in
        [("models.m.key_env=sk-secret-1", "key_env"), ("models.m.base_url=https://u:secret@h/v1", "base_url")]
    {
        let trial = Trial::new().set("models.m.provider=local").set(set);
        let wrong = load(&trial.flags, &trial.environment).unwrap_err();
        assert!(wrong.starts_with(&format!("--set models.m.{named}: is not allowed; expected ")), "{wrong}");
        assert!(!wrong.contains("secret"), "{wrong}");
    }
}

#[test]
fn every_type_of_value_can_come_from_the_environment() {
    let loaded = Trial::new()
        .env("EPITOME_ENCODING", "cl100k_base")
        .env("EPITOME_SUMMARIZE_MODELS", "big-one, local")
        .env("EPITOME_SUMMARIZE_STAND_IN_AFTER", "never")
        .env("EPITOME_SUMMARIZE_REDACT", "false")
        .env("EPITOME_SUMMARIZE_SPEND_CAP_PER_DAY", "2.50")
        .env("EPITOME_CONTEXT_SUMMARY_SHARE", "0.25")
        .env("EPITOME_SLOT", r#"[{"name": "notes", "trigger": "turns(5)"}]"#)
        .env("EPITOME_MODELS_BIG_ONE_MODEL", "gpt-5.1")
        .env("EPITOME_MODELS_BIG_ONE_BASE_URL", "http://127.0.0.1:1/v1")
        .env("EPITOME_MODELS_BIG_ONE_OUTPUT_RESERVE", "1000")
        .env("EPITOME_MODELS_SMALL_PROVIDER", "local")
        .env("EPITOME_PRICES_GPT_5_1_INPUT", "1.25")
        .env("EPITOME_PRICES_GPT_5_1_OUTPUT", "10")
        .env("EPITOME_PRICES_OTHER_INPUT", "1")
        .env("EPITOME_PRICES_OTHER_OUTPUT", "1")
        .file("[models.big-one]\nprovider = \"openai\"\nmodel = \"old\"\nwindow = 9000\n")
        .load();
    let value = loaded.settings.to_value();
    for (pointer, expected) in [
        ("/encoding", json!("cl100k_base")),
        ("/summarize/models", json!(["big-one", "local"])),
        ("/summarize/stand_in_after", json!("never")),
        ("/summarize/redact", json!(false)),
        ("/summarize/spend_cap_per_day", json!(2.5)),
        ("/context/summary_share", json!(0.25)),
        ("/slot/0/name", json!("notes")),
        ("/models/big-one/model", json!("gpt-5.1")),
        ("/models/big-one/base_url", json!("http://127.0.0.1:1/v1")),
        ("/models/big-one/output_reserve", json!(1_000)),
        ("/models/big-one/window", json!(9_000)),
        ("/models/small/provider", json!("local")),
        ("/prices/gpt-5.1/output", json!(10.0)),
        ("/prices/other/input", json!(1.0)),
    ] {
        assert_eq!(value.pointer(pointer), Some(&expected), "{pointer} in {value:#}");
    }
    assert_eq!(value.pointer("/slot/1"), None);
}

#[test]
fn lists_may_be_json_and_invalid_json_is_reported() {
    let loaded = Trial::new().set(r#"summarize.models=["local"]"#).load();
    assert_eq!(loaded.settings.summarize.models, ["local"]);
    let wrong =
        load(&SettingsFlags::default(), &Trial::new().env("EPITOME_SLOT", "short").environment).unwrap_err();
    assert!(wrong.starts_with("EPITOME_SLOT: not JSON: "), "{wrong}");
    Trial::new()
        .set("limits.batch")
        .refused("--set limits.batch: expected KEY=VALUE, such as context.max_tokens=50000");
    Trial::new().set("=5").refused("--set =5: invalid name of a setting");
    let back = Trial::new().file("[limits]\nbatch = 5").set("limits.batch=null").load();
    assert_eq!(back.settings.limits.batch, 1_000, "null takes it back");
    let dotted = Trial::new().set("prices.\"gpt-5.1\"={\"input\": 1, \"output\": 2}").load();
    assert!(dotted.settings.prices.contains_key("gpt-5.1"));
}

#[test]
fn half_a_price_is_reported_at_the_half_that_is_set() {
    Trial::new()
        .env("EPITOME_LIMITS_BATCH", "5")
        .env("EPITOME_PRICES_BIG_INPUT", "1")
        .refused("EPITOME_PRICES_BIG_INPUT: prices.big.output: is missing; for example 2.0");
}

#[test]
fn the_environment_may_complete_what_the_file_leaves_out() {
    let file = "[models.main]\nprovider = \"openai\"\n";
    let loaded = Trial::new().file(file).env("EPITOME_MODELS_MAIN_MODEL", "m").load();
    assert_eq!(loaded.settings.models["main"].model, "m");
    Trial::new().file(file).env("EPITOME_LIMITS_BATCH", "5").refused(
        "epitome.toml: line 1: models.main.model: is missing; name it as the provider does, such as \"gpt-5-mini\"",
    );
}

#[test]
fn an_unknown_model_is_refused_before_anything_is_opened() {
    Trial::new().env("EPITOME_SUMMARIZE_MODELS", "cheap").refused(
        "EPITOME_SUMMARIZE_MODELS: summarize.models[0]: no model named `cheap`; define [models.cheap], \
         or use one of: local",
    );
    Trial::new().set("models.cheap.provider=local").set("summarize.models=chaep, local").refused(
        "--set summarize.models[0]: no model named `chaep`; did you mean `cheap`? define [models.chaep], or use one of: \
         cheap, local",
    );
    Trial::new().file("[[slot]]\nname = \"a\"\nmodels = [\"cheap\"]").refused(
        "epitome.toml: line 3: slot[0].models[0]: no model named `cheap`; define [models.cheap], or use one of: local",
    );
}

#[test]
fn a_short_form_overrides_a_long_one_of_a_lower_layer_and_vice_versa() {
    let file = "[condense]\ntrigger = \"tokens(9000)\"\nkeep_last = 4\n";
    let shown = |trial: &Trial| -> Vec<String> {
        let found = trial.load().differences();
        found.iter().map(|found| format!("{} {} {}", found.key, found.value, found.source)).collect()
    };
    let trial = Trial::new().file(file).env("EPITOME_CONDENSE_THRESHOLD", "0.5");
    assert_eq!(
        shown(&trial),
        [
            r#"condense.trigger "window(0.5)" EPITOME_CONDENSE_THRESHOLD"#,
            r#"condense.keep "messages(4)" epitome.toml"#,
        ]
    );
    let trial = trial.set("condense.trigger=messages(40)").set(r#"condense={"keep": "turns(2)"}"#);
    assert_eq!(
        shown(&trial),
        [r#"condense.trigger "messages(40)" --set"#, r#"condense.keep "turns(2)" --set"#]
    );
    // A short form with no value reverts nothing.
    let trial = Trial::new().file(file).set("condense.threshold=null").set("condense.keep_last=0");
    assert_eq!(trial.load().settings.condense.trigger.unwrap().to_string(), "tokens(9000)");
    assert_eq!(trial.load().settings.condense.keep.unwrap().to_string(), "messages(0)");
}

#[test]
fn both_forms_in_one_layer_are_refused() {
    let problem = "trigger is set too; set only one of them";
    Trial::new()
        .file("[condense]\ntrigger = \"tokens(9000)\"\nthreshold = 0.5\n")
        .refused(&format!("epitome.toml: line 3: condense.threshold: {problem}"));
    Trial::new()
        .env("EPITOME_CONDENSE_THRESHOLD", "0.5")
        .env("EPITOME_CONDENSE_TRIGGER", "tokens(9000)")
        .refused(&format!("EPITOME_CONDENSE_THRESHOLD: {problem}"));
    Trial::new()
        .set("condense.keep=turns(2)")
        .set("condense.keep_last=0")
        .refused("--set condense.keep_last: keep is set too; set only one of them");
}

#[test]
fn condense_settings_come_from_the_environment_too() {
    let loaded = Trial::new()
        .env("EPITOME_CONDENSE_ENABLED", "false")
        .env("EPITOME_CONDENSE_STRATEGY", "amortized(turns(2))")
        .env("EPITOME_CONDENSE_TRIGGER", "any(tokens(5000), economic)")
        .env("EPITOME_CONDENSE_KEEP_FIRST", "2")
        .env("EPITOME_CONDENSE_WINDOW", "32_000")
        .env("EPITOME_CONDENSE_MIN_WORTH", "0.25")
        .load();
    let condense = loaded.settings.condense;
    assert_eq!((condense.enabled, condense.keep_first, condense.window), (false, 2, Some(32_000)));
    assert_eq!(condense.strategy.to_string(), "amortized(turns(2))");
    assert_eq!(condense.trigger.unwrap().to_string(), "any(tokens(5000), economic)");
    assert_eq!(condense.worth.get(), 0.25);
    let back = Trial::new().file("[condense]\nwindow = 9\ntrigger = \"tokens(5)\"");
    let back = back.set("condense.window=none").set("condense.trigger=default").load().settings;
    assert_eq!(back, Settings::default());
    Trial::new()
        .env("EPITOME_CONDENSE_TRIGGER", "tokens(0)")
        .refused("EPITOME_CONDENSE_TRIGGER: tokens: 0 is not allowed; expected a whole number from 1");
    Trial::new().set("condense.model=cheap").refused(
        "--set condense.model: no model named `cheap`; define [models.cheap], or use one of: local, same",
    );
}

#[test]
fn a_database_path_is_resolved_against_its_source() {
    let trial = Trial::new();
    let home = trial.folder.path().join("home");
    let db = |db: &str| {
        Trial {
            folder: tempfile::tempdir().unwrap(),
            environment: trial.environment.clone(),
            flags: SettingsFlags::default(),
        }
        .db(db)
        .load()
        .file_of()
        .to_owned()
    };
    assert_eq!(db("a.db"), Path::new("a.db"));
    assert_eq!(db("sqlite:a.db"), Path::new("a.db"));
    assert_eq!(db("sqlite:///tmp/a.db"), Path::new("/tmp/a.db"));
    assert_eq!(db("~/a.db"), home.join("a.db"));
    let user =
        trial.file_at("home/.config/epitome/epitome.toml", "[server]\ndb = \"my.db\"\nworkspace = \"w\"");
    assert_eq!(user.load().file_of(), home.join(".config/epitome/my.db"), "from the file's folder on");
    assert_eq!(user.load().server.workspace, "w");
    let user =
        user.env("EPITOME_DB", "/e.db").env("EPITOME_SERVER_DB", "/long.db").env("EPITOME_WORKSPACE", "x");
    assert_eq!((user.load().file_of(), user.load().server.workspace.as_str()), (Path::new("/e.db"), "x"));
}

#[test]
fn a_postgresql_address_is_shown_without_its_password() {
    let trial = Trial::new()
        .env("EPITOME_DB", "postgres://ann:secret@db/epitome")
        .env("EPITOME_SERVER_CONNECTIONS", "40")
        .env("EPITOME_SERVER_PATIENCE", "2m")
        .set("server.role=worker");
    let loaded = trial.load();
    assert_eq!(loaded.db.to_string(), "postgres://ann:***@db/epitome");
    assert_eq!((loaded.db.file(), loaded.db.is_missing_file()), (None, false));
    assert_eq!(format!("{:?}", loaded.db), "Postgres(postgres://ann:***@db/epitome)");
    let server = &loaded.server;
    assert_eq!((server.connections, server.patience.as_secs(), server.role), (40, 120, Role::Worker));
    let shown: Vec<String> = loaded.differences().into_iter().map(|difference| difference.key).collect();
    assert_eq!(shown, ["server.connections", "server.patience", "server.role"]);
    let file = Trial::new().file("[server]\ndb = \"postgresql:///x?host=/run&password=secret\"").load();
    assert_eq!(file.db.to_string(), "postgresql:///x?host=/run&password=***");

    Trial::new()
        .set("server.connections=0")
        .refused("--set server.connections: 0 is not allowed; expected a whole number from 1 to 1000");
    Trial::new().set("server.patience=2h").refused(
        "--set server.patience: \"2h\" is not allowed; expected a time from \"0s\" to \"1h\" such as \"10m\" or 600 for seconds",
    );
    Trial::new()
        .set("server.role=boss")
        .refused("--set server.role: \"boss\" is not allowed; expected \"all\", \"api\" or \"worker\"");
}

#[test]
fn other_databases_are_refused() {
    Trial::new().env("EPITOME_DB", "mysql://ann:secret@x").refused(
        "EPITOME_DB: is not a database; give the path of a SQLite file, sqlite:PATH or postgres://…",
    );
    for (mistyped, meant) in [
        ("postgress://ann:secret@x/y", "postgres"),
        ("Postgres://ann:secret@x/y", "postgres"),
        ("postgresql+asyncpg://ann:secret@x/y", "postgresql"),
    ] {
        Trial::new().db(mistyped).refused(&format!("--db: is not a database; did you mean {meant}://?"));
    }
    Trial::new()
        .db("postgres:ann:secret@x")
        .refused("--db: a PostgreSQL address is postgres://USER:PASSWORD@HOST:PORT/DATABASE");
    Trial::new().db("").refused("--db: is empty; give the path of a SQLite file, or postgres://…");
    Trial::new()
        .db("sqlite::memory:")
        .refused("--db: a database in memory is lost when the command ends; give the path of a file");
    let mut homeless = Trial::new();
    homeless.environment.env.clear();
    homeless.refused("--db: required, because the user's data folder cannot be determined");
    let mut odd = Trial::new();
    odd.flags.workspace = Some("a\nb".to_owned());
    odd.refused("--workspace: a name has 1 to 512 bytes and no control characters");
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let mut trial = Trial::new();
    trial.environment.env.push(("EPITOME_ENCODING".into(), OsString::from_vec(vec![0xff])));
    trial.refused("EPITOME_ENCODING: is not UTF-8 text");
}

/// A line `#key` is a default.
fn uncommented(text: &str) -> String {
    let bare = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest.to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(bare).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_written_file_changes_nothing_commented_or_not() {
    let written = template();
    let loaded = Trial::new().file(&written).load();
    assert_eq!(loaded.settings, Settings::default());
    let loaded = Trial::new().file(&uncommented(&written)).load();
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(loaded.server.workspace, "default");
    // Every default is there, or the two would not differ in what they name.
    let named = file::parse(&uncommented(&written)).unwrap();
    let mut defaults = Settings::default().to_value();
    defaults["summarize"]["spend_cap_per_day"] = json!("none");
    defaults["condense"]["window"] = json!("none");
    for section in ["encoding", "context", "slot", "summarize", "condense", "limits"] {
        assert_eq!(named.get(section), defaults.get(section), "{section}");
    }
    let wide = written.lines().find(|line| line.chars().count() > 110);
    assert_eq!(wide, None);
}

#[test]
fn the_written_file_has_every_key_and_its_examples_are_right() {
    let written = template();
    for key in keys::KEYS.iter() {
        let name = key.path.rsplit('.').next().unwrap();
        assert!(!key.meaning.is_empty(), "{} has no help text", key.path);
        assert!(written.contains(&format!("{name} = ")) || name == "slot", "{}", key.path);
        assert!(written.contains(key.meaning.lines().next().unwrap()), "{}", key.path);
        if !key.path.contains('*') && name != "slot" {
            let text = key.example.as_str().map_or_else(|| key.example.to_string(), str::to_owned);
            let trial = Trial::new().set(&format!("{}={text}", key.path));
            let trial = trial.set("models.cheap.provider=local").set("models.main.provider=local");
            assert!(!trial.load().sources().is_empty(), "{}", key.path);
            assert_ne!(key.example, Value::Null, "{} has no example", key.path);
        }
    }
    // The examples that stand in sections of their own, taken out of their comments.
    let examples: String = written
        .lines()
        .skip_while(|line| !line.starts_with("# Example of a slot"))
        .skip(1)
        .filter(|line| {
            !line.contains("max_chars")
                && !line.starts_with("# Models that")
                && !line.starts_with("# What models")
        })
        .map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or(line)))
        .collect();
    let examples = format!("{examples}\n[models.main]\nprovider = \"local\"\n");
    let loaded = Trial::new().file(&examples).load();
    let value = loaded.settings.to_value();
    assert_eq!(value.pointer("/models/cheap/model"), Some(&json!("gpt-5-mini")));
    assert_eq!(value.pointer("/prices/gpt-5-mini/output"), Some(&json!(2.0)));
}

/// Every new setting of the engine must be in the list of keys, and so in the file and in the environment.
#[test]
fn every_key_of_the_engine_is_listed_here() {
    let text = r#"{
        "models": {"m": {"provider": "openai", "model": "x", "base_url": "http://h/v1", "key_env": "K",
            "window": 10, "output_reserve": 5}},
        "prices": {"m": {"input": 1, "output": 1}}
    }"#;
    let settings = Settings::default().with(&Patch::parse(text).unwrap()).unwrap();
    let Value::Object(all) = settings.to_value() else { unreachable!() };
    let mut found = 0;
    for (path, _) in leaves(&all) {
        assert!(keys::type_of(&path).is_some(), "{}", keys::name(&path));
        found += 1;
    }
    // Those of the server and the proxy, the slots' triggers, and two short forms.
    assert_eq!(found + 18, keys::KEYS.len(), "a key of ours that the engine does not have");
    let slot = r#"[{"name": "a", "scope": "b", "max_tokens": 100, "models": ["local"], "catch_up": "step",
        "instructions": "i", "prompt": "{conversation_text}"}]"#;
    let slot = Trial::new().set(&format!("slot={slot}")).load().settings.to_value();
    for key in slot.pointer("/slot/0").and_then(Value::as_object).unwrap().keys() {
        assert!(keys::SLOT_KEYS.iter().any(|listed| listed.path == *key), "{key}");
    }
}

#[test]
fn upstreams_come_from_every_source() {
    let file = "[proxy]\nopenai_upstream = \"http://127.0.0.1:1/v1\"\ntimeout = 30\n";
    let mut trial = Trial::new().file(file).env("EPITOME_PROXY_SHADOW", "true");
    trial.flags.own = vec![("--openai-upstream", "proxy.openai_upstream", "https://h.example/x".into())];
    let proxy = trial.load().server.proxy;
    assert_eq!((proxy.openai_upstream.as_str(), proxy.shadow), ("https://h.example/x", true));
    assert_eq!(proxy.anthropic_upstream, "https://api.anthropic.com");
    assert_eq!(proxy.timeout, std::time::Duration::from_secs(30));
    Trial::new().set("condense.model=same").load();
    Trial::new().set("proxy.timeout=0").refused(
        "--set proxy.timeout: \"0\" is not allowed; expected a time from \"100ms\" to \"24h\" such as \"10m\" or 600 for seconds",
    );
    Trial::new()
        .file("[proxy]\nopenai_upstream = 8000\n")
        .refused("epitome.toml: line 2: proxy.openai_upstream: 8000 is not allowed; expected a text");
    Trial::new().set("proxy.upstream=x").refused(
        "--set proxy.upstream: no such setting; did you mean openai_upstream? allowed here are openai_upstream, anthropic_upstream, shadow, timeout",
    );
}
