//! `epitome replay` with a model that writes the summaries, configured by the settings, with its cost.

use serde_json::Value;

use crate::bin::{RunResult, TestFolder, result_of};
use crate::provider::{Act, INPUT, OUTPUT, Provider};
use crate::replaying::work;

const KEY: &str = "sk-stand-in-0123456789abcdefghij";

/// What a summary costs by what the stand-in says it counted: what it writes costs five times what it reads.
const EACH: u64 = INPUT + 5 * OUTPUT;

fn place(provider: &Provider) -> TestFolder {
    let place = TestFolder::new();
    std::fs::write(place.path("work.jsonl"), format!("{}\n", work("Oslo", 40))).unwrap();
    let settings = format!(
        "[models.main]\nprovider = \"openai\"\nmodel = \"stand-in-1\"\nbase_url = \"{}\"\nkey_env = \"STAND_IN_KEY\"\n",
        provider.url()
    );
    std::fs::write(place.path("models.toml"), settings).unwrap();
    place
}

/// Plays the work through these policies, with a key in the environment.
async fn replay(place: &TestFolder, policies: &[&str]) -> RunResult {
    let mut command = place.epitome(&["replay", "work.jsonl", "--budget", "1000,2000", "--json"]);
    for policy in policies {
        command.args(["--policy", policy]);
    }
    command.env("STAND_IN_KEY", KEY);
    result_of(tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
}

/// The results of each policy and budget, in order, but for those of everything.
fn results(out: &str) -> Vec<Value> {
    let out: Value = serde_json::from_str(out).unwrap();
    let all = out.pointer("/sets/0/results").and_then(Value::as_array).unwrap().clone();
    all.into_iter().filter(|result| result["policy"] != "whole").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_writes_the_summaries_of_slots_and_of_lists_and_is_paid_for() {
    let provider = Provider::start().await;
    provider.strict(KEY);
    let place = place(&provider);
    let policies = [
        "slots",
        "slots model=main config=models.toml name=by-model",
        "inline model=main trigger=tokens(3000) keep=tokens(500) config=models.toml name=list",
    ];
    let (code, out, errors) = replay(&place, &policies).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{out}");
    let mut asked = Vec::new();
    for result in results(&out) {
        let (summaries, paid) = (&result["cost"]["summaries"], &result["cost"]["summarizer"]);
        let count = summaries.as_u64().unwrap();
        assert_eq!(paid.as_u64(), Some(count * EACH), "{result}");
        asked.push((result["policy"].as_str().unwrap().to_owned(), count));
    }
    let [(_, 0), (_, 0), (slots, one), (_, same), (list, more)] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!((slots.as_str(), list.as_str(), one), ("by-model", "list", same));
    assert!(*one > 2 && *more > 2, "{asked:?}");
    assert_eq!(provider.calls() as u64, one + more, "each budget shows the same summaries");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_model_is_reported() {
    let provider = Provider::start().await;
    provider.always(Act::WrongKey);
    let place = place(&provider);
    let policies = [
        "slots model=main config=models.toml name=by-model",
        "inline model=main trigger=tokens(3000) keep=tokens(500) config=models.toml name=list",
    ];
    for policy in policies {
        let (code, out, _) = replay(&place, &[policy]).await;
        assert_eq!(code, Some(1), "{out}");
        let results = results(&out);
        let printed = results.iter().map(|result| result["fault_texts"].to_string()).collect::<String>();
        assert!(results.iter().all(|result| result["told"] == result["fault_texts"]), "{out}");
        assert!(printed.contains("refused") && !printed.contains(KEY), "{printed}");
    }
    let (code, _, errors) = replay(&place, &["slots model=main"]).await;
    assert_eq!((code, errors.contains("define [models.main]")), (Some(2), true), "{errors}");
}
