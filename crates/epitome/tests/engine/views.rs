//! Contexts of earlier states, and full-text search.

use std::collections::BTreeSet;

use epitome::rules::context::{Oversize, Request};
use epitome::rules::message::{Limits, Message, Seq};
use epitome::rules::tokens::{Counter, Encoding};
use epitome::rules::trigger::Fraction;
use epitome::{Context, ContextRequest, Engine, Error, HitCursor, Page, Session};
use epitome_testkit::scripted::Scripted;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::drawn::{Drawn, Log, session};
use crate::support::{
    Home, cases, current_summary, history, on_every_store, one_slot, shown, talk, with_settings,
};

/// Apart from its age, which goes on.
fn ageless(mut context: Context) -> Context {
    if let Some(summary) = &mut context.summary {
        summary.age_millis = None;
    }
    context
}

async fn as_of(session: &Session, seq: Seq, tokens: u64) -> Context {
    let request = ContextRequest { as_of: Some(seq), ..tokens.into() };
    ageless(session.context(request).await.unwrap())
}

#[tokio::test]
async fn a_context_as_of_a_message_equals_the_context_when_it_was_newest() {
    on_every_store(async |home| {
        let engine = home.open(with_settings(&Scripted::new(), "")).await;
        let session = engine.session("s");
        let mut was = Vec::new();
        for n in 1..=130 {
            session.append(talk(n, n)).await.unwrap();
            session.work().await.unwrap();
            home.clock.pass(std::time::Duration::from_secs(7));
            let mut contexts = Vec::new();
            for tokens in [150, 700, 3_000, 50_000] {
                contexts.push((tokens, ageless(session.context(tokens).await.unwrap())));
            }
            was.push((n as u64, contexts));
        }
        for (seq, contexts) in was {
            for (tokens, context) in contexts {
                assert_eq!(as_of(&session, seq, tokens).await, context, "as of {seq} in {tokens}");
            }
        }
        let beyond = as_of(&session, 1_000_000, 3_000).await;
        assert_eq!(beyond.through, 130);
        let zero = session.context(ContextRequest { as_of: Some(0), ..3_000.into() }).await;
        assert!(matches!(zero, Err(Error::Invalid(_))));
    })
    .await;
}

/// What may be appended of a drawing, with words enough for a model to have something to do.
pub(crate) fn sayable(drawn: &Drawn) -> Vec<Message> {
    let mut messages = drawn.messages();
    messages.retain(|message| message.check(&Limits::default()).is_ok());
    for (n, message) in messages.iter_mut().enumerate() {
        for part in &mut message.parts {
            if let epitome::rules::message::Part::Text { text } = part
                && !text.trim().is_empty()
                && n % 2 == 0
            {
                text.push_str(&format!(
                    " speaks of order {n}0071 and of carrier {n}, who was in Oslo on Monday and will be again"
                ));
            }
        }
    }
    messages
}

async fn drawn_as_of(drawn: Drawn, budgets: [u64; 2]) -> TestCaseResult {
    let home = Home::memory();
    let slots =
        r#", "slot": [{"name": "a", "trigger": "messages(4)"}, {"name": "b", "trigger": "messages(9)"}]"#;
    let engine = home.open(with_settings(&Scripted::new(), slots)).await;
    let session = engine.session("s");
    let mut was = Vec::new();
    for message in sayable(&drawn) {
        let at = session.append(message).await.unwrap().span.through;
        session.work().await.unwrap();
        let known = session.history(None, 1_000).await.unwrap().len();
        for tokens in budgets {
            was.push((at, known, tokens, ageless(session.context(tokens).await.unwrap())));
        }
    }
    if was.is_empty() {
        return Ok(());
    }
    let all = session.history(None, 1_000).await.unwrap();
    for (at, known, tokens, context) in was {
        let now = as_of(&session, at, tokens).await;
        // A window that could not be cut at once was summed up a little later than it ends.
        if all.iter().rev().skip(known).all(|summary| summary.through > at) {
            prop_assert_eq!(&now, &context, "as of {} in {}", at, tokens);
        }
        prop_assert!(now.through == at && now.report.tokens.total() <= tokens);
    }
    engine.close().await;
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(96), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_context_as_of_a_message_equals_the_earlier_context_in_any_session(
        drawn in session(), small in 20u64..200, large in 200u64..3_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(drawn_as_of(drawn, [small, large]))?;
    }
}

