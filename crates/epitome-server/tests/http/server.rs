//! A server of the real binary, on a free port and a database of its own, and a client that says exactly what it is
//! told to.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

#[allow(unused_imports, reason = "the tests of the proxy open nothing themselves")]
pub use crate::home::{db, open};

/// So long nothing may take here. It is only for tests that would hang otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. It is killed when dropped.
pub struct Server {
    child: Child,
    /// `127.0.0.1:PORT`
    pub address: String,
    pub folder: PathBuf,
    _kept: Option<tempfile::TempDir>,
}

impl Server {
    /// On a new database.
    pub fn start() -> Self {
        Self::with(&[], &[])
    }

    /// The same with more flags and variables.
    pub fn with(flags: &[&str], env: &[(&str, &str)]) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), flags, env)
    }

    /// On the database of a folder that goes with the server.
    pub fn in_folder(folder: tempfile::TempDir, flags: &[&str], env: &[(&str, &str)]) -> Self {
        let mut server = Self::on(folder.path(), flags, env);
        server._kept = Some(folder);
        server
    }

    /// On the database of a folder.
    pub fn on(folder: &Path, flags: &[&str], env: &[(&str, &str)]) -> Self {
        let mut run = command(folder);
        run.arg("serve").args(flags);
        if !flags.contains(&"--db") {
            run.args(["--db", &db(folder)]);
        }
        if !flags.iter().any(|flag| flag.starts_with("--listen")) {
            run.args(["--listen", "127.0.0.1:0"]);
        }
        let errors = std::fs::File::create(folder.join("server.log")).unwrap();
        let mut child = run.envs(env.iter().copied()).stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let Some(address) = said.trim().strip_prefix("listening on http://") else {
            let log = std::fs::read_to_string(folder.join("server.log")).unwrap();
            panic!("the server did not start: {said:?} {log:?}");
        };
        let address = address.replace("0.0.0.0", "127.0.0.1");
        Self { child, address, folder: folder.to_owned(), _kept: None }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to standard error so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("server.log")).unwrap()
    }

    /// Sends it a signal by name, as `kill` knows it.
    pub fn signal(&self, name: &str) {
        epitome_testkit::signal::send(name, self.pid());
    }

    /// Waits until it has ended, and tells how.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn client(&self) -> Client {
        Client { address: self.address.clone(), headers: Vec::new(), stream: None }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary, away from whatever settings there are here.
pub fn command(folder: &Path) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_epitome"));
    run.current_dir(folder).env("HOME", folder).stdin(Stdio::null());
    for (name, _) in std::env::vars() {
        if name.starts_with("EPITOME_") || name.starts_with("XDG_") {
            run.env_remove(name);
        }
    }
    run
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It went well, and this is what it says.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// It did not, with this status, and its detail says this. Every such answer is a problem as RFC 9457 has it.
    #[track_caller]
    pub fn refused(&self, status: u16, detail: &str) -> Value {
        let problem = self.json();
        assert_eq!(self.status, status, "{problem}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(problem["status"], status);
        assert!(problem["type"].as_str().unwrap().starts_with("urn:epitome:"), "{problem}");
        assert_eq!(problem["request_id"].as_str().unwrap(), self.header("x-request-id"));
        let told = problem["detail"].as_str().unwrap();
        assert!(told.contains(detail), "{told:?} does not say {detail:?}");
        problem
    }
}

/// A client with one connection, which it uses again as long as the server lets it.
pub struct Client {
    pub address: String,
    /// Sent along with every request.
    pub headers: Vec<(String, String)>,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn key(self, secret: &str) -> Self {
        self.with("authorization", &format!("Bearer {secret}"))
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, &[], None)
    }

    pub fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.json("POST", path, body)
    }

    pub fn json(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        self.send(method, path, &[("content-type", "application/json")], Some(body.to_string().as_bytes()))
    }

    /// One request, and its answer.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.chain(headers.iter().copied()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut sent = head.into_bytes();
        sent.extend_from_slice(body.unwrap_or_default());
        self.raw(&sent, method == "HEAD")
    }

    /// Exactly these bytes, and whatever is answered.
    pub fn raw(&mut self, bytes: &[u8], head_only: bool) -> Answer {
        let mut stream = self.stream.take().unwrap_or_else(|| connect(&self.address));
        // Whoever is refused early need not have been read to the end.
        let _ = stream.get_mut().write_all(bytes);
        let answer = read_answer(&mut stream, head_only).expect("an answer");
        if answer.header("connection") != "close" {
            self.stream = Some(stream);
        }
        answer
    }
}

pub fn connect(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

/// Reads one answer; nothing where the connection ended before it did.
pub fn read_answer(stream: &mut BufReader<TcpStream>, head_only: bool) -> Option<Answer> {
    let mut line = String::new();
    let mut answer = loop {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status: u16 = line.split(' ').nth(1)?.parse().ok()?;
        let headers = read_headers(stream)?;
        if status != 100 {
            break Answer { status, headers, body: Vec::new() };
        }
    };
    if head_only || matches!(answer.status, 204 | 304) {
        return Some(answer);
    }
    if answer.header("transfer-encoding") == "chunked" {
        loop {
            line.clear();
            stream.read_line(&mut line).ok()?;
            let size = usize::from_str_radix(line.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            if size == 0 {
                return Some(answer);
            }
            answer.body.extend_from_slice(&chunk[..size]);
        }
    }
    let size: usize = answer.header("content-length").parse().ok()?;
    answer.body = vec![0; size];
    stream.read_exact(&mut answer.body).ok()?;
    Some(answer)
}

fn read_headers(stream: &mut BufReader<TcpStream>) -> Option<HashMap<String, String>> {
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            return Some(headers);
        }
        let (name, value) = line.split_once(':')?;
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
}
