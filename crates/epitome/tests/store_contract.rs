//! The contract of a store, run for each database. A new store is one more line at the end.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use std::sync::Arc;
use std::time::Duration;

use directory::{
    a_decision_without_a_row_changes_nothing, condensed_events_are_counted_per_session,
    each_store_has_its_own_secret, lists_are_ordered_paged_and_filtered,
    metadata_and_attributes_are_read_back_unchanged, only_an_empty_workspace_can_be_deleted,
    replacing_metadata_changes_nothing_else, the_first_write_creates_the_workspace,
};
use epitome::search::Query;
use epitome::store::*;
use epitome_core::message::{Message, Span, Timestamp};
use epitome_core::outline::Cut;
use epitome_core::slot::{Limit, Scope, Slot};
use epitome_core::trigger::Trigger;
use epitome_testkit::drawing::{messages, outlines};
use events::{
    a_copy_is_reported_when_it_is_revealed, a_rejected_change_writes_no_event,
    a_summary_event_contains_the_summary_id, deleted_event_numbers_are_never_reused,
    events_are_numbered_per_workspace, keys_are_stored_listed_and_revoked,
    only_the_newest_events_are_retained,
};
use lease_order::{
    a_ready_slot_is_found_behind_many_that_are_not,
    a_returned_slot_waits_behind_the_others_without_a_failure, a_workspace_with_enough_workers_is_skipped,
    leases_match_a_simple_model, one_workspace_with_many_ready_slots_does_not_block_the_others,
    without_round_robin_the_longest_waiting_slot_is_leased, workspaces_take_turns_longest_waiting_slot_first,
};
use members::{
    a_rejected_change_adds_no_member, an_author_is_a_member_only_in_its_workspace,
    deleting_a_workspace_cancels_unfinished_copies, members_are_copied_and_deleted_with_their_session,
    members_join_and_leave_and_their_attributes_merge,
};
use pages::{
    a_page_ends_at_its_size_in_bytes, a_search_ends_at_its_size_in_bytes,
    searching_many_sessions_finds_the_same_as_searching_few,
};
use proxy_state::{
    a_workspace_retains_the_newest_thousand_lists, models_above_the_limit_are_counted_as_other,
    no_state_is_found_for_a_different_list, proxy_data_is_deleted_with_its_workspace,
    proxy_usage_is_summed_by_model_and_hour, the_state_of_the_longest_prefix_is_found,
};
use stamps::{every_change_of_a_context_changes_the_stamp, other_changes_keep_the_stamp};
use support::*;

#[path = "store_contract/directory.rs"]
mod directory;
#[path = "store_contract/events.rs"]
mod events;
#[path = "store_contract/lease_order.rs"]
mod lease_order;
#[path = "store_contract/members.rs"]
mod members;
#[path = "store_contract/pages.rs"]
mod pages;
#[path = "store_contract/proxy_state.rs"]
mod proxy_state;
#[path = "store_contract/stamps.rs"]
mod stamps;
#[path = "store_contract/support.rs"]
mod support;
#[path = "store_contract/windows.rs"]
mod windows;

use epitome_testkit::postgres_server;

fn every(count: u64) -> Slot {
    Slot { trigger: Trigger::Messages(count), ..Slot::new("s", Limit::Tokens(100)) }
}

fn want(owner: &str) -> LeaseRequest {
    LeaseRequest {
        owner: owner.to_owned(),
        duration: Duration::from_secs(10),
        session: None,
        excluded: Default::default(),
        after: None,
        full_workspaces: Default::default(),
    }
}

fn page(within: (u64, u64), reverse: bool, limit: usize) -> PickMessages {
    let within = Span::new(within.0, within.1).unwrap();
    PickMessages::Page { scope: Scope::Session, within, reverse, limit, bytes: None }
}

fn seqs(messages: &[Message]) -> Vec<u64> {
    messages.iter().map(|message| message.seq).collect()
}

