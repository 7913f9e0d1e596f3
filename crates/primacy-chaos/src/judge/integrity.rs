//! Integrity and Order, from the lines of the unfenced witness in the order in which the kernel took them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy::Token;

use super::{Promise, Verdict};
use crate::clock::Moment;
use crate::witness::{Line, Word};

/// One program's time.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    pub(crate) token: u64,
    pub(crate) name: String,
    pub(crate) pid: i32,
    pub(crate) start: Moment,
    /// Its last work so far.
    pub(crate) last: Moment,
}

/// A program that nobody could kill, since all of its candidate was stopped at once: it may wake up late.
#[derive(Clone, Debug)]
struct Excuse {
    /// The candidate's: processes of different namespaces may have the same numbers.
    name: String,
    /// All that was stopped, by the numbers by which they call themselves.
    pids: Vec<i32>,
    /// The program's, as soon as it has told.
    token: Option<u64>,
    /// When the last of its guards went on.
    awake: Option<Moment>,
}

impl Excuse {
    fn has(&self, name: &str, pid: i32) -> bool {
        self.name == name && self.pids.contains(&pid)
    }
}

/// Which of the times when all of a candidate was stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped(usize);

/// What the witness saw.
#[derive(Debug)]
pub(crate) struct WitnessLog {
    /// How long after its guards went on a late program may still be alive.
    bound: Duration,
    /// Where a failover of the store loses what was committed last: for how long after the first start in a newer epoch
    /// leaders may still work of whom the store knows nothing.
    forgotten: Option<Duration>,
    pub(crate) leaderships: BTreeMap<u64, Leadership>,
    excuses: Vec<Excuse>,
    /// Whose programs' children nobody is left to kill.
    orphans: BTreeSet<u64>,
    /// Their lines.
    pub(crate) orphaned: usize,
    /// Lines of excused programs behind the start of another.
    pub(crate) excused: usize,
    /// Lines of leaders whom the store had forgotten, behind the start of another.
    pub(crate) undone: usize,
    /// How long after waking up the latest of them was.
    pub(crate) latest: Duration,
    /// Fenced writes that were refused.
    pub(crate) refused: usize,
}

impl WitnessLog {
    pub(crate) fn new(bound: Duration) -> Self {
        Self {
            bound,
            forgotten: None,
            leaderships: BTreeMap::new(),
            excuses: Vec::new(),
            orphans: BTreeSet::new(),
            orphaned: 0,
            excused: 0,
            undone: 0,
            latest: Duration::ZERO,
            refused: 0,
        }
    }

    /// On a store whose failovers lose what was committed last: a leader that it forgot may believe for a lease.
    pub(crate) fn forgetting(self, lease: Duration) -> Self {
        Self { forgotten: Some(lease), ..self }
    }

    /// The one with the highest token.
    pub(crate) fn latest_leadership(&self) -> Option<&Leadership> {
        self.leaderships.last_key_value().map(|(_, leadership)| leadership)
    }

    /// All of this candidate is stopped, as the caller has seen to: it had these processes, one of them its program.
    pub(crate) fn stopped(&mut self, name: &str, pids: Vec<i32>) -> Stopped {
        let is_own = |leadership: &&Leadership| leadership.name == name && pids.contains(&leadership.pid);
        let token = self.leaderships.values().rev().find(is_own).map(|leadership| leadership.token);
        self.excuses.push(Excuse { name: name.to_owned(), token, pids, awake: None });
        Stopped(self.excuses.len() - 1)
    }

    /// All of that candidate goes on.
    pub(crate) fn awake(&mut self, stopped: Stopped, at: Moment) {
        if let Some(excuse) = self.excuses.get_mut(stopped.0) {
            excuse.awake = Some(at);
        }
    }

    /// Nobody is left to kill what the program with this token has started. The program itself has no excuse.
    pub(crate) fn orphan(&mut self, token: u64) {
        self.orphans.insert(token);
    }

    /// Whether this is the work of a process that nobody was left to kill, and so of no leader.
    pub(crate) fn is_orphaned(&self, line: &Line) -> bool {
        line.word == Word::Kin && self.orphans.contains(&line.token)
    }

