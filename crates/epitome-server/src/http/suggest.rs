//! Suggests similar names when a session does not exist.

use epitome::settings::suggest::similar_names;
use epitome::{Error, Workspace};
use epitome_http::problem::Problem;

/// Number of session names per page. At most two pages are read, because clients may request many sessions that do not
/// exist.
const PAGE: usize = 200;

/// Maximum number of suggestions.
const MOST: usize = 3;

/// Converts an error of the engine to an error response. If the error says that this session does not exist, the
/// response suggests similar names.
pub(super) async fn problem(workspace: &Workspace, session: &str, error: Error) -> Problem {
    match &error {
        Error::NotFound { what, .. } if *what == format!("session `{session}`") => {
            no_session(workspace, session).await
        }
        _ => error.into(),
    }
}

/// Returns the error response for a session that does not exist, with similar names of the same workspace.
pub(super) async fn no_session(workspace: &Workspace, session: &str) -> Problem {
    // If the names cannot be read, the response suggests no name.
    let names = candidates(workspace, session).await.unwrap_or_default();
    let similar = similar_names(session, names.iter().map(String::as_str), MOST);
    let hint = match similar.as_slice() {
        [] => "`GET /v1/sessions` lists all sessions".to_owned(),
        similar => format!("similar names: {}", similar.join(", ")),
    };
    Problem::not_found(format!("session `{session}` not found; {hint}"))
}

/// Returns names that may be similar to the requested name: the workspace's first names, and the names that follow the
/// first half of the requested name.
async fn candidates(workspace: &Workspace, session: &str) -> Result<Vec<String>, Error> {
    let mut names = page(workspace, None).await?;
    if names.len() == PAGE {
        let half: String = session.chars().take(session.chars().count().div_ceil(2)).collect();
        names.extend(page(workspace, Some(&half)).await?);
        names.sort_unstable();
        names.dedup();
    }
    Ok(names)
}

async fn page(workspace: &Workspace, after: Option<&str>) -> Result<Vec<String>, Error> {
    let sessions = workspace.sessions(after, PAGE).await?;
    Ok(sessions.into_iter().map(|session| session.name.to_string()).collect())
}