async fn appended_messages_are_read_back(made: Made) {
    let store = &*made.store;
    let drawing = "s u!:3 a*(x=i,y)@bob r(x) u(y)~+5 p@eve a-";
    say(store, &key("a"), drawing).await;
    let row = row(store, &key("a")).await;
    assert_eq!((row.tracker.head(), row.encoding.as_str()), (7, "words"));
    let read = store.messages(row.id, page((1, 9), false, 100)).await.unwrap();
    assert_eq!(read.items, messages(drawing).unwrap());
    let ahead = store.outlines_after(row.id, &Scope::Session, 0, 100).await.unwrap();
    assert_eq!(ahead.log, outlines(drawing).unwrap());
    assert_eq!(ahead.end, Some(Cut::Legal));
    let part = store.outlines_after(row.id, &Scope::Session, 2, 3).await.unwrap();
    assert_eq!((part.log.len(), part.log[0].seq, part.end), (3, 3, None));
    let own = store.outlines_after(row.id, &Scope::Author("bob".into()), 0, 9).await.unwrap();
    assert_eq!(own.log.iter().map(|o| o.seq).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(store.verify().await.unwrap(), []);
}

async fn a_decision_without_changes_writes_nothing(made: Made) {
    let store = &*made.store;
    assert!(store.change(&key("a"), Load::default(), Box::new(|_| None)).await.unwrap().is_none());
    assert!(standing(store, &key("a")).await.session.is_none());
    assert_eq!(store.sessions("w", None, Listing::by_name(None, 9)).await.unwrap().items, []);
}

async fn a_change_is_written_as_a_whole_or_not_at_all(made: Made) {
    let store = &*made.store;
    say(store, &key("a"), "u a").await;
    let before = row(store, &key("a")).await;
    // The number of the second message is already taken.
    let decide: Decide = Box::new(|standing| {
        let mut changes = appended(standing, &messages("u a").unwrap(), &[]);
        changes.messages[1].outline.seq = 1;
        Some(changes)
    });
    assert!(store.change(&key("a"), Load::default(), decide).await.is_err());
    assert_eq!(row(store, &key("a")).await, before);
    assert_eq!(store.messages(before.id, page((1, 9), false, 9)).await.unwrap().len(), 2);
    // A decision that panics writes nothing, and the store keeps working.
    assert!(store.change(&key("a"), Load::default(), Box::new(|_| panic!("no"))).await.is_err());
    say(store, &key("a"), "u").await;
    assert_eq!(store.verify().await.unwrap(), []);
    // A new summary without its slot in the same change is rejected.
    let decide: Decide = Box::new(|_| {
        Some(Changes { summary: Some(summary(&Scope::Session, "s", 1, None)), ..Changes::default() })
    });
    assert!(store.change(&key("a"), Load::default(), decide).await.is_err());
    assert_eq!(store.summaries(before.id, PickSummaries::Current).await.unwrap(), []);
}

async fn idempotency_keys_last_a_week(made: Made) {
    let store = &*made.store;
    let load = || Load { idempotency: Some("k".to_owned()), ..Load::default() };
    let decide: Decide = Box::new(|standing| {
        let repeat = EarlierAppend { body: vec![1, 2], span: Span::new(1, 2).unwrap() };
        let changes = appended(standing, &messages("u a").unwrap(), &[]);
        Some(Changes { idempotency: Some(("k".to_owned(), repeat)), ..changes })
    });
    assert!(store.change(&key("a"), load(), decide).await.unwrap().is_some());
    let found = store.session_state(&key("a"), load()).await.unwrap().earlier_append.unwrap();
    assert_eq!((found.body, found.span.through), (vec![1, 2], 2));
    assert!(store.session_state(&key("b"), load()).await.unwrap().earlier_append.is_none());
    made.clock.set(7 * 24 * 3_600_000 + 1);
    assert!(store.session_state(&key("a"), load()).await.unwrap().earlier_append.is_none());
}

async fn only_one_worker_gets_a_lease(made: Made) {
    let store = &*made.store;
    assert_eq!(store.lease(want("one")).await.unwrap(), None);
    made.clock.set(1_000);
    say_with(store, &key("a"), "u a u", &[every(2)]).await;
    made.clock.set(2_000);
    say_with(store, &key("b"), "u a", &[every(2)]).await;

    let first = store.lease(want("one")).await.unwrap().unwrap();
    assert_eq!((&*first.key.session, first.slot.fence, first.now), ("a", 1, Timestamp(2_000)));
    assert_eq!(first.slot.work.owner.as_deref(), Some("one"));
    let second = store.lease(LeaseRequest { session: Some(key("b")), ..want("two") }).await.unwrap().unwrap();
    assert_eq!(&*second.key.session, "b");
    assert_eq!(store.lease(want("two")).await.unwrap(), None);
    // Another worker takes over an expired lease; the fencing token shows it to the first one.
    made.clock.set(12_000);
    let again = store.lease(LeaseRequest { session: Some(key("a")), ..want("two") }).await.unwrap().unwrap();
    assert_eq!((again.slot.fence, again.slot.work.owner.as_deref()), (2, Some("two")));
    let slot = standing(store, &key("a")).await.slots.remove(0);
    assert_eq!(slot, again.slot);
    assert_eq!(store.verify().await.unwrap(), []);
}

async fn a_slot_becomes_ready_by_elapsed_time(made: Made) {
    let store = &*made.store;
    let order = Slot { trigger: "idle(60)".parse().unwrap(), ..every(1) };
    say_with(store, &key("a"), "u a", &[order]).await;
    assert_eq!(store.lease(want("one")).await.unwrap(), None);
    assert_eq!(store.queue(Some("w"), 9).await.unwrap().1, []);
    made.clock.set(60_000);
    assert_eq!(store.queue(Some("w"), 9).await.unwrap().1.len(), 1);
    let lease = store.lease(want("one")).await.unwrap().unwrap();
    assert_eq!(lease.slot.state.due.unwrap().seq, 2);
    assert_eq!(lease.slot.work.waiting_since, Some(Timestamp(60_000)));
}

async fn the_queue_lists_the_longest_waiting_slots_first(made: Made) {
    let store = &*made.store;
    for (name, at) in [("late", 3_000), ("early", 1_000), ("middle", 2_000)] {
        made.clock.set(at);
        say_with(store, &key(name), "u a", &[every(2)]).await;
    }
    say_with(store, &SessionKey::new("other", "x"), "u a", &[every(2)]).await;
    say(store, &key("idle"), "u a").await;
    store.lease(want("one")).await.unwrap().unwrap();
    made.clock.set(5_000);
    let (counts, queue) = store.queue(Some("w"), 9).await.unwrap();
    let names: Vec<&str> = queue.iter().map(|row| &*row.session).collect();
    assert_eq!(names, ["early", "middle", "late"]);
    let waited = |millis| QueueCounts { oldest_millis: Some(millis), ..QueueCounts::default() };
    assert_eq!(counts, QueueCounts { working: 1, due: 2, ..waited(3_000) });
    assert_eq!(store.queue(Some("w"), 1).await.unwrap().1.len(), 1);
    // A parked slot is listed, but not leased.
    let park: Decide = Box::new(|standing| {
        let mut slot = standing.slots[0].clone();
        slot.work.parked = true;
        Some(Changes { slots: vec![slot], ..Changes::default() })
    });
    store.change(&key("middle"), Load::default(), park).await.unwrap();
    let (counts, queue) = store.queue(Some("w"), 1).await.unwrap();
    // A slot that cannot be leased does not count as the longest-waiting one.
    assert_eq!(counts, QueueCounts { working: 1, parked: 1, due: 1, ..waited(2_000) });
    assert_eq!(queue.len(), 1);
    let (counts, none) = store.queue(Some("w"), 0).await.unwrap();
    assert_eq!((counts.due, none), (1, vec![]));
    assert_eq!(store.queue(Some("nowhere"), 9).await.unwrap(), (QueueCounts::default(), vec![]));
    // Without a workspace, the queue covers all workspaces.
    let (counts, queue) = store.queue(None, 9).await.unwrap();
    assert_eq!(counts, QueueCounts { working: 1, parked: 1, due: 2, ..waited(3_000) });
    let places: Vec<_> = queue.iter().map(|row| (&*row.workspace, &*row.session)).collect();
    assert_eq!(places, [("w", "early"), ("other", "x"), ("w", "middle"), ("w", "late")]);
    // Slots that are leased by another worker are skipped.
    made.clock.set(3_000);
    let late = row(store, &key("late")).await.id;
    let others = LeaseRequest { excluded: [(late, Scope::Session, every(2).name)].into(), ..want("two") };
    assert_eq!(store.lease(LeaseRequest { session: Some(key("late")), ..others }).await.unwrap(), None);
    assert!(store.lease(LeaseRequest { session: Some(key("late")), ..want("two") }).await.unwrap().is_some());
    assert_eq!(
        store.lease(LeaseRequest { session: Some(key("middle")), ..want("two") }).await.unwrap(),
        None
    );
}

async fn a_new_summary_supersedes_the_previous_one(made: Made) {
    let store = &*made.store;
    say(store, &key("a"), "u a u a u a").await;
    let id = row(store, &key("a")).await.id;
    let one = summarize(store, &key("a"), &Scope::Session, "s", 2).await;
    let two = summarize(store, &key("a"), &Scope::Session, "s", 4).await;
    let three = summarize(store, &key("a"), &Scope::Session, "s", 6).await;
    assert!(one < two && two < three);
    let history = PickSummaries::History { slot: None, before: None, limit: 9 };
    let all = store.summaries(id, history).await.unwrap();
    assert_eq!(all.iter().map(|s| s.id).collect::<Vec<_>>(), [three, two, one]);
    use SummaryState::{Current, Superseded};
    assert_eq!(all.iter().map(|s| s.state).collect::<Vec<_>>(), [Current, Superseded, Superseded]);
    // The sources of the first summary are deleted.
    let sources: Vec<bool> = all.iter().map(|s| !s.sources.is_empty()).collect();
    assert_eq!(sources, [true, true, false]);
    assert_eq!(all[0], SummaryRow { id: three, ..summary(&Scope::Session, "s", 6, Some(two)) });
    let standing = store.summaries(id, PickSummaries::Current).await.unwrap();
    assert_eq!(standing.iter().map(|s| s.id).collect::<Vec<_>>(), [three]);
    let slot = Some((Scope::Session, "s".to_owned()));
    let older = PickSummaries::History { slot, before: Some(three), limit: 1 };
    assert_eq!(store.summaries(id, older).await.unwrap()[0].id, two);
    let ids = PickSummaries::Ids(vec![two, 999]);
    assert_eq!(store.summaries(id, ids).await.unwrap().len(), 1);
    let load = Load { summaries: vec![two], ..Load::default() };
    assert_eq!(store.session_state(&key("a"), load.clone()).await.unwrap().summaries[0].through, 4);
    say(store, &key("b"), "u").await;
    assert_eq!(store.session_state(&key("b"), load).await.unwrap().summaries, []);
    assert_eq!(store.verify().await.unwrap(), []);
}

async fn summaries_are_numbered_from_one_in_each_session(made: Made) {
    let store = &*made.store;
    let (a, b, stranger) = (key("a"), key("b"), SessionKey::new("other", "a"));
    for of in [&a, &b, &stranger] {
        say(store, of, "u a u a u a u a").await;
    }
    let author = Scope::Author("eve".into());
    let mut given = Vec::new();
    for (of, scope, slot, through) in [
        (&a, &Scope::Session, "s", 2),
        (&b, &Scope::Session, "s", 2),
        (&stranger, &Scope::Session, "s", 2),
        (&a, &Scope::Session, "t", 2),
        (&stranger, &Scope::Session, "s", 4),
        (&a, &author, "s", 2),
        (&b, &Scope::Session, "s", 6),
        (&a, &Scope::Session, "s", 8),
    ] {
        given.push(summarize(store, of, scope, slot, through).await);
    }
    assert_eq!(given, [1, 1, 1, 2, 2, 3, 2, 4]);
    let all = |before, limit| PickSummaries::History { slot: None, before, limit };
    let numbers = async |of: &SessionKey, pick| -> Vec<(i64, u64)> {
        let found = store.summaries(row(store, of).await.id, pick).await.unwrap();
        found.iter().map(|summary| (summary.id, summary.through)).collect()
    };
    assert_eq!(numbers(&a, all(None, 9)).await, [(4, 8), (3, 2), (2, 2), (1, 2)]);
    assert_eq!(numbers(&a, all(Some(4), 2)).await, [(3, 2), (2, 2)]);
    assert_eq!(numbers(&b, all(None, 9)).await, [(2, 6), (1, 2)]);
    // The same id names another summary in each session; a summary of another session is not found.
    assert_eq!(numbers(&stranger, PickSummaries::Ids(vec![2, 3, 4])).await, [(2, 4)]);
    let load = Load { summaries: vec![2, 4], ..Load::default() };
    let found = store.session_state(&b, load).await.unwrap().summaries;
    assert_eq!(found.iter().map(|summary| (summary.id, summary.through)).collect::<Vec<_>>(), [(2, 6)]);
    // It is not changed either.
    let undo: Decide = Box::new(|_| {
        let states = vec![(4, SummaryState::Undone), (3, SummaryState::Undone)];
        Some(Changes { states, ..Changes::default() })
    });
    store.change(&b, Load::default(), undo).await.unwrap();
    let left = store.summaries(row(store, &a).await.id, PickSummaries::Current).await.unwrap();
    assert_eq!(left.iter().map(|summary| summary.id).collect::<Vec<_>>(), [4, 2, 3]);
    // The id of an undone summary is never reused.
    let undo: Decide = Box::new(|standing| {
        let mut slot = standing.slot(&Scope::Session, "t").unwrap().clone();
        (slot.active, slot.state.covered) = (None, 0);
        let states = vec![(2, SummaryState::Undone)];
        Some(Changes { slots: vec![slot], states, ..Changes::default() })
    });
    store.change(&a, Load::default(), undo).await.unwrap();
    assert_eq!(summarize(store, &a, &Scope::Session, "t", 4).await, 5);
    // A session that is created again under an old name starts with id 1.
    assert!(store.delete(&b).await.unwrap());
    say(store, &b, "u a").await;
    assert_eq!(summarize(store, &b, &Scope::Session, "s", 2).await, 1);
    assert_eq!(store.verify().await.unwrap(), []);
}

async fn a_summary_is_found_by_its_request_hash(made: Made) {
    let store = &*made.store;
    let keep = async |key: &SessionKey, text: &str| {
        say(store, key, "u a u a").await;
        let text = text.to_owned();
        let decide: Decide = Box::new(move |standing| {
            let slot = SlotRow::new(Scope::Session, "s");
            let new = SummaryRow { text: text.clone(), ..summary(&Scope::Session, "s", 2, None) };
            let facts = Facts { request_hash: Some("question".to_owned()), ..new.facts.clone() };
            let session = standing.session.clone();
            let summary = Some(SummaryRow { facts, ..new });
            Some(Changes { session, slots: vec![slot], summary, ..Changes::default() })
        });
        assert!(store.change(key, Load::default(), decide).await.unwrap().is_some());
        row(store, key).await.id
    };
    let (one, two) = (keep(&key("a"), "the first").await, keep(&key("b"), "the second").await);
    let stranger = keep(&SessionKey::new("other", "a"), "a stranger's").await;
    let recall =
        |workspace: &'static str, id, asked: &'static str| store.summary_for_request(workspace, id, asked);
    assert_eq!(recall("w", one, "question").await.unwrap().as_deref(), Some("the second"));
    assert_eq!(recall("other", stranger, "question").await.unwrap().as_deref(), Some("a stranger's"));
    assert_eq!(recall("nowhere", stranger, "question").await.unwrap(), None);
    assert_eq!(recall("w", one, "another").await.unwrap(), None);
    // The session that undid the summary finds none; other sessions find one, but not the undone one.
    let undo: Decide = Box::new(|standing| {
        let id = standing.slots[0].active.unwrap();
        Some(Changes { states: vec![(id, SummaryState::Undone)], ..Changes::default() })
    });
    store.change(&key("b"), Load::default(), undo).await.unwrap();
    assert_eq!(recall("w", two, "question").await.unwrap(), None);
    assert_eq!(recall("w", one, "question").await.unwrap().as_deref(), Some("the first"));
    store.delete(&key("a")).await.unwrap();
    assert_eq!(recall("w", one, "question").await.unwrap(), None);
}

async fn outlines_are_loaded_for_a_decision(made: Made) {
    let store = &*made.store;
    say_with(store, &key("a"), "u a(x,y) r(x) r(y) a u a u", &[every(3)]).await;
    let load = |log| Load { log, ..Load::default() };
    let pending = load(LoadLog::Pending(Scope::Session, "s".to_owned()));
    let found = store.session_state(&key("a"), pending).await.unwrap();
    assert_eq!(found.log.iter().map(|o| o.seq).collect::<Vec<_>>(), [4, 5, 6]);
    for (seq, batch) in [(1, vec![1]), (2, vec![2, 3, 4]), (4, vec![2, 3, 4]), (8, vec![8]), (9, vec![])] {
        let found = store.session_state(&key("a"), load(LoadLog::CallBatch(seq))).await.unwrap();
        assert_eq!(found.log.iter().map(|o| o.seq).collect::<Vec<_>>(), batch, "{seq}");
    }
}

async fn messages_come_in_pages(made: Made) {
    let store = &*made.store;
    say(store, &key("a"), "u@eve a@bob u@eve a@bob u@eve").await;
    let id = row(store, &key("a")).await.id;
    let read = |pick| store.messages(id, pick);
    assert_eq!(seqs(&read(page((2, 4), false, 2)).await.unwrap()), [2, 3]);
    assert_eq!(seqs(&read(page((1, 4), true, 2)).await.unwrap()), [4, 3]);
    assert_eq!(seqs(&read(page((6, 9), true, 2)).await.unwrap()), [0; 0]);
    let within = Span::new(1, 99).unwrap();
    let own = PickMessages::Page {
        scope: Scope::Author("eve".into()),
        within,
        reverse: true,
        limit: 2,
        bytes: None,
    };
    assert_eq!(seqs(&read(own).await.unwrap()), [5, 3]);
    assert_eq!(seqs(&read(PickMessages::Seqs(vec![1, 4, 7])).await.unwrap()), [1, 4]);
}

async fn message_flags_can_be_changed(made: Made) {
    let store = &*made.store;
    say(store, &key("a"), "u a u").await;
    let id = row(store, &key("a")).await.id;
    let decide: Decide = Box::new(|_| Some(Changes { flags: vec![(2, true, true)], ..Changes::default() }));
    assert!(store.change(&key("a"), Load::default(), decide).await.unwrap().is_some());
    let read = store.messages(id, page((1, 3), false, 9)).await.unwrap();
    assert_eq!(
        read.iter().map(|m| (m.pinned, m.skip)).collect::<Vec<_>>(),
        [(false, false), (true, true), (false, false)]
    );
}

async fn workspaces_have_settings(made: Made) {
    let store = &*made.store;
    assert_eq!(settings(store, "w").await, "");
    set_workspace(store, "w", Some("{\"a\":1}")).await;
    set_workspace(store, "w", None).await;
    assert_eq!(settings(store, "w").await, "{\"a\":1}");
    say(store, &key("a"), "u").await;
    assert_eq!(standing(store, &key("a")).await.workspace_settings, "{\"a\":1}");
    assert_eq!(settings(store, "v").await, "");
    let names = async |after, limit| {
        store.workspaces(Listing::by_name(after, limit)).await.map(|listed| listed.map(|row| row.name).items)
    };
    say(store, &SessionKey::new("another", "s"), "u").await;
    let all = names(None, 9).await.unwrap();
    assert!(
        all.windows(2).all(|pair| pair[0] < pair[1]) && all.iter().any(|name| &**name == "another"),
        "{all:?}"
    );
    assert_eq!(names(Some(&all[0]), 1).await.unwrap(), all[1..2]);
    assert_eq!(names(all.last().map(AsRef::as_ref), 9).await.unwrap(), []);
}

async fn data_never_crosses_workspaces_or_sessions(made: Made) {
    let store = &*made.store;
    let other = SessionKey::new("v", "a");
    say(store, &key("a"), "u a").await;
    say(store, &other, "u").await;
    say(store, &key("b"), "u a u").await;
    assert_eq!(row(store, &other).await.tracker.head(), 1);
    let names = |rows: Vec<(Arc<str>, SessionRow)>| rows.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
    assert_eq!(
        names(store.sessions("w", None, Listing::by_name(None, 9)).await.unwrap().items),
        ["a".into(), "b".into()]
    );
    assert_eq!(
        names(store.sessions("w", None, Listing::by_name(Some("a"), 9)).await.unwrap().items),
        ["b".into()]
    );
    assert_eq!(
        names(store.sessions("w", None, Listing::by_name(None, 1)).await.unwrap().items),
        ["a".into()]
    );
    assert_eq!(names(store.sessions("x", None, Listing::by_name(None, 9)).await.unwrap().items), []);
    let search = Search {
        scope: Scope::Session,
        workspace: "v".into(),
        session: Some((row(store, &key("a")).await.id, Span::new(1, 9).unwrap())),
        query: Query::parse("m1").unwrap(),
        after: None,
        limit: 9,
        bytes: None,
    };
    assert_eq!(store.search(search).await.unwrap().items, []);
}

async fn search_finds_words_in_any_script(made: Made) {
    let store = &*made.store;
    let texts = [
        "The Parser fails, says \"cargo\".",
        "昨日東京駅へ行った",
        "Где-то ОШИБКА в строке",
        "هذا خطأ كبير جدا",
        "η ΟΔΟΣ 🦀🦀🦀 crab\0bed",
    ];
    say_all(store, &key("a"), texts.iter().map(|text| Message::user(*text)).collect()).await;
    say_all(store, &key("b"), vec![Message::user("another parser"), Message::user("no")]).await;
    let elsewhere = SessionKey::new("v", "a");
    say_all(store, &elsewhere, vec![Message::user("their parser")]).await;
    let (a, b) = (row(store, &key("a")).await.id, row(store, &key("b")).await.id);
    let search = |query: &str| Search {
        scope: Scope::Session,
        workspace: "w".into(),
        session: None,
        query: Query::parse(query).unwrap(),
        after: None,
        limit: 9,
        bytes: None,
    };
    let places = |hits: Portion<Hit>| hits.iter().map(|hit| (hit.id, hit.message.seq)).collect::<Vec<_>>();
    // Once possibly before the messages are indexed, and once after.
    for _ in 0..2 {
        for (query, hits) in [
            ("parser", vec![(b, 1), (a, 1)]),
            ("PARSER fails", vec![(a, 1)]),
            ("\"cargo\"", vec![(a, 1)]),
            ("東京駅", vec![(a, 2)]),
            ("東京", vec![(a, 2)]),
            ("ошибка", vec![(a, 3)]),
            ("خطأ كبير", vec![(a, 4)]),
            ("οδος", vec![(a, 5)]),
            ("🦀🦀🦀", vec![(a, 5)]),
            ("\"crab\0bed\"", vec![(a, 5)]),
            ("no", vec![(b, 2), (b, 1)]),
            ("nowhere", vec![]),
        ] {
            assert_eq!(places(store.search(search(query)).await.unwrap()), hits, "{query}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let first = store.search(Search { limit: 1, ..search("parser") }).await.unwrap();
    let next = Search { after: Some((first[0].id, first[0].message.seq)), ..search("parser") };
    assert_eq!(places(store.search(next).await.unwrap()), [(a, 1)]);
    let inside = Search { session: Some((a, Span::new(1, 2).unwrap())), ..search("a") };
    assert_eq!(places(store.search(inside).await.unwrap()), [(a, 1)]);
    assert!(store.delete(&key("a")).await.unwrap());
    assert_eq!(places(store.search(search("parser")).await.unwrap()), [(b, 1)]);
}

async fn a_copied_session_is_revealed(made: Made) {
    let store = &*made.store;
    say(store, &key("a"), &"u a ".repeat(600)).await;
    for through in [2, 4, 6] {
        summarize(store, &key("a"), &Scope::Session, "s", through).await;
    }
    let from = row(store, &key("a")).await;
    let copied = store.copy(from.id, 1_200).await.unwrap();
    assert_eq!(store.sessions("w", None, Listing::by_name(None, 9)).await.unwrap().items.len(), 1);
    let slots = standing(store, &key("a")).await.slots;
    // The newest two, which an engine copies: in the copy they are the first two.
    let history = PickSummaries::History { slot: None, before: None, limit: 2 };
    let mut summaries = store.summaries(from.id, history).await.unwrap();
    summaries[1].parent = None;
    let copy = CopiedSession {
        id: copied,
        row: from.clone(),
        slots: slots.clone(),
        summaries: summaries.clone(),
        events: Vec::new(),
    };
    assert!(!store.reveal(&key("a"), copy.clone()).await.unwrap());
    assert!(store.reveal(&key("b"), copy).await.unwrap());
    let shown = standing(store, &key("b")).await;
    assert_eq!(shown.session.as_ref().unwrap().tracker, from.tracker);
    assert_eq!((slots[0].active, shown.slots[0].active), (Some(3), Some(2)));
    let history = PickSummaries::History { slot: None, before: None, limit: 9 };
    let mine = store.summaries(copied, history).await.unwrap();
    let lineage: Vec<_> = mine.iter().map(|row| (row.id, row.through, row.parent)).collect();
    assert_eq!(lineage, [(2, 6, Some(1)), (1, 4, None)]);
    assert_eq!(store.messages(copied, page((1, 2_000), false, 2_000)).await.unwrap().len(), 1_200);
    assert_eq!(store.verify().await.unwrap(), []);
    assert!(store.copy(9_999, 5).await.is_err());
    let beyond = store.copy(from.id, u64::MAX).await.unwrap();
    assert_eq!(store.messages(beyond, page((1, 2_000), false, 2_000)).await.unwrap().len(), 1_200);
}

async fn a_deleted_session_frees_its_name(made: Made) {
    let store = &*made.store;
    say_with(store, &key("a"), &"u a ".repeat(900), &[every(2)]).await;
    let id = row(store, &key("a")).await.id;
    assert!(store.delete(&key("a")).await.unwrap());
    assert!(!store.delete(&key("a")).await.unwrap());
    assert!(standing(store, &key("a")).await.session.is_none());
    assert_eq!(store.messages(id, page((1, 9), false, 9)).await.unwrap().items, []);
    say(store, &key("a"), "u").await;
    assert!(row(store, &key("a")).await.id > id);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(store.verify().await.unwrap(), []);
}

async fn usage_is_summed_and_outlives_its_session(made: Made) {
    let store = &*made.store;
    let call = |session: &str, cost, at| UsageRow {
        workspace: "w".to_owned(),
        session: session.to_owned(),
        scope: String::new(),
        slot: "s".to_owned(),
        model: "m".to_owned(),
        outcome: "kept".to_owned(),
        input: 10,
        cached: 1,
        output: 2,
        cost,
        millis: 5,
        at: Timestamp(at),
    };
    say(store, &key("a"), "u").await;
    store.record(vec![call("a", Some(3), 1), call("a", None, 2), call("b", None, 3)]).await.unwrap();
    let usage = call("a", Some(4), 4);
    let decide: Decide =
        Box::new(move |_| Some(Changes { usage: vec![usage.clone()], ..Changes::default() }));
    assert!(store.change(&key("a"), Load::default(), decide).await.unwrap().is_some());
    store.delete(&key("a")).await.unwrap();
    let query = UsageQuery { workspace: "w".into(), session: None, since: Timestamp(0), by_session: true };
    let sums = store.usage(query.clone()).await.unwrap();
    let told: Vec<_> = sums.iter().map(|s| (s.session.as_str(), s.calls, s.input, s.cost)).collect();
    assert_eq!(told, [("a", 3, 30, Some(7)), ("b", 1, 10, None)]);
    let one = UsageQuery { session: Some("a".into()), since: Timestamp(2), ..query.clone() };
    assert_eq!(store.usage(one).await.unwrap()[0].calls, 2);
    let other = UsageQuery { workspace: "v".into(), ..query };
    assert_eq!(store.usage(other).await.unwrap(), []);
}

async fn concurrent_appends_never_share_a_number(made: Made) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let store = Arc::clone(&made.store);
        tasks.spawn(async move {
            for _ in 0..20 {
                say(&*store, &key("shared"), "u a").await;
                say(&*store, &key(&format!("own{task}")), "u").await;
                standing(&*store, &key("shared")).await;
            }
        });
    }
    tasks.join_all().await;
    let row = row(&*made.store, &key("shared")).await;
    assert_eq!(row.tracker.head(), 640);
    let all = made.store.messages(row.id, page((1, 999), false, 999)).await.unwrap();
    assert_eq!(seqs(&all), (1..=640).collect::<Vec<_>>());
    assert_eq!(made.store.sessions("w", None, Listing::by_name(None, 99)).await.unwrap().items.len(), 17);
    assert_eq!(made.store.verify().await.unwrap(), []);
}

async fn a_closed_store_returns_closed(made: Made) {
    say(&*made.store, &key("a"), "u").await;
    made.store.close().await;
    made.store.close().await;
    let refused = made.store.change(&key("a"), Load::default(), Box::new(|_| None)).await;
    assert!(matches!(refused, Err(StoreError::Closed)));
    assert!(matches!(made.store.session_state(&key("a"), Load::default()).await, Err(StoreError::Closed)));
}

async fn windows_contain_what_the_whole_log_would_show(made: Made) {
    windows::compare(made, 60).await;
}

async fn cached_windows_match_the_whole_log_as_it_grows(made: Made) {
    windows::growing(made, 40).await;
}

async fn windows_do_not_depend_on_the_access_mode(made: Made) {
    windows::either_way(made, 40).await;
}

async fn windows_show_an_earlier_state(made: Made) {
    windows::as_of(made).await;
}

async fn windows_read_only_the_end_of_a_long_log(made: Made) {
    windows::little(made).await;
}

macro_rules! contract {
    ($store:ident: $make:expr; $($name:ident)*) => {
        mod $store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($make).await;
            })*
        }
    };
    ($($store:ident: $make:expr,)*) => {
        $(contract! { $store: $make;
            no_state_is_found_for_a_different_list
            models_above_the_limit_are_counted_as_other
            the_state_of_the_longest_prefix_is_found
            a_workspace_retains_the_newest_thousand_lists
            proxy_usage_is_summed_by_model_and_hour
            proxy_data_is_deleted_with_its_workspace
            appended_messages_are_read_back
            a_decision_without_changes_writes_nothing
            a_change_is_written_as_a_whole_or_not_at_all
            idempotency_keys_last_a_week
            only_one_worker_gets_a_lease
            a_slot_becomes_ready_by_elapsed_time
            the_queue_lists_the_longest_waiting_slots_first
            workspaces_take_turns_longest_waiting_slot_first
            without_round_robin_the_longest_waiting_slot_is_leased
            a_returned_slot_waits_behind_the_others_without_a_failure
            a_workspace_with_enough_workers_is_skipped
            one_workspace_with_many_ready_slots_does_not_block_the_others
            a_ready_slot_is_found_behind_many_that_are_not
            leases_match_a_simple_model
            a_new_summary_supersedes_the_previous_one
            summaries_are_numbered_from_one_in_each_session
            a_summary_is_found_by_its_request_hash
            outlines_are_loaded_for_a_decision
            messages_come_in_pages
            a_page_ends_at_its_size_in_bytes
            a_search_ends_at_its_size_in_bytes
            searching_many_sessions_finds_the_same_as_searching_few
            message_flags_can_be_changed
            workspaces_have_settings
            data_never_crosses_workspaces_or_sessions
            search_finds_words_in_any_script
            a_copied_session_is_revealed
            a_deleted_session_frees_its_name
            usage_is_summed_and_outlives_its_session
            concurrent_appends_never_share_a_number
            a_closed_store_returns_closed
            windows_contain_what_the_whole_log_would_show
            windows_do_not_depend_on_the_access_mode
            windows_show_an_earlier_state
            cached_windows_match_the_whole_log_as_it_grows
            windows_read_only_the_end_of_a_long_log
            events_are_numbered_per_workspace
            a_rejected_change_writes_no_event
            a_summary_event_contains_the_summary_id
            deleted_event_numbers_are_never_reused
            only_the_newest_events_are_retained
            a_copy_is_reported_when_it_is_revealed
            keys_are_stored_listed_and_revoked
            every_change_of_a_context_changes_the_stamp
            other_changes_keep_the_stamp
            the_first_write_creates_the_workspace
            metadata_and_attributes_are_read_back_unchanged
            a_decision_without_a_row_changes_nothing
            only_an_empty_workspace_can_be_deleted
            deleting_a_workspace_cancels_unfinished_copies
            lists_are_ordered_paged_and_filtered
            members_join_and_leave_and_their_attributes_merge
            a_rejected_change_adds_no_member
            members_are_copied_and_deleted_with_their_session
            an_author_is_a_member_only_in_its_workspace
            each_store_has_its_own_secret
            replacing_metadata_changes_nothing_else
            condensed_events_are_counted_per_session
        })*
    };
}

async fn file() -> Made {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Clock::default());
    let store = Arc::new(Sqlite::open(dir.path().join("a.db"), clock.options()).unwrap());
    Made { store, clock, kept: Box::new(dir) }
}

async fn memory() -> Made {
    let clock = Clock::default();
    let store = Arc::new(Sqlite::memory(clock.options()).unwrap());
    Made { store, clock, kept: Box::new(()) }
}

async fn postgres() -> Made {
    let database = postgres_server::server().template("contract", |url| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(async { Postgres::open(url, PostgresOptions::default()).await.unwrap().close().await });
    });
    let clock = Clock::default();
    let store = Arc::new(Postgres::open(&database.url(), clock.postgres()).await.unwrap());
    Made { store, clock, kept: Box::new(database) }
}

contract! {
    sqlite_file: super::file().await,
    sqlite_memory: super::memory().await,
    postgres: super::postgres().await,
}
