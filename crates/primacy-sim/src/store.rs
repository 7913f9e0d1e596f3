//! A linearizable store as primacy's port asks for it: one row, a memory of tokens, announcements, operators' orders.

use std::collections::VecDeque;
use std::time::Duration;

use primacy_core::lease::row::{self, Order, Verdict};
use primacy_core::lease::{Record, Reply, Request, Sighting, Standing, WaitQueue};
use primacy_core::{CandidateId, Instant, Label, Token, registers};

use crate::planted::{Planted, StoreFlaw};
use crate::registers::{Registers, StepRecord};

/// Who asks the store for something.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// The candidate.
    pub(crate) id: CandidateId,
    /// Its label.
    pub(crate) label: Label,
}

/// What a backup holds.
#[derive(Clone, Debug)]
struct Backup {
    row: Option<Record>,
    memory: Token,
    written_at: i64,
    registers: Registers,
}

/// The store. It is carried forward by one atomic step at a time.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    row: Option<Record>,
    /// Who takes part, in the `registers` protocol.
    pub(crate) registers: Registers,
    memory: Token,
    /// The highest token ever granted, whatever was lost since: the checker's knowledge, not the store's.
    granted: Token,
    /// By the store's clock.
    written_at: i64,
    /// How far that clock is off.
    clock_error: i64,
    waiting: WaitQueue<()>,
    epoch: u32,
    /// Counts the starts of the only host of an embedded store.
    boot: u32,
    granted_in_boot: u32,
    backups: Option<VecDeque<Backup>>,
    unsynced: Option<Box<Backup>>,
    flaw: Option<StoreFlaw>,
}

impl Store {
    /// An empty store. `keep_backups`: it can be restored to an older state.
    pub(crate) fn new(keep_backups: bool, planted: Option<Planted>) -> Self {
        let flaw = match planted {
            Some(Planted::Store(flaw)) => Some(flaw),
            _ => None,
        };
        Self {
            row: None,
            registers: Registers::default(),
            memory: Token::NONE,
            granted: Token::NONE,
            written_at: 0,
            clock_error: 0,
            waiting: WaitQueue::default(),
            epoch: 0,
            boot: 0,
            granted_in_boot: 0,
            backups: keep_backups.then(VecDeque::new),
            unsynced: None,
            flaw,
        }
    }

    /// The row.
    pub(crate) fn row(&self) -> Option<&Record> {
        self.row.as_ref()
    }

    /// The highest token that the store remembers, in the row or beside it.
    pub(crate) fn remembered(&self) -> Token {
        self.row.as_ref().map_or(self.memory, |row| row.version.token.max(self.memory))
    }

    /// The highest token that was ever granted, also if the store has lost it since.
    pub(crate) fn granted(&self) -> Token {
        self.granted
    }

    /// Whether the only host of all has been started again since the lease was granted.
    pub(crate) fn holder_is_gone(&self) -> bool {
        self.row.is_some() && self.granted_in_boot < self.boot
    }

    /// How many announcements count of candidates other than those that `live` names.
    pub(crate) fn stale_announcements(&self, now: u64, live: impl Fn(CandidateId) -> bool) -> u32 {
        self.waiting.list(None, Instant::from_nanos(now)).iter().filter(|entry| !live(entry.id)).count() as u32
    }

    /// Takes one step, and says what a client is told if it is told anything.
    pub(crate) fn step(&mut self, now: u64, asker: &Asker, request: &Request) -> Reply {
        match request {
            Request::Look { announce } => {
                if let Some(said) = announce {
                    let lease = self.row.as_ref().map(|row| row.lease);
                    self.waiting.announce(asker.id, said.rank, (), lease, Instant::from_nanos(now));
                }
                return Reply::Seen(self.sighting(now, asker.id));
            }
            Request::Leave => {
                self.waiting.leave(asker.id);
                return Reply::Left;
            }
            Request::Acquire { .. } | Request::Renew { .. } | Request::Release { .. } => {}
        }
        let Some(record) = self.changed(&asker.label, request) else {
            return Reply::Conflict(self.sighting(now, asker.id));
        };
        if !matches!(request, Request::Renew { .. }) {
            self.back_up();
        }
        if matches!(request, Request::Acquire { .. }) {
            self.waiting.leave(asker.id);
            self.memory = self.memory.max(record.version.token);
            self.granted = self.granted.max(record.version.token);
            self.granted_in_boot = self.boot;
        }
        self.row = Some(record.clone());
        if matches!(request, Request::Release { .. }) {
            match self.flaw {
                Some(StoreFlaw::TokenReset) => self.memory = Token::NONE,
                Some(StoreFlaw::ReleaseDeletes) => {
                    (self.row, self.memory) = (None, Token::NONE);
                    return Reply::Applied(record);
                }
                _ => {}
            }
        }
        self.written_at = self.clock(now);
        self.registers.sync();
        Reply::Applied(record)
    }

