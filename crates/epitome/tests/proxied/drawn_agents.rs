//! Tests with random agents that each gets only its own messages: agents share first messages, fork, edit, retry and
//! continue, on an engine that evicts conversations and is restarted. Every message contains a unique word.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use epitome::inline::{Caller, Inline};
use epitome::rules::condense::Press;
use epitome::rules::message::{Message, Part, Role};
use epitome::store::Store;
use epitome::{Call, Condenser, Engine};
use epitome_testkit::drawing::draw;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::sync::OnceCell;

use crate::support::{Numbered, builder, complaints, marks, settle, store, texts, tokens, world_count};

/// One store for all cases; each case has its own workspaces.
static STORE: OnceCell<Arc<dyn Store>> = OnceCell::const_new();
static WORLD: AtomicUsize = AtomicUsize::new(0);

const WIRES: [&str; 2] = ["openai", "anthropic"];

/// The next step. Numbers select among the existing agents and messages.
#[derive(Debug, Clone)]
enum Operation {
    /// An agent adds messages and calls its model.
    GoOn {
        agent: usize,
        bursts: Vec<Burst>,
    },
    /// It sends the same list again.
    Retry(usize),
    /// A new agent begins with the messages of another, as the same caller or another one.
    Copy {
        agent: usize,
        keep: usize,
        whose: Whose,
        burst: Burst,
    },
    /// One of its messages is replaced.
    Edit {
        agent: usize,
        at: usize,
    },
    /// Its newest messages are removed.
    TakeBack {
        agent: usize,
        count: usize,
    },
    /// Its system messages change.
    Head(usize),
    /// The provider rejects its request as too long.
    TooLong(usize),
    /// Two agents call at the same time.
    Together(usize, usize),
    /// The settings change, or change back.
    Settings,
    Restart,
}

#[derive(Debug, Clone, Copy)]
enum Burst {
    Talk,
    Work(usize),
}

#[derive(Debug, Clone, Copy)]
enum Whose {
    Same,
    OtherWorkspace,
    OtherCaller,
    OtherWire,
    Named,
}

/// The model that writes summaries.
#[derive(Debug, Clone, Copy)]
enum Writer {
    Local,
    Ahead,
    Waited,
}

/// The setup of a case.
#[derive(Debug, Clone)]
struct World {
    strategy: &'static str,
    trigger: &'static str,
    model: Writer,
    most: usize,
    heads: usize,
    steps: Vec<Operation>,
}

fn bursts() -> impl Strategy<Value = Burst> {
    prop_oneof![Just(Burst::Talk), (1..3usize).prop_map(Burst::Work)]
}

fn steps() -> impl Strategy<Value = Operation> {
    let agent = || 0..8usize;
    let whose = prop::sample::select(vec![
        Whose::Same,
        Whose::Same,
        Whose::Same,
        Whose::OtherWorkspace,
        Whose::OtherCaller,
        Whose::OtherWire,
        Whose::Named,
    ]);
    prop_oneof![
        10 => (agent(), prop::collection::vec(bursts(), 1..4)).prop_map(|(agent, bursts)| Operation::GoOn { agent, bursts }),
        2 => agent().prop_map(Operation::Retry),
        4 => (agent(), 0..40usize, whose, bursts())
            .prop_map(|(agent, keep, whose, burst)| Operation::Copy { agent, keep, whose, burst }),
        1 => (agent(), 0..40usize).prop_map(|(agent, at)| Operation::Edit { agent, at }),
        1 => (agent(), 1..6usize).prop_map(|(agent, count)| Operation::TakeBack { agent, count }),
        1 => agent().prop_map(Operation::Head),
        1 => agent().prop_map(Operation::TooLong),
        2 => (agent(), agent()).prop_map(|(one, two)| Operation::Together(one, two)),
        1 => Just(Operation::Settings),
        1 => Just(Operation::Restart),
    ]
}

