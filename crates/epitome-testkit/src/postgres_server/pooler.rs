//! A connection pooler between nodes and a cluster. The pooler assigns a server connection to each transaction.
//!
//! With a pooler, the next transaction of a node may use another server connection. So a node cannot rely on the
//! state of its connection: prepared statements, settings, advisory locks and `LISTEN`.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Database, Server, USER, free_port, new_directory, program, user};

/// A shell script that runs the pooler until the script's input ends, and then cleans up. The input ends when the
/// test process ends.
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
    /// Closing this pipe makes the runner clean up.
    alive: Option<ChildStdin>,
    /// A clone of the server. It exists so that the cluster is not removed before the pooler.
    server: Server,
}

impl Pooler {
    /// Starts a pooler that opens at most `connections` connections to each database, for any number of nodes.
    pub fn to(server: &Server, connections: usize) -> Pooler {
        Pooler::with(server, &format!("default_pool_size = {connections}"))
    }

    /// Starts a pooler with these settings.
    pub fn with(server: &Server, settings: &str) -> Pooler {
        Pooler::at(server, None, settings)
    }

    /// Stops the pooler, and starts another one on the same port.
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
            let error = pooler.log();
            assert!(
                error.contains("in use") && begun.elapsed() < Duration::from_secs(60),
                "PgBouncer: {error}"
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
        // Like the server, PgBouncer refuses to run as root.
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

    /// Returns the address on which the pooler listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a database through the pooler.
    pub fn url(&self, database: &Database) -> String {
        database.url_by(self.address)
    }

    /// Returns the log of the pooler.
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
