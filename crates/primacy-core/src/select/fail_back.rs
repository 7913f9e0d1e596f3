//! When a live leader hands over to a candidate with a better rank, and how often at most.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::names::Names;
use super::rank::Rank;
use super::score::Scores;
use crate::{CandidateId, Instant};

/// When a live leader hands over to a live candidate with a better rank.
///
/// A rank is better when it is smaller, by one place among the names or one class of a score: scores within a class never
/// cause a hand-over. Age does not count at all, so without names and scores a leader stays.
///
/// Sources: HAZARDS, "What users ask for", 4 (automatic fail-back) and 5 (hand-over with a check that it is ready);
/// Becker et al. 2011 §5, resignation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailBack {
    /// A leader stays until it ends for another reason.
    #[default]
    Never,
    /// To a candidate that has been well, and better than the leader, for this long without a break. After
    /// `Duration::ZERO` it hands over at the first sight of one, and is held back by [`FailBackWatch`] alone.
    After(Duration),
}

impl FailBack {
    /// How long a better candidate must have been well where nothing is chosen.
    pub const USUAL: Duration = Duration::from_secs(30);

    /// What holds where nothing is chosen: after [`FailBack::USUAL`] when someone is preferred by name or has a score, and
    /// never otherwise. Names that may never lead are no reason: none of them leads before.
    pub fn usual(names: &Names, scores: &Scores) -> Self {
        let prefers = !names.prefer().as_slice().is_empty() || !scores.as_slice().is_empty();
        if prefers { Self::After(Self::USUAL) } else { Self::Never }
    }
}

/// Watches, for a candidate, who is better than it while it leads, and says when to hand over to whom.
///
/// **To whom.** To the best that has been well and better for the time of [`FailBack::After`]. When a still better one has
/// been well for less, it is awaited, but only for that time once more: one that comes and goes does not keep the leader
/// from handing over to the next best.
///
/// **How often.** Ranks from scores may change places for ever. So after a hand-over the next one has to wait, for
/// [`SPACING`](Self::SPACING) after the first, twice as long after each further one; an hour without any forgets one of
/// them. That makes at most 6 in any hour, and in the long run at most one an hour: after n hours no more than n + 7. The
/// wait is never longer than 64 minutes, and the first hand-over does not wait.
///
/// A candidate keeps one watch for its whole life, tells it by [`lead_begins`](Self::lead_begins) that it leads anew, and
/// by [`saw_hand_over`](Self::saw_hand_over) of hand-overs that other leaders made for preference. Those it makes itself
/// count by themselves. Without the latter each leader still holds to the bounds, but each for itself.
///
/// While an operator's order to lead stands (`promote`), do not observe: the operator prefers this leader.
///
/// `Id` tells candidates apart. It must change when a process restarts, as a [`CandidateId`] does: only then one that came
/// back in between two observations starts anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailBackWatch<Id = CandidateId> {
    rule: FailBack,
    /// Since when each candidate has been seen well and better.
    better: BTreeMap<Id, Instant>,
    /// When the last hand-over was.
    last: Option<Instant>,
    /// How many hand-overs were not forgotten at `last`, that one among them.
    recent: u32,
}

impl<Id: Copy + Ord> FailBackWatch<Id> {
    /// How long the next hand-over waits after the first one.
    pub const SPACING: Duration = Duration::from_secs(60);
    /// How long without a hand-over forgets one.
    const FORGET: Duration = Duration::from_secs(3_600);
    /// How many hand-overs are remembered at most: 64 minutes of wait.
    const RECENT_MOST: u32 = 7;

    /// A watch that has seen nothing.
    pub const fn new(rule: FailBack) -> Self {
        Self { rule, better: BTreeMap::new(), last: None, recent: 0 }
    }

    /// A leadership of this candidate begins: the time for which another was better starts anew. Hand-overs are
    /// remembered.
    pub fn lead_begins(&mut self) {
        self.better.clear();
    }

    /// A hand-over for preference has happened.
    pub fn saw_hand_over(&mut self, now: Instant) {
        self.recent = (self.recent_at(now) + 1).min(Self::RECENT_MOST);
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
        self.better.clear();
    }

