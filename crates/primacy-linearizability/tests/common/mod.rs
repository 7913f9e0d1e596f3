//! Histories of clients of one key, made by lot.

use primacy_linearizability::key::{Answer, Key, Request};
use primacy_linearizability::{Model, Operation, Outcome};

pub(crate) type KeyOperation = Operation<Request, Answer>;

/// SplitMix64.
pub(crate) struct Lot(pub(crate) u64);

impl Lot {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn value(lot: &mut Lot, values: u64) -> Vec<u8> {
    lot.below(values).to_string().into_bytes()
}

fn request(lot: &mut Lot, values: u64) -> Request {
    match lot.below(13) {
        0..=4 => Request::Get,
        5 | 6 => Request::Set { value: value(lot, values), live: lot.chance(30).then(|| lot.below(20)) },
        7 | 8 => {
            Request::CompareAndSet { expected: lot.chance(80).then(|| value(lot, values)), value: value(lot, values) }
        }
        9 => Request::Increment(1),
        10 => Request::Append(value(lot, values)),
        11 => Request::Replace(value(lot, values)),
        _ => Request::Delete,
    }
}

/// What clients see of a key that does one thing at a time: each operation happens at a moment between its call and its return, and
/// `unknown` of a thousand are never answered. There are this many values.
pub(crate) fn atomic(lot: &mut Lot, (clients, values, unknown): (u64, u64, u64), count: usize) -> Vec<KeyOperation> {
    let mut free = vec![0; usize::try_from(clients).expect("few")];
    // When each was called, when it happens, and when it is answered.
    let mut plan: Vec<(u64, u64, Option<u64>, u64, Request)> = Vec::new();
    for _ in 0..count {
        let client = lot.below(clients);
        let called = free[usize::try_from(client).expect("few")] + 1 + lot.below(3);
        let happens = called + lot.below(8);
        let returned = happens + lot.below(8);
        free[usize::try_from(client).expect("few")] = returned;
        plan.push((called, happens, (lot.below(1_000) >= unknown).then_some(returned), client, request(lot, values)));
    }
    plan.sort_by_key(|(_, happens, ..)| *happens);
    let mut state = Key.initial();
    let mut history = Vec::new();
    for (called, happens, returned, client, request) in plan {
        // The first way in which it can be answered at that moment: nothing goes before it has to.
        if returned.is_none() && lot.chance(50) {
            history.push(Operation { client, called, request, outcome: Outcome::Unknown });
            continue;
        }
        let (answer, after) = Key::at(&state, &request, called, happens, lot.chance(50));
        state = after;
        let outcome = returned.map_or(Outcome::Unknown, |at| Outcome::Answered(at, answer));
        history.push(Operation { client, called, request, outcome });
    }
    history
}
