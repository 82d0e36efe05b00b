//! A proxy, what is behind it, and conversations to send through.

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::server::{Answer, Client, Server, command};
use crate::upstream::{Manner, Seen, Upstream};

/// The key of callers: the upstream's matter, and nobody else's.
pub const KEY: &str = "sk-of-the-caller-0123456789";

/// The three routes that hold lists of messages, here and there.
pub const ROUTES: [(&str, &str); 3] = [
    ("/openai/v1/chat/completions", "/v1/chat/completions"),
    ("/openai/v1/responses", "/v1/responses"),
    ("/anthropic/v1/messages", "/v1/messages"),
];

/// An upstream and a proxy before it.
pub struct Stage {
    pub upstream: Upstream,
    pub server: Server,
    _runtime: Runtime,
}

impl Stage {
    pub fn new(flags: &[&str]) -> Self {
        Self::with(Manner { window: 100_000, ..Manner::default() }, flags)
    }

    pub fn with(manner: Manner, flags: &[&str]) -> Self {
        let runtime = Runtime::new().unwrap();
        let upstream = runtime.block_on(Upstream::start(manner));
        let server = Self::serve(&upstream.origin(), None, flags);
        Self { upstream, server, _runtime: runtime }
    }

    /// A proxy before whoever is there, on a new database or on one that is.
    pub fn serve(origin: &str, folder: Option<&std::path::Path>, flags: &[&str]) -> Server {
        let all = ["--openai-upstream", origin, "--anthropic-upstream", origin];
        let all: Vec<&str> = all.into_iter().chain(flags.iter().copied()).collect();
        match folder {
            Some(folder) => Server::on(folder, &all, &[]),
            None => Server::with(&all, &[]),
        }
    }

    /// Somebody with a key of their own for the upstream.
    pub fn client(&self) -> Client {
        self.server.client().with("authorization", &format!("Bearer {KEY}"))
    }

    /// What the upstream got last.
    pub fn got(&self) -> Seen {
        self.upstream.last().expect("the upstream got something")
    }
}

/// A key of the server's for a workspace, made by the command.
pub fn key(server: &Server, workspace: &str) -> String {
    let made = command(&server.folder)
        .args(["keys", "create", "--json", "--db", "a.db", "--workspace", workspace, "--rights", "write"])
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&made.stderr)));
    made["secret"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
}

/// What was done, in a word.
pub fn done(answer: &Answer) -> &str {
    answer.header("x-epitome")
}

/// What was done, at length.
#[track_caller]
pub fn report(answer: &Answer) -> Value {
    serde_json::from_str(answer.header("x-epitome-report")).unwrap_or_else(|_| panic!("{answer:?}"))
}

/// A conversation that goes on.
#[derive(Clone)]
pub struct Talk {
    pub list: Vec<Value>,
    /// In everything that is said in it.
    pub mark: String,
    pub turn: usize,
}

impl Talk {
    pub fn new(mark: &str) -> Self {
        let system = json!({"role": "system", "content": "You look after the harbour. Be brief."});
        Self { list: vec![system], mark: mark.to_owned(), turn: 0 }
    }

    /// The next question, of some 150 tokens.
    pub fn ask(&mut self) -> &mut Self {
        self.turn += 1;
        let (mark, turn) = (&self.mark, self.turn);
        let filler =
            format!("berth {turn} on the north quay, rope {}, flag {} ", turn * 7, turn * 13).repeat(8);
        self.list
            .push(json!({"role": "user", "content": format!("{mark} asks about ship S{turn}: {filler}")}));
        self
    }

    /// The reply that its caller takes for the model's.
    pub fn reply(&mut self) -> &mut Self {
        let text = format!("{} is told that ship S{} is at its berth.", self.mark, self.turn);
        self.list.push(json!({"role": "assistant", "content": text}));
        self
    }

    pub fn body(&self) -> Value {
        json!({"model": "nobody-knows", "messages": self.list})
    }

    /// Sends it as it is now.
    pub fn send(&self, client: &mut Client) -> Answer {
        client.post(ROUTES[0].0, &self.body())
    }

    /// Asks and is answered, so many times.
    pub fn go_on(&mut self, client: &mut Client, turns: usize) -> Vec<Answer> {
        (0..turns)
            .map(|_| {
                let answer = self.ask().send(client);
                assert_eq!(answer.status, 200, "{} {:?}", answer.text(), answer.headers);
                self.reply();
                answer
            })
            .collect()
    }
}

/// The list that the upstream got.
pub fn list(seen: &Seen) -> Vec<Value> {
    seen.json()["messages"].as_array().cloned().unwrap_or_default()
}
