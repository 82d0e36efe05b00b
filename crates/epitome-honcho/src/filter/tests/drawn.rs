//! Tests with thousands of randomly generated filters: against a second, simple implementation, and against the laws of
//! AND, OR and NOT.

use super::*;

/// Generates the same numbers in every run: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % most
    }

    fn pick(&mut self, of: &[Value]) -> Value {
        of[self.below(of.len())].clone()
    }

    fn list(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> Value) -> Value {
        (0..self.below(most + 1)).map(|_| one(self)).collect()
    }

    fn name(&mut self) -> Value {
        self.pick(&[json!("ann"), json!("bob"), json!("Ann Bob"), json!("")])
    }

    fn number(&mut self) -> Value {
        self.pick(&[json!(0), json!(1), json!(1.0), json!(1.5), json!(-2), json!(3)])
    }

    fn moment(&mut self) -> Value {
        self.pick(&[
            json!("2024-01-01"),
            json!("2024-01-01T00:00:00Z"),
            json!("2024-01-01T01:00+01:00"),
            json!("2024-01-01T00:00:00.000001"),
            json!("2023-12-31 23:59:59.9"),
        ])
    }

    /// Any value that metadata may contain.
    fn json(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 4 } else { 6 }) {
            0 | 1 => self.name(),
            2 => self.number(),
            3 => self.pick(&[json!(null), json!(true), json!(false)]),
            4 => self.list(3, |dice| dice.json(depth - 1)),
            _ => self.dict(depth),
        }
    }

    fn dict(&mut self, depth: usize) -> Value {
        let mut dict = json!({});
        for name in ["a", "b", "c"] {
            if self.below(2) == 0 {
                dict[name] = self.json(depth.saturating_sub(1));
            }
        }
        dict
    }

    fn item(&mut self) -> Value {
        let mut item = json!({"metadata": self.dict(3)});
        let mut set = |name: &str, value: Value| item[name] = value;
        set("content", self.name());
        set("created_at", self.moment());
        if self.below(4) > 0 {
            set("peer_id", self.name());
            set("token_count", self.number());
        }
        item
    }

    fn operators(&mut self, mut value: impl FnMut(&mut Self) -> Value, names: &[&str]) -> Value {
        let mut operators = json!({});
        for _ in 0..=self.below(2) {
            let name = names[self.below(names.len())];
            operators[name] = if name == "in" { self.list(3, &mut value) } else { value(self) };
        }
        operators
    }

    /// A condition on metadata, or on something in it.
    fn asked_of_json(&mut self, depth: usize) -> Value {
        let orders = ["gt", "gte", "lt", "lte"];
        match self.below(if depth == 0 { 6 } else { 9 }) {
            0 => json!("*"),
            1 | 2 => self.json(1),
            3 => self.operators(Self::name, &["gt", "lt", "ne", "in", "contains", "icontains"]),
            4 => self.operators(Self::number, &orders),
            5 => self.operators(
                |dice| dice.pick(&[json!("*"), json!([1]), json!({"a": 1}), json!(true)]),
                &["ne", "in"],
            ),
            _ => {
                let mut dict = json!({});
                for _ in 0..=self.below(2) {
                    dict[["a", "b", "c"][self.below(3)]] = self.asked_of_json(depth - 1);
                }
                dict
            }
        }
    }

    fn condition(&mut self) -> Value {
        let orders = ["gt", "gte", "lt", "lte", "ne", "in"];
        match self.below(7) {
            0 => json!({"peer_id": self.pick(&[json!("*"), json!("ann"), json!("bob"), json!(null)])}),
            1 => json!({"peer_id": self.operators(Self::name, &["ne", "in", "gt", "lte"])}),
            2 => json!({"content": self.operators(Self::name, &["contains", "icontains"])}),
            3 => json!({"token_count": self.operators(Self::number, &orders)}),
            4 => json!({"created_at": self.operators(Self::moment, &orders)}),
            _ => {
                let mut dict = json!({});
                for _ in 0..=self.below(2) {
                    dict[["a", "b", "c"][self.below(3)]] = self.asked_of_json(2);
                }
                json!({"metadata": dict})
            }
        }
    }

    fn filter(&mut self, depth: usize) -> Value {
        let mut filter = json!({});
        for _ in 0..self.below(3) {
            let part = match self.below(if depth == 0 { 3 } else { 6 }) {
                0..=2 => self.condition(),
                3 => json!({"AND": self.list(3, |dice| dice.filter(depth - 1))}),
                4 => json!({"OR": self.list(3, |dice| dice.filter(depth - 1))}),
                _ => json!({"NOT": self.list(2, |dice| dice.filter(depth - 1))}),
            };
            filter.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        }
        filter
    }
}

