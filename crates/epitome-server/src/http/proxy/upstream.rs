//! Sends requests to a provider, and filters the headers in both directions.

use std::io;
use std::sync::OnceLock;

use axum::http::{HeaderName, Method, Response};
use epitome::model::{Credentials, Lender, Model};
use http_body_util::BodyExt;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use super::super::prelude::*;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the connection pool keeps an idle connection open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the connection pool keeps an idle connection without TLS open. The timeout is short because many
/// self-hosted servers close idle connections after five seconds, possibly while a request is on its way. A new
/// connection without TLS is cheap.
const IDLE_TIMEOUT_WITHOUT_TLS: Duration = Duration::from_secs(4);
/// Maximum number of idle connections per host.
const MAX_IDLE_PER_HOST: usize = 64;

/// Headers that apply to one connection only and are not forwarded.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Prefix of Epitome's headers.
const HEADER_PREFIX: &str = "x-epitome";

/// A provider's response.
pub(super) type Reply = Response<Body>;

/// A provider to which requests are forwarded.
pub(super) struct Upstream {
    /// Name of the provider. It is the first segment of the provider's paths on this server.
    pub(super) provider: &'static str,
    base: String,
    /// Created on first use, because most servers use only one or two providers. None if the client cannot be created,
    /// for example because the system has no certificates.
    client: OnceLock<Option<Client>>,
    /// The provider's formats. Each format has a `Lender`, which creates models that use a caller's key. Errors of this
    /// server are written in the first format.
    formats: Vec<(Dialect, OnceLock<Option<Lender>>)>,
}

impl Upstream {
    pub(super) fn new(provider: &'static str, base: &str, first: Dialect) -> Self {
        let formats = vec![(first, OnceLock::new())];
        Self { provider, base: base.to_owned(), client: OnceLock::new(), formats }
    }

    /// Adds a format of the provider.
    pub(super) fn add_dialect(&mut self, dialect: Dialect) {
        self.formats.push((dialect, OnceLock::new()));
    }

    /// Returns the provider's first format, which is used for errors.
    pub(super) fn error_dialect(&self) -> Dialect {
        self.dialects().next().unwrap_or(Dialect::OPENAI)
    }

    /// Returns the provider's formats.
    pub(super) fn dialects(&self) -> impl Iterator<Item = Dialect> {
        self.formats.iter().map(|(dialect, _)| *dialect)
    }

    /// Returns the upstream URL of a path. Returns None if the path would leave the upstream's base path.
    pub(super) fn url(&self, rest: &str) -> Option<Url> {
        let url = Url::parse(&format!("{}{rest}", self.base)).ok()?;
        let root = Url::parse(&format!("{}/v1", self.base)).ok()?;
        let within = url.path().strip_prefix(root.path())?;
        ((within.is_empty() || within.starts_with('/')) && url.origin() == root.origin()).then_some(url)
    }

    /// Returns the model that the caller requested. The model uses the caller's own key.
    pub(super) fn caller_model(
        &self,
        dialect: Dialect,
        model: &str,
        headers: &HeaderMap,
    ) -> Option<Arc<dyn Model>> {
        let (_, lender) = self.formats.iter().find(|(format, _)| *format == dialect)?;
        let lender = lender.get_or_init(|| Lender::new(dialect, &format!("{}/v1", self.base)).ok());
        let sent = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        Some(Arc::new(lender.as_ref()?.lend(model, Credentials::of(sent))))
    }

