//! Creates tokens as another program with the secret does.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

/// The secret of the tests.
pub const SECRET: &str = "Zq7Shared with the one who makes tokens";

/// Returns a token with these claims and a valid signature.
pub fn signed(claims: &Value) -> String {
    by(SECRET, &json!({"alg": "HS256", "typ": "JWT"}), claims)
}

/// Returns a token with any secret and header.
pub fn by(secret: &str, header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let told = format!("{}.{}", part(header), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("{told}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, told.as_bytes())))
}
