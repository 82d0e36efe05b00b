//! Tokens as whoever shares the secret makes them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

/// What the tokens of these tests are signed with.
pub const SECRET: &str = "Zq7Shared with the one who makes tokens";

/// A token that says this, signed as it should be.
pub fn signed(claims: &Value) -> String {
    by(SECRET, &json!({"alg": "HS256", "typ": "JWT"}), claims)
}

/// The same with any secret and header.
pub fn by(secret: &str, header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let told = format!("{}.{}", part(header), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("{told}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, told.as_bytes())))
}
