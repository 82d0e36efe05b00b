//! How the program is told to end: Ctrl-C, a signal, or the terminal going away.

/// Ctrl-C.
pub(crate) const INTERRUPT: i32 = 2;

/// What is listened to. Made once: a signal that comes while nobody waits is kept for who waits next.
pub(crate) struct Signals {
    #[cfg(unix)]
    heard: Vec<(i32, tokio::signal::unix::Signal)>,
}

impl Signals {
    /// From now on signals are heard, and do not end the program by themselves.
    pub(crate) fn listen() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
            if !outlives_terminal() {
                kinds.push(SignalKind::hangup());
            }
            // One that cannot be heard does what it always did.
            let heard = kinds.into_iter().filter_map(|kind| Some((kind.as_raw_value(), signal(kind).ok()?)));
            Self { heard: heard.collect() }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Waits until the program is told to end, and tells by which signal.
    pub(crate) async fn next(&mut self) -> i32 {
        #[cfg(unix)]
        {
            std::future::poll_fn(|context| {
                let mut signals = self.heard.iter_mut();
                let told = signals
                    .find_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
                told.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
            })
            .await
        }
        #[cfg(not(unix))]
        {
            if tokio::signal::ctrl_c().await.is_err() {
                // Nobody can tell us: then it goes on to its end.
                std::future::pending::<()>().await;
            }
            INTERRUPT
        }
    }
}

/// Whether whoever started it wants it to go on when the terminal is gone, as `nohup` does: listening to that signal
/// would undo it.
#[cfg(unix)]
fn outlives_terminal() -> bool {
    ignores_hang_up(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// The first bit of `SigIgn` is the first signal's, which is the one that tells of the terminal.
#[cfg(unix)]
fn ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_wishes_is_seen() {
        assert!(ignores_hang_up("Name:\tepitome\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n"));
        assert!(!ignores_hang_up("Name:\tepitome\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"));
        assert!(!ignores_hang_up(""), "where nothing tells of it");
    }
}