    fn client(&self) -> Option<&Client> {
        let client = self.client.get_or_init(|| {
            epitome::model::install_tls();
            let mut builder = Client::builder()
                .redirect(Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
                .tcp_nodelay(true);
            let url = Url::parse(&self.base).ok()?;
            if url.host_str().is_some_and(is_loopback) {
                builder = builder.no_proxy();
            }
            if url.scheme() == "http" {
                // Connections without TLS need no certificates.
                builder = builder.tls_certs_only([]).pool_idle_timeout(IDLE_TIMEOUT_WITHOUT_TLS);
            }
            builder.build().ok()
        });
        client.as_ref()
    }

    /// Sends a request, and waits until the response begins.
    pub(super) async fn send(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Option<reqwest::Body>,
    ) -> Result<Reply, Problem> {
        let Some(client) = self.client() else {
            let detail = "cannot verify the upstream: this system has no root certificates";
            return Err(connection_failed(detail));
        };
        let mut request = reqwest::Request::new(method, url);
        *request.headers_mut() = headers;
        *request.body_mut() = body;
        match client.execute(request).await {
            // The errors of reqwest are replaced, because they contain the upstream's address.
            Ok(response) => {
                Ok(Response::from(response).map(|body| Body::new(body.map_err(|_| broken_off()))))
            }
            Err(error) if error.is_connect() => {
                Err(connection_failed("cannot connect to the upstream; try again"))
            }
            Err(error) if error.is_timeout() => Err(timed_out()),
            Err(_) => {
                Err(connection_failed("the upstream closed the connection before it answered; try again"))
            }
        }
    }
}

/// Returns the problem of an upstream that sent no response.
fn connection_failed(detail: &str) -> Problem {
    Problem::new(StatusCode::BAD_GATEWAY, "upstream", detail)
}

/// Returns the error of a response that broke off.
pub(super) fn broken_off() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// Returns the problem of an upstream that did not respond in time.
pub(super) fn timed_out() -> Problem {
    Problem::new(
        StatusCode::GATEWAY_TIMEOUT,
        "upstream-silent",
        "the upstream did not answer in time; try again",
    )
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns a request's headers for the upstream. If the proxy reads the usage from the response, it requests an
/// uncompressed response.
pub(super) fn forwarded_headers(headers: &HeaderMap, reads_usage: bool) -> HeaderMap {
    let mut forwarded = end_to_end_headers(headers);
    for name in [header::HOST, header::CONTENT_LENGTH, header::EXPECT] {
        forwarded.remove(name);
    }
    if reads_usage {
        forwarded.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    forwarded
}

/// Returns the headers without Epitome's own headers, and without the headers that apply to one connection only.
pub(super) fn end_to_end_headers(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let stays = |name: &HeaderName| {
        !HOP_BY_HOP.contains(name) && !named.contains(name) && !name.as_str().starts_with(HEADER_PREFIX)
    };
    headers
        .iter()
        .filter(|(name, _)| stays(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_upstream() {
        let upstream = Upstream::new("openai", "http://127.0.0.1:9/deep", Dialect::OPENAI);
        let url = |rest: &str| upstream.url(rest).map(|url| url.to_string());
        assert_eq!(
            url("/v1/models?limit=2&x=%2F").unwrap(),
            "http://127.0.0.1:9/deep/v1/models?limit=2&x=%2F"
        );
        assert_eq!(url("/v1/a%2Fb").unwrap(), "http://127.0.0.1:9/deep/v1/a%2Fb");
        for out in ["/v1/../admin", "/v1/../../x", "/v1/%2e%2e/admin", "/v1/a/../../b", "/v1x"] {
            assert_eq!(url(out), None, "{out}");
        }
    }

    #[test]
    fn hop_by_hop_headers_and_epitomes_own_are_not_forwarded() {
        let received = [
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("transfer-encoding", "chunked"),
            ("x-epitome", "off"),
            ("x-epitome-key", "epk_1"),
            ("host", "here"),
            ("content-length", "3"),
            ("authorization", "Bearer sk-1"),
            ("x-request-id", "theirs"),
            ("accept-encoding", "gzip"),
        ];
        let headers: HeaderMap = received
            .into_iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value)))
            .collect();
        let names = |headers: &HeaderMap| {
            let mut names: Vec<String> = headers.keys().map(ToString::to_string).collect();
            names.sort();
            names
        };
        let forwarded = forwarded_headers(&headers, true);
        assert_eq!(names(&forwarded), ["accept-encoding", "authorization", "x-request-id"]);
        assert_eq!(forwarded["accept-encoding"], "identity");
        assert_eq!(forwarded_headers(&headers, false)["accept-encoding"], "gzip");
    }
}
