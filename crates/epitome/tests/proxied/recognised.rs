//! Tests which conversation a list is recognised as, after edits, forks, evictions and restarts.

use std::sync::Arc;

use epitome::dialect::Dialect;
use epitome::inline::Caller;
use epitome::rules::condense::Press;
use epitome::rules::message::{Message, Part, Role};
use epitome::{Call, Engine};
use epitome_testkit::scripted::Scripted;

use crate::support::{
    ANN, BOB, Home, Numbered, Proxy, Silent, TWELVE, alone, assert_own, complaints, fork, marks, open, plain,
    said, settle, summary, talk, texts, zeros,
};

/// Returns the bytes that would be sent.
fn letters(messages: &[Message]) -> String {
    serde_json::to_string(&Dialect::OPENAI.write(messages)["messages"]).unwrap()
}

/// Returns whether the list sent now begins with the list sent before, byte for byte.
fn continues(now: &[Message], before: &[Message]) -> bool {
    letters(now).starts_with(letters(before).trim_end_matches(']'))
}

#[tokio::test]
async fn after_a_restart_a_conversation_continues_with_the_same_list() {
    let home = Home::new();
    let list = talk("a", 20);
    let mut before = Vec::new();
    let mut id = None;
    for len in 12..=18 {
        // A new engine each time, as if the server were restarted between any two requests.
        let engine = open(&home).await;
        let proxy = Proxy::new(&engine, "home", TWELVE).await;
        let proxied = proxy.before(&ANN, &list[..len]).await;
        assert_eq!(proxied.ready.report.condensed, len == 12, "{len}");
        assert_own(&proxied.ready, &list[..len]);
        assert!(before.is_empty() || continues(&proxied.ready, &before), "{len}");
        assert_eq!(
            id.get_or_insert_with(|| Arc::clone(&proxied.conversation_id)),
            &proxied.conversation_id,
            "one number"
        );
        before = proxied.ready.into_messages();
        engine.close().await;
    }
}

#[tokio::test]
async fn an_evicted_conversation_continues_with_the_same_list() {
    let engine = alone(Engine::builder().workers(0).conversations(1)).await;
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    let lists = [talk("a", 18), talk("b", 18)];
    let mut before = [Vec::new(), Vec::new()];
    for len in 12..=18 {
        for (list, before) in lists.iter().zip(&mut before) {
            let proxied = proxy.before(&ANN, &list[..len]).await;
            assert_eq!(proxied.ready.report.condensed, len == 12);
            assert_own(&proxied.ready, &list[..len]);
            assert!(continues(&proxied.ready, before) || before.is_empty());
            *before = proxied.ready.into_messages();
        }
    }
}

#[tokio::test]
async fn forks_after_a_condensation_share_it_and_forks_before_it_do_not() {
    let engine = plain().await;
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    let list = talk("a", 16);
    let swapped = proxy.before(&ANN, &list[..12]).await.ready.into_messages();
    let first = proxy.before(&ANN, &list).await;
    // From the condensed position, from a later one, and shorter again: all begin as the first did.
    for (shared, len) in [(12, 14), (14, 15), (15, 16), (13, 13)] {
        let other = fork("a", shared, "b", len);
        let proxied = proxy.before(&ANN, &other).await;
        assert!(!proxied.ready.report.condensed && continues(&proxied.ready, &swapped), "{shared}");
        assert_own(&proxied.ready, &other);
        assert_ne!(proxied.conversation_id, first.conversation_id, "a fork has its own number");
    }
    // From an earlier position: that list was never condensed.
    let other = fork("a", 11, "c", 12);
    let proxied = proxy.before(&ANN, &other).await;
    assert!(proxied.ready.report.condensed);
    assert_own(&proxied.ready, &other);
    let short = proxy.before(&ANN, &list[..11]).await;
    assert!(short.ready.is_untouched());
    // The first conversation continues unaffected.
    let again = proxy.before(&ANN, &list).await;
    assert_eq!((&*again.ready, &again.conversation_id), (&*first.ready, &first.conversation_id));
}

