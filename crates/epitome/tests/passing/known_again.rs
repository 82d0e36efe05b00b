//! Which conversation a list is, whatever becomes of it and of us in between.

use std::sync::Arc;

use epitome::dialect::Dialect;
use epitome::inline::Caller;
use epitome::rules::condense::Press;
use epitome::rules::message::{Message, Part, Role};
use epitome::{Call, Engine};
use epitome_testkit::scripted::Scripted;

use crate::support::{
    ANN, BOB, Desk, Home, Numbered, Silent, TWELVE, alone, assert_own, complaints, fork, marks, open, plain,
    said, settle, summary, talk, texts, zeros,
};

/// The letters that would be sent.
fn letters(messages: &[Message]) -> String {
    serde_json::to_string(&Dialect::OPENAI.write(messages)["messages"]).unwrap()
}

/// Whether what is sent now begins with what was sent, letter for letter.
fn goes_on(now: &[Message], before: &[Message]) -> bool {
    letters(now).starts_with(letters(before).trim_end_matches(']'))
}

#[tokio::test]
async fn after_a_restart_a_conversation_goes_on_as_it_was_handed_out() {
    let home = Home::new();
    let list = talk("a", 20);
    let mut before = Vec::new();
    let mut run = None;
    for len in 12..=18 {
        // A new engine each time, as if the server were started anew between any two requests.
        let engine = open(&home).await;
        let desk = Desk::new(&engine, "home", TWELVE).await;
        let passing = desk.before(&ANN, &list[..len]).await;
        assert_eq!(passing.ready.report.condensed, len == 12, "{len}");
        assert_own(&passing.ready, &list[..len]);
        assert!(before.is_empty() || goes_on(&passing.ready, &before), "{len}");
        assert_eq!(
            run.get_or_insert_with(|| Arc::clone(&passing.conversation_id)),
            &passing.conversation_id,
            "one number"
        );
        before = passing.ready.into_messages();
        engine.close().await;
    }
}

#[tokio::test]
async fn one_that_was_let_go_of_goes_on_as_it_was_handed_out() {
    let engine = alone(Engine::builder().workers(0).conversations(1)).await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    let lists = [talk("a", 18), talk("b", 18)];
    let mut before = [Vec::new(), Vec::new()];
    for len in 12..=18 {
        for (list, before) in lists.iter().zip(&mut before) {
            let passing = desk.before(&ANN, &list[..len]).await;
            assert_eq!(passing.ready.report.condensed, len == 12);
            assert_own(&passing.ready, &list[..len]);
            assert!(goes_on(&passing.ready, before) || before.is_empty());
            *before = passing.ready.into_messages();
        }
    }
}

#[tokio::test]
async fn forks_after_the_swap_share_what_was_done_and_forks_before_it_do_not() {
    let engine = plain().await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    let list = talk("a", 16);
    let swapped = desk.before(&ANN, &list[..12]).await.ready.into_messages();
    let first = desk.before(&ANN, &list).await;
    // From the very place, from further on, and shorter again: all begin as the first did.
    for (shared, len) in [(12, 14), (14, 15), (15, 16), (13, 13)] {
        let other = fork("a", shared, "b", len);
        let passing = desk.before(&ANN, &other).await;
        assert!(!passing.ready.report.condensed && goes_on(&passing.ready, &swapped), "{shared}");
        assert_own(&passing.ready, &other);
        assert_ne!(passing.conversation_id, first.conversation_id, "a fork has its own number");
    }
    // From before: nothing was done to that list.
    let other = fork("a", 11, "c", 12);
    let passing = desk.before(&ANN, &other).await;
    assert!(passing.ready.report.condensed);
    assert_own(&passing.ready, &other);
    let short = desk.before(&ANN, &list[..11]).await;
    assert!(short.ready.is_untouched());
    // The first goes on as if nobody had been there.
    let again = desk.before(&ANN, &list).await;
    assert_eq!((&*again.ready, &again.conversation_id), (&*first.ready, &first.conversation_id));
}

#[tokio::test]
async fn an_edit_before_the_swap_is_another_conversation_and_one_after_it_a_fork() {
    let home = Home::new();
    for restart in [false, true] {
        let engine = open(&home).await;
        let workspace = if restart { "one" } else { "two" };
        let desk = Desk::new(&engine, workspace, TWELVE).await;
        let mut list = talk("a", 14);
        let swapped = desk.before(&ANN, &list[..12]).await.ready.into_messages();
        desk.before(&ANN, &list).await;
        let (engine, desk) = if restart {
            engine.close().await;
            let engine = open(&home).await;
            let desk = Desk::new(&engine, workspace, TWELVE).await;
            (engine, desk)
        } else {
            (engine, desk)
        };
        list[12] = said("b", 13);
        let passing = desk.before(&ANN, &list).await;
        assert!(goes_on(&passing.ready, &swapped) && !passing.ready.report.condensed);
        assert_own(&passing.ready, &list);
        for at in [11, 5, 0] {
            list[at] = said("c", at + 1);
            let passing = desk.before(&ANN, &list).await;
            assert!(passing.ready.report.condensed, "{at}");
            assert_own(&passing.ready, &list);
        }
        engine.close().await;
    }
}

