//! One cluster: a directory, a port, a process, and a watcher process that cleans up.
//!
//! A cluster must be removed completely, even if the test process is killed and cannot clean up. So a small shell
//! process, the watcher, waits for the end of the test process. The watcher reads from a pipe to which only the test
//! process can write. When the test process ends, the pipe ends. Then the watcher stops the server and removes the
//! directory. The watcher is started before there is anything to clean up. It has its own process group, so that
//! signals to the test process do not reach it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Options, USER, free_port, new_directory, program, user};

/// Timeout for starting a server, and for stopping a server. Starting includes the recovery after the server was
/// killed. The timeout is reached only if the server hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A shell script that cleans up after the test process has ended. `$1` is the cluster's directory.
///
/// The process id of a killed server may belong to another process now, so the script checks whether the process was
/// started for this directory.
const WATCH: &str = r#"
while read -r _; do :; done
ours() {
    pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) || return 1
    [ -n "$pid" ] || return 1
    called=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null || ps -o command= -p "$pid" 2>/dev/null)
    case $called in *"$1/data"*) return 0 ;; esac
    return 1
}
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    ours "$1" || break
    if [ "$try" -lt 20 ]; then kill -QUIT "$pid"; else kill -KILL "$pid"; fi
    sleep 0.2
done 2>/dev/null
for room in "$1"/room-*; do umount "$room" || umount -l "$room"; done 2>/dev/null
rm -rf "$1"
"#;

/// Default settings. They are written before the settings of a test, so that the settings of the test override them.
/// The server does not sync data to disk, because test data need not survive a crash.
const SETTINGS: &str = "
fsync = off
full_page_writes = off
max_connections = 300
shared_buffers = 32MB
max_wal_size = 256MB
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
log_line_prefix = '%m [%p] %d '
";

const ACCESS: &str = "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n";

/// How to stop a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Breaks connections, and writes all data to disk.
    Fast,
    /// Breaks connections, and writes no data to disk. The next start recovers committed data.
    Immediate,
}

#[derive(Debug)]
pub(super) struct Cluster {
    directory: PathBuf,
    port: u16,
    server: Mutex<Option<Child>>,
    watcher: Child,
    /// Closing this pipe makes the watcher clean up.
    alive: Option<ChildStdin>,
}

impl Cluster {
    pub(super) fn make(options: &Options) -> Cluster {
        // Finds the program first. If it must be installed, the package also creates the user that runs the server.
        program("postgres");
        let directory = new_directory();
        let mut watcher = Command::new("sh")
            .args(["-c", WATCH, "sh"])
            .arg(&directory)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let alive = watcher.stdin.take();
        let mut cluster = Cluster { directory, port: free_port(), server: Mutex::new(None), watcher, alive };
        cluster.give(&cluster.directory);
        cluster.fill(options);
        for _ in 0..20 {
            match cluster.try_start() {
                Ok(()) => return cluster,
                // Another process uses the port. Each start passes the port as an argument, so the settings file does
                // not change.
                Err(error) if error.contains("could not bind") => cluster.port = free_port(),
                Err(error) => panic!("PostgreSQL does not start: {error}"),
            }
        }
        panic!("PostgreSQL finds no free port");
    }

    /// Writes the files of a new cluster.
    fn fill(&self, options: &Options) {
        let done = self
            .command("initdb")
            .args(["-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C", "-U", USER, "-D"])
            .arg(self.data())
            .output()
            .expect("initdb starts");
        assert!(done.status.success(), "initdb: {}", String::from_utf8_lossy(&done.stderr));

        let mut settings = File::options().append(true).open(self.data().join("postgresql.conf")).unwrap();
        settings.write_all(SETTINGS.as_bytes()).unwrap();
        for line in &options.settings {
            writeln!(settings, "{line}").unwrap();
        }
        fs::write(self.data().join("pg_hba.conf"), options.access.as_deref().unwrap_or(ACCESS)).unwrap();
        for (name, bytes) in &options.files {
            let file = self.data().join(name);
            fs::write(&file, bytes).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            self.give(&file);
        }
    }

    /// Makes the server's user the owner of a file.
    fn give(&self, file: &Path) {
        if let Some((user, group)) = user() {
            chown(file, Some(user), Some(group)).unwrap();
        }
    }

    /// Returns a command that runs as the server's user.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command.current_dir(&self.directory).stdin(Stdio::null()).process_group(0).env("LC_ALL", "C");
        if let Some((user, group)) = user() {
            command.uid(user).gid(group);
        }
        command
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the id of the server's main process. `None` if the server is stopped.
    pub(super) fn pid(&self) -> Option<u32> {
        self.server().as_ref().map(Child::id)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub(super) fn log(&self) -> String {
        fs::read(self.directory.join("log"))
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    fn server(&self) -> MutexGuard<'_, Option<Child>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(&self) {
        if let Err(error) = self.try_start() {
            panic!("PostgreSQL does not start: {error}");
        }
    }

    /// Starts the server and waits until it accepts connections. If the server does not start, returns its log as the
    /// error.
    fn try_start(&self) -> Result<(), String> {
        let mut server = self.server();
        assert!(server.is_none(), "PostgreSQL was started twice");
        let begun = Instant::now();
        loop {
            let said_before = self.log().len();
            let mut child = self.spawn();
            let ended = loop {
                if self.is_ready(child.id()) {
                    *server = Some(child);
                    return Ok(());
                }
                if child.try_wait().unwrap().is_some() {
                    break self.log().split_off(said_before);
                }
                if begun.elapsed() > LIMIT {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("timed out: {}", self.log()));
                }
                thread::sleep(Duration::from_millis(10));
            };
            // If processes of a killed server are still running, the start is tried again later.
            let too_early = ended.contains("pre-existing shared memory block") || ended.contains("lock file");
            if !too_early || begun.elapsed() > LIMIT {
                return Err(ended);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn spawn(&self) -> Child {
        let log = File::options().create(true).append(true).open(self.directory.join("log")).unwrap();
        self.command("postgres")
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.to_string()])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("postgres starts")
    }

    /// Returns whether the server is ready. The server writes this to its pid file. A pid file with another process
    /// id is from a server that was killed, and is ignored.
    fn is_ready(&self, pid: u32) -> bool {
        let pid_file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        pid_file.lines().next() == Some(&pid.to_string())
            && pid_file.lines().nth(7).is_some_and(|state| state.trim() == "ready")
    }

    pub(super) fn stop(&self, how: Stop) {
        let signal = match how {
            Stop::Fast => "INT",
            Stop::Immediate => "QUIT",
        };
        if let Some(mut child) = self.server().take() {
            // No code has waited for the end of the child yet, so its process id is still valid.
            crate::signal::send(signal, child.id());
            let begun = Instant::now();
            while child.try_wait().unwrap().is_none() {
                assert!(begun.elapsed() < LIMIT, "PostgreSQL does not stop: {}", self.log());
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    pub(super) fn kill(&self) {
        if let Some(mut child) = self.server().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.stop(Stop::Immediate);
        }
        drop(self.alive.take());
        let _ = self.watcher.wait();
        if let Some(mut child) = self.server().take() {
            let _ = child.wait();
        }
    }
}
