//! How the leader chooses the round time: up when a live process was taken for dead, down again when there is room.

use core::time::Duration;

use super::port::Vars;
use super::rounds::Rounds;
use crate::Instant;

/// The leader's memory of how the round time has changed. The paper's only grows (section 4.3); this one comes back down,
/// and grows at once to what is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pace {
    changed_at: Option<Instant>,
    lowered_at: Option<Instant>,
    /// How long all must be well before the round time comes down; doubled whenever that was too early.
    calm: Duration,
    /// How much it grew the last time, and grows at least the next time; nothing after it came down.
    stride: Duration,
}

/// After how long without a change the pace forgets that it once came down too early.
const FORGIVEN: Duration = Duration::from_secs(3_600);

impl Pace {
    /// The round time to change to, if any, for what a scan has shown: `late` is by how much the latest process beats
    /// after its time.
    pub(super) fn next(&mut self, rounds: &Rounds, vars: &Vars, late: Duration, now: Instant) -> Option<Duration> {
        let changed_at = *self.changed_at.get_or_insert(now);
        let least = base_calm(rounds);
        if self.calm < least || now.since(changed_at) >= FORGIVEN {
            self.calm = least;
        }
        let needed = rounds.needed(late);
        if vars.came_back() || rounds.is_tight(vars.round, late) {
            return self.raise(rounds, vars, needed, now);
        }
        let target = needed.max(rounds.round());
        let worth_it = target.saturating_add(rounds.step() / 2) < vars.round || target == rounds.round();
        if vars.round <= target || !worth_it || now.since(changed_at) < self.calm {
            return None;
        }
        (self.changed_at, self.lowered_at, self.stride) = (Some(now), Some(now), Duration::ZERO);
        Some(target)
    }

    fn raise(&mut self, rounds: &Rounds, vars: &Vars, needed: Duration, now: Instant) -> Option<Duration> {
        if self.lowered_at.take_if(|lowered| now.since(*lowered) < self.calm * 10).is_some() {
            self.calm = (self.calm * 2).min(FORGIVEN);
        }
        self.stride = (self.stride * 2).clamp(rounds.step(), rounds.most());
        // By steps that double, but no further than what the slowest would have needed; or at once to what is needed now.
        let enough = rounds.needed(vars.slowest).max(vars.round.saturating_add(rounds.step()));
        let round = vars.round.saturating_add(self.stride).min(enough).max(needed).min(rounds.most());
        if round != vars.round {
            self.changed_at = Some(now);
        }
        // At its longest already: what came back has been heard all the same.
        (round != vars.round || vars.came_back()).then_some(round)
    }
}

fn base_calm(rounds: &Rounds) -> Duration {
    (rounds.round() * 10).clamp(Duration::from_secs(10), Duration::from_secs(30))
}

#[cfg(test)]
mod tests {
    use super::super::rounds::RoundsSettings;
    use super::*;

    fn rounds() -> Rounds {
        Rounds::new(RoundsSettings::new(Duration::from_secs(2))).expect("the paper's settings")
    }

    struct World {
        pace: Pace,
        vars: Vars,
        now: Instant,
        changes: u32,
    }

    impl World {
        fn new() -> Self {
            Self { pace: Pace::default(), vars: Vars::new(Duration::from_secs(2)), now: Instant::ZERO, changes: 0 }
        }

        /// One scan a round, with somebody this late; whether somebody was evicted and came back.
        fn scan(&mut self, late: Duration, came_back: bool) {
            self.now = self.now + self.vars.round;
            if came_back {
                self.vars.comebacks += 1;
                self.vars.slowest = self.vars.slowest.max(late);
            }
            if let Some(round) = self.pace.next(&rounds(), &self.vars, late, self.now) {
                self.changes += u32::from(round != self.vars.round);
                self.vars = Vars { round, heard: self.vars.comebacks, slowest: Duration::ZERO, ..self.vars };
            }
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_comeback_raises_at_once_and_calm_brings_it_down_within_a_minute() {
        let mut world = World::new();
        world.scan(Duration::ZERO, false);
        assert_eq!(world.vars.round, 2 * SECOND);
        world.scan(5 * SECOND, true);
        assert_eq!(world.vars.round, 10 * SECOND, "what that process needs, which goes on being late");
        let loaded = world.now;
        while world.vars.round > 2 * SECOND {
            world.scan(Duration::ZERO, false);
            assert!(world.now.since(loaded) <= 60 * SECOND);
        }
        assert_eq!(world.changes, 2);
    }

    #[test]
    fn who_is_nearly_too_late_is_given_time_before_being_evicted() {
        let mut world = World::new();
        world.scan(1_900 * SECOND / 1_000, false);
        assert!(world.vars.round >= 3_800 * SECOND / 1_000);
        assert_eq!(world.changes, 1);
    }

    #[test]
    fn a_load_that_comes_and_goes_does_not_make_it_flap() {
        let mut world = World::new();
        let hour = Instant::ZERO + 3_600 * SECOND;
        // The worst: whenever it has come down, a process with another lateness is evicted and comes back.
        while world.now < hour {
            let low = world.vars.round == 2 * SECOND;
            world.scan(if low { 2_500 * SECOND / 1_000 } else { Duration::ZERO }, low);
        }
        assert!(world.changes <= 20, "{} changes in an hour", world.changes);
    }

    #[test]
    fn one_that_came_back_and_is_well_costs_a_step() {
        let mut world = World::new();
        world.vars.slowest = 60 * SECOND;
        world.scan(Duration::ZERO, true);
        assert_eq!(world.vars.round, 2 * SECOND + rounds().step());
    }

    #[test]
    fn small_steps_grow_when_they_are_not_enough() {
        let mut world = World::new();
        let mut scans = 0;
        while world.vars.round < rounds().most() {
            world.vars.slowest = 60 * SECOND;
            world.scan(Duration::ZERO, true);
            scans += 1;
        }
        assert!(scans <= 10, "{scans}");
        world.scan(Duration::ZERO, true);
        assert!(!world.vars.came_back(), "heard, even if it cannot grow further");
    }

    #[test]
    fn what_stays_too_late_for_the_longest_rounds_is_borne_for_ever() {
        let mut world = World::new();
        for _ in 0..1_000 {
            world.scan(3_600 * SECOND, true);
        }
        assert_eq!(world.vars.round, rounds().most());
        assert_eq!(world.changes, 1);
    }

    #[test]
    fn a_leader_that_is_new_waits_before_it_lowers() {
        let mut world = World::new();
        world.vars.round = 3 * SECOND;
        world.scan(Duration::ZERO, false);
        world.scan(Duration::ZERO, false);
        assert_eq!(world.vars.round, 3 * SECOND);
    }
}
