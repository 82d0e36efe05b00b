//! Sends HTTP requests to one endpoint, limits the time and the size of answers, and describes connection failures.
//!
//! The client does not follow redirects and does not retry requests. Therefore a key is sent only to the configured
//! address, and only once. This module does not interpret the content of answers.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Once;
use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout_at};

use super::FailureCause;
use super::call_error::{CallError, retry_after};

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time without new data in a stream.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Maximum number of bytes that are read of an error response.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The address of a provider's API, with an HTTP client for it.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// The HTTP client. `None` if the system has no root certificates, because no server can then be verified.
    client: Option<Client>,
    pub(super) url: Url,
    /// The address without the path.
    pub(super) origin: String,
    timeout: Duration,
    idle: Duration,
}

/// A response whose headers have arrived.
pub(super) struct OpenResponse<'a> {
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
    endpoint: &'a Endpoint,
    response: Response,
    deadline: Instant,
    idle: Duration,
    read: usize,
}

/// Why an answer is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Incomplete {
    #[error("the answer broke off")]
    Broken,
    /// The whole call took longer than its timeout.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("the answer stalled for {0:?}")]
    Stalled(Duration),
    #[error("the answer is larger than {} MiB", MAX_ANSWER_BYTES >> 20)]
    TooLarge,
}

impl Endpoint {
    pub(super) fn new(url: Url, timeout: Duration) -> Self {
        let origin = url.origin().ascii_serialization();
        let mut builder = Client::builder()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("epitome/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        if url.scheme() == "http" {
            // Without TLS, no certificate is verified, so no certificates are loaded.
            builder = builder.tls_certs_only([]);
        }
        install_tls();
        Self { client: builder.build().ok(), url, origin, timeout, idle: IDLE_TIMEOUT }
    }

    /// Sends a request, and waits for the response headers.
    pub(super) async fn post(&self, headers: HeaderMap, body: String) -> Result<OpenResponse<'_>, CallError> {
        let Some(client) = &self.client else {
            let reason = format!("{} cannot be verified: this system has no certificates", self.origin);
            return Err(CallError::refused(FailureCause::Other, &reason));
        };
        let deadline = Instant::now() + self.timeout;
        let json = HeaderValue::from_static("application/json");
        let request = client.post(self.url.clone()).headers(headers).header(CONTENT_TYPE, json).body(body);
        let response = match timeout_at(deadline, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(&error)),
            Err(_) => {
                return Err(CallError::no_answer(
                    FailureCause::Other,
                    &Incomplete::TimedOut(self.timeout).to_string(),
                ));
            }
        };
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let wait = retry_after(header("retry-after-ms"), header(RETRY_AFTER.as_str()), SystemTime::now());
        Ok(OpenResponse {
            status: response.status().as_u16(),
            retry_after: wait,
            endpoint: self,
            response,
            deadline,
            idle: self.idle,
            read: 0,
        })
    }

    /// Returns why a request failed. The error's own text is not passed on, because it may contain secrets.
    fn unreachable(&self, error: &reqwest::Error) -> CallError {
        let origin = &self.origin;
        let (cause, reason) = if error.is_connect() {
            (FailureCause::Address, format!("nothing answers at {origin}: {}", connect_error(error)))
        } else if error.is_timeout() {
            (FailureCause::Other, Incomplete::TimedOut(self.timeout).to_string())
        } else {
            (FailureCause::Other, format!("{origin} closed the connection without an answer"))
        };
        CallError::no_answer(cause, &reason)
    }
}

