//! Those of the hard cases A to D that take a conversation: an agent that asks again and again, each time with all it was told
//! so far, as agents do. What a model is to write comes late here, or not at all, and the agent never waits for it.

use std::collections::HashSet;
use std::time::Duration;

use epitome::dialect::Dialect;
use epitome_core::tokens::{Counter, Encoding};
use serde_json::{Value, json};

use crate::cases::out::{Out, SHAPES, provider, turn};
use crate::run::Runner;
use crate::upstream::Manner;
use epitome_testkit::provider::{Act, Provider, Request};

const CHAT: Dialect = Dialect::OPENAI;

/// Due every 2,000 tokens or so, and short summaries.
const LOCAL: [&str; 6] = ["--trigger", "tokens(2000)", "--keep-messages", "4", "--max-tokens", "400"];
const BY_MODEL: [&str; 8] =
    ["--trigger", "tokens(2000)", "--keep-messages", "4", "--max-tokens", "400", "--model", "main"];

/// No conversation here has more turns.
const MOST: usize = 400;

/// An agent: its history, to which it adds and from which it takes nothing.
struct Agent<'a> {
    runner: &'a Runner,
    shape: Dialect,
    args: Vec<&'a str>,
    list: Vec<Value>,
    turns: usize,
}

impl<'a> Agent<'a> {
    fn new(runner: &'a Runner, args: &[&'a str]) -> Self {
        Self { runner, shape: CHAT, args: args.to_vec(), list: Vec::new(), turns: 0 }
    }

    fn first(mut self, message: Value) -> Self {
        self.list.push(message);
        self
    }

    /// One more turn. What the upstream gets is strictly valid, has one summary at most, and ends with what is asked.
    #[track_caller]
    fn call(&mut self) -> Out {
        self.turns += 1;
        let [asked, answered] = turn(self.turns);
        self.list.push(asked.clone());
        let key = if self.shape == Dialect::RESPONSES { "input" } else { "messages" };
        let out = self.runner.strict(self.shape, &json!({ key: self.list }), &self.args);
        assert!(out.text.matches("<summary covers=").count() <= 1, "{}", out.text);
        assert!(out.text_of_all().contains(asked["content"].as_str().unwrap()), "{}", out.text);
        self.list.push(answered);
        out
    }

    /// Goes on until something is condensed.
    #[track_caller]
    fn until_condensed(&mut self) -> Out {
        self.until(|out| out.report["condensed"] == json!(true))
    }

    /// Goes on until a summary by this one is put in. Whoever writes is given a moment.
    #[track_caller]
    fn until_by(&mut self, model: &str) -> Out {
        self.until(|out| {
            std::thread::sleep(Duration::from_millis(10));
            out.report["condensed"] == json!(true) && out.report["model"] == json!(model)
        })
    }

    #[track_caller]
    fn until(&mut self, enough: impl Fn(&Out) -> bool) -> Out {
        for _ in 0..MOST {
            let out = self.call();
            if enough(&out) {
                return out;
            }
        }
        panic!("not in {MOST} turns: {}", self.runner.server.log());
    }
}

fn prompts(provider: &Provider) -> Vec<String> {
    provider.requests().iter().map(Request::prompt).collect()
}

#[test]
fn case_17_the_upstreams_own_count_decides_through_the_proxy() {
    let trigger = ["--trigger", "tokens(2000)", "--keep-messages", "4", "--max-tokens", "400"];
    let turns = |skew: f64| {
        let runner = Runner::with("", Manner { window: 1_000_000, skew, ..Manner::default() });
        let mut agent = Agent::new(&runner, &trigger);
        agent.until_condensed();
        agent.turns
    };
    let (half, whole) = (turns(0.4), turns(0.8));
    assert!(half > whole * 3 / 2, "{half} turns where it counts half of {whole}");
}

#[test]
fn cases_18_25_27_31_34_what_is_no_summary_reaches_no_upstream_through_the_proxy() {
    let long: String = (0..3_000).map(|n| format!("Parcel {n} is on its way. ")).collect();
    for act in [
        Act::Empty,
        Act::Html,
        Act::ErrorInside,
        Act::WrongShape,
        Act::Garbage,
        Act::CallsTool,
        Act::Declines,
        Act::Loops,
        Act::Length,
        Act::ThinksForEver,
        Act::Close,
        Act::Text("I'm sorry, but I can't help with that.".to_owned()),
        Act::Text("Sure! What else can I do for you?".to_owned()),
        Act::Text(long),
    ] {
        let (provider, _runtime) = provider();
        let runner = Runner::with_model(&provider, 100_000);
        provider.always(act.clone());
        let mut agent = Agent::new(&runner, &BY_MODEL);
        for _ in 0..3 {
            let out = agent.until_condensed();
            assert_eq!(out.report["model"], json!("local"), "{act:?}: {}", out.report);
            for wrong in ["I'm sorry", "What else can I do", "is on its way", "<html", "<think"] {
                assert!(!out.text.contains(wrong), "{act:?}: {}", out.text);
            }
        }
        assert!(provider.calls() > 0, "{act:?}: it was asked");
    }
}

