//! The proxy: change one line, and long conversations fit.
//!
//! A client whose base URL points here speaks to its own provider, with its own key. Requests on the routes of known formats
//! are looked at on their way, and shortened where they are due; everything else goes through as it is. Which providers and routes
//! there are is told by the formats themselves (`epitome::dialect`).
//!
//! ```text
//! gate      whose key is it (ours, where keys are on), which workspace, is there room
//! taking    the body, read within bounds; what is too large is passed on unread
//! decide    what is sent in its place: by the conversation it belongs to  (epitome::inline)
//! upstream  sent on; "too long" is condensed harder and sent once more
//! relay     the answer, piece by piece as it comes, listened to and never held back
//! account   what the provider counted, and what that saved
//! ```
//!
//! One rule stands over all others: whatever goes wrong here, the request goes on as it came. Keys of callers are
//! passed on and kept nowhere; what they say is told to nobody, unless whoever runs the server has it written down
//! ([`requests_log`]).

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

/// So much of an error is looked at, in bytes: whether it says that the request was too long.
const MOST_LOOKED_AT: usize = 64 << 10;

/// No model has a smaller window, in tokens. What a refusal says may quote a number that means something else.
pub(super) const LEAST_LIMIT: u64 = 500;

/// What all requests that are passed on share.
pub(crate) struct Proxy {
    upstreams: Vec<Arc<Upstream>>,
    shadow: bool,
    /// For so long an upstream may say nothing.
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

    /// Writes down what was counted since it was last written, and waits until what was sent on is, where that is wanted.
    pub(crate) async fn settle(&self, app: &App) {
        let _ = self.sums.settle(app).await;
        if let Some(log) = &self.log {
            log.written().await;
        }
    }
}

/// The providers that formats are spoken by: at the address that is set, or at their own.
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
        // Those that are looked at have routes of their own so that they are told apart in figures.
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

/// Where requests on a route go: the provider, and the format in which one by `POST` holds a list of messages.
type To = (Arc<App>, Arc<Upstream>, Option<Dialect>);

/// Passes a request on. What is refused here is said as its provider would.
async fn each(State(to): State<To>, Extension(id): Extension<RequestId>, request: Request) -> Response {
    let spoken = to.1.usual();
    let mut response = pass(to, request).await.unwrap_or_else(|problem| refused(spoken, problem, &id.0));
    response.extensions_mut().insert(Dressed);
    response
}

async fn pass((app, upstream, dialect): To, request: Request) -> Result<Response, Problem> {
    let entered = gate::enter(&app, request.headers()).await?;
    let (parts, body) = request.into_parts();
    let wrong = || Problem::invalid("the path is none that can be passed on; does it hold `..`?");
    let url = upstream.url(rest(&upstream, &parts.uri)?).ok_or_else(wrong)?;
    if wants_something_else(&parts.headers) {
        let detail = "no connection is passed on that becomes something else (`upgrade`); only requests are";
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
            // What has no body has none there either; who says so says so there, since some servers insist on it.
            let silence = passage.app.bounds.silence;
            let upload = (length != Some(0)).then(|| upload(Bytes::new(), body, silence));
            let said = parts.headers.contains_key(header::CONTENT_LENGTH);
            passage.unread(upload, length.filter(|length| *length > 0 || said), "another_route").await
        }
    }
}

/// Whether a connection is to become something else. Who only offers the next version of HTTP, as some clients do each time
/// where nothing is encrypted, is content with this one.
fn wants_something_else(headers: &HeaderMap) -> bool {
    let mut offered = headers.get_all(header::UPGRADE).iter().map(HeaderValue::as_bytes);
    offered.any(|offered| !offered.trim_ascii().eq_ignore_ascii_case(b"h2c"))
}

/// The path and what comes after it, as it is there.
fn rest<'a>(upstream: &Upstream, uri: &'a Uri) -> Result<&'a str, Problem> {
    let whole = uri.path_and_query().map_or("", |whole| whole.as_str());
    let rest = whole.get(upstream.provider.len() + 1..).unwrap_or_default();
    if rest.starts_with("/v1/") || rest == "/v1" {
        return Ok(rest);
    }
    let base = upstream.usual().format().about().endpoint.map_or("", |endpoint| endpoint.client_base);
    Err(Problem::not_found(format!(
        "there is nothing here; a client's base URL ends in {base} on this server"
    )))
}

/// A request on its way.
pub(super) struct Passage {
    app: Arc<App>,
    entered: Entered,
    upstream: Arc<Upstream>,
    method: Method,
    url: reqwest::Url,
    /// As they are sent on.
    headers: HeaderMap,
    /// Those of its workspace.
    settings: Result<Arc<Settings>, Error>,
    /// Something is under way on its connection until all of the answer is sent.
    under_way: Option<UnderWay>,
}

impl Passage {
    /// Sends on what is not looked at.
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

    /// Passes on a request that holds a list of messages.
    async fn talk(mut self, dialect: Dialect, headers: &HeaderMap, body: Body) -> Result<Response, Problem> {
        let asked = decide::Asked::of(headers, dialect, self.app.proxy.shadow)?;
        let name = self.entered.workspace.name().into();
        // The store is asked while the body comes in.
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

    /// What is to be counted for it, where its conversation is known.
    fn account(&self, decided: &Decided, retried: bool) -> Option<Account> {
        let known = decided.known.clone()?;
        let price = self.settings.as_ref().ok().and_then(|settings| settings.price(&known.model));
        let (app, workspace) = (Arc::clone(&self.app), self.entered.workspace.clone());
        Some(Account { app, workspace, known, retried, price })
    }

    /// Sends the request on, and waits until an answer begins.
    async fn send(
        &self,
        body: Option<reqwest::Body>,
        progress: Option<taking::Progress>,
    ) -> Result<Reply, Problem> {
        let sending = self.upstream.send(self.method.clone(), self.url.clone(), self.headers.clone(), body);
        taking::while_it_moves(sending, self.app.proxy.silence, progress).await
    }

    /// The answer, as it comes, with what was done in its headers.
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

    /// Has the request written down as it is sent, where that is wanted.
    async fn write_down(&self, asked: &decide::Asked, decided: &Decided, came: &Bytes) {
        if let Some(log) = &self.app.proxy.log {
            let text = decided.text.as_ref().unwrap_or(came);
            log.write(asked, decided, text).await;
        }
    }
}

/// An answer of which the beginning was looked at, where it is an error that may be about length.
struct Held {
    parts: axum::http::response::Parts,
    first: Bytes,
    /// It broke off after that.
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

    /// Whether it says that the request was too long, and what would not be, where it says that.
    fn too_long(&self) -> Option<Option<u64>> {
        if self.first.is_empty() && self.parts.status != StatusCode::PAYLOAD_TOO_LARGE {
            return None;
        }
        too_long(self.parts.status.as_u16(), &self.first).map(|told| told.limit)
    }

    /// The answer as it came.
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
    /// As the header `x-epitome` and figures say it.
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
