use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Returns a text after some time, or fails or panics.
struct Says {
    text: &'static str,
    after: Duration,
}

#[async_trait]
impl Hook for Says {
    fn name(&self) -> &str {
        "says"
    }

    async fn before(&self, _: &DueMessages) -> Result<Option<String>, HookError> {
        tokio::time::sleep(self.after).await;
        match self.text {
            "fail" => Err(HookError::new("no such table\nfacts; password=hunter22")),
            "panic" => panic!("with words of the conversation"),
            "" => Ok(None),
            text => Ok(Some(text.to_owned())),
        }
    }

    async fn after(&self, _: &Condensed) -> Result<(), HookError> {
        self.before(&due_messages()).await.map(|_| ())
    }
}

fn says(text: &'static str) -> Says {
    Says { text, after: Duration::ZERO }
}

fn due_messages() -> DueMessages {
    DueMessages {
        workspace: "w".into(),
        session: "s".into(),
        slot: "short".into(),
        scope: None,
        span: Span { from: 1, through: 1 },
        messages: [Message::user("Hello.")].into(),
    }
}

fn condensed(messages: u64) -> Condensed {
    Condensed {
        workspace: "w".into(),
        session: "s".into(),
        slot: "short".into(),
        scope: Some("ann".into()),
        covers: Span { from: 1, through: 20 },
        messages,
        tokens_before: 1_234_567,
        tokens_after: 999,
        model: "local".into(),
        stand_in: true,
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_panics_or_is_slow_does_not_affect_the_others() {
    let hooks = Hooks::new()
        .with(says("First."))
        .with(says("fail"))
        .with(says("panic"))
        .with(Says { text: "Too late.", after: Duration::from_secs(60) })
        .with(says(""))
        .with(Says { text: "Last.", after: Duration::from_secs(4) });
    let problems = |when: &str| {
        [
            format!("says ({when}): no such table facts; password=[redacted:password]"),
            format!("says ({when}): panicked"),
            format!("says ({when}): took longer than 5s"),
        ]
    };
    let start = Instant::now();
    let added = hooks.before(&due_messages()).await;
    assert_eq!(added.text, "First.\n\nLast.");
    assert_eq!(added.problems, problems("before"));
    assert_eq!(hooks.after(&condensed(3)).await, problems("after"));
    // The hooks run at the same time: one time-out before and one after, not one for each hook.
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn the_timeout_can_be_set() {
    let slow = || Says { text: "Slow.", after: Duration::from_secs(60) };
    let patient = Hooks::new().with(slow()).with_timeout(Duration::from_secs(90));
    assert_eq!(patient.before(&due_messages()).await.text, "Slow.");
    let endless = Hooks::new().with(slow()).with_timeout(Duration::MAX);
    assert_eq!(endless.before(&due_messages()).await.text, "Slow.");
}

#[tokio::test]
async fn the_added_text_is_bounded() {
    struct Long;
    #[async_trait]
    impl Hook for Long {
        async fn before(&self, _: &DueMessages) -> Result<Option<String>, HookError> {
            Ok(Some("ä".repeat(3_000)))
        }
    }
    let added = Hooks::new().with(Long).with(Long).before(&due_messages()).await;
    assert_eq!(added.text.chars().count(), MAX_ADDED_CHARS);
}

#[tokio::test]
async fn without_hooks_nothing_is_added() {
    let none = Hooks::default();
    assert!(none.is_empty());
    assert_eq!(none.before(&due_messages()).await, HookOutput::default());
    assert!(none.after(&condensed(1)).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_aborted_when_no_caller_waits_for_it() {
    struct Counts(Arc<AtomicUsize>);
    #[async_trait]
    impl Hook for Counts {
        async fn after(&self, _: &Condensed) -> Result<(), HookError> {
            tokio::time::sleep(Duration::from_secs(2)).await;
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    let hooks = Hooks::new().with(Counts(Arc::clone(&count)));
    let done = condensed(1);
    let given_up = tokio::time::timeout(Duration::from_secs(1), hooks.after(&done)).await;
    assert!(given_up.is_err());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn the_notice_is_formatted_for_people() {
    assert_eq!(condensed(1).to_string(), "Condensed 1 message into a summary, 1,234,567 → 999 tokens");
    assert_eq!(
        [0, 12, 123, 1_000, u64::MAX].map(grouped).join(" "),
        "0 12 123 1,000 18,446,744,073,709,551,615"
    );
}

#[test]
fn condensed_survives_a_json_round_trip() {
    let done = condensed(3);
    let json = serde_json::to_string(&done).unwrap();
    assert_eq!(serde_json::from_str::<Condensed>(&json).unwrap(), done);
}
