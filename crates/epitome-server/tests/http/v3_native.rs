//! Sessions are shared: Honcho's routes, the native routes and the command line see the same messages in the same order.

use serde_json::{Value, json};

use crate::home::meddle;
use crate::on_sqlite::sql;
use crate::server::{Client, Server, command, db};
use crate::talk::{add, pages, settle};

const THEIRS: &str = "/v3/workspaces/w";

/// Returns a client of the native routes, in the workspace `w`.
fn own(server: &Server) -> Client {
    server.client().with("x-epitome-workspace", "w")
}

/// Adds messages through Honcho's route, and returns the answer.
#[track_caller]
fn tell(client: &mut Client, session: &str, messages: &Value) -> Vec<Value> {
    let path = format!("{THEIRS}/sessions/{session}/messages");
    client.post(&path, &json!({"messages": messages})).ok().as_array().unwrap().clone()
}

/// Lists through Honcho's route.
#[track_caller]
fn listed(client: &mut Client, session: &str) -> Vec<Value> {
    let path = format!("{THEIRS}/sessions/{session}/messages/list?size=100");
    client.post(&path, &json!({})).ok()["items"].as_array().unwrap().clone()
}

/// Returns the values of one field.
fn each(list: &[Value], field: &str) -> Vec<String> {
    list.iter().map(|item| item[field].as_str().unwrap_or("-").to_owned()).collect()
}

fn texts(list: &[Value]) -> Vec<String> {
    list.iter().map(|message| message["parts"][0]["text"].as_str().unwrap_or("-").to_owned()).collect()
}

/// Returns the lines that a command prints in the workspace `w`.
#[track_caller]
fn typed(server: &Server, args: &[&str]) -> String {
    let mut run = command(&server.folder);
    let done = run.args(["--db", &db(&server.folder), "--workspace", "w"]).args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn parcels(from: usize, through: usize) -> Vec<Value> {
    let line = |at: usize| {
        let said = format!("Parcel P-{at} went from Oslo to Bergen on day {at}, and somebody signed for it.");
        json!({"peer_id": if at % 2 == 1 { "ann" } else { "bot" }, "content": said})
    };
    (from..=through).map(line).collect()
}

#[test]
fn what_was_said_through_v3_is_read_by_our_own_routes() {
    let server = Server::start();
    let mut client = own(&server);
    let first = json!({"peer_id": "ann", "content": "A walrus.", "metadata": {"a": [1]},
        "created_at": "2024-02-29T12:30:15.123456Z"});
    tell(&mut client, "s", &json!([first]));
    tell(&mut client, "s", &json!(parcels(2, 25)));
    settle(&mut client);

    let session = client.get("/v1/sessions/s").ok();
    assert_eq!((&session["name"], &session["messages"]), (&json!("s"), &json!(25)));
    let messages = pages(&mut client, "/v1/sessions/s/messages", 10);
    assert_eq!(
        messages.iter().map(|one| one["seq"].as_u64().unwrap()).collect::<Vec<_>>(),
        Vec::from_iter(1..=25)
    );
    assert_eq!(
        (&texts(&messages)[..1], &each(&messages, "author")[..3]),
        (&["A walrus.".to_owned()][..], &["ann".to_owned(), "bot".to_owned(), "ann".to_owned()][..],)
    );
    assert_eq!(messages[0]["metadata"]["a"], json!([1]));
    assert_eq!(messages[0]["at"], 1_709_209_815_123_i64);

    let context = client.get("/v1/sessions/s/context?tokens=2000&format=openai&assistant=bot").ok();
    let roles = each(context["messages"].as_array().unwrap(), "role");
    assert_eq!(
        roles,
        ["user", "user", "assistant", "user", "assistant", "user"],
        "a summary of 20, and the rest"
    );
    let summary = client.get("/v1/sessions/s/summaries").ok()["items"][0].clone();
    assert_eq!((&summary["slot"], &summary["through"]), (&json!("short"), &json!(20)));
    let found = client.get("/v1/search?q=walrus").ok();
    assert_eq!(
        (&found["items"][0]["session"], &found["items"][0]["message"]["seq"]),
        (&json!("s"), &json!(1))
    );
    assert_eq!(server.client().get("/v1/sessions").ok()["items"], json!([]), "nothing crosses a workspace");
}

#[test]
fn what_was_said_through_v3_is_there_on_the_command_line() {
    let server = Server::start();
    let mut client = own(&server);
    let told = tell(&mut client, "s", &json!(parcels(1, 25)));
    settle(&mut client);
    let exported = lines(&typed(&server, &["export", "s"]));
    assert_eq!(texts(&exported[1..]), each(&told, "content"));
    assert_eq!(each(&exported[1..], "author"), each(&told, "peer_id"));
    let context: Value =
        serde_json::from_str(&typed(&server, &["context", "s", "--tokens", "2000", "--json"])).unwrap();
    assert_eq!(
        (&context["summary"]["through"], &context["report"]["exhaustive"]),
        (&json!(20), &json!(true))
    );
    let found = lines(&typed(&server, &["search", "--json", "P-7"]));
    assert_eq!((found.len(), &found[0]["message"]["seq"]), (1, &json!(7)));
    let sessions = lines(&typed(&server, &["list", "--json"]));
    assert_eq!((&sessions[0]["name"], &sessions[0]["messages"]), (&json!("s"), &json!(25)));
    typed(&server, &["verify"]);
}

#[test]
fn what_was_said_natively_is_read_through_v3() {
    let server = Server::start();
    let mut client = own(&server);
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "track", "arguments": "{\"order\": 7}"}});
    let list = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is my walrus?", "name": "ann"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "in Oslo"},
        {"role": "assistant", "content": "In Oslo."},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "now?"}]},
    ]);
    add(&mut client, "s", &list);
    let own = json!([{"role": "peer", "author": "bob", "parts": [{"type": "text", "text": "I am Bob."}],
        "at": 1_700_000_000_001_i64, "metadata": {"channel": "mail"}}]);
    add(&mut client, "s", &own);

    let there = listed(&mut client, "s");
    assert_eq!(each(&there, "peer_id"), ["system", "ann", "assistant", "tool", "assistant", "user", "bob"]);
    let said = each(&there, "content");
    assert_eq!(
        (&said[0], &said[1], &said[4], &said[6]),
        (
            &"Be brief.".to_owned(),
            &"Where is my walrus?".to_owned(),
            &"In Oslo.".to_owned(),
            &"I am Bob.".to_owned(),
        )
    );
    assert!(said[5].contains("And") && said[5].contains("now?"), "{said:?}");
    assert_eq!(
        (&there[6]["metadata"]["channel"], &there[6]["created_at"]),
        (&json!("mail"), &json!("2023-11-14T22:13:20.001000Z"),)
    );
    for message in &there {
        assert_eq!(message["id"].as_str().unwrap().len(), 21);
        assert!(message["token_count"].is_u64() && message["metadata"].is_object(), "{message}");
        let path = format!("{THEIRS}/sessions/s/messages/{}", message["id"].as_str().unwrap());
        assert_eq!(&client.get(&path).ok(), message);
    }
    let context = client.get(&format!("{THEIRS}/sessions/s/context")).ok();
    let given = each(context["messages"].as_array().unwrap(), "id");
    assert!(given.ends_with(&each(&there[4..], "id")), "{context}");
    let body = json!({"query": "walrus", "filters": null, "limit": 10});
    let found = client.post(&format!("{THEIRS}/sessions/s/search"), &body).ok();
    assert_eq!(each(found.as_array().unwrap(), "peer_id"), ["ann"]);
    let sessions = client.post(&format!("{THEIRS}/sessions/list"), &json!({})).ok();
    assert_eq!(each(sessions["items"].as_array().unwrap(), "id"), ["s"]);
}

