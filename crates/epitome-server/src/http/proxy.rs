//! The proxy: forwards requests to providers, and condenses long conversations on the way.
//!
//! A client sets its base URL to this server, and uses its own provider with its own key. The proxy inspects requests
//! to routes of supported formats, and shortens their message lists if condensing is due. It forwards all other
//! requests unchanged. The formats define the providers and the routes (`epitome::dialect`).
//!
//! ```text
//! auth            checks Epitome's key, if keys are required; selects the workspace; limits requests
//! request_body    reads the body within limits; a body that is too large is forwarded unread
//! decide          decides what to send, from the state of the request's conversation (epitome::inline)
//! upstream        sends the request to the provider
//! report_headers  reports in the response's headers what was done
//! relay           streams the response back without delay, and reads token counts from it
//! account         records the provider's token counts and the savings
//! ```
//!
//! If the provider reports that the request is too long, the proxy condenses further and sends the request a second
//! time.
//!
//! The main rule: if condensing fails, the request is forwarded unchanged. The proxy forwards the callers' provider
//! keys and never stores them. Message content is never logged, unless the operator enables [`requests_log`].

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
use epitome_http::middleware::RequestId;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;

use super::App;
use super::listen::{ConnectionRequests, InProgress};
use super::metrics;
use super::problem::{KeepBody, Problem};
use crate::settings;

mod account;
mod auth;
mod decide;
mod relay;
mod report_headers;
mod request_body;
mod requests_log;
mod upstream;

use account::{PendingUsage, UsageRecord};
use auth::AuthorizedCaller;
use decide::{Condensers, Decision, Outcome, ProxyOptions};
use relay::Relay;
use report_headers::error_response;
use request_body::{ReceivedBody, UploadProgress, upload};
pub(crate) use requests_log::RequestsLog;
use upstream::{Reply, Upstream};

/// Maximum number of bytes of an error response that are searched for the report that the request was too long.
const MAX_PEEKED_BYTES: usize = 64 << 10;

/// Minimum plausible window of a model, in tokens. A smaller number in an error is not a window.
pub(super) const MIN_LIMIT: u64 = 500;

/// State of the proxy, shared by all requests.
pub(crate) struct ProxyState {
    upstreams: Vec<Arc<Upstream>>,
    shadow: bool,
    /// Timeout for an upstream that sends nothing.
    silence: Duration,
    condensers: Condensers,
    usage: PendingUsage,
    log: Option<RequestsLog>,
}

impl ProxyState {
    pub(crate) fn new(settings: &settings::ProxySettings, log: Option<RequestsLog>) -> Self {
        Self {
            upstreams: upstreams(settings),
            shadow: settings.shadow,
            silence: settings.timeout,
            condensers: Condensers::default(),
            usage: PendingUsage::default(),
            log,
        }
    }

    /// Writes pending token counts to the store, and waits until the requests log is written.
    pub(crate) async fn flush(&self, app: &App) {
        let _ = self.usage.flush(app).await;
        if let Some(log) = &self.log {
            log.flush().await;
        }
    }
}

/// Returns an upstream for each provider. The upstream has the address in the settings, or else the provider's own
/// address.
fn upstreams(settings: &settings::ProxySettings) -> Vec<Arc<Upstream>> {
    let set = [("openai", &settings.openai_upstream), ("anthropic", &settings.anthropic_upstream)];
    let mut upstreams: Vec<Upstream> = Vec::new();
    for dialect in Dialect::all() {
        let Some(endpoint) = dialect.format().about().endpoint else { continue };
        match upstreams.iter_mut().find(|upstream| upstream.provider == endpoint.provider) {
            Some(upstream) => upstream.add_dialect(dialect),
            None => {
                let address = set.iter().find(|(provider, _)| *provider == endpoint.provider);
                let address = address.map_or(endpoint.address(), |(_, address)| address);
                upstreams.push(Upstream::new(endpoint.provider, address, dialect));
            }
        }
    }
    upstreams.into_iter().map(Arc::new).collect()
}

/// Returns the proxied routes.
pub(super) fn routes(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for upstream in &app.proxy.upstreams {
        // Inspected routes are separate routes, so that metrics distinguish them from other proxied routes.
        let inspected = upstream.dialects().filter_map(|dialect| {
            let path = dialect.format().about().endpoint?.proxy_path();
            Some((path, Some(dialect)))
        });
        for (path, dialect) in inspected.chain([(format!("/{}/{{*rest}}", upstream.provider), None)]) {
            let target = (Arc::clone(app), Arc::clone(upstream), dialect);
            router = router.route(&path, any(handle).with_state(target));
        }
    }
    router
}

/// Where a route sends requests: the provider, and the format of the message list in a `POST`. The format is None if
/// the proxy does not inspect the route.
type Target = (Arc<App>, Arc<Upstream>, Option<Dialect>);

