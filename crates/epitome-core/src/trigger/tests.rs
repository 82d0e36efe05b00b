use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Trigger {
    text.parse().unwrap()
}

fn refusal(text: &str) -> String {
    text.parse::<Trigger>().unwrap_err().to_string()
}

fn reason(trigger: &str, facts: &TriggerFacts<'_>) -> String {
    read(trigger).reason(facts).unwrap_or_else(|| panic!("{trigger}")).to_string()
}

/// 20 messages in 5 turns, the first at second 1,000, the last at second 1,090.
fn totals() -> Totals {
    Totals {
        messages: 20,
        turns: 5,
        tokens: 4_100,
        chars: 16_000,
        longest: 700,
        last_seq: 20,
        last_at: Timestamp(1_090_000),
        since: Some(Timestamp(1_000_000)),
        last_turn: 5,
    }
}

#[test]
fn every_name_is_read_with_its_argument() {
    let text = "all(messages(1), turns(2), tokens(3), chars(4), window(0.5), every(6), idle(7), \
                economic, important(8), any())";
    let trigger = Trigger::all([
        Trigger::Messages(1),
        Trigger::Turns(2),
        Trigger::Tokens(3),
        Trigger::Chars(4),
        Trigger::Window(Fraction::new(0.5).unwrap()),
        Trigger::Every(6),
        Trigger::Idle(7),
        Trigger::Economic,
        Trigger::Important(8),
        Trigger::any([]),
    ]);
    assert_eq!(read(text), trigger);
    assert_eq!(trigger.to_string(), text);
}

#[test]
fn a_missing_argument_takes_its_default_where_there_is_one() {
    for bare in ["messages", "turns", "every", "important"] {
        assert_eq!(read(bare), read(&format!("{bare}()")));
    }
    assert_eq!(
        read("all(messages, turns, every, important)").to_string(),
        "all(messages(30), turns(100), every(300), important(10))"
    );
    assert_eq!(refusal("tokens"), "tokens: a value is missing; expected a whole number from 1");
    assert_eq!(refusal("chars()"), "chars: a value is missing; expected a whole number from 1");
    assert_eq!(refusal("idle"), "idle: a value is missing; expected a whole number of seconds from 1");
    assert!(refusal("window()").starts_with("window: a value is missing; expected a number more than 0"));
}

#[test]
fn a_bad_value_is_refused_by_name_with_what_is_allowed() {
    for name in ["messages", "turns", "tokens", "chars", "every", "idle"] {
        let unit = if matches!(name, "every" | "idle") { " of seconds" } else { "" };
        for bad in ["0", "-1", "1.5", "NaN"] {
            let refused = format!("{name}: {bad} is not allowed; expected a whole number{unit} from 1");
            assert_eq!(refusal(&format!("any({name}({bad}))")), refused);
        }
        let large = "99999999999999999999";
        let refused = format!("{name}: {large} is not allowed; expected a number of at most 19 digits");
        assert_eq!(refusal(&format!("{name}({large})")), refused);
    }
    for bad in ["0", "1.5", "1.0000001", "-0.5", "0.0000001", "NaN", "inf", "1e999", "messages(3)"] {
        let error = refusal(&format!("window({bad})"));
        assert!(error.ends_with(
            "is not allowed; expected a number more than 0 and at most 1 (0.75 for 75 %), rounded to a millionth"
        ));
        assert!(error.starts_with("window: "), "{error}");
    }
    assert_eq!(refusal("important(-1)"), "important: -1 is not allowed; expected a whole number");
    assert_eq!(refusal("all(messages(2), 3)"), "all: 3 is not allowed; expected a trigger");
}

#[test]
fn an_unknown_name_is_refused_with_the_names_there_are() {
    assert_eq!(
        refusal("any(message(20))"),
        "position 5: `message` is unknown; did you mean `messages`? expected one of messages, turns, tokens, chars, window, every, \
         idle, economic, important, all, any"
    );
    assert!(refusal("Messages(20)").contains("`Messages` is unknown"));
}

