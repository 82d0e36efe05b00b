//! Signs and verifies Honcho's bearer tokens. The tokens are JWTs that are signed with HS256. Their claims have names
//! of one to three letters.
//!
//! Every program that has the secret can create tokens, so this server has no list of valid tokens. This module checks
//! that a token is signed with the secret, has valid claims and has not expired. The module `auth` decides what the
//! claims allow.

use std::sync::LazyLock;

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use ring::hmac;
use serde::Serialize;
use serde_json::{Map, Value};

use super::iso_time::IsoTime;

/// Maximum length of a token in bytes.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// The claims of a token. Of the claims `w`, `p` and `s`, the narrowest decides: a token with `s` gives access only to
/// that session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Claims {
    /// When the token was created, in the form that its creator chose. Nothing depends on this claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) t: Option<String>,
    /// When the token expires; `None` if it never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exp: Option<IsoTime>,
    /// Whether the token gives access to everything.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ad: bool,
    /// The workspace to which the token gives access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) w: Option<String>,
    /// The peer, in the workspace `w`, to which the token gives access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p: Option<String>,
    /// The session, in the workspace `w`, to which the token gives access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) s: Option<String>,
}

impl Claims {
    /// Returns a signed token with these claims. The token does not contain claims that are `None` or false.
    pub(crate) fn sign(&self, secret: &[u8]) -> String {
        install_ring();
        // HMAC accepts any key, and the claims are plain JSON, so this cannot fail.
        encode(&Header::new(Algorithm::HS256), self, &EncodingKey::from_secret(secret)).unwrap_or_default()
    }

    /// Returns the claims of a token that is signed with this secret and has not expired. For every other token,
    /// returns an error message for the caller. The message contains no part of the secret.
    ///
    /// No claim is read before the signature is verified. Claims without a meaning for Epitome are ignored. A claim
    /// that is `null` counts as missing. A token that names a peer or a session, but no workspace, is refused, because
    /// the peer or session could be in any workspace. A token with an empty name is refused too: if the name counted as
    /// missing, the token would allow more than intended.
    pub(crate) fn verify(token: &str, secret: &[u8], now: IsoTime) -> Result<Self, &'static str> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err("the token is longer than 8,192 bytes");
        }
        if secret.is_empty() {
            return Err("no secret is configured to verify tokens; set server.jwt_secret_env");
        }
        install_ring();
        let read = decode::<Map<String, Value>>(token, &DecodingKey::from_secret(secret), &SIGNATURE_ONLY);
        let read = read.map_err(|error| reason(&error))?;
        if read.header.crit.is_some() {
            return Err("the token's header requires extensions (`crit`), and none are supported");
        }
        let claims = Self::read(&read.claims)?;
        match claims.exp {
            Some(exp) if exp <= now => Err("the token has expired (claim `exp`); create a new one"),
            _ => Ok(claims),
        }
    }

    fn read(claims: &Map<String, Value>) -> Result<Self, &'static str> {
        let claim = |name: &str| claims.get(name).filter(|value| !value.is_null());
        let name = |of: &str, wrong: &'static str| match claim(of) {
            None => Ok(None),
            Some(Value::String(name)) if !name.is_empty() => Ok(Some(name.clone())),
            Some(_) => Err(wrong),
        };
        let read = Self {
            t: claim("t").and_then(Value::as_str).map(str::to_owned),
            exp: claim("exp").map(expiry).transpose()?,
            ad: match claim("ad") {
                None => false,
                Some(Value::Bool(ad)) => *ad,
                Some(_) => return Err("the token's claim `ad` must be true or false"),
            },
            w: name("w", "the token's claim `w` must be the name of a workspace")?,
            p: name("p", "the token's claim `p` must be the name of a peer")?,
            s: name("s", "the token's claim `s` must be the name of a session")?,
        };
        if read.w.is_none() && (read.p.is_some() || read.s.is_some()) {
            return Err("the token is for a peer or a session, but its workspace (`w`) is missing");
        }
        Ok(read)
    }
}

/// Reads the time at which a token expires. Honcho writes this time in ISO 8601. Other programs write seconds since
/// 1970.
fn expiry(exp: &Value) -> Result<IsoTime, &'static str> {
    const WRONG: &str = "the token's claim `exp` must be a time in ISO 8601, or seconds since 1970";
    match exp {
        Value::String(text) => IsoTime::parse(text).ok_or(WRONG),
        Value::Number(seconds) => match seconds.as_i64() {
            Some(whole) => Ok(IsoTime(whole.saturating_mul(1_000_000))),
            None => seconds.as_f64().map(of_seconds).ok_or(WRONG),
        },
        _ => Err(WRONG),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a time that is out of range becomes the first or the last possible time"
)]
fn of_seconds(seconds: f64) -> IsoTime {
    IsoTime((seconds * 1e6) as i64)
}

