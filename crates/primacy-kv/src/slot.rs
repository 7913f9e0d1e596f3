//! Hash slots: the 16,384 parts of the key space, by the rule that clients of Redis Cluster know.

use core::ops::Range;

use crc::{CRC_16_XMODEM, Crc};

const CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The number of a hash slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// How many there are.
    pub const COUNT: u16 = 16_384;

    /// The slot with this number. `None` from [`Slot::COUNT`] on.
    pub const fn new(number: u16) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// The slot of a key: CRC-16 of its tag, or of all of it.
    pub fn of(key: &[u8]) -> Self {
        Self(CRC16.checksum(tag(key)) % Self::COUNT)
    }

    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The numbers of the slots of one of several groups.
    pub fn of_group(group: u16, groups: u16) -> Range<u16> {
        let bound = |group: u16| (u32::from(group) * u32::from(Self::COUNT) / u32::from(groups)) as u16;
        bound(group)..bound(group + 1)
    }

    /// The group whose slot this is, of this number of groups: the inverse of [`of_group`](Self::of_group).
    pub fn group(self, groups: u16) -> u16 {
        let (slot, groups) = (u32::from(self.0), u32::from(groups));
        (((slot + 1) * groups - 1) / u32::from(Self::COUNT)) as u16
    }
}

/// What stands between the first `{` and the next `}`, unless that is nothing.
fn tag(key: &[u8]) -> &[u8] {
    let inside = || {
        let open = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[open..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[open..open + length])
    };
    inside().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        // The check value of CRC-16/XMODEM, and slots that `CLUSTER KEYSLOT` answers.
        assert_eq!(Slot::of(b"123456789").number(), 0x31c3);
        for (key, slot) in [(&b"foo"[..], 12182), (b"bar", 5061), (b"hello", 866), (b"", 0), (b"user:1000", 1649)] {
            assert_eq!(Slot::of(key).number(), slot, "{key:?}");
        }
    }

    #[test]
    fn a_tag_decides_alone() {
        for (key, same) in [
            (&b"{user1000}.following"[..], &b"user1000"[..]),
            (b"a{foo}b{bar}", b"foo"),
            (b"foo{{bar}}zap", b"{bar"),
            (b"foo{bar}{zap}", b"bar"),
        ] {
            assert_eq!(Slot::of(key), Slot::of(same), "{key:?}");
        }
        for whole in [&b"foo{}{bar}"[..], b"foo{bar", b"foo}bar{"] {
            assert_eq!(tag(whole), whole);
        }
    }

    #[test]
    fn each_slot_is_in_the_group_whose_slots_it_is_among() {
        for groups in [1, 2, 3, 7, 16, 100, 1_000, 1_024] {
            let mut next = 0;
            for group in 0..groups {
                let slots = Slot::of_group(group, groups);
                assert_eq!(slots.start, next);
                next = slots.end;
                for slot in slots {
                    assert_eq!(Slot(slot).group(groups), group, "slot {slot} of {groups} groups");
                }
            }
            assert_eq!(next, Slot::COUNT);
        }
    }

    #[test]
    fn groups_follow_each_other_and_have_about_as_many_slots() {
        for groups in [1, 3, 16, 1_024] {
            let mut counts = vec![0_u16; usize::from(groups)];
            let all: Vec<u16> = (0..Slot::COUNT).map(|slot| Slot(slot).group(groups)).collect();
            assert!(all.is_sorted());
            all.iter().for_each(|group| counts[usize::from(*group)] += 1);
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(most <= least.map(|least| least + 1).as_ref(), "{groups}: {least:?}, {most:?}");
        }
    }

    #[test]
    fn numbers_are_bounded() {
        assert_eq!(Slot::new(16_383).map(Slot::number), Some(16_383));
        assert_eq!(Slot::new(16_384), None);
    }
}