#[test]
fn too_many_arguments_are_refused() {
    assert_eq!(refusal("messages(1, 2)"), "messages: too many arguments (2); the maximum is 1");
    assert_eq!(refusal("window(1, 2, 3)"), "window: too many arguments (3); the maximum is 1");
    assert_eq!(refusal("economic(1)"), "economic: too many arguments (1); the maximum is 0");
}

#[test]
fn a_trigger_too_long_to_be_parsed_again_is_refused() {
    let short_to_type = format!("any({})", vec!["every"; 600].join(","));
    assert!(short_to_type.len() < expr::MAX_BYTES);
    assert!(refusal(&short_to_type).contains("bytes when written in full; at most 4096 are allowed"));
}

#[test]
fn a_trigger_made_by_hand_is_checked_like_a_read_one() {
    let check = |trigger: &Trigger| trigger.check(Use::Inline, Some(1)).unwrap_err().to_string();
    let zero = Trigger::any([Trigger::Messages(0)]);
    assert_eq!(check(&zero), "messages: 0 is not allowed; expected a whole number from 1");
    let deep = (0..1_000).fold(Trigger::Economic, |inner, _| Trigger::all([inner]));
    assert_eq!(check(&deep), "the expression: nested too deeply; at most 32 levels are allowed");
    let broad = Trigger::any(vec![Trigger::Economic; 1_000]);
    assert!(check(&broad).contains("bytes when written in full; at most 4096 are allowed"));
}