#[tokio::test]
async fn messages_are_found_by_their_words_in_any_script() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let session = engine.session("s");
        let said = [
            ("The Parser fails in line 12.", "parser \"line 12\""),
            ("订单在奥斯陆丢失了。", "奥斯陆"),
            ("Посылка не пришла в Осло.", "посылка ОСЛО"),
            ("Το δέμα χάθηκε στο Όσλο.", "δέμα"),
            ("الطرد لم يصل إلى أوسلو", "الطرد"),
            ("พัสดุยังไม่ถึงออสโล", "ออสโล"),
            ("小包はまだオスロに届いていません。", "オスロ"),
            ("Größe der Straße: fünf", "straße"),
            ("Well done 🎉🎉", "🎉"),
        ];
        for (text, _) in said {
            session.append(Message::user(text)).await.unwrap();
        }
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        for pause in [0, 60] {
            // At once, and when an index may have been made.
            tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
            for (at, (text, words)) in said.iter().enumerate() {
                let found = session.search(words, None, None, 10).await.unwrap();
                let seqs: Vec<Seq> = found.iter().map(|found| found.message.seq).collect();
                assert_eq!(seqs, [at as u64 + 1], "{words} in {text}");
                assert!(!found[0].excerpt.is_empty());
            }
            assert!(session.search("nowhere-to-be-found", None, None, 10).await.unwrap().is_empty());
        }
        assert!(matches!(session.search("  ", None, None, 10).await, Err(Error::Invalid(_))));
    })
    .await;
}

#[tokio::test]
async fn a_search_covers_summarized_messages_and_all_sessions_page_by_page() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let (one, two) = (engine.session("one"), engine.session("two"));
        one.append(talk(1, 45)).await.unwrap();
        one.work().await.unwrap();
        two.append(talk(1, 5)).await.unwrap();
        let beneath = current_summary(&one, "short").await.unwrap();
        let found = one.search("parcel", Some(beneath.id), None, 100).await.unwrap();
        let seqs: Vec<Seq> = found.iter().map(|found| found.message.seq).collect();
        assert_eq!(seqs, (1..=40).rev().filter(|n| n % 2 == 1).collect::<Vec<Seq>>(), "newest first");
        assert_eq!(one.search("parcel", None, None, 100).await.unwrap().len(), 23);
        let workspace = engine.workspace("default");
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = workspace.search("parcel", after, 4).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.cursor.clone());
            all.extend(page.into_iter().map(|found| (found.session.to_string(), found.message.seq)));
        }
        let mut wanted: Vec<(String, Seq)> = [5, 3, 1].map(|seq| ("two".to_owned(), seq)).into();
        wanted.extend((1..=45).rev().filter(|n| n % 2 == 1).map(|seq| ("one".to_owned(), seq)));
        assert_eq!(all, wanted);
        assert!(engine.workspace("elsewhere").search("parcel", None, 10).await.unwrap().is_empty());
        // In one session it goes on in the same way.
        let first = one.search("parcel", None, None, 4).await.unwrap();
        let cursor = first.last().map(|found| found.cursor.clone());
        let next = one.search("parcel", None, cursor.clone(), 2).await.unwrap();
        assert_eq!(next.iter().map(|found| found.message.seq).collect::<Vec<Seq>>(), [37, 35]);
        assert!(matches!(two.search("parcel", None, cursor, 2).await, Err(Error::Invalid(_))));
    })
    .await;
}

