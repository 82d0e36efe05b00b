//! Decides what to send: the request unchanged, or with a shorter message list.
//!
//! Nothing here can stop a request. It is forwarded unchanged if it cannot be read, must not be changed, or if anything
//! fails.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use epitome::condenser::Lent;
use epitome::dialect::{Body, Marks};
use epitome::inline::Caller;
use epitome::rules::condense::Press;
use epitome::settings::{Patch, Settings};
use epitome::{Call, Condenser, Error, Report, Workspace};
use epitome_http::seldom::Seldom;
use quick_cache::sync::Cache;
use tokio::task::block_in_place;

use super::super::gate::name;
use super::super::prelude::*;
use super::Passage;
use super::account::{Earlier, Known};
use crate::condensing::elsewhere;

/// Header with which a client can name the conversation.
const SESSION: &str = "x-epitome-session";

/// Header that switches condensing off, or to shadow mode, for one request.
const MODE: &str = "x-epitome";

/// Maximum size of a body, in bytes, that is processed directly. For a small body, moving it to another thread would take
/// longer.
const SMALL: usize = 128 << 10;

/// Longest time that a request waits for this decision, for example while the store does not answer.
const LONGEST: Duration = Duration::from_secs(5);

/// Maximum length of a model's name, in bytes. Caches use the name as a key, so callers must not control their size.
const LONGEST_MODEL: usize = 512;

/// What a request says in Epitome's headers.
pub(super) struct Asked {
    pub(super) dialect: Dialect,
    pub(super) mode: Mode,
    pub(super) session: Option<String>,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Usual,
    /// Change nothing.
    Off,
    /// Change nothing, but report what would have been changed.
    Shadow,
}

impl Asked {
    pub(super) fn of(headers: &HeaderMap, dialect: Dialect, shadow: bool) -> Result<Self, Problem> {
        let mode = headers
            .get(MODE)
            .and_then(|value| value.to_str().ok())
            .map(|value| value.trim().to_ascii_lowercase());
        let mode = match mode.as_deref() {
            Some("off") => Mode::Off,
            Some("shadow") => Mode::Shadow,
            None if shadow => Mode::Shadow,
            None => Mode::Usual,
            Some(_) => return Err(Problem::invalid("x-epitome: expected `off` or `shadow`, or no header")),
        };
        let twice = "x-epitome-session: expected one name";
        let wrong = "x-epitome-session: expected a name of 1 to 512 bytes in UTF-8, no control characters";
        Ok(Self { dialect, mode, session: name(headers, SESSION, [twice, wrong])? })
    }
}

/// What was done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was shortened.
    Condensed,
    /// Nothing was due.
    Untouched,
    /// It was forwarded unchanged, because it could not be read or must not be changed.
    Passed,
    /// It was forwarded unchanged, because the client switched condensing off.
    Off,
    /// It was forwarded unchanged, in shadow mode.
    Shadow,
    /// The provider reported it as too long, and it was sent again, shorter.
    Retried,
}

/// What to send, and what to report.
#[derive(Clone)]
pub(super) struct Decided {
    /// The changed body; none if it is sent unchanged.
    pub(super) text: Option<Bytes>,
    pub(super) outcome: Outcome,
    pub(super) report: Report,
    /// The conversation, if it was identified.
    pub(super) known: Option<Known>,
    /// The caller's own model, if it writes the summary. Available until the request has ended.
    pub(super) lent: Option<Arc<Lent>>,
}

impl Decided {
    pub(super) fn passed(reason: &str) -> Self {
        Self::plain(Outcome::Passed, reason)
    }

    fn plain(outcome: Outcome, reason: &str) -> Self {
        let report = Report { reason: reason.to_owned(), ..Report::default() };
        Self { text: None, outcome, report, known: None, lent: None }
    }

    pub(super) fn retried(&self) -> Self {
        Self { outcome: Outcome::Retried, ..self.clone() }
    }

    pub(super) fn is_shadow(&self) -> bool {
        self.outcome == Outcome::Shadow
    }

    /// Whether this is smaller than what was sent before, in bytes and in tokens.
    pub(super) fn is_smaller_than(&self, before: &Self, bytes: usize, bytes_before: usize) -> bool {
        let sizes = self.known.as_ref().zip(before.known.as_ref());
        bytes < bytes_before && sizes.is_some_and(|(now, then)| now.short < then.short)
    }
}