#[test]
fn serde_uses_the_readable_form() {
    let trigger: Trigger = serde_json::from_str(r#""any(messages, window(.75))""#).unwrap();
    assert_eq!(serde_json::to_string(&trigger).unwrap(), r#""any(messages(30), window(0.75))""#);
    let error = serde_json::from_str::<Trigger>(r#""messages(0)""#).unwrap_err().to_string();
    assert!(error.starts_with("trigger: messages: 0 is not allowed; expected a whole number from 1"));
    assert!(serde_json::from_str::<Trigger>("20").is_err());
}

#[test]
fn a_fraction_is_a_number_to_serde_and_checked() {
    let fraction = |json: &str| serde_json::from_str::<Fraction>(json);
    assert_eq!(serde_json::to_string(&fraction("0.8").unwrap()).unwrap(), "0.8");
    assert_eq!(fraction("1").unwrap(), Fraction::ONE);
    assert!(fraction("0").is_err() && fraction("1.1").is_err() && fraction("-1").is_err());
}

#[test]
fn a_share_is_exact_where_floating_point_would_not_be() {
    let share = |value: f64| Fraction::new(value).unwrap();
    // As floats, 0.07 * 100 is more than 7 and 0.29 * 100 less than 29.
    assert_eq!(share(0.07).of_rounded_up(100), 7);
    assert_eq!(share(0.29).of(100), 29);
    assert_eq!(Fraction::ONE.of(u64::MAX), u64::MAX);
    assert_eq!(Fraction::ONE.of_rounded_up(u64::MAX), u64::MAX);
}

#[test]
fn a_threshold_is_met_when_reached() {
    let totals = totals();
    let facts = TriggerFacts { room: Some(8_200), ..TriggerFacts::new(&totals, Timestamp(1_090_000)) };
    for (met, not_met) in [
        ("messages(20)", "messages(21)"),
        ("turns(5)", "turns(6)"),
        ("tokens(4100)", "tokens(4101)"),
        ("chars(16000)", "chars(16001)"),
        ("window(0.5)", "window(0.500001)"),
    ] {
        assert!(read(met).when(&facts).is_now(), "{met}");
        assert_eq!(read(not_met).when(&facts), When::Never, "{not_met}");
    }
}

#[test]
fn important_wants_strictly_longer() {
    let totals = totals();
    let facts = TriggerFacts::new(&totals, Timestamp(0));
    assert_eq!(reason("important(699)", &facts), "important: 700 of more than 699");
    assert_eq!(read("important(700)").when(&facts), When::Never);

    let totals = Totals { longest: u64::MAX, ..totals };
    let facts = TriggerFacts::new(&totals, Timestamp(0));
    assert_eq!(Trigger::Important(u64::MAX).when(&facts), When::Never);
}

#[test]
fn every_runs_from_the_last_firing_and_idle_from_the_last_message() {
    let totals = totals();
    let at = |seconds: i64| TriggerFacts::new(&totals, Timestamp(seconds * 1_000));
    assert_eq!(read("every(100)").when(&at(1_099)), When::At(Timestamp(1_100_000)));
    assert_eq!(reason("every(100)", &at(1_100)), "every: 100 of 100 s");
    assert_eq!(read("idle(100)").when(&at(1_100)), When::At(Timestamp(1_190_000)));
    assert_eq!(reason("idle(100)", &at(1_250)), "idle: 160 of 100 s");
}

#[test]
fn a_clock_that_went_back_only_delays() {
    let totals = totals();
    let facts = TriggerFacts::new(&totals, Timestamp(0));
    assert_eq!(read("idle(100)").when(&facts), When::At(Timestamp(1_190_000)));
    assert_eq!(read("idle(100)").progress(&facts).to_string(), "idle 0 of 100 s");
}

#[test]
fn the_end_of_time_is_no_trap() {
    for moment in [i64::MIN, 0, i64::MAX] {
        let totals = Totals { since: Some(Timestamp(moment)), last_at: Timestamp(moment), ..totals() };
        for now in [i64::MIN, 0, i64::MAX] {
            let facts = TriggerFacts::new(&totals, Timestamp(now));
            let trigger = Trigger::all([Trigger::Every(u64::MAX), Trigger::Idle(u64::MAX)]);
            let _ = (trigger.when(&facts), trigger.progress(&facts).to_string());
        }
    }
}

#[test]
fn inline_the_whole_request_is_measured() {
    let totals = totals();
    let slot = TriggerFacts { room: Some(10_000), ..TriggerFacts::new(&totals, Timestamp(0)) };
    let inline = TriggerFacts { request: Some(9_000), economic: Some(9_000), ..slot };
    assert_eq!(read("any(tokens(9000), window(0.9), economic)").when(&slot), When::Never);
    assert_eq!(reason("tokens(9_000)", &inline), "tokens: 9,000 of 9,000");
    assert_eq!(reason("window(0.9)", &inline), "window: 9,000 of 9,000");
    assert_eq!(reason("economic", &inline), "economic: 9,000 of 9,000");
}

#[test]
fn without_its_data_a_condition_is_never_met() {
    let totals = totals();
    let facts = TriggerFacts { request: Some(u64::MAX), ..TriggerFacts::new(&totals, Timestamp(0)) };
    assert_eq!(read("any(window(0.000001), economic)").when(&facts), When::Never);
    let priced = TriggerFacts { request: None, economic: Some(1), ..facts };
    assert_eq!(Trigger::Economic.when(&priced), When::Never);
    assert_eq!(Trigger::Economic.progress(&priced).to_string(), "economic 4,100 of an unknown threshold");
}

#[test]
fn nothing_is_due_when_nothing_new_was_counted() {
    let totals = Totals { messages: 0, ..totals() };
    let facts = TriggerFacts { request: Some(u64::MAX), ..TriggerFacts::new(&totals, Timestamp(i64::MAX)) };
    for trigger in ["all()", "any(all())", "idle(1)", "tokens(1)", "important(0)"] {
        assert_eq!(read(trigger).when(&facts), When::Never, "{trigger}");
    }
    assert!(read("turns(5)").progress(&facts).to_string().starts_with("no new messages; turns 5 of 5"));
}

#[test]
fn an_empty_all_is_true_and_an_empty_any_false() {
    let totals = totals();
    let facts = TriggerFacts::new(&totals, Timestamp(0));
    assert_eq!(reason("all()", &facts), "all(): has no conditions, so it is always due");
    assert_eq!(read("any()").when(&facts), When::Never);
    assert_eq!(read("any()").progress(&facts).to_string(), "no conditions");
}

#[test]
fn any_is_due_with_its_earliest_and_all_with_its_latest() {
    let totals = totals();
    let facts = TriggerFacts::new(&totals, Timestamp(1_090_000));
    let when = |text: &str| read(text).when(&facts);
    assert_eq!(when("any(idle(60), idle(30), messages(99))"), When::At(Timestamp(1_120_000)));
    assert_eq!(when("all(idle(60), idle(30), messages(20))"), When::At(Timestamp(1_150_000)));
    assert_eq!(when("all(idle(60), messages(21))"), When::Never);
}

#[test]
fn a_reason_names_what_fired_and_only_that() {
    let totals = totals();
    let facts = TriggerFacts::new(&totals, Timestamp(1_090_000));
    assert_eq!(reason("any(messages(21), tokens(4000), chars(1))", &facts), "tokens: 4,100 of 4,000");
    assert_eq!(
        reason("any(all(turns(1), turns(9)), all(messages(20), any(idle(9), turns(2))))", &facts),
        "messages: 20 of 20 and turns: 5 of 2"
    );
}

#[test]
fn the_soft_threshold_is_four_fifths_of_the_hard_one_whatever_the_trigger() {
    let totals = Totals { messages: 17, turns: 2, ..totals() };
    let facts = TriggerFacts {
        request: Some(6_400),
        room: Some(10_000),
        economic: Some(8_000),
        ..TriggerFacts::new(&totals, Timestamp(1_100_000))
    };
    let soft = |text: &str| read(text).when_scaled(&facts, SOFT);
    for met in ["messages(21)", "tokens(8000)", "window(0.8)", "economic", "turns(2)", "every(125)"] {
        assert!(soft(met).is_now(), "{met}");
    }
    for not_met in ["messages(22)", "tokens(8001)", "window(0.8002)", "turns(3)"] {
        assert_eq!(soft(not_met), When::Never, "{not_met}");
    }
    assert_eq!(soft("idle(100)"), When::At(Timestamp(1_170_000)));
}

#[test]
fn economic_is_refused_in_a_slot() {
    let trigger = read("any(messages(20), all(economic))");
    let error = trigger.check(Use::Slot, Some(1_000)).unwrap_err().to_string();
    assert!(
        error.starts_with("economic: only an inline condensation has a request with a price; use messages, ")
    );
    assert!(trigger.check(Use::Inline, None).is_ok());
}

#[test]
fn a_share_of_an_unknown_window_is_refused_wherever_it_stands() {
    let trigger = read("any(all(), any(), all(window(0.75)))");
    for place in [Use::Slot, Use::Inline] {
        let error = trigger.check(place, None).unwrap_err().to_string();
        assert!(error.starts_with("window(0.75): the model's window is unknown"));
    }
    assert_eq!(trigger.check(Use::Slot, Some(1)), Ok(()));
}

#[test]
fn a_standing_may_go_out_as_json() {
    let totals = totals();
    let progress = read("any(messages(30), economic)").progress(&TriggerFacts::new(&totals, Timestamp(0)));
    assert_eq!(
        serde_json::to_value(progress).unwrap(),
        serde_json::json!({ "nothing_new": false, "gauges": [
            { "condition": "messages", "have": 20, "need": 30 },
            { "condition": "economic", "have": 4_100, "need": null },
        ]})
    );
}

/// Numbers near those of `any_totals`, and the largest there are.
fn threshold() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 1..40_u64, 1 => Just(u64::MAX), 1 => 1..u64::MAX]
}

fn trigger() -> impl Strategy<Value = Trigger> {
    let leaf = prop_oneof![
        threshold().prop_map(Trigger::Messages),
        threshold().prop_map(Trigger::Turns),
        threshold().prop_map(Trigger::Tokens),
        threshold().prop_map(Trigger::Chars),
        (1..=1_000_000_u32).prop_map(|millionths| Trigger::Window(Fraction(millionths))),
        threshold().prop_map(Trigger::Every),
        threshold().prop_map(Trigger::Idle),
        Just(Trigger::Economic),
        (0..40_u64).prop_map(Trigger::Important),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let children = prop::collection::vec(inner, 0..5);
        prop_oneof![children.clone().prop_map(Trigger::All), children.prop_map(Trigger::Any)]
    })
}