impl OpenResponse<'_> {
    /// Returns whether the response is a stream of events.
    pub(super) fn is_stream(&self) -> bool {
        let kind = self.response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        kind.is_some_and(|kind| kind.to_ascii_lowercase().contains("event-stream"))
    }

    /// Returns the next bytes of the response. `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Incomplete> {
        let stalled = Instant::now() + self.idle;
        let bytes = match timeout_at(self.deadline.min(stalled), self.response.chunk()).await {
            Ok(Ok(Some(bytes))) => bytes,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(_)) => return Err(Incomplete::Broken),
            Err(_) if self.deadline <= stalled => return Err(Incomplete::TimedOut(self.endpoint.timeout)),
            Err(_) => return Err(Incomplete::Stalled(self.idle)),
        };
        self.read = self.read.saturating_add(bytes.len());
        if self.read > MAX_ANSWER_BYTES { Err(Incomplete::TooLarge) } else { Ok(Some(bytes.to_vec())) }
    }

    /// Returns the whole body.
    pub(super) async fn body(&mut self) -> Result<Vec<u8>, Incomplete> {
        let mut body = Vec::new();
        // Without streaming, a provider may send no data until the answer is complete. Therefore only the timeout of
        // the whole call applies.
        self.idle = self.endpoint.timeout;
        while let Some(bytes) = self.next().await? {
            body.extend(bytes);
        }
        Ok(body)
    }

    /// Returns the beginning of an error response. If the connection fails, returns the part that has arrived.
    pub(super) async fn error(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < MAX_ERROR_BYTES
            && let Ok(Some(bytes)) = self.next().await
        {
            body.extend(bytes);
        }
        body
    }
}

/// Returns why a connection failed.
fn connect_error(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        return "it took too long to connect";
    }
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(reason) = connection_error(error) {
            return reason;
        }
        next = error.source();
    }
    "the connection failed"
}

/// Returns the reason of an error. If an I/O error wraps another error, returns the reason of the wrapped error, which
/// the sources of the I/O error do not include.
fn connection_error(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if error.is::<rustls::Error>() {
        return Some("its certificate is not accepted, or it does not use TLS");
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return match error.kind() {
            io::ErrorKind::ConnectionRefused => Some("connection refused"),
            io::ErrorKind::ConnectionReset => Some("connection reset"),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Some("no route to host"),
            _ => error.get_ref().and_then(|inner| connection_error(inner)),
        };
    }
    (error.to_string() == "dns error").then_some("the host name was not found")
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or("").trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Installs a default cryptography provider for TLS, unless the program has already installed one. Epitome calls this
/// function before the first model call. A program that opens TLS connections itself may need to call it earlier.
pub fn install_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // An error means that another thread has installed a provider in the meantime. That provider is used.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn loopback_addresses_are_recognised() {
        for (url, is) in [
            ("http://127.0.0.1:8080/v1", true),
            ("http://[::1]:8080/v1", true),
            ("http://localhost/v1", true),
            ("https://api.openai.com/v1", false),
            ("http://10.0.0.1/v1", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), is, "{url}");
        }
    }

    #[tokio::test]
    async fn a_stalled_stream_ends_before_the_timeout_of_the_call() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/v1", listener.local_addr().unwrap())).unwrap();
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4_096];
            let _ = socket.read(&mut request).await.unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: a\n\n";
            socket.write_all(head.as_bytes()).await.unwrap();
            // Stays open until the client closes the connection.
            let _ = socket.read(&mut request).await;
        });
        let endpoint =
            Endpoint { idle: Duration::from_millis(80), ..Endpoint::new(url, Duration::from_secs(30)) };
        let mut call = endpoint.post(HeaderMap::new(), "{}".to_owned()).await.unwrap();
        assert!(call.is_stream());
        assert_eq!(call.next().await.unwrap().unwrap(), b"data: a\n\n");
        assert_eq!(call.next().await.unwrap_err(), Incomplete::Stalled(Duration::from_millis(80)));
        drop(call);
        tokio::time::timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_closed_port_and_a_server_without_tls_have_different_errors() {
        let reason = async |url: &str| {
            let endpoint = Endpoint::new(Url::parse(url).unwrap(), Duration::from_secs(5));
            endpoint.post(HeaderMap::new(), String::new()).await.err().unwrap().error.to_string()
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        });
        let plain = reason(&format!("https://127.0.0.1:{port}/v1")).await;
        assert!(plain.contains("does not use TLS"), "{plain}");
        server.await.unwrap();
        let closed = reason(&format!("http://127.0.0.1:{port}/v1")).await;
        assert!(
            closed.ends_with(&format!("nothing answers at http://127.0.0.1:{port}: connection refused")),
            "{closed}"
        );
    }
}
