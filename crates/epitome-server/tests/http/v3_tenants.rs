//! Tenants through v3: no workspace shows anything of another, and no session anything of another.

use serde_json::{Value, json};

use crate::server::{Answer, Client, Server, command, db};
use crate::v3_routes::{Names, Needs, calls, refused, snapshot};
use crate::v3_tokens::{SECRET, signed};

/// A server that requires keys and accepts tokens, with the workspaces `alpha` and `beta` and sessions of the same names.
struct Tenants {
    server: Server,
    admin: String,
    beta: String,
    beta_reads: String,
    /// The id of a message in `alpha`.
    message: String,
}

fn made(server: &Server, args: &[&str]) -> String {
    let made = command(&server.folder)
        .args(["keys", "create", "--db", &db(&server.folder)])
        .args(args)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

impl Tenants {
    fn new() -> Self {
        let flags = ["--require-keys", "always", "--set", "server.jwt_secret_env=THE_SECRET"];
        let server = Server::with(&flags, &[("THE_SECRET", SECRET)]);
        let admin = made(&server, &["--admin"]);
        let key = |rights: &str| made(&server, &["--workspace", "beta", "--rights", rights]);
        let (beta, beta_reads) = (key("write"), key("read"));
        let mut tenants = Self { server, admin, beta, beta_reads, message: String::new() };
        tenants.message = tenants.talk("alpha", "both", 25, "submarine order");
        tenants.talk("alpha", "plans", 3, "submarine order");
        tenants.talk("beta", "both", 2, "order");
        for workspace in ["alpha", "beta"] {
            let within = format!("/v3/workspaces/{workspace}");
            let mut admin = tenants.admin();
            admin.json("PUT", &within, &json!({"metadata": {"whose": workspace}})).ok();
            let noted = json!({"id": "both", "metadata": {"whose": workspace}, "peers": {"ann": {"observe_me": false}}});
            admin.post(&format!("{within}/sessions"), &noted).ok();
            tenants.settle(workspace);
        }
        tenants
    }

    fn admin(&self) -> Client {
        self.server.client().key(&self.admin)
    }

    /// Adds messages, and returns the id of the first.
    fn talk(&self, workspace: &str, session: &str, count: usize, words: &str) -> String {
        let said = |n| json!({"content": format!("{words} {n}0071"), "peer_id": "ann"});
        let messages: Vec<Value> = (1..=count).map(said).collect();
        let path = format!("/v3/workspaces/{workspace}/sessions/{session}/messages");
        let added = self.admin().post(&path, &json!({"messages": messages})).ok();
        added[0]["id"].as_str().unwrap().to_owned()
    }

    /// Waits until all due summaries are written.
    fn settle(&self, workspace: &str) {
        let path = format!("/v3/workspaces/{workspace}/queue/status");
        let left =
            |status: &Value| status["pending_work_units"] != 0 || status["in_progress_work_units"] != 0;
        while left(&self.admin().get(&path).ok()) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    fn snapshot(&self, workspace: &str) -> Vec<String> {
        snapshot(&self.server, &mut self.admin(), workspace)
    }
}

#[test]
fn another_workspace_gets_the_same_error_whether_it_exists_or_not() {
    let tenants = Tenants::new();
    let before = tenants.snapshot("alpha");
    assert!(before.iter().any(|kept| kept.contains("submarine")));
    let own = json!({"w": "beta"});
    let callers = [
        tenants.beta.clone(),
        tenants.beta_reads.clone(),
        signed(&own),
        signed(&json!({"w": "beta", "s": "both"})),
        signed(&json!({"w": "beta", "p": "ann"})),
        signed(&json!({"w": "Alpha"})),
        signed(&json!({"w": "al"})),
    ];
    for caller in &callers {
        let mut client = tenants.server.client().key(caller);
        let abouts = [
            Names::new("alpha", "both", "ann", &tenants.message),
            Names::new("alpha", "nowhere", "nobody", "AAAAAAAAAAAAAAAAAAAAA"),
            Names::new("nowhere", "both", "ann", &tenants.message),
        ];
        let mut told = Vec::new();
        for call in abouts.iter().flat_map(calls).filter(|call| call.needs != Needs::Key) {
            let answer = call.send(&mut client);
            refused(&answer, 401);
            assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"epitome\"");
            if call.needs != Needs::Admin {
                told.push((call.what(), answer.body));
            }
        }
        let (_, first) = &told[0];
        for (what, body) in &told {
            assert_eq!(body, first, "{what}");
        }
    }
    assert_eq!(tenants.snapshot("alpha"), before, "another tenant's data was changed");
    let listed = tenants.admin().post("/v3/workspaces/list", &json!({})).ok();
    assert_eq!(listed["total"], 2, "{listed}");
}

#[test]
fn requests_without_a_valid_key_are_refused() {
    let tenants = Tenants::new();
    let before = tenants.snapshot("beta");
    let revoked = made(&tenants.server, &["--workspace", "beta", "--rights", "write"]);
    tenants.admin().send("DELETE", &format!("/v1/keys/{}", &revoked[4..20]), &[], None).ok();
    let mut unknown = tenants.beta.clone();
    let last = if unknown.ends_with('0') { "1" } else { "0" };
    unknown.replace_range(unknown.len() - 1.., last);
    let odd = ["hch-v3-something", "epk_", "x", "", "a.b.c", &revoked, &unknown];
    for call in calls(&Names::new("beta", "both", "ann", "AAAAAAAAAAAAAAAAAAAAA")) {
        refused(&call.send(&mut tenants.server.client()), 401);
        for odd in odd {
            refused(&call.send(&mut tenants.server.client().key(odd)), 401);
        }
        let twice = &mut tenants.server.client().key(&tenants.beta).key(&tenants.beta);
        refused(&call.send(twice), 401);
    }
    assert_eq!(tenants.snapshot("beta"), before);
}

/// The body of an unauthorized caller is not read, so the caller learns nothing about it.
#[test]
fn an_unauthorized_caller_learns_nothing_about_its_request() {
    let tenants = Tenants::new();
    for mut call in calls(&Names::new("alpha", "both", "ann", &tenants.message)) {
        // These name the workspace in the body.
        if matches!(call.route, "/v3/workspaces" | "/v3/workspaces/list") {
            continue;
        }
        call.form = Some(("text/odd", b"{no json".to_vec()));
        let call = call.with_query("?page=x&tokens=y&expires_at=z");
        refused(&call.send(&mut tenants.server.client()), 401);
        refused(&call.send(&mut tenants.server.client().key(&tenants.beta)), 401);
    }
}

#[test]
fn a_read_key_reads_everything_and_changes_nothing() {
    let tenants = Tenants::new();
    let before = tenants.snapshot("beta");
    let first: Value = serde_json::from_str(&before[3]).unwrap();
    let message = first["items"][0]["id"].as_str().unwrap().to_owned();
    let mut client = tenants.server.client().key(&tenants.beta_reads);
    for call in calls(&Names::new("beta", "both", "ann", &message)) {
        let answer = call.send(&mut client);
        match call.needs {
            Needs::Key | Needs::Read | Needs::Make if answer.status == 501 => drop(refused(&answer, 501)),
            Needs::Key | Needs::Read | Needs::Make => assert_eq!(answer.status, 200, "{}", call.what()),
            Needs::Write | Needs::Admin => drop(refused(&answer, 401)),
        }
    }
    // Nothing was created or changed.
    for call in
        calls(&Names::new("beta", "new", "new", &message)).iter().filter(|call| call.needs == Needs::Make)
    {
        let mut more = call.clone();
        more.body.as_mut().unwrap()["metadata"] = json!({"note": 1});
        refused(&more.send(&mut client), 401);
        if call.route != "/v3/workspaces" {
            refused(&call.send(&mut client), 401);
        }
    }
    let joining = json!({"id": "both", "peers": {"bob": {}}});
    refused(&client.post("/v3/workspaces/beta/sessions", &joining), 401);
    assert_eq!(tenants.snapshot("beta"), before);
}

#[test]
fn a_key_lists_only_its_own_workspace() {
    let tenants = Tenants::new();
    let names = |client: &mut Client, filters: Value| -> Vec<String> {
        let page = client.post("/v3/workspaces/list", &json!({"filters": filters})).ok();
        let names: Vec<_> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(page["total"], names.len(), "{page}");
        names
    };
    for key in [&tenants.beta, &tenants.beta_reads, &signed(&json!({"w": "beta"}))] {
        let mut client = tenants.server.client().key(key);
        assert_eq!(names(&mut client, json!(null)), ["beta"]);
        assert_eq!(names(&mut client, json!({"id": "beta"})), ["beta"]);
        assert_eq!(names(&mut client, json!({"id": "alpha"})), [""; 0]);
        assert_eq!(names(&mut client, json!({"NOT": [{"id": "beta"}]})), [""; 0]);
        assert_eq!(names(&mut client, json!({"metadata": {"whose": "alpha"}})), [""; 0]);
    }
    assert_eq!(names(&mut tenants.admin(), json!(null)), ["alpha", "beta"]);
    assert_eq!(names(&mut tenants.server.client().key(&signed(&json!({"w": "gone"}))), json!(null)), [""; 0]);
}

fn ids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_message_id_is_valid_only_in_its_own_session() {
    let tenants = Tenants::new();
    let mut admin = tenants.admin();
    let own = "/v3/workspaces/alpha/sessions/both";
    let clone =
        admin.send("POST", &format!("{own}/clone"), &[], None).ok()["id"].as_str().unwrap().to_owned();
    let message = &tenants.message;
    admin.get(&format!("{own}/messages/{message}")).ok();
    let before = [tenants.snapshot("alpha"), tenants.snapshot("beta")];
    let elsewhere = [
        format!("/v3/workspaces/alpha/sessions/{clone}"),
        "/v3/workspaces/alpha/sessions/plans".to_owned(),
        "/v3/workspaces/beta/sessions/both".to_owned(),
        "/v3/workspaces/alpha/sessions/nowhere".to_owned(),
        "/v3/workspaces/nowhere/sessions/both".to_owned(),
    ];
    for session in &elsewhere {
        let missing = |answer: Answer| {
            let told = refused(&answer, 404);
            assert!(told.as_str().unwrap().contains("not found"), "{told}");
        };
        missing(admin.get(&format!("{session}/messages/{message}")));
        missing(admin.json("PUT", &format!("{session}/messages/{message}"), &json!({"metadata": {"a": 1}})));
        missing(admin.send("POST", &format!("{session}/clone?message_id={message}"), &[], None));
        let named = json!({"filters": {"id": message}});
        assert_eq!(admin.post(&format!("{session}/messages/list"), &named).ok()["total"], 0);
    }
    assert_eq!([tenants.snapshot("alpha"), tenants.snapshot("beta")], before);
    // Nor in a new session of the same name.
    admin.send("DELETE", own, &[], None).ok();
    tenants.talk("alpha", "both", 2, "order");
    refused(&admin.get(&format!("{own}/messages/{message}")), 404);
}

#[test]
fn sessions_of_the_same_name_in_two_workspaces_are_separate() {
    let tenants = Tenants::new();
    let mut admin = tenants.admin();
    let within = |workspace: &str| format!("/v3/workspaces/{workspace}/sessions/both");
    let all = |client: &mut Client, workspace: &str, session: &str| {
        let path = format!("/v3/workspaces/{workspace}/sessions/{session}/messages/list?size=100");
        client.post(&path, &json!({})).ok()
    };
    let [alpha, beta] = ["alpha", "beta"].map(|workspace| all(&mut admin, workspace, "both"));
    assert_eq!((&alpha["total"], &beta["total"]), (&json!(25), &json!(2)));
    assert!(ids(&alpha).iter().all(|id| !ids(&beta).contains(id)));
    for workspace in ["alpha", "beta"] {
        let alone = if workspace == "alpha" { 25 } else { 2 };
        let clone = admin.send("POST", &format!("{}/clone", within(workspace)), &[], None).ok();
        let name = clone["id"].as_str().unwrap().to_owned();
        assert_eq!(
            (&clone["workspace_id"], &clone["metadata"]["whose"]),
            (&json!(workspace), &json!(workspace))
        );
        let messages = all(&mut admin, workspace, &name);
        assert_eq!(messages["total"], alone);
        for message in messages["items"].as_array().unwrap() {
            assert_eq!((&message["workspace_id"], &message["session_id"]), (&json!(workspace), &json!(name)));
            assert_eq!(message["content"].as_str().unwrap().contains("submarine"), workspace == "alpha");
        }
        let context = admin.get(&format!("{}/context?summary=false", within(workspace))).ok();
        assert_eq!(context["messages"].as_array().unwrap().len(), alone);
        let other = if workspace == "alpha" { "beta" } else { "alpha" };
        assert_eq!(all(&mut admin, other, &name)["total"], 0, "the clone is in its own workspace");
    }
    let mut beta = tenants.server.client().key(&tenants.beta);
    for path in ["/search", "/sessions/both/search", "/peers/ann/search"] {
        let path = format!("/v3/workspaces/beta{path}");
        assert_eq!(beta.post(&path, &json!({"query": "submarine"})).ok(), json!([]));
        assert!(!beta.post(&path, &json!({"query": "order"})).ok().as_array().unwrap().is_empty());
    }
    let summaries = beta.get("/v3/workspaces/beta/sessions/both/summaries").ok();
    assert_eq!(summaries["short_summary"], Value::Null, "two messages are not summarized: {summaries}");
    assert!(admin.get(&format!("{}/summaries", within("alpha"))).ok()["short_summary"].is_object());
    let before = tenants.snapshot("alpha");
    beta.send("DELETE", &within("beta"), &[], None).ok();
    assert_eq!(tenants.snapshot("alpha"), before);
    assert_eq!(all(&mut admin, "beta", "both")["total"], 0);
}

#[test]
fn a_clone_has_every_member_with_and_without_messages() {
    let server = Server::start();
    let mut client = server.client();
    let members: serde_json::Map<_, _> =
        (0..2_500).map(|n| (format!("peer-{n}"), json!({"observe_me": n % 2 == 0}))).collect();
    for said in [false, true] {
        let path = "/v3/workspaces/w/sessions/s";
        client.post(&format!("{path}/peers"), &json!(members)).ok();
        if said {
            let hello = json!({"messages": [{"content": "Hello.", "peer_id": "peer-7"}]});
            client.post(&format!("{path}/messages"), &hello).ok();
        }
        let clone = client.send("POST", &format!("{path}/clone"), &[], None).ok();
        let clone = format!("/v3/workspaces/w/sessions/{}", clone["id"].as_str().unwrap());
        assert_eq!(client.get(&format!("{clone}/peers")).ok()["total"], 2_500);
        let last = client.get(&format!("{clone}/peers/peer-2499/config")).ok();
        assert_eq!(last["observe_me"], false);
    }
}
