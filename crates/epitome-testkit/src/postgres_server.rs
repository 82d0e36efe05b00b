//! A PostgreSQL server for tests: a cluster on loopback, created with the PostgreSQL programs that the machine has.
//!
//! [`server`] returns one cluster for the whole test process. The cluster is created on first use, and every test
//! gets its own database in the cluster. [`Server::own`] returns a cluster that a test may stop, kill and configure
//! freely. If PostgreSQL is not installed, this module installs Debian's package. If the installation fails, the test
//! fails with an explanation; the test is never skipped.
//!
//! When the test process ends, its clusters are removed, even if the process was killed. See `cluster.rs`.

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
pub use psql::LockHolder;

/// The database user in every cluster. The user needs no password, unless a test sets [`Options::access`].
pub const USER: &str = "postgres";

/// The options of a new cluster.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Lines for `postgresql.conf`. They override the default settings.
    pub settings: Vec<String>,
    /// The content of `pg_hba.conf`. If it is `None`, every connection from loopback is allowed.
    pub access: Option<String>,
    /// Files to create in the data directory, as pairs of name and content. Only the server may read these files.
    /// Examples are certificates and keys.
    pub files: Vec<(String, Vec<u8>)>,
}

/// A cluster. Clones share the cluster. It is removed when its last clone and its last [`Database`] are dropped.
#[derive(Debug, Clone)]
pub struct Server {
    cluster: Arc<Cluster>,
    /// Maps each name that was passed to [`Server::template`] to the name of the template database.
    templates: Arc<Mutex<HashMap<String, String>>>,
}

/// Returns the cluster that all tests of this process share. A test that stops or damages the server must use
/// [`Server::own`].
pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::own(&Options::default()))
}

/// Returns a free port on loopback.
///
/// The port is below the range of ephemeral ports. If a client repeatedly connects to an unused port in that range,
/// the system may choose the same port for the client's end. The client would then connect to itself.
pub fn free_port() -> u16 {
    (0..1_000)
        .map(|_| 10_000 + u16::try_from(random() % 20_000).unwrap())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("of a thousand ports on 127.0.0.1, one should be free")
}

/// Returns a random number that no other call returns, not even in another process.
fn random() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one((std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

impl Server {
    /// Creates and starts a cluster.
    pub fn own(options: &Options) -> Server {
        Server { cluster: Arc::new(Cluster::make(options)), templates: Arc::default() }
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.cluster.port()))
    }

    /// Returns the URL of a database in the cluster. Every cluster has the database `postgres`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.address())
    }

    /// Returns the cluster's directory. It contains the data directory `data` and the log file `log`.
    pub fn directory(&self) -> &Path {
        self.cluster.directory()
    }

    /// Returns the log since the cluster was created.
    pub fn log(&self) -> String {
        self.cluster.log()
    }

    /// Creates an empty database.
    pub fn database(&self) -> Database {
        self.copy("template0")
    }

    /// Creates a database as a copy of a template, which `make` prepares.
    ///
    /// `make` is called once for each `name`, with the URL of the template. It runs on its own thread, so that it may
    /// create a runtime. Concurrent callers wait. If `make` leaves connections open, they are closed.
    pub fn template(&self, name: &str, make: impl FnOnce(&str) + Send) -> Database {
        let template = {
            let mut templates = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
            match templates.get(name) {
                Some(template_name) => template_name.clone(),
                None => {
                    let template_name = format!("template_{:016x}", random());
                    self.psql(&format!("CREATE DATABASE {template_name} TEMPLATE template0"));
                    let url = self.url(&template_name);
                    thread::scope(|scope| {
                        let done = scope.spawn(|| make(&url)).join();
                        assert!(done.is_ok(), "the template {name} could not be created");
                    });
                    self.psql(&format!("ALTER DATABASE {template_name} ALLOW_CONNECTIONS false"));
                    self.throw_out(&template_name);
                    templates.insert(name.to_owned(), template_name.clone());
                    template_name
                }
            }
        };
        self.copy(&template)
    }

    /// Closes every connection to a database.
    pub fn throw_out(&self, database: &str) {
        self.psql(&format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
             WHERE datname = '{database}' AND pid <> pg_backend_pid()"
        ));
    }

    fn copy(&self, template: &str) -> Database {
        let name = format!("test_{:016x}", random());
        self.psql(&format!("CREATE DATABASE {name} TEMPLATE {template}"));
        Database { server: self.clone(), name }
    }

    /// Runs SQL in the database `postgres` and returns the output. Each line is one row, and `|` separates the
    /// columns.
    pub fn psql(&self, sql: &str) -> String {
        self.try_psql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Like [`Server::psql`], but returns errors.
    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        psql::run(self.address(), "postgres", sql)
    }

    /// Stops the server and waits until it has ended. [`Server::start`] starts the server again.
    pub fn stop(&self, how: Stop) {
        self.cluster.stop(how);
    }

    /// Kills the main process with SIGKILL, as the kernel does when memory runs out. The other processes of the
    /// server notice this and end. [`Server::start`] waits until they have ended.
    pub fn kill(&self) {
        self.cluster.kill();
    }

    /// Starts the server again at the same address, and waits until it accepts connections.
    pub fn start(&self) {
        self.cluster.start();
    }

    /// Stops the server in fast mode, which breaks every connection, and starts it again.
    pub fn restart(&self) {
        self.stop(Stop::Fast);
        self.start();
    }
}

