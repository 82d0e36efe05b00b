//! Reads request bodies within limits of size, time and memory, and parses them as JSON.
//!
//! A declared length is not trusted. The bytes that are read are charged to one memory budget of the whole server, and so
//! is the parsed JSON: many small values take far more memory than their text. A body may be gzipped; the same limits apply
//! to the unpacked bytes.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::bounds::Bounds;
use crate::gate::Caller;
use crate::load::Share;
use crate::problem::Problem;
use crate::state::{HttpState, WithHttp};

/// How long the rest of a refused body is read and discarded. A client that is still sending would not read the error
/// response otherwise.
const DRAIN: Duration = Duration::from_secs(2);

/// Maximum number of JSON values in one body. Each takes memory, however short its text is.
const MOST_VALUES: usize = 200_000;

/// Approximate memory of one JSON value, in bytes.
const VALUE: usize = 100;

/// Maximum size of a body, in bytes, that is parsed directly. Parsing a larger one would block other requests.
const READ_HERE: u64 = 64 << 10;

/// A body as a JSON value, with the memory it is charged for.
pub struct Sent {
    /// The parsed value.
    pub value: Value,
    /// The original text, if it has numbers that a `Value` may not preserve digit by digit.
    pub exact: Option<Bytes>,
    /// Length of the text in bytes.
    pub size: u64,
    /// The charged memory. Drop it when the value is not used any more.
    pub charged: Charged,
}

/// Memory reserved for a body and for what is parsed from it. Dropping it releases the memory.
pub struct Charged {
    http: Arc<HttpState>,
    workspace: Arc<str>,
    taken: Vec<Share>,
}

impl Charged {
    fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        let taken = self.http.load.memory.take_for(&self.workspace, bytes);
        self.taken.push(taken.ok_or_else(no_room)?);
        Ok(())
    }
}

/// A body, parsed as a type.
pub struct Json<T>(pub T);

impl<S: WithHttp> FromRequest<Arc<S>> for Sent {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<S>) -> Result<Self, Problem> {
        is_json(request.headers())?;
        Raw::from_request(request, app).await?.json().await
    }
}

/// The bytes of a body, unpacked, with the memory it is charged for.
pub struct Raw {
    /// The unpacked bytes.
    pub bytes: Bytes,
    charged: Charged,
}

impl<S: WithHttp> FromRequest<Arc<S>> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<S>) -> Result<Self, Problem> {
        let gzipped = is_gzipped(request.headers())?;
        let http: &Arc<HttpState> = app;
        let most = usize::try_from(http.engine.settings().limits.body).unwrap_or(usize::MAX);
        let caller = request.extensions().get::<Caller>().map(|Caller(name)| Arc::clone(name));
        // Routes for the operator have no workspace.
        let workspace = caller.unwrap_or_else(|| "".into());
        let mut charged = Charged { http: Arc::clone(http), workspace, taken: Vec::new() };
        let waits = request.headers().contains_key(header::EXPECT);
        let mut body = request.into_body();
        let read = read(&mut body, most, 0, &http.bounds, |size| charged.take(size).is_ok()).await;
        let read = read.and_then(|(bytes, stop)| match stop {
            None => Ok(bytes),
            Some(Stop::TooLarge) => Err(over(most)),
            Some(Stop::NoRoom) => Err(no_room()),
        });
        let mut bytes = match read {
            Ok(bytes) => bytes,
            Err(problem) => {
                // Releases the memory first: draining takes a while, and the bytes read so far are not used.
                drop(charged);
                // A client that sent `expect: 100-continue` has not sent the body, so there is nothing to drain.
                if problem.hang_up && problem.status != StatusCode::REQUEST_TIMEOUT && !waits {
                    drain(body).await;
                }
                return Err(problem);
            }
        };
        if gzipped {
            // Never on this thread: a few bytes may unpack to many.
            bytes = elsewhere(u64::MAX, || unpacked(&bytes, most, &mut charged)).await??;
        }
        Ok(Self { bytes, charged })
    }
}