/// The second implementation: directly on the JSON, item by item, without building anything first.
fn plainly(filter: &Value, item: &Value) -> bool {
    for (name, value) in filter.as_object().unwrap() {
        let each = || value.as_array().unwrap().iter().map(|filter| plainly(filter, item));
        let holds = match name.as_str() {
            "AND" => !each().any(|holds| !holds),
            "OR" => each().any(|holds| holds),
            "NOT" => each().all(|holds| !holds),
            _ => asked(value, &item[name.as_str()], name),
        };
        if !holds {
            return false;
        }
    }
    true
}

/// Returns whether a value matches. `null` counts as a missing value, unless it is in a list.
fn asked(wanted: &Value, value: &Value, field: &str) -> bool {
    let Some(dict) = wanted.as_object() else { return equal(wanted, value, field) };
    let there = !value.is_null();
    for (name, wanted) in dict {
        let text = |value: &Value| value.as_str().map(str::to_lowercase);
        let among =
            |found: &dyn Fn(&Value) -> bool| value.as_array().is_some_and(|list| list.iter().any(found));
        let holds = match name.as_str() {
            "gt" | "gte" | "lt" | "lte" | "ne" | "contains" | "icontains" if wanted == "*" => true,
            "gt" => than(value, wanted, field) == Some(1),
            "gte" => than(value, wanted, field).is_some_and(|than| than >= 0),
            "lt" => than(value, wanted, field) == Some(-1),
            "lte" => than(value, wanted, field).is_some_and(|than| than <= 0),
            "ne" => there && !equal(wanted, value, field),
            "in" => wanted.as_array().unwrap().iter().any(|wanted| equal(wanted, value, field)),
            "contains" => match value.as_str() {
                Some(value) => value.contains(wanted.as_str().unwrap()),
                None => among(&|value| value == wanted),
            },
            "icontains" => match text(value) {
                Some(value) => value.contains(&text(wanted).unwrap()),
                None => among(&|value| text(value) == text(wanted)),
            },
            _ if wanted == "*" => true,
            _ => match value.get(name) {
                Some(value) => asked(wanted, value, field),
                None => asked(wanted, &json!(null), field) && has_wild(wanted),
            },
        };
        if !holds {
            return false;
        }
    }
    !dict.is_empty() || value.is_object()
}

/// Returns whether a condition matches anything, at every depth: only then does it match a missing value.
fn has_wild(wanted: &Value) -> bool {
    match wanted {
        Value::Object(dict) => !dict.is_empty() && dict.values().all(has_wild),
        Value::Array(list) => list.contains(&json!("*")),
        _ => wanted == "*",
    }
}

fn equal(wanted: &Value, value: &Value, field: &str) -> bool {
    match (wanted, value) {
        _ if wanted == "*" => true,
        (Value::Array(wanted), Value::Array(value)) => {
            !wanted.iter().any(|wanted| !value.iter().any(|value| literally(wanted, value)))
        }
        (Value::Object(_), Value::Object(_)) => literally(wanted, value),
        _ if than(value, wanted, field).is_some() => than(value, wanted, field) == Some(0),
        _ => wanted == value,
    }
}

/// Inside lists and operators there are no wildcards.
fn literally(wanted: &Value, value: &Value) -> bool {
    match (wanted, value) {
        (Value::Array(wanted), Value::Array(value)) => {
            wanted.iter().all(|wanted| value.iter().any(|value| literally(wanted, value)))
        }
        (Value::Object(wanted), Value::Object(value)) => {
            wanted.iter().all(|(name, wanted)| value.get(name).is_some_and(|value| literally(wanted, value)))
        }
        (Value::Number(_), Value::Number(_)) => than(value, wanted, "") == Some(0),
        _ => wanted == value,
    }
}

/// Less, equal or more.
fn than(value: &Value, wanted: &Value, field: &str) -> Option<i8> {
    let order = match (value, wanted) {
        (Value::String(value), Value::String(wanted)) if field == "created_at" => {
            IsoTime::parse(value).unwrap().0.cmp(&IsoTime::parse(wanted).unwrap().0)
        }
        (Value::String(value), Value::String(wanted)) => value.cmp(wanted),
        (Value::Number(value), Value::Number(wanted)) => {
            value.as_f64().unwrap().partial_cmp(&wanted.as_f64().unwrap()).unwrap()
        }
        _ => return None,
    };
    Some(order as i8)
}