/// A database for one test. When this value is dropped, the database is dropped and its connections are closed.
#[derive(Debug)]
pub struct Database {
    server: Server,
    name: String,
}

impl Database {
    /// Returns the URL of the database.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Returns the URL of the database with the address of a proxy, which is a [`Network`](crate::network::Network)
    /// or a [`Pooler`].
    pub fn url_by(&self, address: SocketAddr) -> String {
        format!("postgres://{USER}@{address}/{}", self.name)
    }

    /// Returns the name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the cluster that contains the database.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Runs SQL in the database and returns the output. Each line is one row, and `|` separates the columns.
    pub fn psql(&self, sql: &str) -> String {
        self.try_psql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Like [`Database::psql`], but returns errors.
    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        psql::run(self.server.address(), &self.name, sql)
    }

    /// Runs SQL in a new connection. The connection stays open and keeps its locks until the returned value is
    /// dropped.
    pub fn hold(&self, sql: &str) -> LockHolder {
        self.try_hold(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Like [`Database::hold`], but returns errors.
    pub fn try_hold(&self, sql: &str) -> Result<LockHolder, String> {
        LockHolder::new(self.server.address(), &self.name, sql)
    }

    /// Closes every connection to this database.
    pub fn throw_out(&self) {
        self.server.throw_out(&self.name);
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Drops the database in the background, because this is slow. If it is not dropped before the process ends,
        // it is removed together with its cluster.
        let server = self.server.clone();
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let _ = thread::Builder::new().spawn(move || server.try_psql(&sql));
    }
}

/// Creates a directory that only the current user may enter.
fn new_directory() -> PathBuf {
    use std::os::unix::fs::DirBuilderExt;

    let path = place_of_clusters().join(format!("epitome-postgres-{:016x}", random()));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .unwrap_or_else(|error| panic!("{} cannot be created: {error}", path.display()));
    path
}

/// Returns the directory in which clusters are created. This is `/dev/shm`, which is in memory, if it has 4 GiB of
/// free space and the machine has 8 GiB of available memory. Otherwise it is the system's temporary directory.
///
/// Every test has its own database, and a database consists of three hundred files. On a disk, creating and removing
/// these files takes more CPU time than the tests themselves.
fn place_of_clusters() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize));
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available =
        meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB"));
    let available = available.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0) << 10;
    if room >= 4 << 30 && available >= 8 << 30 { memory.to_owned() } else { std::env::temp_dir() }
}
