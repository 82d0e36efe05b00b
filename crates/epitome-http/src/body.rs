//! Reads request bodies within limits of size, time and memory, and parses them as JSON.
//!
//! The server does not trust the length that a client declares. It reserves memory for the bytes that it has read, from
//! one budget for all requests. It also reserves memory for the parsed JSON, because many small values take far more
//! memory than their text.
//!
//! A body may be compressed with gzip. The same limits apply to the unpacked bytes.

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

use crate::auth::CallerWorkspace;
use crate::limits::Limits;
use crate::permits::Permit;
use crate::problem::Problem;
use crate::state::{HttpState, WithHttp};
use crate::suggest::suggestion;

/// How long the server reads and discards the rest of a refused body. Otherwise, a client that is still sending would
/// not read the error response.
const DRAIN: Duration = Duration::from_secs(2);

/// Maximum number of JSON values in one body. Each value takes memory, even if its text is short.
const MAX_VALUES: usize = 200_000;

/// Approximate memory of one JSON value, in bytes.
const VALUE_BYTES: usize = 100;

/// Maximum size, in bytes, of data that is processed directly in the request's task. Processing more data would block
/// other requests.
const INLINE_BYTES: u64 = 64 << 10;

/// A body as a JSON value, with the memory that is reserved for it.
pub struct JsonBody {
    /// The parsed value.
    pub value: Value,
    /// The original text; `None` if the `Value` preserves all numbers of the text exactly.
    pub exact: Option<Bytes>,
    /// Length of the text in bytes.
    pub size: u64,
    /// The memory that is reserved for the value. Drop it when the value is not used any more.
    pub memory: BodyMemory,
}

/// Memory that is reserved for a body and for the values that are parsed from it. Dropping this object releases the
/// memory.
pub struct BodyMemory {
    http: Arc<HttpState>,
    workspace: Arc<str>,
    permits: Vec<Permit>,
}

impl BodyMemory {
    fn reserve(&mut self, bytes: usize) -> Result<(), Problem> {
        let permit = self.http.permits.memory.reserve(&self.workspace, bytes);
        self.permits.push(permit.ok_or_else(out_of_memory)?);
        Ok(())
    }
}

/// Extractor of a JSON body that is parsed as the type `T`.
pub struct Json<T>(pub T);

impl<S: WithHttp> FromRequest<Arc<S>> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<S>) -> Result<Self, Problem> {
        require_json(request.headers())?;
        RawBody::from_request(request, app).await?.json().await
    }
}

/// The unpacked bytes of a body, with the memory that is reserved for these bytes.
pub struct RawBody {
    /// The unpacked bytes.
    pub bytes: Bytes,
    memory: BodyMemory,
}

impl<S: WithHttp> FromRequest<Arc<S>> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<S>) -> Result<Self, Problem> {
        let gzipped = is_gzipped(request.headers())?;
        let http: &Arc<HttpState> = app;
        let most = usize::try_from(http.engine.settings().limits.body).unwrap_or(usize::MAX);
        let caller =
            request.extensions().get::<CallerWorkspace>().map(|CallerWorkspace(name)| Arc::clone(name));
        // Routes for the operator have no workspace, so their memory counts for an empty name.
        let workspace = caller.unwrap_or_else(|| "".into());
        let mut memory = BodyMemory { http: Arc::clone(http), workspace, permits: Vec::new() };
        let expects_continue = request.headers().contains_key(header::EXPECT);
        let mut body = request.into_body();
        let read = read_limited(&mut body, most, 0, &http.limits, |size| memory.reserve(size).is_ok()).await;
        let read = read.and_then(|(bytes, stop)| match stop {
            None => Ok(bytes),
            Some(Stop::TooLarge) => Err(too_large(most)),
            Some(Stop::OutOfMemory) => Err(out_of_memory()),
        });
        let mut bytes = match read {
            Ok(bytes) => bytes,
            Err(problem) => {
                // Releases the memory before draining: draining takes a while, and the bytes read so far are not used.
                drop(memory);
                // A client that sent `expect: 100-continue` has not sent the body, so there is nothing to drain.
                if problem.close_connection
                    && problem.status != StatusCode::REQUEST_TIMEOUT
                    && !expects_continue
                {
                    drain(body).await;
                }
                return Err(problem);
            }
        };
        if gzipped {
            // Counts as long work (`u64::MAX`), because a few bytes may unpack to many bytes.
            bytes = run_blocking(u64::MAX, || unpack(&bytes, most, &mut memory)).await??;
        }
        Ok(Self { bytes, memory })
    }
}