#[test]
fn case_19_a_summary_that_feeds_on_itself_is_refused_through_the_proxy() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let mut agent = Agent::new(&runner, &BY_MODEL);
    let first = agent.until_by("stand-in-1");
    provider.always(Act::Text(first.summary().lines().skip(2).collect::<Vec<_>>().join("\n")));
    let asked = provider.calls();
    // What was prepared before may still be put in.
    for _ in 0..3 {
        let out = agent.until_condensed();
        let known = out.report["model"] == json!("local") || provider.calls() == asked;
        assert!(known || out.summary() != first.summary(), "{}", out.summary());
    }
    assert!(provider.calls() > asked);
}

#[test]
fn case_20_no_doomed_request_is_sent_twice_through_the_proxy() {
    // Nobody told us how much it reads, so that each time it says so first.
    let runner = Runner::with("", Manner { window: 3_000, grumbles: Some(30), ..Manner::default() });
    let mut agent = Agent::new(&runner, &["--keep-messages", "4", "--max-tokens", "400"]);
    let mut retried = 0;
    for n in 1..=150 {
        let [asked, answered] = turn(n);
        agent.list.push(asked);
        let body = json!({ "model": "some-model", "messages": agent.list, "tools": [] });
        let answer = runner.send(CHAT, &body.to_string(), &agent.args);
        assert_eq!(answer.status, 200, "turn {n}: {}", answer.text());
        retried += usize::from(answer.header("x-epitome") == "retried");
        agent.list.push(answered);
    }
    assert!(retried > 1, "{retried}");
    assert_eq!((runner.upstream.repeated(), runner.upstream.invalid().len()), (0, 0));
    assert_eq!(
        runner.upstream.refused().len(),
        retried,
        "each refusal was answered by one retry that was taken"
    );
}

#[test]
fn case_20_no_doomed_prompt_is_sent_twice_through_the_proxy() {
    let (provider, _runtime) = provider();
    provider.always(Act::TooLong { sent: 9_000, limit: 8_000 });
    let runner = Runner::with_model(&provider, 100_000);
    let mut agent = Agent::new(&runner, &BY_MODEL);
    for _ in 0..4 {
        agent.until_condensed();
    }
    let prompts = prompts(&provider);
    let distinct: HashSet<&String> = prompts.iter().collect();
    assert!(
        !prompts.is_empty() && distinct.len() == prompts.len(),
        "{} of {}",
        distinct.len(),
        prompts.len()
    );
}

#[test]
fn case_21_the_head_is_not_protected_again_at_every_pass_through_the_proxy() {
    let runner = Runner::new();
    let mut agent = Agent::new(&runner, &[&LOCAL[..], &["--keep-first", "2"]].concat());
    for pass in 0..4 {
        let out = agent.until_condensed();
        let first = &agent.list[0]["content"];
        let body = out.body();
        let verbatim =
            body["messages"].as_array().unwrap().iter().filter(|message| message["content"] == *first);
        assert_eq!(verbatim.count(), usize::from(pass == 0), "pass {pass}: {}", out.text);
    }
}

#[test]
fn case_26_the_summarizer_reads_all_that_leaves_through_the_proxy() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let mut agent = Agent::new(&runner, &BY_MODEL);
    let out = agent.until_by("stand-in-1");
    let through = out.report["covers"][1].as_u64().unwrap();
    let read: String = prompts(&provider).concat();
    assert!(through > 20, "{}", out.report);
    for n in 1..=through / 2 {
        assert!(read.contains(&format!("P-{n}0071")), "parcel {n} of {through} messages");
    }
}

#[test]
fn case_28_a_second_pass_builds_on_the_first_through_the_proxy() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let rule = "nothing is sent after 18:00";
    provider.then(Act::Text(format!("Ann's rule: {rule}. Parcels were looked for, one by one.")));
    let mut agent = Agent::new(&runner, &BY_MODEL);
    let first = agent.until_by("stand-in-1");
    assert!(first.summary().contains(rule), "{}", first.summary());
    let asked = provider.calls();
    let second = agent.until(|out| {
        std::thread::sleep(Duration::from_millis(10));
        out.report["condensed"] == json!(true) && provider.calls() > asked
    });
    assert!(
        prompts(&provider)[asked..].iter().any(|prompt| prompt.contains(rule)),
        "it was shown the one before"
    );
    let through = |out: &Out| out.report["covers"][1].as_u64().unwrap();
    assert!(through(&second) > through(&first), "it stands for all of both");
}

