//! The operator sets the size limits; workspaces and sessions may only lower them.

use epitome::rules::message::Message;
use epitome::settings::Patch;
use epitome::{Engine, Error};

use crate::support::{Home, on_every_store};

fn patch(document: &str) -> Patch {
    Patch::parse(document).unwrap()
}

const ENGINES: &str = r#"{"context": {"max_tokens": 9000},
    "limits": {"message": 500, "batch": 5, "body": 4000, "metadata": 300}}"#;

#[tokio::test]
async fn a_size_limit_above_the_engines_is_refused_with_its_name() {
    on_every_store(async |home| {
        let engine = home.open(Engine::builder().workers(0).settings(ENGINES)).await;
        let (workspace, session) = (engine.workspace("w"), engine.workspace("w").session("s"));
        for (document, problem) in [
            (
                r#"{"context": {"max_tokens": 9001}}"#,
                "context.max_tokens: 9001 is not allowed; the engine's settings allow at most 9000",
            ),
            (
                r#"{"limits": {"message": 501}}"#,
                "limits.message: 501 is not allowed; the engine's settings allow at most 500",
            ),
            (
                r#"{"limits": {"batch": 6, "body": 10}}"#,
                "limits.batch: 6 is not allowed; the engine's settings allow at most 5",
            ),
            (
                r#"{"limits": {"body": 4001}}"#,
                "limits.body: 4001 is not allowed; the engine's settings allow at most 4000",
            ),
            (
                r#"{"limits": {"metadata": 301}}"#,
                "limits.metadata: 301 is not allowed; the engine's settings allow at most 300",
            ),
        ] {
            let refused = [
                workspace.set(&patch(document)).await.unwrap_err(),
                session.set(&patch(document)).await.unwrap_err(),
            ];
            for error in refused {
                assert!(matches!(error, Error::Invalid(_)), "{error:?}");
                assert_eq!(error.to_string(), problem);
            }
        }
        assert!(workspace.patch().await.unwrap().is_empty(), "nothing of it was kept");
        assert!(matches!(session.info().await, Err(Error::NotFound { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_size_limit_up_to_the_engines_takes_effect() {
    on_every_store(async |home| {
        let engine = home.open(Engine::builder().workers(0).settings(ENGINES)).await;
        let (workspace, session) = (engine.workspace("w"), engine.workspace("w").session("s"));
        let set = workspace.set(&patch(r#"{"limits": {"batch": 2}, "context": {"max_tokens": 9000}}"#)).await;
        assert_eq!(set.unwrap().limits.batch, 2);
        let error = session.append(vec![Message::user("Hi."); 3]).await.unwrap_err();
        assert!(error.to_string().contains("at most 2 (limits.batch)"), "{error}");
        // More than its workspace allows, and no more than the engine does.
        assert_eq!(session.set(&patch(r#"{"limits": {"batch": 5}}"#)).await.unwrap().limits.batch, 5);
        session.append(vec![Message::user("Hi."); 5]).await.unwrap();
        let back = session.set(&patch(r#"{"limits": {"batch": null}}"#)).await.unwrap();
        assert_eq!(back.limits.batch, 2);
    })
    .await;
}

#[tokio::test]
async fn stored_size_limits_are_lowered_to_the_engines() {
    let home = Home::file();
    let document = r#"{"context": {"max_tokens": 50000}, "limits": {"message": 90000, "batch": 4}}"#;
    let engine = home.open(Engine::builder().workers(0)).await;
    engine.workspace("w").set(&patch(document)).await.unwrap();
    engine.workspace("w").session("s").set(&patch(document)).await.unwrap();
    engine.close().await;
    let engine = home.open(Engine::builder().workers(0).settings(ENGINES)).await;
    let (workspace, session) = (engine.workspace("w"), engine.workspace("w").session("s"));
    for settings in [workspace.settings().await.unwrap(), session.settings().await.unwrap()] {
        assert_eq!((settings.context.max_tokens, settings.limits.message), (9_000, 500));
        assert_eq!(settings.limits.batch, 4, "what was less already stays");
    }
    let error = session.append(Message::user("x".repeat(501))).await.unwrap_err();
    assert!(error.to_string().contains("limits.message"), "{error}");
    let error = session.context(9_001).await.unwrap_err();
    assert!(error.to_string().contains("context.max_tokens"), "{error}");
    // Something else can be set as before.
    let set = session.set(&patch(r#"{"summarize": {"redact": false}}"#)).await.unwrap();
    assert_eq!((set.summarize.redact, set.limits.message), (false, 500));
    assert_eq!(workspace.patch().await.unwrap().to_value()["limits"]["message"], 90_000, "as it was set");
}