    /// Takes a look at the leader's own rank and at the other candidates that are live and may lead: all of them, or only
    /// the best as `Some((id, &rank))`. Among equal ranks the first one counts. Says whom to hand over to, if anybody.
    ///
    /// Call it with each renewal or round. A candidate that is missing in one look, or not better, starts anew.
    ///
    /// An answer counts as a hand-over, and the time for which another was better starts anew: when it does not come
    /// about, because the candidate is not ready or does not get the grant, the next attempt is spaced like a next
    /// hand-over.
    pub fn observe<'r>(
        &mut self,
        now: Instant,
        own: &Rank,
        others: impl IntoIterator<Item = (Id, &'r Rank)>,
    ) -> Option<Id> {
        let FailBack::After(after) = self.rule else { return None };
        let before = core::mem::take(&mut self.better);
        let (mut best, mut ripe): (Option<Rank>, Option<(Rank, Id, Instant)>) = (None, None);
        for (id, rank) in others.into_iter().filter(|(_, rank)| *rank < own) {
            let since = before.get(&id).copied().unwrap_or(now);
            self.better.insert(id, since);
            if best.is_none_or(|best| *rank < best) {
                best = Some(*rank);
            }
            if now.since(since) >= after && ripe.is_none_or(|(ripest, ..)| *rank < ripest) {
                ripe = Some((*rank, id, since));
            }
        }
        let (rank, id, since) = ripe?;
        let waited_for_better = now.since(since) >= after.saturating_mul(2);
        if (best == Some(rank) || waited_for_better) && self.may_hand_over(now) {
            self.saw_hand_over(now);
            return Some(id);
        }
        None
    }

    fn may_hand_over(&self, now: Instant) -> bool {
        let (Some(last), Some(doublings)) = (self.last, self.recent_at(now).checked_sub(1)) else { return true };
        now.since(last) >= Self::SPACING * (1 << doublings)
    }

