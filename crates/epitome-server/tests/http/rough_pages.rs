//! Large messages by the hundred: whoever asks for many of them gets as many as fit, and is told to come again.

use serde_json::{Value, json};

use crate::rough::peak_mib;
use crate::server::Server;

/// A megabyte that costs few tokens to count.
pub fn large() -> Value {
    let url = format!("data:image/png;base64,{}", "A".repeat(1_000_000));
    let image = json!({"type": "image_url", "image_url": {"url": url}});
    json!({"role": "user", "content": [{"type": "text", "text": "lorem ipsum"}, image]})
}

/// Four small messages, and so many large ones after them.
fn with_large(server: &Server, many: usize) {
    let mut client = server.client();
    let small = json!({"role": "user", "content": "Hi."});
    client.post("/v1/sessions/ann/messages", &json!(vec![small; 4])).ok();
    for _ in 0..many / 10 {
        client.post("/v1/sessions/ann/messages", &json!(vec![large(); 10])).ok();
    }
}

/// Every place on all pages of five hundred, each page no larger than may be.
fn places(server: &Server, path: &str, place: impl Fn(&Value) -> u64) -> Vec<u64> {
    let (mut client, mut after, mut all) = (server.client(), String::new(), Vec::new());
    loop {
        let page = client.get(&format!("{path}limit=500{after}"));
        assert_eq!(page.status, 200, "{}", page.text());
        assert!(page.body.len() < 20 << 20, "{} bytes", page.body.len());
        let page = page.ok();
        all.extend(page["items"].as_array().unwrap().iter().map(&place));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return all,
        }
    }
}

/// Lists in either direction, and what a search finds. Only the first messages are small, so that a page which goes by
/// the size of those is found out.
#[test]
fn pages_with_large_messages_end_early_and_continue() {
    let server = Server::start();
    with_large(&server, 80);
    let before = peak_mib(&server);
    let listed = |item: &Value| item["seq"].as_u64().unwrap();
    assert!(places(&server, "/v1/sessions/ann/messages?", listed).into_iter().eq(1..=84));
    assert!(places(&server, "/v1/sessions/ann/messages?reverse&", listed).into_iter().eq((1..=84).rev()));
    let found = |item: &Value| item["message"]["seq"].as_u64().unwrap();
    for path in ["/v1/sessions/ann/search?q=lorem&", "/v1/search?q=lorem&"] {
        assert!(places(&server, path, found).into_iter().eq((5..=84).rev()), "{path}");
    }
    // All of them at once would be more than that.
    assert!(peak_mib(&server) < before + 60, "{before} MiB, then {}", peak_mib(&server));
}

/// Pictures take few tokens and many bytes: sixty of them fit any context.
#[test]
fn many_large_contexts_are_built_a_few_at_a_time() {
    let server = Server::start();
    with_large(&server, 60);
    let ask = || server.client().get("/v1/sessions/ann/context?tokens=100000&summary=false").status;
    let turns = std::thread::available_parallelism().map_or(2, std::num::NonZero::get) as u64 + 2;
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..turns * 5).map(|_| scope.spawn(ask)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|status| [200, 503].contains(status)), "{answers:?}");
    assert!(answers.contains(&200), "{answers:?}");
    // Without turns every one of them would hold some 150 MiB, 750 for each turn there is.
    assert!(peak_mib(&server) < 300 + 200 * turns, "{} MiB", peak_mib(&server));
}
