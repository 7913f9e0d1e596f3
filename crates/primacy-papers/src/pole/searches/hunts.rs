//! The counterexamples of Becker et al. 2011, and the same adversaries against the repaired form.

use crate::pole::{Pole, Published};

use super::model::{PoleModel, PoleSetup, Sampled};
use super::properties::{CAPPED, LED, LIVES, ONCE, ONE_LEADER, RISING, THIS_LIFE};
use primacy_sim::search::{self, Hunt};

fn hunt(setup: PoleSetup, breaks: &'static str, steps: usize) -> Hunt {
    let setup = PoleSetup { only: Some(breaks), ..setup };
    Hunt::new(PoleModel::<Published<Sampled>>::new(setup), breaks).found_after(steps)
}

pub(super) fn slow() -> PoleSetup {
    PoleSetup { name: "published POLE: slow messages", vacancies: [true; 3], wakes: 2, ..PoleSetup::default() }
}

pub(super) fn restart() -> PoleSetup {
    let restarts = [false, true, false];
    PoleSetup { name: "published POLE: a restart", led: 5, wakes: 1, restarts, ..PoleSetup::default() }
}

/// The counterexamples.
pub fn hunts() -> Vec<Hunt> {
    let third = PoleSetup { vacancies: [false, false, true], ..slow() };
    let deaf = PoleSetup { name: "published POLE: one-way link", deaf: 1, for_ever: true, ..third };
    let apart = PoleSetup { name: "published POLE: nobody follows", dead: [false, false, true], ..slow() };
    let crash = PoleSetup { name: "published POLE: the winner dies", crashes: 1, ..third };
    let retries = PoleSetup { name: "published POLE: retries", wakes: 9, dead: [true, true, false], ..third };
    let vacancies = [false, true, false];
    let earlier = PoleSetup { name: "published POLE: an earlier life", vacancies, full_restarts: 1, led: 5, ..slow() };
    vec![
        hunt(slow(), ONE_LEADER, 5),
        hunt(restart(), RISING, 5),
        hunt(earlier, THIS_LIFE, 4),
        hunt(deaf, ONCE, 8),
        hunt(crash, LIVES, 8),
        hunt(retries, CAPPED, 10),
        hunt(apart, LED, 8),
        hunt(PoleSetup { name: "published POLE: scores jitter", jitters: true, ..apart }, LED, 8),
    ]
}

/// What the repaired form stands.
pub fn held() -> Vec<search::Search> {
    let all = PoleSetup { led: 1, vacancies: [true; 3], wakes: 1, for_ever: true, ..PoleSetup::default() };
    vec![
        search::Search::new(PoleModel::<Pole>::new(PoleSetup { name: "POLE: one-way link", deaf: 1, ..all })),
        search::Search::new(PoleModel::<Pole>::new(PoleSetup { name: "POLE: a crash", crashes: 1, ..all })),
    ]
}
