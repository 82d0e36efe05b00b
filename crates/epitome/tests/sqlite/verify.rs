//! `verify` finds wrong summaries: a window stored twice, a decreased coverage, a stale fencing token.

use epitome::store::*;

use super::planted::{assert_found, history, plants};
use super::{options, raw};

#[tokio::test]
async fn wrong_summaries_are_found_and_correct_ones_are_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    let sound = dir.path().join("sound.db");
    history(async |builder| builder.open(&sound).await.unwrap()).await;
    let store = Sqlite::open(&sound, options()).unwrap();
    let all = PickSummaries::History { slot: None, before: None, limit: 99 };
    let rows = store.summaries(1, all).await.unwrap();
    store.close().await;
    let set = |id: i64, field: &str, value: &str| {
        format!(
            "UPDATE summaries SET facts = json_set(facts, '$.{field}', {value}) WHERE session = 1 AND id = {id}"
        )
    };
    for (what, plant) in plants(&rows, set) {
        let path = dir.path().join("faulty.db");
        std::fs::copy(&sound, &path).unwrap();
        raw(&path, &plant);
        let store = Sqlite::open(&path, options()).unwrap();
        assert_found(&store.verify().await.unwrap(), &what, &plant);
        store.close().await;
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(dir.path().join(format!("faulty.db{end}")));
        }
    }
}
