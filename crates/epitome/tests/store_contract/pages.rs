//! Pages end at their size in bytes, and say whether more follows.

use epitome::search::Query;
use epitome::store::*;
use epitome_core::message::{Message, Span};
use epitome_core::slot::Scope;

use super::support::*;

/// Small and large messages: the limit counts the bytes that were read, not an average.
fn of_sizes(sizes: &[usize]) -> Vec<Message> {
    sizes.iter().map(|size| Message::user(format!("parcel {}", "x".repeat(*size)))).collect()
}

pub(crate) async fn a_page_ends_at_its_size_in_bytes(made: Made) {
    let store = &*made.store;
    say_all(store, &key("a"), of_sizes(&[1, 1, 5_000, 5_000, 5_000, 1])).await;
    let id = row(store, &key("a")).await.id;
    let read = async |from, limit, bytes, reverse| {
        let within = Span::new(from, 99).unwrap();
        let pick = PickMessages::Page { scope: Scope::Session, within, reverse, limit, bytes };
        let found = store.messages(id, pick).await.unwrap();
        (super::seqs(&found), found.more)
    };
    assert_eq!(read(1, 9, Some(6_000), false).await, (vec![1, 2, 3, 4], true));
    assert_eq!(read(1, 9, Some(6_000), true).await, (vec![6, 5, 4], true));
    assert_eq!(read(1, 2, Some(6_000), false).await, (vec![1, 2], true));
    assert_eq!(read(5, 9, Some(6_000), false).await, (vec![5, 6], false));
    assert_eq!(read(5, 9, Some(0), false).await, (vec![5], true), "one is read in any case");
    assert_eq!(read(6, 9, Some(0), false).await, (vec![6], false));
    assert_eq!(read(1, 6, None, false).await, ((1..=6).collect(), false));
    assert_eq!(read(1, 5, None, false).await, ((1..=5).collect(), true));
    assert_eq!(read(1, 0, None, false).await, (vec![], true));
}

pub(crate) async fn a_search_ends_at_its_size_in_bytes(made: Made) {
    let store = &*made.store;
    say_all(store, &key("a"), of_sizes(&[1, 5_000, 5_000])).await;
    // Messages that do not match do not count against the limit.
    say_all(store, &key("b"), vec![Message::user("x".repeat(9_000)), Message::user("A parcel.")]).await;
    let found = async |words: &str, after, limit, bytes| {
        let search = Search {
            scope: Scope::Session,
            workspace: "w".into(),
            session: None,
            query: Query::parse(words).unwrap(),
            after,
            limit,
            bytes,
        };
        let found = store.search(search).await.unwrap();
        (found.iter().map(|hit| (hit.id, hit.message.seq)).collect::<Vec<_>>(), found.more)
    };
    let (a, b) = (row(store, &key("a")).await.id, row(store, &key("b")).await.id);
    // With the index and without: two letters are too short for the index.
    for words in ["parcel", "pa"] {
        assert_eq!(found(words, None, 9, Some(6_000)).await, (vec![(b, 2), (a, 3), (a, 2)], true));
        assert_eq!(found(words, Some((a, 2)), 9, Some(6_000)).await, (vec![(a, 1)], false));
        assert_eq!(found(words, Some((b, 2)), 9, Some(0)).await, (vec![(a, 3)], true));
        assert_eq!(found(words, None, 1, None).await, (vec![(b, 2)], true));
        assert_eq!(found(words, None, 4, None).await, (vec![(b, 2), (a, 3), (a, 2), (a, 1)], false));
    }
    assert_eq!(found("nowhere", None, 9, Some(0)).await, (vec![], false));
}

/// For any number of sessions, indexed or not: newest first, no message twice, none of another workspace.
pub(crate) async fn searching_many_sessions_finds_the_same_as_searching_few(made: Made) {
    let store = &*made.store;
    let many = 1_003_u64;
    for n in 0..many {
        let words = if n % 100 == 0 { "A parcel came." } else { "Nothing came." };
        say_all(store, &key(&format!("s{n}")), vec![Message::user(words)]).await;
    }
    say_all(store, &SessionKey::new("other", "s"), vec![Message::user("A parcel of others.")]).await;
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let search = Search {
            scope: Scope::Session,
            workspace: "w".into(),
            session: None,
            query: Query::parse("parcel").unwrap(),
            after,
            limit: 4,
            bytes: None,
        };
        let page = store.search(search).await.unwrap();
        found.extend(page.iter().map(|hit| hit.session.to_string()));
        after = page.last().map(|hit| (hit.id, hit.message.seq));
        if !page.more {
            break;
        }
    }
    let wanted: Vec<String> = (0..=10).rev().map(|n| format!("s{}", n * 100)).collect();
    assert_eq!(found, wanted);
}
