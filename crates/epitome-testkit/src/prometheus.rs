//! Parses a metrics page in the Prometheus text format, and checks the page against Prometheus' naming rules. These
//! are the rules of `promtool check metrics`, and further rules from Prometheus' documentation.

use std::collections::{BTreeMap, BTreeSet};

/// A parsed metrics page.
#[derive(Debug, Default)]
pub struct Page {
    pub metrics: Vec<Metric>,
}

/// A metric with its description and samples.
#[derive(Debug, Default)]
pub struct Metric {
    pub name: String,
    pub help: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    pub samples: Vec<Sample>,
}

/// A value of a metric. In a histogram, `name` ends with the suffix of a part, such as `_bucket`.
#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Page {
    /// Parses a page. Every metric must have one `HELP`, then one `TYPE`, then all its samples. Other comments are
    /// ignored.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut page = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            page.line(line).map_err(|reason| format!("{reason}: {line}"))?;
        }
        Ok(page)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or("HELP without a text")?;
            if self.metrics.iter().any(|metric| metric.name == name) {
                return Err("second HELP".to_owned());
            }
            self.metrics.push(Metric { name: name.into(), help: help.into(), ..Metric::default() });
            return Ok(());
        }
        let comment = line.strip_prefix('#').and_then(|rest| rest.split_whitespace().next());
        if comment.is_some_and(|word| !["HELP", "TYPE"].contains(&word)) {
            return Ok(());
        }
        let metric = self.metrics.last_mut().ok_or("nothing before the first HELP is allowed")?;
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("TYPE without a type")?;
            if name != metric.name || !metric.kind.is_empty() || !metric.samples.is_empty() {
                return Err("TYPE must follow the HELP of its metric".to_owned());
            }
            kind.clone_into(&mut metric.kind);
            return Ok(());
        }
        let sample = Sample::parse(line)?;
        let suffixes: &[&str] =
            if metric.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        let belongs = sample.name.strip_prefix(&metric.name).is_some_and(|rest| suffixes.contains(&rest));
        if metric.kind.is_empty() || !belongs {
            return Err("a sample must follow the HELP and TYPE of its metric".to_owned());
        }
        metric.samples.push(sample);
        Ok(())
    }

    /// Returns the metric with this name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// Returns the sum of all samples with this name and these labels. The result is 0 if there is no such sample.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.metrics.iter().flat_map(|metric| &metric.samples);
        let has = |sample: &&Sample| {
            labels.iter().all(|(name, value)| sample.labels.get(*name).is_some_and(|own| own == value))
        };
        samples.filter(|sample| sample.name == name).filter(has).map(|sample| sample.value).sum()
    }

    /// Returns every violation of the rules.
    pub fn problems(&self) -> Vec<String> {
        self.metrics.iter().flat_map(Metric::problems).collect()
    }
}

