//! Condenses one request. `epitome condense` and `POST /v1/condense` share this code.
//!
//! [`Body`] reads the request, and [`Condenser`] decides what to do with the request. Message positions in reports are
//! positions in the caller's list. This module reads no input and writes no output; the command and the route do that.

use epitome::condenser::{Forecast, ForecastReason, MessageForecast};
use epitome::dialect::{Body, Dialect, OwnFields};
use epitome::rules::condense::Press;
use epitome::rules::message::{Content, Message, Part, Seq, Tokens};
use epitome::{Call, Condenser, CondenserBuilder, Error, Report};
use epitome_terminal::flags::whole;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use crate::format::{Format, parse_flag};
use crate::settings::OwnFlag;

/// Options that override the settings for one request. They are the flags of `epitome condense`, and the parameters of
/// `POST /v1/condense`.
#[derive(Debug, Clone, Default, clap::Args, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct CondenseOptions {
    /// The strategy, as in the setting `condense.strategy`
    #[arg(long, value_name = "S")]
    #[param(format = "strategy", example = "summarize")]
    strategy: Option<String>,
    /// How many of the newest messages stay
    #[arg(long, value_name = "N", group = "keep", allow_negative_numbers = true)]
    keep_messages: Option<u64>,
    /// How many of the newest turns stay, instead of a number of messages
    #[arg(long, value_name = "N", group = "keep", allow_negative_numbers = true)]
    keep_turns: Option<u64>,
    /// How many tokens of newest messages stay, instead of messages or turns
    #[arg(long, value_name = "N", group = "keep", allow_negative_numbers = true)]
    keep_tokens: Option<u64>,
    /// How many of the first messages stay, not counting leading system messages
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    keep_first: Option<u64>,
    /// When condensing is due, such as tokens(n), window(fraction), any(.., ..)
    #[arg(long, value_name = "EXPR")]
    #[param(format = "trigger", example = "any(tokens(170000), messages(400))")]
    trigger: Option<String>,
    /// The model's window in tokens [default: the window of the request's model]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    #[param(minimum = 1)]
    window: Option<u64>,
    /// The provider's token count of the request; replaces Epitome's count
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    #[param(minimum = 1)]
    counted: Option<u64>,
    /// Condenses even if the trigger is not met
    #[arg(long)]
    #[serde(default)]
    force: bool,
    /// Model that writes the summary: local, or a model in the settings
    #[arg(long, value_name = "M")]
    #[param(format = "model", min_length = 1, max_length = 128)]
    model: Option<String>,
    /// Format of the input
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    #[arg(help = format!("Input format: {} [default: detected]", Dialect::names(&provider_formats())))]
    format: Option<Format>,
    /// Removes Epitome's flags from the messages
    #[arg(long)]
    #[serde(default)]
    strip: bool,
    /// Changes nothing; reports which messages would be removed, and why
    #[arg(long, conflicts_with = "strip")]
    #[serde(default)]
    pub(crate) explain: bool,
}

fn format(name: &str) -> Result<Format, String> {
    parse_flag(name, &provider_formats()).map(Format)
}

/// Returns the formats of providers: all formats except Epitome's own format.
fn provider_formats() -> Vec<Dialect> {
    Dialect::all().into_iter().filter(|dialect| !dialect.format().about().is_native).collect()
}

impl CondenseOptions {
    /// Returns the options that are settings. Each entry has the flag, the setting's full key, and the value.
    pub(crate) fn settings(&self) -> Result<Vec<OwnFlag>, String> {
        for (name, number) in [("window", self.window), ("counted", self.counted)] {
            if number == Some(0) {
                return Err(format!("{name}: expected a whole number from 1"));
            }
        }
        let keeps = [
            ("--keep-messages", "messages", self.keep_messages),
            ("--keep-turns", "turns", self.keep_turns),
            ("--keep-tokens", "tokens", self.keep_tokens),
        ];
        let keeps = keeps.into_iter().filter_map(|(flag, unit, number)| {
            number.map(|number| (flag, "condense.keep", format!("{unit}({number})").into()))
        });
        if keeps.clone().count() > 1 {
            return Err("keep_messages, keep_turns, keep_tokens: use one of them".to_owned());
        }
        let texts = [
            ("--strategy", "condense.strategy", &self.strategy),
            ("--trigger", "condense.trigger", &self.trigger),
            ("--model", "condense.model", &self.model),
        ];
        let texts =
            texts.into_iter().filter_map(|(flag, key, text)| Some((flag, key, text.as_deref()?.into())));
        let first = self.keep_first.map(|first| ("--keep-first", "condense.keep_first", first.into()));
        Ok(keeps.chain(texts).chain(first).collect())
    }
}

