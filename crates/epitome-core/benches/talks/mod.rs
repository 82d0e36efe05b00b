//! Talk to be summed up: endless, drawn with dice, the same in every run, and never the same twice
//! within one.
//!
//! Words come from a vocabulary of thousands, common ones more often, as in any language; names,
//! paths, ids and figures are coined as they are needed. No text is long enough to be read by its
//! ends alone.

use epitome_core::message::{Message, Part, Role};

/// What sort of talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Two people, a few sentences each.
    Prose,
    /// An agent that reads code and runs tests.
    Coding,
    /// An agent whose tools answer in JSON.
    Json,
    Russian,
    Japanese,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Prose, Self::Coding, Self::Json, Self::Russian, Self::Japanese];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prose => "prose",
            Self::Coding => "coding",
            Self::Json => "JSON outputs",
            Self::Russian => "Russian",
            Self::Japanese => "Japanese",
        }
    }
}

const SYLLABLES: &str =
    "ba ren tok mi sul per ven qua zor ith lam ek dro fin hul ast ny gre pol ux ca shi wod jel";
const COMMON: &str = "the a of to and in that it is was for on with as we you they this but not have from \
    at by or an be are which had were there when what about would could should because then after before \
    before while please look again today tomorrow yesterday first last only still never always";
const RUSSIAN: &str =
    "ба рен ток ми суль пер вен ква зор ит лам эк дро фин хул аст ны гре пол ус ка ши вод жел";
const RUSSIAN_COMMON: &str = "и в не на что я с он как это по но они мы из за то все так его к у же вы бы \
    был быть уже или если когда только потом сегодня завтра вчера чтобы надо можно после перед";

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a>(&mut self, from: &'a [String]) -> &'a str {
        &from[self.roll(from.len())]
    }

    /// Few are common and most are rare.
    fn word<'a>(&mut self, from: &'a [String]) -> &'a str {
        let within = 1 + self.roll(from.len());
        &from[self.roll(within)]
    }
}

/// An endless talk, message by message.
pub(crate) struct Talks {
    kind: Kind,
    dice: Dice,
    common: Vec<String>,
    words: Vec<String>,
    said: u64,
}

impl Talks {
    pub(crate) fn new(kind: Kind) -> Self {
        let mut dice = Dice(42);
        let (syllables, common) =
            if kind == Kind::Russian { (RUSSIAN, RUSSIAN_COMMON) } else { (SYLLABLES, COMMON) };
        let syllables: Vec<&str> = syllables.split_whitespace().collect();
        let mut coin = || (0..2 + dice.roll(3)).map(|_| syllables[dice.roll(syllables.len())]).collect();
        let words = (0..8_000).map(|_| coin()).collect();
        let common = common.split_whitespace().map(str::to_owned).collect();
        Self { kind, dice, common, words, said: 0 }
    }

    /// At least so many bytes of it.
    pub(crate) fn bytes(kind: Kind, least: u64) -> Vec<Message> {
        let mut sum = 0;
        let enough = |message: &Message| {
            let more = sum < least;
            sum += message.bytes();
            more
        };
        Self::new(kind).take_while(enough).collect()
    }

    fn word(&mut self) -> &str {
        if self.dice.roll(2) == 0 { self.dice.pick(&self.common) } else { self.dice.word(&self.words) }
    }

    fn capital(&mut self) -> String {
        let word = self.dice.word(&self.words);
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
    }

    fn sentence(&mut self) -> String {
        if self.kind == Kind::Japanese {
            return self.japanese();
        }
        let mut sentence = self.capital();
        for _ in 0..4 + self.dice.roll(16) {
            sentence.push(' ');
            let word = match self.dice.roll(24) {
                0 => self.capital(),
                1 => self.dice.roll(10_000).to_string(),
                2 => format!("{},", self.word()),
                _ => self.word().to_owned(),
            };
            sentence.push_str(&word);
        }
        sentence.push(['.', '.', '.', '?', '!'][self.dice.roll(5)]);
        sentence
    }