fn any_totals() -> impl Strategy<Value = Totals> {
    let small = 0..40_u64;
    let moment = -40_000..40_000_i64;
    (
        (0..40_u64, small.clone(), small.clone(), small.clone(), small),
        (moment.clone(), prop::option::of(moment)),
    )
        .prop_map(|((messages, turns, tokens, chars, longest), (last_at, since))| Totals {
            messages,
            turns,
            tokens,
            chars,
            longest,
            last_at: Timestamp(last_at),
            since: since.map(Timestamp),
            ..Totals::default()
        })
}

prop_compose! {
    /// Request, room, economic threshold, and the current time.
    fn surroundings()(
        now in -60_000..90_000_i64,
        request in prop::option::of(0..60_u64),
        room in prop::option::of(0..60_u64),
        economic in prop::option::of(1..60_u64),
    ) -> TriggerFacts<'static> {
        const NONE: &Totals = &Totals {
            messages: 0, turns: 0, tokens: 0, chars: 0, longest: 0, last_seq: 0,
            last_at: Timestamp(0), since: None, last_turn: 0,
        };
        TriggerFacts { totals: NONE, now: Timestamp(now), request, room, economic }
    }
}

/// Whether the trigger is due now, computed directly from the definition in integers too wide to overflow.
fn naively_met(trigger: &Trigger, facts: &TriggerFacts<'_>) -> bool {
    let totals = facts.totals;
    let size = facts.request.unwrap_or(totals.tokens);
    let passed = |start: Timestamp, seconds: u64| {
        let wait = (i128::from(seconds) * 1_000).min(i128::from(i64::MAX));
        i128::from(facts.now.0) >= (i128::from(start.0) + wait).min(i128::from(i64::MAX))
    };
    match trigger {
        Trigger::Messages(n) => totals.messages >= *n,
        Trigger::Turns(n) => totals.turns >= *n,
        Trigger::Tokens(n) => size >= *n,
        Trigger::Chars(n) => totals.chars >= *n,
        Trigger::Window(share) => facts.room.is_some_and(|room| {
            let need = u128::from(room) * u128::from(share.0);
            // If the room is 0, nothing can be left free.
            size >= 1 && u128::from(size) * 1_000_000 >= need
        }),
        Trigger::Every(seconds) => passed(totals.since.unwrap_or(totals.last_at), *seconds),
        Trigger::Idle(seconds) => passed(totals.last_at, *seconds),
        Trigger::Economic => matches!((facts.request, facts.economic), (Some(r), Some(e)) if r >= e),
        Trigger::Important(n) => totals.longest > *n,
        Trigger::All(children) => children.iter().all(|child| naively_met(child, facts)),
        Trigger::Any(children) => children.iter().any(|child| naively_met(child, facts)),
    }
}

