//! A summary to be asked for, and what becomes of the answer.

use std::borrow::Cow;

use super::divide::{Divided, Scene};
use super::done::Done;
use super::draft::Draft;
use super::list::{Frames, List, Prior, Standing};
use super::{Facts, LEAST_LIMIT, Policy, Press, Report, SummaryRole, Unchanged, count};
use crate::local::Extracts;
use crate::message::{Message, Seq, Span, Tokens};
use crate::outline::Cut;
use crate::strategy::Strategy;
use crate::tokens::Counter;
use crate::view;

/// A text within its frame may take so many tokens more than by itself: where the two meet, letters are read otherwise.
const SEAM: Tokens = 4;

/// What a model is to be asked for: a summary of these messages, no longer than so many tokens.
///
/// The list may grow while the model works; what came meanwhile is in the result. If it is condensed
/// meanwhile, the plan is overtaken and refused.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The messages that leave, from the first to the last, by their places in the list. Those that
    /// always stay may lie between them.
    pub span: Span,
    /// What the summary that stands says: the new one stands for that as well.
    pub prior: Option<String>,
    /// The most tokens the answer may have so that it is worth it.
    pub limit: Tokens,
    /// The places in the list of what the summarizer reads.
    pub places: Vec<Seq>,
    /// The tokens of what the answer stands for, the summary before it included: what it must be smaller than.
    pub replaces: Tokens,
    /// What would stand then, but for the summary's words, had the list not grown since.
    pub standing: Standing,
    /// How many messages leave.
    leaves: u64,
    frames: Frames,
    strategy: &'static str,
    policy: Policy,
    facts: Facts,
    /// What the stages before this one did; it stands alone where no summary comes.
    earlier: Option<Done>,
}

impl Plan {
    pub(super) fn new(scene: &Scene<'_>, stage: &Strategy, divided: Divided, earlier: Option<&Done>) -> Self {
        let Scene { list, policy, facts, .. } = *scene;
        let Divided { mut standing, leave, read, tokens } = divided;
        let prior = standing.summary.take().map(|prior| prior.text);
        let ends = (leave.first().copied().unwrap_or(1), leave.last().copied().unwrap_or(1));
        standing.summary = Some(Prior {
            text: String::new(),
            through: list.frames.original(standing.from),
            system: policy.summary_role == SummaryRole::System,
        });
        Self {
            span: Span { from: ends.0, through: ends.1 },
            prior,
            limit: policy.limit,
            places: read,
            replaces: tokens,
            leaves: leave.len() as u64,
            standing: list.accepted(standing, facts),
            frames: list.frames.clone(),
            strategy: stage.name(),
            policy: policy.clone(),
            facts: *facts,
            earlier: earlier.cloned(),
        }
    }

    /// The plan with its limit, if a summary that says anything at all would be worth it. So no
    /// model is asked for nothing.
    pub(super) fn sized(
        mut self,
        list: &List,
        messages: &[Message],
        counter: &Counter,
    ) -> Result<Self, Unchanged> {
        let fixed = self.facts.fixed;
        let before = list.counted(&self.facts);
        let empty = self.draft(list, messages, "", counter).sheet.tokens().saturating_add(fixed);
        let spare = |needed| before.saturating_sub(needed).saturating_sub(empty).saturating_sub(SEAM);
        let over = list.over(&self.facts);
        let mut needed = self.policy.worth.of_rounded_up(before).max(1);
        if let Some(room) = over.filter(|_| spare(needed) < LEAST_LIMIT) {
            // What does not fit need only be made to fit.
            needed = before.saturating_sub(room).max(1);
        }
        let spare = spare(needed);
        if spare < LEAST_LIMIT {
            let saves = before.saturating_sub(empty.saturating_add(LEAST_LIMIT));
            return Err(Unchanged::NotWorth { saves, needed });
        }
        let prior = self.prior.as_ref().map_or(0, |text| counter.text(text));
        // What was told before is not what is to be saved: else it would wear away, pass by pass, however little leaves.
        let pressed = self.facts.force == Some(Press::Hard) || over.is_some();
        let told = prior.min(self.policy.limit);
        if spare < told && !pressed {
            let saves = before.saturating_sub(empty.saturating_add(told));
            return Err(Unchanged::NotWorth { saves, needed });
        }
        // Where it can fit the room, it shall.
        let room = self.facts.room.map(|room| list.as_ours(room, &self.facts));
        let room = room.and_then(|room| room.checked_sub(empty.saturating_add(SEAM)));
        let room = room.filter(|room| *room >= LEAST_LIMIT).unwrap_or(Tokens::MAX);
        let half = prior.saturating_add(self.replaces / 2).max(LEAST_LIMIT);
        self.replaces = self.replaces.saturating_add(prior);
        self.limit = self.policy.limit.min(spare).min(half).min(room);
        Ok(self)
    }