#[tokio::test]
async fn two_clients_with_the_same_opening_are_two() {
    let engine = plain().await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    let lists = [fork("a", 5, "b", 40), fork("a", 5, "c", 40)];
    let mut runs = [None, None];
    for len in (3..40).step_by(2) {
        for (list, run) in lists.iter().zip(&mut runs) {
            let passing = desk.before(&ANN, &list[..len]).await;
            assert!(marks(&texts(&passing.ready), "mk").is_subset(&marks(&texts(&list[..len]), "mk")));
            assert_eq!(passing.ready.last(), list[..len].last());
            // As long as they say the same they are one.
            if len > 6 {
                assert_eq!(
                    run.get_or_insert_with(|| Arc::clone(&passing.conversation_id)),
                    &passing.conversation_id
                );
            }
        }
    }
    assert_ne!(runs[0], runs[1]);
}

#[tokio::test]
async fn the_same_conversation_of_somebody_else_gets_a_summary_of_its_own() {
    let home = Home::new();
    let settings = format!(r#"{TWELVE}, "model": "m", "wait": true"#);
    let list = talk("a", 13);
    let callers = [
        ("home", ANN),
        ("work", ANN),
        ("home", BOB),
        ("home", Caller { wire: "anthropic", ..ANN }),
        ("home", Caller { session: Some("one"), ..ANN }),
        ("home", Caller { session: Some("two"), ..ANN }),
    ];
    let mut all = Vec::new();
    for again in [false, true] {
        let builder = Engine::builder().workers(0).model("m", Numbered);
        let engine = home.open(builder).await;
        for (at, (workspace, caller)) in callers.iter().enumerate() {
            let desk = Desk::new(&engine, workspace, &settings).await;
            let passing = desk.before(caller, &list[..12]).await;
            assert_eq!(passing.ready.report.condensed, !again);
            let own = summary(&passing.ready).unwrap();
            assert!(own.contains("sum"), "{own}");
            if again {
                assert_eq!(all[at], (own, passing.conversation_id));
            } else {
                assert!(
                    all.iter().all(|(other, run)| *other != own && *run != passing.conversation_id),
                    "{own}"
                );
                all.push((own, passing.conversation_id));
            }
        }
        engine.close().await;
    }
    assert_eq!((&*all[4].1, &*all[5].1), ("one", "two"), "who has a name is called by it");
}

#[tokio::test]
async fn the_same_list_again_is_answered_the_same() {
    let engine = plain().await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    let list = talk("a", 14);
    for len in 11..=14 {
        let first = desk.before(&ANN, &list[..len]).await;
        for _ in 0..3 {
            let again = desk.before(&ANN, &list[..len]).await;
            assert_eq!((&*again.ready, &again.conversation_id), (&*first.ready, &first.conversation_id));
            assert!(!again.ready.report.condensed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_of_one_conversation_at_the_same_moment_are_all_right() {
    let engine = alone(Engine::builder().workers(0).conversations(3)).await;
    let desk = Arc::new(Desk::new(&engine, "home", TWELVE).await);
    for round in 0..20 {
        let tasks: Vec<_> = (0..12)
            .map(|n| {
                let desk = Arc::clone(&desk);
                tokio::spawn(async move {
                    // Some send the same, some are further on, and some went another way.
                    let of = if n % 3 == 0 { "b" } else { "a" };
                    let list = fork("a", 10 + round, of, 12 + round + n % 4);
                    let passing = desk.before(&ANN, &list).await;
                    let own = marks(&texts(&list), "mk");
                    assert!(marks(&texts(&passing.ready), "mk").is_subset(&own), "{round} {n}");
                    assert_eq!(passing.ready.last(), list.last());
                    assert!(passing.ready.is_untouched() || complaints(&passing.ready).is_empty());
                    assert!(passing.ready.len() <= 1 + 4 + 12, "{}", passing.ready.len());
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test]
async fn standing_orders_that_change_each_turn_are_taken_over_and_nothing_else_changes() {
    let home = Home::new();
    let mut before: Vec<Message> = Vec::new();
    for len in 8..=18 {
        // Also where it is read from the store.
        let engine = open(&home).await;
        for minute in 0..3 {
            let desk = Desk::new(&engine, "home", TWELVE).await;
            let mut list = vec![Message::system(format!("It is {len}:0{minute}."))];
            list.extend(talk("a", len));
            let passing = desk.before(&ANN, &list).await;
            assert_eq!(passing.ready.report.condensed, len == 11 && minute == 0, "{len} {minute}");
            assert_eq!(passing.ready[0], list[0]);
            assert_own(&passing.ready[1..], &list[1..]);
            assert!(
                before.is_empty() || goes_on(&passing.ready[1..], &before) || passing.ready.report.condensed
            );
            before = passing.ready[1..].to_vec();
        }
        engine.close().await;
    }
    assert!(summary(&before).is_some());
}

#[tokio::test]
async fn a_named_conversation_that_was_edited_is_not_given_what_no_longer_fits() {
    let engine = plain().await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    let named = Caller { session: Some("release"), ..ANN };
    let first = talk("a", 13);
    assert!(desk.before(&named, &first).await.ready.report.condensed);
    // The same name, and all that was said is another.
    for list in [talk("b", 13), fork("b", 4, "c", 14), talk("d", 3)] {
        let passing = desk.before(&named, &list).await;
        assert_own(&passing.ready, &list);
        assert_eq!(&*passing.conversation_id, "release");
        assert_eq!(passing.ready.is_untouched(), list.len() == 3);
    }
}

#[tokio::test]
async fn what_was_done_under_other_settings_stands_until_something_is_due_under_these() {
    let home = Home::new();
    let other = r#""trigger": "messages(6)", "keep": "messages(2)", "strategy": "recent""#;
    let list = talk("a", 24);
    for restart in [false, true] {
        let engine = open(&home).await;
        let workspace = if restart { "one" } else { "two" };
        let first = Desk::new(&engine, workspace, TWELVE).await;
        let swapped = first.before(&ANN, &list[..12]).await;
        let (before, run) = (swapped.ready.to_vec(), swapped.conversation_id);
        let engine = if restart {
            engine.close().await;
            open(&home).await
        } else {
            engine
        };
        let desk = Desk::new(&engine, workspace, other).await;
        let passing = desk.before(&ANN, &list[..14]).await;
        assert!(!passing.ready.report.condensed && goes_on(&passing.ready, &before));
        assert_eq!(passing.conversation_id, run, "the same conversation");
        // Now by the new rules: no summary is written, and the old one is not lost.
        let passing = desk.before(&ANN, &list[..20]).await;
        assert!(passing.ready.report.condensed && summary(&passing.ready).is_some());
        assert_own(&passing.ready, &list[..20]);
        // And back, as when two requests of one conversation are for two models.
        let first = Desk::new(&engine, workspace, TWELVE).await;
        let back = first.before(&ANN, &list[..22]).await;
        assert!(!back.ready.report.condensed && goes_on(&back.ready, &passing.ready));
        engine.close().await;
    }
}

#[tokio::test]
async fn where_nothing_can_be_read_the_list_is_condensed_anew() {
    let home = Home::new();
    let list = talk("a", 14);
    let spoiled = [
        "kept = 'nonsense'",
        "kept = '{}'",
        // What was kept is of another list than the row says.
        "kept = replace(kept, '\"seen\":12', '\"seen\":11')",
        &format!("hash = {}", zeros()),
        &format!("root = {}", zeros()),
        "length = 11",
    ];
    for (at, spoiled) in spoiled.into_iter().enumerate() {
        let name = format!("w{at}");
        let engine = open(&home).await;
        assert!(
            Desk::new(&engine, &name, TWELVE).await.before(&ANN, &list[..12]).await.ready.report.condensed
        );
        engine.close().await;
        let spoil = format!("UPDATE inline SET {spoiled} WHERE workspace = '{name}'");
        assert_eq!(home.change(&spoil), 1);
        let engine = open(&home).await;
        let desk = Desk::new(&engine, &name, TWELVE).await;
        let passing = desk.before(&ANN, &list).await;
        assert!(passing.ready.report.condensed, "{spoiled}");
        assert_own(&passing.ready, &list);
        engine.close().await;
    }
}

#[tokio::test]
async fn a_workspace_that_was_deleted_remembers_nothing() {
    let engine = plain().await;
    let list = talk("a", 13);
    let desk = Desk::new(&engine, "home", TWELVE).await;
    let first = desk.before(&ANN, &list).await;
    assert!(first.ready.report.condensed);
    desk.workspace.delete().await.unwrap();
    let again = desk.before(&ANN, &list).await;
    assert!(again.ready.report.condensed && again.conversation_id != first.conversation_id);
}

#[tokio::test]
async fn what_a_stand_in_left_untold_is_told_to_the_model_after_a_restart() {
    let home = Home::new();
    let settings = format!(r#"{TWELVE}, "model": "m""#);
    let list = talk("a", 24);
    let engine = home.open(Engine::builder().workers(0).model("m", Silent)).await;
    let desk = Desk::new(&engine, "home", &settings).await;
    assert!(desk.before(&ANN, &list[..12]).await.ready.report.stand_in);
    engine.close().await;

    let model = Scripted::new();
    let builder = Engine::builder().workers(0).model("m", model.clone());
    let engine = home.open(builder).await;
    // What was begun in time is waited for, so that this does not hang on who is faster.
    let desk = Desk::new(&engine, "home", &format!(r#"{settings}, "wait": true"#)).await;
    assert!(!desk.before(&ANN, &list[..22]).await.ready.report.condensed);
    settle().await;
    let asks = model.asks();
    let first = asks[0].inputs.first().and_then(|told| told.message()).unwrap();
    assert_eq!((asks.len(), first.seq), (1, 1), "all that the stand-in stood for");
    assert!(asks[0].previous.is_none());
    let passing = desk.before(&ANN, &list).await;
    assert!(passing.ready.report.condensed && !passing.ready.report.stand_in);
    engine.close().await;
}

#[tokio::test]
async fn a_thread_is_forked_only_for_a_list_that_was_the_same_when_it_was_condensed() {
    // Whoever has an index of their own may be wrong about it, or late.
    let engine = plain().await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    let list = talk("a", 14);
    let thread = desk.condenser.begin_thread(&list[..11], None);
    let fork_of = |list: &[Message]| desk.condenser.fork_thread(&thread, list).is_some();
    assert!(!fork_of(&fork("a", 11, "b", 12)), "nothing was done to it yet");
    assert!(desk.condenser.before_in_thread(&thread, Call::of(&list[..13])).await.unwrap().report.condensed);
    assert!(fork_of(&fork("a", 13, "b", 15)) && fork_of(&list[..13]));
    for shared in [0, 5, 12] {
        assert!(!fork_of(&fork("a", shared, "b", 15)), "{shared}");
        assert!(
            desk.condenser.before_in_thread(&thread, Call::of(&fork("a", shared, "b", 15))).await.is_none()
        );
    }
    assert!(!fork_of(&list[..12]));
}

#[tokio::test]
async fn what_is_prepared_for_one_is_not_put_into_a_fork_that_cuts_elsewhere() {
    let settings = r#""trigger": "messages(10)", "keep": "messages(2)", "model": "m", "wait": true"#;
    let engine = alone(Engine::builder().workers(0).model("m", Numbered)).await;
    let desk = Desk::new(&engine, "home", settings).await;
    let call =
        |id: &str| Message::new(Role::Assistant, [Part::call(id, "look", format!(r#"{{"at": "mk{id}x"}}"#))]);
    let result =
        |id: &str| Message::tool(id, format!("mkfound{id}x there, and a lot of other things beside it"));
    let mut list = talk("a", 15);
    assert!(desk.before(&ANN, &list[..10]).await.ready.report.condensed);
    // What is prepared now keeps the last thing the user said, which stands behind all that leaves.
    list.extend([Message::user("mkaskx do it, please, whatever it takes"), call("p"), result("p")]);
    assert!(!desk.before(&ANN, &list).await.ready.report.condensed);
    // The other has a call at that place.
    let mut other = list[..15].to_vec();
    other.extend([call("q"), result("q"), said("b", 18), said("b", 19), said("b", 20), said("b", 21)]);
    let passing = desk.before(&ANN, &other).await;
    assert!(passing.ready.report.condensed);
    assert_own(&passing.ready, &other);
    assert!(!texts(&passing.ready).contains("no result recorded"), "{}", texts(&passing.ready));
}

#[tokio::test]
async fn a_list_that_is_shorter_again_keeps_its_end_whatever_was_prepared_for_the_longer_one() {
    let settings = r#""trigger": "messages(10)", "keep": "messages(2)", "model": "m", "wait": true"#;
    let engine = alone(Engine::builder().workers(0).model("m", Numbered)).await;
    let desk = Desk::new(&engine, "home", settings).await;
    let list = talk("a", 18);
    assert!(desk.before(&ANN, &list[..10]).await.ready.report.condensed);
    // Prepared at four fifths: all but the last two are to leave.
    assert!(!desk.before(&ANN, &list).await.ready.report.condensed);
    for len in [17, 16, 15] {
        let call = Call { force: Some(Press::Gently), ..Call::of(&list[..len]) };
        let passing = desk.call(&ANN, call).await;
        assert_own(&passing.ready, &list[..len]);
        assert_eq!(
            passing.ready.iter().rev().nth(1).map(|message| message.seq),
            list.get(len - 2).map(|m| m.seq)
        );
    }
}
