//! Each flaw as the shortest schedule that shows it, on perfect clocks, with the constants of HopsFS: rounds of 1 s, two
//! missed rounds, μ of 100 ms. Times are milliseconds.

use std::time::Duration;

use primacy_core::Instant;

use super::algorithm::{Conclusion, Process, Settings};
use super::choices::{Aborted, AfterSlow, Choices, Forced, History, LeaseFrom};
use super::store::{Number, Store};

const OLD: usize = 0;
const NEW: usize = 1;
const THIRD: usize = 2;

struct Table {
    store: Store,
    processes: Vec<Process>,
    rounds: Number,
}

fn ms(at: u64) -> Instant {
    Instant::from_nanos(at * 1_000_000)
}

impl Table {
    fn new(choices: Choices, growth: u64) -> Self {
        Self::with(choices, growth, 2)
    }

    fn with(choices: Choices, growth: u64, max_missed: u32) -> Self {
        let settings = Settings {
            max_missed,
            margin: Duration::from_millis(100),
            growth: Duration::from_millis(growth),
            period: Duration::from_secs(1),
        };
        let processes = (0..3).map(|_| Process::new(choices, settings)).collect();
        Self { store: Store::new(settings.period), processes, rounds: 0 }
    }

    /// Begins a round whose request gets the lock and its rows at another time, and asks for its writes.
    fn open(&mut self, who: usize, begun: u64, read: u64) -> (Number, Conclusion) {
        self.rounds += 1;
        let round = self.rounds;
        let lock = self.processes[who].begin(ms(begun));
        assert!(self.store.lock(round, lock), "the schedule leaves nobody waiting");
        let (vars, rows) = self.store.read(round).expect("it has the lock");
        let (writes, conclusion) = self.processes[who].read(ms(read), &vars, &rows);
        assert!(self.store.write(round, writes));
        (round, conclusion)
    }

    /// Asks for the commit and has it answered at another time. Says for how long the process sleeps.
    fn commit(&mut self, who: usize, round: Number, asked: u64, answered: u64) -> u64 {
        self.processes[who].before_commit(ms(asked));
        let done = self.store.commit(round, who, ms(asked).as_nanos());
        let sleep =
            if done.is_some() { self.processes[who].committed(ms(answered)) } else { self.processes[who].aborted() };
        sleep.as_millis() as u64
    }

    /// A whole round at one moment.
    fn round(&mut self, who: usize, at: u64) -> (Conclusion, u64) {
        let (round, conclusion) = self.open(who, at, at);
        (conclusion, self.commit(who, round, at, at))
    }

    /// A round that the database aborts after it was read.
    fn aborted(&mut self, who: usize, at: u64) -> Conclusion {
        let (round, conclusion) = self.open(who, at, at);
        self.store.roll_back(round).expect("it was there");
        self.processes[who].aborted();
        conclusion
    }

    fn leaders(&self, at: u64) -> Vec<usize> {
        (0..3).filter(|who| self.processes[*who].is_leader(ms(at))).collect()
    }
}

/// Which of the two lead at the end of a schedule.
type Schedule = fn(Choices) -> Vec<usize>;

/// The report hops#99: a round that was slow before it read is followed at once by one that reads the same.
fn slow_round(choices: Choices) -> Vec<usize> {
    let mut table = Table::new(choices, 50);
    for at in [0, 1_000, 2_000, 3_000] {
        table.round(OLD, at);
        if at < 2_000 {
            table.round(NEW, at + 5);
        }
    }
    let (round, _) = table.open(NEW, 2_005, 3_005);
    let sleep = table.commit(NEW, round, 3_005, 3_006);
    let mut at = 3_006 + sleep;
    while at <= 4_010 {
        // The beat of 4,000 is late, by less than a round.
        let (conclusion, sleep) = table.round(NEW, at);
        at += 1 + sleep;
        if conclusion == Conclusion::Leads {
            break;
        }
    }
    table.leaders(4_100)
}

/// A process that was rightly evicted reads twice as it rejoins (lines 28 to 31 and 22).
fn rejoin(choices: Choices) -> Vec<usize> {
    let mut table = Table::new(choices, 50);
    table.round(OLD, 0);
    table.round(NEW, 10);
    for at in [1_000, 2_000, 3_000] {
        table.round(OLD, at);
    }
    let mut at = 3_010;
    while at <= 4_020 {
        let (_, sleep) = table.round(NEW, at);
        at += 1 + sleep;
    }
    table.leaders(4_100)
}

/// Rounds that abort after they have read, each followed at once by the next.
fn aborts(choices: Choices) -> Vec<usize> {
    aborts_of(2, choices)
}

