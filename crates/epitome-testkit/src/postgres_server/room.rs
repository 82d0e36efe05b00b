//! A database on a disk that is soon full.
//!
//! Its files are on a file system in memory of the size that is asked for. Only its tables are: a server that cannot
//! write its own log any more stops altogether, and that is another test. Where nothing may be mounted, the server is
//! kept from making files larger than that instead, which it reports in the same way.

use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::process::Command;

use super::{Database, Server, drawn, user};

/// A database that has only so much room.
#[derive(Debug)]
pub struct Small {
    database: Database,
    /// Where its files are, unless nothing could be mounted.
    mounted: Option<String>,
}

/// What a file may never be allowed less: the server makes files of this size for its log.
const LOG_FILE: u64 = 16 << 20;

/// Runs a program, and tells what it said when it failed.
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
    /// A new database with nothing in it and room for so many bytes. It is for clusters of a test's own: others in it may
    /// have no more room either.
    pub fn small_disk(&self, bytes: u64) -> Small {
        let name = format!("small_{:016x}", drawn());
        // The watcher looks for what is called so.
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
            Err(told) => {
                eprintln!("{told}: files are kept from growing instead");
                // Half a page more: the last page is then written in part, which is how a full disk shows.
                let limit = (bytes.max(LOG_FILE) / 8_192 + 1) * 8_192 + 4_096;
                self.limit_files(&format!("{limit}:"));
                Small { database: self.database(), mounted: None }
            }
        }
    }

    /// How large files may become, for the server and all its processes.
    fn limit_files(&self, limit: &str) {
        let first = self.cluster.pid().expect("it runs");
        let others = self.psql("SELECT pid FROM pg_stat_activity");
        for pid in others.lines().chain([first.to_string().as_str()]) {
            let told = run("prlimit", &["--pid", pid, &format!("--fsize={limit}")]);
            // Whoever asked is gone by now.
            assert!(
                told.is_ok() || pid != first.to_string(),
                "{told:?}; it comes with the package util-linux"
            );
        }
    }
}

impl Small {
    /// From now on there is room enough.
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
