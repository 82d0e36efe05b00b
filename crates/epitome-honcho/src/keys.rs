//! Creates keys: Honcho's tokens if a secret for them is configured, otherwise Epitome keys.

use axum::extract::State;
use epitome::key::NewKey;
use epitome::rules::message::Timestamp;
use epitome_http::gate::{Keys, unauthorized};

use super::check::Faults;
use super::jwt::Claims;
use super::prelude::*;

/// Creates a key for a workspace, or for a peer or a session in it. The caller must operate the server: it needs a
/// token for everything, or an Epitome admin key.
pub(super) async fn create(State(app): State<Arc<Honcho>>, Enters(pass): Enters, pairs: Pairs) -> Answer {
    if matches!(app.keys, Keys::Off { .. }) && app.jwt.is_none() {
        let detail = "Authentication is disabled: no key is needed here";
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-keys", detail));
    }
    if !pass.runs() {
        return Err(unauthorized("an admin key is required here"));
    }
    let said = |name: &str| pairs.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
    let (workspace, peer, session) = (said("workspace_id"), said("peer_id"), said("session_id"));
    if workspace.is_none() {
        return Err(unfit("workspace_id must be provided, alone or with peer_id or session_id"));
    }
    let expires = match said("expires_at") {
        None => None,
        Some(text) => Some(Moment::parse(&text).ok_or_else(|| Faults::no_moment(None, &text))?),
    };
    let key = match &app.jwt {
        Some(secret) => {
            let t = Some(now().to_string());
            Claims { t, exp: expires, ad: false, w: workspace, p: peer, s: session }.sign(secret)
        }
        None if peer.is_some() || session.is_some() => {
            return Err(unfit(
                "keys for a peer or a session need a secret (server.jwt_secret_env); keys for a workspace do not",
            ));
        }
        None => {
            let expires = expires.map(|at| Timestamp(at.millis()));
            let label = "made through /v3/keys".to_owned();
            app.engine
                .keys()
                .create(NewKey { workspace, rights: Rights::Write, label, expires })
                .await?
                .secret
        }
    };
    done(StatusCode::OK, &json!({ "key": key }))
}
