//! Having one summary written, for whoever holds no store.
//!
//! The worker's counterpart: the same models, the same inspection, the same care for providers that fail; but what is
//! read is at hand, and nobody else works on it. What each call cost is told, whatever came of it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use epitome_core::ledger::Ledger;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Span, Timestamp, Tokens};
use epitome_core::prompt::{SMALL, Template};
use epitome_core::slot::Limit;
use epitome_core::tokens::Counter;
use epitome_core::track::Tracker;

use super::conversation::Whose;
use super::report::Spent;
use crate::breaker::{self, Breaker};
use crate::engine::{Reserved, Shared, Writer, lock};
use crate::hook::{Condensed, Hooks, Leaving};
use crate::measure::{self, KEPT, REUSED};
use crate::model::{Ask, Local, Model, ModelError, Reply, Tally, Told};
use crate::retry::{Backoff, Failure};
use crate::settings::Settings;
use crate::store::UsageRow;
use crate::writing::{
    self, DROPPED, LEAST_INPUT, PROMPT_OVERHEAD, UNKNOWN_INPUT, VERBATIM, answer, fingerprint, judge, most,
    word,
};

/// What the inline summary is called where slots have their names.
pub(super) const SLOT: &str = "condense";

/// So many answers are remembered, so that the same question is asked once.
const MOST_ANSWERS: usize = 64;

/// For so long a list waits for the store to note what `local` did.
const BRIEF: Duration = Duration::from_millis(50);

/// Whoever has summaries written.
#[derive(Clone)]
pub(super) struct Scribe {
    /// Who is asked, first choice first.
    pub(super) chain: Vec<Writer>,
    pub(super) counter: Counter,
    pub(super) settings: Arc<Settings>,
    pub(super) hooks: Hooks,
    /// What hooks are told the conversation is called.
    pub(super) name: Arc<str>,
    pub(super) account: Arc<Account>,
    /// How long one call of a model may take that does not say.
    pub(super) time_out: Duration,
    pub(super) backoff: Backoff,
    /// Whether its models are a caller's own, asked with their key. How those fare says nothing of anybody else's.
    pub(super) lent: bool,
}

/// Who is told what is spent, and who knows which providers fail.
pub(super) enum Account {
    /// The condenser itself.
    Own { breakers: Mutex<HashMap<String, Breaker>>, answers: Answers },
    /// A workspace of an engine: its spending is recorded there, and its cap holds.
    Workspace { shared: Arc<Shared>, name: Arc<str> },
}

/// What is to be written.
pub(super) struct Order {
    /// What leaves, by its places in the conversation.
    pub(super) leaving: Vec<Message>,
    pub(super) span: Span,
    /// The last message it will stand for.
    pub(super) through: u64,
    pub(super) previous: Option<Arc<str>>,
    pub(super) extracts: Option<Arc<Extracts>>,
    pub(super) limit: Tokens,
    /// The tokens of what it stands for.
    pub(super) replaces: Tokens,
    /// For whom it is.
    pub(super) whose: Option<Whose>,
}

/// A summary that may be put in.
#[derive(Clone)]
pub(super) struct Written {
    pub(super) text: Arc<str>,
    /// Who wrote it.
    pub(super) model: String,
    pub(super) extracts: Option<Arc<Extracts>>,
}

/// What came of an order.
pub(super) struct Outcome {
    pub(super) written: Result<Written, Failure>,
    pub(super) spent: Vec<Spent>,
    pub(super) problems: Vec<String>,
}

impl Scribe {
    /// Has it written by the models of the settings, the first that can.
    pub(super) async fn write(&self, order: Order) -> Outcome {
        self.write_by(&self.chain, order).await
    }

    /// Has it written by `local` in their place.
    pub(super) async fn stand_in(&self, order: Order) -> Outcome {
        let local: Arc<dyn Model> = Arc::new(Local);
        self.write_by(&[Writer::new(Local::NAME, &local)], order).await
    }

