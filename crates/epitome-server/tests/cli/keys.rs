//! `epitome keys`, as the real binary does it.

use serde_json::{Value, json};

use crate::bin::TestFolder;

/// A key's secret, and what was said with it.
fn made(place: &TestFolder, args: &[&str]) -> (String, String) {
    let (code, out, errors) = place.on_db(&[&["keys", "create"], args].concat());
    assert_eq!(code, Some(0), "{errors}");
    (out, errors)
}

#[test]
fn a_secret_goes_to_standard_output_alone_and_is_shown_once() {
    let place = TestFolder::new();
    let (out, note) = made(&place, &["--workspace", "team", "--rights", "write", "--label", "ann"]);
    let secret = out.strip_suffix('\n').unwrap();
    assert!(secret.starts_with("epk_") && secret.len() == 85, "{out}");
    let id = &secret[4..20];
    assert_eq!(note, format!("write key {id} for the workspace \"team\"; its secret is not shown again\n"));
    let listed = place.good(&["keys", "list"]);
    assert!(listed.contains(id) && !listed.contains(secret), "{listed}");
    let kept = std::fs::read(place.db()).unwrap();
    assert!(!kept.windows(64).any(|bytes| bytes == &secret.as_bytes()[21..]), "the secret is kept");
    place.engine(|engine| {
        let secret = secret.to_owned();
        async move {
            let key = engine.keys().check(&secret).await.unwrap().unwrap();
            assert_eq!((key.workspace.as_deref(), key.label.as_str()), (Some("team"), "ann"));
        }
    });
}

#[test]
fn a_key_is_created_for_the_named_workspace() {
    let place = TestFolder::new();
    assert!(made(&place, &["--admin"]).1.starts_with("admin key "));
    assert!(made(&place, &["--admin"]).1.contains(" for all workspaces; "));
    assert!(made(&place, &["--rights", "read"]).1.contains(" for the workspace \"default\"; "));
    let day = made(&place, &["--rights", "read", "--expires", "2099-12-31"]).1;
    assert!(day.contains(", until 2099-12-31 00:00 UTC; "), "{day}");
    let printed = place.json(&["keys", "create", "--rights", "write", "--expires", "30d"]);
    let (created, expires) = (printed["created"].as_i64().unwrap(), printed["expires"].as_i64().unwrap());
    assert!((expires - created - 30 * 86_400_000).abs() < 86_400_000, "{printed}");
    assert_eq!((printed["rights"].as_str(), printed["workspace"].as_str()), (Some("write"), Some("default")));
    assert!(printed["secret"].as_str().unwrap().starts_with("epk_"));
}

#[test]
fn keys_are_listed_for_all_or_for_one_workspace() {
    let place = TestFolder::new();
    let ids = |args: &[&str]| -> Vec<Value> {
        place.json_lines(&[&["keys", "list"], args].concat()).iter().map(|key| key["id"].clone()).collect()
    };
    let mut made_ids = Vec::new();
    for args in [
        ["--admin"].as_slice(),
        &["--workspace", "a", "--rights", "read", "--label", "one"],
        &["--workspace", "b", "--rights", "write"],
    ] {
        made_ids.push(json!(made(&place, args).0[4..20]));
    }
    assert_eq!(ids(&[]).len(), 3);
    assert_eq!(ids(&["--workspace", "a"]), made_ids[1..2]);
    assert_eq!(ids(&["--workspace", "none"]), Vec::<Value>::new());
    let by_env = crate::result_of(
        place
            .epitome(&["keys", "list", "--db", "epitome.db"])
            .env("EPITOME_WORKSPACE", "a")
            .output()
            .unwrap(),
    );
    assert_eq!(by_env.1.lines().count(), 4, "what commands work on is no wish: {}", by_env.1);
    let id = made_ids[2].as_str().unwrap().to_owned();
    assert_eq!(place.good(&["keys", "revoke", &id]), format!("key {id} is revoked\n"));
    let table = place.good(&["keys", "list"]);
    let heads: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heads, ["id", "workspace", "rights", "label", "created", "expires", "state"]);
    let row =
        |id: &Value| table.lines().find(|line| line.starts_with(id.as_str().unwrap())).unwrap().to_owned();
    assert!(row(&made_ids[0]).contains("(all)") && row(&made_ids[0]).ends_with("good"), "{table}");
    assert!(row(&made_ids[1]).contains("one") && row(&made_ids[1]).contains("never"), "{table}");
    assert!(row(&made_ids[2]).ends_with("revoked"), "{table}");
    let states: Vec<Value> =
        place.json_lines(&["keys", "list"]).iter().map(|key| key["state"].clone()).collect();
    assert_eq!(states.iter().filter(|state| *state == "good").count(), 2);
}

