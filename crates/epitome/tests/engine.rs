//! The engine and its worker: summaries that appear by themselves.

use epitome::core::message::Message;
use epitome::model::Scripted;
use epitome::{Engine, Summarize, Summarized};

fn turns(n: usize) -> Vec<Message> {
    (1..=n)
        .map(|n| match n % 2 {
            1 => Message::user(format!("Please look at order {n}0071: the parcel has not arrived, and the customer in Oslo wrote twice.")),
            _ => Message::assistant(format!("Order {n}0071 was sent yesterday with carrier {n}; it arrives on Monday and she was told so.")),
        })
        .collect()
}

#[tokio::test]
async fn a_batch_of_100_is_summarized_in_order() {
    for local in [true, false] {
        let model = Scripted::new();
        let name = if local { "local" } else { "main" };
        let engine = Engine::builder()
            .model("main", model.clone())
            .settings(&format!(r#"{{"summarize": {{"models": ["{name}"]}}}}"#))
            .workers(0)
            .memory()
            .await
            .unwrap();
        let session = engine.session("s");
        session.append(turns(100)).await.unwrap();
        session.work().await.unwrap();
        let mut short: Vec<_> =
            session.history(None, 100).await.unwrap().into_iter().filter(|s| s.slot == "short").collect();
        short.reverse();
        assert_eq!(short.iter().map(|s| s.through).collect::<Vec<_>>(), [20, 40, 60, 80, 100]);
        for pair in short.windows(2) {
            assert_eq!((pair[1].parent, pair[1].built_on), (Some(pair[0].id), Some(pair[0].id)));
        }
        let stand = session.summaries().await.unwrap();
        assert_eq!(
            stand.iter().map(|s| (s.slot.as_str(), s.through)).collect::<Vec<_>>(),
            [("long", 60), ("short", 100)]
        );
        let context = session.context(4_000).await.unwrap();
        assert!(context.report.exhaustive);
        let again = session.summarize(Summarize::slot("short")).await.unwrap();
        assert!(matches!(again, Summarized::NothingNew { summary: Some(_) }));
        if !local {
            assert_eq!(model.calls(), 6);
        }
        assert_eq!(engine.verify().await.unwrap(), []);
    }
}
