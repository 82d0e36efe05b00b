//! Describes the summary that a model should write, and puts the answer into the list.

use std::borrow::Cow;

use super::divide::{Divided, StageInput};
use super::draft::Draft;
use super::list::{Frames, List, ListState, ListSummary};
use super::shorter_list::ShorterList;
use super::{CondenseReport, LEAST_LIMIT, Policy, Press, RequestFacts, SummaryRole, Unchanged, count};
use crate::local::Extracts;
use crate::message::{Message, Seq, Span, Tokens};
use crate::outline::Cut;
use crate::strategy::Strategy;
use crate::tokens::Counter;
use crate::view;

/// Maximum number of tokens that a text can gain when it is placed in its frame. The tokenizer may split the text
/// differently where the text and the frame meet.
const BOUNDARY: Tokens = 4;

/// A request for a summary. It contains the messages to summarize and the maximum number of tokens of the summary.
///
/// The list may grow while the model writes the summary. The new messages stay in the list. If the list is condensed
/// before the summary is finished, [`CondensePlan::finish`] rejects the plan.
#[derive(Debug, Clone)]
pub struct CondensePlan {
    /// Positions in the list of the first and the last message that leave the list. Messages that always stay may lie
    /// between the two positions.
    pub span: Span,
    /// Text of the current summary, or `None` if there is no summary. The new summary must also cover the content of
    /// this text.
    pub prior: Option<String>,
    /// Maximum number of tokens of the answer. A longer answer would not save enough.
    pub limit: Tokens,
    /// Positions in the list of the messages that the summarizer reads.
    pub positions: Vec<Seq>,
    /// Number of tokens of everything that the answer replaces, the current summary included. The answer must be
    /// smaller.
    pub replaces: Tokens,
    /// The state that the list will have when the plan is finished. The text of the summary is still missing. The list
    /// may grow until the plan is finished.
    pub state: ListState,
    /// Number of messages that leave the list.
    leaves: u64,
    frames: Frames,
    strategy: &'static str,
    policy: Policy,
    facts: RequestFacts,
    /// The shorter list that the earlier stages of the pipeline produced; `None` if they produced no shorter list. It
    /// is applied alone if there is no usable summary.
    earlier: Option<ShorterList>,
}

impl CondensePlan {
    pub(super) fn new(
        input: &StageInput<'_>,
        stage: &Strategy,
        divided: Divided,
        earlier: Option<&ShorterList>,
    ) -> Self {
        let StageInput { list, policy, facts, .. } = *input;
        let Divided { mut state, leave, read, tokens } = divided;
        let prior = state.summary.take().map(|prior| prior.text);
        let ends = (leave.first().copied().unwrap_or(1), leave.last().copied().unwrap_or(1));
        state.summary = Some(ListSummary {
            text: String::new(),
            through: list.frames.original(state.from),
            system: policy.summary_role == SummaryRole::System,
        });
        Self {
            span: Span { from: ends.0, through: ends.1 },
            prior,
            limit: policy.limit,
            positions: read,
            replaces: tokens,
            leaves: leave.len() as u64,
            state: list.accepted(state, facts),
            frames: list.frames.clone(),
            strategy: stage.name(),
            policy: policy.clone(),
            facts: *facts,
            earlier: earlier.cloned(),
        }
    }