#[test]
fn a_key_is_revoked_by_its_id_or_by_its_secret() {
    let place = TestFolder::new();
    let (first, second) = (made(&place, &["--admin"]).0, made(&place, &["--rights", "read"]).0);
    let printed = place.json(&["keys", "revoke", &first[4..20]]);
    assert_eq!(printed, json!({"revoked": &first[4..20]}));
    assert_eq!(
        place.good(&["keys", "revoke", second.trim()]),
        format!("key {} is revoked\n", &second[4..20])
    );
    place.good(&["keys", "revoke", second.trim()]);
    let line = "there is no key \"0123\"; `epitome keys list` shows all keys";
    place.fails(&["keys", "revoke", "0123"], 1, line);
    let third = made(&place, &["--workspace", "a", "--rights", "read"]).0;
    let id = &third[4..20];
    let line = format!("there is no key \"{id}\"; `epitome keys list` shows all keys");
    place.fails(&["keys", "revoke", third.trim(), "--workspace", "b"], 1, &line);
    let unknown = format!("epk_{}_{}", "0".repeat(16), "5e".repeat(32));
    let (_, _, errors) = place.on_db(&["keys", "revoke", &unknown]);
    assert!(!errors.contains("5e5e"), "a secret is not repeated: {errors}");
}

#[test]
fn a_key_that_cannot_be_created_is_one_line_and_changes_nothing() {
    let place = TestFolder::new();
    for (args, line) in [
        (["keys"].as_slice(), "missing subcommand: create, list or revoke"),
        (&["keys", "make"], "unknown command \"make\""),
        (
            &["keys", "create", "--rights", "admin"],
            "invalid value 'admin' for '--rights <RIGHTS>': use read or write; for an admin key, use --admin instead of --rights",
        ),
        (
            &["keys", "create", "--admin", "--rights", "read"],
            "the argument '--admin' cannot be used with '--rights <RIGHTS>'",
        ),
        (
            &["keys", "create", "--admin", "--workspace", "a"],
            "an admin key is for all workspaces; remove --workspace, or use --rights instead of --admin",
        ),
        (
            &["keys", "create", "--rights", "read", "--expires", "soon"],
            "invalid value 'soon' for '--expires <WHEN>': expected a duration (12h, 30d, 52w), a date (2027-01-01) or a time (2027-01-01T12:00:00Z)",
        ),
    ] {
        let command = if args.get(1) == Some(&"create") { "keys create" } else { "keys" };
        place.fails(args, 2, &format!("{line}; `epitome {command} --help` lists the options"));
    }
    let (code, _, errors) = place.on_db(&["keys", "create"]);
    assert_eq!((code, errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("--rights <RIGHTS>"), "{errors}");
    assert!(!place.db().exists(), "a wrong wish made a database");
    for args in [["keys", "list"].as_slice(), &["keys", "revoke", "0123"]] {
        let (code, _, errors) = place.on_db(args);
        assert_eq!(code, Some(1));
        assert!(errors.starts_with("epitome: there is no database at epitome.db; "), "{errors}");
    }
    let passed = "expires: is in the past; set a later time, or leave it out";
    place.fails(&["keys", "create", "--rights", "read", "--expires", "2001-01-01"], 2, passed);
    let similar = "invalid value 'writ' for '--rights <RIGHTS>': no such rights; did you mean write?";
    place.fails(&["keys", "create", "--rights", "writ"], 2, similar);
    let label = "l".repeat(201);
    let (code, _, errors) = place.on_db(&["keys", "create", "--admin", "--label", &label]);
    assert_eq!(code, Some(2));
    assert!(errors.starts_with("epitome: label: "), "{errors}");
    let (code, out, note) = place.on_db(&["keys", "list"]);
    assert_eq!((code, out.as_str(), note.as_str()), (Some(0), "", "no keys in epitome.db\n"));
}
