//! The proxy: forwards requests to providers, and condenses long conversations on the way.
//!
//! A client whose base URL points here uses its own provider with its own key. Requests to routes of supported formats are
//! inspected, and shortened if that is due. All other requests are forwarded unchanged. The formats define the providers and
//! routes (`epitome::dialect`).
//!
//! ```text
//! gate      checks Epitome's key, if keys are required; selects the workspace; limits requests
//! taking    reads the body within limits; a body that is too large is forwarded unread
//! decide    decides what to send instead, using the request's conversation  (epitome::inline)
//! upstream  sends the request; on "too long", condenses harder and sends it a second time
//! relay     streams the response back without delay, and reads token counts from it
//! account   records what the provider counted and what was saved
//! ```
//!
//! The main rule: if anything fails here, the request is forwarded unchanged. Callers' keys are forwarded and never stored.
//! Message content is never logged, unless the operator enables [`requests_log`].

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use bytes::Bytes;
use epitome::Error;
use epitome::dialect::Dialect;
use epitome::model::too_long;
use epitome::settings::Settings;
use epitome_http::around::RequestId;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;

use super::App;
use super::figures;
use super::listen::{OnConnection, UnderWay};
use super::problem::{Dressed, Problem};
use crate::settings;

mod account;
mod decide;
mod gate;
mod relay;
mod requests_log;
mod taking;
mod told;
mod upstream;

use account::{Account, Sums};
use decide::{Condensers, Decided, Outcome};
use gate::Entered;
use relay::Relay;
pub(crate) use requests_log::RequestsLog;
use taking::{Taken, upload};
use told::refused;
use upstream::{Reply, Upstream};

/// Maximum number of bytes of an error response that are searched for "too long".
const MOST_LOOKED_AT: usize = 64 << 10;

/// Minimum plausible window of a model, in tokens. A smaller number in an error must mean something else.
pub(super) const LEAST_LIMIT: u64 = 500;

/// State of the proxy, shared by all requests.
pub(crate) struct Proxy {
    upstreams: Vec<Arc<Upstream>>,
    shadow: bool,
    /// Timeout while an upstream sends nothing.
    silence: Duration,
    condensers: Condensers,
    sums: Sums,
    log: Option<RequestsLog>,
}

impl Proxy {
    pub(crate) fn new(settings: &settings::Proxy, log: Option<RequestsLog>) -> Self {
        Self {
            upstreams: upstreams(settings),
            shadow: settings.shadow,
            silence: settings.timeout,
            condensers: Condensers::default(),
            sums: Sums::default(),
            log,
        }
    }

    /// Writes pending counts to the store, and waits until the requests log is written.
    pub(crate) async fn settle(&self, app: &App) {
        let _ = self.sums.settle(app).await;
        if let Some(log) = &self.log {
            log.written().await;
        }
    }
}

/// Returns the providers of all formats, at the configured address or at their own.
fn upstreams(settings: &settings::Proxy) -> Vec<Arc<Upstream>> {
    let set = [("openai", &settings.openai_upstream), ("anthropic", &settings.anthropic_upstream)];
    let mut upstreams: Vec<Upstream> = Vec::new();
    for dialect in Dialect::all() {
        let Some(endpoint) = dialect.format().about().endpoint else { continue };
        match upstreams.iter_mut().find(|upstream| upstream.provider == endpoint.provider) {
            Some(upstream) => upstream.speaks(dialect),
            None => {
                let address = set.iter().find(|(provider, _)| *provider == endpoint.provider);
                let address = address.map_or(endpoint.address(), |(_, address)| address);
                upstreams.push(Upstream::new(endpoint.provider, address, dialect));
            }
        }
    }
    upstreams.into_iter().map(Arc::new).collect()
}

pub(super) fn routes(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for upstream in &app.proxy.upstreams {
        // Inspected routes are separate routes, so that metrics distinguish them.
        let spoken = upstream.spoken().filter_map(|dialect| {
            let path = dialect.format().about().endpoint?.proxy_path();
            Some((path, Some(dialect)))
        });
        for (path, dialect) in spoken.chain([(format!("/{}/{{*rest}}", upstream.provider), None)]) {
            let to = (Arc::clone(app), Arc::clone(upstream), dialect);
            router = router.route(&path, any(each).with_state(to));
        }
    }
    router
}

/// Where a route sends requests: the provider, and the format of the message list in a `POST`.
type To = (Arc<App>, Arc<Upstream>, Option<Dialect>);

/// Handles a proxied request. Errors of this server are in the provider's error format.
async fn each(State(to): State<To>, Extension(id): Extension<RequestId>, request: Request) -> Response {
    let spoken = to.1.usual();
    let mut response = pass(to, request).await.unwrap_or_else(|problem| refused(spoken, problem, &id.0));
    response.extensions_mut().insert(Dressed);
    response
}

