//! Tokens as Honcho signs them: what each of them allows.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::server::{Answer, Client, Server, command, db};
use crate::v3_routes::{Call, Names, Needs, calls, refused, snapshot};

mod sign;

use sign::by;
pub use sign::{SECRET, signed};

const FLAGS: [&str; 2] = ["--set", "server.jwt_secret_env=THE_SECRET"];

/// Starts a server that requires keys and accepts tokens.
fn server(flags: &[&str]) -> Server {
    let flags = [FLAGS.as_slice(), &["--require-keys", "always"], flags].concat();
    Server::with(&flags, &[("THE_SECRET", SECRET)])
}

fn admin(server: &Server) -> Client {
    server.client().key(&signed(&json!({"ad": true})))
}

/// Creates a workspace `w` with the session `s` of ann and bob, and the session `other` of bob alone. Returns the id of a
/// message of each.
fn talk(server: &Server) -> [String; 2] {
    let mut admin = admin(server);
    let mut say = |session: &str, peer: &str| {
        let said = json!({"messages": [{"content": format!("An order of {peer}'s."), "peer_id": peer}]});
        let path = format!("/v3/workspaces/w/sessions/{session}/messages");
        admin.post(&path, &said).ok()[0]["id"].as_str().unwrap().to_owned()
    };
    say("s", "bob");
    [say("s", "ann"), say("other", "bob")]
}

/// Whether the caller was authorized.
#[track_caller]
fn open(answer: &Answer, call: &Call) -> bool {
    if answer.status == 401 {
        refused(answer, 401);
        return false;
    }
    assert!(answer.status < 300 || answer.status == 501, "{} {}", call.what(), answer.text());
    true
}

/// Returns which calls a token allows. Deletions are not tried.
fn opened(server: &Server, claims: &Value, about: &Names) -> Vec<String> {
    let mut client = server.client().key(&signed(claims));
    let calls = calls(about).into_iter().filter(|call| call.method != "DELETE");
    let opened = calls.filter(|call| open(&call.send(&mut client), call));
    opened
        .map(|call| format!("{} {}", call.method, call.route.replace("/v3/workspaces/{workspace}", "")))
        .collect()
}

#[test]
fn a_token_for_a_workspace_allows_all_of_it() {
    let server = server(&[]);
    let [message, _] = talk(&server);
    let mut client = server.client().key(&signed(&json!({"w": "w", "t": "2026-11-15T02:17:04.121578"})));
    for call in calls(&Names::new("w", "s", "ann", &message)) {
        let answer = call.send(&mut client);
        match call.needs {
            Needs::Admin => drop(refused(&answer, 401)),
            // The other session still exists.
            _ if call.what() == "DELETE /v3/workspaces/w" => drop(refused(&answer, 409)),
            _ => assert!(open(&answer, &call), "{}", call.what()),
        }
    }
}

#[test]
fn a_token_for_everything_allows_everything() {
    let server = server(&[]);
    let [message, _] = talk(&server);
    for claims in [json!({"ad": true}), json!({"ad": true, "w": "elsewhere", "s": "x", "p": "y"})] {
        let opened = opened(&server, &claims, &Names::new("w", "s", "ann", &message));
        let all = calls(&Names::new("w", "s", "ann", &message));
        assert_eq!(opened.len(), all.iter().filter(|call| call.method != "DELETE").count());
    }
    // A claim that is false counts as missing.
    assert_eq!(
        server.client().key(&signed(&json!({"ad": false}))).post("/v3/workspaces/list", &json!({})).status,
        401
    );
}

