//! Measures how many summaries several nodes write per second, and how soon a node leases a slot that became due on
//! another node.

use std::time::{Duration, Instant};

use epitome::Error;
use epitome::rules::slot::Scope;
use epitome::store::{LeaseRequest, Postgres, PostgresOptions, SessionKey, Store, StoreError};
use epitome::{Engine, Pace};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::{OnProgress, Progress, Spread, messages};
use super::{MODEL_DELAY, failed};

/// Starts a provider on loopback. The provider returns the same response to every request, after [`MODEL_DELAY`].
async fn provider() -> Result<String, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    Ok(format!("http://{address}/v1"))
}

/// Responds to one request after the other until the client closes the connection.
async fn answer(mut stream: TcpStream) {
    let mut read = Vec::new();
    loop {
        while let Some(end) = request_end(&read) {
            read.drain(..end);
            tokio::time::sleep(MODEL_DELAY).await;
            let body = r#"{"id": "1", "object": "chat.completion", "model": "slow", "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "The customer requested orders; each was answered, and all arrive on Friday."}}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            if stream.write_all((head + body).as_bytes()).await.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut read).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Returns the length of the first request in `read`, in bytes. `None` if this request has not arrived completely.
fn request_end(read: &[u8]) -> Option<usize> {
    let head = read.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(read.get(..head)?).ok()?.to_ascii_lowercase();
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let end = head.checked_add(length.unwrap_or(0))?;
    (read.len() >= end).then_some(end)
}

/// Measures how many summaries `nodes` nodes write per second. Each node has four workers.
pub(super) async fn summaries_per_second(
    url: &str,
    sessions: usize,
    nodes: usize,
    on_progress: OnProgress<'_>,
) -> Result<f64, Error> {
    on_progress(Progress { stage: "summaries by nodes", done: nodes as u64 - 1, of: 2 });
    let base = provider().await?;
    let settings = format!(
        r#"{{"slot": [{{"name": "s", "trigger": "messages(20)", "max_tokens": 200}}], "summarize": {{"models": ["slow"]}},
        "models": {{"slow": {{"provider": "openai", "model": "slow", "base_url": "{base}", "window": 100000}}}}}}"#
    );
    let node = |workers: usize| {
        let pace = Pace { workers, ..Pace::default() };
        Engine::builder().settings(&settings).pace(pace).open_postgres(url)
    };
    let writer = node(0).await?;
    let workspace = writer.workspace(format!("{nodes} nodes"));
    for n in 0..sessions {
        workspace.session(format!("session {n}")).append(messages::short_messages(n as u64 * 20, 20)).await?;
    }
    let started = Instant::now();
    let mut engines = Vec::new();
    for _ in 0..nodes {
        engines.push(node(4).await?);
    }
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let queue = workspace.queue().await?;
        if queue.due + queue.working == 0 {
            break;
        }
        if Instant::now() > until {
            return Err(failed("the nodes did not write the due summaries within two minutes"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rate = sessions as f64 / started.elapsed().as_secs_f64();
    for engine in engines {
        engine.close().await;
    }
    writer.close().await;
    Ok(rate)
}

/// Measures the time from the commit that makes a slot due until another node has the lease on the slot.
pub(super) async fn lease_delay(
    url: &str,
    leases: usize,
    on_progress: OnProgress<'_>,
) -> Result<Spread, Error> {
    let settings = r#"{"slot": [{"name": "s", "trigger": "messages(2)", "max_tokens": 200}]}"#;
    let writer = Engine::builder().workers(0).settings(settings).open_postgres(url).await?;
    let other = Postgres::open(url, PostgresOptions::default()).await?;
    let workspace = "leases";
    let request = |session: &str| LeaseRequest {
        owner: "another".to_owned(),
        duration: Duration::from_secs(600),
        session: Some(SessionKey::new(workspace, session)),
        excluded: Default::default(),
        after: None,
        full_workspaces: Default::default(),
    };
    let mut times = Vec::new();
    for n in 0..leases.max(1) {
        on_progress(Progress { stage: "leases on another node", done: n as u64, of: leases as u64 });
        let name = format!("session {n}");
        let session = writer.workspace(workspace).session(name.as_str());
        let lease = async {
            loop {
                if let Some(lease) = other.lease(request(&name)).await? {
                    return Ok::<_, StoreError>((Instant::now(), lease));
                }
                // Waits like a worker does: until a notification arrives, but at most one second.
                let _ = tokio::time::timeout(Duration::from_secs(1), other.wait_for_hint()).await;
            }
        };
        let append = async {
            tokio::time::sleep(Duration::from_millis(7 + (n as u64 * 13) % 40)).await;
            session.append(messages::short_messages(0, 2)).await?;
            Ok::<_, Error>(Instant::now())
        };
        let both = async { tokio::join!(lease, append) };
        let (leased, committed) = tokio::time::timeout(Duration::from_secs(60), both)
            .await
            .map_err(|_| failed("no other node leased the due slot within a minute"))?;
        let ((leased, lease), committed) = (leased?, committed?);
        if lease.slot.scope != Scope::Session {
            return Err(failed("an unexpected slot was leased"));
        }
        times.push(leased.saturating_duration_since(committed));
    }
    other.close().await;
    writer.close().await;
    Ok(Spread::of(times))
}
