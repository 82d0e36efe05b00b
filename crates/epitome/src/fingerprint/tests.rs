//! Tests which lists count as the same.

use epitome_testkit::drawing::messages;

use super::*;
use crate::inline::Caller;

#[test]
fn only_a_list_that_grew_at_its_end_matches() {
    let hash = RandomState::new();
    let list = messages("s u:3 a(x) r(x):9 a:4 u:7 a:2").unwrap();
    let mut known = MessageFingerprints::of(list.get(..5).unwrap(), &hash);
    assert!(known.match_sampled(&list, 0, &hash) && known.match_fully(&list, 5, &hash));
    for at in 0..5 {
        let mut other = list.clone();
        other[at].pinned = !other[at].pinned;
        assert!(!known.match_fully(&other, 5, &hash), "a flag of {at}");
        let mut other = list.clone();
        other[at].parts.push(Part::text("more"));
        assert!(!known.match_fully(&other, 5, &hash), "text of {at}");
        assert!(!known.match_sampled(&other, 0, &hash), "a short list is compared as a whole");
    }
    assert!(!known.match_sampled(&list[..4], 0, &hash), "a shorter one is another");
}

#[test]
fn sampling_notices_an_earlier_change_within_some_turns() {
    let hash = RandomState::new();
    let list: Vec<Message> = (0..1_000).map(|n| Message::user(format!("order {n}"))).collect();
    let mut known = MessageFingerprints::of(&list, &hash);
    let mut other = list.clone();
    other[477] = Message::user("something else");
    let noticed = (0..1_000).position(|_| !known.match_sampled(&other, 0, &hash));
    assert!(noticed.is_some_and(|turn| turn < 500), "{noticed:?}");
    assert!(!known.match_fully(&other, 1_000, &hash), "immediately, if all messages are compared");
}

#[test]
fn a_change_in_the_middle_of_a_long_text_is_noticed_before_a_cut_and_in_messages_that_stay() {
    let hash = RandomState::new();
    let list = |role: Message, middle: &str| {
        let mut list = vec![role, Message::user("first")];
        list.push(Message::user(format!("{0}{middle}{0}", "x".repeat(500))));
        list.extend((0..20).map(|n| Message::user(format!("order {n}"))));
        list
    };
    let bare = || Message::system("Be brief.");
    let mut known = MessageFingerprints::of(&list(bare(), "a"), &hash);
    assert!(known.match_sampled(&list(bare(), "b"), 0, &hash), "not in passing");
    assert!(!known.match_fully(&list(bare(), "b"), 3, &hash));
    // Messages that are always shown are always compared as a whole.
    let head = |middle: &str| list(Message::system(format!("{0}{middle}{0}", "x".repeat(500))), "a");
    let mut known = MessageFingerprints::of(&head("a"), &hash);
    assert!(known.match_sampled(&head("a"), 0, &hash) && !known.match_sampled(&head("b"), 0, &hash));
    let mut pinned = list(bare(), "a");
    pinned[2].pinned = true;
    let mut known = MessageFingerprints::of(&pinned, &hash);
    pinned[2].parts = list(bare(), "b")[2].parts.clone();
    assert!(!known.match_sampled(&pinned, 0, &hash));
}

const ANN: Caller<'static> = Caller { id: b"ann", session: None, wire: "openai" };

fn chain(caller: &Caller<'_>, drawn: &str) -> Vec<ListHash> {
    caller.prefix_hashes("home", &messages(drawn).unwrap()).hashes
}

#[test]
fn two_lists_share_the_hashes_of_their_common_beginning_only() {
    let (one, two) = (chain(&ANN, "s u:3 a(x) r(x):9 a:4 u:7"), chain(&ANN, "s u:3 a(x) r(x):9 a:5 u:7"));
    let same: Vec<bool> = one.iter().zip(&two).map(|(one, two)| one == two).collect();
    assert_eq!(same, [true, true, true, false, false]);
    assert_eq!(chain(&ANN, "s u:3 a(x)"), one[..2]);
}

#[test]
fn another_callers_list_has_a_different_hash() {
    let drawn = "s u:3 a:4";
    let mine = chain(&ANN, drawn);
    for other in [
        Caller { id: b"bob", ..ANN },
        Caller { session: Some("s1"), ..ANN },
        Caller { session: Some(""), ..ANN },
        Caller { wire: "anthropic", ..ANN },
    ] {
        assert!(chain(&other, drawn).iter().zip(&mine).all(|(one, two)| one != two), "{other:?}");
    }
    let elsewhere = ANN.prefix_hashes("work", &messages(drawn).unwrap()).hashes;
    assert!(elsewhere.iter().zip(&mine).all(|(one, two)| one != two));
}

#[test]
fn the_number_of_system_messages_counts_and_their_text_does_not() {
    let list = |orders: &[&str]| {
        let head = orders.iter().map(|text| Message::system(*text));
        let list: Vec<Message> = head.chain([Message::user("Hello")]).collect();
        ANN.prefix_hashes("home", &list)
    };
    assert_eq!(list(&["It is 9:00."]).hashes, list(&["It is 9:01."]).hashes);
    assert_ne!(list(&["It is 9:00."]).hashes, list(&[]).hashes);
    let two = list(&["a", "b"]);
    assert_eq!((two.at(3), two.at(2), two.at(4)), (two.last(), None, None));
}
