//! Random operations on a session, with a model that may fail: the promises hold after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use epitome::model::{ModelError, Reply};
use epitome::rules::message::{Message, Part, Role, Seq};
use epitome::store::SummaryState;
use epitome::{Engine, Error, Flags, Fork, Page, Session, Summarize};
use epitome_testkit::scripted::Scripted;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::drawn::{Drawn, session};
use crate::support::{Home, MINUTE, cases, talk};
use crate::validator::complaints;
use crate::views::sayable;

#[derive(Debug, Clone)]
enum Operation {
    Say(usize),
    Force(u8, bool),
    Undo(u8),
    Rebuild(u8),
    Flag(u16, Option<bool>, Option<bool>),
    /// The model is well, is down, or talks rubbish from now on.
    Model(u8),
    Work,
    /// Works on every session there is, not only on this one.
    WorkOnAll,
    Wait,
    /// Another session begins as a copy of this one up to some message, and goes on by itself.
    Fork(u16),
}

fn step() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (1usize..9).prop_map(Operation::Say),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(slot, wait)| Operation::Force(slot, wait)),
        2 => any::<u8>().prop_map(Operation::Undo),
        1 => any::<u8>().prop_map(Operation::Rebuild),
        2 => (any::<u16>(), any::<Option<bool>>(), any::<Option<bool>>())
            .prop_map(|(seq, pinned, skip)| Operation::Flag(seq, pinned, skip)),
        2 => (0u8..4).prop_map(Operation::Model),
        5 => Just(Operation::Work),
        1 => Just(Operation::WorkOnAll),
        1 => Just(Operation::Wait),
        1 => any::<u16>().prop_map(Operation::Fork),
    ]
}

const SLOTS: [(&str, Option<&str>); 4] = [("a", None), ("b", None), ("c", None), ("own", Some("ann"))];

/// What is remembered from step to step.
#[derive(Default)]
struct Before {
    covered: BTreeMap<usize, Seq>,
}

async fn build(home: &Home, mood: Arc<AtomicU8>, stand_in: &str) -> Engine {
    let model = Scripted::new().otherwise(move |ask| match mood.load(Ordering::SeqCst) {
        1 => Err(ModelError::no_answer("down")),
        2 => Ok(Reply::complete("502 Bad Gateway")),
        3 if ask.message_count() > 3 => Err(ModelError::TooLong { sent: ask.replaces, limit: None }),
        _ => Ok(Scripted::plain(ask)),
    });
    let settings = format!(
        r#"{{"slot": [
            {{"name": "a", "trigger": "messages(5)"}},
            {{"name": "b", "trigger": "any(turns(4), tokens(300))", "keep": "messages(3)", "models": ["local"]}},
            {{"name": "c", "trigger": "every(100)", "max_chars": 300}},
            {{"name": "own", "scope": "ann", "trigger": "messages(3)"}}],
          "summarize": {{"models": ["main"], "stand_in_after": "{stand_in}"}}}}"#
    );
    home.open(Engine::builder().model("main", model).settings(&settings).workers(0)).await
}