/// A request, or a bare list of messages.
pub(crate) struct CondenseRequest {
    body: Body,
    options: CondenseOptions,
}

/// The result of condensing a request.
pub(crate) struct CondenseOutcome {
    /// The condensed request. None if the request stays unchanged, byte for byte.
    pub(crate) text: Option<String>,
    pub(crate) report: Report,
}

impl CondenseOutcome {
    /// Whether a summary should have been written, and its model failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.report.reason == Report::MODEL_FAILED
    }
}

/// The reason in the report of a request whose history the provider stores or shortens itself.
const REMOTE_HISTORY: &str = "elsewhere";

impl CondenseRequest {
    /// Reads a request. The error is one line without any message content.
    pub(crate) fn read(text: &str, options: CondenseOptions) -> Result<Self, String> {
        // Skips a byte order mark, because some programs write one at the beginning of every file.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let body = Body::read(text, options.format.map(|format| format.0)).map_err(|error| {
            match error.to_string() {
                // An error about the whole input names no field, so this code adds a subject.
                whole if whole.starts_with("is ") => format!("the input {whole}"),
                part => part,
            }
        })?;
        Ok(Self { body, options })
    }

    /// Builds a condenser for the model of this request. The condenser condenses only this request. If the model fails,
    /// it writes no fallback summary.
    pub(crate) fn condenser(&self, builder: CondenserBuilder) -> Result<Condenser, Error> {
        let mut builder = builder.one_shot();
        if let Some(model) = self.body.model() {
            builder = builder.for_model(model);
        }
        if let Some(window) = self.options.window {
            builder = builder.window(window);
        }
        if let Some(output) = self.body.max_output() {
            builder = builder.output_reserve(output);
        }
        builder.build()
    }

    /// Shortens the list if condensing is due.
    pub(crate) async fn condense(&self, condenser: &Condenser) -> CondenseOutcome {
        if let Some(field) = self.body.remote_history() {
            return CondenseOutcome {
                text: self.unchanged(),
                report: self.remote_history_report(field, condenser),
            };
        }
        let ready = condenser.before(self.call(condenser)).await;
        let mut report = ready.report.clone();
        report.covers = report.covers.map(|covers| self.body.list_positions(covers));
        report.messages_before = self.len();
        report.messages_after = report.messages_before;
        if ready.is_untouched() {
            return CondenseOutcome { text: self.unchanged(), report };
        }
        let marks = if self.options.strip { OwnFields::Strip } else { OwnFields::Keep };
        let text = self.body.with_messages(&ready, marks);
        // Some formats merge neighbouring messages, so the count comes from the written result.
        if let Ok(body) = Body::read(&text, Some(self.body.dialect())) {
            report.messages_after = Self { body, options: CondenseOptions::default() }.len();
        }
        CondenseOutcome { text: Some(text), report }
    }

    /// Returns the request unchanged, because the summary was not written in time. `why` is the reason.
    pub(crate) fn abandoned(&self, condenser: &Condenser, why: &str) -> CondenseOutcome {
        let report = Report {
            reason: Report::MODEL_FAILED.to_owned(),
            notice: format!("unchanged: {why}"),
            problems: vec![why.to_owned()],
            ..self.report(condenser)
        };
        CondenseOutcome { text: self.unchanged(), report }
    }

    /// Returns a forecast of what condensing would do with the request. Calls no model.
    pub(crate) fn forecast(&self, condenser: &Condenser) -> Forecast {
        let forecast = condenser.forecast(&self.call(condenser));
        match self.body.remote_history() {
            None => forecast,
            Some(field) => {
                let messages = forecast.messages.into_iter();
                let messages = messages.map(|fate| MessageForecast {
                    stays: true,
                    why: ForecastReason::Untouched,
                    ..fate
                });
                Forecast {
                    condenses: false,
                    reason: REMOTE_HISTORY.to_owned(),
                    explanation: remote_history_notice(field),
                    tokens_after: forecast.tokens,
                    summary: None,
                    model: None,
                    messages: messages.collect(),
                    ..forecast
                }
            }
        }
    }

    /// Whether a summary would have to be written.
    pub(crate) fn needs_summary(&self, condenser: &Condenser) -> bool {
        self.forecast(condenser).summary.is_some()
    }

    /// Returns the format in which the request was read.
    pub(crate) fn dialect(&self) -> Dialect {
        self.body.dialect()
    }

    /// Returns the model that the request names.
    pub(crate) fn model(&self) -> Option<&str> {
        self.body.model()
    }

    /// Returns the number of messages in the list.
    pub(crate) fn len(&self) -> u64 {
        let last = self.body.messages().len() as Seq;
        if last == 0 { 0 } else { self.body.list_positions([1, last])[1] }
    }

    /// Returns a message's position in the list; the first position is 1. Returns None for a system prompt that is a
    /// separate field of the request.
    pub(crate) fn position(&self, seq: Seq) -> Option<u64> {
        // `list_positions` returns the same position for a separate field and for the message after the field.
        let [place, _] = self.body.list_positions([seq, seq]);
        let field = seq == 1
            && self.body.messages().first().is_some_and(|first| first.role.is_system())
            && self.body.list_positions([2, 2])[0] == place;
        (!field).then_some(place)
    }

    /// Returns the first words of a message.
    pub(crate) fn preview(&self, fate: &MessageForecast) -> String {
        let at = usize::try_from(fate.position).ok().and_then(|place| place.checked_sub(1));
        at.and_then(|at| self.body.messages().get(at)).map(preview).unwrap_or_default()
    }

    /// Returns a forecast as JSON. The JSON lists every message, with the message's position in the caller's list.
    pub(crate) fn forecast_json(&self, forecast: &Forecast) -> Value {
        let messages = forecast.messages.iter().map(|fate| {
            json!({
                "place": self.position(fate.position),
                "role": fate.role,
                "tokens": fate.tokens,
                "stays": fate.stays,
                "why": fate.why,
                "begins": self.preview(fate),
            })
        });
        let messages: Vec<Value> = messages.collect();
        // The forecast also has the explanation in the field `told`, which is the older name.
        let explanation = &forecast.explanation;
        let mut json =
            json!({"format": self.dialect().name(), "for_model": self.model(), "explanation": explanation});
        if let (Some(fields), Ok(Value::Object(rest))) =
            (json.as_object_mut(), serde_json::to_value(forecast))
        {
            fields.extend(rest);
            fields.insert("messages".to_owned(), Value::Array(messages));
        }
        json
    }

    fn call(&self, condenser: &Condenser) -> Call<'_> {
        Call {
            fixed: self.body.extra_tokens(condenser.counter()),
            counted: self.options.counted,
            force: self.options.force.then_some(Press::Gently),
            ..Call::of(self.body.messages())
        }
    }

    fn unchanged(&self) -> Option<String> {
        let stripped = self.options.strip.then(|| self.body.without_own_fields())?;
        (stripped != self.body.text()).then_some(stripped)
    }

    fn remote_history_report(&self, field: &str, condenser: &Condenser) -> Report {
        Report {
            reason: REMOTE_HISTORY.to_owned(),
            notice: remote_history_notice(field),
            ..self.report(condenser)
        }
    }

    /// Returns the report of a request that is not changed.
    fn report(&self, condenser: &Condenser) -> Report {
        let counter = condenser.counter();
        let list = self.body.messages().iter().map(|message| counter.message(message));
        let tokens = list.fold(self.body.extra_tokens(counter), Tokens::saturating_add);
        Report {
            messages_before: self.len(),
            messages_after: self.len(),
            tokens_before: tokens,
            tokens_after: tokens,
            ..Report::default()
        }
    }
}