    /// Computes the maximum size of the summary. Returns an error if even the shortest useful summary would save too
    /// few tokens, because the model call would have no benefit.
    pub(super) fn sized(
        mut self,
        list: &List,
        messages: &[Message],
        counter: &Counter,
    ) -> Result<Self, Unchanged> {
        let fixed = self.facts.fixed;
        let before = list.counted(&self.facts);
        let empty = self.draft(list, messages, "", counter).view.tokens().saturating_add(fixed);
        let spare = |needed| before.saturating_sub(needed).saturating_sub(empty).saturating_sub(BOUNDARY);
        let over = list.over(&self.facts);
        let mut needed = self.policy.worth.of_rounded_up(before).max(1);
        if let Some(room) = over.filter(|_| spare(needed) < LEAST_LIMIT) {
            // If the list does not fit the window, the new list only needs to fit. It does not need to save the minimum
            // share.
            needed = before.saturating_sub(room).max(1);
        }
        let spare = spare(needed);
        if spare < LEAST_LIMIT {
            let saves = before.saturating_sub(empty.saturating_add(LEAST_LIMIT));
            return Err(Unchanged::NotWorth { saves, needed });
        }
        let prior = self.prior.as_ref().map_or(0, |text| counter.text(text));
        // The limit must allow a summary that is as long as the current one. Otherwise each condensation would shorten
        // the summary further, even if few messages leave the list.
        let pressed = self.facts.force == Some(Press::Hard) || over.is_some();
        let current = prior.min(self.policy.limit);
        if spare < current && !pressed {
            let saves = before.saturating_sub(empty.saturating_add(current));
            return Err(Unchanged::NotWorth { saves, needed });
        }
        // If the window has space for a summary of at least `LEAST_LIMIT` tokens, the limit is small enough that the
        // list and the summary fit the window.
        let room = self.facts.room.map(|room| list.to_local_tokens(room, &self.facts));
        let room = room.and_then(|room| room.checked_sub(empty.saturating_add(BOUNDARY)));
        let room = room.filter(|room| *room >= LEAST_LIMIT).unwrap_or(Tokens::MAX);
        let half = prior.saturating_add(self.replaces / 2).max(LEAST_LIMIT);
        self.replaces = self.replaces.saturating_add(prior);
        self.limit = self.policy.limit.min(spare).min(half).min(room);
        Ok(self)
    }

    /// Returns the messages that the summarizer reads, oldest first and unchanged. These are all messages that leave
    /// the list, except skipped messages. If one of them contains a summary by Epitome, that summary is left out,
    /// because [`CondensePlan::prior`] contains its text.
    pub fn read<'a>(&'a self, messages: &'a [Message]) -> impl Iterator<Item = Cow<'a, Message>> {
        self.read_with_seq(messages).map(|(_, message)| message)
    }