#[test]
fn a_token_for_a_session_allows_only_that_session() {
    let server = server(&[]);
    let [message, other] = talk(&server);
    let before = snapshot(&server, &mut admin(&server), "w").len();
    let claims = json!({"w": "w", "s": "s"});
    let mut session = opened(&server, &claims, &Names::new("w", "s", "ann", &message));
    session.sort();
    let mut wanted: Vec<String> = calls(&Names::new("w", "s", "ann", &message))
        .iter()
        .filter(|call| call.method != "DELETE" && call.route.contains("{session}"))
        .map(|call| format!("{} {}", call.method, call.route.replace("/v3/workspaces/{workspace}", "")))
        .collect();
    // Clients get a workspace and a session before they use them.
    wanted.extend(["POST /v3/workspaces", "POST /sessions"].map(str::to_owned));
    wanted.sort();
    assert_eq!(session, wanted);
    let outside = opened(&server, &claims, &Names::new("w", "other", "bob", &other));
    assert_eq!(outside, ["POST /v3/workspaces"]);
    let nowhere = opened(&server, &claims, &Names::new("w", "new", "bob", &other));
    assert_eq!(nowhere, outside);
    let mut client = server.client().key(&signed(&claims));
    refused(&client.send("DELETE", "/v3/workspaces/w/sessions/other", &[], None), 401);
    refused(&client.send("DELETE", "/v3/workspaces/w", &[], None), 401);
    let noted = json!({"id": "w", "metadata": {"a": 1}});
    refused(&client.post("/v3/workspaces", &noted), 401);
    // A token with a session and a peer is limited to the session.
    let both = signed(&json!({"w": "w", "s": "s", "p": "ann"}));
    assert_eq!(server.client().key(&both).get("/v3/workspaces/w/sessions/s/context").status, 200);
    assert_eq!(server.client().key(&both).json("PUT", "/v3/workspaces/w/peers/ann", &json!({})).status, 401);
    // The session was cloned, and nothing else was created.
    assert!(snapshot(&server, &mut admin(&server), "w").len() > before);
    client.send("DELETE", "/v3/workspaces/w/sessions/s", &[], None).ok();
}

#[test]
fn a_token_for_a_peer_allows_that_peer_and_reads_its_sessions() {
    let server = server(&[]);
    let [message, other] = talk(&server);
    let claims = json!({"w": "w", "p": "ann"});
    let within = |about: &Names| {
        let mut opened = opened(&server, &claims, about);
        opened.sort();
        opened
    };
    // A peer may write its own metadata.
    admin(&server).json("PUT", "/v3/workspaces/w/peers/ann", &json!({"metadata": {"note": 1}})).ok();
    let sessions = snapshot(&server, &mut admin(&server), "w");
    let own = within(&Names::new("w", "s", "ann", &message));
    let wanted = [
        "GET /peers/{peer}/context",
        "GET /sessions/{session}/context",
        "GET /sessions/{session}/messages/{message}",
        "GET /sessions/{session}/peers",
        "GET /sessions/{session}/peers/{peer}/config",
        "GET /sessions/{session}/summaries",
        "POST /peers",
        "POST /peers/{peer}/card",
        "POST /peers/{peer}/chat",
        "POST /peers/{peer}/representation",
        "POST /peers/{peer}/search",
        "POST /peers/{peer}/sessions",
        "POST /sessions",
        "POST /sessions/{session}/messages/list",
        "POST /sessions/{session}/search",
        "POST /v3/workspaces",
        "PUT /peers/{peer}",
    ];
    assert_eq!(own, wanted);
    let reads: Vec<&str> = wanted
        .into_iter()
        .filter(|what| what.contains("/sessions") && !what.contains("/peers/{peer}/s"))
        .collect();
    let of_another: Vec<String> = within(&Names::new("w", "s", "bob", &message));
    let any = ["POST /v3/workspaces"];
    let mut wanted = [reads.as_slice(), &any].concat();
    wanted.sort_unstable();
    assert_eq!(of_another, wanted, "another peer's are closed, but in a session of both");
    assert_eq!(within(&Names::new("w", "other", "bob", &other)), any);
    assert_eq!(within(&Names::new("w", "new", "bob", &other)), any);
    let mut client = server.client().key(&signed(&claims));
    for (path, body) in [
        ("/v3/workspaces/w/sessions", json!({"id": "s", "metadata": {"a": 1}})),
        ("/v3/workspaces/w/sessions", json!({"id": "s", "peers": {"ann": {}}})),
        ("/v3/workspaces/w/sessions", json!({"id": "new"})),
        ("/v3/workspaces/w/peers", json!({"id": "bob"})),
    ] {
        refused(&client.post(path, &body), 401);
    }
    let now = snapshot(&server, &mut admin(&server), "w");
    assert_eq!(
        (now[0].as_str(), &now[3..]),
        (sessions[0].as_str(), &sessions[3..]),
        "nothing was changed in sessions"
    );
    // A peer that left the session may not read it any more.
    let left = json!(["ann"]);
    admin(&server).json("DELETE", "/v3/workspaces/w/sessions/s/peers", &left).ok();
    refused(&client.get("/v3/workspaces/w/sessions/s/context"), 401);
}

