//! Odd requests to every route of v3, thousands of them: a refusal in their clients' words or an answer, never a fault of
//! ours, and nothing of it changes what is kept.
//!
//! `odd.rs` makes them. What one server refuses for what it says is sent to another as well, where it must change nothing.

use serde_json::{Value, json};

use crate::home::times;
use crate::rough::{Raw, peak_mib};
use crate::server::{Answer, Client, Server, command, db};
use crate::v3_walk::{About, Step, form, kept, refused, walk};

mod odd;

use odd::{Odd, Rng};

const SESSION: &str = "/v3/workspaces/w/sessions/s";

/// A workspace with something to lose. Gives a message of it.
fn talk(client: &mut Client) -> String {
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

/// Odd requests to the route of a right one: all there are, or as many of them as are tried here.
fn odds(step: &Step, rng: &mut Rng) -> Vec<Odd> {
    let all = odd::odds(step, rng);
    let every = all.len() / times(all.len());
    all.into_iter().step_by(every).collect()
}

/// It is an answer, or a refusal as their clients know them.
#[track_caller]
fn sound(odd: &Odd, answer: &Answer) {
    let what = odd.what();
    assert!(answer.status < 500 || answer.status == 501, "{} to {what}: {}", answer.status, answer.text());
    if odd.method == "HEAD" || answer.status == 204 {
        return;
    }
    if answer.status >= 300 {
        assert_eq!(answer.header("content-type"), "application/json", "{what}");
        refused(answer, answer.status);
    } else {
        answer.json();
    }
}

/// The server is there, and was never in trouble.
#[track_caller]
fn well(server: &Server) {
    assert_eq!(server.client().get("/readyz").ok()["ready"], true);
    let log = server.log();
    for trouble in ["panicked", "ERROR", "\"failed\""] {
        assert!(!log.contains(trouble), "{log}");
    }
}

/// What was taken of all that is what was sent: it can be read again.
#[track_caller]
fn whole(client: &mut Client) {
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
    // Every page there is can be read, and holds what it says.
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

/// The database is whole.
#[track_caller]
fn verified(server: &Server) {
    let verify = command(&server.folder).args(["verify", "--db", &db(&server.folder)]).output().unwrap();
    assert!(verify.status.success(), "{verify:?}");
}

#[test]
fn malformed_requests_get_an_answer_and_leave_the_store_valid() {
    let (server, other) = (Server::start(), Server::start());
    let (mut client, mut another) = (server.client(), other.client());
    let message = talk(&mut client);
    let theirs = talk(&mut another);
    let before = kept(&other, &mut another, "w");
    let (mut rng, mut sent, mut unfit) = (Rng(20_261_115), 0, 0);
    let (deletes, steps): (Vec<Step>, Vec<Step>) =
        walk(&About::new("w", "s", "ann", &message)).into_iter().partition(|step| step.method == "DELETE");
    for (last, steps) in [(false, steps), (true, deletes)] {
        for odd in steps.iter().flat_map(|step| odds(step, &mut rng)) {
            let answer = odd.send(&server, &mut client);
            sound(&odd, &answer);
            sent += 1;
            if matches!(answer.status, 405 | 413 | 415 | 422) {
                // The same is refused elsewhere, where nothing else was ever asked for.
                let again = odd.renamed(&message, &theirs).send(&other, &mut another);
                assert_eq!(again.status, answer.status, "{}", odd.what());
                unfit += 1;
            }
        }
        if !last {
            whole(&mut client);
        }
        verified(&server);
    }
    assert!(sent > times(5_000) && unfit > times(2_000), "{sent} were sent, {unfit} of them unfit");
    assert_eq!(kept(&other, &mut another, "w"), before, "what was refused changed something");
    well(&server);
    well(&other);
    assert!(peak_mib(&server) < 300);
}

#[test]
fn a_workspace_is_changed_and_deleted_on_its_own_path() {
    let server = Server::start();
    let mut client = server.client();
    client.post("/v3/workspaces", &json!({"id": "w"})).ok();
    let put = client.json("PUT", "/v3/workspaces/w", &json!({"metadata": {"a": 1}}));
    assert_eq!((put.status, &put.json()["metadata"]), (200, &json!({"a": 1})));
    // There is nothing behind a slash.
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

/// What an upload is answered, and how many messages there are now.
fn upload(client: &mut Client, kind: &str, body: &[u8]) -> Answer {
    client.send("POST", &format!("{SESSION}/messages/upload"), &[("content-type", kind)], Some(body))
}

#[test]
fn broken_uploads_are_refused_and_leave_nothing() {
    let server = Server::start();
    let mut client = server.client();
    talk(&mut client);
    let before = kept(&server, &mut client, "w");
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
    // It is cut off anywhere, or made of nothing.
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
    assert_eq!(kept(&server, &mut client, "w"), before, "what was refused left something");
    // A form with far too much in it is read for what it is.
    let many: Vec<(String, String)> = (0..5_000).map(|n| (format!("field-{n}"), "x".to_owned())).collect();
    let mut fields: Vec<(&str, &str)> =
        many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    fields.extend([("peer_id", "bob"), ("peer_id", "ann")]);
    let (kind, body) = form(&fields, text);
    assert_eq!(upload(&mut client, kind, &body).ok()[0]["peer_id"], "ann");
    well(&server);
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

/// As much as may be sent at once: a hundred messages of 25,000 characters, each four bytes long.
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
    // One more character, or one more message, is too many; of the rest nothing is kept.
    let over = json!({"messages": [messages[0], {"content": "x".repeat(25_001), "peer_id": "ann"}]});
    let told = refused(&client.post(&format!("{SESSION}/messages"), &over), 422);
    assert_eq!(told[0]["loc"], json!(["body", "messages", 1, "content"]));
    let few = json!({"messages": vec![json!({"content": "", "peer_id": "ann"}); 101]});
    refused(&client.post(&format!("{SESSION}/messages"), &few), 422);
    assert_eq!(client.post(&format!("{SESSION}/messages/list"), &json!({})).ok()["total"], 100);
    well(&server);
}

#[test]
fn large_and_incomplete_bodies_are_refused_in_honchos_format() {
    let server = Server::with(&["--bound", "silence=300"], &[]);
    let before = talk(&mut server.client());
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
    well(&server);
}