#[test]
fn generated_filters_match_what_a_simple_implementation_matches() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let items: Vec<Value> = (0..60).map(|_| dice.item()).collect();
    let (mut kept, mut left) = (0, 0);
    for _ in 0..8_000 {
        let filters = dice.filter(3);
        let filter = read(&filters);
        for item in &items {
            let wanted = keeps(&filter, item);
            assert_eq!(wanted, plainly(&filters, item), "{filters}\n{item}");
            assert!(wanted || !filter.is_empty(), "{filters}");
            if let Some(peer) = filter.must_equal("peer_id") {
                assert!(!wanted || item["peer_id"] == peer, "{filters}\n{item}");
            }
            if wanted { kept += 1 } else { left += 1 }
        }
    }
    assert!(kept > 50_000 && left > 50_000, "{kept} match, {left} do not: the filters decide little");
}

#[test]
fn generated_filters_obey_the_laws_of_logic() {
    let mut dice = Dice(0xD1B5_4A32_D192_ED03);
    let items: Vec<Value> = (0..40).map(|_| dice.item()).collect();
    for _ in 0..3_000 {
        let (f, g) = (dice.filter(2), dice.filter(2));
        let (name, other) = (dice.name(), dice.name());
        let same = [
            [json!({"NOT": [{"NOT": [f]}]}), f.clone()],
            [json!({"NOT": [{"AND": [f, g]}]}), json!({"OR": [{"NOT": [f]}, {"NOT": [g]}]})],
            [json!({"NOT": [{"OR": [f, g]}]}), json!({"AND": [{"NOT": [f]}, {"NOT": [g]}]})],
            [json!({"NOT": [f, g]}), json!({"NOT": [{"OR": [f, g]}]})],
            [json!({"OR": [f, g]}), json!({"OR": [g, f, g]})],
            [json!({"AND": [f, {"OR": [f, g]}]}), f.clone()],
            [
                json!({"peer_id": {"in": [name, other]}}),
                json!({"OR": [{"peer_id": name}, {"peer_id": other}]}),
            ],
            [
                json!({"metadata": {"a": {"in": [name, other, 1]}}}),
                json!({"OR": [{"metadata": {"a": name}}, {"metadata": {"a": other}}, {"metadata": {"a": 1}}]}),
            ],
            [
                json!({"peer_id": {"gte": name, "lte": other}}),
                json!({"AND": [{"peer_id": {"gte": name}}, {"peer_id": {"lte": other}}]}),
            ],
        ];
        for [one, two] in same {
            let (one_read, two_read) = (read(&one), read(&two));
            for item in &items {
                assert_eq!(keeps(&one_read, item), keeps(&two_read, item), "{one}\n{two}\n{item}");
            }
        }
    }
}

/// Any JSON is read or refused, and a filter that was read can be applied.
#[test]
fn generated_json_never_panics() {
    let mut dice = Dice(7);
    let names =
        ["AND", "OR", "NOT", "peer_id", "created_at", "metadata", "gt", "in", "contains", "icontains", "x"];
    fn odd(dice: &mut Dice, names: &[&str], depth: usize) -> Value {
        match dice.below(if depth == 0 { 3 } else { 7 }) {
            0 => dice.name(),
            1 => dice.pick(&[json!(null), json!("*"), json!(1), json!(true)]),
            2 => dice.moment(),
            3 => dice.list(3, |dice| odd(dice, names, depth - 1)),
            _ => {
                let mut dict = json!({});
                for _ in 0..dice.below(3) {
                    let name = names[dice.below(names.len())];
                    dict[name] = odd(dice, names, depth - 1);
                }
                dict
            }
        }
    }
    let (mut read, mut refused) = (0, 0);
    for _ in 0..30_000 {
        match Filter::parse(&odd(&mut dice, &names, 5), KNOWN) {
            Ok(filter) => {
                read += 1;
                keeps(&filter, &message());
            }
            Err(wrong) => {
                refused += 1;
                assert!(!wrong.is_empty());
            }
        }
    }
    assert!(read > 1_000 && refused > 1_000, "{read} read, {refused} refused");
}