impl Sample {
    fn parse(line: &str) -> Result<Self, String> {
        let (series, value) = line.rsplit_once(' ').ok_or("a sample has no value")?;
        let value = value.parse().map_err(|_| "the value is no number")?;
        let Some((name, rest)) = series.split_once('{') else {
            return Ok(Self { name: series.to_owned(), labels: BTreeMap::new(), value });
        };
        let mut rest = rest.strip_suffix('}').ok_or("the labels have no end")?;
        let mut labels = BTreeMap::new();
        while !rest.is_empty() {
            let (label, quoted) = rest.split_once("=\"").ok_or("a label has no value")?;
            let mut escaped = false;
            let end = quoted.find(|c| {
                let is_end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                is_end
            });
            let (text, after) = quoted.split_at(end.ok_or("a label's value has no end")?);
            if labels.insert(label.to_owned(), text.to_owned()).is_some() {
                return Err("a label occurs twice".to_owned());
            }
            let after = &after[1..];
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        Ok(Self { name: name.to_owned(), labels, value })
    }
}

/// Units that are not base units, and abbreviations of units.
const OTHER_UNITS: &[&str] = &[
    "nanoseconds",
    "microseconds",
    "milliseconds",
    "millis",
    "minutes",
    "hours",
    "days",
    "weeks",
    "ns",
    "us",
    "ms",
    "s",
    "sec",
    "m",
    "h",
    "d",
    "kilobytes",
    "megabytes",
    "gigabytes",
    "kibibytes",
    "mebibytes",
    "gibibytes",
    "bits",
    "b",
    "kb",
    "kib",
    "mb",
    "mib",
    "gb",
    "gib",
    "tb",
    "pb",
    "millionths",
    "thousandths",
    "cents",
    "percent",
];

/// Base units. In a metric's name, a base unit must be the last word, or the word directly before `_total`.
const BASE_UNITS: &[&str] = &["seconds", "bytes", "ratio"];

impl Metric {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut rule = |holds: bool, text: &str| {
            if !holds {
                problems.push(format!("{}: {text}", self.name));
            }
        };
        let name = self.name.as_str();
        let words: Vec<&str> = name.split('_').collect();
        let is_word = |word: &&str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let is_counter = self.kind == "counter";
        let base = name.strip_suffix("_total").unwrap_or(name);
        rule(words.iter().all(is_word), "the name is not in snake_case");
        rule(
            name.starts_with("epitome_") || name.starts_with("process_"),
            "the name does not start with the prefix `epitome_` or `process_`",
        );
        rule(["counter", "gauge", "histogram"].contains(&&*self.kind), "unknown type");
        rule(!self.help.trim().is_empty(), "no description");
        rule(is_counter == name.ends_with("_total"), "only counters, and all counters, end with `_total`");
        rule(
            !["_bucket", "_count", "_sum"].iter().any(|suffix| name.ends_with(suffix)),
            "the suffix is reserved for parts of histograms",
        );
        rule(
            !words.iter().any(|word| ["counter", "gauge", "histogram", "summary", "metric"].contains(word)),
            "the name contains a type",
        );
        rule(!words.iter().any(|word| OTHER_UNITS.contains(word)), "the unit is no base unit");
        let units = words.iter().filter(|word| BASE_UNITS.contains(word)).count();
        let ends = BASE_UNITS.iter().any(|unit| base.ends_with(&format!("_{unit}")));
        rule(units == usize::from(ends), "the unit is not the last word");
        rule(
            !name.ends_with("_info") || self.samples.iter().all(|sample| sample.value == 1.0),
            "an info is 1",
        );
        rule(!self.samples.is_empty(), "no sample");
        let mut series = BTreeSet::new();
        for sample in &self.samples {
            let names: Vec<&String> = sample.labels.keys().collect();
            rule(
                names.iter().all(|name| name.split('_').all(|word| is_word(&word))),
                "a label is not in snake_case",
            );
            let is_bucket = self.kind == "histogram" && sample.name.ends_with("_bucket");
            rule(
                sample.labels.contains_key("le") == is_bucket,
                "`le` is the label of buckets: all buckets and no other samples have it",
            );
            rule(!sample.labels.contains_key("quantile"), "`quantile` is reserved for summaries");
            rule(series.insert((&sample.name, &sample.labels)), "a series occurs twice");
            rule(sample.value.is_finite(), "a value is not finite");
            rule(self.kind == "gauge" || sample.value >= 0.0, "a counted value is negative");
        }
        if self.kind == "histogram" {
            problems.extend(self.histogram_problems().into_iter().map(|text| format!("{name}: {text}")));
        }
        problems
    }