    fn read_with_seq<'a>(&'a self, messages: &'a [Message]) -> impl Iterator<Item = (Seq, Cow<'a, Message>)> {
        let numbered = |position: &Seq| {
            Some((self.frames.original(*position), self.frames.message(messages, *position)?))
        };
        self.positions.iter().filter_map(numbered)
    }

    /// Returns the messages that the summarizer reads, for a caller that stores them. The `seq` of each message is its
    /// position in the conversation. This position differs from the position in the list if the list contains a
    /// summary.
    pub fn read_numbered<'a>(&'a self, messages: &'a [Message]) -> impl Iterator<Item = Message> {
        self.read_with_seq(messages).map(|(seq, message)| Message { seq, ..message.into_owned() })
    }

    /// Returns the position in the conversation of the last message that the summary will cover.
    pub fn through(&self) -> Seq {
        self.frames.original(self.state.from)
    }

    /// Returns the plan with `prior` in place of the current summary. Call this if the current summary is only a
    /// fallback. The summarizer then also reads the messages at the positions in `unread`, because `prior` does not
    /// cover these messages. `tokens` is the total size of these messages, in tokens.
    pub fn built_on(mut self, prior: Option<String>, unread: &[Seq], tokens: Tokens) -> Self {
        self.positions.extend_from_slice(unread);
        self.positions.sort_unstable();
        self.positions.dedup();
        self.prior = prior;
        self.replaces = self.replaces.saturating_add(tokens);
        self
    }

    /// Returns the extracts from which [`crate::local`] selects a summary. The result extends `prior`, the extracts of
    /// the previous summary. If `prior` is `None`, the result extends the text of the previous summary.
    ///
    /// ```
    /// use epitome_core::condense::{Decision, RequestFacts, List, Policy};
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
    /// let decision = list.decide(&history, &policy, &RequestFacts::at(Timestamp(0)), &counter);
    /// let Decision::Summarize(plan) = decision else { panic!("due at 12") };
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
        for (seq, message) in self.read_with_seq(messages) {
            extracts.read_at(seq, &message);
        }
        extracts
    }

    /// Returns whether the list was condensed after this plan was made. If so, [`CondensePlan::finish`] rejects the
    /// plan.
    pub fn is_overtaken(&self, list: &List) -> bool {
        list.was_condensed_after(&self.state)
    }

    /// Returns whether the plan can be applied to `list`. The messages of `list` and of the original list must be
    /// equal, at least up to [the last covered message](CondensePlan::through). The plan can be applied if all of these
    /// conditions are true:
    ///
    /// - `list` was not condensed after the plan was made.
    /// - `list` is not shorter than the original list.
    /// - The messages that stay begin at a legal cut.
    /// - The last user message of `list` stays.
    pub fn can_apply_to(&self, list: &List) -> bool {
        let from = self.state.from;
        let Some(index) = list.tail.iter().position(|outline| outline.seq > from) else { return false };
        let last_user = list.tail.iter().rfind(|outline| outline.opens_turn);
        let stays = |seq: Seq| seq > from || self.state.front.binary_search(&seq).is_ok();
        !self.is_overtaken(list)
            && list.len() as Seq >= self.state.length
            && !self.state.stripped
            && list.cuts(&list.tail).at(index) == Cut::Legal
            && last_user.is_none_or(|outline| stays(outline.seq))
    }

    /// Replaces the summarized messages with `answer` if this saves enough tokens. Otherwise the result of the earlier
    /// stages is applied. If there is no such result, the list does not change. This function checks only the size of
    /// `answer`, so check a model's answer with [`crate::inspect`] first.
    pub fn finish(
        self,
        list: &mut List,
        messages: &[Message],
        answer: &str,
        counter: &Counter,
    ) -> Result<CondenseReport, Unchanged> {
        if self.is_overtaken(list) {
            return Err(Unchanged::Overtaken);
        }
        // A model that was shown a framed summary may repeat the frame.
        let inside = view::recognise(&Message::user(answer)).map(|framed| framed.text);
        let report = match inside.as_deref().unwrap_or(answer).trim() {
            "" => Err(Unchanged::EmptyAnswer),
            answer => {
                let draft = self.draft(list, messages, answer, counter);
                let notice = format!("Condensed {} into a summary", count(self.leaves, "message"));
                let fixed = self.facts.fixed;
                self.accept(
                    list,
                    ShorterList::after(self.earlier.clone(), self.strategy, draft, notice, fixed),
                )
            }
        };
        report.or_else(|reason| self.without_answer(list, messages, counter).map_err(|_| reason))
    }

    /// Finishes the plan without a summary. The result of the earlier stages is applied if this result alone saves
    /// enough tokens. Otherwise the list does not change.
    pub fn without_answer(
        self,
        list: &mut List,
        messages: &[Message],
        counter: &Counter,
    ) -> Result<CondenseReport, Unchanged> {
        if self.is_overtaken(list) {
            return Err(Unchanged::Overtaken);
        }
        let earlier = self.earlier.as_ref().ok_or(Unchanged::EmptyAnswer)?;
        let state = list.accepted(earlier.state().clone(), &self.facts);
        let draft = Draft::new(list, messages, state, counter);
        self.accept(list, ShorterList { draft, ..earlier.clone() })
    }

    fn draft(&self, list: &List, messages: &[Message], text: &str, counter: &Counter) -> Draft {
        let mut state = self.state.clone();
        if let Some(summary) = &mut state.summary {
            text.clone_into(&mut summary.text);
        }
        Draft::new(list, messages, list.accepted(state, &self.facts), counter)
    }

    fn accept(&self, list: &mut List, done: ShorterList) -> Result<CondenseReport, Unchanged> {
        list.worth(&self.policy, &self.facts, done.tokens())?;
        done.apply(list)
    }
}
