//! `epitome --write-config`: every setting, explained.

use std::io::{ErrorKind, Write};
use std::path::Path;

use serde_json::json;

use crate::failure::Failure;
use crate::settings::{FILE_NAME, World, template};
use crate::show::Show;

pub(super) fn run(path: &Path, world: &World, show: &mut Show) -> Result<(), Failure> {
    if path == Path::new("-") {
        return show.raw(template().as_bytes());
    }
    let name = path.display();
    let failed = |error: std::io::Error| {
        Failure::Failed(match error.kind() {
            ErrorKind::AlreadyExists => {
                format!(
                    "{name}: there is a file already, which is not replaced; name another, or - to see it"
                )
            }
            _ => format!("{name} cannot be written: {error}"),
        })
    };
    let mut file = std::fs::File::create_new(world.here.join(path)).map_err(failed)?;
    if let Err(error) = file.write_all(template().as_bytes()).and_then(|()| file.sync_all()) {
        // Half a file would be read as a whole one.
        let _ = std::fs::remove_file(world.here.join(path));
        return Err(failed(error));
    }
    if show.json {
        return show.object(&json!({"written": name.to_string()}));
    }
    let file = name.to_string();
    let named = match found_by_itself(path, world) {
        true => String::new(),
        false if file.contains(char::is_whitespace) => format!("--config {file:?} "),
        false => format!("--config {file} "),
    };
    show.line(format!(
        "{name} is written: every setting with its default; `epitome {named}--check-config` reads it"
    ))
}

/// Whether a command reads it without being told where it is.
fn found_by_itself(path: &Path, world: &World) -> bool {
    let path = world.here.join(path);
    let places = [Some(world.here.clone()), world.config_folder()];
    places.into_iter().flatten().any(|folder| folder.join(FILE_NAME) == path)
}
