//! What clients were told beside what is there.

use std::collections::BTreeMap;

/// One append that was acknowledged.
#[derive(Debug, Clone)]
pub struct Acknowledged {
    pub writer: usize,
    /// The numbers its messages were given.
    pub from: u64,
    pub through: u64,
    /// What they say, which no other message says.
    pub texts: Vec<String>,
}

/// What is wrong with a session: `log` is what is there, number and text, in order; `told` all that was acknowledged, in
/// the order in which each writer was told so.
pub fn faults(log: &[(u64, String)], told: &[Acknowledged]) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, (seq, text)) in log.iter().enumerate() {
        if *seq != at as u64 + 1 {
            faults.push(format!("{seq} stands where {} should: {text}", at + 1));
        }
    }
    let mut places: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (seq, text) in log {
        places.entry(text).or_default().push(*seq);
    }
    let mut last: BTreeMap<usize, u64> = BTreeMap::new();
    for one in told {
        let numbers: Vec<u64> = (one.from..=one.through).collect();
        if numbers.len() != one.texts.len() {
            faults.push(format!("{} messages were given the numbers {numbers:?}", one.texts.len()));
        }
        for (text, number) in one.texts.iter().zip(numbers) {
            match places.remove(text.as_str()).as_deref() {
                None => faults.push(format!("lost, or acknowledged twice: {text}")),
                Some([place]) if *place == number => {}
                Some(others) => faults.push(format!("told to be {number}, is {others:?}: {text}")),
            }
        }
        let before = last.insert(one.writer, one.through).unwrap_or(0);
        if one.from <= before {
            faults.push(format!("writer {} was given {} after {before}", one.writer, one.from));
        }
    }
    faults.extend(places.iter().map(|(text, places)| format!("nobody was told of {places:?}: {text}")));
    faults
}

/// A session of three writers, as it should be.
fn sound() -> (Vec<(u64, String)>, Vec<Acknowledged>) {
    let mut log = Vec::new();
    let mut told = Vec::new();
    for n in 0..4 {
        for writer in 0..3 {
            let texts: Vec<String> = (0..=writer % 2).map(|part| format!("w{writer} n{n}.{part}")).collect();
            let from = log.len() as u64 + 1;
            for text in &texts {
                log.push((log.len() as u64 + 1, text.clone()));
            }
            told.push(Acknowledged { writer, from, through: log.len() as u64, texts });
        }
    }
    (log, told)
}

#[test]
fn a_sound_history_has_no_faults() {
    let (log, told) = sound();
    assert_eq!(faults(&log, &told), Vec::<String>::new());
}

#[test]
fn a_dropped_message_is_found() {
    let (whole, told) = sound();
    for at in 0..whole.len() {
        let mut log = whole.clone();
        let (_, text) = log.remove(at);
        assert!(faults(&log, &told).contains(&format!("lost, or acknowledged twice: {text}")));
        // Also where the numbers close up behind it.
        for (at, (seq, _)) in log.iter_mut().enumerate() {
            *seq = at as u64 + 1;
        }
        assert!(!faults(&log, &told).is_empty());
    }
}

#[test]
fn a_doubled_message_is_found() {
    let (whole, told) = sound();
    for at in 0..whole.len() {
        let mut log = whole.clone();
        log.push((whole.len() as u64 + 1, whole[at].1.clone()));
        let found = faults(&log, &told);
        assert!(found.iter().any(|fault| fault.starts_with("told to be")), "{found:?}");
    }
}

#[test]
fn swapped_messages_are_found() {
    let (whole, told) = sound();
    for at in 1..whole.len() {
        let mut log = whole.clone();
        let one = log[at].1.clone();
        log[at].1 = std::mem::replace(&mut log[at - 1].1, one);
        assert_eq!(faults(&log, &told).len(), 2);
    }
}

#[test]
fn an_unacknowledged_message_a_gap_and_a_repeated_number_are_found() {
    let (whole, told) = sound();
    let last = whole.len() as u64;
    let mut more = whole.clone();
    more.push((last + 1, "w0 n9.0".to_owned()));
    assert_eq!(faults(&more, &told), [format!("nobody was told of [{}]: w0 n9.0", last + 1)]);

    let mut gap = whole.clone();
    gap.last_mut().unwrap().0 += 1;
    assert!(!faults(&gap, &told).is_empty());

    let mut twice = told.clone();
    let (from, through) = (twice[0].from, twice[0].through);
    (twice[3].from, twice[3].through) = (from, through);
    let found = faults(&whole, &twice);
    assert!(found.iter().any(|fault| fault.starts_with("writer 0 was given 1 after 1")), "{found:?}");
}
