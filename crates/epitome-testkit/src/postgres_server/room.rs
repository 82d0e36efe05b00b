//! A database on a disk that is soon full.
//!
//! Its files are on an in-memory file system of the requested size. Only its tables are there: a server that cannot
//! write its own log stops completely, which is another test. If mounting is not permitted, the size of the server's
//! files is limited instead, which the server reports in the same way.

use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::process::Command;

use super::{Database, Server, random, user};

/// A database with limited disk space.
#[derive(Debug)]
pub struct Small {
    database: Database,
    /// The directory of its files, unless mounting was not permitted.
    mounted: Option<String>,
}

/// Smallest possible file size limit in bytes: the server creates files of this size for its log.
const LOG_FILE: u64 = 16 << 20;

/// Runs a program, and returns its output, or its errors if it failed.
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
    /// Creates an empty database with this much disk space, in bytes. Only for a test's own cluster: other databases in
    /// it may be limited, too.
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
                // Half a page more, so that the last page is written partially, as on a full disk.
                let limit = (bytes.max(LOG_FILE) / 8_192 + 1) * 8_192 + 4_096;
                self.limit_files(&format!("{limit}:"));
                Small { database: self.database(), mounted: None }
            }
        }
    }

    /// Limits the size of files, for the server and all its processes.
    fn limit_files(&self, limit: &str) {
        let first = self.cluster.pid().expect("it runs");
        let others = self.psql("SELECT pid FROM pg_stat_activity");
        for pid in others.lines().chain([first.to_string().as_str()]) {
            let error = run("prlimit", &["--pid", pid, &format!("--fsize={limit}")]);
            // The process of the query itself has ended by now.
            assert!(
                error.is_ok() || pid != first.to_string(),
                "{error:?}; prlimit is in the package util-linux"
            );
        }
    }
}

impl Small {
    /// Removes the limit.
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
