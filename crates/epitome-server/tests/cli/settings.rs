//! Settings, as the real binary finds them.

use serde_json::Value;

use crate::bin::{TestFolder, result_of};

#[test]
fn a_settings_file_is_written_once() {
    let place = TestFolder::new();
    let (code, out, errors) = place.run(&["--write-config"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(out.starts_with("wrote epitome.toml: "), "{out}");
    let written = std::fs::read_to_string(place.path("epitome.toml")).unwrap();
    assert_eq!(place.run(&["--write-config", "-"]).1, written);
    let (code, _, errors) = place.run(&["--write-config"]);
    assert_eq!(code, Some(1));
    assert!(
        errors.starts_with("epitome: epitome.toml: the file exists already and is not replaced"),
        "{errors}"
    );
    assert!(out.ends_with("; `epitome --check-config` checks it\n"), "{out}");
    let (code, out, _) = place.run(&["--write-config", "other.toml"]);
    assert_eq!(code, Some(0));
    assert!(out.ends_with("; `epitome --config other.toml --check-config` checks it\n"), "{out}");
    assert_eq!(place.run(&["--config", "other.toml", "--check-config"]).0, Some(0));
    std::fs::create_dir_all(place.path(".config/epitome")).unwrap();
    let usual = place.path(".config/epitome/epitome.toml").display().to_string();
    let (_, out, _) = place.run(&["--write-config", &usual]);
    assert!(
        out.ends_with("; `epitome --check-config` checks it\n"),
        "the user's folder needs no --config: {out}"
    );
    assert_eq!(place.run(&["--write-config", "no/where.toml"]).0, Some(1));
    assert_eq!(place.run(&["--check-config"]).0, Some(0));
}

#[test]
fn the_settings_in_docs_are_the_written_file() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/epitome.toml");
    let (_, written, _) = TestFolder::new().run(&["--write-config", "-"]);
    if std::env::var_os("CHECK_UPDATE").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == written,
        "docs/epitome.toml is not what --write-config writes; renew it: \
         CHECK_UPDATE=1 cargo test -p epitome-server --test cli the_settings_in_docs"
    );
}

#[test]
fn check_config_shows_the_settings_and_opens_no_database() {
    let place = TestFolder::new();
    std::fs::write(place.path("epitome.toml"), "[context]\nmax_tokens = 50000\n").unwrap();
    let mut command = place.epitome(&["--check-config", "--set", "limits.batch=7"]);
    let (code, out, errors) = result_of(command.env("EPITOME_SUMMARIZE_REDACT", "false").output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    for line in [
        "settings   from epitome.toml, EPITOME_SUMMARIZE_REDACT, --set limits.batch",
        "(default, does not exist yet)",
        "workspace  default (default)",
        "context.max_tokens  50000  100000   epitome.toml",
        "summarize.redact    false  true     EPITOME_SUMMARIZE_REDACT",
    ] {
        assert!(out.contains(line), "{line} in {out}");
    }
    let (code, out, _) = place.run(&["--check-config", "--json"]);
    let object: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, object["ok"].as_bool()), (Some(0), Some(true)));
    assert_eq!(object["differences"][0]["key"], "context.max_tokens");
    assert_eq!(place.folder.path().read_dir().unwrap().count(), 1, "something was made");
}

#[test]
fn check_config_warns_of_a_trigger_without_a_slot() {
    let place = TestFolder::new();
    let file = "[trigger]\nshrt = \"messages(5)\"\nlong = \"messages(70)\"\n";
    std::fs::write(place.path("epitome.toml"), file).unwrap();
    let line = "epitome.toml: line 2: trigger.shrt: no slot is named `shrt`, so this trigger is not used; \
        did you mean trigger.short?";
    let (code, out, errors) = place.run(&["--check-config"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(out.lines().any(|printed| printed == format!("warning: {line}")), "{out}");
    let (_, out, _) = place.run(&["--check-config", "--json"]);
    let object: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&object["ok"], &object["warnings"]), (&Value::Bool(true), &serde_json::json!([line])));
}

