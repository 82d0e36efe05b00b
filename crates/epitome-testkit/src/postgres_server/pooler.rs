//! A pooler between nodes and a cluster, that gives a connection of its own to each transaction in turn.
//!
//! Whatever a node believes of its connection from one transaction to the next (prepared statements, settings, advisory
//! locks, `LISTEN`) is wrong behind it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Database, Server, USER, free_port, new_directory, program, user};

/// Runs it for as long as we are there, and clears up after it: the end of its input is our end.
const RUN: &str = r#"
"$1" "$2/pgbouncer.ini" >>"$2/log" 2>&1 &
while read -r _; do :; done
kill "$!"
wait
rm -rf "$2"
"#;

/// PgBouncer in front of a cluster, in transaction mode.
#[derive(Debug)]
pub struct Pooler {
    address: SocketAddr,
    directory: PathBuf,
    runner: Child,
    /// Closed, it tells the runner to clear up.
    alive: Option<ChildStdin>,
    /// Stays for as long as there is somebody in front of it.
    server: Server,
}

impl Pooler {
    /// Starts one that has `connections` to each database, for any number of nodes.
    pub fn to(server: &Server, connections: usize) -> Pooler {
        Pooler::with(server, &format!("default_pool_size = {connections}"))
    }

    /// Starts one with these settings.
    pub fn with(server: &Server, settings: &str) -> Pooler {
        Pooler::at(server, None, settings)
    }

    /// Ends it, and starts another in its place.
    pub fn replaced(self, settings: &str) -> Pooler {
        let (server, port) = (self.server.clone(), self.address.port());
        drop(self);
        Pooler::at(&server, Some(port), settings)
    }

    fn at(server: &Server, port: Option<u16>, settings: &str) -> Pooler {
        let begun = Instant::now();
        loop {
            let mut pooler = Pooler::start(server, port.unwrap_or_else(free_port), settings);
            while begun.elapsed() < Duration::from_secs(60) {
                if TcpStream::connect(pooler.address).is_ok() {
                    return pooler;
                }
                if pooler.log().contains("FATAL") || pooler.runner.try_wait().unwrap().is_some() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
            let told = pooler.log();
            assert!(
                told.contains("in use") && begun.elapsed() < Duration::from_secs(60),
                "PgBouncer: {told}"
            );
        }
    }

    fn start(server: &Server, port: u16, more: &str) -> Pooler {
        let bouncer = program("pgbouncer");
        let directory = new_directory();
        let settings = format!(
            "[databases]\n\
             * = host={} port={} user={USER}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             max_client_conn = 500\n\
             server_login_retry = 1\n\
             {more}\n",
            server.address().ip(),
            server.address().port(),
        );
        fs::write(directory.join("pgbouncer.ini"), settings).unwrap();
        let mut runner = Command::new("sh");
        runner.args(["-c", RUN, "sh"]).arg(bouncer).arg(&directory).current_dir("/").process_group(0);
        // It refuses to be root, as the server does.
        if let Some((user, group)) = user() {
            chown(&directory, Some(user), Some(group)).unwrap();
            runner.uid(user).gid(group);
        }
        let mut runner = runner
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let alive = runner.stdin.take();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Pooler { address, directory, runner, alive, server: server.clone() }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How a database is reached through it.
    pub fn url(&self, database: &Database) -> String {
        database.url_by(self.address)
    }

    /// What it said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.runner.wait();
    }
}