#[tokio::test]
async fn a_search_continues_by_session_name_and_reports_a_deleted_cursor() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let workspace = engine.workspace("default");
        let (one, two) = (engine.session("one"), engine.session("two"));
        one.append(talk(1, 5)).await.unwrap();
        // Others' sessions come between: nothing of ours shows it.
        engine.workspace("stranger").session("x").append(talk(1, 5)).await.unwrap();
        two.append(talk(1, 5)).await.unwrap();
        let page = workspace.search("parcel", None, 2).await.unwrap();
        let cursor = page[1].cursor.clone();
        let told = serde_json::to_value(&cursor).unwrap();
        assert_eq!(told, serde_json::json!({"session": "two", "seq": 3}));
        assert_eq!(serde_json::from_value::<HitCursor>(told).unwrap(), cursor);
        let rest = workspace.search("parcel", Some(cursor.clone()), 9).await.unwrap();
        let places: Vec<(&str, Seq)> =
            rest.iter().map(|found| (&*found.session, found.message.seq)).collect();
        assert_eq!(places, [("two", 1), ("one", 5), ("one", 3), ("one", 1)]);
        two.delete().await.unwrap();
        let error = workspace.search("parcel", Some(cursor), 9).await.unwrap_err();
        assert!(
            matches!(&error, Error::Conflict(why) if why.contains("search again from the start")),
            "{error}"
        );
        // A name that is only another's is as good as gone.
        let theirs = HitCursor { session: "x".into(), seq: 3 };
        assert!(matches!(workspace.search("parcel", Some(theirs), 9).await, Err(Error::Conflict(_))));
    })
    .await;
}