impl Raw {
    /// Reserves memory for the parsed body, because its text is in memory twice then: as bytes and as values. Returns
    /// whether all its numbers are integers that a `Value` preserves exactly.
    fn look(&mut self) -> Result<bool, Problem> {
        let (values, plain) = look(&self.bytes)?;
        self.charged.take(values.saturating_mul(VALUE).saturating_add(self.bytes.len()))?;
        Ok(plain)
    }

    /// Parses the body as JSON.
    pub async fn json(mut self) -> Result<Sent, Problem> {
        let plain = self.look()?;
        let Self { bytes, charged } = self;
        let size = bytes.len() as u64;
        let value = elsewhere(size, || parse(&bytes)).await??;
        Ok(Sent { value, exact: (!plain).then_some(bytes), size, charged })
    }

    /// Charges the size of the bytes a second time, for what the caller has made from them. Drops the bytes and returns
    /// the reservation.
    pub fn charged(mut self) -> Result<Charged, Problem> {
        self.charged.take(self.bytes.len())?;
        Ok(self.charged)
    }
}

/// A JSON body as text, for a handler that may return it unchanged; with the memory that it and its parsed form are charged
/// for.
pub struct Text {
    /// The text.
    pub text: String,
    /// The charged memory. Drop it when the text is not used any more.
    pub charged: Charged,
}

impl<S: WithHttp> FromRequest<Arc<S>> for Text {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<S>) -> Result<Self, Problem> {
        is_json(request.headers())?;
        let mut raw = Raw::from_request(request, app).await?;
        raw.look()?;
        let Raw { bytes, charged } = raw;
        let text = String::from_utf8(bytes.into()).map_err(|_| Problem::invalid("the body is not UTF-8"))?;
        if text.trim().is_empty() {
            return Err(Problem::invalid("the body is empty; expected JSON"));
        }
        Ok(Self { text, charged })
    }
}

impl<S: WithHttp, T: DeserializeOwned> FromRequest<Arc<S>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<S>) -> Result<Self, Problem> {
        let sent = Sent::from_request(request, app).await?;
        typed(sent.value).map(Self)
    }
}

/// Converts a JSON object to a type.
pub fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    let Value::Object(fields) = value else {
        // serde would read a list as the values of a struct's fields, in order.
        return Err(Problem::invalid("the body: expected an object"));
    };
    serde_path_to_error::deserialize(&fields).map_err(|wrong| {
        let told: String = wrong.inner().to_string().chars().take(300).collect();
        Problem::invalid(match wrong.path().iter().next() {
            // The error of an unknown or missing field names the field itself.
            Some(Segment::Map { key }) if !told.contains(" field `") => format!("{key}: {told}"),
            _ => told,
        })
    })
}

/// Requires a JSON content type. A web page on another site cannot send it without permission of this server (CORS).
pub fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    let detail = "content-type: expected application/json (with curl: --json instead of -d)";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", detail).and_hang_up())
}

fn is_gzipped(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?").trim()) {
        None => Ok(false),
        Some(coding) if coding.is_empty() || coding.eq_ignore_ascii_case("identity") => Ok(false),
        Some(coding) if ["gzip", "x-gzip"].iter().any(|known| coding.eq_ignore_ascii_case(known)) => Ok(true),
        Some(_) => {
            let detail = "content-encoding: expected gzip or none";
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding", detail).and_hang_up())
        }
    }
}

fn no_room() -> Problem {
    Problem::busy("too much is being read at once; try again, or send less in one request").and_hang_up()
}

fn over(most: usize) -> Problem {
    Problem::too_large(format!("the body is over {most} bytes (limits.body); send less at once"))
}

async fn drain(mut body: Body) {
    let dropping = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(DRAIN, dropping).await;
}

/// Why no more of a body was read.
pub enum Stop {
    /// The body exceeds the limit.
    TooLarge,
    /// No memory was free for more.
    NoRoom,
}

