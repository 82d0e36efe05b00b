//! Thousands of malformed requests to every route of v3. Each gets an answer or an error in Honcho's format, never a
//! server error, and none damages what is stored.
//!
//! `requests.rs` generates them. Requests that one server refuses as invalid are sent to a second server too, which must be
//! unchanged afterwards.

use serde_json::{Value, json};

use crate::home::times;
use crate::rough::{Raw, peak_mib};
use crate::server::{Answer, Client, Server, command, db};
use crate::v3_routes::{Call, Names, calls, form, refused, snapshot};

mod requests;

use requests::{Malformed, Rng};

const SESSION: &str = "/v3/workspaces/w/sessions/s";

/// Fills a workspace, and returns the id of a message in it.
fn fill(client: &mut Client) -> String {
    let said = |n| json!({"content": format!("Order {n}0071 has not arrived."), "peer_id": "ann", "metadata": {"n": n}});
    let messages: Vec<Value> = (1..=5).map(said).collect();
    let said = client.post(&format!("{SESSION}/messages"), &json!({"messages": messages})).ok();
    let notes =
        json!({"metadata": {"kept": true}, "configuration": {"summary": {"messages_per_short_summary": 15}}});
    client.json("PUT", SESSION, &notes).ok();
    client.json("PUT", "/v3/workspaces/w/peers/ann", &notes).ok();
    client.json("PUT", "/v3/workspaces/w", &notes).ok();
    said[0]["id"].as_str().unwrap().to_owned()
}

/// Returns malformed variants of a valid call: all, or every n-th in a short run.
fn malformed(call: &Call, rng: &mut Rng) -> Vec<Malformed> {
    let all = requests::malformed(call, rng);
    let every = all.len() / times(all.len());
    all.into_iter().step_by(every).collect()
}

/// Requires an answer, or an error in Honcho's format.
#[track_caller]
fn check_answer(request: &Malformed, answer: &Answer) {
    let what = request.what();
    assert!(answer.status < 500 || answer.status == 501, "{} to {what}: {}", answer.status, answer.text());
    if request.method == "HEAD" || answer.status == 204 {
        return;
    }
    if answer.status >= 300 {
        assert_eq!(answer.header("content-type"), "application/json", "{what}");
        refused(answer, answer.status);
    } else {
        answer.json();
    }
}

/// Requires that the server is ready and logged no failure.
#[track_caller]
fn is_healthy(server: &Server) {
    assert_eq!(server.client().get("/readyz").ok()["ready"], true);
    let log = server.log();
    for trouble in ["panicked", "ERROR", "request failed"] {
        assert!(!log.contains(trouble), "{log}");
    }
}