fn aborts_of(max_missed: u32, choices: Choices) -> Vec<usize> {
    let mut table = Table::with(choices, 50, max_missed);
    table.round(OLD, 0);
    table.round(NEW, 10);
    table.round(OLD, 1_000);
    let mut at = 1_010;
    for _ in 0..max_missed {
        table.aborted(NEW, at);
        at += 3;
    }
    // All further beats but one may be missed. The first committed round after aborted ones takes itself for dead: its
    // counter is what they had counted to.
    let end = u64::from(max_missed) * 1_000 + 100;
    while at <= end {
        let (_, sleep) = table.round(NEW, at);
        at += 1 + sleep;
    }
    table.leaders(end)
}

/// An aborted join leaves an id that the next to join is given too.
fn one_id(choices: Choices) -> Vec<usize> {
    let mut table = Table::new(choices, 50);
    table.aborted(OLD, 0);
    table.round(NEW, 10);
    table.round(OLD, 20);
    table.leaders(30)
}

/// The leader's commit is answered late.
fn late_answer(choices: Choices) -> Vec<usize> {
    let mut table = Table::new(choices, 50);
    table.round(OLD, 0);
    table.round(NEW, 10);
    let (round, _) = table.open(OLD, 1_000, 1_000);
    table.commit(OLD, round, 1_000, 1_900);
    for at in [1_010, 2_010, 3_010, 3_011] {
        table.round(NEW, at);
    }
    table.leaders(3_100)
}

/// The leader is stopped between lines 19 and 20, and the database rolls its transaction back meanwhile.
fn stopped_before_line_20(choices: Choices) -> Vec<usize> {
    let mut table = Table::new(choices, 50);
    table.round(OLD, 0);
    table.round(NEW, 10);
    table.round(OLD, 1_000);
    table.round(NEW, 1_010);
    let (round, _) = table.open(OLD, 2_000, 2_000);
    table.store.roll_back(round).expect("it held the lock");
    for at in [2_501, 3_502, 3_503] {
        table.round(NEW, at);
    }
    table.processes[OLD].before_commit(ms(3_600));
    table.leaders(3_601)
}

/// The leader's commit is on its way for long, and the database rolls back before it arrives.
fn slow_commit(choices: Choices) -> Vec<usize> {
    let mut table = Table::new(choices, 50);
    table.round(OLD, 0);
    table.round(NEW, 10);
    let (round, _) = table.open(OLD, 1_000, 1_000);
    table.processes[OLD].before_commit(ms(1_000));
    table.store.roll_back(round).expect("it held the lock");
    for at in [1_501, 2_502, 2_503] {
        table.round(NEW, at);
    }
    table.leaders(2_600)
}

/// The leader raises the round time in a round that is never committed.
fn growth(choices: Choices) -> Vec<usize> {
    growth_by(100, choices)
}

fn growth_by(growth: u64, choices: Choices) -> Vec<usize> {
    let mut table = Table::new(choices, growth);
    table.round(OLD, 0);
    table.round(NEW, 10);
    table.round(THIRD, 20);
    // The third is evicted, rejoins, and sets the flag.
    for at in [1_000, 2_000, 3_000] {
        table.round(OLD, at);
        table.round(NEW, at + 10);
    }
    table.round(THIRD, 3_020);
    table.round(THIRD, 3_021);
    let (round, _) = table.open(OLD, 4_890, 4_890);
    table.store.roll_back(round).expect("it held the lock");
    for at in [4_010, 5_010, 5_011] {
        table.round(NEW, at);
    }
    table.leaders(5_020)
}

const HOPSFS: Choices = Choices { aborted: Aborted::Swapped, after_slow: AfterSlow::AtOnce, ..Choices::PUBLISHED };
const KEPT: Choices = Choices { aborted: Aborted::Kept, ..Choices::PUBLISHED };
const LATE: Choices = Choices { lease_from: LeaseFrom::AfterCommit, ..Choices::REPAIRED };
const IN_PLACE: Choices = Choices { aborted: Aborted::RolledBack, ..Choices::REPAIRED };

