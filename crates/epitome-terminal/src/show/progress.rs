//! Something that moves while one waits.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line on standard error that says how far it is; nothing where nobody watches. Gone when dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// As it looks by this template of `indicatif`'s.
    pub(crate) fn new(watched: bool, what: &str, of: Option<u64>, look: &str) -> Self {
        let target = if watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(of, target);
        // The look is ours and right; were it not, the usual one would do.
        if let Ok(style) = ProgressStyle::with_template(look) {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        if watched {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar }
    }

    /// Waits for something, and has a look every so often at how far it is.
    pub async fn during<T, L: Future<Output = ()>>(
        work: impl Future<Output = T>,
        every: Duration,
        look: impl Fn() -> L,
    ) -> T {
        tokio::pin!(work);
        let mut ticks = tokio::time::interval(every);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => look().await,
            }
        }
    }

    /// What is being done now.
    pub fn stage(&self, what: impl Into<String>) {
        self.bar.set_prefix(what.into());
    }

    /// So many steps are done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Of so many.
    pub fn set_of(&self, of: u64) {
        self.bar.set_length(of);
    }

    /// A few words at the end of the line.
    pub fn say(&self, words: impl Into<String>) {
        self.bar.set_message(words.into());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
