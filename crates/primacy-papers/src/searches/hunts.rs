//! What is wrong with the elections among peers as they were published: every counterexample that is known, to be found by a
//! search that is told of none, and the same searches of the repaired forms, which find nothing.

use crate::{mysql, pole, ring, roulette};
use primacy_sim::search::{Hunt, Search};

/// All counterexamples.
pub fn hunts() -> Vec<Hunt> {
    [pole::searches::hunts(), roulette::searches::hunts(), ring::searches::hunts(), mysql::searches::hunts()]
        .into_iter()
        .flatten()
        .collect()
}

/// The repaired forms.
pub fn held() -> Vec<Search> {
    [pole::searches::held(), roulette::searches::held(), ring::searches::held(), mysql::searches::held()]
        .into_iter()
        .flatten()
        .collect()
}