#[tokio::test]
async fn an_edit_before_a_condensation_starts_another_conversation_and_one_after_it_a_fork() {
    let home = Home::new();
    for restart in [false, true] {
        let engine = open(&home).await;
        let workspace = if restart { "one" } else { "two" };
        let proxy = Proxy::new(&engine, workspace, TWELVE).await;
        let mut list = talk("a", 14);
        let swapped = proxy.before(&ANN, &list[..12]).await.ready.into_messages();
        proxy.before(&ANN, &list).await;
        let (engine, proxy) = if restart {
            engine.close().await;
            let engine = open(&home).await;
            let proxy = Proxy::new(&engine, workspace, TWELVE).await;
            (engine, proxy)
        } else {
            (engine, proxy)
        };
        list[12] = said("b", 13);
        let proxied = proxy.before(&ANN, &list).await;
        assert!(continues(&proxied.ready, &swapped) && !proxied.ready.report.condensed);
        assert_own(&proxied.ready, &list);
        for at in [11, 5, 0] {
            list[at] = said("c", at + 1);
            let proxied = proxy.before(&ANN, &list).await;
            assert!(proxied.ready.report.condensed, "{at}");
            assert_own(&proxied.ready, &list);
        }
        engine.close().await;
    }
}

#[tokio::test]
async fn two_clients_with_the_same_first_messages_are_two_conversations() {
    let engine = plain().await;
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    let lists = [fork("a", 5, "b", 40), fork("a", 5, "c", 40)];
    let mut runs = [None, None];
    for len in (3..40).step_by(2) {
        for (list, id) in lists.iter().zip(&mut runs) {
            let proxied = proxy.before(&ANN, &list[..len]).await;
            assert!(marks(&texts(&proxied.ready), "mk").is_subset(&marks(&texts(&list[..len]), "mk")));
            assert_eq!(proxied.ready.last(), list[..len].last());
            // While their messages are the same they are one conversation.
            if len > 6 {
                assert_eq!(
                    id.get_or_insert_with(|| Arc::clone(&proxied.conversation_id)),
                    &proxied.conversation_id
                );
            }
        }
    }
    assert_ne!(runs[0], runs[1]);
}

#[tokio::test]
async fn the_same_list_of_another_caller_gets_its_own_summary() {
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
            let proxy = Proxy::new(&engine, workspace, &settings).await;
            let proxied = proxy.before(caller, &list[..12]).await;
            assert_eq!(proxied.ready.report.condensed, !again);
            let own = summary(&proxied.ready).unwrap();
            assert!(own.contains("sum"), "{own}");
            if again {
                assert_eq!(all[at], (own, proxied.conversation_id));
            } else {
                assert!(
                    all.iter().all(|(other, id)| *other != own && *id != proxied.conversation_id),
                    "{own}"
                );
                all.push((own, proxied.conversation_id));
            }
        }
        engine.close().await;
    }
    assert_eq!((&*all[4].1, &*all[5].1), ("one", "two"), "who has a name is called by it");
}