    async fn write_by(&self, chain: &[Writer], order: Order) -> Outcome {
        let added = self.ask_hooks(chain, &order).await;
        let (mut spent, mut problems) = (Vec::new(), added.problems);
        let template = Arc::new(self.template(&order.leaving));
        let instructions = self.instructions(&added.text);
        let order = Asked {
            template,
            instructions,
            told: order.leaving.into_iter().map(|message| writing::without_bytes(message).into()).collect(),
            through: order.through,
            previous: order.previous,
            extracts: order.extracts,
            limit: Limit::Tokens(order.limit),
            replaces: order.replaces,
            whose: order.whose,
        };
        if order.replaces < SMALL
            && let Some((text, _)) =
                writing::verbatim(order.previous.as_deref(), &order.told, order.limit, &self.counter)
        {
            let written = Written { text: text.into(), model: VERBATIM.to_owned(), extracts: None };
            return Outcome { written: Ok(written), spent, problems };
        }
        let mut last = Failure::from(ModelError::no_answer("no model is named in the settings"));
        for writer in chain {
            match self.by(writer, &order, &mut spent).await {
                Ok(written) => return Outcome { written: Ok(written), spent, problems },
                Err(failure) => {
                    problems.push(format!("`{}` did not write it: {failure}", writer.name));
                    last = failure;
                }
            }
        }
        Outcome { written: Err(last), spent, problems }
    }