#[test]
fn invalid_tokens_are_refused() {
    let server = server(&[]);
    talk(&server);
    let header = json!({"alg": "HS256", "typ": "JWT"});
    let all = json!({"ad": true});
    let good = signed(&all);
    let (told, tag) = good.rsplit_once('.').unwrap();
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let claims = URL_SAFE_NO_PAD.encode(all.to_string());
    let bad = [
        signed(&json!({"ad": true, "exp": "2020-01-01T00:00:00Z"})),
        signed(&json!({"ad": true, "exp": 1_600_000_000})),
        signed(&json!({"ad": true, "exp": "soon"})),
        signed(&json!({"ad": "true"})),
        signed(&json!({})),
        signed(&json!([])),
        signed(&json!({"s": "s"})),
        signed(&json!({"p": "ann"})),
        signed(&json!({"w": ""})),
        signed(&json!({"w": "w", "s": ""})),
        signed(&json!({"w": ["w"]})),
        by("another secret", &header, &all),
        by("", &header, &all),
        by(SECRET, &json!({"alg": "none"}), &all),
        by(SECRET, &json!({"alg": "RS256"}), &all),
        by(SECRET, &json!({"alg": "hs256"}), &all),
        by(SECRET, &json!({"alg": "HS256", "crit": ["b64"]}), &all),
        format!("{none}.{claims}."),
        format!("{none}.{claims}"),
        format!("{told}."),
        told.to_owned(),
        format!("{told}.{}", tag.to_lowercase()),
        format!("{good}="),
        format!("{told}.{tag}.{tag}"),
        "..".to_owned(),
        "a.b.c".to_owned(),
        "x".repeat(20_000),
    ];
    admin(&server).post("/v3/workspaces/list", &json!({})).ok();
    for (at, token) in bad.iter().enumerate() {
        for path in ["/v3/workspaces/list", "/v3/workspaces/w/sessions/list"] {
            let answer = server.client().key(token).post(path, &json!({}));
            assert_eq!(answer.status, 401, "{at}: {}", answer.text());
            let told = refused(&answer, 401);
            assert!(!told.as_str().unwrap().contains("Zq7"), "{told}");
        }
    }
    // Tokens are for v3 only.
    assert_eq!(server.client().key(&good).get("/v1/sessions").status, 401);
    // Valid tokens are valid until they expire.
    let later = json!({"w": "w", "exp": "2999-01-01T00:00:00Z"});
    server.client().key(&signed(&later)).post("/v3/workspaces/w/sessions/list", &json!({})).ok();
}

/// Creates a key with `POST /v3/keys` and this query.
fn key(client: &mut Client, query: &str) -> Answer {
    client.send("POST", &format!("/v3/keys{query}"), &[], None)
}

#[test]
fn only_operators_create_tokens() {
    let server = server(&[]);
    talk(&server);
    let mut admin = admin(&server);
    let mut make = |query: &str| key(&mut admin, query).ok()["key"].as_str().unwrap().to_owned();
    let whole = make("?workspace_id=w");
    let session = make("?workspace_id=w&session_id=s");
    let peer = make("?workspace_id=w&peer_id=ann");
    let short = make("?workspace_id=w&expires_at=2020-01-01T00:00:00Z");
    let long = make("?workspace_id=w&expires_at=2999-01-01T00%3A00%3A00%2B00%3A00");
    let reads = |token: &str, session: &str| {
        let path = format!("/v3/workspaces/w/sessions/{session}/context");
        server.client().key(token).get(&path).status
    };
    assert_eq!(
        [&whole, &session, &peer, &short, &long].map(|key| reads(key, "s")),
        [200, 200, 200, 401, 200]
    );
    assert_eq!(
        [&whole, &session, &peer, &short, &long].map(|key| reads(key, "other")),
        [200, 401, 401, 401, 200]
    );
    assert_eq!(server.client().key(&whole).get("/v3/workspaces/v/sessions/s/context").status, 401);
    for narrow in [&whole, &session, &peer] {
        refused(&key(&mut server.client().key(narrow), "?workspace_id=w"), 401);
    }
    refused(&key(&mut server.client(), "?workspace_id=w"), 401);
    refused(&key(&mut admin, ""), 422);
    refused(&key(&mut admin, "?session_id=s"), 422);
    let soon = key(&mut admin, "?workspace_id=w&expires_at=soon");
    refused(&soon, 422);
    assert_eq!(soon.json()["detail"][0]["loc"], json!(["query", "expires_at"]));
}