/// Requires that everything that was stored can be read, as it was sent.
#[track_caller]
fn is_complete(client: &mut Client) {
    let five = json!({"filters": {"metadata": {"n": {"gte": 1}}}});
    let list = format!("{SESSION}/messages/list?size=5");
    let first = client.post(&list, &five).ok();
    let said: Vec<&str> = first["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    let wanted: Vec<String> = (1..=5).map(|n| format!("Order {n}0071 has not arrived.")).collect();
    assert_eq!(said, wanted);
    // Every page can be read, and the total agrees.
    let mut seen = 0;
    for page in 1.. {
        let listed = client.post(&format!("{SESSION}/messages/list?size=100&page={page}"), &json!({})).ok();
        seen += listed["items"].as_array().unwrap().len();
        if page >= listed["pages"].as_u64().unwrap() {
            assert_eq!(listed["total"], seen);
            break;
        }
    }
}

/// Requires that `epitome verify` finds no fault.
#[track_caller]
fn verify(server: &Server) {
    let verify = command(&server.folder).args(["verify", "--db", &db(&server.folder)]).output().unwrap();
    assert!(verify.status.success(), "{verify:?}");
}

#[test]
fn malformed_requests_get_an_answer_and_leave_the_store_valid() {
    let (server, other) = (Server::start(), Server::start());
    let (mut client, mut another) = (server.client(), other.client());
    let message = fill(&mut client);
    let theirs = fill(&mut another);
    let before = snapshot(&other, &mut another, "w");
    let (mut rng, mut sent, mut refused_count) = (Rng(20_261_115), 0, 0);
    let (deletes, calls): (Vec<Call>, Vec<Call>) =
        calls(&Names::new("w", "s", "ann", &message)).into_iter().partition(|call| call.method == "DELETE");
    for (last, calls) in [(false, calls), (true, deletes)] {
        for request in calls.iter().flat_map(|call| malformed(call, &mut rng)) {
            let answer = request.send(&server, &mut client);
            check_answer(&request, &answer);
            sent += 1;
            if matches!(answer.status, 405 | 413 | 415 | 422) {
                // The second server, which gets only refused requests, refuses it too.
                let again = request.renamed(&message, &theirs).send(&other, &mut another);
                assert_eq!(again.status, answer.status, "{}", request.what());
                refused_count += 1;
            }
        }
        if !last {
            is_complete(&mut client);
        }
        verify(&server);
    }
    assert!(
        sent > times(5_000) && refused_count > times(2_000),
        "{sent} were sent, {refused_count} of them refused"
    );
    assert_eq!(snapshot(&other, &mut another, "w"), before, "a refused request changed something");
    is_healthy(&server);
    is_healthy(&other);
    assert!(peak_mib(&server) < 300);
}

#[test]
fn a_workspace_is_changed_and_deleted_on_its_own_path() {
    let server = Server::start();
    let mut client = server.client();
    client.post("/v3/workspaces", &json!({"id": "w"})).ok();
    let put = client.json("PUT", "/v3/workspaces/w", &json!({"metadata": {"a": 1}}));
    assert_eq!((put.status, &put.json()["metadata"]), (200, &json!({"a": 1})));
    // The path with a final slash does not exist.
    refused(&client.json("PUT", "/v3/workspaces/w/", &json!({"metadata": {"a": 2}})), 404);
    refused(&client.send("DELETE", "/v3/workspaces/w/", &[], None), 404);
    refused(&client.get("/v3/workspaces/w"), 405);
    client
        .post(&format!("{SESSION}/messages"), &json!({"messages": [{"content": "Hi.", "peer_id": "ann"}]}))
        .ok();
    refused(&client.send("DELETE", "/v3/workspaces/w", &[], None), 409);
    assert_eq!(client.send("DELETE", SESSION, &[], None).status, 202);
    assert_eq!(client.send("DELETE", "/v3/workspaces/w", &[], None).status, 202);
    refused(&client.send("DELETE", "/v3/workspaces/w", &[], None), 404);
    let listed = client.post("/v3/workspaces/list", &json!({})).ok();
    assert_eq!(listed["total"], 0);
}

/// Sends an upload, and returns the answer and the number of messages afterwards.
fn upload(client: &mut Client, kind: &str, body: &[u8]) -> Answer {
    client.send("POST", &format!("{SESSION}/messages/upload"), &[("content-type", kind)], Some(body))
}

#[test]
fn broken_uploads_are_refused_and_leave_nothing() {
    let server = Server::start();
    let mut client = server.client();
    fill(&mut client);
    let before = snapshot(&server, &mut client, "w");
    let text = Some(("text/plain", b"Some words.".as_slice()));
    let ann = [("peer_id", "ann")];
    let (kind, whole) = form(&ann, text);
    let broken = |status: u16, kind: &str, body: &[u8]| {
        let answer = upload(&mut server.client(), kind, body);
        let told = refused(&answer, status).to_string();
        assert!(!told.contains("Some words"), "{told}");
    };
    for kind in ["", "text/plain", "application/json", "multipart/form-data"] {
        broken(415, kind, &whole);
    }
    // Forms that are cut off anywhere, or empty.
    for end in (0..whole.len() - 6).step_by(7) {
        broken(422, kind, &whole[..end]);
    }
    broken(422, "multipart/form-data; boundary=", &whole);
    broken(422, "multipart/form-data; boundary=other", &whole);
    broken(422, kind, b"--edge");
    broken(422, kind, &b"--edge\r\n".repeat(10_000));
    broken(422, kind, &vec![0; 100_000]);
    broken(422, kind, &[b"--edge\r\n".as_slice(), &b"x: y\r\n".repeat(100_000)].concat());
    let endless =
        format!("--edge\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n{}", "x".repeat(4 << 20));
    broken(422, kind, endless.as_bytes());
    for (fields, file) in [
        ([].as_slice(), text),
        (&ann, None),
        (&[], None),
        (&[("peer_id", "")], text),
        (&[("peer_id", "a b")], text),
        (&[("peer_id", &"x".repeat(600))], text),
        (&[ann[0], ("metadata", "{")], text),
        (&[ann[0], ("metadata", "[1]")], text),
        (&[ann[0], ("metadata", &format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000)))], text),
        (&[ann[0], ("metadata", &json!({"a": "x".repeat(100_000)}).to_string())], text),
        (&[ann[0], ("configuration", "7")], text),
        (&[ann[0], ("created_at", "yesterday")], text),
        (&ann, Some(("text/plain", b"".as_slice()))),
        (&ann, Some(("text/plain", b" \r\n\t".as_slice()))),
    ] {
        let (kind, body) = form(fields, file);
        broken(422, kind, &body);
    }
    let (kind, body) = form(&[ann[0], ("created_at", "yesterday")], text);
    let located = upload(&mut server.client(), kind, &body).json();
    assert_eq!(located["detail"][0]["loc"], json!(["body", "created_at"]));
    let large = vec![b'x'; 6 << 20];
    let (kind, body) = form(&ann, Some(("text/plain", &large)));
    broken(413, kind, &body);
    let (kind, body) = form(&ann, Some(("text/plain", &vec![b'x'; 17 << 20])));
    broken(413, kind, &body);
    for (said, bytes) in [
        ("text/plain", b"\xff\xfe\x00binary".as_slice()),
        ("application/octet-stream", &[0x89, b'P', b'N', b'G', 0xff]),
        ("image/png", b"not really"),
        ("application/pdf", b"%PDF-1.7"),
    ] {
        let (kind, body) = form(&ann, Some((said, bytes)));
        broken(415, kind, &body);
    }
    let packed = [("content-type", kind), ("content-encoding", "br")];
    refused(&server.client().send("POST", &format!("{SESSION}/messages/upload"), &packed, Some(&whole)), 415);
    assert_eq!(snapshot(&server, &mut client, "w"), before, "a refused upload left something");
    // A form with many unknown fields is read.
    let many: Vec<(String, String)> = (0..5_000).map(|n| (format!("field-{n}"), "x".to_owned())).collect();
    let mut fields: Vec<(&str, &str)> =
        many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    fields.extend([("peer_id", "bob"), ("peer_id", "ann")]);
    let (kind, body) = form(&fields, text);
    assert_eq!(upload(&mut client, kind, &body).ok()[0]["peer_id"], "ann");
    is_healthy(&server);
}