    /// Has one model write it, in pieces where it cannot read so much at once.
    async fn by(&self, writer: &Writer, order: &Asked, spent: &mut Vec<Spent>) -> Result<Written, Failure> {
        let (mut previous, mut extracts) = (order.previous.clone(), order.extracts.clone());
        let mut rest = order.told.as_slice();
        let mut input = None;
        loop {
            let before = previous.as_deref().map_or(0, |text| self.counter.text(text));
            let room = input.or_else(|| self.input(writer, before));
            let (piece, left, tokens) = self.piece(rest, room);
            let whole = left.is_empty() && piece.len() == order.told.len();
            let ask = Ask {
                template: Arc::clone(&order.template),
                previous: previous.clone(),
                extracts: extracts.clone(),
                through: piece.last().and_then(Told::message).map_or(order.through, |last| last.seq),
                limit: order.limit,
                instructions: Arc::clone(&order.instructions),
                focus: "".into(),
                refused: None,
                replaces: if whole { order.replaces } else { tokens.saturating_add(before) },
                counter: self.counter.clone(),
                redact: self.settings.summarize.redact,
                said: piece.into(),
            };
            match self.ask(writer, ask, order.whose, spent).await {
                Ok(written) if left.is_empty() => return Ok(written),
                Ok(written) => {
                    (previous, extracts, rest) = (Some(written.text), written.extracts, left);
                }
                Err(Failure::Model(ModelError::TooLong { .. }))
                    if piece.len() > 1 && tokens > LEAST_INPUT =>
                {
                    // It reads less than we knew: the same again, in halves.
                    input = Some((tokens / 2).max(LEAST_INPUT));
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// How many tokens of messages a model reads at once; `None` where there is no limit.
    fn input(&self, writer: &Writer, before: Tokens) -> Option<Tokens> {
        if writer.is_local() {
            return None;
        }
        let room = writer.model.room().unwrap_or(UNKNOWN_INPUT);
        Some(room.saturating_sub(PROMPT_OVERHEAD.saturating_add(before)).max(LEAST_INPUT))
    }

    /// The first messages that fit, what is left, and the tokens of the first where they were counted. A call is not
    /// parted from its results: nobody should read an answer without its question.
    fn piece<'a>(&self, told: &'a [Told], room: Option<Tokens>) -> (&'a [Told], &'a [Told], Tokens) {
        let Some(room) = room else { return (told, &[], 0) };
        let (mut sum, mut end, mut at_end): (Tokens, usize, Tokens) = (0, 0, 0);
        for (at, one) in told.iter().enumerate() {
            let answers = one.message().is_some_and(|message| message.results().next().is_some());
            if at > 0 && !answers {
                (end, at_end) = (at, sum);
            }
            sum = sum.saturating_add(one.message().map_or(0, |message| self.counter.message(message)));
            if sum > room && end > 0 {
                let (piece, left) = told.split_at_checked(end).unwrap_or((told, &[]));
                return (piece, left, at_end);
            }
        }
        (told, &[], sum)
    }

    /// Asks one model, a second time with the reason where its answer was refused.
    async fn ask(
        &self,
        writer: &Writer,
        mut ask: Ask,
        whose: Option<Whose>,
        spent: &mut Vec<Spent>,
    ) -> Result<Written, Failure> {
        let asked = fingerprint(writer, &ask).map(|asked| self.account.key(asked, whose));
        if let Some(text) = asked.as_deref().and_then(|asked| self.account.answers().recall(asked))
            && let Ok(written) = self.judged(&ask, Reply::complete(&*text), writer)
        {
            self.note_spent(writer, REUSED, &Tally::default(), 0, spent).await;
            return Ok(written);
        }
        // `local` would only say the same again.
        let times = if writer.is_local() { 1 } else { 2 };
        let mut last = Failure::from(ModelError::no_answer("it was not asked"));
        for _ in 0..times {
            let mut reserved = self.may_ask(writer, &ask).await?;
            let started = Instant::now();
            let mut under_way = UnderWay { scribe: self, writer, most: most(&ask), started, ended: false };
            let reply = answer(&writer.model, &ask, self.time_out).await;
            under_way.ended = true;
            let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.note_provider(writer, reply.as_ref().err());
            let (tally, judged) = match reply {
                Ok(reply) => {
                    let tally = writing::tally(&ask, &reply);
                    (tally, self.judged(&ask, reply, writer).map_err(Failure::from))
                }
                Err(error) => (Tally::default(), Err(error.into())),
            };
            let outcome = match &judged {
                Ok(_) => KEPT,
                Err(Failure::Answer(refusal)) => word(refusal),
                Err(failure) => failure.kind(),
            };
            let cost = self.note_spent(writer, outcome, &tally, millis, spent).await;
            if let Some(reserved) = &mut reserved {
                reserved.settle(cost.unwrap_or(0));
            }
            match judged {
                Ok(written) => {
                    if let Some(asked) = asked {
                        self.account.answers().remember(asked, Arc::clone(&written.text));
                    }
                    return Ok(written);
                }
                Err(Failure::Answer(refusal)) => {
                    last = refusal.clone().into();
                    ask.refused = Some(refusal);
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(last)
    }

    fn judged(
        &self,
        ask: &Ask,
        reply: Reply,
        writer: &Writer,
    ) -> Result<Written, epitome_core::inspect::Refusal> {
        let names = || match (&ask.extracts, &ask.previous) {
            (Some(extracts), _) => extracts.ledger().clone(),
            (None, Some(text)) => Extracts::of_text(text, ask.through).ledger().clone(),
            (None, None) => Ledger::default(),
        };
        let judged = judge(ask, reply, names)?;
        // A model's text is all there is of it, but the names are known from the messages.
        let of_text = |ledger| Extracts::of_text(&judged.text, ask.through).naming(ledger);
        let extracts = judged.extracts.or_else(|| judged.ledger.map(of_text));
        let model = writer.model.name().to_owned();
        Ok(Written { text: judged.text.into(), model, extracts: extracts.map(Arc::new) })
    }

    /// Whether a model may be asked: its provider is not left alone, and there is money for it, which is set aside.
    async fn may_ask(&self, writer: &Writer, ask: &Ask) -> Result<Option<Reserved>, Failure> {
        if writer.is_local() {
            return Ok(None);
        }
        let mut reserved = None;
        if let Account::Workspace { shared, name } = &*self.account
            && let Some(cap) = shared.cap(&self.settings)
        {
            let Some(price) = writer.price(&self.settings) else {
                return Err(Failure::Unpriced { model: writer.name.clone() });
            };
            let set_aside = shared.set_aside(name, price.cost(&most(ask)), cap, now()).await;
            let set_aside = set_aside.map_err(|error| Failure::Store { reason: error.to_string() })?;
            reserved = Some(set_aside?);
        }
        if self.lent {
            return Ok(reserved);
        }
        let provider = writer.model.provider();
        let mut breakers = lock(self.account.breakers());
        if let Some(breaker) = breakers.get_mut(provider) {
            breaker.ask(provider, &self.breaker_limits(), now())?;
        }
        Ok(reserved)
    }

    /// Notes how a provider fared.
    fn note_provider(&self, writer: &Writer, error: Option<&ModelError>) {
        if writer.is_local() || self.lent {
            return;
        }
        let mut breakers = lock(self.account.breakers());
        match error {
            None => drop(breakers.remove(writer.model.provider())),
            Some(error) => {
                let breaker = breakers.entry(writer.model.provider().to_owned()).or_default();
                breaker.failed(error, &self.breaker_limits(), now());
            }
        }
    }

    fn breaker_limits(&self) -> breaker::Limits {
        breaker::Limits {
            after: self.settings.summarize.breaker_after,
            pause: self.settings.summarize.breaker_for,
            most_asked: self.backoff.most_asked,
        }
    }

    /// Notes what a call came to, with the workspace too where there is one; what it cost.
    async fn note_spent(
        &self,
        writer: &Writer,
        outcome: &str,
        tally: &Tally,
        millis: u64,
        spent: &mut Vec<Spent>,
    ) -> Option<i64> {
        let row = self.row(writer, outcome, tally, millis);
        let UsageRow { model, cost, input, cached, output, .. } = row.clone();
        if let Account::Workspace { shared, .. } = &*self.account {
            let recording = record(Arc::clone(shared), row);
            if writer.is_local() {
                // A list waits for this, and for no disk: it cost nothing, and is recorded all the same.
                let _ = tokio::time::timeout(BRIEF, tokio::spawn(recording)).await;
            } else {
                recording.await;
            }
        }
        let outcome = outcome.to_owned();
        spent.push(Spent { model, outcome, input, cached, output, cost, millis });
        cost
    }

    /// What is recorded of a call.
    fn row(&self, writer: &Writer, outcome: &str, tally: &Tally, millis: u64) -> UsageRow {
        UsageRow {
            workspace: self.account.workspace().to_string(),
            session: self.name.to_string(),
            scope: String::new(),
            slot: SLOT.to_owned(),
            model: writer.model.name().to_owned(),
            outcome: outcome.to_owned(),
            input: tally.input,
            cached: tally.cached,
            output: tally.output,
            cost: writer.price(&self.settings).map(|price| price.cost(tally).to_millionths()),
            millis,
            at: Timestamp(0),
        }
    }

    /// What the model is asked, by the kind of conversation it is.
    fn template(&self, leaving: &[Message]) -> Template {
        let mut tracker = Tracker::default();
        let shapes: Vec<_> = leaving.iter().map(|message| tracker.push_sized(message, 0)).collect();
        self.settings.condense.template(&shapes)
    }

    /// The operator's own, and what hooks add to them.
    fn instructions(&self, added: &str) -> Arc<str> {
        let own = match self.settings.condense.instructions.as_str() {
            "" => &self.settings.summarize.instructions,
            own => own,
        };
        let texts: Vec<&str> = [own, added].into_iter().filter(|text| !text.is_empty()).collect();
        texts.join("\n\n").into()
    }

    /// What hooks have to add. Who only picks has no use for that, so nobody waits for them then.
    async fn ask_hooks(&self, chain: &[Writer], order: &Order) -> crate::hook::Added {
        if self.hooks.is_empty() {
            return crate::hook::Added::default();
        }
        let leaving = self.leaving(order.span, &order.leaving);
        if chain.iter().all(Writer::is_local) {
            self.tell_leaving(leaving);
            return crate::hook::Added::default();
        }
        self.hooks.before(&leaving).await
    }

    /// Tells hooks what leaves, and waits for nobody.
    pub(super) fn tell_leaving(&self, leaving: Leaving) {
        let hooks = self.hooks.clone();
        tokio::spawn(async move { hooks.before(&leaving).await });
    }

    /// Tells hooks what was done, and waits for nobody.
    pub(super) fn tell_done(&self, done: Condensed) {
        let hooks = self.hooks.clone();
        tokio::spawn(async move { hooks.after(&done).await });
    }

    /// What hooks are told of messages that leave.
    pub(super) fn leaving(&self, span: Span, messages: &[Message]) -> Leaving {
        Leaving {
            workspace: self.account.workspace(),
            session: Arc::clone(&self.name),
            slot: SLOT.into(),
            scope: None,
            span,
            messages: messages.iter().cloned().map(writing::without_bytes).collect(),
        }
    }
}

/// Puts a call into the workspace's records.
async fn record(shared: Arc<Shared>, row: UsageRow) {
    let rows = vec![row];
    measure::recorded(&rows);
    if let Err(error) = shared.store.record(rows).await {
        // The summary is good all the same, and the store's trouble shows where it is asked about.
        shared.set_trouble(Some(error.to_string()));
    }
}

/// A call of a model that somebody waits for. Where nobody does any more, because the client went, it is recorded as the
/// most that was sent: the provider bills it all the same.
struct UnderWay<'a> {
    scribe: &'a Scribe,
    writer: &'a Writer,
    most: Tally,
    started: Instant,
    ended: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let Account::Workspace { shared, .. } = &*self.scribe.account else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.ended || self.writer.is_local() {
            return;
        }
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let sent = Tally { output: 0, ..self.most };
        runtime.spawn(record(Arc::clone(shared), self.scribe.row(self.writer, DROPPED, &sent, millis)));
    }
}

/// An order as models are asked.
struct Asked {
    template: Arc<Template>,
    instructions: Arc<str>,
    told: Vec<Told>,
    through: u64,
    previous: Option<Arc<str>>,
    extracts: Option<Arc<Extracts>>,
    limit: Limit,
    replaces: Tokens,
    whose: Option<Whose>,
}

impl Account {
    pub(super) fn own() -> Self {
        Self::Own { breakers: Mutex::default(), answers: Answers::default() }
    }

    pub(super) fn workspace(&self) -> Arc<str> {
        match self {
            Self::Own { .. } => "".into(),
            Self::Workspace { name, .. } => Arc::clone(name),
        }
    }

    fn breakers(&self) -> &Mutex<HashMap<String, Breaker>> {
        match self {
            Self::Own { breakers, .. } => breakers,
            Self::Workspace { shared, .. } => &shared.breakers,
        }
    }

    fn answers(&self) -> &Answers {
        match self {
            Self::Own { answers, .. } => answers,
            Self::Workspace { shared, .. } => &shared.answers,
        }
    }

    /// Under which name an answer is remembered: nobody is given another workspace's, nor another caller's.
    fn key(&self, asked: String, whose: Option<Whose>) -> String {
        let asked = match whose {
            Some(whose) => format!("{asked} {:032x}", u128::from_be_bytes(whose)),
            None => asked,
        };
        match self {
            Self::Own { .. } => asked,
            Self::Workspace { name, .. } => format!("{asked} {name}"),
        }
    }
}

/// Answers that passed, by what was asked: the same question costs nothing again.
#[derive(Default)]
pub(crate) struct Answers(Mutex<VecDeque<(String, Arc<str>)>>);

impl Answers {
    fn recall(&self, asked: &str) -> Option<Arc<str>> {
        lock(&self.0).iter().find(|(known, _)| known == asked).map(|(_, text)| Arc::clone(text))
    }

    fn remember(&self, asked: String, text: Arc<str>) {
        let mut answers = lock(&self.0);
        answers.retain(|(known, _)| *known != asked);
        if answers.len() >= MOST_ANSWERS {
            answers.pop_front();
        }
        answers.push_back((asked, text));
    }
}

/// The moment.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