#[test]
fn without_a_secret_epitome_keys_are_created() {
    let server = Server::with(&["--require-keys", "always"], &[]);
    let made = command(&server.folder)
        .args(["keys", "create", "--db", &db(&server.folder), "--admin"])
        .output()
        .unwrap();
    let mut admin = server.client().key(String::from_utf8(made.stdout).unwrap().trim());
    let made = key(&mut admin, "?workspace_id=w").ok()["key"].as_str().unwrap().to_owned();
    assert!(made.starts_with("epk_"), "{made}");
    let mut client = server.client().key(&made);
    assert_eq!(client.post("/v3/workspaces", &json!({"id": "w"})).status, 201);
    refused(&client.post("/v3/workspaces", &json!({"id": "v"})), 401);
    refused(&key(&mut client, "?workspace_id=w"), 401);
    refused(&key(&mut admin, "?workspace_id=w&session_id=s"), 422);
    let over = key(&mut admin, "?workspace_id=w&expires_at=2020-01-01T00:00:00Z");
    let over = over.json()["key"].as_str().unwrap_or_default().to_owned();
    refused(&server.client().key(&over).post("/v3/workspaces/w/sessions/list", &json!({})), 401);
    // Tokens are not accepted here, however they are signed.
    for token in [signed(&json!({"ad": true})), by("", &json!({"alg": "HS256"}), &json!({"ad": true}))] {
        refused(&server.client().key(&token).post("/v3/workspaces/list", &json!({})), 401);
    }
}

#[test]
fn where_no_key_is_required_foreign_keys_are_ignored() {
    let server = Server::start();
    refused(&key(&mut server.client(), "?workspace_id=w"), 405);
    let token = signed(&json!({"w": "elsewhere"}));
    let odd = [
        "Bearer hch-v3-abc",
        "Bearer x.y.z",
        "Bearer",
        "Basic YTpi",
        "",
        "hch-v3-abc",
        "Bearer \u{e9}",
        &format!("Bearer {token}"),
    ];
    for odd in odd {
        let mut client = server.client().with("authorization", odd);
        assert!(client.post("/v3/workspaces", &json!({"id": "w"})).status < 300, "{odd}");
        assert_eq!(client.get("/v3/workspaces/w/sessions/s/context").status, 200, "{odd}");
        refused(&key(&mut client, "?workspace_id=w"), 405);
        // Requests from pages of other sites are refused nevertheless.
        let mut page = server.client().with("authorization", odd).with("origin", "https://evil.example");
        refused(&page.post("/v3/workspaces", &json!({"id": "evil"})), 401);
        let head = format!(
            "GET /v3/workspaces/w/sessions/s/context HTTP/1.1\r\nhost: evil.example\r\nauthorization: {odd}\r\n\r\n"
        );
        refused(&server.client().raw(head.as_bytes(), false), 401);
    }
    for call in calls(&Names::new("w", "s", "p", "m")) {
        refused(&call.send(&mut server.client().with("origin", "https://evil.example")), 401);
        // A form can be sent without a CORS check, but its content type is not JSON.
        if let Some(body) = &call.body {
            let body = body.to_string();
            let sent = server.client().send(
                call.method,
                &call.path,
                &[("content-type", "text/plain")],
                Some(body.as_bytes()),
            );
            assert!([415, 501].contains(&sent.status), "{} {}", call.what(), sent.text());
        }
    }
    let listed = server.client().post("/v3/workspaces/list", &json!({})).ok();
    assert_eq!(listed["total"], 1, "{listed}");
    // An Epitome key is checked.
    refused(&server.client().key("epk_0123456789abcdef_0").post("/v3/workspaces/list", &json!({})), 401);
}

#[test]
fn with_a_secret_every_address_requires_a_token_or_a_key() {
    let words = {
        let server = Server::with(&["--require-keys", "always"], &[]);
        refused(&server.client().post("/v3/workspaces/list", &json!({})), 401)
    };
    for more in [[].as_slice(), &["--require-keys", "never"], &["--require-keys", "always"]] {
        let server = Server::with(&[FLAGS.as_slice(), more].concat(), &[("THE_SECRET", SECRET)]);
        for call in calls(&Names::new("w", "s", "p", "m")) {
            assert_eq!(refused(&call.send(&mut server.client()), 401), words, "{} {more:?}", call.what());
        }
        for odd in ["Bearer hch-v3-abc", "Bearer", "Basic YTpi", "", "Bearer epk_0123456789abcdef_0"] {
            let mut client = server.client().with("authorization", odd);
            refused(&client.post("/v3/workspaces", &json!({"id": "w"})), 401);
        }
        talk(&server);
        // Epitome keys are valid too; only admin keys create others.
        let made = |flags: &[&str]| {
            let made = command(&server.folder)
                .args(["keys", "create", "--db", &db(&server.folder)])
                .args(flags)
                .output();
            String::from_utf8(made.unwrap().stdout).unwrap().trim().to_owned()
        };
        let (own, all) = (made(&["--workspace", "w", "--rights", "write"]), made(&["--admin"]));
        for (token, reads, makes) in [
            (signed(&json!({"ad": true})), 200, 200),
            (all, 200, 200),
            (own, 200, 401),
            (signed(&json!({"w": "w"})), 200, 401),
            (signed(&json!({"w": "v"})), 401, 401),
        ] {
            let mut client = server.client().key(&token);
            assert_eq!(client.get("/v3/workspaces/w/sessions/s/context").status, reads, "{more:?}");
            assert_eq!(key(&mut client, "?workspace_id=w").status, makes, "{more:?}");
        }
        // The native routes depend on the setting for keys alone.
        let wanted = if more.contains(&"always") { 401 } else { 200 };
        assert_eq!(server.client().get("/v1/sessions").status, wanted, "{more:?}");
    }
}