/// Makes the JWT library check only that a token is signed with HS256. The library cannot check the claims, because
/// Honcho writes the claim `exp` as text. This module checks the claims.
static SIGNATURE_ONLY: LazyLock<Validation> = LazyLock::new(|| {
    let mut validation = Validation::new(Algorithm::HS256);
    validation.required_spec_claims.clear();
    (validation.validate_exp, validation.validate_aud) = (false, false);
    validation
});

/// Returns the reason why a token is refused. The text contains no part of the token.
fn reason(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::InvalidSignature => {
            "the token's signature is wrong: the token was signed with another secret, or was changed later"
        }
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => {
            "the token's header must have `alg` HS256"
        }
        ErrorKind::Json(_) => {
            "the token's header and claims must be JSON objects, and the header's `alg` must be HS256"
        }
        _ => "the token is not a JWT; a JWT has three parts in base64url, separated by dots",
    }
}

/// Signs and verifies with the HMAC of the crate `ring`, which is compiled anyway because TLS needs it. The JWT
/// library's own options would add a large C library, or a dozen crates for signatures that are not used here.
struct Hs256(hmac::Key);

impl Hs256 {
    fn new(algorithm: Algorithm, secret: &[u8]) -> Result<Box<Self>, Error> {
        match algorithm {
            Algorithm::HS256 => Ok(Box::new(Self(hmac::Key::new(hmac::HMAC_SHA256, secret)))),
            _ => Err(ErrorKind::InvalidAlgorithm.into()),
        }
    }
}

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], tag: &Vec<u8>) -> Result<(), signature::Error> {
        hmac::verify(&self.0, message, tag).map_err(|_| signature::Error::new())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

static RING: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| Ok(Hs256::new(*algorithm, key.as_bytes())?),
    verifier_factory: |algorithm, key| Ok(Hs256::new(*algorithm, key.try_get_as_bytes()?)?),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes the JWT library sign and verify with `ring`. Only the first call has an effect.
fn install_ring() {
    let _ = RING.install_default();
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    const SECRET: &[u8] = b"not a real secret";
    const NOW: IsoTime = IsoTime(1_794_709_024_121_578);

    /// A token with any header and claims, signed as it should be.
    fn signed(header: &str, claims: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
    }

    fn verified(claims: &str) -> Result<Claims, &'static str> {
        Claims::verify(&signed(r#"{"alg":"HS256"}"#, claims), SECRET, NOW)
    }

    fn ann() -> Claims {
        Claims {
            t: Some("2026-11-15T02:17:04.121578".into()),
            exp: IsoTime::parse("2027-01-01"),
            ad: false,
            w: Some("acme".into()),
            p: Some("ann".into()),
            s: Some("support-42".into()),
        }
    }

    /// ```python
    /// b = lambda x: base64.urlsafe_b64encode(x).rstrip(b"=")
    /// head = b(b'{"alg":"HS256","typ":"JWT"}') + b"." + b(json.dumps(claims, separators=(",", ":")).encode())
    /// head + b"." + b(hmac.new(b"not a real secret", head, hashlib.sha256).digest())
    /// ```
    const BY_PYTHON: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
        eyJ0IjoiMjAyNi0xMS0xNVQwMjoxNzowNC4xMjE1NzgiLCJleHAiOiIyMDI3LTAxLTAxVDAwOjAwOjAwLjAwMDAwMFoiLCJ3IjoiYWNtZSIsInAi\
        OiJhbm4iLCJzIjoic3VwcG9ydC00MiJ9.\
        r0WoYv-1gH6OPC24Fhv0OG_UjXe2Xsaa_jnNHwZQLj4";

    #[test]
    fn a_token_equals_the_one_that_python_makes() {
        // The same header, whose two fields come in another order; the same claims, byte for byte; a signature over both.
        let (ours, theirs) = (ann().sign(SECRET), BY_PYTHON);
        let part = |token: &str, nr: usize| token.split('.').nth(nr).unwrap().to_owned();
        let header = |token: &str| -> Value {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part(token, 0)).unwrap()).unwrap()
        };
        assert_eq!((header(&ours), part(&ours, 1)), (header(theirs), part(theirs, 1)));
        assert_eq!(Claims::verify(&ours, SECRET, NOW), Ok(ann()));
        assert_eq!(Claims::verify(BY_PYTHON, SECRET, NOW), Ok(ann()));
    }

    /// The example of RFC 7515, appendix A.1.
    #[test]
    fn the_example_of_the_standard_is_verified() {
        let secret = URL_SAFE_NO_PAD
            .decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
            .unwrap();
        let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
            eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
            dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let exp = IsoTime(1_300_819_380_000_000);
        let read = Claims::verify(token, &secret, IsoTime(exp.0 - 1));
        assert_eq!(read, Ok(Claims { exp: Some(exp), ..Claims::default() }));
        assert_eq!(
            Claims::verify(token, &secret, exp),
            Err("the token has expired (claim `exp`); create a new one")
        );
    }

    #[test]
    fn a_token_changed_anywhere_is_refused() {
        let token = ann().sign(SECRET);
        for at in 0..token.len() {
            for byte in (b' '..=b'~').filter(|byte| *byte != token.as_bytes()[at]) {
                let mut changed = token.clone().into_bytes();
                changed[at] = byte;
                let changed = String::from_utf8(changed).unwrap();
                assert!(Claims::verify(&changed, SECRET, NOW).is_err(), "{changed}");
            }
            let shorter = [&token[..at], &token[at + 1..]].concat();
            let doubled = [&token[..=at], &token[at..]].concat();
            for changed in [&token[..at], &shorter, &doubled] {
                assert!(Claims::verify(changed, SECRET, NOW).is_err(), "{changed}");
            }
        }
        for secret in [&b"not a real secreT"[..], b"not a real secret ", b"x"] {
            assert!(Claims::verify(&token, secret, NOW).is_err());
        }
    }

    #[test]
    fn an_empty_secret_verifies_no_token() {
        let token = Claims { ad: true, ..Claims::default() }.sign(b"");
        assert_eq!(
            Claims::verify(&token, b"", NOW),
            Err("no secret is configured to verify tokens; set server.jwt_secret_env")
        );
    }

    #[test]
    fn only_hs256_is_accepted() {
        for header in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"hs256"}"#,
            r#"{"alg":"HS512","typ":"JWT"}"#,
            r#"{"alg":["HS256"]}"#,
            r#"{"typ":"JWT"}"#,
            r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
            "[]",
            "",
        ] {
            assert!(Claims::verify(&signed(header, r#"{"ad":true}"#), SECRET, NOW).is_err(), "{header}");
        }
        for header in [r#"{"alg":"HS256"}"#, r#"{"kid":"1","typ":"at+jwt","alg":"HS256"}"#] {
            assert!(Claims::verify(&signed(header, r#"{"ad":true}"#), SECRET, NOW).is_ok(), "{header}");
        }
        let bare =
            format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode("{}"));
        assert!(Claims::verify(&bare, SECRET, NOW).is_err());
    }

    #[test]
    fn claims_of_a_wrong_type_are_refused() {
        let none = Claims::default();
        assert_eq!(verified("{}"), Ok(none.clone()));
        assert_eq!(
            verified(r#"{"w":null,"exp":null,"ad":false,"t":"","iss":"joe"}"#),
            Ok(Claims { t: Some(String::new()), ..none.clone() })
        );
        assert_eq!(verified(r#"{"ad":true}"#), Ok(Claims { ad: true, ..none.clone() }));
        assert_eq!(verified(r#"{"w":"acme"}"#), Ok(Claims { w: Some("acme".into()), ..none }));
        for claims in [
            r#"{"p":"ann"}"#,
            r#"{"s":"support-42"}"#,
            r#"{"ad":true,"w":null,"s":"support-42"}"#,
            r#"{"w":""}"#,
            r#"{"w":"acme","s":""}"#,
            r#"{"w":"acme","p":["ann"]}"#,
            r#"{"w":1}"#,
            r#"{"ad":"true"}"#,
            r#"{"ad":1}"#,
            r#"{"exp":"soon"}"#,
            r#"{"exp":true}"#,
            "[]",
            "null",
            "{",
            "",
        ] {
            assert!(verified(claims).is_err(), "{claims}");
        }
    }

    #[test]
    fn a_token_is_valid_until_it_expires() {
        for (exp, good) in [
            (r#""2026-11-15T02:17:04.121579""#, true),
            (r#""2026-11-15T02:17:04.121578Z""#, false),
            (r#""2026-11-15T02:17:04+00:00""#, false),
            (r#""2026-11-15T02:17:04-01:00""#, true),
            ("1794709025", true),
            ("1794709024", false),
            ("1794709024.5", true),
            ("1e300", true),
            ("-1e300", false),
            ("18446744073709551615", true),
        ] {
            assert_eq!(verified(&format!(r#"{{"exp":{exp}}}"#)).is_ok(), good, "{exp}");
        }
    }

    #[test]
    fn texts_that_are_no_tokens_are_refused_and_not_repeated() {
        let long = "a".repeat(MAX_TOKEN_BYTES + 1);
        for token in ["", ".", "..", "...", "a.b", "a.b.c", "a.b.c.d", "ep_key", "é.é.é", &long] {
            let reason = Claims::verify(token, SECRET, NOW).unwrap_err();
            assert!(!reason.contains("not a real secret") && reason.starts_with("the token"), "{reason}");
        }
    }

    #[test]
    fn a_signed_token_has_the_same_claims_when_verified() {
        for mask in 0..64_u8 {
            let text = |bit: u8, text: &str| (mask & bit != 0).then(|| text.to_owned());
            let claims = Claims {
                t: text(1, "then"),
                exp: (mask & 2 != 0).then_some(IsoTime(NOW.0 + i64::from(mask))),
                ad: mask & 4 != 0,
                w: text(8, "w \" é"),
                p: text(16, "p"),
                s: text(32, "s"),
            };
            let whole = claims.w.is_some() || (claims.p.is_none() && claims.s.is_none());
            let read = Claims::verify(&claims.sign(SECRET), SECRET, NOW);
            assert_eq!(read.ok(), whole.then_some(claims));
        }
    }
}