    fn japanese(&mut self) -> String {
        let mut sentence = String::new();
        let mut letter = |from: u32, many: usize, dice: &mut Dice| {
            sentence.extend(char::from_u32(from + u32::try_from(dice.roll(many)).unwrap()));
        };
        for _ in 0..4 + self.dice.roll(12) {
            match self.dice.roll(8) {
                0 => (0..3).for_each(|_| letter(0x30a2, 80, &mut self.dice)),
                1 => letter('0' as u32, 10, &mut self.dice),
                _ => (0..2).for_each(|_| letter(0x4e00, 3_000, &mut self.dice)),
            }
            (0..1 + self.dice.roll(3)).for_each(|_| letter(0x3042, 80, &mut self.dice));
        }
        sentence.push(['。', '。', '、', '？'][self.dice.roll(4)]);
        sentence
    }

    fn text(&mut self, sentences: usize) -> String {
        (0..1 + self.dice.roll(sentences)).map(|_| self.sentence()).collect::<Vec<_>>().join(" ")
    }

    fn path(&mut self) -> String {
        let folders: Vec<&str> = (0..1 + self.dice.roll(3)).map(|_| self.dice.word(&self.words)).collect();
        format!("src/{}/{}.rs", folders.join("/"), self.dice.word(&self.words))
    }

    /// Forty to ninety lines: code, a listing, or what a test run prints.
    fn output(&mut self) -> String {
        let sort = self.dice.roll(3);
        let mut text = String::new();
        for nth in 0..40 + self.dice.roll(50) {
            let number = self.dice.roll(100_000);
            let (a, b) = (self.dice.word(&self.words).to_owned(), self.dice.word(&self.words).to_owned());
            text += &match sort {
                0 if nth % 9 == 8 => format!("    }}\n\n    /// {}\n", self.sentence()),
                0 => format!("    let {a}_{b} = self.{b}.get(&{number})?; // {}\n", self.word()),
                1 => format!("{}:{number}: pub fn {a}_{b}({a}: &str) -> usize {{\n", self.path()),
                _ if nth % 23 == 7 => {
                    format!("thread '{a}::{b}' panicked at {}:{number}:9: assertion failed\n", self.path())
                }
                _ => format!("test {a}::{b}_{number} ... ok\n"),
            };
        }
        text
    }

    fn json(&mut self) -> String {
        let pretty = self.dice.roll(2) == 0;
        let rows: Vec<serde_json::Value> = (0..10 + self.dice.roll(25))
            .map(|_| {
                let number = self.dice.roll(1 << 30);
                serde_json::json!({
                    "id": format!("{number:08x}-{}", self.dice.roll(1 << 30)),
                    "name": self.capital(),
                    "path": self.path(),
                    "size": number,
                    "tags": [self.word(), self.word()],
                    "note": self.sentence(),
                    "ok": number.is_multiple_of(2),
                })
            })
            .collect();
        if pretty { serde_json::to_string_pretty(&rows) } else { serde_json::to_string(&rows) }.unwrap()
    }
}

impl Iterator for Talks {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        self.said += 1;
        let said = self.said;
        if !matches!(self.kind, Kind::Coding | Kind::Json) {
            let text = self.text(8);
            return Some(if said % 2 == 1 { Message::user(text) } else { Message::assistant(text) });
        }
        // A request, three calls with their outputs, an answer.
        let id = format!("call_{}", said / 2);
        Some(match said % 8 {
            1 => Message::user(self.text(4)),
            0 => Message::assistant(self.text(8)),
            n if n.is_multiple_of(2) => {
                let arguments = serde_json::json!({ "path": self.path(), "find": self.word() });
                Message::new(Role::Assistant, [Part::call(id, "search", arguments.to_string())])
            }
            _ => {
                let text = if self.kind == Kind::Json { self.json() } else { self.output() };
                Message::tool(id, text)
            }
        })
    }
}