#[tokio::test]
async fn a_context_has_a_report_and_invalid_requests_are_refused() {
    let home = Home::memory();
    let engine = home.open(one_slot(&Scripted::new())).await;
    let session = engine.session("s");
    session.append(talk(1, 30)).await.unwrap();
    session.work().await.unwrap();
    home.clock.pass(std::time::Duration::from_secs(9));
    let context = session.context(4_000).await.unwrap();
    let summary = context.summary.as_ref().unwrap();
    assert_eq!(
        (summary.slot.as_deref(), summary.through, summary.age_millis),
        (Some("short"), 20, Some(9_000))
    );
    assert_eq!((context.encoding.as_str(), context.report.budget), ("o200k_base", 4_000));
    let bare = session.context(ContextRequest { summary: false, ..4_000.into() }).await.unwrap();
    assert!(bare.summary.is_none() && shown(&bare).len() == 30);
    let tight = session.context(60).await.unwrap();
    assert!(!tight.report.exhaustive && tight.report.gap.is_some(), "{:?}", tight.report);
    for (request, word) in [
        (ContextRequest::from(0), "tokens: 0"),
        (ContextRequest::from(100_001), "context.max_tokens"),
        (ContextRequest { fill: true, steady: true, ..4_000.into() }, "steady and fill"),
    ] {
        let error = session.context(request).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid(why) if why.contains(word)), "{error}");
    }
    let huge: String = (0..2_000).map(|n| format!("thing{n} ")).collect();
    session.append(Message::user(huge)).await.unwrap();
    let none = session.context(500).await.unwrap();
    assert!(none.messages.is_empty() && none.report.empty.is_some());
    let clipped = session.context(ContextRequest { oversize: Oversize::Clip, ..500.into() }).await.unwrap();
    assert!(!clipped.messages.is_empty() && clipped.report.tokens.total() <= 500);
    assert_eq!(history(&session, "short").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filled_context_gives_its_summary_one_and_a_half_times_the_share_by_default() {
    let home = Home::memory();
    let engine = home.open(Engine::builder()).await;
    let session = engine.session("s");
    session.append(talk(1, 400)).await.unwrap();
    session.work().await.unwrap();
    let summary = async |fill: bool, share: Option<f64>| {
        let share = share.map(|share| Fraction::new(share).unwrap());
        let context = session.context(ContextRequest { fill, share, ..1_000.into() }).await.unwrap();
        context.report.tokens.summary
    };
    let (plain, filled) = (summary(false, None).await, summary(true, None).await);
    assert!((300..=400).contains(&plain) && (450..=600).contains(&filled), "{plain} {filled}");
    let (half, told) = (summary(false, Some(0.2)).await, summary(true, Some(0.4)).await);
    assert!(half <= 200 && (300..=400).contains(&told), "{half} {told}");
}

/// Contexts of the engine, which reads as little as it can, against those of a log that is all at hand.
async fn compare_with_the_whole_log(drawn: Drawn, budgets: Vec<u64>) -> TestCaseResult {
    let home = Home::memory();
    let slots =
        r#", "slot": [{"name": "a", "trigger": "messages(4)"}, {"name": "b", "trigger": "messages(9)"}]"#;
    let engine = home.open(with_settings(&Scripted::new(), slots)).await;
    let session = engine.session("s");
    let messages = sayable(&drawn);
    if messages.is_empty() {
        return Ok(());
    }
    session.append(messages).await.unwrap();
    session.work().await.unwrap();
    let stored = session.messages(Page { limit: 1_000, ..Page::default() }).await.unwrap();
    let log = Log::new(stored.items, Counter::new(Encoding::O200k));
    let mut stand: Vec<_> = session.summaries().await.unwrap();
    stand.sort_by(|one, two| one.slot.cmp(&two.slot));
    let stand: Vec<(u64, String)> =
        stand.into_iter().map(|summary| (summary.through, summary.text)).collect();
    for tokens in budgets {
        for (summary, fill, fit, steady) in [
            (true, false, true, false),
            (true, false, false, false),
            (true, true, true, false),
            (false, false, true, false),
            (true, false, true, true),
        ] {
            if fill && log.outlines.iter().map(|outline| outline.tokens).sum::<u64>() > 4 * tokens {
                // A gap larger than that is named, and not digested.
                continue;
            }
            let asked = ContextRequest { summary, fill, fit, steady, ..tokens.into() };
            let given = session.context(asked).await.unwrap();
            let request = Request { tokens: Some(tokens), summary, fill, fit, steady, ..Request::default() };
            let whole = log.context(log.len(), &request, &stand);
            let case = format!("{tokens} summary {summary} fill {fill} fit {fit} steady {steady} {stand:?}");
            let (report, all) = (given.report, whole.layout.report);
            // What is skipped, or a stray, and lies before what was read cannot be told from what is missing. Then
            // less may be called exhaustive than could be, never more.
            if log.outlines.iter().all(|outline| !outline.skip && !outline.stray) {
                prop_assert_eq!(&given.messages, &whole.messages, "{}", &case);
                let (seen, whole) = ((report.tokens, report.covers), (all.tokens, all.covers));
                prop_assert_eq!(seen, whole, "{}", &case);
                let (seen, whole) = ((report.empty, report.fitted), (all.empty, all.fitted));
                prop_assert_eq!(seen, whole, "{}", &case);
                let (seen, whole) = ((report.exhaustive, report.cut), (all.exhaustive, all.cut));
                prop_assert_eq!(seen, whole, "{}", &case);
            }
            prop_assert_eq!(report.skipped, all.skipped, "{}", &case);
            prop_assert!(all.exhaustive || !report.exhaustive, "{}", &case);
            prop_assert!(report.tokens.total() <= tokens, "{}", &case);
        }
    }
    engine.close().await;
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(256), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_context_equals_the_one_built_from_the_whole_log(
        drawn in session(), budgets in proptest::collection::vec(5u64..400, 6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(compare_with_the_whole_log(drawn, budgets))?;
    }
}

#[tokio::test]
async fn a_context_does_not_depend_on_earlier_requests() {
    let home = Home::file();
    let engine = home.open(Engine::builder().workers(0)).await;
    let session = engine.session("s");
    let mut sizes = BTreeSet::new();
    for round in 0..4usize {
        let from = if round == 0 { 1 } else { 101 + round * 20 };
        session.append(talk(from, 120 + round * 20)).await.unwrap();
        session.work().await.unwrap();
        for tokens in [6_000, 400, 1_500, 700, 3_000, 1_000, 6_000] {
            for fill in [false, true] {
                let asked = ContextRequest { fill, ..tokens.into() };
                let ours = ageless(session.context(asked.clone()).await.unwrap());
                // Whoever comes new remembers nothing.
                let fresh = home.open(Engine::builder().workers(0)).await;
                let theirs = ageless(fresh.session("s").context(asked).await.unwrap());
                fresh.close().await;
                assert_eq!(ours, theirs, "{tokens} tokens after {} messages, fill {fill}", 120 + round * 20);
                assert!(ours.report.tokens.total() <= tokens);
                sizes.extend(ours.summary.map(|summary| (summary.joined.is_some(), summary.text.len())));
            }
        }
    }
    assert!(sizes.iter().filter(|(joined, _)| *joined).count() > 3, "joined in several sizes: {sizes:?}");
    assert!(sizes.iter().filter(|(joined, _)| !joined).count() > 3, "alone in several sizes: {sizes:?}");
}
