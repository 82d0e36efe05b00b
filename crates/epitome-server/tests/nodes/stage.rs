//! Three nodes, their wires, their providers, and the database.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tokio::runtime::Runtime;

use crate::network::Network;
use crate::postgres_server::{Database, Options, Server, free_port};
use crate::provider::{Act, Provider};
use crate::request::read;
use crate::server::command;

pub const NODES: usize = 3;

/// Duration of a lease here.
pub const LEASE: Duration = Duration::from_secs(2);

/// So long nothing takes unless it hangs.
pub const LIMIT: Duration = Duration::from_secs(120);

/// How long a model takes.
const THOUGHT: Duration = Duration::from_millis(100);

/// Who writes summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// What is built in, as for whoever has set nothing.
    Local,
    /// The node's provider; one model for each slot, and another one behind it.
    Provider,
}

pub struct Stage {
    pub nodes: Vec<Node>,
    pub database: Database,
    pub cluster: Server,
    folder: tempfile::TempDir,
    runtime: Runtime,
}

pub struct Node {
    pub address: SocketAddr,
    pub network: Network,
    pub provider: Provider,
    /// As whom it is known to the database.
    pub name: String,
    db: String,
    settings: String,
    folder: std::path::PathBuf,
    process: Mutex<Option<Child>>,
    /// From when until when it was frozen.
    pub frozen: Mutex<Vec<(SystemTime, SystemTime)>>,
}

/// The settings of a node whose summaries are written by its provider.
fn settings(url: &str) -> String {
    let mut all = "[summarize]\nstand_in_after = \"never\"\n".to_owned();
    for (slot, messages) in [("short", 20), ("long", 60)] {
        all.push_str(&format!(
            "[[slot]]\nname = \"{slot}\"\ntrigger = \"messages({messages})\"\nkeep = \"messages(0)\"\n\
             max_tokens = 1000\nmodels = [\"{slot}\", \"{slot}_spare\"]\n"
        ));
        for model in [slot.to_owned(), format!("{slot}_spare")] {
            all.push_str(&format!(
                "[models.{model}]\nprovider = \"openai\"\nmodel = \"{model}\"\nbase_url = \"{url}\"\nwindow = 100000\n"
            ));
        }
    }
    all
}

impl Stage {
    /// Three nodes that answer.
    pub fn set(writes: Writes) -> Stage {
        let cluster = Server::own(&Options::default());
        let database = cluster.database();
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let nodes = (1..=NODES).map(|number| {
            let provider = runtime.block_on(Provider::start());
            provider.always(Act::Slow(THOUGHT));
            let network = Network::to(cluster.address());
            let name = format!("node_{number}");
            // A role of its own, so that what it does in the database can be told from what others do.
            cluster.psql(&format!("CREATE ROLE {name} SUPERUSER LOGIN"));
            let settings = match writes {
                Writes::Local => String::new(),
                Writes::Provider => settings(&provider.url()),
            };
            Node {
                address: SocketAddr::from(([127, 0, 0, 1], free_port())),
                db: format!("postgres://{name}@{}/{}", network.address(), database.name()),
                folder: folder.path().join(&name),
                process: Mutex::default(),
                frozen: Mutex::default(),
                network,
                provider,
                name,
                settings,
            }
        });
        let nodes: Vec<Node> = nodes.collect();
        let stage = Stage { nodes, database, cluster, folder, runtime };
        for node in &stage.nodes {
            std::fs::create_dir(&node.folder).unwrap();
            std::fs::write(node.folder.join("epitome.toml"), &node.settings).unwrap();
            node.start();
        }
        stage.nodes.iter().for_each(Node::until_ready);
        stage
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    /// What a healthy node answers.
    pub fn get(&self, path: &str) -> Value {
        read(self.nodes[0].address, path, LIMIT).unwrap().ok()
    }

    /// Waits until nothing is left to be done.
    pub fn settle(&self) {
        self.settle_at(self.nodes[0].address);
    }

    /// The same, as is told there.
    pub fn settle_at(&self, address: SocketAddr) {
        let begun = Instant::now();
        loop {
            let queue = read(address, "/v1/queue", LIMIT).unwrap().ok();
            if ["due", "working", "waiting", "parked"].iter().all(|state| queue[state] == 0) {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "what is due is not done: {queue}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// All messages of a session, by number and text.
    pub fn log(&self, session: &str) -> Vec<(u64, String)> {
        let mut all: Vec<(u64, String)> = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.get(&format!("/v1/sessions/{session}/messages?limit=500{after}"));
            for item in page["items"].as_array().unwrap() {
                let text = item["parts"][0]["text"].as_str().unwrap_or_else(|| panic!("{item}"));
                all.push((item["seq"].as_u64().unwrap(), text.to_owned()));
            }
            let Some(next) = page["next"].as_str() else { return all };
            after = format!("&after={next}");
        }
    }

    /// Breaks off the open calls to a node's provider; it can be called again.
    pub fn lose_calls(&self, node: &Node) {
        self.runtime.block_on(async {
            node.provider.leave().await;
            node.provider.come_back().await;
        });
    }

    /// `epitome verify` finds nothing.
    pub fn verify(&self) {
        let done =
            command(self.folder.path()).args(["verify", "--db", &self.database.url()]).output().unwrap();
        let told =
            String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{told}");
    }
}

impl Node {
    /// Starts the process. It takes requests a little later.
    pub fn start(&self) {
        let mut process = self.process();
        assert!(process.is_none(), "{} was started twice", self.name);
        let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut run = command(&self.folder);
        run.args(["serve", "--config", "epitome.toml", "--log-level", "info"]);
        run.args(["--listen", &self.address.to_string(), "--lease", &LEASE.as_millis().to_string()]);
        run.env("EPITOME_DB", &self.db).stdout(Stdio::null()).stderr(log);
        *process = Some(run.spawn().unwrap());
    }

    pub fn kill(&self) {
        let mut process = self.process().take().expect("it runs");
        assert_eq!(process.try_wait().unwrap(), None, "{} ended by itself: {}", self.name, self.log());
        process.kill().unwrap();
        process.wait().unwrap();
    }

    pub fn freeze(&self) {
        self.signal("-STOP");
        let now = SystemTime::now();
        self.frozen.lock().unwrap().push((now, now));
    }

    pub fn wake(&self) {
        self.frozen.lock().unwrap().last_mut().unwrap().1 = SystemTime::now();
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        epitome_testkit::signal::send(signal, self.process().as_ref().expect("it runs").id());
    }

    /// Waits until it can be used. It must not have ended by itself.
    pub fn until_ready(&self) {
        let begun = Instant::now();
        while !read(self.address, "/readyz", LIMIT).is_ok_and(|answer| answer.status == 200) {
            let ended = self.process().as_mut().expect("it runs").try_wait().unwrap();
            assert_eq!(ended, None, "{} ended by itself: {}", self.name, self.log());
            assert!(begun.elapsed() < LIMIT, "{} does not get ready: {}", self.name, self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} said last:\n{}", self.name, self.log());
        }
        // Also one that is frozen ends by this.
        if let Some(mut process) = self.process().take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