/// Each schedule, choices that it splits, and the same choices with one thing changed that holds against it.
const FLAWS: &[(&str, Schedule, Choices, Choices)] = &[
    ("a slow round", slow_round, HOPSFS, Choices { after_slow: AfterSlow::Sleeps, ..HOPSFS }),
    ("a slow round, timed", slow_round, HOPSFS, Choices { history: History::Timed, ..HOPSFS }),
    ("a rejoin", rejoin, Choices::PUBLISHED, Choices { forced: Forced::Sleeps, ..Choices::PUBLISHED }),
    ("a rejoin, timed", rejoin, Choices::PUBLISHED, Choices { history: History::Timed, ..Choices::PUBLISHED }),
    ("aborts", aborts, KEPT, Choices::PUBLISHED),
    ("aborts, timed", aborts, KEPT, Choices { history: History::Timed, ..KEPT }),
    ("one id for two", one_id, KEPT, Choices::PUBLISHED),
    ("a late answer", late_answer, LATE, Choices { lease_from: LeaseFrom::BeforeCommit, ..LATE }),
    ("a stop", stopped_before_line_20, IN_PLACE, Choices { aborted: Aborted::Swapped, ..IN_PLACE }),
    ("a slow commit", slow_commit, Choices::PUBLISHED, Choices { aborted: Aborted::Swapped, ..Choices::PUBLISHED }),
    ("a longer round", growth, Choices::PUBLISHED, Choices { aborted: Aborted::Swapped, ..Choices::PUBLISHED }),
];

#[test]
fn each_flaw_splits_and_its_repair_alone_does_not() {
    for (name, schedule, flawed, mended) in FLAWS {
        assert_eq!(schedule(*flawed), [OLD, NEW], "{name}: both lead");
        assert!(schedule(*mended).len() <= 1, "{name}: mended, and still two lead");
        assert!(schedule(Choices::REPAIRED).len() <= 1, "{name}: repaired, and still two lead");
    }
}

#[test]
fn slow_rounds_alone_evict_but_do_not_split() {
    // They save one round time, and the contender that sleeps before its exclusive round spends one.
    assert!(slow_round(Choices { forced: Forced::Sleeps, ..HOPSFS }).len() <= 1);
}

#[test]
fn aborted_rounds_alone_split_where_three_may_be_missed() {
    let choices = Choices { forced: Forced::Sleeps, ..KEPT };
    assert_eq!(aborts_of(2, choices), [OLD], "one round time saved for itself, one spent by the contender");
    assert_eq!(aborts_of(3, choices), [OLD, NEW]);
    for mended in [Choices { aborted: Aborted::RolledBack, ..choices }, Choices { history: History::Timed, ..choices }]
    {
        assert_eq!(aborts_of(3, mended), [OLD]);
    }
}

#[test]
fn a_longer_round_needs_a_growth_of_more_than_half_of_mu() {
    assert_eq!(growth_by(100, Choices::PUBLISHED).len(), 2);
    assert_eq!(growth_by(50, Choices::PUBLISHED).len(), 1, "the constants of the paper and of HopsFS");
}

#[test]
fn line_20_before_the_commit_is_early_enough_where_nobody_sees_it_before_the_commit() {
    let choices = Choices { lease_from: LeaseFrom::BeforeCommit, ..Choices::REPAIRED };
    for (name, schedule, ..) in FLAWS {
        assert!(schedule(choices).len() <= 1, "{name}");
    }
}

#[test]
fn a_takeover_evicts_a_process_that_beat_one_round_ago() {
    // The reads of lines 37 to 39 and of the retry count as two, so the third has missed a single beat, by 25 ms.
    let evicted = |choices| {
        let mut table = Table::new(choices, 50);
        table.round(OLD, 0);
        table.round(NEW, 10);
        for at in [1_000, 2_000] {
            table.round(THIRD, at - 5);
            table.round(OLD, at);
            table.round(NEW, at + 10);
        }
        table.round(THIRD, 2_995);
        let mut at = 3_010;
        let mut conclusion = Conclusion::Contends;
        while at <= 4_012 {
            let (next, sleep) = table.round(NEW, at);
            conclusion = next;
            at += if sleep > 0 { sleep } else { 1 };
        }
        assert!(conclusion == Conclusion::Leads || choices.forced == Forced::Sleeps);
        table.round(THIRD, 4_020).0 == Conclusion::Evicted
    };
    assert!(evicted(Choices::PUBLISHED));
    assert!(!evicted(Choices { history: History::Timed, ..Choices::PUBLISHED }));
    assert!(!evicted(Choices { forced: Forced::Sleeps, ..Choices::PUBLISHED }));
}

#[test]
fn a_stopped_leader_names_nobody_and_the_others_name_the_next() {
    let mut table = Table::new(Choices::REPAIRED, 50);
    table.round(OLD, 0);
    table.round(NEW, 10);
    assert_eq!(table.processes[OLD].leader(ms(1_899)), Some(1));
    assert_eq!(table.processes[OLD].leader(ms(1_900)), None, "2 s less μ after its round began");
    assert_eq!(table.processes[NEW].leader(ms(1_900)), Some(1), "line 55 has no deadline");
    for at in [1_010, 2_010, 2_011] {
        table.round(NEW, at);
    }
    assert_eq!(table.processes[NEW].leader(ms(2_012)), Some(2));
}