async fn pass((app, upstream, dialect): To, request: Request) -> Result<Response, Problem> {
    let entered = gate::enter(&app, request.headers()).await?;
    let (parts, body) = request.into_parts();
    let wrong = || Problem::invalid("invalid proxy path; it must not contain `..`");
    let url = upstream.url(rest(&upstream, &parts.uri)?).ok_or_else(wrong)?;
    if wants_something_else(&parts.headers) {
        let detail = "connection upgrades (the header `upgrade`) are not supported; send a plain request";
        return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "upgrade", detail).and_hang_up());
    }
    let dialect = dialect.filter(|_| parts.method == Method::POST);
    let passage = Passage {
        app,
        upstream,
        method: parts.method,
        url,
        headers: upstream::onward(&parts.headers, dialect.is_some()),
        settings: Ok(Arc::default()),
        under_way: parts.extensions.get::<OnConnection>().map(|OnConnection(count)| UnderWay::new(count)),
        entered,
    };
    match dialect {
        Some(dialect) => passage.talk(dialect, &parts.headers, body).await,
        None => {
            let length = http_body::Body::size_hint(&body).exact();
            // A request without a body is sent without one. `content-length: 0` is sent on, because some servers require it.
            let silence = passage.app.bounds.silence;
            let upload = (length != Some(0)).then(|| upload(Bytes::new(), body, silence));
            let said = parts.headers.contains_key(header::CONTENT_LENGTH);
            passage.unread(upload, length.filter(|length| *length > 0 || said), "another_route").await
        }
    }
}

/// Whether the request requires a connection upgrade. Ignores offers of HTTP/2 without TLS (`h2c`): some clients always
/// send them, and accept HTTP/1.1.
fn wants_something_else(headers: &HeaderMap) -> bool {
    let mut offered = headers.get_all(header::UPGRADE).iter().map(HeaderValue::as_bytes);
    offered.any(|offered| !offered.trim_ascii().eq_ignore_ascii_case(b"h2c"))
}

/// Returns the path and query to request from the upstream.
fn rest<'a>(upstream: &Upstream, uri: &'a Uri) -> Result<&'a str, Problem> {
    let whole = uri.path_and_query().map_or("", |whole| whole.as_str());
    let rest = whole.get(upstream.provider.len() + 1..).unwrap_or_default();
    if rest.starts_with("/v1/") || rest == "/v1" {
        return Ok(rest);
    }
    let base = upstream.usual().format().about().endpoint.map_or("", |endpoint| endpoint.client_base);
    Err(Problem::not_found(format!(
        "there is no such path; a client's base URL ends in {base} on this server"
    )))
}

/// A request being proxied.
pub(super) struct Passage {
    app: Arc<App>,
    entered: Entered,
    upstream: Arc<Upstream>,
    method: Method,
    url: reqwest::Url,
    /// Headers to send to the upstream.
    headers: HeaderMap,
    /// The workspace's settings.
    settings: Result<Arc<Settings>, Error>,
    /// Marks the connection as in use until the whole response is sent.
    under_way: Option<UnderWay>,
}

