//! What one node changes, another goes by at once, whatever it remembers.

use std::sync::{Arc, Mutex};

use epitome::store::{Load, Store};
use epitome_core::message::Message;

use crate::helping::{count_of_once, database, node, say};
use crate::postgres_server::server;
use crate::support::{appended, key, set_workspace};

/// Appends, and gives the settings it was decided by in the end.
async fn decided_by(store: &dyn Store, text: &str) -> String {
    let seen = Arc::new(Mutex::new(String::new()));
    let (by, said) = (Arc::clone(&seen), vec![Message::user(text)]);
    let decide = Box::new(move |standing: &epitome::store::Standing| {
        by.lock().unwrap().clone_from(&standing.workspace_settings);
        Some(appended(standing, &said, &[]))
    });
    assert!(store.change(&key("a"), Load::default(), decide).await.unwrap().is_some());
    seen.lock().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_goes_by_what_another_node_set_before() {
    let database = database(server());
    let (here, there) = (node(&database.url()).await, node(&database.url()).await);
    for n in 0..4 {
        say(&here, &key("a"), &format!("before {n}")).await.unwrap();
    }
    for settings in [r#"{"limits": {"message": 1000}}"#, r#"{"limits": {"message": 2000}}"#, ""] {
        set_workspace(&there, &key("a").workspace, Some(settings)).await;
        assert_eq!(decided_by(&here, &format!("at once {settings}")).await, settings);
        assert_eq!(decided_by(&here, &format!("and again {settings}")).await, settings);
    }
    here.close().await;
    there.close().await;
    assert_eq!(count_of_once(&database), 10);
}