impl RawBody {
    /// Reserves memory for the parsed values of the body, which contain its text a second time. Returns whether all
    /// numbers of the body are integers that a `Value` preserves exactly.
    fn reserve_parsed(&mut self) -> Result<bool, Problem> {
        let (values, exact) = scan(&self.bytes)?;
        self.memory.reserve(values.saturating_mul(VALUE_BYTES).saturating_add(self.bytes.len()))?;
        Ok(exact)
    }

    /// Parses the body as JSON.
    pub async fn json(mut self) -> Result<JsonBody, Problem> {
        let exact = self.reserve_parsed()?;
        let Self { bytes, memory } = self;
        let size = bytes.len() as u64;
        let value = run_blocking(size, || parse(&bytes)).await??;
        Ok(JsonBody { value, exact: (!exact).then_some(bytes), size, memory })
    }

    /// Drops the bytes and returns the memory that is reserved for them. Before that, reserves the same amount again,
    /// for the data that the calling function has created from the bytes.
    pub fn into_memory(mut self) -> Result<BodyMemory, Problem> {
        self.memory.reserve(self.bytes.len())?;
        Ok(self.memory)
    }
}

/// A JSON body as text, for a handler that may return the text unchanged. Memory is reserved for the text and for its
/// parsed form.
pub struct TextBody {
    /// The text.
    pub text: String,
    /// The memory that is reserved for the text. Drop it when the text is not used any more.
    pub memory: BodyMemory,
}

impl<S: WithHttp> FromRequest<Arc<S>> for TextBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<S>) -> Result<Self, Problem> {
        require_json(request.headers())?;
        let mut raw = RawBody::from_request(request, app).await?;
        raw.reserve_parsed()?;
        let RawBody { bytes, memory } = raw;
        let text = String::from_utf8(bytes.into()).map_err(|_| Problem::invalid("the body is not UTF-8"))?;
        if text.trim().is_empty() {
            return Err(Problem::invalid("the body is empty; expected JSON"));
        }
        Ok(Self { text, memory })
    }
}

impl<S: WithHttp, T: DeserializeOwned> FromRequest<Arc<S>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<S>) -> Result<Self, Problem> {
        let body = JsonBody::from_request(request, app).await?;
        from_object(body.value).map(Self)
    }
}

/// Converts a JSON object to a type.
pub fn from_object<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    let Value::Object(fields) = value else {
        // serde would also accept a list, and would use its items as the values of a struct's fields, in order.
        return Err(Problem::invalid("the body: expected a JSON object"));
    };
    serde_path_to_error::deserialize(&fields).map_err(|error| {
        let full = error.inner().to_string();
        let text = full.chars().take(300).chain(suggestion(&full).chars()).collect::<String>();
        Problem::invalid(match error.path().iter().next() {
            // serde's error about an unknown or missing field already names the field.
            Some(Segment::Map { key }) if !text.contains(" field `") => format!("{key}: {text}"),
            _ => text,
        })
    })
}

/// Requires a JSON content type. A browser lets a page of another site send this content type only if this server
/// permits it (CORS).
pub fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    let detail = "content-type: expected application/json (with curl: --json instead of -d)";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", detail).closing())
}

fn is_gzipped(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?").trim()) {
        None => Ok(false),
        Some(coding) if coding.is_empty() || coding.eq_ignore_ascii_case("identity") => Ok(false),
        Some(coding) if ["gzip", "x-gzip"].iter().any(|gzip| coding.eq_ignore_ascii_case(gzip)) => Ok(true),
        Some(_) => {
            let detail = "content-encoding: expected gzip, or no such header";
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding", detail).closing())
        }
    }
}

fn out_of_memory() -> Problem {
    Problem::busy("no memory is free for this body; try again, or send less in one request").closing()
}

fn too_large(most: usize) -> Problem {
    Problem::too_large(format!(
        "the body exceeds {most} bytes (setting limits.body); send less in one request"
    ))
}

/// Reads the rest of a body and discards it.
async fn drain(mut body: Body) {
    let discarding = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(DRAIN, discarding).await;
}

/// Why reading a body stopped before its end.
pub enum Stop {
    /// The body exceeds the limit.
    TooLarge,
    /// No memory was free for the next chunk.
    OutOfMemory,
}

