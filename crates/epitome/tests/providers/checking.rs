//! Tests the check of configured models, and what must be fixed if one does not answer.

use epitome::model::{FailureCause, Remote, check};
use epitome::settings::{ModelSettings, Patch, Settings};

use crate::provider::{Act, Provider};
use crate::support::{KEY, WAYS, assert_no_secrets};

#[tokio::test]
async fn an_empty_answer_passes_the_check() {
    for way in WAYS {
        let provider = Provider::start().await;
        provider.strict(KEY);
        let model = way.remote(&provider);
        let well = model.check().await.unwrap();
        assert_eq!((well.model.as_str(), well.empty), ("stand-in-1", false));
        assert!(provider.last().prompt().contains("ready"));
        provider.then(Act::Empty);
        assert!(model.check().await.unwrap().empty);
    }
}

#[tokio::test]
async fn failures_are_sorted_by_what_must_be_fixed() {
    for way in WAYS {
        let provider = Provider::start().await;
        let model = way.remote(&provider);
        for (act, what, word) in [
            (Act::WrongKey, FailureCause::Key, "STAND_IN_KEY"),
            (Act::NoCredit, FailureCause::Key, "no credit"),
            (Act::NoModel, FailureCause::Model, "stand-in-1"),
            (Act::Raw(404, Vec::new(), String::new()), FailureCause::Address, "base_url"),
            (Act::Redirect("http://127.0.0.1:1/".to_owned()), FailureCause::Address, "base_url"),
            (Act::Html, FailureCause::Address, "web page"),
            (Act::Status(500), FailureCause::Other, "500"),
            (Act::Busy(Some("9".to_owned())), FailureCause::Other, "retry after 9s"),
            (Act::Echo, FailureCause::Other, "400"),
            (Act::Cut, FailureCause::Other, "broke off"),
        ] {
            provider.then(act.clone());
            let error = model.check().await.unwrap_err();
            assert_eq!(error.cause, what, "{way:?} {act:?}: {error}");
            assert!(error.reason.contains(word), "{way:?} {act:?}: {error}");
            assert_no_secrets(&error.reason);
        }
        provider.leave().await;
        let error = model.check().await.unwrap_err();
        assert_eq!(error.cause, FailureCause::Address);
        assert!(error.reason.contains("connection refused"), "{error}");
        let unkeyed = Remote::new("main", &way.settings(&provider), None).unwrap().check().await.unwrap_err();
        assert_eq!(unkeyed.cause, FailureCause::Key);
        let elsewhere =
            ModelSettings { base_url: Some("http://127.0.0.1:1/v1".to_owned()), ..way.settings(&provider) };
        let error =
            Remote::new("main", &elsewhere, Some(KEY.to_owned().into())).unwrap().check().await.unwrap_err();
        assert_eq!(error.cause, FailureCause::Address);
    }
}

#[tokio::test]
async fn all_models_of_the_settings_are_checked_by_name() {
    let provider = Provider::start().await;
    let url = provider.url();
    let document = format!(
        r#"{{"models": {{
            "built_in": {{"provider": "local"}},
            "claude": {{"provider": "anthropic", "model": "m", "base_url": "{url}"}},
            "gone": {{"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}},
            "gpt": {{"provider": "openai", "model": "m", "base_url": "{url}"}},
            "unkeyed": {{"provider": "openai", "model": "m", "base_url": "{url}",
                "key_env": "NOBODY_SETS_THIS"}}
        }}}}"#
    );
    let settings = Settings::default().with(&Patch::parse(&document).unwrap()).unwrap();
    let found: Vec<(String, Option<FailureCause>)> = check(&settings)
        .await
        .into_iter()
        .map(|(name, result)| (name, result.err().map(|error| error.cause)))
        .collect();
    let expected = [
        ("claude", None),
        ("gone", Some(FailureCause::Address)),
        ("gpt", None),
        ("unkeyed", Some(FailureCause::Key)),
    ];
    assert_eq!(found, expected.map(|(name, wrong)| (name.to_owned(), wrong)));
}
