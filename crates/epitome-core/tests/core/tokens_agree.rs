//! Compares the counts with a second tokenizer, a port of OpenAI's own code.
//!
//! The two share only the vocabularies: one splits text with a regular expression with look-ahead, the other
//! mostly by hand. If they agree on difficult text, both are likely correct.

use epitome_core::tokens::{Counter, Encoding};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tiktoken_rs::CoreBPE;

fn oracle(encoding: Encoding) -> &'static CoreBPE {
    match encoding {
        Encoding::O200k => tiktoken_rs::o200k_base_singleton(),
        Encoding::Cl100k => tiktoken_rs::cl100k_base_singleton(),
        Encoding::P50k => tiktoken_rs::p50k_base_singleton(),
        Encoding::R50k => tiktoken_rs::r50k_base_singleton(),
    }
}

fn agree(encoding: Encoding, text: &str) -> Result<(), TestCaseError> {
    let ours = Counter::new(encoding).text(text);
    let theirs = oracle(encoding).encode_ordinary(text).len() as u64;
    prop_assert_eq!(ours, theirs, "{} on {:?}", encoding, text);
    Ok(())
}

const PROSE: &[&str] = &[
    "The build failed again, didn't it? We'll see; they've said so, I'd guess it's THEY'RE fault.",
    "Voilà un résumé: l'été, où ça? Straße, ÅNGSTRÖM, naïve coöperation.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "مرحبا بالعالم، كيف حالك اليوم؟ ١٢٣٤",
    "नमस्ते दुनिया, आप कैसे हैं?",
    "1234567890 3.14159 1,000,000 0xDEADBEEF ½ Ⅷ ٣",
];

const CODE: &[&str] = &[
    "fn main() {\n    let x: Vec<u8> = b\"abc\"[..].to_vec();\n\tprintln!(\"{x:?}\");\n}\n",
    "def f(a, *, b=None):\r\n        return {**a, 'b': b}  # noqa: E501\r\n\r\n",
    "SELECT \"id\", count(*) FROM t WHERE x >= $1 AND y <> '' GROUP BY 1;--",
    "{\"path\": \"src/lib.rs\", \"lines\": [1, 2, 3], \"ok\": true}",
    "getHTTPResponseCode snake_case_name SCREAMING_CASE kebab-case a.b->c::d",
    "<div class=\"a b\">&nbsp;</div><!-- x -->",
    "https://example.org/a/b?c=d&e=%20f#g //// ==== ---- ....",
];

const CJK: &[&str] = &[
    "今天天气很好，我们去公园散步吧。",
    "日本語の文章をトークンに分割する。ﾊﾝｶｸ",
    "한국어 문장을 토큰으로 나눕니다.",
    "你好world混合text测试123",
];

const EMOJI: &[&str] = &["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇯🇵", "🙂🙂🙂", "e\u{301}", "\u{200b}\u{feff}", "Z̸̡͝a̴l̶g̵o̶"];

const LOOK_ALIKES: &[&str] = &[
    "<|endoftext|>",
    "<|im_start|>system<|im_sep|>",
    "<|im_end|>",
    "<|fim_prefix|><|fim_middle|><|fim_suffix|>",
    "<|endofprompt|>",
    "<|start|>assistant<|channel|>analysis<|message|>",
    "<|",
    "|>",
    "[INST] <<SYS>> </s> <s>",
];

const SPACES: &[&str] = &[
    " ",
    "  ",
    "\n",
    "\n\n\n",
    "\r\n",
    "\r",
    "\t\t",
    " \n ",
    "   \n",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "\u{b}\u{c}\u{85}",
];

/// Pieces of many kinds, one after another, so that every kind meets every other.
fn awkward() -> impl Strategy<Value = String> {
    let one_of = |samples: &'static [&'static str]| prop::sample::select(samples).prop_map(str::to_owned);
    let piece = prop_oneof![
        1 => one_of(PROSE),
        1 => one_of(CODE),
        1 => one_of(CJK),
        1 => one_of(EMOJI),
        1 => one_of(LOOK_ALIKES),
        3 => one_of(SPACES),
        2 => "[a-zA-Z0-9'_ \n\r/.]{1,12}",
        // Any character, and characters of the planes that contain words.
        1 => any::<String>(),
        1 => prop::collection::vec(prop::char::range('\u{80}', '\u{ffff}'), 1..8).prop_map(|chars| chars.into_iter().collect()),
        1 => (any::<char>(), 1..40_usize).prop_map(|(char, times)| char.to_string().repeat(times)),
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(epitome_testkit::budget::config(5_000))]

    #[test]
    fn o200k_agrees_on_awkward_text(text in awkward()) {
        agree(Encoding::O200k, &text)?;
    }

    #[test]
    fn cl100k_agrees_on_awkward_text(text in awkward()) {
        agree(Encoding::Cl100k, &text)?;
    }
}

proptest! {
    #![proptest_config(epitome_testkit::budget::config(1_000))]

    #[test]
    fn the_older_encodings_agree_on_awkward_text(text in awkward()) {
        agree(Encoding::P50k, &text)?;
        agree(Encoding::R50k, &text)?;
    }
}

#[test]
fn every_sample_agrees_alone_and_all_together() -> Result<(), TestCaseError> {
    let samples = [PROSE, CODE, CJK, EMOJI, LOOK_ALIKES, SPACES].concat();
    for encoding in Encoding::ALL {
        for sample in &samples {
            agree(encoding, sample)?;
        }
        agree(encoding, &samples.concat())?;
        agree(encoding, &samples.join(" "))?;
    }
    Ok(())
}