/// Decides what to send. `harder` is set if the provider reported the first attempt as too long.
pub(super) async fn decide(passage: &Passage, asked: &Asked, bytes: &Bytes, harder: bool) -> Decided {
    static FAULTS: std::sync::LazyLock<Seldom> = std::sync::LazyLock::new(Seldom::default);
    if asked.mode == Mode::Off {
        // Unchanged, except that Epitome's flags are removed if they can be found.
        return Decided { text: stripped(asked.dialect, bytes), ..Decided::plain(Outcome::Off, "off") };
    }
    let large = bytes.len() > SMALL;
    // Limits the work in parallel: more at once would not be faster.
    let _turn = if large { passage.app.load.contexts.acquire().await.ok() } else { None };
    let working = unharmed(large, work_out(passage, asked, bytes, harder));
    let fault = match tokio::time::timeout(LONGEST, working).await {
        Ok(Ok(Ok(decided))) => return decided,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(Broke)) => "a panic".to_owned(),
        Err(_) => "a timeout".to_owned(),
    };
    if let Some(times) = FAULTS.happened() {
        tracing::warn!(error = %fault, times, "a request was forwarded unchanged because condensing failed");
    }
    let mut decided = Decided::passed("failed");
    decided.report.problems = vec![fault];
    decided.text = stripped(asked.dialect, bytes);
    decided
}

/// Returns the request without Epitome's flags, if it contains any: a provider refuses fields that it does not recognise.
fn stripped(dialect: Dialect, bytes: &Bytes) -> Option<Bytes> {
    let text = text(bytes).filter(|text| text.contains("epitome"))?;
    let read = || Body::read(text, Some(dialect)).ok().map(|body| body.stripped());
    let stripped = catch_unwind(|| if text.len() > SMALL { block_in_place(read) } else { read() });
    stripped.ok()?.filter(|stripped| stripped != text).map(Bytes::from)
}

fn text(bytes: &Bytes) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

async fn work_out(
    passage: &Passage,
    asked: &Asked,
    bytes: &Bytes,
    harder: bool,
) -> Result<Decided, epitome::Error> {
    // A bare list of messages would parse, but no provider accepts it as a request.
    let Some(text) = text(bytes).filter(|text| text.trim_start().starts_with('{')) else {
        return Ok(Decided::passed("unreadable"));
    };
    let body = match Body::read(text, Some(asked.dialect)) {
        Ok(body) => body,
        Err(error) => {
            let mut decided = Decided::passed("unreadable");
            decided.report.problems = vec![error.to_string()];
            return Ok(decided);
        }
    };
    let unchanged = || {
        let stripped = text.contains("epitome").then(|| body.stripped());
        stripped.filter(|stripped| stripped != text).map(Bytes::from)
    };
    if let Some(field) = body.elsewhere() {
        let mut decided = Decided::passed("elsewhere");
        decided.report.notice = elsewhere(field);
        decided.text = unchanged();
        return Ok(decided);
    }
    let shadow = asked.mode == Mode::Shadow;
    let model = body.model().filter(|model| model.len() <= LONGEST_MODEL).unwrap_or_default();
    let workspace = &passage.entered.workspace;
    let settings = passage.settings.clone()?;
    let condenser = passage.app.proxy.condensers.of(workspace, settings, model, shadow).await?;
    let id = [passage.entered.id.as_slice(), &[u8::from(shadow)]].concat();
    let caller = Caller { id: &id, session: asked.session.as_deref(), wire: asked.dialect.name() };
    let call = Call {
        fixed: body.besides(condenser.counter()),
        room: condenser.room(body.output()),
        force: harder.then_some(Press::Hard),
        ..Call::of(body.messages())
    };
    let lent = (condenser.borrows() && !shadow && !model.is_empty())
        .then(|| passage.upstream.lend(asked.dialect, model, &passage.headers))
        .flatten();
    let lent = lent.map(|lent| (model, lent));
    let passing = workspace.inline().before_with(&condenser, lent, &caller, call).await;
    let ready = &passing.ready;
    let mut report = ready.report.clone();
    report.covers = report.covers.map(|covers| body.places(covers));
    let mut known = Known {
        dialect: asked.dialect,
        model: model.to_owned(),
        whose: id.as_slice().into(),
        run: passing.run.clone(),
        turn: ready.turn(),
        full: passing.ready.full,
        short: passing.ready.sent,
        anew: report.condensed,
        shadow,
        earlier: Earlier::default(),
    };
    known.earlier = passage.app.proxy.sums.earlier(workspace.name(), &known);
    let (text, outcome) = if shadow {
        (unchanged(), Outcome::Shadow)
    } else if ready.is_untouched() {
        (unchanged(), Outcome::Untouched)
    } else {
        (Some(body.with(ready, Marks::Stripped).into()), Outcome::Condensed)
    };
    Ok(Decided { text, outcome, report, known: Some(known), lent: passing.lent.map(Arc::new) })
}

