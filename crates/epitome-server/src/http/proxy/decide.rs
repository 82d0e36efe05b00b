//! Decides what to send: the request unchanged, or with a shorter message list.
//!
//! No fault in this module stops a request. The request is forwarded unchanged if it cannot be read, if it must not be
//! changed, or if anything fails.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use epitome::condenser::ModelLoan;
use epitome::dialect::{Body, OwnFields};
use epitome::inline::Caller;
use epitome::rules::condense::Press;
use epitome::settings::suggest::did_you_mean;
use epitome::settings::{Patch, Settings};
use epitome::{Call, Condenser, Error, Report, Workspace};
use epitome_http::log_limiter::LogLimiter;
use quick_cache::sync::Cache;
use tokio::task::block_in_place;

use super::super::auth::single_name;
use super::super::prelude::*;
use super::ProxiedRequest;
use super::account::{Conversation, ConversationState};
use crate::condensing::remote_history_notice;

/// Header with which a client can name the conversation.
const SESSION_HEADER: &str = "x-epitome-session";

/// Header that disables condensing, or enables shadow mode, for one request.
const MODE_HEADER: &str = "x-epitome";

/// Maximum size of a body, in bytes, that is processed without `block_in_place`. For such a small body,
/// `block_in_place` would take longer than the processing.
const MAX_INLINE_BYTES: usize = 128 << 10;

/// Longest time that a request waits for the decision, for example while the store does not answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a model's name, in bytes. Caches use the name as a key, so without a limit callers could fill the
/// memory.
const MAX_MODEL_BYTES: usize = 512;

/// The options that a request sets in Epitome's headers.
pub(super) struct ProxyOptions {
    pub(super) dialect: Dialect,
    pub(super) mode: Mode,
    pub(super) session: Option<String>,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Default,
    /// Change nothing.
    Off,
    /// Change nothing, but report what would have been changed.
    Shadow,
}

impl ProxyOptions {
    pub(super) fn from_headers(headers: &HeaderMap, dialect: Dialect, shadow: bool) -> Result<Self, Problem> {
        let mode = headers
            .get(MODE_HEADER)
            .and_then(|value| value.to_str().ok())
            .map(|value| value.trim().to_ascii_lowercase());
        let mode = match mode.as_deref() {
            Some("off") => Mode::Off,
            Some("shadow") => Mode::Shadow,
            None if shadow => Mode::Shadow,
            None => Mode::Default,
            Some(unknown) => return Err(unknown_mode(unknown)),
        };
        let twice = "x-epitome-session: expected one name";
        let wrong = "x-epitome-session: expected a name of 1 to 512 bytes in UTF-8, no control characters";
        Ok(Self { dialect, mode, session: single_name(headers, SESSION_HEADER, [twice, wrong])? })
    }
}

/// Maximum number of characters of an invalid header that an error text repeats.
const MAX_SHOWN: usize = 40;

/// Returns the problem for an unknown value of the header `x-epitome`.
fn unknown_mode(value: &str) -> Problem {
    let shown: String = value.chars().take(MAX_SHOWN).collect();
    let similar = did_you_mean(value, ["off", "shadow"]);
    Problem::invalid(format!(
        "x-epitome: {shown:?} is not allowed; {similar}expected `off` or `shadow`, or no header"
    ))
}

/// What was done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The request was shortened.
    Condensed,
    /// Condensing was not due.
    Untouched,
    /// The request was forwarded unchanged, because it could not be read or must not be changed.
    Passed,
    /// The request was forwarded unchanged, because the client disabled condensing.
    Off,
    /// The request was forwarded unchanged, in shadow mode.
    Shadow,
    /// The provider reported the request as too long, and a shorter request was sent.
    Retried,
}

/// The decision about a request: the body to send, and the report.
#[derive(Clone)]
pub(super) struct Decision {
    /// The changed body. None if the body is sent unchanged.
    pub(super) text: Option<Bytes>,
    pub(super) outcome: Outcome,
    pub(super) report: Report,
    /// The request's conversation, if it was identified.
    pub(super) conversation: Option<Conversation>,
    /// The caller's own model, if this model writes the summary. The summarizer can use the model until the request
    /// ends.
    pub(super) caller_model: Option<Arc<ModelLoan>>,
}

impl Decision {
    /// Returns the decision to forward the request unchanged, for this reason.
    pub(super) fn unchanged(reason: &str) -> Self {
        Self::without_change(Outcome::Passed, reason)
    }

    fn without_change(outcome: Outcome, reason: &str) -> Self {
        let report = Report { reason: reason.to_owned(), ..Report::default() };
        Self { text: None, outcome, report, conversation: None, caller_model: None }
    }

    pub(super) fn retried(&self) -> Self {
        Self { outcome: Outcome::Retried, ..self.clone() }
    }

    pub(super) fn is_shadow(&self) -> bool {
        self.outcome == Outcome::Shadow
    }

    /// Whether this request is smaller than the request that was sent before, in bytes and in tokens.
    pub(super) fn is_smaller_than(&self, before: &Self, bytes: usize, bytes_before: usize) -> bool {
        let sizes = self.conversation.as_ref().zip(before.conversation.as_ref());
        bytes < bytes_before && sizes.is_some_and(|(now, then)| now.short < then.short)
    }
}