    /// The row that this request makes of it, or `None` if the row is not as it insists.
    fn changed(&self, asker: &Label, request: &Request) -> Option<Record> {
        let forged = self.forged(asker, request);
        let request = forged.as_ref().unwrap_or(request);
        let changed = row::change(self.row.as_ref(), self.remembered(), self.epoch, request);
        let mut record = changed.expect("a history grants few tokens")?;
        match (self.flaw, request) {
            (Some(StoreFlaw::TokenKept), Request::Acquire { .. }) => {
                record.version.token = self.remembered().max(Token::NONE.next(0));
            }
            (Some(StoreFlaw::TokenReset), Request::Release { .. }) => record.version.token = Token::NONE,
            (Some(StoreFlaw::RenewStandsStill), Request::Renew { .. }) => record.version.beat -= 1,
            _ => {}
        }
        Some(record)
    }

    /// The request that a store with a planted bug takes this one for: it does not look at what it should insist on.
    fn forged(&self, asker: &Label, request: &Request) -> Option<Request> {
        let row = self.row.as_ref();
        let mut forged = request.clone();
        match (self.flaw?, &mut forged, row) {
            (StoreFlaw::AnyAbsence, Request::Acquire { floor, .. }, None) => {
                floor.seen = self.remembered().max(floor.seen)
            }
            (StoreFlaw::AcquireUnwatched, Request::Acquire { expect, .. }, _) => {
                *expect = row.map(Record::expectation);
            }
            (StoreFlaw::AcquireAnyOrders, Request::Acquire { expect: Some(expect), .. }, Some(row)) => {
                expect.order_number = row.order_number;
            }
            (StoreFlaw::RenewByLabel, Request::Renew { id, version, .. }, Some(row)) => {
                let namesake = row.holder.as_ref().filter(|holder| holder.label == *asker)?;
                (*id, *version) = (namesake.id, row.version);
            }
            (StoreFlaw::BlindRelease, Request::Release { id, version, .. }, Some(row)) => {
                (*id, *version) = (row.holder.as_ref()?.id, row.version);
            }
            (StoreFlaw::ReleaseAnyToken, Request::Release { version, .. }, Some(row)) => *version = row.version,
            _ => return None,
        }
        Some(forged)
    }

    /// One call of a group.
    pub(crate) fn round(&mut self, now: u64, request: &registers::Request) -> (registers::Reply, StepRecord) {
        let sighting = self.sighting(now, CandidateId::from_bits(0));
        let sighting = Sighting { standing: Standing::default(), ..sighting };
        let any_counter = self.flaw == Some(StoreFlaw::EvictsAnyCounter);
        self.registers.step(now, request, sighting, any_counter)
    }

    /// Whether this request for the lease would be granted if it came now.
    pub(crate) fn would_grant(&self, request: &Request) -> bool {
        let Request::Acquire { holder, .. } = request else { return false };
        self.changed(&holder.label, request).is_some()
    }

    fn sighting(&self, now: u64, asker: CandidateId) -> Sighting {
        let age = u64::try_from(self.clock(now).saturating_sub(self.written_at)).ok().map(Duration::from_nanos);
        let holder = self.row.as_ref().and_then(|row| row.holder.as_ref()).map(|holder| holder.id);
        Sighting {
            record: self.row.clone(),
            remembered: self.remembered(),
            age: age.filter(|_| self.row.is_some()),
            holder_gone: self.holder_is_gone(),
            standing: self.waiting.standing(asker, holder, Instant::from_nanos(now)),
        }
    }

    /// Writes an operator's order into the row. `live`: whether the holder's lease runs by the store's clock.
    pub(crate) fn order(&mut self, now: u64, order: &Order) -> Option<Verdict> {
        let sighting = self.sighting(now, CandidateId::from_bits(0));
        let record = sighting.record.as_ref()?;
        let live = !sighting.holder_gone && sighting.age.is_some_and(|age| age < record.lease);
        let verdict = row::order(record, live, order);
        if let Verdict::Write(record, _) = &verdict {
            self.row = Some(record.clone());
        }
        Some(verdict)
    }

    // ---- what happens to stores ----

    fn clock(&self, now: u64) -> i64 {
        i64::try_from(now).unwrap_or(i64::MAX).saturating_add(self.clock_error)
    }

    /// Steps the store's clock.
    pub(crate) fn step_clock(&mut self, by: i64) {
        self.clock_error = self.clock_error.saturating_add(by);
    }

    /// Sets the store's clock right.
    pub(crate) fn set_clock(&mut self) {
        self.clock_error = 0;
    }

    /// Somebody deletes the row. The highest token stays remembered.
    pub(crate) fn delete_row(&mut self) -> bool {
        self.memory = self.remembered();
        self.row.take().is_some()
    }

    /// The only host of an embedded store is started again: no process of before lives.
    pub(crate) fn reboot(&mut self) {
        self.boot += 1;
    }