#[test]
fn an_upload_is_stored_completely() {
    let server = Server::start();
    let mut client = server.client();
    let text: String = (0..)
        .map(|n| format!("Line {n} of what was noted, with an é and a 😀 in it.\n"))
        .take(80_000)
        .collect();
    let text = text.get(..5 << 20).unwrap_or(&text);
    let fields =
        [("peer_id", "ann"), ("metadata", "{\"from\": \"a file\"}"), ("created_at", "2026-03-14T10:22:05Z")];
    let (kind, body) = form(&fields, Some(("text/plain", text.as_bytes())));
    let answer = upload(&mut client, kind, &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let told = answer.json();
    let told = told.as_array().unwrap();
    assert!(told.len() > 100);
    assert_eq!(told.iter().map(|message| message["content"].as_str().unwrap()).collect::<String>(), text);
    for message in told {
        assert_eq!(message["metadata"], json!({"from": "a file"}));
        assert_eq!(message["created_at"], "2026-03-14T10:22:05.000000Z");
    }
    let one = told.last().unwrap();
    let path = format!("{SESSION}/messages/{}", one["id"].as_str().unwrap());
    assert_eq!(&client.get(&path).ok(), one);
}

/// The largest batch: a hundred messages of 25,000 characters of four bytes.
#[test]
fn the_largest_batch_is_stored_completely() {
    let server = Server::start();
    let mut client = server.client();
    let content = |n: usize| -> String { ["😀", "𝄞", "🜚"][n % 3].repeat(25_000) };
    let messages: Vec<Value> =
        (0..100).map(|n| json!({"content": content(n), "peer_id": format!("peer-{n}")})).collect();
    let added = client.post(&format!("{SESSION}/messages"), &json!({"messages": messages}));
    assert_eq!(added.status, 201, "{}", added.text());
    let whole = |told: &Value| {
        let told = told.as_array().unwrap();
        assert_eq!(told.len(), 100);
        for (n, message) in told.iter().enumerate() {
            assert!(
                message["content"] == content(n) && message["peer_id"] == format!("peer-{n}"),
                "message {n}"
            );
        }
    };
    whole(&added.json());
    whole(&client.post(&format!("{SESSION}/messages/list?size=100"), &json!({})).ok()["items"]);
    // With one more character or message, nothing is stored.
    let over = json!({"messages": [messages[0], {"content": "x".repeat(25_001), "peer_id": "ann"}]});
    let told = refused(&client.post(&format!("{SESSION}/messages"), &over), 422);
    assert_eq!(told[0]["loc"], json!(["body", "messages", 1, "content"]));
    let few = json!({"messages": vec![json!({"content": "", "peer_id": "ann"}); 101]});
    refused(&client.post(&format!("{SESSION}/messages"), &few), 422);
    assert_eq!(client.post(&format!("{SESSION}/messages/list"), &json!({})).ok()["total"], 100);
    is_healthy(&server);
}

#[test]
fn large_and_incomplete_bodies_are_refused_in_honchos_format() {
    let server = Server::with(&["--bound", "silence=300"], &[]);
    let before = fill(&mut server.client());
    let head =
        format!("POST {SESSION}/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    let ask = |rest: &str, status: u16| {
        let answer = Raw::send(&server, format!("{head}{rest}").as_bytes()).answer();
        refused(&answer, status);
        assert_eq!(answer.header("connection"), "close");
    };
    ask("content-length: 99999999999\r\n\r\n", 413);
    ask("content-length: 100\r\n\r\n{\"messages\": [", 408);
    ask("transfer-encoding: chunked\r\n\r\nzz\r\n{}", 422);
    let values = format!("{{\"messages\": [{}]}}", "1,".repeat(300_000) + "1");
    refused(
        &server.client().send(
            "POST",
            &format!("{SESSION}/messages"),
            &[("content-type", "application/json")],
            Some(values.as_bytes()),
        ),
        413,
    );
    assert_eq!(server.client().get(&format!("{SESSION}/messages/{before}")).status, 200);
    assert_eq!(server.client().post(&format!("{SESSION}/messages/list"), &json!({})).ok()["total"], 5);
    is_healthy(&server);
}
