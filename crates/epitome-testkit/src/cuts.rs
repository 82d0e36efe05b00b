//! Computes the position at which condensing divides a list, for a `keep` setting.

use epitome_core::condense::Unchanged;
use epitome_core::cut::{Cuts, Press, legal_cut};
use epitome_core::keep::Keep;
use epitome_core::message::Tokens;
use epitome_core::outline::Cut;

/// The chosen division of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The position at which the verbatim part begins.
    pub place: usize,
    /// The position of the last user message, if it is before the cut and not before the floor.
    pub carried: Option<usize>,
}

/// Chooses the position at which the verbatim part begins, for a `keep` setting. The position is not before `floor`,
/// which [`after_head`] computes.
pub fn choose(
    cuts: &Cuts<'_>,
    floor: usize,
    keep: &Keep,
    room: Option<Tokens>,
    press: Press,
) -> Result<Chosen, Unchanged> {
    let start = keep.start(cuts.outlines(), room);
    let none = if start <= floor { Unchanged::AllVerbatim } else { Unchanged::NoLegalCut };
    let place = legal_cut(cuts, floor, start, press).ok_or(none)?;
    let last_user = cuts.outlines().iter().rposition(|outline| outline.opens_turn);
    Ok(Chosen { place, carried: last_user.filter(|at| (floor..place).contains(at)) })
}

/// Returns the position of the first legal cut after the leading messages and `keep_first` more messages. If there is
/// no such cut, returns the length of the list.
pub fn after_head(cuts: &Cuts<'_>, keep_first: usize) -> usize {
    let len = cuts.outlines().len();
    let leading = cuts.outlines().iter().take_while(|outline| outline.leading).count();
    cuts.first_in(leading.saturating_add(keep_first).min(len)..len, Cut::Legal).unwrap_or(len)
}