fn worlds() -> impl Strategy<Value = World> {
    let strategy = prop::sample::select(vec![
        "summarize(messages(2))",
        "summarize(messages(4))",
        "amortized(messages(2))",
        "recent(messages(3))",
        "pipeline(mask(messages(1)), summarize(messages(3)))",
    ]);
    let trigger = prop::sample::select(vec!["messages(6)", "messages(10)", "tokens(150)", "tokens(300)"]);
    let most = prop::sample::select(vec![0, 1, 2, 100]);
    let model = prop::sample::select(vec![Writer::Local, Writer::Ahead, Writer::Waited]);
    (strategy, trigger, model, most, 0..3usize, prop::collection::vec(steps(), 8..30)).prop_map(
        |(strategy, trigger, model, most, heads, steps)| World {
            strategy,
            trigger,
            model,
            most,
            heads,
            steps,
        },
    )
}

/// The owner of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owner {
    workspace: usize,
    caller: usize,
    wire: usize,
    session: Option<String>,
}

#[derive(Debug, Clone)]
struct Agent {
    owner: Owner,
    /// How often its system messages changed.
    orders: usize,
    /// The messages after its system messages.
    said: Vec<Message>,
    /// The list returned last, without system messages, and since when it has been the same; `None` if the next list
    /// may differ.
    last: Option<(Vec<Message>, usize)>,
}

/// What happened in all cases, to check that every kind of event did.
#[derive(Default)]
struct Seen {
    requests: usize,
    condensed: usize,
    /// A shorter list was returned without a condensation on this turn: the conversation was recognised.
    known: usize,
    /// The same, by an engine that had never seen the conversation.
    resumed: usize,
    pressed: usize,
}

struct Play<'a> {
    world: &'a World,
    number: usize,
    engine: Engine,
    /// By workspace.
    condensers: Vec<(Inline, Condenser)>,
    other_settings: bool,
    agents: Vec<Agent>,
    marks: usize,
    clock: usize,
    /// Lists that were condensed: their owner, their messages, and when.
    done: Vec<(Owner, Vec<Message>, usize)>,
    /// All lists that were sent: an engine may have cached the state of one, although its agent continued differently.
    came: Vec<(Owner, Vec<Message>)>,
    /// The owner of each summary.
    summaries: HashMap<String, Owner>,
    runs: HashMap<Arc<str>, Owner>,
    seen: Seen,
    restarted: bool,
}

impl<'a> Play<'a> {
    async fn new(world: &'a World) -> Self {
        let number = WORLD.fetch_add(1, Ordering::Relaxed);
        let engine = Self::engine(world).await;
        let owner = Owner { workspace: 0, caller: 0, wire: 0, session: None };
        let mut play = Self {
            world,
            number,
            engine,
            condensers: Vec::new(),
            other_settings: false,
            agents: vec![Agent { owner, orders: 0, said: Vec::new(), last: None }],
            marks: 0,
            clock: 0,
            done: Vec::new(),
            came: Vec::new(),
            summaries: HashMap::new(),
            runs: HashMap::new(),
            seen: Seen::default(),
            restarted: false,
        };
        play.set_up().await;
        play.go_on(0, &[Burst::Talk, Burst::Work(2)]);
        play
    }

    async fn engine(world: &World) -> Engine {
        let builder = Engine::builder().workers(0).conversations(world.most);
        builder.model("m", Numbered).store(Arc::clone(STORE.get_or_init(store).await)).unwrap()
    }

    async fn set_up(&mut self) {
        let World { strategy, trigger, model, .. } = self.world;
        let trigger = if self.other_settings { "messages(8)" } else { trigger };
        let model = match model {
            Writer::Local => r#""local""#,
            Writer::Ahead => r#""m""#,
            Writer::Waited => r#""m", "wait": true"#,
        };
        let settings = format!(
            r#""strategy": "{strategy}", "trigger": "{trigger}", "model": {model}, "max_tokens": 60"#
        );
        self.condensers.clear();
        for name in 0..2 {
            let workspace = self.engine.workspace(format!("w{}-{name}", self.number));
            let condenser = builder(&workspace, &settings).await.build().unwrap();
            self.condensers.push((workspace.inline(), condenser));
        }
    }

    fn mark(&mut self) -> String {
        self.marks += 1;
        format!("mk{}x", self.marks)
    }

