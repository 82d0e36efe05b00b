//! Creates keys. If a secret for tokens is configured, a key is a token of Honcho. Otherwise it is an Epitome key.

use axum::extract::State;
use epitome::key::NewKey;
use epitome::rules::message::Timestamp;
use epitome_http::auth::{Keys, unauthorized};

use super::jwt::Claims;
use super::prelude::*;
use super::validate::Faults;

/// Creates a key for a workspace, a peer or a session. Only the operator of the server may create keys: the caller
/// needs an Epitome admin key or a token with the claim `ad`.
pub(super) async fn create(
    State(app): State<Arc<Honcho>>,
    AnyCaller(grant): AnyCaller,
    params: QueryParams,
) -> Answer {
    if matches!(app.keys, Keys::Off { .. }) && app.jwt.is_none() {
        let detail = "Authentication is disabled: this server needs no keys";
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-keys", detail));
    }
    if !grant.is_operator() {
        return Err(unauthorized(
            "an admin key or a token with the claim `ad` is required here; this key or token has fewer rights",
        ));
    }
    let param = |name: &str| params.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
    let (workspace, peer, session) = (param("workspace_id"), param("peer_id"), param("session_id"));
    if workspace.is_none() {
        return Err(unprocessable("workspace_id must be provided, alone or with peer_id or session_id"));
    }
    let expires = match param("expires_at") {
        None => None,
        Some(text) => Some(
            IsoTime::parse(&text)
                .ok_or_else(|| Faults::invalid_time(&text).within("expires_at").within("query"))?,
        ),
    };
    let key = match &app.jwt {
        Some(secret) => {
            let t = Some(now().to_string());
            Claims { t, exp: expires, ad: false, w: workspace, p: peer, s: session }.sign(secret)
        }
        None if peer.is_some() || session.is_some() => {
            return Err(unprocessable(
                "peer_id, session_id: keys for a peer or a session require the setting server.jwt_secret_env; create a key for the \
                 workspace instead",
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
    json_response(StatusCode::OK, &json!({ "key": key }))
}