impl Passage {
    /// Forwards a request without inspecting its body.
    async fn unread(
        mut self,
        upload: Option<(reqwest::Body, taking::Progress)>,
        length: Option<u64>,
        reason: &str,
    ) -> Result<Response, Problem> {
        let (body, progress) = upload.unzip();
        if let Some(length) = length {
            self.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        let reply = self.send(body, progress).await?;
        Ok(self.answer(reply, &Decided::passed(reason), None))
    }

    /// Forwards a request that contains a list of messages.
    async fn talk(mut self, dialect: Dialect, headers: &HeaderMap, body: Body) -> Result<Response, Problem> {
        let asked = decide::Asked::of(headers, dialect, self.app.proxy.shadow)?;
        let name = self.entered.workspace.name().into();
        // Reads the settings from the store while the body arrives.
        let (taken, settings) =
            tokio::join!(taking::take(body, &self.app, &name), self.entered.workspace.settings());
        self.settings = settings;
        let mut taken = match taken? {
            Taken::Whole(taken) => taken,
            Taken::Part { first, rest, length, reason } => {
                let upload = upload(first, rest, self.app.bounds.silence);
                return self.unread(Some(upload), length, reason).await;
            }
        };
        let decided = decide::decide(&self, &asked, &taken.bytes, false).await;
        self.write_down(&asked, &decided, &taken.bytes).await;
        let sent = decided.text.clone().unwrap_or_else(|| taken.bytes.clone());
        let size = sent.len();
        taken.holds_only(decided.text.as_ref().map_or(0, Bytes::len), &self.app, &name);
        if size == 0 {
            self.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
        }
        let reply = self.send(Some(sent.into()), None).await?;
        let reply = Held::of(reply, self.app.proxy.silence).await;
        if let Some(limit) = reply.too_long()
            && let Some(known) = &decided.known
            && !decided.is_shadow()
        {
            known.turn.too_long(limit.filter(|limit| *limit >= LEAST_LIMIT));
            let again = decide::decide(&self, &asked, &taken.bytes, true).await;
            if let Some(text) =
                again.text.clone().filter(|text| again.is_smaller_than(&decided, text.len(), size))
            {
                self.write_down(&asked, &again, &taken.bytes).await;
                drop(reply);
                taken.let_go();
                let reply = self.send(Some(text.into()), None).await?;
                let account = self.account(&again, true);
                return Ok(self.answer(reply, &again.retried(), account));
            }
        }
        taken.let_go();
        let account = self.account(&decided, false);
        let reply = reply.take();
        Ok(self.answer(reply, &decided, account))
    }

    /// Returns what to record for the request, if its conversation was identified.
    fn account(&self, decided: &Decided, retried: bool) -> Option<Account> {
        let known = decided.known.clone()?;
        let price = self.settings.as_ref().ok().and_then(|settings| settings.price(&known.model));
        let (app, workspace) = (Arc::clone(&self.app), self.entered.workspace.clone());
        Some(Account { app, workspace, known, retried, price })
    }

    /// Sends the request to the upstream, and waits until the response begins.
    async fn send(
        &self,
        body: Option<reqwest::Body>,
        progress: Option<taking::Progress>,
    ) -> Result<Reply, Problem> {
        let sending = self.upstream.send(self.method.clone(), self.url.clone(), self.headers.clone(), body);
        taking::while_it_moves(sending, self.app.proxy.silence, progress).await
    }

    /// Returns the response as a stream, with headers that report what was done.
    fn answer(self, reply: Reply, decided: &Decided, account: Option<Account>) -> Response {
        figures::passed_on(decided.outcome.in_a_word());
        let (mut parts, body) = reply.into_parts();
        parts.headers = upstream::without_hops(&parts.headers);
        decided.tell(&mut parts.headers);
        let account = account.filter(|_| parts.status.is_success());
        let held = (self.entered.place, self.under_way, decided.lent.clone());
        let relay = Relay::new(body, &parts.headers, self.app.proxy.silence, account, held);
        Response::from_parts(parts, Body::new(relay))
    }

    /// Writes the request to the requests log, if there is one.
    async fn write_down(&self, asked: &decide::Asked, decided: &Decided, came: &Bytes) {
        if let Some(log) = &self.app.proxy.log {
            let text = decided.text.as_ref().unwrap_or(came);
            log.write(asked, decided, text).await;
        }
    }
}

/// A response whose beginning was read, if its status may mean that the request was too long.
struct Held {
    parts: axum::http::response::Parts,
    first: Bytes,
    /// Whether the response broke off after `first`.
    broke: bool,
    rest: Body,
}

impl Held {
    async fn of(reply: Reply, silence: Duration) -> Self {
        let (parts, mut rest) = reply.into_parts();
        let (mut first, mut broke) = (bytes::BytesMut::new(), false);
        if matches!(parts.status.as_u16(), 400 | 413 | 422 | 429 | 500) {
            let until = tokio::time::Instant::now() + silence.min(Duration::from_secs(10));
            while first.len() < MOST_LOOKED_AT {
                match tokio::time::timeout_at(until, rest.frame()).await {
                    Ok(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) => first.extend_from_slice(&data),
                        Err(_) => break,
                    },
                    Ok(Some(Err(_))) => {
                        broke = true;
                        break;
                    }
                    Ok(None) | Err(_) => break,
                }
            }
        }
        Self { parts, first: first.freeze(), broke, rest }
    }

    /// Whether the response says that the request was too long, and the limit, if it says that too.
    fn too_long(&self) -> Option<Option<u64>> {
        if self.first.is_empty() && self.parts.status != StatusCode::PAYLOAD_TOO_LARGE {
            return None;
        }
        too_long(self.parts.status.as_u16(), &self.first).map(|told| told.limit)
    }

    /// Returns the response unchanged.
    fn take(self) -> Reply {
        let Self { parts, first, broke, rest } = self;
        if first.is_empty() && !broke {
            return Reply::from_parts(parts, rest);
        }
        let end = broke.then(|| Err(axum::Error::new(upstream::broken_off())));
        let read = stream::iter([Ok(first)].into_iter().chain(end));
        Reply::from_parts(parts, Body::from_stream(read.chain(rest.into_data_stream())))
    }
}

impl Outcome {
    /// Returns the word for the header `x-epitome` and for metrics.
    fn in_a_word(self) -> &'static str {
        match self {
            Self::Condensed => "condensed",
            Self::Untouched => "untouched",
            Self::Passed => "passed",
            Self::Off => "off",
            Self::Shadow => "shadow",
            Self::Retried => "retried",
        }
    }
}