/// Decides what to send. `harder` is true if the provider reported the first attempt as too long.
pub(super) async fn decide(
    request: &ProxiedRequest,
    options: &ProxyOptions,
    bytes: &Bytes,
    harder: bool,
) -> Decision {
    static FAULTS: std::sync::LazyLock<LogLimiter> = std::sync::LazyLock::new(LogLimiter::default);
    if options.mode == Mode::Off {
        // The request stays unchanged, except that Epitome's flags are removed if they can be found.
        return Decision {
            text: without_flags(options.dialect, bytes),
            ..Decision::without_change(Outcome::Off, "off")
        };
    }
    let large = bytes.len() > MAX_INLINE_BYTES;
    // Limits the number of large bodies that are processed at the same time, because more would not be faster.
    let _turn = if large { request.app.permits.contexts.acquire().await.ok() } else { None };
    let work = catching_panics(large, try_decide(request, options, bytes, harder));
    let fault = match tokio::time::timeout(TIMEOUT, work).await {
        Ok(Ok(Ok(decision))) => return decision,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(Panicked)) => "a panic".to_owned(),
        Err(_) => "a timeout".to_owned(),
    };
    if let Some(failures) = FAULTS.record() {
        tracing::warn!(error = %fault, failures, "a request was forwarded unchanged because condensing failed");
    }
    let mut decision = Decision::unchanged("failed");
    decision.report.problems = vec![fault];
    decision.text = without_flags(options.dialect, bytes);
    decision
}

/// Returns the request without Epitome's flags, because a provider refuses fields that it does not recognise. Returns
/// None if the request contains no flags.
fn without_flags(dialect: Dialect, bytes: &Bytes) -> Option<Bytes> {
    let text = text(bytes).filter(|text| text.contains("epitome"))?;
    let read = || Body::read(text, Some(dialect)).ok().map(|body| body.without_own_fields());
    let changed = catch_unwind(|| if text.len() > MAX_INLINE_BYTES { block_in_place(read) } else { read() });
    changed.ok()?.filter(|changed| changed != text).map(Bytes::from)
}

fn text(bytes: &Bytes) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

async fn try_decide(
    request: &ProxiedRequest,
    options: &ProxyOptions,
    bytes: &Bytes,
    harder: bool,
) -> Result<Decision, epitome::Error> {
    // A bare list of messages would parse, but no provider accepts it as a request.
    let Some(text) = text(bytes).filter(|text| text.trim_start().starts_with('{')) else {
        return Ok(Decision::unchanged("unreadable"));
    };
    let body = match Body::read(text, Some(options.dialect)) {
        Ok(body) => body,
        Err(error) => {
            let mut decision = Decision::unchanged("unreadable");
            decision.report.problems = vec![error.to_string()];
            return Ok(decision);
        }
    };
    let unchanged = || {
        let changed = text.contains("epitome").then(|| body.without_own_fields());
        changed.filter(|changed| changed != text).map(Bytes::from)
    };
    if let Some(field) = body.remote_history() {
        let mut decision = Decision::unchanged("elsewhere");
        decision.report.notice = remote_history_notice(field);
        decision.text = unchanged();
        return Ok(decision);
    }
    let shadow = options.mode == Mode::Shadow;
    let model = body.model().filter(|model| model.len() <= MAX_MODEL_BYTES).unwrap_or_default();
    let workspace = &request.caller.workspace;
    let settings = request.settings.clone()?;
    let condenser = request.app.proxy.condensers.get_or_build(workspace, settings, model, shadow).await?;
    let id = [request.caller.id.as_slice(), &[u8::from(shadow)]].concat();
    let caller = Caller { id: &id, session: options.session.as_deref(), wire: options.dialect.name() };
    let call = Call {
        fixed: body.extra_tokens(condenser.counter()),
        room: condenser.room(body.max_output()),
        force: harder.then_some(Press::Hard),
        ..Call::of(body.messages())
    };
    let caller_model = (condenser.uses_same_model() && !shadow && !model.is_empty())
        .then(|| request.upstream.caller_model(options.dialect, model, &request.headers))
        .flatten();
    let caller_model = caller_model.map(|provider| (model, provider));
    let condensed = workspace.inline().before_with_model(&condenser, caller_model, &caller, call).await;
    let ready = &condensed.ready;
    let mut report = ready.report.clone();
    report.covers = report.covers.map(|covers| body.list_positions(covers));
    let mut conversation = Conversation {
        dialect: options.dialect,
        model: model.to_owned(),
        caller: id.as_slice().into(),
        id: condensed.conversation_id.clone(),
        turn: ready.turn(),
        full: condensed.ready.full,
        short: condensed.ready.sent,
        newly_condensed: report.condensed,
        shadow,
        before: ConversationState::default(),
    };
    conversation.before = request.app.proxy.usage.state(workspace.name(), &conversation);
    let (text, outcome) = if shadow {
        (unchanged(), Outcome::Shadow)
    } else if ready.is_untouched() {
        (unchanged(), Outcome::Untouched)
    } else {
        (Some(body.with_messages(ready, OwnFields::Strip).into()), Outcome::Condensed)
    };
    let caller_model = condensed.loan.map(Arc::new);
    Ok(Decision { text, outcome, report, conversation: Some(conversation), caller_model })
}