    /// Takes the next line; says what it proves to be broken.
    pub(crate) fn see(&mut self, line: &Line) -> Option<Verdict> {
        if line.word == Word::Refused {
            self.refused += 1;
        }
        if line.word == Word::Start {
            return self.start(line);
        }
        if !line.word.is_work() {
            return None;
        }
        if self.is_orphaned(line) {
            self.orphaned += 1;
            return None;
        }
        if let Some(own) = self.leaderships.get_mut(&line.token) {
            own.last = own.last.max(line.at);
        }
        let (_, later) = self.leaderships.last_key_value().filter(|(token, _)| **token > line.token)?;
        let after = line.at.since(later.start);
        let what = format!(
            "{} with token {} was at work {:.1} ms after {} with token {} had started ({:?})",
            line.name,
            line.token,
            after.as_secs_f64() * 1e3,
            later.name,
            later.token,
            line.word
        );
        self.unless_excused(line, Verdict::new(Promise::Integrity, what))
    }

    fn start(&mut self, line: &Line) -> Option<Verdict> {
        let (token, pid, start) = (line.token, line.pid, line.at);
        let before = self.leaderships.last_key_value().map(|(_, before)| before.clone());
        let leadership = Leadership { token, name: line.name.clone(), pid, start, last: start };
        self.leaderships.entry(line.token).or_insert(leadership);
        // It may have been stopped before its first word.
        if let Some(excuse) =
            self.excuses.iter_mut().find(|excuse| excuse.token.is_none() && excuse.has(&line.name, pid))
        {
            excuse.token = Some(token);
        }
        let before = before.filter(|before| before.token >= token)?;
        let what = format!("{} started with token {token}, after {} with {}", line.name, before.name, before.token);
        let verdict = Verdict::new(Promise::Order, what);
        if before.token == token { Some(verdict) } else { self.unless_excused(line, verdict) }
    }

    /// Whether the store may have forgotten whose line it is.
    fn is_forgotten(&self, line: &Line) -> bool {
        let Some((lease, token)) = self.forgotten.zip(Token::new(line.token)) else { return false };
        let is_newer = |later: &&Leadership| Token::new(later.token).is_some_and(|later| later.epoch() > token.epoch());
        self.leaderships.values().find(is_newer).is_some_and(|newer| line.at <= newer.start + lease)
    }