/// Reads a body within limits of size and time. `most` is the maximum size in bytes. `reserve` reserves memory for a
/// chunk and returns whether memory was free. Allocates `capacity` bytes at the start.
///
/// Returns the bytes that were read, and the reason why reading stopped; `None` if the whole body was read.
pub async fn read_limited(
    body: &mut Body,
    most: usize,
    capacity: usize,
    limits: &Limits,
    mut reserve: impl FnMut(usize) -> bool,
) -> Result<(Bytes, Option<Stop>), Problem> {
    if http_body::Body::size_hint(body).lower() > most as u64 {
        return Ok((Bytes::new(), Some(Stop::TooLarge)));
    }
    let end = Instant::now() + limits.body_timeout;
    let mut all = BytesMut::with_capacity(capacity);
    while let Some(data) = next_chunk(body, end, limits.body_idle_timeout).await? {
        let stop = if all.len().saturating_add(data.len()) > most {
            Some(Stop::TooLarge)
        } else {
            (!reserve(data.len())).then_some(Stop::OutOfMemory)
        };
        if all.is_empty() && (stop.is_some() || http_body::Body::is_end_stream(body)) {
            // A body in one chunk needs no copy.
            return Ok((data, stop));
        }
        all.extend_from_slice(&data);
        if stop.is_some() {
            return Ok((all.freeze(), stop));
        }
    }
    Ok((all.freeze(), None))
}

/// Returns the next chunk of a body, or `None` at the end of the body. Fails after `end`, or after `idle_timeout`
/// without data.
pub async fn next_chunk(
    body: &mut Body,
    end: Instant,
    idle_timeout: Duration,
) -> Result<Option<Bytes>, Problem> {
    loop {
        let until = end.min(Instant::now() + idle_timeout);
        let frame = match timeout_at(until, body.frame()).await {
            Err(_) => {
                let detail = "the body was not received in time; send it again";
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", detail).closing());
            }
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => {
                return Err(Problem::invalid(
                    "the body is incomplete, or its chunks are invalid; send it again",
                )
                .closing());
            }
            Ok(Some(Ok(frame))) => frame,
        };
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// Number of bytes that are unpacked at a time. Memory for these bytes is reserved before they are unpacked.
const UNPACK_BYTES: usize = 64 << 10;

fn unpack(bytes: &[u8], most: usize, memory: &mut BodyMemory) -> Result<Bytes, Problem> {
    let mut packed = flate2::read::MultiGzDecoder::new(bytes);
    let mut plain = Vec::new();
    loop {
        memory.reserve(UNPACK_BYTES)?;
        let before = plain.len();
        let read = packed.by_ref().take(UNPACK_BYTES as u64).read_to_end(&mut plain);
        read.map_err(|_| {
            Problem::invalid("content-encoding: the body is not gzip, or is incomplete; send it again")
        })?;
        if plain.len() > most {
            return Err(too_large(most));
        }
        if plain.len() - before < UNPACK_BYTES {
            return Ok(plain.into());
        }
    }
}

/// Maximum number of digits of an integer that every representation preserves exactly.
const EXACT_DIGITS: usize = 15;

/// Returns the approximate number of JSON values in a text, which is the number of commas, opening braces and opening
/// brackets outside of strings. Also returns whether all numbers in the text are integers that a `Value` preserves
/// exactly.
fn scan(bytes: &[u8]) -> Result<(usize, bool), Problem> {
    let (mut count, mut quoted, mut escaped) = (0usize, false, false);
    let (mut exact, mut digits) = (true, 0usize);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'0'..=b'9' => {
                digits += 1;
                exact &= digits <= EXACT_DIGITS;
                continue;
            }
            b'.' | b'-' => exact = false,
            b'e' | b'E' => exact &= digits == 0,
            b',' | b'{' | b'[' => count += 1,
            _ => {}
        }
        digits = 0;
    }
    if count > MAX_VALUES {
        return Err(Problem::too_large(format!(
            "the body has more than {MAX_VALUES} JSON values; send less in one request"
        )));
    }
    Ok((count, exact))
}

fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    if std::str::from_utf8(bytes).is_err() {
        return Err(Problem::invalid("the body is not UTF-8"));
    }
    serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
        true if bytes.is_empty() => Problem::invalid("the body is empty; expected JSON"),
        _ => Problem::invalid(format!("the body is not JSON: {error}")),
    })
}

/// Runs work whose duration is proportional to `size`, in bytes. Long work runs in a way that does not block other
/// requests.
pub async fn run_blocking<T>(size: u64, work: impl FnOnce() -> T + Send) -> Result<T, Problem> {
    // Each permit is for one piece of long work, which occupies a thread. At least one thread must remain for the event
    // loop.
    static PERMITS: Semaphore = Semaphore::const_new(4);
    if size <= INLINE_BYTES {
        return Ok(work());
    }
    let failed = || Problem::busy("processing the request failed; try again");
    let _permit = PERMITS.acquire().await.map_err(|_| failed())?;
    let work = AssertUnwindSafe(work);
    let done = match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => catch_unwind(work),
        _ => tokio::task::block_in_place(|| catch_unwind(work)),
    };
    done.map_err(|_| failed())
}