#[test]
fn a_weak_secret_is_reported() {
    let (short, long) = ("x".repeat(31), "x".repeat(32));
    let (weak, none) = ("is shorter than 32 bytes", "no key exists yet");
    for (secret, said, unsaid) in [
        (None, none, weak),
        (Some(&short), weak, none),
        (Some(&long), "starting", weak),
        (Some(&long), "starting", none),
    ] {
        for more in [[].as_slice(), &["--require-keys", "always"]] {
            let flags = if secret.is_some() { FLAGS.as_slice() } else { &[] };
            let env: Vec<_> = secret.iter().map(|secret| ("THE_SECRET", secret.as_str())).collect();
            let server = Server::with(&[flags, more].concat(), &env);
            let log = server.log();
            assert!(!log.contains(unsaid) && !log.contains("no keys are required"), "{log}");
            // On loopback nothing is reported about keys.
            assert!(log.contains(said) || secret.is_none() && more.is_empty(), "{log}");
        }
    }
}

#[test]
fn a_missing_secret_stops_the_server_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    for value in [None, Some(""), Some("  ")] {
        let mut run = command(folder.path());
        run.args(["serve", "--db", &db(folder.path()), "--listen", "127.0.0.1:0"]).args(FLAGS);
        if let Some(value) = value {
            run.env("THE_SECRET", value);
        }
        let output = run.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(output.stdout.is_empty());
        assert!(said.starts_with("epitome: ") && said.lines().count() == 1, "{said}");
        assert!(said.contains("server.jwt_secret_env") && said.contains("THE_SECRET"), "{said}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "no database was made");
    // A secret that was set in place of a variable's name is not repeated.
    let run = ["serve", "--db", &db(folder.path()), "--listen", "127.0.0.1:0", "--set"];
    let set = format!("server.jwt_secret_env={SECRET}");
    let output = command(folder.path()).args(run).arg(set).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(!said.contains("Zq7"), "{said}");
}

#[test]
fn the_log_contains_no_secret_token_or_name() {
    for format in ["text", "json"] {
        let server = server(&["--log-level", "debug", "--log-format", format]);
        let mut admin = admin(&server);
        let made =
            key(&mut admin, "?workspace_id=Zq7w&session_id=Zq7s").ok()["key"].as_str().unwrap().to_owned();
        let bad = by("Zq7Another", &json!({"alg": "HS256"}), &json!({"w": "Zq7w"}));
        let about = Names::new("Zq7w", "Zq7s", "Zq7p", "Zq7m");
        let tokens = [signed(&json!({"ad": true})), made, bad, "Zq7".to_owned(), "Zq7.Zq7.Zq7".to_owned()];
        let mut asked = 0;
        for token in &tokens {
            for call in calls(&about).into_iter().map(|call| call.with_query("?Zq7=Zq7&tokens=Zq7")) {
                call.send(&mut server.client().key(token));
                asked += 1;
            }
        }
        let log = server.log();
        assert!(
            log.matches("answered").count() + log.matches("failed").count() >= asked,
            "each request is in the log"
        );
        assert!(
            log.contains("/v3/workspaces/{workspace}/sessions/{session}/messages"),
            "by the shape of its path"
        );
        assert!(!log.to_lowercase().contains("zq7"), "{log}");
        for token in tokens.iter().filter(|token| token.len() > 20) {
            for part in token.split('.').skip(1) {
                assert!(!log.contains(part), "{log}");
            }
        }
    }
}