    fn unless_excused(&mut self, line: &Line, verdict: Verdict) -> Option<Verdict> {
        if self.is_forgotten(line) {
            self.undone += 1;
            return None;
        }
        let own = |excuse: &&Excuse| excuse.token == Some(line.token) || excuse.has(&line.name, line.pid);
        let excuse = self.excuses.iter().rev().find(own);
        match excuse.map(|excuse| excuse.awake) {
            Some(None) => {}
            Some(Some(awake)) if line.at <= awake + self.bound => self.latest = self.latest.max(line.at.since(awake)),
            _ => return Some(verdict),
        }
        self.excused += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(word: Word, token: u64, at: u64) -> Line {
        let at = Moment::from_nanos(at);
        Line { word, token, pid: i32::try_from(token).expect("small"), name: format!("c{token}"), at }
    }

    fn promise(verdict: Option<Verdict>) -> Option<Promise> {
        verdict.map(|verdict| verdict.promise)
    }

    fn bound(nanos: u64) -> WitnessLog {
        WitnessLog::new(Duration::from_nanos(nanos))
    }

    #[test]
    fn work_behind_the_start_of_a_later_leader_is_an_overlap_whatever_its_clock_says() {
        for word in [Word::Beat, Word::Kin] {
            let mut witnessed = bound(0);
            assert_eq!(witnessed.see(&line(Word::Start, 1, 10)), None);
            assert_eq!(witnessed.see(&line(word, 1, 20)), None);
            assert_eq!(witnessed.see(&line(Word::Start, 2, 30)), None);
            assert_eq!(witnessed.see(&line(Word::Refused, 1, 31)), None, "being refused is no work");
            assert_eq!(promise(witnessed.see(&line(word, 1, 25))), Some(Promise::Integrity));
        }
    }

    #[test]
    fn tokens_only_grow() {
        let mut witnessed = bound(0);
        assert_eq!(witnessed.see(&line(Word::Start, 2, 10)), None);
        assert_eq!(promise(witnessed.see(&line(Word::Start, 2, 20))), Some(Promise::Order));
        assert_eq!(promise(witnessed.see(&line(Word::Start, 1, 30))), Some(Promise::Order));
    }

    #[test]
    fn who_was_stopped_with_its_guards_may_wake_up_late_but_not_for_long() {
        let mut witnessed = bound(100);
        assert_eq!(witnessed.see(&line(Word::Start, 1, 0)), None);
        let stopped = witnessed.stopped("c1", vec![1, 77]);
        assert_eq!(witnessed.see(&line(Word::Start, 2, 1_000)), None);
        assert_eq!(witnessed.see(&line(Word::Beat, 1, 1_990)), None, "it woke up before its guards");
        witnessed.awake(stopped, Moment::from_nanos(2_000));
        let kin = Line { pid: 99, ..line(Word::Kin, 1, 2_090) };
        assert_eq!(witnessed.see(&kin), None);
        assert_eq!((witnessed.excused, witnessed.latest), (2, Duration::from_nanos(90)));
        assert_eq!(promise(witnessed.see(&line(Word::Beat, 1, 2_101))), Some(Promise::Integrity));
    }

    #[test]
    fn only_what_an_orphaned_program_has_started_may_go_on() {
        let mut witnessed = bound(0);
        assert_eq!(witnessed.see(&line(Word::Start, 1, 0)), None);
        witnessed.orphan(1);
        assert_eq!(witnessed.see(&line(Word::Start, 2, 1_000)), None);
        assert_eq!(witnessed.see(&line(Word::Kin, 1, 9_000)), None);
        assert_eq!(witnessed.orphaned, 1);
        assert_eq!(promise(witnessed.see(&line(Word::Beat, 1, 9_001))), Some(Promise::Integrity));
        assert_eq!(witnessed.see(&line(Word::Start, 3, 10_000)), None);
        assert_eq!(promise(witnessed.see(&line(Word::Kin, 2, 10_001))), Some(Promise::Integrity));
    }

    #[test]
    fn processes_of_two_candidates_may_have_the_same_number() {
        let mut witnessed = bound(100);
        let of = |name: &str, word, token, at| Line { pid: 2, name: name.to_owned(), ..line(word, token, at) };
        assert_eq!(witnessed.see(&of("a", Word::Start, 1, 0)), None);
        assert_eq!(witnessed.see(&of("b", Word::Start, 2, 10)), None);
        witnessed.stopped("b", vec![2]);
        assert_eq!(promise(witnessed.see(&of("a", Word::Beat, 1, 20))), Some(Promise::Integrity));
        assert_eq!(witnessed.see(&of("c", Word::Start, 3, 30)), None);
        assert_eq!(witnessed.see(&of("b", Word::Beat, 2, 40)), None);
    }

    #[test]
    fn who_was_forgotten_by_a_failover_may_work_for_a_lease_and_nobody_else() {
        let (lease, epoch) = (1_000, 1 << 40);
        let mut witnessed = bound(0).forgetting(Duration::from_nanos(lease));
        let [mut old, mut new] = [line(Word::Start, 5, 0), line(Word::Start, 6, 500)];
        assert_eq!(witnessed.see(&old), None);
        new.token = epoch + 4;
        assert_eq!(witnessed.see(&new), None);
        old.word = Word::Beat;
        old.at = Moment::from_nanos(500 + lease);
        assert_eq!(witnessed.see(&old), None);
        assert_eq!(witnessed.undone, 1);
        old.at = Moment::from_nanos(501 + lease);
        assert_eq!(promise(witnessed.see(&old)), Some(Promise::Integrity));
        let next = Line { token: epoch + 5, at: Moment::from_nanos(600), ..new.clone() };
        assert_eq!(witnessed.see(&next), None);
        let within = Line { word: Word::Beat, at: Moment::from_nanos(601), ..new };
        assert_eq!(promise(witnessed.see(&within)), Some(Promise::Integrity), "in one epoch nothing was forgotten");
    }

    #[test]
    fn who_was_stopped_before_its_first_word_is_excused_too() {
        let mut witnessed = bound(100);
        let stopped = witnessed.stopped("c1", vec![1]);
        assert_eq!(witnessed.see(&line(Word::Start, 2, 1_000)), None);
        witnessed.awake(stopped, Moment::from_nanos(2_000));
        assert_eq!(witnessed.see(&line(Word::Start, 1, 2_010)), None);
        assert_eq!(witnessed.see(&line(Word::Beat, 1, 2_020)), None);
        assert_eq!(promise(witnessed.see(&line(Word::Beat, 1, 2_200))), Some(Promise::Integrity));
        let mut witnessed = bound(100);
        assert_eq!(witnessed.see(&line(Word::Start, 2, 0)), None);
        witnessed.stopped("c2", vec![2]);
        assert_eq!(promise(witnessed.see(&line(Word::Start, 2, 1))), Some(Promise::Order), "a token given twice");
    }
}