proptest! {
    #![proptest_config(epitome_testkit::budget::config(256))]

    #[test]
    fn a_printed_trigger_parses_to_the_same_trigger(trigger in trigger()) {
        let text = trigger.to_string();
        prop_assert_eq!(text.parse::<Trigger>(), Ok(trigger));
    }

    #[test]
    fn a_parsed_trigger_prints_to_the_same_trigger(
        text in "(any|all|messages|window|economic|idle)(\\([0-9_. (),a-z]{0,30}\\)?)?"
    ) {
        if let Ok(trigger) = text.parse::<Trigger>() {
            prop_assert_eq!(trigger.to_string().parse::<Trigger>(), Ok(trigger));
        }
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in any::<String>()) {
        if let Err(error) = text.parse::<Trigger>() {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn every_millionth_reads_as_printed(millionths in 1..=1_000_000_u32) {
        let fraction = Fraction(millionths);
        prop_assert_eq!(Fraction::new(fraction.get()), Ok(fraction));
        prop_assert_eq!(fraction.to_string().parse::<f64>(), Ok(fraction.get()));
    }

    /// The result applies at its timestamp and not before.
    #[test]
    fn the_answer_is_the_first_moment_at_which_it_is_naively_met(
        trigger in trigger(), totals in any_totals(), facts in surroundings(),
    ) {
        let facts = TriggerFacts { totals: &totals, ..facts };
        let met_at = |now: i64| naively_met(&trigger, &TriggerFacts { now: Timestamp(now), ..facts });
        match trigger.when(&facts) {
            _ if totals.is_empty() => prop_assert_eq!(trigger.when(&facts), When::Never),
            When::Now => prop_assert!(met_at(facts.now.0)),
            When::At(moment) => {
                prop_assert!(moment > facts.now);
                prop_assert!(met_at(moment.0) && !met_at(moment.0 - 1) && !met_at(facts.now.0));
            }
            When::Never => prop_assert!(!met_at(facts.now.0) && !met_at(i64::MAX)),
        }
    }

    #[test]
    fn a_reason_holds_only_what_is_met(
        trigger in trigger(), totals in any_totals(), facts in surroundings(),
    ) {
        let facts = TriggerFacts { totals: &totals, ..facts };
        let reason = trigger.reason(&facts);
        prop_assert_eq!(reason.is_some(), trigger.when(&facts).is_now());
        if let Some(reason) = reason {
            prop_assert!(reason.met.iter().all(Gauge::is_met));
            let gauges = trigger.progress(&facts).gauges;
            prop_assert!(reason.met.iter().all(|gauge| gauges.contains(gauge)));
        }
    }

    #[test]
    fn any_is_the_earliest_and_all_the_latest_of_two(
        a in trigger(), b in trigger(), totals in any_totals(), facts in surroundings(),
    ) {
        let facts = TriggerFacts { totals: &totals, ..facts };
        let when = |trigger: &Trigger| trigger.when(&facts);
        let (first, second) = (when(&a), when(&b));
        let pair = [a.clone(), b.clone()];
        prop_assert_eq!(when(&Trigger::any(pair.clone())), first.min(second));
        prop_assert_eq!(when(&Trigger::all(pair)), first.max(second));
        // `all` and `any` of one trigger, or with a neutral one, are equivalent to it, and the order does not
        // matter.
        prop_assert_eq!(a.when(&facts), Trigger::any([Trigger::any([]), a.clone()]).when(&facts));
        prop_assert_eq!(a.when(&facts), Trigger::all([a.clone(), Trigger::all([])]).when(&facts));
        prop_assert_eq!(when(&Trigger::any([b.clone(), a.clone()])), first.min(second));
        prop_assert_eq!(when(&Trigger::all([b, a])), first.max(second));
    }

    #[test]
    fn the_soft_threshold_is_never_later_than_the_hard_one(
        trigger in trigger(), totals in any_totals(), facts in surroundings(), scale in 1..=1_000_000_u32,
    ) {
        let facts = TriggerFacts { totals: &totals, ..facts };
        let soft = trigger.when_scaled(&facts, Fraction(scale));
        prop_assert!(soft <= trigger.when(&facts));
    }

    #[test]
    fn a_new_message_only_resets_idle(
        trigger in trigger(), totals in any_totals(), facts in surroundings(),
    ) {
        let facts = TriggerFacts { totals: &totals, ..facts };
        let more = Totals {
            messages: totals.messages + 1, tokens: totals.tokens + 5, chars: totals.chars + 9,
            since: totals.since.or(Some(totals.last_at)), ..totals
        };
        if trigger.when(&facts).is_now() && !trigger.to_string().contains("idle") {
            let after = trigger.when(&TriggerFacts { totals: &more, ..facts });
            prop_assert!(after.is_now());
        }
    }
}