    /// What the summarizer reads, oldest first: all that leaves and is not skipped, as it was
    /// written. A summary found among it is not; its text is the [`Plan::prior`].
    pub fn read<'a>(&'a self, messages: &'a [Message]) -> impl Iterator<Item = Cow<'a, Message>> {
        self.read_placed(messages).map(|(_, message)| message)
    }

    fn read_placed<'a>(&'a self, messages: &'a [Message]) -> impl Iterator<Item = (Seq, Cow<'a, Message>)> {
        let placed = |place: &Seq| Some((self.frames.original(*place), self.frames.piece(messages, *place)?));
        self.places.iter().filter_map(placed)
    }

    /// The same with their places in the conversation, for a writer who keeps them: those are what a summary of ours covers,
    /// and differ from the places in the list once that begins with one.
    pub fn told<'a>(&'a self, messages: &'a [Message]) -> impl Iterator<Item = Message> {
        self.read_placed(messages).map(|(place, message)| Message { seq: place, ..message.into_owned() })
    }

    /// The last message of the conversation that the summary will stand for.
    pub fn through(&self) -> Seq {
        self.frames.original(self.standing.from)
    }

    /// The same plan for a writer who is not to build on the summary that stands, because that one only stood in: it is
    /// built on `prior` instead and reads what that leaves `untold` as well, which are so many `tokens`.
    pub fn built_on(mut self, prior: Option<String>, untold: &[Seq], tokens: Tokens) -> Self {
        self.places.extend_from_slice(untold);
        self.places.sort_unstable();
        self.places.dedup();
        self.prior = prior;
        self.replaces = self.replaces.saturating_add(tokens);
        self
    }

    /// The same for `local`: what it picks a summary from, built on what it kept of the one before, or on
    /// that one's text where it kept nothing.
    ///
    /// ```
    /// use epitome_core::condense::{Decision, Facts, List, Policy};
    /// use epitome_core::message::{Message, Timestamp};
    /// use epitome_core::slot::Limit;
    /// use epitome_core::tokens::{Counter, Encoding};
    ///
    /// let counter = Counter::new(Encoding::O200k);
    /// let policy = Policy { trigger: "messages(12)".parse().unwrap(), ..Policy::default() };
    /// let history: Vec<Message> =
    ///     (1..=12).map(|n| Message::user(format!("Order {n} goes to Oslo on ship S{n}042, berth {n}."))).collect();
    /// let mut list = List::default();
    /// list.advance(&history, &counter);
    /// let decision = list.decide(&history, &policy, &Facts::at(Timestamp(0)), &counter);
    /// let Decision::Ask(plan) = decision else { panic!("due at 12") };
    ///
    /// let mut extracts = plan.extracts(&history, None);
    /// let text = extracts.summarize(Limit::Tokens(plan.limit), &counter);
    /// plan.finish(&mut list, &history, &text, &counter).unwrap();
    /// assert_eq!(list.shown(&history).len(), 1 + 6);
    /// ```
    pub fn extracts(&self, messages: &[Message], prior: Option<&Extracts>) -> Extracts {
        let mut extracts = match (prior, &self.prior) {
            (Some(extracts), _) => extracts.clone(),
            (None, Some(text)) => {
                Extracts::of_text(text, self.frames.original(self.span.from).saturating_sub(1))
            }
            (None, None) => Extracts::default(),
        };
        for (place, message) in self.read_placed(messages) {
            extracts.read_at(place, &message);
        }
        extracts
    }

    /// Whether the list was condensed since this was planned, so that it would be refused.
    pub fn is_overtaken(&self, list: &List) -> bool {
        list.has_overtaken(&self.standing)
    }

    /// Whether it can be put into a list that parted from the one it was made for, somewhere [after what it
    /// cuts](Plan::through): no less of it stays, what stays begins where a list may be cut, and what the user said last
    /// does not leave.
    pub fn suits(&self, list: &List) -> bool {
        let from = self.standing.from;
        let Some(place) = list.tail.iter().position(|outline| outline.seq > from) else { return false };
        let asked = list.tail.iter().rfind(|outline| outline.opens_turn);
        let stays = |seq: Seq| seq > from || self.standing.kept.binary_search(&seq).is_ok();
        !self.is_overtaken(list)
            && list.len() as Seq >= self.standing.seen
            && !self.standing.stripped
            && list.cuts(&list.tail).at(place) == Cut::Legal
            && asked.is_none_or(|outline| stays(outline.seq))
    }

    /// Puts the answer in the place of what it summarizes, if that makes the list smaller by enough. A
    /// model's answer should have passed [`crate::inspect`] before: here only its size is judged.
    /// Otherwise the list is as it was, or as the stages before this one leave it.
    pub fn finish(
        self,
        list: &mut List,
        messages: &[Message],
        answer: &str,
        counter: &Counter,
    ) -> Result<Report, Unchanged> {
        if self.is_overtaken(list) {
            return Err(Unchanged::Overtaken);
        }
        // A model that was shown a frame may write one.
        let inside = view::recognise(&Message::user(answer)).map(|found| found.text);
        let report = match inside.as_deref().unwrap_or(answer).trim() {
            "" => Err(Unchanged::EmptyAnswer),
            answer => {
                let draft = self.draft(list, messages, answer, counter);
                let told = format!("Condensed {} into a summary", count(self.leaves, "message"));
                let fixed = self.facts.fixed;
                self.accept(list, Done::after(self.earlier.clone(), self.strategy, draft, told, fixed))
            }
        };
        report.or_else(|reason| self.without_answer(list, messages, counter).map_err(|_| reason))
    }

    /// No summary came. What the stages before this one did is accepted where it is worth it by
    /// itself; else the list is as it was.
    pub fn without_answer(
        self,
        list: &mut List,
        messages: &[Message],
        counter: &Counter,
    ) -> Result<Report, Unchanged> {
        if self.is_overtaken(list) {
            return Err(Unchanged::Overtaken);
        }
        let earlier = self.earlier.as_ref().ok_or(Unchanged::EmptyAnswer)?;
        let standing = list.accepted(earlier.standing().clone(), &self.facts);
        let draft = Draft::new(list, messages, standing, counter);
        self.accept(list, Done { draft, ..earlier.clone() })
    }

    fn draft(&self, list: &List, messages: &[Message], text: &str, counter: &Counter) -> Draft {
        let mut standing = self.standing.clone();
        if let Some(summary) = &mut standing.summary {
            text.clone_into(&mut summary.text);
        }
        Draft::new(list, messages, list.accepted(standing, &self.facts), counter)
    }

    fn accept(&self, list: &mut List, done: Done) -> Result<Report, Unchanged> {
        list.worth(&self.policy, &self.facts, done.tokens())?;
        done.apply(list)
    }
}
