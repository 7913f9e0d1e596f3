//! Histories at random, where there are too many to go through.

use super::setup::Setup;
use super::world::{Step, World};
use crate::search::{Setup as _, World as _};

/// One step of this many is something else than a message that arrives or a disk that has written.
const OTHERS: usize = 20;

/// Goes on from the beginning by steps that this seed chooses, this many at most: how many there were, and how many entries were committed.
///
/// # Errors
/// The history that breaks something, with the world at its end.
pub fn walk(setup: &Setup, seed: u64, most: usize) -> Result<(usize, usize), String> {
    let Some(mut world) = setup.start().pop() else { return Ok((0, 0)) };
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as usize % below.max(1)
    };
    let mut history: Vec<String> = Vec::new();
    while history.len() < most {
        let mut steps = Vec::new();
        world.steps(setup, &mut steps);
        let mut next = None;
        while next.is_none() && !steps.is_empty() {
            // Mostly what is under way goes on: else all that may happen has happened before anything is committed.
            let is_under_way = |step: &Step| matches!(step, Step::Deliver(..) | Step::Flush(_));
            let count = steps.iter().filter(|step| is_under_way(step)).count();
            let goes_on = count > 0 && (count == steps.len() || draw(OTHERS) > 0);
            let among: Vec<usize> = (0..steps.len()).filter(|index| is_under_way(&steps[*index]) == goes_on).collect();
            let step = steps.swap_remove(among[draw(among.len())]);
            history.push(format!("{step:?}"));
            next = world.after(step, setup);
            if next.is_none() {
                history.pop();
            }
        }
        let Some(next) = next else { break };
        world = next;
        if world.is_wrong() {
            return Err(format!("{}\n{}", history.join("\n"), world.describe()));
        }
    }
    Ok((history.len(), world.entries()))
}

impl World {
    fn entries(&self) -> usize {
        self.ledger.committed.len()
    }
}