#[tokio::test]
async fn the_same_list_again_gets_the_same_result() {
    let engine = plain().await;
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    let list = talk("a", 14);
    for len in 11..=14 {
        let first = proxy.before(&ANN, &list[..len]).await;
        for _ in 0..3 {
            let again = proxy.before(&ANN, &list[..len]).await;
            assert_eq!((&*again.ready, &again.conversation_id), (&*first.ready, &first.conversation_id));
            assert!(!again.ready.report.condensed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_of_one_conversation_are_correct() {
    let engine = alone(Engine::builder().workers(0).conversations(3)).await;
    let proxy = Arc::new(Proxy::new(&engine, "home", TWELVE).await);
    for round in 0..20 {
        let tasks: Vec<_> = (0..12)
            .map(|n| {
                let proxy = Arc::clone(&proxy);
                tokio::spawn(async move {
                    // Some send the same list, some a longer one, and some a fork.
                    let of = if n % 3 == 0 { "b" } else { "a" };
                    let list = fork("a", 10 + round, of, 12 + round + n % 4);
                    let proxied = proxy.before(&ANN, &list).await;
                    let own = marks(&texts(&list), "mk");
                    assert!(marks(&texts(&proxied.ready), "mk").is_subset(&own), "{round} {n}");
                    assert_eq!(proxied.ready.last(), list.last());
                    assert!(proxied.ready.is_untouched() || complaints(&proxied.ready).is_empty());
                    assert!(proxied.ready.len() <= 1 + 4 + 12, "{}", proxied.ready.len());
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test]
async fn system_messages_that_change_each_turn_are_adopted_and_nothing_else_changes() {
    let home = Home::new();
    let mut before: Vec<Message> = Vec::new();
    for len in 8..=18 {
        // Also if the state is read from the store.
        let engine = open(&home).await;
        for minute in 0..3 {
            let proxy = Proxy::new(&engine, "home", TWELVE).await;
            let mut list = vec![Message::system(format!("It is {len}:0{minute}."))];
            list.extend(talk("a", len));
            let proxied = proxy.before(&ANN, &list).await;
            assert_eq!(proxied.ready.report.condensed, len == 11 && minute == 0, "{len} {minute}");
            assert_eq!(proxied.ready[0], list[0]);
            assert_own(&proxied.ready[1..], &list[1..]);
            assert!(
                before.is_empty()
                    || continues(&proxied.ready[1..], &before)
                    || proxied.ready.report.condensed
            );
            before = proxied.ready[1..].to_vec();
        }
        engine.close().await;
    }
    assert!(summary(&before).is_some());
}

#[tokio::test]
async fn a_named_conversation_that_was_edited_gets_no_outdated_summary() {
    let engine = plain().await;
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    let named = Caller { session: Some("release"), ..ANN };
    let first = talk("a", 13);
    assert!(proxy.before(&named, &first).await.ready.report.condensed);
    // The same name, with other messages.
    for list in [talk("b", 13), fork("b", 4, "c", 14), talk("d", 3)] {
        let proxied = proxy.before(&named, &list).await;
        assert_own(&proxied.ready, &list);
        assert_eq!(&*proxied.conversation_id, "release");
        assert_eq!(proxied.ready.is_untouched(), list.len() == 3);
    }
}

#[tokio::test]
async fn a_condensation_under_other_settings_stays_until_one_is_due_under_the_new_ones() {
    let home = Home::new();
    let other = r#""trigger": "messages(6)", "keep": "messages(2)", "strategy": "recent""#;
    let list = talk("a", 24);
    for restart in [false, true] {
        let engine = open(&home).await;
        let workspace = if restart { "one" } else { "two" };
        let first = Proxy::new(&engine, workspace, TWELVE).await;
        let swapped = first.before(&ANN, &list[..12]).await;
        let (before, id) = (swapped.ready.to_vec(), swapped.conversation_id);
        let engine = if restart {
            engine.close().await;
            open(&home).await
        } else {
            engine
        };
        let proxy = Proxy::new(&engine, workspace, other).await;
        let proxied = proxy.before(&ANN, &list[..14]).await;
        assert!(!proxied.ready.report.condensed && continues(&proxied.ready, &before));
        assert_eq!(proxied.conversation_id, id, "the same conversation");
        // Now by the new settings: no summary is written, and the old one stays.
        let proxied = proxy.before(&ANN, &list[..20]).await;
        assert!(proxied.ready.report.condensed && summary(&proxied.ready).is_some());
        assert_own(&proxied.ready, &list[..20]);
        // And back, as if two requests of one conversation were for two models.
        let first = Proxy::new(&engine, workspace, TWELVE).await;
        let back = first.before(&ANN, &list[..22]).await;
        assert!(!back.ready.report.condensed && continues(&back.ready, &proxied.ready));
        engine.close().await;
    }
}

#[tokio::test]
async fn if_the_stored_state_cannot_be_read_the_list_is_condensed_from_the_start() {
    let home = Home::new();
    let list = talk("a", 14);
    let spoiled = [
        "kept = 'nonsense'",
        "kept = '{}'",
        // The stored state belongs to another list than the row says.
        "kept = replace(kept, '\"seen\":12', '\"seen\":11')",
        &format!("hash = {}", zeros()),
        &format!("root = {}", zeros()),
        "length = 11",
    ];
    for (at, spoiled) in spoiled.into_iter().enumerate() {
        let name = format!("w{at}");
        let engine = open(&home).await;
        assert!(
            Proxy::new(&engine, &name, TWELVE).await.before(&ANN, &list[..12]).await.ready.report.condensed
        );
        engine.close().await;
        let spoil = format!("UPDATE inline SET {spoiled} WHERE workspace = '{name}'");
        assert_eq!(home.change(&spoil), 1);
        let engine = open(&home).await;
        let proxy = Proxy::new(&engine, &name, TWELVE).await;
        let proxied = proxy.before(&ANN, &list).await;
        assert!(proxied.ready.report.condensed, "{spoiled}");
        assert_own(&proxied.ready, &list);
        engine.close().await;
    }
}

#[tokio::test]
async fn deleting_a_workspace_removes_its_conversations() {
    let engine = plain().await;
    let list = talk("a", 13);
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    let first = proxy.before(&ANN, &list).await;
    assert!(first.ready.report.condensed);
    proxy.workspace.delete().await.unwrap();
    let again = proxy.before(&ANN, &list).await;
    assert!(again.ready.report.condensed && again.conversation_id != first.conversation_id);
}

#[tokio::test]
async fn after_a_restart_the_model_reads_what_only_the_fallback_covered() {
    let home = Home::new();
    let settings = format!(r#"{TWELVE}, "model": "m""#);
    let list = talk("a", 24);
    let engine = home.open(Engine::builder().workers(0).model("m", Silent)).await;
    let proxy = Proxy::new(&engine, "home", &settings).await;
    assert!(proxy.before(&ANN, &list[..12]).await.ready.report.stand_in);
    engine.close().await;

    let model = Scripted::new();
    let builder = Engine::builder().workers(0).model("m", model.clone());
    let engine = home.open(builder).await;
    // The test waits for the summary in progress, so that the result does not depend on timing.
    let proxy = Proxy::new(&engine, "home", &format!(r#"{settings}, "wait": true"#)).await;
    assert!(!proxy.before(&ANN, &list[..22]).await.ready.report.condensed);
    settle().await;
    let asks = model.requests();
    let first = asks[0].inputs.first().and_then(|told| told.message()).unwrap();
    assert_eq!((asks.len(), first.seq), (1, 1), "all that the stand-in stood for");
    assert!(asks[0].previous.is_none());
    let proxied = proxy.before(&ANN, &list).await;
    assert!(proxied.ready.report.condensed && !proxied.ready.report.stand_in);
    engine.close().await;
}

#[tokio::test]
async fn a_thread_is_forked_only_for_a_list_with_the_same_condensed_beginning() {
    // A caller's own index may be wrong or outdated.
    let engine = plain().await;
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    let list = talk("a", 14);
    let thread = proxy.condenser.begin_thread(&list[..11], None);
    let fork_of = |list: &[Message]| proxy.condenser.fork_thread(&thread, list).is_some();
    assert!(!fork_of(&fork("a", 11, "b", 12)), "nothing was done to it yet");
    assert!(proxy.condenser.before_in_thread(&thread, Call::of(&list[..13])).await.unwrap().report.condensed);
    assert!(fork_of(&fork("a", 13, "b", 15)) && fork_of(&list[..13]));
    for shared in [0, 5, 12] {
        assert!(!fork_of(&fork("a", shared, "b", 15)), "{shared}");
        assert!(
            proxy.condenser.before_in_thread(&thread, Call::of(&fork("a", shared, "b", 15))).await.is_none()
        );
    }
    assert!(!fork_of(&list[..12]));
}

#[tokio::test]
async fn a_prepared_summary_is_not_inserted_into_a_fork_that_cuts_elsewhere() {
    let settings = r#""trigger": "messages(10)", "keep": "messages(2)", "model": "m", "wait": true"#;
    let engine = alone(Engine::builder().workers(0).model("m", Numbered)).await;
    let proxy = Proxy::new(&engine, "home", settings).await;
    let call =
        |id: &str| Message::new(Role::Assistant, [Part::call(id, "look", format!(r#"{{"at": "mk{id}x"}}"#))]);
    let result =
        |id: &str| Message::tool(id, format!("mkfound{id}x there, and a lot of other things beside it"));
    let mut list = talk("a", 15);
    assert!(proxy.before(&ANN, &list[..10]).await.ready.report.condensed);
    // The summary prepared now leaves the last user message, which comes after all messages that leave.
    list.extend([Message::user("mkaskx do it, please, whatever it takes"), call("p"), result("p")]);
    assert!(!proxy.before(&ANN, &list).await.ready.report.condensed);
    // The other list has a tool call at that position.
    let mut other = list[..15].to_vec();
    other.extend([call("q"), result("q"), said("b", 18), said("b", 19), said("b", 20), said("b", 21)]);
    let proxied = proxy.before(&ANN, &other).await;
    assert!(proxied.ready.report.condensed);
    assert_own(&proxied.ready, &other);
    assert!(!texts(&proxied.ready).contains("no result recorded"), "{}", texts(&proxied.ready));
}

#[tokio::test]
async fn a_shortened_list_keeps_its_end_despite_a_summary_prepared_for_the_longer_one() {
    let settings = r#""trigger": "messages(10)", "keep": "messages(2)", "model": "m", "wait": true"#;
    let engine = alone(Engine::builder().workers(0).model("m", Numbered)).await;
    let proxy = Proxy::new(&engine, "home", settings).await;
    let list = talk("a", 18);
    assert!(proxy.before(&ANN, &list[..10]).await.ready.report.condensed);
    // Prepared at four fifths: all but the last two messages will leave.
    assert!(!proxy.before(&ANN, &list).await.ready.report.condensed);
    for len in [17, 16, 15] {
        let call = Call { force: Some(Press::Gently), ..Call::of(&list[..len]) };
        let proxied = proxy.call(&ANN, call).await;
        assert_own(&proxied.ready, &list[..len]);
        assert_eq!(
            proxied.ready.iter().rev().nth(1).map(|message| message.seq),
            list.get(len - 2).map(|m| m.seq)
        );
    }
}
