//! What is sent in place of a request: itself, or the same with a shorter list.
//!
//! Nothing here can stop a request. What cannot be read, is not ours to touch, or goes wrong is sent on as it came.

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

/// Names the conversation, for whoever would rather say it.
const SESSION: &str = "x-epitome-session";

/// Switches off, for one request, what would be done.
const MODE: &str = "x-epitome";

/// A body smaller than this is looked at where it came in: having it done elsewhere would take longer.
const SMALL: usize = 128 << 10;

/// For so long a request waits for us at most: for a store that does not answer, say.
const LONGEST: Duration = Duration::from_secs(5);

/// No model has a longer name, in bytes. What is kept by the name of a model would otherwise be as large as a caller likes.
const LONGEST_MODEL: usize = 512;

/// What a request says about itself in headers of ours.
pub(super) struct Asked {
    pub(super) dialect: Dialect,
    pub(super) mode: Mode,
    pub(super) session: Option<String>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Usual,
    /// Nothing.
    Off,
    /// Nothing, but it is told what would have been.
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
            Some(_) => return Err(Problem::invalid("x-epitome: `off` or `shadow` is wanted, or nothing")),
        };
        let twice = "x-epitome-session: one name is wanted";
        let wrong = "x-epitome-session: a name is wanted, of 1 to 512 bytes in UTF-8, no control characters";
        Ok(Self { dialect, mode, session: name(headers, SESSION, [twice, wrong])? })
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is shorter than it came.
    Condensed,
    /// Nothing was due.
    Untouched,
    /// It was not ours to touch, or could not be read.
    Passed,
    /// It asked for nothing to be done.
    Off,
    /// Nothing is done.
    Shadow,
    /// The provider found it too long, and it was sent once more, shorter.
    Retried,
}

/// What is sent, and what is told of it.
#[derive(Clone)]
pub(super) struct Decided {
    /// None where it is sent as it came.
    pub(super) text: Option<Bytes>,
    pub(super) outcome: Outcome,
    pub(super) report: Report,
    /// Where its conversation is known.
    pub(super) known: Option<Known>,
    /// The caller's own model, where it writes the summary: until the request has ended.
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

    /// Whether it is smaller than what was sent before, by every measure.
    pub(super) fn is_smaller_than(&self, before: &Self, bytes: usize, bytes_before: usize) -> bool {
        let sizes = self.known.as_ref().zip(before.known.as_ref());
        bytes < bytes_before && sizes.is_some_and(|(now, then)| now.short < then.short)
    }
}

/// Decides what is sent; `harder` where a provider found what was sent too long.
pub(super) async fn decide(passage: &Passage, asked: &Asked, bytes: &Bytes, harder: bool) -> Decided {
    static FAULTS: std::sync::LazyLock<Seldom> = std::sync::LazyLock::new(Seldom::default);
    if asked.mode == Mode::Off {
        // As it came, without our flags where they can be found.
        return Decided { text: stripped(asked.dialect, bytes), ..Decided::plain(Outcome::Off, "off") };
    }
    let large = bytes.len() > SMALL;
    // More at once would not be faster.
    let _turn = if large { passage.app.load.contexts.acquire().await.ok() } else { None };
    let working = unharmed(large, work_out(passage, asked, bytes, harder));
    let fault = match tokio::time::timeout(LONGEST, working).await {
        Ok(Ok(Ok(decided))) => return decided,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(Broke)) => "it broke".to_owned(),
        Err(_) => "it took too long".to_owned(),
    };
    if let Some(times) = FAULTS.happened() {
        tracing::warn!(error = %fault, times, "a request was passed on as it came, since something of ours failed");
    }
    let mut decided = Decided::passed("failed");
    decided.report.problems = vec![fault];
    decided.text = stripped(asked.dialect, bytes);
    decided
}

/// The request without flags of ours, where it holds any: a provider refuses what it does not know.
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
    // A bare list is a list to us, and no request to anybody.
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

/// Something of ours broke.
struct Broke;

/// Does it so that nothing worse can come of it than that it was not done. Where it is large, each step is done where it keeps
/// nobody else waiting.
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

/// So many are kept; models are named by callers, and may be many.
const MOST: usize = 1_024;

/// The condensers there are, each with the settings it was made by: with other settings it is made again.
pub(super) struct Condensers(Cache<Key, (Arc<Settings>, Condenser)>);

/// A workspace, a model, and whether in shadow.
type Key = (Arc<str>, String, bool);

impl Default for Condensers {
    fn default() -> Self {
        Self(Cache::new(MOST))
    }
}

impl Condensers {
    /// The one for requests of this workspace, with these settings, to this model.
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
        // Conversations are known by the one that is cached: it is made once, however many ask for it.
        let made = self.0.get_or_insert_async(&key, async {
            let condenser = Self::make(workspace, model, shadow).await?;
            Ok::<_, Error>((settings, condenser))
        });
        made.await.map(|(_, condenser)| condenser)
    }

    async fn make(workspace: &Workspace, model: &str, shadow: bool) -> Result<Condenser, Error> {
        let mut builder = workspace.condenser().await?;
        // No request waits for a summary here, and what is only looked at costs nothing.
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
