//! A database on a small disk, which a test can fill quickly.
//!
//! The tables of the database are on an in-memory file system of the requested size. The server's own log is on
//! another file system, because a server that cannot write its log stops completely. If mounting is not permitted,
//! the size of the server's files is limited instead. The server reports both limits in the same way.

use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::process::Command;

use super::{Database, Server, random, user};

/// A database with limited disk space.
#[derive(Debug)]
pub struct Small {
    database: Database,
    /// The directory of the mounted file system. `None` if mounting was not permitted.
    mounted: Option<String>,
}

/// Smallest possible file size limit, in bytes. The server creates files of this size for its log.
const LOG_FILE: u64 = 16 << 20;

/// Runs a program and returns its output. If the program failed, returns the errors that it printed.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let done =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() {
        Ok(said(&done.stdout))
    } else {
        Err(format!("{program}: {}", said(&done.stderr)))
    }
}

impl Server {
    /// Creates an empty database whose disk has this size, in bytes. Use only a cluster from [`Server::own`], because
    /// the limit may also apply to the other databases of the cluster.
    pub fn small_disk(&self, bytes: u64) -> Small {
        let name = format!("small_{:016x}", random());
        // The watcher unmounts directories with this prefix.
        let room = self.directory().join(format!("room-{name}"));
        std::fs::DirBuilder::new().mode(0o700).create(&room).unwrap();
        let room = room.display().to_string();
        let (uid, gid) = user().unwrap_or_default();
        let how = format!("size={bytes},mode=0700,uid={uid},gid={gid}");
        match run("mount", &["-t", "tmpfs", "-o", &how, "tmpfs", &room]) {
            Ok(_) => {
                self.psql(&format!("CREATE TABLESPACE {name} LOCATION '{room}'"));
                self.psql(&format!("CREATE DATABASE {name} TEMPLATE template0 TABLESPACE {name}"));
                let database = Database { server: self.clone(), name };
                Small { database, mounted: Some(room) }
            }
            Err(error) => {
                eprintln!("{error}: limiting the file size instead");
                // The limit includes half a page more, so that the last page is written only partially, as on a full
                // disk.
                let limit = (bytes.max(LOG_FILE) / 8_192 + 1) * 8_192 + 4_096;
                self.limit_files(&format!("{limit}:"));
                Small { database: self.database(), mounted: None }
            }
        }
    }

    /// Limits the size of the files that the server and all its processes may write.
    fn limit_files(&self, limit: &str) {
        let first = self.cluster.pid().expect("it runs");
        let others = self.psql("SELECT pid FROM pg_stat_activity");
        for pid in others.lines().chain([first.to_string().as_str()]) {
            let error = run("prlimit", &["--pid", pid, &format!("--fsize={limit}")]);
            // The list of processes also contains the process of the query itself. That process has ended, so only an
            // error for the main process counts.
            assert!(
                error.is_ok() || pid != first.to_string(),
                "{error:?}; prlimit is in the package util-linux"
            );
        }
    }
}

impl Small {
    /// Raises or removes the limit, so that the database has enough space again.
    pub fn make_room(&self) {
        match &self.mounted {
            Some(room) => run("mount", &["-o", "remount,size=1g", room]).map(|_| ()).unwrap(),
            None => self.database.server().limit_files("unlimited:"),
        }
    }
}

impl Deref for Small {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}