    fn histogram_problems(&self) -> Vec<&'static str> {
        let mut problems = Vec::new();
        let part = |suffix: &str| {
            let name = format!("{}{suffix}", self.name);
            self.samples.iter().filter(move |sample| sample.name == name)
        };
        for count in part("_count") {
            let buckets: Vec<&Sample> = part("_bucket")
                .filter(|bucket| {
                    bucket
                        .labels
                        .iter()
                        .all(|(name, own)| name == "le" || count.labels.get(name) == Some(own))
                })
                .collect();
            let rises = buckets.windows(2).all(|pair| pair[0].value <= pair[1].value);
            let last = buckets.last().filter(|bucket| bucket.labels["le"] == "+Inf");
            if !rises || last.is_none_or(|last| last.value != count.value) {
                problems.push("the buckets are not cumulative up to the count");
            }
            if !part("_sum").any(|sum| sum.labels == count.labels) {
                problems.push("a histogram has no sum");
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP epitome_build_info Version\n# TYPE epitome_build_info gauge\n\
        epitome_build_info{version=\"1.0 \\\"a,b\\\"\"} 1\n\n\
        # HELP epitome_wait_seconds Time\n# TYPE epitome_wait_seconds histogram\n\
        epitome_wait_seconds_bucket{route=\"a\",le=\"1\"} 2\nepitome_wait_seconds_bucket{route=\"a\",le=\"+Inf\"} 3\n\
        epitome_wait_seconds_sum{route=\"a\"} 4.5\nepitome_wait_seconds_count{route=\"a\"} 3\n\n\
        # HELP process_cpu_seconds_total CPU\n# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 0.5\n";

    #[test]
    fn a_good_page_is_parsed_and_has_no_problem() {
        let page = Page::parse(GOOD).unwrap();
        assert_eq!(page.problems(), Vec::<String>::new());
        assert_eq!(page.sum("epitome_wait_seconds_bucket", &[("le", "1")]), 2.0);
        assert_eq!(page.sum("process_cpu_seconds_total", &[]), 0.5);
        assert_eq!(
            page.metric("epitome_build_info").unwrap().samples[0].labels["version"],
            "1.0 \\\"a,b\\\""
        );
    }

    #[test]
    fn other_comments_are_ignored() {
        let renamed = "# epitome_wait was renamed to epitome_wait_seconds\n";
        let page = Page::parse(&format!("{renamed}{GOOD}{renamed}")).unwrap();
        assert_eq!((page.metrics.len(), page.problems()), (3, Vec::new()));
    }

    #[test]
    fn pages_out_of_order_are_not_parsed() {
        let counter = "# HELP epitome_a_total A\n# TYPE epitome_a_total counter\n";
        for (page, reason) in [
            ("epitome_a_total 1".to_owned(), "nothing before the first HELP"),
            ("# TYPE epitome_a_total counter".to_owned(), "nothing before the first HELP"),
            ("# HELP epitome_a_total A\nepitome_a_total 1".to_owned(), "must follow the HELP and TYPE"),
            (format!("{counter}epitome_b_total 1"), "must follow the HELP and TYPE"),
            (format!("{counter}epitome_a_total_sum 1"), "must follow the HELP and TYPE"),
            (format!("{counter}{counter}"), "second HELP"),
            (format!("{counter}# TYPE epitome_a_total counter"), "TYPE must follow"),
            (format!("{counter}epitome_a_total{{a=\"1\",a=\"2\"}} 1"), "a label occurs twice"),
            (format!("{counter}epitome_a_total{{a=\"1}} 1"), "no end"),
            (format!("{counter}epitome_a_total x"), "no number"),
        ] {
            let error = Page::parse(&page).unwrap_err();
            assert!(error.contains(reason), "{error}: expected {reason}");
        }
    }

    #[test]
    fn each_rule_is_checked() {
        for (name, kind, problem) in [
            ("epitome_spend_millionths_total", "counter", "no base unit"),
            ("epitome_wait_ms", "gauge", "no base unit"),
            ("epitome_requests", "counter", "`_total`"),
            ("epitome_requests_total", "gauge", "`_total`"),
            ("epitome_request_count", "gauge", "reserved"),
            ("epitome_request_counter_total", "counter", "contains a type"),
            ("epitome_seconds_waited", "gauge", "last word"),
            ("epitome_Requests_total", "counter", "snake_case"),
            ("epitome__requests_total", "counter", "snake_case"),
            ("requests_total", "counter", "prefix"),
            ("epitome_requests_total", "untyped", "unknown type"),
        ] {
            let sample = Sample { name: name.to_owned(), labels: BTreeMap::new(), value: 1.0 };
            let samples = vec![sample];
            let metric =
                Metric { name: name.to_owned(), help: "A".to_owned(), kind: kind.to_owned(), samples };
            let problems = metric.problems();
            assert!(problems.iter().any(|found| found.contains(problem)), "{name}: {problems:?}");
        }
        for (page, problem) in [
            (GOOD.replace(" CPU", "  "), "no description"),
            (GOOD.replace("+Inf\"} 3", "+Inf\"} 4"), "not cumulative"),
            (GOOD.replace("le=\"1\"} 2", "le=\"1\"} 9"), "not cumulative"),
            (GOOD.replace("epitome_wait_seconds_sum{route=\"a\"} 4.5\n", ""), "no sum"),
            (GOOD.replace("version=", "le="), "label of buckets"),
            (GOOD.replace("version=", "Version="), "snake_case"),
            (GOOD.replace("\"} 1\n", "\"} 2\n"), "an info is 1"),
            (GOOD.replace("process_cpu_seconds_total 0.5\n", ""), "no sample"),
            (format!("{GOOD}process_cpu_seconds_total 0.5\n"), "twice"),
            (GOOD.replace("total 0.5", "total -1"), "negative"),
        ] {
            let problems = Page::parse(&page).unwrap().problems();
            assert!(problems.iter().any(|found| found.contains(problem)), "{problem}: {problems:?}");
        }
    }
}