async fn run(drawn: Drawn, steps: Vec<Operation>, budgets: Vec<u64>, stand_in: &str) -> TestCaseResult {
    let home = Home::memory();
    let mood = Arc::new(AtomicU8::new(0));
    let engine = build(&home, Arc::clone(&mood), stand_in).await;
    let session = engine.session("s");
    let mut to_say = sayable(&drawn).into_iter();
    let mut log: Vec<Message> = Vec::new();
    let (mut before, mut forks) = (Before::default(), 0);
    session.append(Message::user("Let us begin with the parcels.")).await.unwrap();
    log.push(Message::user("Let us begin with the parcels."));
    for step in &steps {
        let mut undone = None;
        match step {
            Operation::Say(count) => {
                let batch: Vec<Message> = to_say.by_ref().take(*count).collect();
                if !batch.is_empty() {
                    let appended = session.append(batch.clone()).await.unwrap();
                    prop_assert_eq!(appended.span.from as usize, log.len() + 1);
                    log.extend(batch);
                }
            }
            Operation::Force(slot, wait) => {
                let (name, scope) = SLOTS[*slot as usize % SLOTS.len()];
                let wish = Summarize { scope: scope.map(Into::into), wait: *wait, ..Summarize::slot(name) };
                match session.summarize(wish).await {
                    Ok(_) | Err(Error::Model { .. }) => {}
                    Err(other) => return Err(TestCaseError::fail(format!("{other}"))),
                }
            }
            Operation::Undo(pick) => {
                let all = session.history(None, 1_000).await.unwrap();
                if !all.is_empty() {
                    let summary = &all[*pick as usize % all.len()];
                    let stood = summary.state == SummaryState::Current;
                    match session.undo(summary.id).await {
                        Ok(_) if stood => undone = Some((summary.slot.clone(), summary.scope.clone())),
                        Err(Error::Conflict(_)) if !stood => {}
                        other => return Err(TestCaseError::fail(format!("{other:?}"))),
                    }
                }
            }
            Operation::Rebuild(slot) => {
                let (name, scope) = SLOTS[*slot as usize % SLOTS.len()];
                session.rebuild(scope.map(Into::into), name).await.unwrap();
            }
            Operation::Flag(seq, pinned, skip) => {
                let at = *seq as usize % log.len();
                match session.flag(at as u64 + 1, Flags { pinned: *pinned, skip: *skip }).await {
                    // Skipped under a summary that may have been written without it.
                    Err(Error::Conflict(_)) if *skip == Some(false) && log[at].skip => continue,
                    flagged => flagged.unwrap(),
                }
                log[at].pinned = pinned.unwrap_or(log[at].pinned);
                log[at].skip = skip.unwrap_or(log[at].skip);
            }
            Operation::Model(new) => mood.store(*new, Ordering::SeqCst),
            Operation::Work => session.work().await.unwrap(),
            Operation::WorkOnAll => engine.work().await.unwrap(),
            Operation::Wait => home.clock.pass(MINUTE * 11),
            Operation::Fork(at) => {
                forks += 1;
                let at = Some(u64::from(*at) % log.len() as u64 + 1);
                let fork = Fork { at, ..Fork::whole(format!("fork-{forks}")) };
                let copy = session.fork(fork).await.unwrap();
                copy.append(talk(1, 6)).await.unwrap();
                if forks % 2 == 0 {
                    copy.work().await.unwrap();
                }
            }
        }
        look(&engine, &session, &log, &mut before, undone, &budgets).await?;
    }
    // In the end the model is well, and everything is worked off.
    mood.store(0, Ordering::SeqCst);
    for _ in 0..3 {
        home.clock.pass(MINUTE * 11);
        session.work().await.unwrap();
    }
    look(&engine, &session, &log, &mut before, None, &budgets).await?;
    for slot in session.explain().await.unwrap().slots {
        prop_assert!(slot.due.is_none() || slot.status == epitome::SlotStatus::Parked, "{:?}", slot);
    }
    let stored = session.messages(Page { limit: 1_000, ..Page::default() }).await.unwrap();
    prop_assert_eq!(stored.len(), log.len());
    for (stored, said) in stored.iter().zip(&log) {
        prop_assert_eq!((&stored.parts, stored.pinned, stored.skip), (&said.parts, said.pinned, said.skip));
    }
    engine.close().await;
    Ok(())
}

