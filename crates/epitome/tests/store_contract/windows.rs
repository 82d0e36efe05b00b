//! A context built from a window equals one built from the whole log.

use std::sync::Arc;

use epitome::store::{Reach, Window, WindowQuery};
use epitome_core::context::{Candidate, Layout, PlaceholderCosts, Request, SessionShape, lay_out};
use epitome_core::cut::Cuts;
use epitome_core::message::Seq;
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use epitome_core::track::Tracker;
use epitome_testkit::drawing::NoWords;
use epitome_testkit::drawing::{messages, outlines, word_counter};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::support::*;

/// Sessions with the hard cases: batches, loops, strays, flags, authors.
fn drawings() -> impl Strategy<Value = String> {
    let first = prop::sample::select(vec!["", "s", "s s@bob", "s:3 d!", "s u!:2"]);
    let rest = prop::sample::select(vec![
        "u",
        "u:5",
        "u:9",
        "a:7",
        "a:2",
        "a(x) r(x)",
        "a(x,y) r(y) a r(x)",
        "a*(x) r(x) a(y) r(y) a:3",
        "a(x)",
        "r(x)",
        "r(z)",
        "u!:4",
        "u~:2",
        "a!",
        "a~(x) r(x)",
        "a(x) r(x)!",
        "a*(x)@bob r(x)",
        "u:0",
        "a-",
        "u@eve:3",
        "a@bob:4",
        "a(x)@bob u@eve r(x)",
        "a*(y)@eve r(y) a@eve",
        "p@bob!:2",
        "p@eve",
        "u(x)",
        "s:2",
        "a*(x) r(x) a*(y) r(y)",
        "u@bob a(x)@bob r(x)~ a@bob",
    ]);
    (first, prop::collection::vec(rest, 1..24))
        .prop_map(|(first, rest)| format!("{first} {}", rest.join(" ")))
}

fn scopes() -> [Scope; 3] {
    [Scope::Session, Scope::Author("bob".into()), Scope::Author("eve".into())]
}

fn cut(scope: &Scope, outline: &Outline) -> Cut {
    if *scope == Scope::Session { outline.cut } else { outline.own_cut }
}

fn cuts<'a>(scope: &Scope, outlines: &'a [Outline], end: Cut) -> Cuts<'a> {
    if *scope == Scope::Session { Cuts::new(outlines, end) } else { Cuts::own(outlines, end) }
}

/// Computes the layout of a window.
fn shown(window: &Window, scope: &Scope, request: &Request, candidates: &[Candidate]) -> Layout {
    let scene = SessionShape {
        leading: window.leading.iter().collect(),
        pinned: window.pinned.iter().collect(),
        recent: cuts(scope, &window.tail, window.end),
        opener: window.opener.as_ref(),
        from: window.from,
        summaries: candidates,
        skipped: window.skipped,
        open_calls: window.open_calls,
    };
    lay_out(request, &scene, &PlaceholderCosts::of(&word_counter()), &mut NoWords).unwrap()
}

/// Returns the parts of a layout that a window determines: not which of the messages that were not read count.
fn told(layout: &Layout) -> impl PartialEq + std::fmt::Debug {
    let report = &layout.report;
    let mut entries = layout.entries.clone();
    if report.empty.is_some() {
        entries.clear();
    }
    (entries, layout.summary, layout.strip_reasoning, report.tokens, report.empty, report.skipped)
}

fn is_plain(drawing: &str) -> bool {
    !drawing.contains('~') && outlines(drawing).unwrap().iter().all(|outline| !outline.stray)
}

