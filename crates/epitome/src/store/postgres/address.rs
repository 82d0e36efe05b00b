//! Reads the database's address, and sets up TLS.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::error::StoreError;

/// A parsed address.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// Whether the address declares a pooler in transaction mode.
    pub(super) pooled: bool,
    /// The address for messages, without user and password.
    pub(super) address_text: String,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("place", &self.address_text).finish_non_exhaustive()
    }
}

fn unreadable(reason: impl Into<String>) -> StoreError {
    StoreError::Unreachable { path: "the PostgreSQL address".to_owned(), reason: reason.into() }
}

impl Address {
    /// Parses `postgres://user:password@host:port/database?sslmode=…&sslrootcert=…`.
    pub(super) fn read(url: &str) -> Result<Self, StoreError> {
        let (base, query) = split_url(url)?;
        // Without `verify-full`, the server's certificate is not checked, as in `libpq`. Encryption alone does not
        // prevent a man-in-the-middle attack.
        let (mut verified, mut roots, mut pooled) = (false, None, false);
        let (mut rest, mut seen): (Vec<String>, HashSet<Cow<'_, str>>) = Default::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text| percent_decode_str(text).decode_utf8_lossy();
            let (name, value) = (decoded(name), decoded(value));
            // A repeated parameter is refused: it would not be clear which value applies.
            if !seen.insert(name.clone()) {
                return Err(unreadable(format!("it sets `{name}` twice")));
            }
            match (&*name, &*value) {
                ("sslmode", "verify-full") => {
                    verified = true;
                    rest.push("sslmode=require".to_owned());
                }
                ("sslmode", "verify-ca") => {
                    return Err(unreadable("sslmode=verify-ca is not supported; use verify-full"));
                }
                ("pooler", "transaction") => pooled = true,
                ("pooler", _) => {
                    return Err(unreadable(
                        "the only supported value of `pooler` is `transaction`; remove the parameter for a direct connection",
                    ));
                }
                ("sslrootcert", path) => roots = Some(path.to_owned()),
                _ => rest.push(pair.to_owned()),
            }
        }
        let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        // The library's message contains the parameter's name, but no values.
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            unreadable(format!(
                "{}; the format is postgres://user:password@host:port/database",
                super::error::reason_of(&error)
            ))
        })?;
        if config.get_hosts().is_empty() {
            return Err(unreadable(
                "it contains no host; the format is postgres://user:password@host:port/database",
            ));
        }
        let has_at_sign = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().iter().any(has_at_sign) {
            return Err(unreadable("a host name cannot contain @; write an @ in a password as %40"));
        }
        if roots.is_some() && !verified {
            return Err(unreadable("sslrootcert requires sslmode=verify-full"));
        }
        config.application_name("epitome");
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        config.keepalives_idle(Duration::from_secs(30));
        config.tcp_user_timeout(Duration::from_secs(15));
        let address_text = display_address(&config);
        Ok(Self {
            tls: MakeRustlsConnect::new(client(verified, roots.as_deref())?),
            pooled,
            config,
            address_text,
        })
    }
}

/// Splits the address into its base and its parameters. Refuses an `@` or a `?` that is not escaped. Otherwise the rest
/// of a password after this character would be parsed as a host or a parameter, and would appear in messages.
fn split_url(url: &str) -> Result<(&str, &str), StoreError> {
    let mut ats = url.match_indices('@').map(|(at, _)| at);
    let (first, more) = (ats.next(), ats.next());
    let question = url.find('?');
    if more.is_some() || first.zip(question).is_some_and(|(at, question)| question < at) {
        return Err(unreadable(
            "write an @ in a name, a password or a parameter as %40, and a ? as %3F: postgres://user:password@host:port/database",
        ));
    }
    Ok(url.split_once('?').unwrap_or((url, "")))
}

/// Returns `postgres://host:port/database`, for messages.
fn display_address(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        _ => String::new(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let name = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{host}:{port}/{name}")
}

fn client(verified: bool, roots: Option<&str>) -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unreadable(error.to_string()))?;
    let config = match (verified, roots) {
        (false, _) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
        (true, Some(path)) => {
            builder.with_root_certificates(read_roots(Path::new(path))?).with_no_client_auth()
        }
        (true, None) => {
            let verifier = rustls_platform_verifier::Verifier::new(provider)
                .map_err(|error| unreadable(format!("the system's certificates cannot be used: {error}")))?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        }
    };
    Ok(config)
}

fn read_roots(path: &Path) -> Result<RootCertStore, StoreError> {
    let wrong = |reason: String| StoreError::Unreachable { path: path.display().to_string(), reason };
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("it contains no certificate".to_owned()));
    }
    Ok(roots)
}

/// Accepts any certificate. The server must still prove that it has the certificate's private key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_in_messages_has_no_user_and_password() {
        let address = Address::read("postgres://me:s%65cret@db.example:5433/talk?sslmode=require").unwrap();
        assert_eq!(address.address_text, "postgres://db.example:5433/talk");
        assert!(!format!("{address:?}").contains("cret"));
        for wrong in [
            "postgres://",
            "postgres://h/d?sslmode=verify-ca",
            "postgres://h/d?sslrootcert=x",
            "postgres://h/d?pooler=session",
            "postgres://a:b@h/d?c=d",
        ] {
            let said = Address::read(wrong).unwrap_err().to_string();
            assert!(!said.contains("a:b"), "{said}");
        }
    }

    #[test]
    fn no_part_of_a_password_is_read_as_a_host_or_parameter() {
        for wrong in [
            "postgres://ann:p@s3cret@host/db",
            "postgres://ann:p@x/s3cret@host/db",
            "postgres://ann:p?s3cret=1@host/db",
            "postgres://ann:p?s3cret@host/db",
            "postgres:///db?host=/run&password=p@s3cret",
            "postgres://ann@host/db?password=p@s3cret",
            "postgres://ann:p%40x@host%40s3cret/db",
        ] {
            let said = Address::read(wrong).map(|address| address.address_text).unwrap_err().to_string();
            assert!(said.contains("%40") && !said.contains("s3cret"), "{wrong}: {said}");
        }
        let address = Address::read("postgres://ann:p%40s/s%3F:x@host/d%40b?options=-c%20a%3Db").unwrap();
        assert_eq!(address.address_text, "postgres://host:5432/d@b");
        assert_eq!(address.config.get_password(), Some(b"p@s/s?:x".as_slice()));
    }

    #[test]
    fn repeated_parameters_are_refused() {
        for twice in [
            "sslmode=verify-full&sslmode=disable",
            "sslmode=verify-full&ssl%6dode=disable",
            "connect_timeout=1&sslmode=require&connect_timeout=2",
        ] {
            let said = Address::read(&format!("postgres://h/d?{twice}")).unwrap_err().to_string();
            assert!(said.contains("twice"), "{twice}: {said}");
        }
        assert!(Address::read("postgres://h/d?sslmode=verify%2Dfull").is_ok());
    }
}