/// The work panicked.
struct Broke;

/// Runs the work and catches panics, so that a fault cannot stop the request. If the body is large, each step runs where it
/// does not block other requests.
async fn unharmed<T>(large: bool, work: impl Future<Output = T>) -> Result<T, Broke> {
    let mut work = pin!(work);
    poll_fn(|context| {
        let mut step = || work.as_mut().poll(context);
        let stepped =
            catch_unwind(AssertUnwindSafe(|| if large { block_in_place(&mut step) } else { step() }));
        match stepped {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(_) => Poll::Ready(Err(Broke)),
        }
    })
    .await
}

/// Maximum number of cached condensers. Limited because callers name the models.
const MOST: usize = 1_024;

/// Cache of condensers, each with the settings it was built from. When the settings change, it is built again.
pub(super) struct Condensers(Cache<Key, (Arc<Settings>, Condenser)>);

/// Workspace, model, and whether in shadow mode.
type Key = (Arc<str>, String, bool);

impl Default for Condensers {
    fn default() -> Self {
        Self(Cache::new(MOST))
    }
}

impl Condensers {
    /// Returns the condenser for requests of this workspace, with these settings, to this model.
    pub(super) async fn of(
        &self,
        workspace: &Workspace,
        settings: Arc<Settings>,
        model: &str,
        shadow: bool,
    ) -> Result<Condenser, Error> {
        let key: Key = (workspace.name().into(), model.to_owned(), shadow);
        if self.0.get(&key).is_some_and(|(made_by, _)| !Arc::ptr_eq(&made_by, &settings)) {
            self.0.remove(&key);
        }
        // A condenser holds the state of conversations, so concurrent requests must share one: it is built only once.
        let made = self.0.get_or_insert_async(&key, async {
            let condenser = Self::make(workspace, model, shadow).await?;
            Ok::<_, Error>((settings, condenser))
        });
        made.await.map(|(_, condenser)| condenser)
    }

    async fn make(workspace: &Workspace, model: &str, shadow: bool) -> Result<Condenser, Error> {
        let mut builder = workspace.condenser().await?;
        // No request waits for a summary here. Shadow mode uses the built-in summarizer, so that it costs nothing.
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

    fn asked(given: &[(&'static str, &'static str)], shadow: bool) -> Result<Asked, Problem> {
        let headers =
            given.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let mut all = HeaderMap::new();
        headers.for_each(|(name, value): (axum::http::HeaderName, _)| {
            all.append(name, value);
        });
        Asked::of(&all, Dialect::OPENAI, shadow)
    }

    #[test]
    fn what_is_to_be_done_is_said_in_a_header_or_set() {
        for (given, shadow, mode) in [
            (None, false, Mode::Usual),
            (None, true, Mode::Shadow),
            (Some("off"), true, Mode::Off),
            (Some(" OFF "), false, Mode::Off),
            (Some("shadow"), false, Mode::Shadow),
        ] {
            let headers: Vec<_> = given.into_iter().map(|given| ("x-epitome", given)).collect();
            assert_eq!(asked(&headers, shadow).ok().unwrap().mode, mode, "{given:?}");
        }
        assert!(asked(&[("x-epitome", "maybe")], false).is_err());
    }

    #[test]
    fn a_conversation_has_one_name() {
        let name = |given: &[(&'static str, &'static str)]| asked(given, false).map(|asked| asked.session);
        assert_eq!(name(&[]).ok().unwrap(), None);
        assert_eq!(name(&[("x-epitome-session", "s1")]).ok().unwrap().as_deref(), Some("s1"));
        assert!(name(&[("x-epitome-session", "s1"), ("x-epitome-session", "s2")]).is_err());
        assert!(name(&[("x-epitome-session", "")]).is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_breaks_is_not_done_and_breaks_nothing_else() {
        assert!(unharmed(false, async { panic!("planted") }).await.is_err());
        assert!(unharmed(true, async { panic!("planted") }).await.is_err());
        assert!(matches!(unharmed(true, async { 5 }).await, Ok(5)));
    }
}