    /// An outage begins. A sound store keeps what it has acknowledged.
    pub(crate) fn lose_unsynced(&mut self) {
        if self.flaw == Some(StoreFlaw::LosesCommits)
            && let Some(backup) = self.unsynced.take()
        {
            self.restore(*backup);
        }
    }

    /// Goes back to an older state, with a higher epoch if `in_new_epoch`. False if there is none.
    pub(crate) fn go_back(&mut self, steps: u64, in_new_epoch: bool) -> bool {
        let Some(backups) = &mut self.backups else { return false };
        let keep = backups.len().saturating_sub(steps as usize + 1);
        let Some(backup) = backups.drain(keep..).next() else { return false };
        self.restore(backup);
        self.epoch += u32::from(in_new_epoch && self.flaw != Some(StoreFlaw::ForgetsEpoch));
        true
    }

    fn restore(&mut self, backup: Backup) {
        self.row = backup.row;
        self.memory = backup.memory;
        self.written_at = backup.written_at;
        if self.backups.is_some() {
            self.registers = backup.registers;
        }
    }

    fn back_up(&mut self) {
        const BACKUPS_MAX: usize = 8;
        if self.backups.is_none() && self.flaw != Some(StoreFlaw::LosesCommits) {
            return;
        }
        let registers = self.registers.clone();
        let backup = Backup { row: self.row.clone(), memory: self.memory, written_at: self.written_at, registers };
        if let Some(backups) = &mut self.backups {
            if backups.len() == BACKUPS_MAX {
                backups.pop_front();
            }
            backups.push_back(backup.clone());
        }
        self.unsynced = Some(Box::new(backup));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primacy_core::lease::{EndReason, Expectation, Holder, OrderKind};

    fn asker(id: u128) -> Asker {
        let label = Label::new(format!("n{id}")).expect("valid");
        Asker { id: CandidateId::from_bits(id), label }
    }

    fn acquire(asker: &Asker, expect: Option<Expectation>) -> Request {
        let holder = Holder { id: asker.id, label: asker.label.clone(), data: String::new() };
        Request::Acquire { expect, floor: Token::NONE.into(), holder, lease: Duration::from_secs(1) }
    }

    fn applied(reply: Reply) -> Record {
        let Reply::Applied(record) = reply else { panic!("{reply:?}") };
        record
    }

    #[test]
    fn only_what_was_watched_is_taken_and_tokens_grow() {
        let mut store = Store::new(false, None);
        let (a, b) = (asker(1), asker(2));
        let first = applied(store.step(0, &a, &acquire(&a, None)));
        assert!(matches!(store.step(1, &b, &acquire(&b, None)), Reply::Conflict(_)));
        let renew =
            |version| Request::Renew { id: a.id, version, lease: Duration::from_secs(10), completed_order: None };
        let second = applied(store.step(2, &a, &renew(first.version)));
        assert!(matches!(store.step(3, &a, &renew(first.version)), Reply::Conflict(_)), "another beat");
        assert!(matches!(store.step(3, &b, &acquire(&b, Some(first.expectation()))), Reply::Conflict(_)));
        let release = Request::Release { id: a.id, version: second.version, reason: EndReason::Finished };
        let third = applied(store.step(4, &a, &release));
        assert!(third.holder.is_none() && third.version > second.version);
        assert!(store.delete_row());
        assert!(matches!(store.step(5, &b, &acquire(&b, None)), Reply::Conflict(_)), "not the absence that b saw");
        let mut informed = acquire(&b, None);
        if let Request::Acquire { floor, .. } = &mut informed {
            floor.seen = third.version.token;
        }
        let fourth = applied(store.step(6, &b, &informed));
        assert!(fourth.version.token > third.version.token, "the memory outlives the row");
    }

    #[test]
    fn an_order_makes_an_unaware_request_fail() {
        let mut store = Store::new(false, None);
        let (a, b) = (asker(1), asker(2));
        let record = applied(store.step(0, &a, &acquire(&a, None)));
        let pause = |token| Order { kind: OrderKind::Pause, token };
        assert_eq!(store.order(1, &pause(Some(Token::MAX))), Some(Verdict::TokenChanged));
        assert!(matches!(store.order(1, &pause(None)), Some(Verdict::Write(..))));
        assert_eq!(store.order(1, &pause(None)), Some(Verdict::Already));
        assert!(matches!(store.step(1, &b, &acquire(&b, Some(record.expectation()))), Reply::Conflict(_)));
    }

    #[test]
    fn a_restored_store_forgets() {
        let mut store = Store::new(true, None);
        let (a, b) = (asker(1), asker(2));
        let first = applied(store.step(0, &a, &acquire(&a, None)));
        let second = applied(store.step(1, &b, &acquire(&b, Some(first.expectation()))));
        assert!(store.go_back(0, true));
        assert_eq!(store.row().map(|row| row.version), Some(first.version));
        let third = applied(store.step(2, &b, &acquire(&b, Some(first.expectation()))));
        assert!(third.version.token > second.version.token, "the epoch has risen");
        assert_eq!(store.granted(), third.version.token);
    }
}