    fn go_on(&mut self, agent: usize, bursts: &[Burst]) {
        for burst in bursts {
            let mut more = vec![Message::user(format!(
                "{} please do this and that for all of them at once",
                self.mark()
            ))];
            if let Burst::Work(calls) = burst {
                for _ in 0..*calls {
                    let mark = self.mark();
                    let arguments = format!(r#"{{"what": "{mark}"}}"#);
                    more.push(Message::new(Role::Assistant, [Part::call(mark.clone(), "look", arguments)]));
                    let found = format!("{} {}", self.mark(), "was found there and nothing else ".repeat(4));
                    more.push(Message::tool(mark, found));
                }
            } else {
                let reply = format!("{} is what I would say to that if I were asked", self.mark());
                more.push(Message::assistant(reply));
                more.push(Message::user(format!("{} and go on", self.mark())));
            }
            self.agents[agent].said.extend(more);
        }
    }

    fn list(&self, agent: &Agent) -> Vec<Message> {
        let orders = (0..self.world.heads).map(|n| {
            let version = if n == 0 { agent.orders } else { 0 };
            Message::system(format!("You are number {n}, it is {version} o'clock."))
        });
        let mut list: Vec<Message> = orders.chain(agent.said.iter().cloned()).collect();
        for (message, seq) in list.iter_mut().zip(1..) {
            message.seq = seq;
        }
        list
    }

    async fn restart(&mut self) {
        self.condensers[0].0.settled().await;
        self.engine = Self::engine(self.world).await;
        self.restarted = true;
        self.set_up().await;
    }

    async fn step(&mut self, step: &Operation) -> Result<(), TestCaseError> {
        let pick = |agent: usize| agent % self.agents.len();
        match step {
            Operation::GoOn { agent, bursts } => {
                let agent = pick(*agent);
                self.go_on(agent, bursts);
                self.request(agent, None).await?;
            }
            Operation::Retry(agent) => self.request(pick(*agent), None).await?,
            Operation::Copy { agent, keep, whose, burst } => {
                self.copy(pick(*agent), *keep, *whose, *burst).await?;
            }
            Operation::Edit { agent, at } => {
                let agent = pick(*agent);
                let mark = self.mark();
                let said = &mut self.agents[agent].said;
                let at = at % said.len();
                if let Some(Part::Text { text }) = said[at].parts.first_mut() {
                    *text = format!("{mark} was never said before");
                    self.agents[agent].last = None;
                }
                self.request(agent, None).await?;
            }
            Operation::TakeBack { agent, count } => {
                let agent = pick(*agent);
                let said = &mut self.agents[agent].said;
                said.truncate(said.len().saturating_sub(*count).max(1));
                self.agents[agent].last = None;
                self.go_on(agent, &[Burst::Talk]);
                self.request(agent, None).await?;
            }
            Operation::Head(agent) => {
                let agent = pick(*agent);
                self.agents[agent].orders += 1;
                self.go_on(agent, &[Burst::Talk]);
                self.request(agent, None).await?;
            }
            Operation::TooLong(agent) => self.request(pick(*agent), Some(Press::Hard)).await?,
            Operation::Together(one, two) => self.together(pick(*one), pick(*two)).await?,
            Operation::Settings => {
                self.other_settings = !self.other_settings;
                self.set_up().await;
            }
            Operation::Restart => self.restart().await,
        }
        Ok(())
    }

    async fn copy(
        &mut self,
        from: usize,
        keep: usize,
        whose: Whose,
        burst: Burst,
    ) -> Result<(), TestCaseError> {
        let mut copy = self.agents[from].clone();
        let whole = copy.said.len();
        // Usually two agents continue from the same position.
        let keep = if keep >= whole || keep.is_multiple_of(2) { whole } else { keep.max(1) };
        copy.said.truncate(keep);
        match whose {
            Whose::Same => {}
            Whose::OtherWorkspace => copy.owner.workspace = 1 - copy.owner.workspace,
            Whose::OtherCaller => copy.owner.caller = 1 - copy.owner.caller,
            Whose::OtherWire => copy.owner.wire = 1 - copy.owner.wire,
            Whose::Named => copy.owner.session = Some(format!("s{}", self.agents.len() % 3)),
        }
        if keep < whole || copy.owner != self.agents[from].owner {
            copy.last = None;
        }
        self.agents.push(copy);
        let agent = self.agents.len() - 1;
        if !matches!(whose, Whose::Same) {
            // The same conversation of another caller, before they differ.
            self.request(agent, None).await?;
        }
        self.go_on(agent, &[burst]);
        self.request(agent, None).await
    }

    async fn request(&mut self, agent: usize, press: Option<Press>) -> Result<(), TestCaseError> {
        let list = self.list(&self.agents[agent]);
        let prepared = self.prepare(agent, &list, None).await;
        self.check(agent, &list, &prepared)?;
        if press.is_some() {
            prepared.turn.too_long(None);
            let again = self.prepare(agent, &list, press).await;
            self.check(agent, &list, &again)?;
            if again.condensed {
                self.seen.pressed += 1;
                let (before, after) = (tokens(&prepared.shown), tokens(&again.shown));
                prop_assert!(after < before, "{} is not less than {}", after, before);
            } else {
                prop_assert_eq!(&again.shown, &prepared.shown);
            }
        }
        settle().await;
        Ok(())
    }

    async fn together(&mut self, one: usize, two: usize) -> Result<(), TestCaseError> {
        if one != two {
            self.go_on(two, &[Burst::Talk]);
        }
        let (first, second) = (self.list(&self.agents[one]), self.list(&self.agents[two]));
        let (prepared, other) =
            tokio::join!(self.prepare(one, &first, None), self.prepare(two, &second, None));
        if prepared.condensed || other.condensed {
            (self.agents[one].last, self.agents[two].last) = (None, None);
        }
        self.check(one, &first, &prepared)?;
        self.check(two, &second, &other)?;
        if prepared.condensed || other.condensed {
            // Either may have been first, and both may have condensed the same list: the next request shows the result.
            (self.agents[one].last, self.agents[two].last) = (None, None);
        }
        Ok(())
    }

    async fn prepare(&self, agent: usize, list: &[Message], force: Option<Press>) -> PreparedList {
        let owner = &self.agents[agent].owner;
        let caller = Caller {
            id: if owner.caller == 0 { b"ann" } else { b"bob" },
            session: owner.session.as_deref(),
            wire: WIRES[owner.wire],
        };
        let (inline, condenser) = &self.condensers[owner.workspace];
        let proxied = inline.before(condenser, &caller, Call { force, ..Call::of(list) }).await;
        PreparedList {
            condensed: proxied.ready.report.condensed,
            untouched: proxied.ready.is_untouched(),
            id: proxied.conversation_id,
            sizes: (proxied.ready.full, proxied.ready.sent),
            turn: proxied.ready.turn(),
            shown: proxied.ready.into_messages(),
        }
    }

    fn check(
        &mut self,
        agent: usize,
        list: &[Message],
        prepared: &PreparedList,
    ) -> Result<(), TestCaseError> {
        self.clock += 1;
        self.seen.requests += 1;
        let owner = self.agents[agent].owner.clone();
        let PreparedList { shown, condensed, untouched, .. } = prepared;
        let lists = || format!("agent {agent}: [{}] of [{}]", draw(shown), draw(list));

        // Its own messages only.
        let (there, came) = (marks(&texts(shown), "mk"), marks(&texts(list), "mk"));
        prop_assert!(there.is_subset(&came), "another's words: {}", lists());
        for mark in marks(&texts(shown), "sum") {
            let whose = self.summaries.entry(mark).or_insert_with(|| owner.clone());
            prop_assert_eq!(&*whose, &owner, "another's summary: {}", lists());
        }
        if owner.session.is_none() {
            let whose = self.runs.entry(Arc::clone(&prepared.id)).or_insert_with(|| owner.clone());
            prop_assert_eq!(&*whose, &owner, "another's number");
        } else {
            prop_assert_eq!(Some(&*prepared.id), owner.session.as_deref());
        }

        // The list is valid and not larger.
        let heads = self.world.heads;
        prop_assert_eq!(&shown[..heads], &list[..heads], "the head: {}", lists());
        prop_assert_eq!(shown.last(), list.last(), "the end: {}", lists());
        prop_assert_eq!(prepared.sizes, (tokens(list), tokens(shown)), "{}", lists());
        if *untouched {
            prop_assert_eq!(&shown[..], list);
        } else {
            prop_assert_eq!(complaints(shown), Vec::<String>::new(), "{}", lists());
            prop_assert!(prepared.sizes.1 < prepared.sizes.0, "not smaller: {}", lists());
        }

        // The prefix is stable.
        let rest = shown[heads..].to_vec();
        let said = self.agents[agent].said.clone();
        if let Some((before, when)) = &self.agents[agent].last
            && !condensed
        {
            // Another agent of the same caller may have condensed the beginning that both share.
            let meanwhile = |(whose, list, at): &(Owner, Vec<Message>, usize)| {
                at > when && *whose == owner && same(&said, list)
            };
            let steady = same(&rest, before)
                || self.done.iter().any(meanwhile)
                || self.may_be_overlooked(agent, &said);
            prop_assert!(steady, "[{}] before: {}", draw(before), lists());
        }
        self.came.push((owner.clone(), said.clone()));
        if *condensed {
            self.seen.condensed += 1;
            self.done.push((owner, said, self.clock));
        } else if !untouched {
            self.seen.known += 1;
            self.seen.resumed += usize::from(self.restarted || self.world.most == 0);
        }
        let before = self.agents[agent].last.as_ref().filter(|_| !condensed);
        let when = before.map_or(self.clock, |(_, when)| *when);
        self.agents[agent].last = Some((rest, when));
        Ok(())
    }
}

impl Play<'_> {
    /// Returns whether a condensed list that is sent again after a restart may be taken for the continuation of a
    /// cached list by one reply: then the store is not queried.
    fn may_be_overlooked(&self, agent: usize, said: &[Message]) -> bool {
        let owner = &self.agents[agent].owner;
        let again = |(whose, list, _): &(Owner, Vec<Message>, usize)| whose == owner && list == said;
        let one_reply = |(whose, list): &(Owner, Vec<Message>)| {
            let new = said.get(list.len()..).unwrap_or_default();
            let replies = new.iter().filter(|message| message.role == Role::Assistant).count();
            whose == owner && same(said, list) && !new.is_empty() && replies <= 1
        };
        self.restarted && self.done.iter().any(again) && self.came.iter().any(one_reply)
    }
}

