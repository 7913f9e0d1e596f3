//! Fingerprints of states: 128 bits, with which two different ones hardly ever agree.

use std::hash::{Hash, Hasher};

/// Hashes to 128 bits, by two multiplications of different keys, and gives every number of 128 bits that names somebody another name
/// first.
pub(crate) struct Prints<F> {
    lanes: [u64; 2],
    rename: F,
}

impl<F: Fn(u128) -> u128> Prints<F> {
    pub(crate) const fn new(rename: F) -> Self {
        Self { lanes: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344], rename }
    }

    fn add(&mut self, word: u64) {
        const KEYS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];
        for (lane, key) in self.lanes.iter_mut().zip(KEYS) {
            let product = u128::from(lane.rotate_left(23) ^ word ^ key) * u128::from(key);
            *lane = (product as u64) ^ ((product >> 64) as u64).wrapping_add(word);
        }
    }

    pub(crate) fn print(mut self) -> u128 {
        self.add(0);
        self.add(0);
        u128::from(self.lanes[0]) << 64 | u128::from(self.lanes[1])
    }
}

impl<F: Fn(u128) -> u128> Hasher for Prints<F> {
    fn finish(&self) -> u64 {
        self.lanes[0]
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, number: u8) {
        self.add(u64::from(number));
    }
    fn write_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }
    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }
    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }
    fn write_u128(&mut self, name: u128) {
        let name = (self.rename)(name);
        self.add(name as u64);
        self.add((name >> 64) as u64);
    }
}

/// A fingerprint of all of a state, with which two different ones hardly ever agree.
pub fn print_of(state: &impl Hash) -> u128 {
    let mut prints = Prints::new(|name| name);
    state.hash(&mut prints);
    prints.print()
}