pub(crate) async fn compare(made: Made, cases: usize) {
    let store = &*made.store;
    let mut runner = TestRunner::deterministic();
    let mut compared = 0;
    for case in 0..cases {
        let drawing = drawings().new_tree(&mut runner).unwrap().current();
        let key = key(&format!("s{case}"));
        say(store, &key, &drawing).await;
        let log = outlines(&drawing).unwrap();
        let mut tracker = Tracker::default();
        messages(&drawing).unwrap().iter().for_each(|message| {
            tracker.push(message, &word_counter());
        });
        for scope in scopes() {
            let (end, open) = match &scope {
                Scope::Session => (tracker.cut_at_end(), tracker.open_calls()),
                Scope::Author(author) => (tracker.own_cut_at_end(author), tracker.own_open_calls(author)),
            };
            let own: Vec<Outline> = log.iter().filter(|outline| scope.holds(outline)).cloned().collect();
            let legal: Vec<Seq> = own
                .windows(2)
                .filter(|two| cut(&scope, &two[1]) == Cut::Legal && !two[0].leading)
                .map(|two| two[0].seq)
                .chain(own.last().filter(|_| end == Cut::Legal).map(|last| last.seq))
                .collect();
            let through: Vec<Seq> = match legal.len() {
                0 => vec![],
                some => vec![legal[case % some], legal[some - 1 - (case / 2) % some.min(3)]],
            };
            for (at, through) in through.iter().enumerate().filter(|_| case % 3 > 0) {
                summarize(store, &key, &scope, ["long", "short"][at], *through).await;
            }
            let whole_cuts = cuts(&scope, &own, end);
            for budget in [1, 3, 6, 9, 12, 17, 25, 40, 70, 150] {
                for (deep, steady, summary) in
                    [(true, false, true), (true, true, true), (true, false, false), (false, false, true)]
                {
                    let view = WindowQuery { scope: scope.clone(), as_of: None, recently_read: false };
                    let look = Arc::new(move |_: &_| Some(Reach { tokens: budget, deep }));
                    let window = store.window(&key, view, look).await.unwrap().unwrap();
                    let candidates: Vec<Candidate> = window
                        .summaries
                        .iter()
                        .map(|s| Candidate { through: s.through, tokens: s.facts.shown, elastic: false })
                        .collect();
                    let mut scene = SessionShape::whole(whole_cuts, &candidates);
                    scene.open_calls = u32::try_from(open).unwrap();
                    let request = Request { tokens: Some(budget), steady, summary, ..Request::default() };
                    let whole =
                        lay_out(&request, &scene, &PlaceholderCosts::of(&word_counter()), &mut NoWords)
                            .unwrap();
                    // Messages covered by a summary are not read, so a layout without the summary cannot show them.
                    if !deep && !candidates.is_empty() && whole.summary.is_none() {
                        continue;
                    }
                    let part = shown(&window, &scope, &request, &candidates);
                    let case = format!("{drawing} | {scope:?} {budget} {deep} {steady} {candidates:?}");
                    assert_eq!(told(&part), told(&whole), "{case}\n{window:#?}");
                    if is_plain(&drawing) {
                        assert_eq!(part.report.exhaustive, whole.report.exhaustive, "{case}");
                        assert_eq!(part.report.cut, whole.report.cut, "{case}");
                    }
                    has_words(&window, &part, deep);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > cases * 30);
    assert_eq!(store.verify().await.unwrap(), []);
}

/// Checks that the window contains the text of every shown message.
fn has_words(window: &Window, layout: &Layout, deep: bool) {
    use epitome_core::context::Entry;
    let seqs: Vec<Seq> = window.messages.iter().map(|message| message.seq).collect();
    assert!(seqs.is_sorted());
    let newest = window.summaries.iter().map(|summary| summary.through).max();
    for entry in &layout.entries {
        let needed = match entry {
            Entry::Relocated(seq) => Some(*seq),
            Entry::Message(seq) => Some(*seq).filter(|seq| deep || newest.is_none_or(|newest| *seq > newest)),
            _ => None,
        };
        if let Some(seq) = needed {
            // The carried opener may be a message of the tail whose text was not expected to be needed.
            let carried = matches!(entry, Entry::Relocated(_)) && window.tail.iter().any(|o| o.seq == seq);
            assert!(carried || seqs.binary_search(&seq).is_ok(), "{seq} of {seqs:?}");
        }
    }
}

pub(crate) async fn as_of(made: Made) {
    let store = &*made.store;
    let drawing = "s u a(x) r(x) a u~ a u@eve a*(y)@bob r(y) a@bob u!";
    say(store, &key("a"), drawing).await;
    summarize(store, &key("a"), &Scope::Session, "s", 4).await;
    summarize(store, &key("a"), &Scope::Session, "s", 7).await;
    let log = outlines(drawing).unwrap();
    for as_of in 0..=14 {
        let last = usize::try_from(as_of).unwrap().min(log.len());
        for scope in scopes() {
            let view = WindowQuery { scope: scope.clone(), as_of: Some(as_of), recently_read: true };
            let look = Arc::new(|_: &_| Some(Reach { tokens: 1_000, deep: true }));
            let window = store.window(&key("a"), view, look).await.unwrap().unwrap();
            let own: Vec<Outline> = log[..last].iter().filter(|o| scope.holds(o)).cloned().collect();
            let next = log[last..].iter().find(|o| scope.holds(o));
            let end = next.map_or(Cut::Legal, |next| cut(&scope, next));
            let whole = SessionShape::whole(cuts(&scope, &own, end), &[]);
            assert_eq!(window.tail, own, "{as_of} {scope:?}");
            assert_eq!(window.leading.iter().collect::<Vec<_>>(), whole.leading);
            assert_eq!(window.pinned.iter().collect::<Vec<_>>(), whole.pinned);
            assert_eq!((window.from, window.opener), (1, None));
            assert_eq!(
                (window.skipped, window.open_calls),
                (whole.skipped, whole.open_calls),
                "{as_of} {scope:?}"
            );
            assert!(own.is_empty() || window.end == end, "{as_of} {scope:?}");
            let covered: Vec<Seq> = window.summaries.iter().map(|s| s.through).collect();
            let expected: &[Seq] = match (&scope, as_of) {
                (Scope::Session, 7..) => &[7],
                (Scope::Session, 4..) => &[4],
                _ => &[],
            };
            assert_eq!(covered, expected);
        }
    }
}

pub(crate) async fn little(made: Made) {
    let store = &*made.store;
    say(store, &key("a"), &format!("s u!:5 {}", "u:9 a:9 ".repeat(300))).await;
    let reach =
        |tokens, deep| Arc::new(move |_: &_| Some(Reach { tokens, deep })) as epitome::store::DecideReach;
    let view = || WindowQuery { scope: Scope::Session, as_of: None, recently_read: false };
    let window = store.window(&key("a"), view(), reach(50, true)).await.unwrap().unwrap();
    assert_eq!((window.tail.len(), window.from, window.messages.len()), (6, 597, 8));
    summarize(store, &key("a"), &Scope::Session, "s", 592).await;
    summarize(store, &key("a"), &Scope::Session, "t", 600).await;
    let window = store.window(&key("a"), view(), reach(1_000, false)).await.unwrap().unwrap();
    assert_eq!((window.tail.len(), window.from, window.messages.len()), (10, 593, 4));
    assert!(store.window(&key("a"), view(), Arc::new(|_| None)).await.unwrap().is_none());
    assert!(store.window(&key("b"), view(), reach(1, true)).await.unwrap().is_none());
}

/// A cached window that was extended while its session grew equals a window that is read for the first time.
pub(crate) async fn growing(made: Made, cases: usize) {
    let store = &*made.store;
    let mut runner = TestRunner::deterministic();
    for case in 0..cases {
        let drawing = drawings().new_tree(&mut runner).unwrap().current();
        let all = messages(&drawing).unwrap();
        let grown = key(&format!("grown {case}"));
        let (budget, deep) = ([3, 9, 25, 70][case % 4], case % 3 == 0);
        let mut said = 0;
        let mut covered = None;
        while said < all.len() {
            let next = (said + 1 + (case + said) % 4).min(all.len());
            say_all(store, &grown, all[said..next].to_vec()).await;
            said = next;
            let fresh = key(&format!("fresh {case} {said}"));
            say_all(store, &fresh, all[..said].to_vec()).await;
            if case % 5 == 1 && said > 6 && covered.is_none() {
                covered = Some(said as Seq - 3);
                summarize(store, &grown, &Scope::Session, "s", said as Seq - 3).await;
            }
            if let Some(through) = covered {
                summarize(store, &fresh, &Scope::Session, "s", through).await;
            }
            if case % 7 == 2 && said > 4 {
                for of in [&grown, &fresh] {
                    let flag: epitome::store::Decide = Box::new(|_| {
                        let flags = vec![(2, true, false)];
                        Some(epitome::store::Changes { flags, ..Default::default() })
                    });
                    store.change(of, Default::default(), flag).await.unwrap();
                }
            }
            let [one, other] =
                [window(store, &grown, budget, deep).await, window(store, &fresh, budget, deep).await];
            let case = format!("{drawing} | {said} of it, {budget} {deep} {covered:?}");
            assert_eq!(one.tail, other.tail, "{case}");
            assert_eq!(
                (one.from, one.end, one.open_calls, one.skipped),
                (other.from, other.end, other.open_calls, other.skipped),
                "{case}"
            );
            assert_eq!(
                (one.leading, one.pinned, one.opener),
                (other.leading, other.pinned, other.opener),
                "{case}"
            );
            assert_eq!(one.messages, other.messages, "{case}");
            let texts = |window: &[epitome::store::SummaryRow]| {
                window.iter().map(|row| row.text.clone()).collect::<Vec<_>>()
            };
            assert_eq!(texts(&one.summaries), texts(&other.summaries), "{case}");
        }
    }
}

/// A window is the same with and without the cache: a window as of the newest message is never cached.
pub(crate) async fn either_way(made: Made, cases: usize) {
    let store = &*made.store;
    let mut runner = TestRunner::deterministic();
    let mut cut_off = 0;
    for case in 0..cases {
        let one = drawings().new_tree(&mut runner).unwrap().current().replace('!', "");
        // Long sessions, and one turn that never ends.
        let loops = if case % 4 == 0 {
            "u:3 ".to_owned() + &"a*(x) r(x) a(y) r(y):7 ".repeat(40)
        } else {
            String::new()
        };
        let more = format!("{} ", one.replace("s ", "u "));
        let drawing = format!("{one} {} {loops}", more.repeat(1 + 200 / one.len().max(1)));
        let key = key(&format!("s{case}"));
        say(store, &key, &drawing).await;
        let log = outlines(&drawing).unwrap();
        let head = log.len() as Seq;
        let legal: Vec<Seq> =
            log.iter().filter(|o| o.cut == Cut::Legal && o.seq > 9).map(|o| o.seq - 1).collect();
        if case % 3 == 1
            && let Some(through) = legal.get(legal.len() / 2)
        {
            summarize(store, &key, &Scope::Session, "s", *through).await;
        }
        for (budget, deep) in [(1, true), (9, false), (30, true), (90, false), (90, true), (400, true)] {
            let found = window(store, &key, budget, deep).await;
            let view = WindowQuery { scope: Scope::Session, as_of: Some(head), recently_read: false };
            let look = Arc::new(move |_: &_| Some(Reach { tokens: budget, deep }));
            let other = store.window(&key, view, look).await.unwrap().unwrap();
            let case = format!("{drawing} | {budget} {deep}");
            assert_eq!((&found.tail, &found.messages), (&other.tail, &other.messages), "{case}");
            assert_eq!(
                (
                    found.from,
                    found.end,
                    found.open_calls,
                    found.skipped,
                    found.leading,
                    found.pinned,
                    found.opener
                ),
                (
                    other.from,
                    other.end,
                    other.open_calls,
                    other.skipped,
                    other.leading,
                    other.pinned,
                    other.opener
                ),
                "{case}"
            );
            assert_eq!(found.summaries, other.summaries, "{case}");
            cut_off += usize::from(found.from > 20);
        }
    }
    assert!(cut_off > cases, "only {cut_off} windows were shorter than their sessions");
}

async fn window(
    store: &dyn epitome::store::Store,
    key: &epitome::store::SessionKey,
    tokens: u64,
    deep: bool,
) -> Window {
    let view = WindowQuery { scope: Scope::Session, as_of: None, recently_read: false };
    store.window(key, view, Arc::new(move |_| Some(Reach { tokens, deep }))).await.unwrap().unwrap()
}