#[test]
fn case_29_pinned_rules_survive_every_pass_through_the_proxy() {
    let runner = Runner::new();
    let rule = "Rule: never refund without order 10071.";
    for (shape, strategy) in SHAPES.into_iter().zip(["summarize", "amortized", "pipeline(mask, summarize)"]) {
        let args = [&LOCAL[..], &["--strategy", strategy]].concat();
        let mut agent = Agent::new(&runner, &args)
            .first(json!({ "role": "user", "content": rule, "epitome": { "pinned": true } }))
            .first(json!({ "role": "assistant", "content": "Understood." }));
        agent.shape = shape;
        for pass in 0..5 {
            let out = agent.until_condensed();
            let told: String = out.text_of_all();
            let outside = told.split("</summary>").nth(1).unwrap_or_default().matches(rule).count();
            let before = told.split("<summary covers=").next().unwrap().matches(rule).count();
            assert_eq!(outside + before, 1, "{shape} pass {pass}: {}", out.text);
            assert!(!out.text.contains("epitome"), "{shape} pass {pass}: {}", out.text);
        }
    }
}

#[test]
fn case_32_secrets_do_not_enter_summaries_and_stay_in_verbatim_messages_through_the_proxy() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let secret = "The key is sk-live-0123456789abcdef0001, use it.";
    for args in [&LOCAL[..], &BY_MODEL] {
        let mut agent = Agent::new(&runner, args).first(json!({ "role": "user", "content": secret }));
        assert!(agent.call().text.contains(secret), "while it is there it is as it was said");
        for _ in 0..3 {
            assert!(!agent.until_condensed().text.contains("abcdef0001"));
        }
    }
    assert!(provider.calls() > 0 && prompts(&provider).iter().all(|prompt| !prompt.contains("abcdef0001")));
}

#[test]
fn case_33_reasoning_is_neither_read_nor_written_by_the_summarizer_through_the_proxy() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    provider.always(Act::Thinks);
    let mut agent = Agent::new(&runner, &BY_MODEL);
    agent.shape = Dialect::ANTHROPIC;
    let thought = "The user seems angry, perhaps a bribe?";
    let written = agent_until_thinking(&mut agent, thought);
    assert!(prompts(&provider).iter().all(|prompt| !prompt.contains("bribe")));
    assert!(
        !written.summary().contains("think") && !written.summary().contains("bribe"),
        "{}",
        written.summary()
    );
}

/// Has every reply think first, until a model's summary is put in.
fn agent_until_thinking(agent: &mut Agent<'_>, thought: &str) -> Out {
    for _ in 0..MOST {
        let out = agent.call();
        std::thread::sleep(Duration::from_millis(10));
        if out.report["model"] == json!("stand-in-1") {
            return out;
        }
        let reply = agent.list.last_mut().unwrap();
        let thinking = json!({ "type": "thinking", "thinking": thought, "signature": "c2lnbmVk" });
        reply["content"] = json!([thinking, { "type": "text", "text": reply["content"] }]);
    }
    panic!("no model wrote");
}

#[test]
fn case_35_what_failed_is_in_the_next_summary_through_the_proxy() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    provider.then(Act::Status(500)).then(Act::Status(500));
    let mut agent = Agent::new(&runner, &BY_MODEL);
    let failed = agent.until_condensed();
    assert_eq!(failed.report["model"], json!("local"));
    agent.until_by("stand-in-1");
    let through = failed.report["covers"][1].as_u64().unwrap();
    // The first prompt that was answered holds it, verbatim or as `local` wrote it in the meantime. Later prompts hold what
    // the model made of it.
    let answered = prompts(&provider).swap_remove(2);
    assert!(
        (1..=through / 2).any(|n| answered.contains(&format!("P-{n}0071"))),
        "1 to {through}: {answered}"
    );
}

#[test]
fn case_38_the_summarizer_never_overflows_through_the_proxy() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 8_000);
    let giant = "A log line that says much the same. ".repeat(6_000);
    let mut agent = Agent::new(&runner, &BY_MODEL);
    for _ in 0..20 {
        agent.call();
    }
    agent.list.push(json!({ "role": "user", "content": "What is in the log?" }));
    agent.list.push(json!({ "role": "assistant", "content": giant }));
    agent.until_by("stand-in-1");
    agent.until_by("stand-in-1");
    let counter = Counter::new(Encoding::O200k);
    let largest = prompts(&provider).iter().map(|prompt| counter.text(prompt)).max().unwrap();
    assert!(largest <= 7_500, "{largest}");
}

#[test]
fn case_42_what_condensing_spends_is_reported_through_the_proxy() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let mut agent = Agent::new(&runner, &BY_MODEL);
    agent.until_by("stand-in-1");
    let mut client = runner.server.client().with("x-epitome-workspace", "w0");
    let usage = client.get("/v1/usage").ok();
    let item = &usage["items"][0];
    assert_eq!((&item["slot"], &item["model"]), (&json!("condense"), &json!("stand-in-1")), "{usage}");
    let calls = item["calls"].as_u64().unwrap();
    assert_eq!(item["input"], json!(calls * epitome_testkit::provider::INPUT), "{usage}");
    assert!(item["cost"].as_f64().unwrap() > 0.0, "{usage}");
}
