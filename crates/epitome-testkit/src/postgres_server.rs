//! A PostgreSQL for tests: a cluster of its own on loopback, made from the machine's binaries.
//!
//! [`server`] is one cluster for the whole test process, made when it is first asked for; every test gets a database
//! of its own in it. [`Server::own`] is one that a test may stop, kill and configure as it likes. Where PostgreSQL is
//! not installed, Debian's package is; where that cannot be done the test fails and says so, it is never passed over.
//!
//! A cluster does not outlive its process, however that ends: see `cluster.rs`.

mod cluster;
mod install;
mod pooler;
mod psql;
mod room;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use cluster::Cluster;
pub use cluster::Stop;
pub use install::{program, user};
pub use pooler::Pooler;
pub use psql::Held;

/// Who one is in every cluster. No password is asked for, unless a test says otherwise in its `access`.
pub const USER: &str = "postgres";

/// How a cluster differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Lines for `postgresql.conf`; they win over ours.
    pub settings: Vec<String>,
    /// What `pg_hba.conf` says instead of letting everybody on loopback in.
    pub access: Option<String>,
    /// Files in its data directory that only the server may read: certificates, keys.
    pub files: Vec<(String, Vec<u8>)>,
}

/// A cluster. Clones are the same one; it goes when the last of them, and of its databases, does.
#[derive(Debug, Clone)]
pub struct Server {
    cluster: Arc<Cluster>,
    /// Databases that others are copied from, by the name they were asked for.
    templates: Arc<Mutex<HashMap<String, String>>>,
}

/// The cluster that all tests of this process share. Tests that break things take [`Server::own`].
pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::own(&Options::default()))
}

/// A port on loopback that nobody listens on.
///
/// It is below those that outgoing connections are given: a client that keeps trying a port there while nobody listens
/// can be given the very same one and so be connected to itself.
pub fn free_port() -> u16 {
    (0..1_000)
        .map(|_| 10_000 + u16::try_from(drawn() % 20_000).unwrap())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("of a thousand ports on 127.0.0.1, one should be free")
}

/// A number that is not drawn twice, here or in another process.
fn drawn() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one((std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

impl Server {
    /// Makes a cluster and starts it.
    pub fn own(options: &Options) -> Server {
        Server { cluster: Arc::new(Cluster::make(options)), templates: Arc::default() }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.cluster.port()))
    }

    /// How a database of it is reached. Nobody may be in it: every cluster has one called `postgres`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.address())
    }

    /// Where it has its files: `data` is its data directory, `log` what it said.
    pub fn directory(&self) -> &Path {
        self.cluster.directory()
    }

    /// What it said since it was made.
    pub fn log(&self) -> String {
        self.cluster.log()
    }

    /// A new database with nothing in it.
    pub fn database(&self) -> Database {
        self.copy("template0")
    }

    /// A new database in which `make` was already done.
    ///
    /// `make` is given the url of a template, once for each `name`, on a thread of its own, so that it may have a
    /// runtime there. Others who ask for the same wait for it. Whatever it leaves connected is thrown out.
    pub fn template(&self, name: &str, make: impl FnOnce(&str) + Send) -> Database {
        let template = {
            let mut templates = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
            match templates.get(name) {
                Some(made) => made.clone(),
                None => {
                    let made = format!("template_{:016x}", drawn());
                    self.psql(&format!("CREATE DATABASE {made} TEMPLATE template0"));
                    let url = self.url(&made);
                    thread::scope(|scope| {
                        let done = scope.spawn(|| make(&url)).join();
                        assert!(done.is_ok(), "the template {name} could not be made");
                    });
                    self.psql(&format!("ALTER DATABASE {made} ALLOW_CONNECTIONS false"));
                    self.throw_out(&made);
                    templates.insert(name.to_owned(), made.clone());
                    made
                }
            }
        };
        self.copy(&template)
    }

    /// Ends every connection to a database.
    pub fn throw_out(&self, database: &str) {
        self.psql(&format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
             WHERE datname = '{database}' AND pid <> pg_backend_pid()"
        ));
    }

    fn copy(&self, template: &str) -> Database {
        let name = format!("test_{:016x}", drawn());
        self.psql(&format!("CREATE DATABASE {name} TEMPLATE {template}"));
        Database { server: self.clone(), name }
    }

    /// Runs SQL in the database `postgres` and gives what it answered, a row a line, columns parted by `|`.
    pub fn psql(&self, sql: &str) -> String {
        self.try_psql(sql).unwrap_or_else(|told| panic!("{sql}: {told}"))
    }

    /// As [`Server::psql`], or what went wrong.
    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        psql::run(self.address(), "postgres", sql)
    }

    /// Stops it, and returns when it has ended. It can be started again.
    pub fn stop(&self, how: Stop) {
        self.cluster.stop(how);
    }

    /// Kills its first process with SIGKILL, as a machine that runs out of memory does. Its other processes notice by
    /// themselves and end; [`Server::start`] waits for them.
    pub fn kill(&self) {
        self.cluster.kill();
    }

    /// Starts it again at the same address, and returns when it takes connections.
    pub fn start(&self) {
        self.cluster.start();
    }

    /// Stops it fast, which breaks every connection off, and starts it again.
    pub fn restart(&self) {
        self.stop(Stop::Fast);
        self.start();
    }
}

/// A database of a test's own. It is dropped, whoever is connected, when this is.
#[derive(Debug)]
pub struct Database {
    server: Server,
    name: String,
}

impl Database {
    /// How it is reached.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// How it is reached through somebody who stands between: a network of ours, a pooler.
    pub fn url_by(&self, address: SocketAddr) -> String {
        format!("postgres://{USER}@{address}/{}", self.name)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster it is in.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Runs SQL in it and gives what it answered, a row a line, columns parted by `|`.
    pub fn psql(&self, sql: &str) -> String {
        self.try_psql(sql).unwrap_or_else(|told| panic!("{sql}: {told}"))
    }

    /// As [`Database::psql`], or what went wrong.
    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        psql::run(self.server.address(), &self.name, sql)
    }

    /// Runs SQL in a connection that stays open, with whatever it holds, until what is given back is dropped.
    pub fn hold(&self, sql: &str) -> Held {
        self.try_hold(sql).unwrap_or_else(|told| panic!("{sql}: {told}"))
    }

    /// As [`Database::hold`], or what went wrong.
    pub fn try_hold(&self, sql: &str) -> Result<Held, String> {
        Held::new(self.server.address(), &self.name, sql)
    }

    /// Ends every connection to it.
    pub fn throw_out(&self) {
        self.server.throw_out(&self.name);
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // In the background, since it takes a while; a database that stays goes with its cluster.
        let server = self.server.clone();
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let _ = thread::Builder::new().spawn(move || server.try_psql(&sql));
    }
}

/// A directory that only we may enter.
fn new_directory() -> PathBuf {
    use std::os::unix::fs::DirBuilderExt;

    let path = place_of_clusters().join(format!("epitome-postgres-{:016x}", drawn()));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .unwrap_or_else(|error| panic!("{} cannot be made: {error}", path.display()));
    path
}

/// Where clusters are: in memory where there is plenty of it, else in the system's temporary folder.
///
/// Every test has a database of its own, and a database is three hundred files. On a disk, making and removing them takes
/// more of the processor than the tests do.
fn place_of_clusters() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize));
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available =
        known.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB"));
    let available = available.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0) << 10;
    if room >= 4 << 30 && available >= 8 << 30 { memory.to_owned() } else { std::env::temp_dir() }
}