/// The work panicked.
struct Panicked;

/// Runs the work and catches panics, so that a fault cannot stop the request. `large` makes each step run where it does
/// not block other requests.
async fn catching_panics<T>(large: bool, work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    poll_fn(|context| {
        let mut step = || work.as_mut().poll(context);
        let stepped =
            catch_unwind(AssertUnwindSafe(|| if large { block_in_place(&mut step) } else { step() }));
        match stepped {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    })
    .await
}

/// Maximum number of cached condensers. The number is limited because callers choose the names of the models.
const MAX_CONDENSERS: usize = 1_024;

/// Cache of condensers. Each condenser is stored with the settings from which it was built. If the settings change, the
/// condenser is built again.
pub(super) struct Condensers(Cache<CondenserKey, (Arc<Settings>, Condenser)>);

/// The workspace, the model, and whether the requests are in shadow mode.
type CondenserKey = (Arc<str>, String, bool);

impl Default for Condensers {
    fn default() -> Self {
        Self(Cache::new(MAX_CONDENSERS))
    }
}

impl Condensers {
    /// Returns the condenser for a workspace's requests to a model, with these settings.
    pub(super) async fn get_or_build(
        &self,
        workspace: &Workspace,
        settings: Arc<Settings>,
        model: &str,
        shadow: bool,
    ) -> Result<Condenser, Error> {
        let key: CondenserKey = (workspace.name().into(), model.to_owned(), shadow);
        if self.0.get(&key).is_some_and(|(built_from, _)| !Arc::ptr_eq(&built_from, &settings)) {
            self.0.remove(&key);
        }
        // A condenser contains the state of conversations, so concurrent requests must share one condenser. The cache
        // therefore builds the condenser only once.
        let condenser = self.0.get_or_insert_async(&key, async {
            let condenser = Self::build(workspace, model, shadow).await?;
            Ok::<_, Error>((settings, condenser))
        });
        condenser.await.map(|(_, condenser)| condenser)
    }

    async fn build(workspace: &Workspace, model: &str, shadow: bool) -> Result<Condenser, Error> {
        let mut builder = workspace.condenser().await?;
        // No proxied request waits for a summary. Shadow mode uses the built-in summarizer, so that shadow mode costs
        // nothing.
        let condense = if shadow { json!({"wait": false, "model": "local"}) } else { json!({"wait": false}) };
        builder = builder.settings(Patch::from_value(json!({"condense": condense})).map_err(Error::from)?);
        if !model.is_empty() {
            builder = builder.for_model(model);
        }
        builder.conversations(1).build()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn options(sent: &[(&'static str, &'static str)], shadow: bool) -> Result<ProxyOptions, Problem> {
        let headers =
            sent.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let mut all = HeaderMap::new();
        headers.for_each(|(name, value): (axum::http::HeaderName, _)| {
            all.append(name, value);
        });
        ProxyOptions::from_headers(&all, Dialect::OPENAI, shadow)
    }

    #[test]
    fn the_mode_is_in_a_header_or_in_the_settings() {
        for (sent, shadow, mode) in [
            (None, false, Mode::Default),
            (None, true, Mode::Shadow),
            (Some("off"), true, Mode::Off),
            (Some(" OFF "), false, Mode::Off),
            (Some("shadow"), false, Mode::Shadow),
        ] {
            let headers: Vec<_> = sent.into_iter().map(|sent| ("x-epitome", sent)).collect();
            assert_eq!(options(&headers, shadow).ok().unwrap().mode, mode, "{sent:?}");
        }
        let refused = |sent| options(&[("x-epitome", sent)], false).err().unwrap().detail;
        let allowed = "expected `off` or `shadow`, or no header";
        assert_eq!(refused("maybe"), format!("x-epitome: \"maybe\" is not allowed; {allowed}"));
        let similar = "did you mean `shadow`?";
        assert_eq!(refused("shadw"), format!("x-epitome: \"shadw\" is not allowed; {similar} {allowed}"));
    }

    #[test]
    fn the_session_header_has_one_valid_name() {
        let name =
            |sent: &[(&'static str, &'static str)]| options(sent, false).map(|options| options.session);
        assert_eq!(name(&[]).ok().unwrap(), None);
        assert_eq!(name(&[("x-epitome-session", "s1")]).ok().unwrap().as_deref(), Some("s1"));
        assert!(name(&[("x-epitome-session", "s1"), ("x-epitome-session", "s2")]).is_err());
        assert!(name(&[("x-epitome-session", "")]).is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_is_caught() {
        assert!(catching_panics(false, async { panic!("planted") }).await.is_err());
        assert!(catching_panics(true, async { panic!("planted") }).await.is_err());
        assert!(matches!(catching_panics(true, async { 5 }).await, Ok(5)));
    }
}