/// Reads a body within limits of size and time, while `room` grants memory for each piece. Allocates `reserved` bytes at
/// the start.
pub async fn read(
    body: &mut Body,
    most: usize,
    reserved: usize,
    bounds: &Bounds,
    mut room: impl FnMut(usize) -> bool,
) -> Result<(Bytes, Option<Stop>), Problem> {
    if http_body::Body::size_hint(body).lower() > most as u64 {
        return Ok((Bytes::new(), Some(Stop::TooLarge)));
    }
    let end = Instant::now() + bounds.body;
    let mut all = BytesMut::with_capacity(reserved);
    while let Some(data) = piece(body, end, bounds.silence).await? {
        let stop = if all.len().saturating_add(data.len()) > most {
            Some(Stop::TooLarge)
        } else {
            (!room(data.len())).then_some(Stop::NoRoom)
        };
        if all.is_empty() && (stop.is_some() || http_body::Body::is_end_stream(body)) {
            // A body in one piece needs no copy.
            return Ok((data, stop));
        }
        all.extend_from_slice(&data);
        if stop.is_some() {
            return Ok((all.freeze(), stop));
        }
    }
    Ok((all.freeze(), None))
}

/// Returns the next piece of a body, or none at its end. Fails after `end`, or after `silence` without data.
pub async fn piece(body: &mut Body, end: Instant, silence: Duration) -> Result<Option<Bytes>, Problem> {
    loop {
        let until = end.min(Instant::now() + silence);
        let frame = match timeout_at(until, body.frame()).await {
            Err(_) => {
                let detail = "the body was not received in time; send it again";
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", detail).and_hang_up());
            }
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => {
                return Err(Problem::invalid("the body broke off, or its chunks are invalid; send it again")
                    .and_hang_up());
            }
            Ok(Some(Ok(frame))) => frame,
        };
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// Number of bytes that are charged and then unpacked at a time.
const PIECE: usize = 64 << 10;

fn unpacked(bytes: &[u8], most: usize, charged: &mut Charged) -> Result<Bytes, Problem> {
    let mut packed = flate2::read::MultiGzDecoder::new(bytes);
    let mut plain = Vec::new();
    loop {
        charged.take(PIECE)?;
        let before = plain.len();
        let piece = packed.by_ref().take(PIECE as u64).read_to_end(&mut plain);
        piece.map_err(|_| Problem::invalid("the body is not gzip, or breaks off"))?;
        if plain.len() > most {
            return Err(over(most));
        }
        if plain.len() - before < PIECE {
            return Ok(plain.into());
        }
    }
}

/// Maximum number of digits of an integer that every representation preserves exactly.
const PLAIN_DIGITS: usize = 15;

/// Returns the approximate number of JSON values in the text (it counts commas and opening braces and brackets outside of
/// strings), and whether all its numbers are integers that a `Value` preserves exactly.
fn look(bytes: &[u8]) -> Result<(usize, bool), Problem> {
    let (mut count, mut quoted, mut escaped) = (0usize, false, false);
    let (mut plain, mut digits) = (true, 0usize);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'0'..=b'9' => {
                digits += 1;
                plain &= digits <= PLAIN_DIGITS;
                continue;
            }
            b'.' | b'-' => plain = false,
            b'e' | b'E' => plain &= digits == 0,
            b',' | b'{' | b'[' => count += 1,
            _ => {}
        }
        digits = 0;
    }
    if count > MOST_VALUES {
        return Err(Problem::too_large(format!("the body has over {MOST_VALUES} values; send less at once")));
    }
    Ok((count, plain))
}

fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    if std::str::from_utf8(bytes).is_err() {
        return Err(Problem::invalid("the body is not UTF-8"));
    }
    serde_json::from_slice(bytes).map_err(|wrong| match wrong.is_eof() {
        true if bytes.is_empty() => Problem::invalid("the body is empty; expected JSON"),
        _ => Problem::invalid(format!("the body is not JSON: {wrong}")),
    })
}

/// Runs work that is proportional to `size` bytes. If it is long, runs it where it does not block other requests.
pub async fn elsewhere<T>(size: u64, work: impl FnOnce() -> T + Send) -> Result<T, Problem> {
    // Each occupies a thread while it works, and at least one thread must remain for the event loop.
    static PLACES: Semaphore = Semaphore::const_new(4);
    if size <= READ_HERE {
        return Ok(work());
    }
    let failed = || Problem::busy("the request could not be processed; try again");
    let _place = PLACES.acquire().await.map_err(|_| failed())?;
    let work = AssertUnwindSafe(work);
    let done = match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => catch_unwind(work),
        _ => tokio::task::block_in_place(|| catch_unwind(work)),
    };
    done.map_err(|_| failed())
}