#[test]
fn native_and_honcho_routes_may_write_to_one_session() {
    let server = Server::start();
    let mut client = own(&server);
    for at in 1..=40_usize {
        if at.is_multiple_of(3) {
            add(
                &mut client,
                "s",
                &json!([{"role": "user", "name": "eve", "content": format!("Native {at}.")}]),
            );
        } else {
            tell(&mut client, "s", &json!([{"peer_id": "ann", "content": format!("Theirs {at}.")}]));
        }
    }
    settle(&mut client);
    let theirs = listed(&mut client, "s");
    let ours = pages(&mut client, "/v1/sessions/s/messages", 50);
    assert_eq!(each(&theirs, "content"), texts(&ours));
    let wanted =
        |at: usize| if at.is_multiple_of(3) { format!("Native {at}.") } else { format!("Theirs {at}.") };
    assert_eq!(texts(&ours), (1..=40).map(wanted).collect::<Vec<_>>());
    let summaries = client.get(&format!("{THEIRS}/sessions/s/summaries")).ok();
    assert_eq!(summaries["short_summary"]["message_id"], theirs[39]["id"]);
    let own = client.get("/v1/sessions/s/summaries").ok();
    assert_eq!(
        (&own["items"][0]["through"], &own["items"][0]["text"]),
        (&json!(40), &summaries["short_summary"]["content"],)
    );
}

#[test]
fn clones_are_native_sessions_and_forks_are_honcho_sessions() {
    let server = Server::start();
    let mut client = own(&server);
    tell(&mut client, "s", &json!(parcels(1, 5)));
    let clone = client.send("POST", &format!("{THEIRS}/sessions/s/clone"), &[], None).ok();
    let name = clone["id"].as_str().unwrap();
    assert_eq!(pages(&mut client, &format!("/v1/sessions/{name}/messages"), 50).len(), 5);
    client.post("/v1/sessions/s/fork", &json!({"name": "fork"})).ok();
    assert_eq!(listed(&mut client, "fork").len(), 5);
    let sessions = client.post(&format!("{THEIRS}/sessions/list"), &json!({})).ok();
    assert_eq!(each(sessions["items"].as_array().unwrap(), "id"), ["s", name, "fork"]);
}