#[test]
fn a_wrong_setting_stops_every_command_before_anything_is_done() {
    let place = TestFolder::with_sessions();
    std::fs::write(place.path("epitome.toml"), "[context]\nmax_token = 5\n").unwrap();
    let line = "epitome.toml: line 2: context.max_token: no such setting; did you mean max_tokens? allowed here are summary_share, max_tokens";
    for args in [["list"].as_slice(), &["context", "ann"], &["--check-config"]] {
        let expected = (Some(2), String::new(), format!("epitome: {line}\n"));
        assert_eq!(place.run(args), expected);
    }
    // What helps out of it works.
    assert_eq!(place.run(&["--write-config", "-"]).0, Some(0));
    assert_eq!(place.run(&["completions", "bash"]).0, Some(0));
    assert_eq!(place.on_db(&["list", "--config", "/dev/null"]).0, Some(0));
}

#[test]
fn settings_reach_the_engine() {
    let place = TestFolder::with_sessions();
    let (code, _, errors) =
        place.on_db(&["context", "ann", "--tokens", "900", "--set", "context.max_tokens=800"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("800"), "{errors}");
    let by_env = result_of(place.epitome(&["list"]).env("EPITOME_DB", "epitome.db").output().unwrap());
    assert_eq!(by_env.0, Some(0), "{}", by_env.2);
    let usual = place.path(".local/share/epitome");
    std::fs::create_dir_all(&usual).unwrap();
    std::fs::copy(place.db(), usual.join("epitome.db")).unwrap();
    assert!(place.run(&["list"]).1.contains("ann"), "the usual place");
    let odd = result_of(place.epitome(&["list"]).env("EPITOME_ODD", "1").output().unwrap());
    assert_eq!((odd.0, odd.2.lines().count()), (Some(2), 1), "{}", odd.2);
}

#[test]
fn the_written_file_explains_the_forms_of_values() {
    let (_, file, _) = TestFolder::new().run(&["--write-config", "-"]);
    for words in [
        "own, no key is sent unless you set key_env.",
        "https://api.openai.com/v1, https://api.anthropic.com/v1",
        "messages(n), turns(n), tokens(n), chars(n), window(fraction), every(seconds),",
        "idle(seconds), important(n), all(.., ..), any(.., ..).",
    ] {
        assert!(file.contains(words), "{words} in {file}");
    }
}

/// Kubernetes sets them in every container next to a service called `epitome`.
#[test]
fn variables_set_by_kubernetes_are_ignored() {
    let place = TestFolder::with_sessions();
    let mut command = place.epitome(&["list", "--db", "epitome.db"]);
    for name in ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8080_TCP_ADDR"] {
        command.env(format!("EPITOME_{name}"), "tcp://10.0.0.1:8080");
    }
    let (code, _, errors) = result_of(command.output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let odd = result_of(place.epitome(&["list"]).env("EPITOME_PORTS", "1").output().unwrap());
    assert_eq!(odd.0, Some(2));
}

#[cfg(unix)]
#[test]
fn only_the_user_can_read_the_data_folder() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestFolder::new();
    std::fs::write(place.path("a.jsonl"), "{\"role\":\"user\",\"content\":\"Hello.\"}\n").unwrap();
    let (code, _, errors) = place.run(&["import", "a.jsonl"]);
    assert_eq!(code, Some(0), "{errors}");
    let folder = std::fs::metadata(place.path(".local/share/epitome")).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_spend_cap_without_a_price_is_reported_and_reading_still_works() {
    let place = TestFolder::with_sessions();
    let file = "[models.own]\nprovider = \"openai\"\nmodel = \"mine\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
        [summarize]\nmodels = [\"own\"]\nspend_cap_per_day = 1\n";
    std::fs::write(place.path("epitome.toml"), file).unwrap();
    assert!(place.good(&["list"]).contains("ann"));
    place.good(&["context", "ann"]);
    let (code, _, errors) = place.on_db(&["--check-config"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("`own` has no price; set prices.\"own\""), "{errors}");
}
