//! In which order a candidate hears the voters that it reads at once.
//!
//! Where all voters are exchanged and those of one kind are alike, so are the orders: at most one of each kind comes late, and the others
//! before it, those that go first; or those that come, if of those none is late and one of the others is. So each majority is read, and
//! each that has one more than it needs. All that an order names is who is late.

use std::collections::BTreeSet;
use std::ops::Range;

use primacy_core::quorum::VoterSet;

use super::setup::Setup;

/// None of that kind is late.
const NOBODY: u8 = 7;

/// Where the configuration, and who of each kind is late, stand in the number of an order.
const fn numbered(configuration: u8, late: [u8; 2]) -> u8 {
    configuration << 6 | late[0] << 3 | late[1]
}

/// Who of each kind is late in this order.
pub(super) const fn late(order: u8) -> [u8; 2] {
    [order >> 3 & 7, order & 7]
}

/// The orders in which a candidate or operator may hear voters that have these configurations.
pub(super) fn orders<'a>(configurations: impl Iterator<Item = &'a VoterSet>, setup: &Setup) -> Vec<u8> {
    if !setup.alike {
        return (0..setup.posts()).collect();
    }
    let numbers: BTreeSet<u8> = configurations.map(|own| own.number() as u8).collect();
    let of = |voters: Range<u8>| voters.chain([NOBODY]);
    let mut orders = Vec::new();
    for number in numbers {
        for old in of(0..setup.voters) {
            orders.extend(of(setup.voters..setup.posts()).map(|new| numbered(number, [old, new])));
        }
    }
    orders
}

/// The voter whose greeting tells who votes, in this order. `configurations`: those of all voters.
pub(super) fn greets<'a>(
    order: u8,
    mut configurations: impl Iterator<Item = Option<&'a VoterSet>>,
    setup: &Setup,
) -> usize {
    if order == u8::MAX {
        return 0;
    }
    if !setup.alike {
        return order.into();
    }
    let number = u64::from(order >> 6);
    configurations.position(|own| own.is_some_and(|own| own.number() == number)).unwrap_or_default()
}

/// The turns of these voters.
pub(super) fn turns(order: u8, voters: &[u8], setup: &Setup) -> Vec<usize> {
    let count = voters.len();
    if !setup.alike {
        return (0..count).map(|turn| (usize::from(order) + turn) % count).collect();
    }
    let late = late(order);
    let comes_first = late[1] == NOBODY && late[0] != NOBODY;
    let key = |turn: &usize| {
        let voter = voters[*turn];
        let is_new = voter >= setup.voters;
        (late.contains(&voter), is_new != comes_first, voter)
    };
    let mut turns: Vec<_> = (0..count).collect();
    turns.sort_by_key(key);
    turns
}
