//! Where a candidate stands by preference, and bytes of it that a database can sort.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::ids::escape;

/// Where a candidate stands by preference: up to eight classes, compared one after another. The smaller rank leads first.
///
/// An element that is not given counts as 0, which stands for *no preference*. So ranks of different length compare as
/// if the shorter one went on with zeros, `[]`, `[0]` and `[0, 0]` are one rank, and a candidate without preferences has
/// its place in the middle: behind what is preferred, before what is avoided.
///
/// ```
/// use primacy_core::select::Rank;
/// let rank = |elements| Rank::new(elements).unwrap();
/// assert!(rank(&[-1, 7]) < rank(&[]) && rank(&[]) < rank(&[0, 1]));
/// assert_eq!(rank(&[0, 0]), Rank::default());
/// assert!(rank(&[-1, 7]).to_bytes() < Rank::default().to_bytes(), "bytes sort as ranks do");
/// assert_eq!("-1,7".parse(), Ok(rank(&[-1, 7])));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank([i32; Self::ELEMENTS_MAX]);

/// Why there is no such rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// More than [`Rank::ELEMENTS_MAX`] elements.
    #[error("it has {elements} elements; give at most {}", Rank::ELEMENTS_MAX)]
    TooLong {
        /// How many it has.
        elements: usize,
    },
    /// Bytes that are not of [`Rank::to_bytes`].
    #[error("a rank has {} bytes, and not {bytes}", Rank::BYTES)]
    NotBytes {
        /// How many there are.
        bytes: usize,
    },
    /// An element that is not a whole number of 32 bits.
    #[error("'{element}' is not a whole number of 32 bits; write a rank as numbers and commas, such as -99,3")]
    NotANumber {
        /// The element, escaped.
        element: String,
    },
}

impl Rank {
    /// The most elements that a rank has.
    pub const ELEMENTS_MAX: usize = 8;
    /// How many bytes [`to_bytes`](Self::to_bytes) gives, always.
    pub const BYTES: usize = 4 * Self::ELEMENTS_MAX;

    /// Behind all others: the rank of who never asks.
    pub const LAST: Self = Self([i32::MAX; Self::ELEMENTS_MAX]);

    /// The rank with these elements, the first of which counts most.
    ///
    /// # Errors
    /// [`RankError::TooLong`] when there are more than [`Self::ELEMENTS_MAX`].
    pub fn new(elements: &[i32]) -> Result<Self, RankError> {
        let mut rank = Self::default();
        let places = rank.0.get_mut(..elements.len()).ok_or(RankError::TooLong { elements: elements.len() })?;
        places.copy_from_slice(elements);
        Ok(rank)
    }

    /// The elements, without the zeros at the end.
    pub fn elements(&self) -> &[i32] {
        let used = self.0.iter().rposition(|element| *element != 0).map_or(0, |last| last + 1);
        &self.0[..used]
    }

    /// The same rank with this turn among its equals ([`Turn`](super::Turn)) as its last element.
    #[must_use]
    pub fn with_turn(mut self, turn: i32) -> Self {
        let [.., last] = &mut self.0;
        *last = turn;
        self
    }

    /// The rank as bytes that compare byte by byte as ranks do, for a `BLOB`, `BYTEA` or `BINARY(32)` column to sort by.
    ///
    /// Each element has four bytes, the highest first and with its sign inverted; elements that are not given are
    /// written as 0. A shorter form without them cannot be sorted: it would put `[]` before `[-1]`, or after `[1]`.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, element) in bytes.chunks_exact_mut(4).zip(self.0) {
            place.copy_from_slice(&(element ^ i32::MIN).to_be_bytes());
        }
        bytes
    }

    /// The rank that [`to_bytes`](Self::to_bytes) made these bytes of.
    ///
    /// # Errors
    /// [`RankError::NotBytes`] when there are more or less than [`Self::BYTES`]. Any bytes of that number are a rank.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RankError> {
        if bytes.len() != Self::BYTES {
            return Err(RankError::NotBytes { bytes: bytes.len() });
        }
        let mut rank = Self::default();
        for (element, place) in rank.0.iter_mut().zip(bytes.chunks_exact(4)) {
            let place = place.try_into().map_err(|_| RankError::NotBytes { bytes: bytes.len() })?;
            *element = i32::from_be_bytes(place) ^ i32::MIN;
        }
        Ok(rank)
    }
}

impl From<[i32; Rank::ELEMENTS_MAX]> for Rank {
    fn from(elements: [i32; Rank::ELEMENTS_MAX]) -> Self {
        Self(elements)
    }
}

/// Numbers separated by commas, without the zeros at the end: `-99,3`, and `0` where there is no preference.
impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.elements().split_first() else { return f.write_str("0") };
        write!(f, "{first}")?;
        rest.iter().try_for_each(|element| write!(f, ",{element}"))
    }
}

impl FromStr for Rank {
    type Err = RankError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut rank = Self::default();
        for (index, element) in text.split(',').enumerate() {
            let number = element.trim().parse();
            let number = number.map_err(|_| RankError::NotANumber { element: escape(element.trim()) })?;
            let elements = text.split(',').count();
            *rank.0.get_mut(index).ok_or(RankError::TooLong { elements })? = number;
        }
        Ok(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn what_is_not_given_counts_as_zero() {
        let sorted = ["-2147483648", "-2,9,9", "-1", "0,-1", "0,0,-1", "0", "0,0,1", "0,1", "1,-5", "1", "2147483647"];
        let ranks: alloc::vec::Vec<Rank> = sorted.iter().map(|text| text.parse().expect("a rank")).collect();
        assert!(ranks.windows(2).all(|pair| pair[0] < pair[1]), "{ranks:?}");
        assert!(ranks.windows(2).all(|pair| pair[0].to_bytes() < pair[1].to_bytes()), "{ranks:?}");
        assert_eq!(ranks[5], Rank::default());
    }

    #[test]
    fn texts_print_as_they_are_read_but_for_zeros_at_the_end() {
        for (text, printed) in [("0", "0"), ("0,0,0", "0"), ("-99,3", "-99,3"), (" 1 , 0,+2,0", "1,0,2")] {
            assert_eq!(text.parse::<Rank>().map(|rank| rank.to_string()), Ok(printed.into()), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_rank_is_refused() {
        assert_eq!(Rank::new(&[1; 8]).map(|rank| rank.elements().len()), Ok(8));
        assert_eq!(Rank::new(&[1; 9]), Err(RankError::TooLong { elements: 9 }));
        assert_eq!("1,1,1,1,1,1,1,1,1".parse::<Rank>(), Err(RankError::TooLong { elements: 9 }));
        assert_eq!(Rank::from_bytes(&[0; 31]), Err(RankError::NotBytes { bytes: 31 }));
        assert_eq!(Rank::from_bytes(&[]), Err(RankError::NotBytes { bytes: 0 }));
        for bad in ["", "1,", "1.5", "2147483648", "a\u{1b}"] {
            let error = bad.parse::<Rank>().expect_err("no rank");
            assert!(matches!(error, RankError::NotANumber { .. }), "{bad:?}: {error}");
            assert!(!format!("{error}").contains('\u{1b}'), "escaped");
        }
    }
}