/// Returns the notice for a request whose history the provider stores or shortens itself.
pub(crate) fn remote_history_notice(field: &str) -> String {
    format!("unchanged: with {field}, the provider itself stores or shortens the history")
}

/// Number of characters at the beginning of a text that a preview can show.
const MAX_PREVIEW_CHARS: usize = 100;

/// Returns a message's first words, on one line.
fn preview(message: &Message) -> String {
    let content = |content: &Content| match content {
        Content::Text { text } => text.chars().take(MAX_PREVIEW_CHARS).collect(),
        Content::Media(media) => format!("[{}]", media.mime),
    };
    let words = message.parts.iter().find_map(|part| {
        let words = match part {
            Part::Text { text } => text.chars().take(MAX_PREVIEW_CHARS).collect(),
            Part::Thinking { .. } => return None,
            Part::ToolCall(call) => {
                format!(
                    "→ {} {}",
                    call.name,
                    call.arguments.chars().take(MAX_PREVIEW_CHARS).collect::<String>()
                )
            }
            Part::ToolResult(result) => {
                format!("← {}", result.content.first().map(content).unwrap_or_default())
            }
            Part::Media(media) => format!("[{}]", media.mime),
        };
        Some(words).filter(|words: &String| !words.trim().is_empty())
    });
    words.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}
