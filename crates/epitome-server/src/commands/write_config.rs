//! `epitome --write-config`: writes a settings file that explains every setting.

use super::prelude::*;
use crate::settings::{FILE_NAME, template};

pub(super) fn run(path: &Path, environment: &Environment, show: &mut Show) -> Result<(), Failure> {
    if path == Path::new("-") {
        return show.raw(template().as_bytes());
    }
    let name = path.display();
    Output::create(path)?.say(&template())?;
    let file = name.to_string();
    let named = match found_by_itself(path, environment) {
        true => String::new(),
        false if file.contains(char::is_whitespace) => format!("--config {file:?} "),
        false => format!("--config {file} "),
    };
    let line =
        format!("wrote {name}: every setting with its default; `epitome {named}--check-config` checks it");
    show.answer(&json!({"written": file}), line)
}

/// Whether commands find this settings file without the flag `--config`.
fn found_by_itself(path: &Path, environment: &Environment) -> bool {
    let path = environment.current_folder.join(path);
    let places = [Some(environment.current_folder.clone()), environment.config_folder()];
    places.into_iter().flatten().any(|folder| folder.join(FILE_NAME) == path)
}
