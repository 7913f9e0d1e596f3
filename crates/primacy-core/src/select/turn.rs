//! The order of asking among candidates that are equal in rank.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::CandidateId;
use crate::time::{exponential, nanos};

/// In which order candidates ask that are equal in rank. Like a rank it is a preference, and never safety.
///
/// Each candidate reckons its own turn, anew for each leader it sees, and tells it with its place in the waiting order: all is
/// known before the leadership is vacant, so the first asks at once and nobody has to agree on anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Turn {
    /// Who came first. Among peers, where voters may hear of two in different order, by identity.
    #[default]
    Arrival,
    /// The smallest identity. Identities are random and last as long as the candidate's process.
    Identity,
    /// The next identity after that of the last leader, around the ring: who has just led is the last.
    ///
    /// Source: Altuntas et al. 2022, where messages go around a ring of identities.
    Ring,
    /// By a draw for each leader, in which a candidate with twice the weight comes first twice as often.
    ///
    /// Source: `roulette.txt`, section 2: a wheel decides. Of exponential draws the first is each with the probability of its share
    /// of the weights, so nobody has to turn the wheel for all.
    Roulette {
        /// How likely it is to be first, beside the others' weights. With 0 it comes last.
        weight: u16,
    },
}

/// What is no turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not an order; choose arrival, identity, ring, roulette or roulette:WEIGHT with a weight of 0 to 65535"
)]
pub struct UnknownTurn {
    /// What was given, escaped.
    text: alloc::string::String,
}

impl Turn {
    /// The turn of this candidate while or after `leader` leads; the smaller comes first.
    pub fn reckon(self, me: CandidateId, leader: Option<CandidateId>, entropy: &mut dyn FnMut() -> u64) -> i32 {
        match self {
            Self::Arrival => 0,
            Self::Identity => on_the_line(me.to_bits()),
            Self::Ring => {
                let leader = leader.map_or(0, CandidateId::to_bits);
                // The leader itself is as far from itself as can be.
                on_the_line(me.to_bits().wrapping_sub(leader).wrapping_sub(1))
            }
            Self::Roulette { weight: 0 } => i32::MAX,
            Self::Roulette { weight } => {
                let mean = Duration::from_nanos(1 << 26) / u32::from(weight);
                i32::try_from(nanos(exponential(mean, entropy))).unwrap_or(i32::MAX)
            }
        }
    }

    /// Whether each leader changes it.
    pub const fn follows_leaders(self) -> bool {
        matches!(self, Self::Ring | Self::Roulette { .. })
    }
}

/// The highest bits, in the order of the whole.
fn on_the_line(bits: u128) -> i32 {
    let [a, b, c, d, ..] = bits.to_be_bytes();
    i32::from_be_bytes([a, b, c, d]) ^ i32::MIN
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrival => f.write_str("arrival"),
            Self::Identity => f.write_str("identity"),
            Self::Ring => f.write_str("ring"),
            Self::Roulette { weight: 1 } => f.write_str("roulette"),
            Self::Roulette { weight } => write!(f, "roulette:{weight}"),
        }
    }
}

impl FromStr for Turn {
    type Err = UnknownTurn;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownTurn { text: crate::ids::escape(text) };
        match text {
            "arrival" => Ok(Self::Arrival),
            "identity" => Ok(Self::Identity),
            "ring" => Ok(Self::Ring),
            "roulette" => Ok(Self::Roulette { weight: 1 }),
            _ => {
                let weight = text.strip_prefix("roulette:").ok_or_else(unknown)?;
                Ok(Self::Roulette { weight: weight.parse().map_err(|_| unknown())? })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rank::Rank;
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    fn id(first: u32) -> CandidateId {
        CandidateId::from_bits(u128::from(first) << 96)
    }

    fn none() -> u64 {
        panic!("nothing is drawn")
    }

    #[test]
    fn after_a_leader_comes_the_next_on_the_ring_and_the_leader_itself_last() {
        let order = |leader: u32| {
            let mut all = [1, 2, 0x8000_0000, 0xffff_ffff];
            all.sort_by_key(|me| Turn::Ring.reckon(id(*me), Some(id(leader)), &mut none));
            all
        };
        assert_eq!(order(2), [0x8000_0000, 0xffff_ffff, 1, 2]);
        assert_eq!(order(0xffff_ffff), [1, 2, 0x8000_0000, 0xffff_ffff]);
        assert_eq!(order(7), [0x8000_0000, 0xffff_ffff, 1, 2], "a leader that is gone");
    }

    #[test]
    fn identities_are_in_their_order_and_arrivals_are_equal() {
        let turn = |turn: Turn, me| turn.reckon(id(me), Some(id(9)), &mut none);
        assert!(turn(Turn::Identity, 1) < turn(Turn::Identity, 0x8000_0000));
        assert!(turn(Turn::Identity, 0x8000_0000) < turn(Turn::Identity, 0xffff_ffff));
        assert_eq!(turn(Turn::Arrival, 1), turn(Turn::Arrival, 2));
    }

    #[test]
    fn the_wheel_stops_as_often_as_weights_say() {
        let mut state = 7_u64;
        let mut entropy = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state ^ (state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd)
        };
        let mut first = [0_u32; 4];
        for _ in 0..20_000 {
            let draws: Vec<i32> = [1, 2, 5, 0]
                .iter()
                .map(|weight| Turn::Roulette { weight: *weight }.reckon(id(1), None, &mut entropy))
                .collect();
            let best = (0..4).min_by_key(|index| draws[*index]).expect("four");
            first[best] += 1;
        }
        assert_eq!(first[3], 0, "no weight");
        for (won, share) in first.iter().zip([2_500, 5_000, 12_500]) {
            assert!(won.abs_diff(share) < 400, "{first:?}");
        }
    }

    #[test]
    fn a_turn_decides_only_between_equals() {
        let rank = |elements: &[i32]| Rank::new(elements).expect("few");
        assert!(rank(&[-1]).with_turn(i32::MAX) < rank(&[]).with_turn(i32::MIN));
        assert!(rank(&[3]).with_turn(-1) < rank(&[3]).with_turn(0));
        assert!(rank(&[i32::MAX]).with_turn(5) < Rank::LAST);
    }

    #[test]
    fn orders_print_as_they_are_read() {
        for text in ["arrival", "identity", "ring", "roulette", "roulette:40", "roulette:0"] {
            assert_eq!(text.parse::<Turn>().map(|turn| turn.to_string()), Ok(text.into()));
        }
        for bad in ["", "Ring", "roulette:", "roulette:65536", "roulette:-1", "a\u{1b}"] {
            let error = bad.parse::<Turn>().expect_err("no order").to_string();
            assert!(error.contains("choose arrival") && !error.contains('\u{1b}'), "{error}");
        }
    }
}
