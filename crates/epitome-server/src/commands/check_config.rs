//! `epitome --check-config`: shows the settings in effect and the source of each setting, and tests the models.

use epitome::Engine;
use epitome::model::{CheckError, CheckReport};

use super::prelude::*;

pub(super) async fn run(loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    // Building an engine finds errors that loading the settings does not find, such as a spend cap for a model without
    // a price.
    match Engine::builder().settings(loaded.patch.clone()).memory().await {
        Ok(engine) => engine.close().await,
        Err(error) => return Err(Failure::Setting(error.to_string())),
    }
    let answers = {
        let _progress = show.progress("testing the models", None);
        // Requests one word from each model.
        epitome::model::check(&loaded.settings).await
    };
    let answers: Vec<_> = answers.into_iter().map(|(name, answer)| (name, describe(answer))).collect();
    let failed = answers.iter().filter(|(_, answer)| answer.is_err()).count();
    if show.json {
        show.object(&object(loaded, &answers, failed == 0))?;
    } else {
        text(loaded, &answers, show)?;
    }
    show.flush()?;
    match failed as u64 {
        0 => Ok(()),
        _ if show.json => Err(Failure::Reported(1)),
        many => Err(Failure::Failed(format!("{} failed the test", count(many, "model")))),
    }
}

/// Describes a model's reply, or the error, for example a wrong key, address or model name.
fn describe(answer: Result<CheckReport, CheckError>) -> Result<String, String> {
    let CheckReport { model, millis, empty } = answer.map_err(|error| error.to_string())?;
    let remark = if empty { ", but the reply was empty; try a larger output_reserve" } else { "" };
    Ok(format!("{model} answered in {millis} ms{remark}"))
}

type Answers = [(String, Result<String, String>)];

fn object(loaded: &Loaded, answers: &Answers, ok: bool) -> Value {
    let models = answers.iter().map(|(name, answer)| match answer {
        Ok(reply) => json!({"model": name, "ok": true, "said": reply}),
        Err(problem) => json!({"model": name, "ok": false, "problem": problem}),
    });
    json!({
        "ok": ok,
        "sources": loaded.sources(),
        "db": loaded.db.to_string(),
        "workspace": loaded.server.workspace,
        "differences": loaded.differences(),
        "warnings": loaded.warnings(),
        "models": models.collect::<Vec<_>>(),
    })
}

fn text(loaded: &Loaded, answers: &Answers, show: &mut Show) -> Result<(), Failure> {
    let sources = loaded.sources();
    let origin = if sources.is_empty() { "the defaults only".to_owned() } else { sources.join(", ") };
    let missing = if loaded.db.is_missing_file() { ", does not exist yet" } else { "" };
    show.line(format!("settings   from {}", printable(&origin)))?;
    show.line(format!("database   {} ({}{missing})", loaded.db, loaded.source("server.db")))?;
    show.line(format!(
        "workspace  {} ({})",
        printable(&loaded.server.workspace),
        loaded.source("server.workspace")
    ))?;
    let differences = loaded.differences();
    if !differences.is_empty() {
        let mut table = Table::new(&["setting", "value", "default", "from"]);
        for difference in &differences {
            let shown =
                |value: &Value| if value.is_null() { String::new() } else { printable(&value.to_string()) };
            table.row([
                difference.key.clone(),
                shown(&difference.value),
                shown(&difference.default),
                printable(&difference.source),
            ]);
        }
        show.line("")?;
        show.table(&table)?;
    }
    let warnings = loaded.warnings();
    if !warnings.is_empty() {
        show.line("")?;
    }
    for warning in &warnings {
        show.line(format!("{}: {}", show.style.yellow("warning"), printable(warning)))?;
    }
    if !answers.is_empty() {
        show.line("")?;
    }
    for (name, answer) in answers {
        let result = match answer {
            Ok(reply) => format!("{}: {}", show.style.green("answers"), printable(reply)),
            Err(problem) => format!("{}: {}", show.style.red("fails"), printable(problem)),
        };
        show.line(format!("model {}  {result}", show.style.bold(&printable(name))))?;
    }
    Ok(())
}