#[test]
fn a_deletion_through_one_api_is_visible_in_the_other() {
    let server = Server::start();
    let mut client = own(&server);
    for name in ["a", "b", "c"] {
        tell(&mut client, name, &json!(parcels(1, 3)));
    }
    assert_eq!(client.send("DELETE", &format!("{THEIRS}/sessions/a"), &[], None).status, 202);
    client.send("DELETE", "/v1/sessions/b", &[], None).ok();
    assert_eq!(client.get("/v1/sessions/a").status, 404);
    assert_eq!(listed(&mut client, "b"), Vec::<Value>::new());
    let sessions = client.post(&format!("{THEIRS}/sessions/list"), &json!({})).ok();
    assert_eq!(each(sessions["items"].as_array().unwrap(), "id"), ["c"]);
}

#[test]
fn how_often_v3_wants_summaries_holds_for_what_is_said_natively() {
    let server = Server::start();
    let mut client = own(&server);
    let often = json!({"summary": {"messages_per_short_summary": 10, "messages_per_long_summary": 20}});
    client.post(&format!("{THEIRS}/sessions"), &json!({"id": "s", "configuration": often})).ok();
    add(&mut client, "s", &crate::talk::talk(1, 25));
    settle(&mut client);
    let summaries = client.get("/v1/sessions/s/summaries").ok();
    let mut through: Vec<(String, u64)> = summaries["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["slot"].as_str().unwrap().to_owned(), one["through"].as_u64().unwrap()))
        .collect();
    through.sort();
    assert_eq!(through, [("long".to_owned(), 20), ("short".to_owned(), 20)]);
    let there = listed(&mut client, "s");
    let told = client.get(&format!("{THEIRS}/sessions/s/summaries")).ok();
    assert_eq!(
        (&told["short_summary"]["message_id"], &told["long_summary"]["message_id"]),
        (&there[19]["id"], &there[19]["id"],)
    );
}

/// Converts a database to the tables of an earlier release, which stored Honcho's configurations in a column of their own.
fn age(folder: &std::path::Path) {
    let tables = ["workspaces", "sessions", "authors", "members"];
    // The text around it: `{"honcho":` and `}`.
    let back = |schema: &str| {
        tables.map(|table| {
            format!(
                "UPDATE {schema}{table} SET attributes = substr(attributes, 11, length(attributes) - 11) WHERE attributes <> ''; \
                 ALTER TABLE {schema}{table} RENAME COLUMN attributes TO configuration; "
            )
        })
    };
    if epitome_testkit::both_stores::on_postgres() {
        let done = "DELETE FROM epitome.migrations WHERE version > 6";
        meddle(folder, &(back("epitome.").concat() + done));
    } else {
        let done = "DELETE FROM migrations WHERE version > 7; PRAGMA user_version = 7";
        sql(&folder.join("a.db"), &(back("").concat() + done));
    }
}

#[test]
fn a_database_of_the_release_before_answers_v3_as_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::on(folder.path(), &[], &[]);
    let mut client = server.client();
    let often = json!({"summary": {"messages_per_short_summary": 15}, "odd": {"é": [1.50, null, "}"]}});
    client.post("/v3/workspaces", &json!({"id": "w", "configuration": often})).ok();
    client.post("/v3/workspaces", &json!({"id": "plain", "metadata": {"a": 1}})).ok();
    let session =
        json!({"id": "s", "configuration": often, "peers": {"ann": {"observe_me": false}, "bob": {}}});
    client.post(&format!("{THEIRS}/sessions"), &session).ok();
    client
        .post(&format!("{THEIRS}/peers"), &json!({"id": "ann", "configuration": {"observe_me": true}}))
        .ok();
    let asked = |server: &Server| {
        let mut client = own(server);
        let lists = ["/v3/workspaces/list", "/v3/workspaces/w/sessions/list", "/v3/workspaces/w/peers/list"];
        let mut told = lists.map(|path| client.post(path, &json!({})).ok()).to_vec();
        for peer in ["ann", "bob"] {
            told.push(client.get(&format!("{THEIRS}/sessions/s/peers/{peer}/config")).ok());
        }
        told.push(client.get("/v1/sessions/s").ok());
        told
    };
    let before = asked(&server);
    assert_eq!(before[1]["items"][0]["configuration"]["odd"], often["odd"], "{}", before[1]);
    assert_eq!(before[3], json!({"observe_me": false, "observe_others": null}));
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    age(folder.path());
    let server = Server::on(folder.path(), &[], &[]);
    assert_eq!(asked(&server), before);
    // A later change is merged into the old configuration.
    let more = json!({"configuration": {"more": {}}});
    let now = server.client().json("PUT", &format!("{THEIRS}/sessions/s"), &more).ok();
    assert_eq!((&now["configuration"]["odd"], &now["configuration"]["more"]), (&often["odd"], &json!({})));
}
