//! Tests models with their own base URL: their name does not make them another provider's model.

use epitome::Engine;
use epitome::settings::{Patch, Settings};

use crate::provider::{Act, Provider};
use crate::support::talk;

fn document(provider: &Provider, model: &str, more: &str) -> String {
    format!(
        r#"{{
            "slot": [{{"name": "short", "trigger": "messages(20)"}}],
            "models": {{"main": {{"provider": "openai", "model": "{model}", "base_url": "{}"}}}},
            "summarize": {{"models": ["main"], "stand_in_after": "never"{more}}}
        }}"#,
        provider.url()
    )
}

#[tokio::test]
async fn a_remote_model_named_local_is_not_the_built_in_one() {
    // Servers such as llama.cpp accept any name, and many people use this one.
    let provider = Provider::start().await;
    provider.always(Act::Status(500));
    let engine =
        Engine::builder().settings(&document(&provider, "local", "")).workers(0).memory().await.unwrap();
    for n in 0..8 {
        engine.session(format!("s{n}")).append(talk(1, 20)).await.unwrap();
    }
    engine.work().await.unwrap();
    assert_eq!(provider.calls(), 5, "after five failures it is left alone");
}

#[tokio::test]
async fn a_model_with_its_own_base_url_has_no_price_from_the_shipped_table() {
    let provider = Provider::start().await;
    let own = document(&provider, "gpt-5-mini", "");
    let settings = Settings::default().with(&Patch::parse(&own).unwrap()).unwrap();
    assert_eq!(settings.price("main"), None, "as Settings::price says");
    let engine = Engine::builder().settings(&own).workers(0).memory().await.unwrap();
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let usage = session.usage().await.unwrap();
    assert_eq!((usage[0].calls, usage[0].cost), (1, None), "and so nobody knows what it cost");
    let capped = document(&provider, "gpt-5-mini", r#", "spend_cap_per_day": 1"#);
    assert!(Engine::builder().settings(&capped).workers(1).memory().await.is_err());
}