/// Handles a proxied request. Renders this server's own errors in the provider's error format.
async fn handle(
    State(target): State<Target>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    let dialect = target.1.error_dialect();
    let response = forward(target, request).await;
    let mut response = response.unwrap_or_else(|problem| error_response(dialect, problem, &id.0));
    response.extensions_mut().insert(KeepBody);
    response
}

async fn forward((app, upstream, dialect): Target, request: Request) -> Result<Response, Problem> {
    let caller = auth::authorize(&app, request.headers()).await?;
    let (parts, body) = request.into_parts();
    let invalid = || Problem::invalid("invalid proxy path; it must not contain `..`");
    let url = upstream.url(upstream_path(&upstream, &parts.uri)?).ok_or_else(invalid)?;
    if requires_upgrade(&parts.headers) {
        let detail = "connection upgrades (the header `upgrade`) are not supported; send a plain request";
        return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "upgrade", detail).closing());
    }
    let dialect = dialect.filter(|_| parts.method == Method::POST);
    let proxied = ProxiedRequest {
        app,
        upstream,
        method: parts.method,
        url,
        headers: upstream::forwarded_headers(&parts.headers, dialect.is_some()),
        settings: Ok(Arc::default()),
        in_progress: parts
            .extensions
            .get::<ConnectionRequests>()
            .map(|ConnectionRequests(count)| InProgress::new(count)),
        caller,
    };
    match dialect {
        Some(dialect) => proxied.forward_conversation(dialect, &parts.headers, body).await,
        None => {
            let length = http_body::Body::size_hint(&body).exact();
            // A request without a body is forwarded without a body. If the client sent `content-length: 0`, this header
            // is forwarded, because some servers require it.
            let silence = proxied.app.limits.body_idle_timeout;
            let upload = (length != Some(0)).then(|| upload(Bytes::new(), body, silence));
            let declared = parts.headers.contains_key(header::CONTENT_LENGTH);
            proxied
                .forward_unread(upload, length.filter(|length| *length > 0 || declared), "another_route")
                .await
        }
    }
}

/// Whether the request requires a connection upgrade. Ignores offers of HTTP/2 without TLS (`h2c`), because some
/// clients send such an offer with every request, and also accept HTTP/1.1.
fn requires_upgrade(headers: &HeaderMap) -> bool {
    let mut offered = headers.get_all(header::UPGRADE).iter().map(HeaderValue::as_bytes);
    offered.any(|offered| !offered.trim_ascii().eq_ignore_ascii_case(b"h2c"))
}

/// Returns the path and the query for the request to the upstream.
fn upstream_path<'a>(upstream: &Upstream, uri: &'a Uri) -> Result<&'a str, Problem> {
    let whole = uri.path_and_query().map_or("", |whole| whole.as_str());
    let rest = whole.get(upstream.provider.len() + 1..).unwrap_or_default();
    if rest.starts_with("/v1/") || rest == "/v1" {
        return Ok(rest);
    }
    let base = upstream.error_dialect().format().about().endpoint.map_or("", |endpoint| endpoint.client_base);
    Err(Problem::not_found(format!(
        "there is no such path; on this server, a client's base URL ends in {base}"
    )))
}

/// A request that the proxy forwards.
pub(super) struct ProxiedRequest {
    app: Arc<App>,
    caller: AuthorizedCaller,
    upstream: Arc<Upstream>,
    method: Method,
    url: reqwest::Url,
    /// Headers to send to the upstream.
    headers: HeaderMap,
    /// The workspace's settings.
    settings: Result<Arc<Settings>, Error>,
    /// Marks the client's connection as in use until the whole response is sent.
    in_progress: Option<InProgress>,
}

