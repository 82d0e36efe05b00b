//! Listens for shutdown signals: Ctrl-C, SIGTERM, or the terminal closing.

/// Number of SIGINT, which Ctrl-C sends.
pub(crate) const INTERRUPT: i32 = 2;

/// Listens for shutdown signals. Use one `Signals` for the whole run: if a signal arrives while no task waits, the next
/// call of [`Signals::next`] returns the signal.
pub(crate) struct Signals {
    #[cfg(unix)]
    streams: Vec<(i32, tokio::signal::unix::Signal)>,
}

impl Signals {
    /// Starts to listen. After this call, these signals do not end the program by themselves.
    pub(crate) fn listen() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
            if !ignores_hang_up() {
                kinds.push(SignalKind::hangup());
            }
            // If the handler of a signal cannot be installed, the signal retains its default action.
            let streams =
                kinds.into_iter().filter_map(|kind| Some((kind.as_raw_value(), signal(kind).ok()?)));
            Self { streams: streams.collect() }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Waits for the next shutdown signal and returns its number.
    pub(crate) async fn next(&mut self) -> i32 {
        #[cfg(unix)]
        {
            std::future::poll_fn(|context| {
                let mut signals = self.streams.iter_mut();
                let received = signals
                    .find_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
                received.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
            })
            .await
        }
        #[cfg(not(unix))]
        {
            if tokio::signal::ctrl_c().await.is_err() {
                // If the handler cannot be installed, this future waits forever, and the command runs to its end.
                std::future::pending::<()>().await;
            }
            INTERRUPT
        }
    }
}

/// Whether this process was started with SIGHUP ignored, as `nohup` does. In this case, no handler for SIGHUP is
/// installed, because a handler would make SIGHUP end the program again.
#[cfg(unix)]
fn ignores_hang_up() -> bool {
    status_ignores_hang_up(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// Parses the mask `SigIgn` of `/proc/self/status`. The lowest bit of the mask is signal 1, SIGHUP.
#[cfg(unix)]
fn status_ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn nohup_is_detected() {
        assert!(status_ignores_hang_up(
            "Name:\tepitome\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n"
        ));
        assert!(!status_ignores_hang_up(
            "Name:\tepitome\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"
        ));
        assert!(!status_ignores_hang_up(""), "without a `SigIgn` line");
    }
}
