//! One cluster: a directory, a port, a process, and somebody who clears up.
//!
//! Nothing of a cluster may stay behind, also when the test process is killed and can do nothing any more. So a small
//! shell watches from outside: it reads from a pipe whose other end only we hold, and the end of the pipe is our end.
//! Then it stops the server and removes the directory. It is started before there is anything to clear up, and in a
//! process group of its own, so that whatever ends us does not end it.

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

/// For how long a cluster may take to start, also when it must first clear up after having been killed, or to stop.
/// Only something that hangs is ever waited for so long.
const LIMIT: Duration = Duration::from_secs(120);

/// Clears up when we are gone. `$1` is the directory.
///
/// Whoever has the number of a server that was killed may be somebody else by now, so it is looked whether the process
/// was started for this directory.
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

/// Ours come first, so that a test's win. Nothing is made to last: what is lost with the machine is only a test.
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

/// How a server is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Breaks connections off, writes everything down.
    Fast,
    /// Breaks everything off; what was committed is found again when it starts.
    Immediate,
}

#[derive(Debug)]
pub(super) struct Cluster {
    directory: PathBuf,
    port: u16,
    server: Mutex<Option<Child>>,
    watcher: Child,
    /// Closed, it tells the watcher to clear up.
    alive: Option<ChildStdin>,
}

impl Cluster {
    pub(super) fn make(options: &Options) -> Cluster {
        // Looked for first: it may have to be installed, and the package brings the user.
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
                // Somebody was faster. The setting in the file is never used: the port is told when it starts.
                Err(told) if told.contains("could not bind") => cluster.port = free_port(),
                Err(told) => panic!("PostgreSQL does not start: {told}"),
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

    /// Makes a file the server's own.
    fn give(&self, file: &Path) {
        if let Some((user, group)) = user() {
            chown(file, Some(user), Some(group)).unwrap();
        }
    }

    /// A program that runs as the server does.
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

    /// The number of its first process, while it runs.
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
        if let Err(told) = self.try_start() {
            panic!("PostgreSQL does not start: {told}");
        }
    }

    /// Returns when it takes connections, or with what it said when it would not start.
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
                    return Err(format!("it was waited for in vain: {}", self.log()));
                }
                thread::sleep(Duration::from_millis(10));
            };
            // Processes of one that was killed are still about.
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

    /// The last line of its file says so, unless that is still the one of a server that was killed.
    fn is_ready(&self, pid: u32) -> bool {
        let told = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        told.lines().next() == Some(&pid.to_string())
            && told.lines().nth(7).is_some_and(|state| state.trim() == "ready")
    }

    pub(super) fn stop(&self, how: Stop) {
        let signal = match how {
            Stop::Fast => "INT",
            Stop::Immediate => "QUIT",
        };
        if let Some(mut child) = self.server().take() {
            // Not waited for yet, so the number is still its own.
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
