use epitome_core::view::mend;
use proptest::prelude::*;

use super::complaints_of_all;
use crate::drawn::{session, summaries};
use crate::promises::{config, counter, picks, request};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_context_is_taken_on_every_wire(drawn in session(), request in request(), picks in picks()) {
        let log = drawn.log(&counter());
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        if !given.messages.is_empty() {
            prop_assert_eq!(complaints_of_all(&given.messages), Vec::<String>::new());
        }
    }

    #[test]
    fn every_mended_list_is_taken_on_every_wire(drawn in session()) {
        let list = mend(drawn.messages());
        let first = list.iter().find(|message| !message.role.is_system());
        if first.is_some_and(|message| message.role.is_user()) {
            prop_assert_eq!(complaints_of_all(&list), Vec::<String>::new());
        }
    }
}