    /// How many hand-overs are not forgotten now.
    fn recent_at(&self, now: Instant) -> u32 {
        let quiet_hours = self.last.map_or(0, |last| now.since(last).as_secs() / Self::FORGET.as_secs());
        self.recent.saturating_sub(u32::try_from(quiet_hours).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn rank(text: &str) -> Rank {
        text.parse().expect("a rank")
    }

    fn watch(seconds: u64) -> FailBackWatch<u8> {
        FailBackWatch::new(FailBack::After(Duration::from_secs(seconds)))
    }

    /// The seconds at which a watch hands over when it looks once a second at what `others` shows.
    fn hand_overs<const N: usize>(
        watch: &mut FailBackWatch<u8>,
        seconds: core::ops::Range<u64>,
        others: impl Fn(u64) -> [Option<(u8, Rank)>; N],
    ) -> Vec<(u64, u8)> {
        let look = |second: u64| {
            let shown = others(second);
            let shown = shown.iter().flatten().map(|(id, rank)| (*id, rank));
            watch.observe(at(second), &Rank::default(), shown).map(|id| (second, id))
        };
        seconds.filter_map(look).collect()
    }

    #[test]
    fn only_names_and_scores_make_a_leader_give_way() {
        let names = |prefer: &str| Names::new(prefer.parse().expect("patterns"), Default::default()).expect("names");
        let never = Names::new(Default::default(), "b".parse().expect("patterns")).expect("names");
        let scores = "0.7".parse().expect("a score");
        assert_eq!(FailBack::usual(&Names::default(), &Scores::default()), FailBack::Never);
        assert_eq!(FailBack::usual(&never, &Scores::default()), FailBack::Never);
        assert_eq!(FailBack::usual(&names("a"), &Scores::default()), FailBack::After(Duration::from_secs(30)));
        assert_eq!(FailBack::usual(&never, &scores), FailBack::After(Duration::from_secs(30)));
        let mut watch = FailBackWatch::<u8>::new(FailBack::default());
        assert_eq!(hand_overs(&mut watch, 0..100_000, |_| [Some((1, rank("-100")))]), []);
    }

    #[test]
    fn a_better_one_must_be_well_for_the_whole_time() {
        assert_eq!(hand_overs(&mut watch(30), 5..36, |_| [Some((1, rank("-1")))]), [(35, 1)]);
        let gone = |second| [(second != 20).then(|| (1, rank("-1")))];
        assert_eq!(hand_overs(&mut watch(30), 0..60, gone), [(51, 1)], "gone for one look");
        let equal = |second| [Some((1, if second == 20 { rank("0") } else { rank("-1") }))];
        assert_eq!(hand_overs(&mut watch(30), 0..60, equal), [(51, 1)], "no better for one look");
        let other_run = |second| [Some((if second < 20 { 1 } else { 2 }, rank("-1")))];
        assert_eq!(hand_overs(&mut watch(30), 0..60, other_run), [(50, 2)], "restarted");
        let better_still = |second| [Some((1, if second < 20 { rank("-1") } else { rank("-9") }))];
        assert_eq!(hand_overs(&mut watch(30), 0..60, better_still), [(30, 1)], "better all the time");
        assert_eq!(hand_overs(&mut watch(0), 0..1, |_| [Some((1, rank("-1")))]), [(0, 1)]);
    }

    #[test]
    fn equal_and_worse_ranks_never_cause_a_hand_over() {
        let others = |_| [Some((1, rank("0"))), Some((2, rank("0,0,1"))), Some((3, rank("7")))];
        assert_eq!(hand_overs(&mut watch(0), 0..1_000, others), []);
    }

    #[test]
    fn the_best_is_awaited_but_not_for_ever() {
        let late = |second| [Some((2, rank("-1"))), (second >= 20).then(|| (1, rank("-2")))];
        assert_eq!(hand_overs(&mut watch(30), 0..60, late), [(50, 1)], "one hand-over instead of two");
        // Another run of its process, so another candidate, every 25 seconds.
        let restless = |second: u64| [Some((2, rank("-1"))), Some((10 + (second / 25) as u8, rank("-2")))];
        assert_eq!(hand_overs(&mut watch(30), 0..70, restless), [(60, 2)], "but no longer than twice the time");
        let absent = |second| [Some((2, rank("-1"))), (second != 30).then(|| (1, rank("-2")))];
        assert_eq!(hand_overs(&mut watch(30), 0..60, absent), [(30, 2)], "who is away is not awaited");
    }

    #[test]
    fn a_new_lead_starts_anew_and_remembers_hand_overs() {
        let mut watch = watch(30);
        let better = |_| [Some((1, rank("-1")))];
        assert_eq!(hand_overs(&mut watch, 0..20, better), []);
        watch.lead_begins();
        assert_eq!(hand_overs(&mut watch, 20..60, better), [(50, 1)]);
        watch.lead_begins();
        assert_eq!(hand_overs(&mut watch, 60..120, better), [(110, 1)], "a minute after the last");
    }

    #[test]
    fn each_further_hand_over_waits_twice_as_long() {
        let minutes: Vec<u64> = hand_overs(&mut watch(0), 0..4 * 3_600, |_| [Some((1, rank("-1")))])
            .iter()
            .map(|(second, _)| second / 60)
            .collect();
        // After 63 minutes the seventh hand-over; then one for every quiet hour.
        assert_eq!(minutes, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    }

    #[test]
    fn quiet_hours_are_forgiven_one_by_one() {
        let mut watch = watch(0);
        for second in [0, 1, 2] {
            watch.saw_hand_over(at(second));
        }
        let hours = |hours: u64| at(2 + hours * 3_600);
        assert_eq!([0, 1, 2, 3, 9].map(|quiet| watch.recent_at(hours(quiet))), [3, 2, 1, 0, 0]);
        watch.saw_hand_over(hours(2));
        assert_eq!(watch.recent_at(hours(2)), 2);
    }

    #[test]
    fn a_clock_that_stands_or_ends_does_no_harm() {
        let mut watch = FailBackWatch::<u8>::new(FailBack::After(Duration::MAX));
        assert_eq!(watch.observe(Instant::ZERO, &rank("0"), Some((1, &rank("-1")))), None);
        assert_eq!(watch.observe(Instant::FAR, &rank("0"), Some((1, &rank("-1")))), None);
        watch.saw_hand_over(Instant::FAR);
        watch.saw_hand_over(Instant::ZERO);
        assert_eq!(watch.recent_at(Instant::ZERO), 2, "time that goes back forgets nothing");
        assert!(!watch.may_hand_over(Instant::FAR));
    }
}
