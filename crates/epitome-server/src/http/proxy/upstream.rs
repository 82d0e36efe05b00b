//! The way to a provider, and the headers that go either way.

use std::io;
use std::sync::OnceLock;

use axum::http::{HeaderName, Method, Response};
use epitome::model::{Credentials, Lender, Model};
use http_body_util::BodyExt;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use super::super::prelude::*;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Connections that nobody uses are kept for so long, and so many of them. Where nothing is encrypted a new one costs next to
/// nothing, and many servers that people run themselves close theirs after five seconds: perhaps while a request is on its way.
const IDLE: Duration = Duration::from_secs(30);
const IDLE_PLAIN: Duration = Duration::from_secs(4);
const MOST_IDLE: usize = 64;

/// Those that are about one connection, and not about what it carries.
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

/// What ours begin with.
const OURS: &str = "x-epitome";

/// An answer of a provider.
pub(super) type Reply = Response<Body>;

/// A provider that requests go on to.
pub(super) struct Upstream {
    /// What its paths here are called after.
    pub(super) provider: &'static str,
    base: String,
    /// Made when it is first needed: most who serve use one of two at most. None where the system has no certificates.
    client: OnceLock<Option<Client>>,
    /// The formats that are spoken there, the first of which its errors are written in; each with who lends keys for it.
    formats: Vec<(Dialect, OnceLock<Option<Lender>>)>,
}

impl Upstream {
    pub(super) fn new(provider: &'static str, base: &str, usual: Dialect) -> Self {
        let formats = vec![(usual, OnceLock::new())];
        Self { provider, base: base.to_owned(), client: OnceLock::new(), formats }
    }

    /// One more format is spoken there.
    pub(super) fn speaks(&mut self, dialect: Dialect) {
        self.formats.push((dialect, OnceLock::new()));
    }

    /// The format of its errors, and of clients that say nothing else.
    pub(super) fn usual(&self) -> Dialect {
        self.spoken().next().unwrap_or(Dialect::OPENAI)
    }

    /// The formats that are spoken there.
    pub(super) fn spoken(&self) -> impl Iterator<Item = Dialect> {
        self.formats.iter().map(|(dialect, _)| *dialect)
    }

    /// The address of a path there; none where it would lead out of it.
    pub(super) fn url(&self, rest: &str) -> Option<Url> {
        let url = Url::parse(&format!("{}{rest}", self.base)).ok()?;
        let root = Url::parse(&format!("{}/v1", self.base)).ok()?;
        let within = url.path().strip_prefix(root.path())?;
        ((within.is_empty() || within.starts_with('/')) && url.origin() == root.origin()).then_some(url)
    }

    /// The model that a caller asks for, with their own key.
    pub(super) fn lend(&self, dialect: Dialect, model: &str, headers: &HeaderMap) -> Option<Arc<dyn Model>> {
        let (_, lender) = self.formats.iter().find(|(spoken, _)| *spoken == dialect)?;
        let lender = lender.get_or_init(|| Lender::new(dialect, &format!("{}/v1", self.base)).ok());
        let said = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        Some(Arc::new(lender.as_ref()?.lend(model, Credentials::of(said))))
    }

    fn client(&self) -> Option<&Client> {
        let made = self.client.get_or_init(|| {
            epitome::model::speak_tls();
            let mut builder = Client::builder()
                .redirect(Policy::none())
                .connect_timeout(CONNECT)
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(MOST_IDLE)
                .tcp_nodelay(true);
            let url = Url::parse(&self.base).ok()?;
            if url.host_str().is_some_and(is_loopback) {
                builder = builder.no_proxy();
            }
            if url.scheme() == "http" {
                // Nobody is believed by a certificate there.
                builder = builder.tls_certs_only([]).pool_idle_timeout(IDLE_PLAIN);
            }
            builder.build().ok()
        });
        made.as_ref()
    }

    /// Sends a request, and waits until its answer begins.
    pub(super) async fn send(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Option<reqwest::Body>,
    ) -> Result<Reply, Problem> {
        let Some(client) = self.client() else {
            return Err(gone("the upstream cannot be believed: this system has no certificates"));
        };
        let mut request = reqwest::Request::new(method, url);
        *request.headers_mut() = headers;
        *request.body_mut() = body;
        match client.execute(request).await {
            // What an error displays has an address in it.
            Ok(response) => {
                Ok(Response::from(response).map(|body| Body::new(body.map_err(|_| broken_off()))))
            }
            Err(error) if error.is_connect() => Err(gone("nothing answers at the upstream; try again")),
            Err(error) if error.is_timeout() => Err(late()),
            Err(_) => Err(gone("the upstream closed the connection before it answered; try again")),
        }
    }
}

/// Nothing came from there.
fn gone(detail: &str) -> Problem {
    Problem::new(StatusCode::BAD_GATEWAY, "upstream", detail)
}

/// An answer broke off.
pub(super) fn broken_off() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// Nothing came in time.
pub(super) fn late() -> Problem {
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

/// A request's headers as they are sent on. Whoever `listens` to the answer has it as it is said, not packed.
pub(super) fn onward(headers: &HeaderMap, listens: bool) -> HeaderMap {
    let mut onward = without_hops(headers);
    for name in [header::HOST, header::CONTENT_LENGTH, header::EXPECT] {
        onward.remove(name);
    }
    if listens {
        onward.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    onward
}

/// Headers without those of one connection: an answer's as they are sent back.
pub(super) fn without_hops(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let stays = |name: &HeaderName| {
        !HOP_BY_HOP.contains(name) && !named.contains(name) && !name.as_str().starts_with(OURS)
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
    fn headers_of_one_connection_stay_with_it_and_ours_stay_here() {
        let given = [
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
        let headers: HeaderMap = given
            .into_iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value)))
            .collect();
        let names = |headers: &HeaderMap| {
            let mut names: Vec<String> = headers.keys().map(ToString::to_string).collect();
            names.sort();
            names
        };
        let onward = onward(&headers, true);
        assert_eq!(names(&onward), ["accept-encoding", "authorization", "x-request-id"]);
        assert_eq!(onward["accept-encoding"], "identity");
        assert_eq!(super::onward(&headers, false)["accept-encoding"], "gzip");
    }
}