/// Everything that must hold after every step.
async fn look(
    engine: &Engine,
    session: &Session,
    log: &[Message],
    before: &mut Before,
    undone: Option<(String, Option<Arc<str>>)>,
    budgets: &[u64],
) -> TestCaseResult {
    let explained = session.explain().await.unwrap().slots;
    let all = session.history(None, 1_000).await.unwrap();
    for (at, (name, scope)) in SLOTS.iter().enumerate() {
        let slot = explained.iter().find(|slot| slot.slot == *name && slot.scope.as_deref() == *scope);
        let Some(slot) = slot else { continue };
        let was_undone =
            undone.as_ref().is_some_and(|(slot, whose)| slot == name && whose.as_deref() == *scope);
        let covered = before.covered.insert(at, slot.covered).unwrap_or(0);
        prop_assert!(
            slot.covered >= covered || was_undone,
            "{name} went back from {covered} to {}",
            slot.covered
        );
        let own: Vec<_> = all.iter().filter(|s| s.slot == *name && s.scope.as_deref() == *scope).collect();
        let stands: Vec<_> = own.iter().filter(|summary| summary.state == SummaryState::Current).collect();
        prop_assert!(stands.len() <= 1, "{name}: {stands:?}");
        let stands = stands.first();
        prop_assert_eq!(stands.map(|summary| summary.id), slot.summary);
        prop_assert_eq!(stands.map_or(0, |summary| summary.through), slot.covered);
        // Back along the parents: each reaches no further than the one after it, and all are superseded.
        let mut next = stands.copied().copied();
        while let Some(summary) = next {
            next = summary.parent.and_then(|id| own.iter().find(|other| other.id == id)).copied();
            prop_assert_eq!(next.is_some(), summary.parent.is_some());
            if let Some(parent) = next {
                prop_assert!(parent.through <= summary.through && parent.id < summary.id);
                prop_assert_eq!(parent.state, SummaryState::Superseded);
            }
            if let Some(base) = summary.built_on {
                let base = own.iter().find(|other| other.id == base).unwrap();
                prop_assert!(!summary.stand_in || base.through < summary.through);
                prop_assert!(summary.stand_in || !base.stand_in, "built on a stand-in");
                prop_assert_eq!(summary.span.unwrap().from, base.through + 1);
            }
        }
    }
    for budget in budgets {
        context(session, log, *budget).await?;
    }
    prop_assert_eq!(engine.verify().await.unwrap(), []);
    Ok(())
}

/// Bounded, valid, and either everything or the gap named; nothing twice.
async fn context(session: &Session, log: &[Message], budget: u64) -> TestCaseResult {
    let context = session.context(budget).await.unwrap();
    let report = &context.report;
    prop_assert!(report.tokens.total() <= budget, "{report:?}");
    prop_assert_eq!(complaints(&context.messages), Vec::<String>::new());
    let shown: Vec<Seq> = context.messages.iter().map(|message| message.seq).filter(|seq| *seq > 0).collect();
    let once: BTreeSet<Seq> = shown.iter().copied().collect();
    // A message with results of two calls is shown in two pieces, each behind its call.
    let pieces = context.messages.iter().filter(|message| message.seq > 0 && message.role != Role::Tool);
    let pieces: Vec<Seq> = pieces.map(|message| message.seq).collect();
    prop_assert_eq!(pieces.iter().collect::<BTreeSet<_>>().len(), pieces.len(), "twice: {:?}", shown);
    let told = context.summary.as_ref().map_or(0, |summary| summary.through);
    let skipped = |seq: Seq| log[seq as usize - 1].skip;
    // A reply logged in pieces is shown as one message, under the place of its first piece, and calls may get
    // other ids there: what counts is words.
    let is_words = |part: &&Part| matches!(part, Part::Text { text } if !text.trim().is_empty());
    let words: Vec<&Part> =
        context.messages.iter().flat_map(|message| &message.parts).filter(is_words).collect();
    let merged =
        |seq: Seq| log[seq as usize - 1].parts.iter().filter(is_words).all(|part| words.contains(&part));
    let absent = |seq: &Seq| !once.contains(seq) && !skipped(*seq) && !merged(*seq);
    let missing: Vec<Seq> = (told + 1..=log.len() as Seq).filter(absent).collect();
    if report.exhaustive {
        prop_assert!(missing.len() as u64 <= report.strays + report.skipped, "{missing:?} of {report:?}");
        prop_assert!(report.gap.is_none());
    } else {
        prop_assert!(report.gap.is_some() || report.empty.is_some(), "{report:?}");
    }
    if report.empty.is_none() {
        // Results whose call is not there, and replies without words, leave the view even so.
        let said = |message: &Message| message.role == Role::User && message.results().next().is_none();
        let pinned = |seq: &Seq| log[*seq as usize - 1].pinned && said(&log[*seq as usize - 1]);
        let absent: Vec<Seq> = (1..=log.len() as Seq).filter(pinned).filter(absent).collect();
        prop_assert!(absent.len() as u64 <= report.strays, "pinned and not there: {absent:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(256), max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_promises_hold_after_every_step_of_any_session(
        drawn in session(),
        steps in prop::collection::vec(step(), 1..24),
        budgets in prop::collection::vec(10u64..1_500, 2),
        stand_in in prop::sample::select(vec!["never", "0", "10m"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(drawn, steps, budgets, stand_in))?;
    }
}
