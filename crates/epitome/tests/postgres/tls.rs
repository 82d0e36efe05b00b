//! Encrypted connections and certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use epitome::store::Store;
use epitome::store::{Postgres, PostgresOptions, StoreError};
use tempfile::TempDir;

use crate::postgres_server::{Options, Server, program};
use crate::setup::{hasty, in_time, say};
use crate::support::key;

/// A certificate authority.
struct Authority {
    folder: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let folder = tempfile::tempdir().unwrap();
        openssl(
            folder.path(),
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout root.key -out root.crt -days 30 \
             -subj /CN=authority -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign",
        );
        Authority { folder }
    }

    /// Returns the file with the authority's certificate.
    fn root(&self) -> PathBuf {
        self.folder.path().join("root.crt")
    }

    /// Starts a cluster with a certificate for this name. It accepts encrypted connections only.
    fn server(&self, name: &str) -> Server {
        let folder = self.folder.path();
        fs::write(folder.join("names"), format!("subjectAltName={name}\nbasicConstraints=CA:FALSE\n"))
            .unwrap();
        openssl(
            folder,
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj /CN=server",
        );
        openssl(
            folder,
            "x509 -req -in server.csr -CA root.crt -CAkey root.key -CAcreateserial -days 30 -extfile names -out server.crt",
        );
        let file = |name: &str| (name.to_owned(), fs::read(folder.join(name)).unwrap());
        Server::own(&Options {
            settings: vec!["ssl = on".to_owned()],
            access: Some("hostssl all all 127.0.0.1/32 trust\n".to_owned()),
            files: vec![file("server.crt"), file("server.key")],
        })
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let done = Command::new(program("openssl"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Returns the result of opening the database with these parameters.
async fn opened(server: &Server, how: &str) -> Result<(), StoreError> {
    let node = in_time(hasty(&format!("{}?{how}", server.url("postgres")))).await?;
    say(&node, &key("a"), how).await?;
    // All of its connections are encrypted.
    let plain = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'epitome' AND NOT ssl";
    assert_eq!(server.psql(plain), "0");
    node.close().await;
    Ok(())
}

#[tokio::test]
async fn sslmode_is_respected() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = ours.server("IP:127.0.0.1");
    let root = ours.root().display().to_string();
    for how in ["sslmode=require", "sslmode=prefer", "", &format!("sslmode=verify-full&sslrootcert={root}")] {
        opened(&server, how).await.unwrap_or_else(|error| panic!("{how}: {error}"));
    }
    let escaped = root.replace('/', "%2F");
    opened(&server, &format!("sslrootcert={escaped}&sslmode=verify-full")).await.unwrap();

    let refused = [
        ("sslmode=disable".to_owned(), "no encryption"),
        (format!("sslmode=verify-full&sslrootcert={}", theirs.root().display()), "certificate"),
        // The system does not trust the authority.
        ("sslmode=verify-full".to_owned(), "certificate"),
        ("sslmode=verify-full&sslrootcert=missing.crt".to_owned(), "missing.crt"),
    ];
    for (how, reason) in refused {
        let error = opened(&server, &how).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{how}: {error}");
    }
}

#[tokio::test]
async fn verify_full_refuses_a_certificate_of_another_name() {
    let ours = Authority::new();
    let server = ours.server("DNS:elsewhere.example");
    opened(&server, "sslmode=require").await.unwrap();
    let how = format!("sslmode=verify-full&sslrootcert={}", ours.root().display());
    let error = opened(&server, &how).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}

/// Retrying cannot help: neither TLS support nor the certificate changes by waiting.
#[tokio::test]
async fn an_untrusted_server_fails_at_once() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (server, open) = (ours.server("IP:127.0.0.1"), Server::own(&Options::default()));
    let theirs = format!("sslmode=verify-full&sslrootcert={}", theirs.root().display());
    for (server, how) in [(&open, "sslmode=require"), (&server, &theirs)] {
        let patience = std::time::Duration::from_secs(3_600);
        let options = PostgresOptions { patience, ..PostgresOptions::default() };
        let url = format!("{}?{how}", server.url("postgres"));
        let error = in_time(Postgres::open(&url, options)).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{how}: {error}");
    }
}

#[tokio::test]
async fn a_required_encryption_is_never_skipped() {
    let server = Server::own(&Options::default());
    let error = opened(&server, "sslmode=require").await.unwrap_err().to_string();
    assert!(error.contains("TLS"), "{error}");
}