impl ProxiedRequest {
    /// Forwards a request without inspecting its body.
    async fn forward_unread(
        mut self,
        upload: Option<(reqwest::Body, UploadProgress)>,
        length: Option<u64>,
        reason: &str,
    ) -> Result<Response, Problem> {
        let (body, progress) = upload.unzip();
        if let Some(length) = length {
            self.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        let reply = self.send(body, progress).await?;
        Ok(self.respond(reply, &Decision::unchanged(reason), None))
    }

    /// Forwards a request that contains a list of messages.
    async fn forward_conversation(
        mut self,
        dialect: Dialect,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, Problem> {
        let options = ProxyOptions::from_headers(headers, dialect, self.app.proxy.shadow)?;
        let name = self.caller.workspace.name().into();
        // Reads the settings from the store while the body arrives.
        let (received, settings) =
            tokio::join!(request_body::receive(body, &self.app, &name), self.caller.workspace.settings());
        self.settings = settings;
        let mut received = match received? {
            ReceivedBody::Complete(received) => received,
            ReceivedBody::Partial { first, rest, length, reason } => {
                let upload = upload(first, rest, self.app.limits.body_idle_timeout);
                return self.forward_unread(Some(upload), length, reason).await;
            }
        };
        let decision = decide::decide(&self, &options, &received.bytes, false).await;
        self.log_request(&options, &decision, &received.bytes).await;
        let sent = decision.text.clone().unwrap_or_else(|| received.bytes.clone());
        let size = sent.len();
        received.shrink_reservation(decision.text.as_ref().map_or(0, Bytes::len), &self.app, &name);
        if size == 0 {
            self.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
        }
        let reply = self.send(Some(sent.into()), None).await?;
        let reply = PeekedReply::read(reply, self.app.proxy.silence).await;
        if let Some(limit) = reply.too_long()
            && let Some(conversation) = &decision.conversation
            && !decision.is_shadow()
        {
            conversation.turn.too_long(limit.filter(|limit| *limit >= MIN_LIMIT));
            let again = decide::decide(&self, &options, &received.bytes, true).await;
            if let Some(text) =
                again.text.clone().filter(|text| again.is_smaller_than(&decision, text.len(), size))
            {
                self.log_request(&options, &again, &received.bytes).await;
                drop(reply);
                received.release();
                let reply = self.send(Some(text.into()), None).await?;
                let record = self.usage_record(&again, true);
                return Ok(self.respond(reply, &again.retried(), record));
            }
        }
        received.release();
        let record = self.usage_record(&decision, false);
        Ok(self.respond(reply.into_reply(), &decision, record))
    }

    /// Returns the usage record of the request. Returns None if the request's conversation was not identified.
    fn usage_record(&self, decision: &Decision, retried: bool) -> Option<UsageRecord> {
        let conversation = decision.conversation.clone()?;
        let price = self.settings.as_ref().ok().and_then(|settings| settings.price(&conversation.model));
        let (app, workspace) = (Arc::clone(&self.app), self.caller.workspace.clone());
        Some(UsageRecord { app, workspace, conversation, retried, price })
    }

    /// Sends the request to the upstream, and waits until the response begins.
    async fn send(
        &self,
        body: Option<reqwest::Body>,
        progress: Option<UploadProgress>,
    ) -> Result<Reply, Problem> {
        let sending = self.upstream.send(self.method.clone(), self.url.clone(), self.headers.clone(), body);
        request_body::await_response(sending, self.app.proxy.silence, progress).await
    }

    /// Returns the response as a stream, with headers that report what was done.
    fn respond(self, reply: Reply, decision: &Decision, record: Option<UsageRecord>) -> Response {
        let is_condensed = matches!(decision.outcome, Outcome::Condensed | Outcome::Retried);
        metrics::record_proxied(decision.outcome.name(), is_condensed);
        let (mut parts, body) = reply.into_parts();
        parts.headers = upstream::end_to_end_headers(&parts.headers);
        decision.write_headers(&mut parts.headers);
        let record = record.filter(|_| parts.status.is_success());
        let permits = (self.caller.permit, self.in_progress, decision.caller_model.clone());
        let relay = Relay::new(body, &parts.headers, self.app.proxy.silence, record, permits);
        Response::from_parts(parts, Body::new(relay))
    }

    /// Writes the request to the requests log, if the operator has enabled the log.
    async fn log_request(&self, options: &ProxyOptions, decision: &Decision, received: &Bytes) {
        if let Some(log) = &self.app.proxy.log {
            let text = decision.text.as_ref().unwrap_or(received);
            log.write(options, decision, text).await;
        }
    }
}

/// A response. If its status may mean that the request was too long, the beginning of its body has been read.
struct PeekedReply {
    parts: axum::http::response::Parts,
    first: Bytes,
    /// Whether the response broke off after `first`.
    broke: bool,
    rest: Body,
}

impl PeekedReply {
    async fn read(reply: Reply, silence: Duration) -> Self {
        let (parts, mut rest) = reply.into_parts();
        let (mut first, mut broke) = (bytes::BytesMut::new(), false);
        if matches!(parts.status.as_u16(), 400 | 413 | 422 | 429 | 500) {
            let until = tokio::time::Instant::now() + silence.min(Duration::from_secs(10));
            while first.len() < MAX_PEEKED_BYTES {
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

    /// Returns None if the response does not report that the request was too long. Otherwise returns the limit in
    /// tokens, if the response contains the limit.
    fn too_long(&self) -> Option<Option<u64>> {
        if self.first.is_empty() && self.parts.status != StatusCode::PAYLOAD_TOO_LARGE {
            return None;
        }
        too_long(self.parts.status.as_u16(), &self.first).map(|error| error.limit)
    }

    /// Returns the response unchanged.
    fn into_reply(self) -> Reply {
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
    fn name(self) -> &'static str {
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