/// Returns whether a list begins with another, regardless of sequence numbers.
fn same(list: &[Message], with: &[Message]) -> bool {
    let plain = |message: &Message| Message { seq: 0, ..message.clone() };
    list.len() >= with.len() && list.iter().zip(with).all(|(one, two)| plain(one) == plain(two))
}

struct PreparedList {
    condensed: bool,
    untouched: bool,
    id: Arc<str>,
    sizes: (u64, u64),
    turn: epitome::Turn,
    shown: Vec<Message>,
}

async fn live(world: &World) -> Result<Seen, TestCaseError> {
    let mut play = Play::new(world).await;
    for step in &world.steps {
        play.step(step).await?;
    }
    play.condensers[0].0.settled().await;
    Ok(play.seen)
}

#[test]
fn each_agent_gets_only_its_own_messages_and_a_stable_prefix() {
    let config = epitome_testkit::budget::config(world_count());
    let cases = config.cases as usize;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all = std::cell::RefCell::new(Seen::default());
    let played = TestRunner::new(config).run(&worlds(), |world| {
        let seen = runtime.block_on(live(&world))?;
        let mut all = all.borrow_mut();
        all.requests += seen.requests;
        all.condensed += seen.condensed;
        all.known += seen.known;
        all.resumed += seen.resumed;
        all.pressed += seen.pressed;
        Ok(())
    });
    if let Err(error) = played {
        panic!("{error}");
    }
    // Without this check, the property would also hold if nothing happened. In few cases, a kind of event may be
    // missing.
    if cases < 24 {
        return;
    }
    let all = all.into_inner();
    for (what, count) in [
        ("condensed", all.condensed),
        ("known again", all.known),
        ("resumed", all.resumed),
        ("pressed", all.pressed),
    ] {
        assert!(count * 3 > cases, "{count} were {what} in {} requests of {cases} worlds", all.requests);
    }
}
