//! Which machine this is, which boot of it, and what its clock says: what ages and proofs of death rest on.

use std::time::Duration;

use crate::clock;

/// The machine and its present boot, as far as the system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// The kernel's random number for this boot.
    pub(super) boot: Option<[u8; 16]>,
    /// A digest of the machine's identity, which outlives a boot.
    pub(super) machine: Option<[u8; 16]>,
}

impl Host {
    pub(super) fn here() -> Self {
        let id = |path| parse_id(&std::fs::read_to_string(path).ok()?);
        // The machine id is confidential (machine-id(5)): only a digest of it goes into the file.
        let machine = id("/etc/machine-id").map(|id| fnv128(&[b"primacy", id.as_slice()].concat()).to_be_bytes());
        Self { boot: id("/proc/sys/kernel/random/boot_id"), machine }
    }

    /// Whether whatever ran on `then` is provably gone: it was this machine, and it has been restarted since. A file
    /// that another machine wrote (a volume that was moved) proves nothing, since that machine may still run.
    pub(super) fn has_restarted_since(&self, then: &Self) -> bool {
        let same_machine = self.machine.is_some() && self.machine == then.machine;
        same_machine && self.boot.is_some() && then.boot.is_some() && self.boot != then.boot
    }

    /// How long ago it was `then` on the boot clock of `host`, unless that was another boot or clock.
    pub(super) fn age_of(&self, then: Stamp) -> Option<Duration> {
        let same_boot = self.boot.is_some() && self.boot == then.boot;
        let age = clock::boot_nanos()?.checked_sub(then.boot_ns)?;
        same_boot.then(|| Duration::from_nanos(age))
    }

    /// This moment.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp { boot: self.boot, boot_ns: clock::boot_nanos().unwrap_or(u64::MAX >> 1) }
    }
}

/// A moment on the boot clock of a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) boot: Option<[u8; 16]>,
    pub(super) boot_ns: u64,
}

/// 32 hexadecimal digits, with or without hyphens.
fn parse_id(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|character| *character != '-').collect();
    let id = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok())??;
    (id != 0).then(|| id.to_be_bytes())
}

/// Fowler, Noll and Vo's hash 1a: the same in every version of every program.
pub(super) fn fnv128(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(machine: u8, boot: u8) -> Host {
        let id = |byte: u8| (byte != 0).then_some([byte; 16]);
        Host { machine: id(machine), boot: id(boot) }
    }

    #[test]
    fn only_the_same_machine_in_another_boot_proves_death() {
        assert!(host(1, 2).has_restarted_since(&host(1, 1)));
        assert!(!host(1, 1).has_restarted_since(&host(1, 1)), "the same boot");
        assert!(!host(2, 2).has_restarted_since(&host(1, 1)), "a volume moved from a machine that may still run");
        for (now, then) in [(host(0, 2), host(0, 1)), (host(1, 0), host(1, 1)), (host(1, 1), host(1, 0))] {
            assert!(!now.has_restarted_since(&then), "{now:?} {then:?}: unknown proves nothing");
        }
    }

    #[test]
    fn ages_are_of_this_boot_only() {
        let here = Host { boot: Some([1; 16]), machine: None };
        assert!(here.age_of(here.stamp()).is_some_and(|age| age < Duration::from_secs(60)));
        assert_eq!(here.age_of(Stamp { boot: Some([2; 16]), boot_ns: 0 }), None);
        assert_eq!(here.age_of(Stamp { boot_ns: u64::MAX, ..here.stamp() }), None, "from the future");
    }

    #[test]
    fn ids_parse_in_both_spellings() {
        let plain = parse_id("9c1047ad8dfe458280efbc6d99a2f0f4\n").expect("32 digits");
        assert_eq!(parse_id("9c1047ad-8dfe-4582-80ef-bc6d99a2f0f4"), Some(plain));
        assert_eq!(parse_id(""), None);
        assert_eq!(parse_id("uninitialized"), None);
        assert_eq!(parse_id(&"0".repeat(32)), None);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv128(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv128(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
