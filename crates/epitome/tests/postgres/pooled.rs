//! Behind a pooler that gives a connection to each transaction in turn.

use epitome::search::Query;
use epitome::store::{Load, Search, Store};
use epitome_core::message::Message;
use epitome_core::slot::{Limit, Scope, Slot};
use epitome_core::trigger::Trigger;

use crate::helping::{count_of_once, database, in_time, many, node, want};
use crate::postgres_server::{Pooler, server};
use crate::support::{append, key, row};

#[tokio::test(flavor = "multi_thread")]
async fn the_store_works_behind_a_pooler() {
    let database = database(server());
    let pooler = Pooler::to(server(), 3);
    let url = pooler.url(&database);
    // Tables are made through it as well, and by several at once.
    let (one, other) = tokio::join!(node(&url), node(&url));

    let (writing, also) = (many(&one, "one", 8, 10), many(&other, "other", 8, 10));
    in_time(async { tokio::join!(writing.join_all(), also.join_all()) }).await;
    assert_eq!(count_of_once(&database), 320);

    let slot = Slot { trigger: Trigger::Messages(2), ..Slot::new("s", Limit::Tokens(100)) };
    let said = vec![Message::user("pack the parcel"), Message::assistant("packed in Oslo")];
    one.change(&key("b"), Load::default(), append(said, vec![slot])).await.unwrap();
    let (first, second) =
        in_time(async { tokio::join!(one.lease(want("one")), other.lease(want("other"))) }).await;
    let taken = [first.unwrap(), second.unwrap()];
    assert_eq!(taken.iter().flatten().count(), 1, "one of them, and only one: {taken:?}");
    assert_eq!(taken.into_iter().flatten().next().unwrap().key, key("b"));

    assert_eq!(row(&other, &key("b")).await.tracker.head(), 2);
    let found = in_time(other.search(Search {
        workspace: "w".into(),
        session: None,
        scope: Scope::Session,
        query: Query::parse("oslo").unwrap(),
        after: None,
        limit: 10,
        bytes: None,
    }));
    assert_eq!(found.await.unwrap().items.len(), 1);
    one.close().await;
    other.close().await;
}

/// Whether somebody stands in between is found out when a node starts, also when there is much coming and going.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_is_noticed_also_while_others_use_it() {
    let database = database(server());
    let pooler = Pooler::to(server(), 6);
    let url = pooler.url(&database);
    let first = node(&url).await;
    let writing = many(&first, "first", 12, 40);
    for number in 0..12 {
        let name = format!("later {number}");
        let later = node(&url).await;
        in_time(many(&later, &name, 3, 2).join_all()).await;
        later.close().await;
    }
    in_time(writing.join_all()).await;
    first.close().await;
    assert_eq!(count_of_once(&database), 12 * 40 * 2 + 12 * 3 * 2 * 2);
}
