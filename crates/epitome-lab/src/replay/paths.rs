//! Checks the files that a replay writes. These files must differ from each other, and from the recordings that the
//! replay reads.

use std::path::{Path, PathBuf};

use epitome_terminal::cleanup;
use epitome_terminal::failure::Failure;

/// Returns an error if two flags name the same file, or if a flag names one of the input files.
pub(super) fn check_distinct(outputs: &[(&str, Option<&Path>)], inputs: &[PathBuf]) -> Result<(), Failure> {
    let absolute = |path: &Path| {
        let folder = cleanup::parent_folder(path).canonicalize().ok()?;
        path.canonicalize().ok().or_else(|| Some(folder.join(path.file_name()?)))
    };
    let is_device = |path: &Path| std::fs::metadata(path).is_ok_and(|entry| !entry.is_file());
    let mut seen: Vec<(&str, PathBuf)> =
        inputs.iter().filter_map(|path| Some(("a recording", absolute(path)?))).collect();
    for (flag, path) in outputs.iter().filter_map(|(flag, path)| Some((*flag, (*path)?))) {
        let Some(own) = absolute(path).filter(|_| !is_device(path)) else { continue };
        if let Some((other, _)) = seen.iter().find(|(_, other)| *other == own) {
            let problem =
                format!("{flag}: {} is {other}'s file as well; choose another file", path.display());
            return Err(Failure::Misused(problem.replace("a recording's file as well", "a recording")));
        }
        seen.push((flag, own));
    }
    Ok(())
}
