//! A voter's host: the process that answers, one question after the other, what its disk has, and how both are lost.

use std::collections::VecDeque;
use std::sync::Arc;

use primacy_core::lease::Standing;
use primacy_core::quorum::{Answer, Ask, Durable, Orders, Voter, VoterId, VoterState};
use primacy_core::{CandidateId, Instant};

use super::What;
use super::rolls::{Post, RollDisk};
use super::wire::{Frame, Question};
use crate::clock::Clock;
use crate::planted::DriverFlaw;
#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::tally::{Fault, Sometimes};
use crate::world::World;

/// Where one voter lives.
#[derive(Debug)]
pub(super) struct Booth {
    /// The error of its clock's rate.
    pub(super) ppm: i32,
    /// Whose folder is there.
    pub(super) id: VoterId,
    pub(super) life: Option<Life>,
    /// What is on disk, whatever happens.
    pub(super) synced: Disk,
    /// What a process that starts now would read.
    pub(super) kept: Disk,
    /// Nothing of it runs.
    pub(super) stopped_until: u64,
    /// Its machine was suspended, and its process has not gone on since.
    pub(super) was_suspended: bool,
    /// Its machine has no power: not even its network answers.
    pub(super) is_off: bool,
    pub(super) dead_for_good: bool,
    pub(super) disk_stands_until: u64,
    pub(super) next_flush_fails: bool,
}

/// What a voter's file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) promise: Durable,
    /// Where voters are exchanged: who votes, for all that it knows.
    pub(super) roll: Option<Arc<RollDisk>>,
}

/// One start of a voter.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) number: u64,
    pub(super) clock: Clock,
    /// Its promise, and who waits.
    pub(super) state: VoterState<()>,
    /// Where voters are exchanged.
    pub(super) post: Option<Post>,
    inbox: VecDeque<(u64, Frame)>,
    flush: Option<Flush>,
    /// Until when it was bound when that was last told of.
    bound_until: Option<Instant>,
    /// For when it is to be told of that this ends.
    armed: Option<Instant>,
}

/// What is being written, and what leaves when it is on disk.
#[derive(Debug)]
struct Flush {
    disk: Disk,
    answers: Vec<(u64, Frame)>,
    is_news: bool,
}

impl Booth {
    pub(super) fn new(ppm: i32, id: VoterId) -> Self {
        Self {
            ppm,
            id,
            life: None,
            synced: Disk::default(),
            kept: Disk::default(),
            stopped_until: 0,
            was_suspended: false,
            is_off: false,
            dead_for_good: false,
            disk_stands_until: 0,
            next_flush_fails: false,
        }
    }

    /// All orders that it knows of, beside those that are known.
    pub(super) fn tell_orders(&self, known: &mut Orders) {
        known.merge(&self.kept.promise.orders);
        if let Some(life) = &self.life {
            known.merge(&life.state.voter.durable().orders);
        }
    }

    /// What has reached it and was not read is lost.
    pub(super) fn forget_unread(&mut self) {
        if let Some(life) = &mut self.life {
            life.inbox.clear();
        }
    }

    /// Whether its process answers.
    pub(super) fn runs(&self, now: u64) -> bool {
        self.life.is_some() && self.stopped_until <= now
    }

    /// Those who have said lately that they wait.
    pub(super) fn waiting(&self, now: u64) -> Vec<CandidateId> {
        let Some(life) = &self.life else { return Vec::new() };
        life.state.waiting.list(None, life.clock.read(now)).into_iter().map(|entry| entry.id).collect()
    }
}

impl World {
    /// Starts a voter with what its disk has.
    pub(super) fn start_voter(&mut self, v: usize) {
        let number = self.number();
        let drift_ppm = self.scenario.peers.as_ref().map_or(0, |setting| setting.drift_ppm);
        let origin = self.rng.spread(1, 3_600_000_000_000);
        let booth = &mut self.peers.booths[v];
        if booth.life.is_some() || booth.dead_for_good {
            return;
        }
        (booth.is_off, booth.was_suspended) = (false, false);
        self.clear_folder(v);
        let booth = &mut self.peers.booths[v];
        let clock = Clock::new(self.now, origin, booth.ppm);
        let disk = booth.kept.clone();
        let own = clock.read(self.now);
        let mut voter = restarted(disk.promise.clone(), drift_ppm, own, self.scenario.planted);
        let post = disk.roll.as_deref().map(|roll| Post::restarted(roll, &mut voter, own));
        let bound_until = voter.bound_until(own);
        if bound_until.is_some() {
            self.saw(Sometimes::BootWait);
        }
        let booth = &mut self.peers.booths[v];
        let (inbox, state) = (VecDeque::new(), VoterState::new(voter));
        booth.life = Some(Life { number, clock, state, post, inbox, flush: None, bound_until, armed: None });
        self.log(None, || format!("v{v} starts with term {}", disk.promise.term));
        // A disk that does not work is known at once, and nothing is said before.
        self.flush(v, Flush { disk, answers: Vec::new(), is_news: false });
        self.plan_inquiry(v);
        self.check_promises();
    }

    pub(super) fn resume_voter(&mut self, v: usize) {
        if self.peers.booths[v].stopped_until <= self.now {
            self.notice_suspend(v);
            self.run_voter(v);
        }
    }

    /// A voter whose machine was suspended cannot know by its clock for how long: it binds itself anew.
    fn notice_suspend(&mut self, v: usize) {
        /// A real-time clock that counts a suspend counts whole seconds.
        const AHEAD_MOST: u64 = 1_000_000_000;
        if !std::mem::take(&mut self.peers.booths[v].was_suspended) {
            return;
        }
        let (now, trusts) = (self.now, self.has(DriverFlaw::TrustsResumed));
        let ahead = self.rng.spread(1, AHEAD_MOST);
        let Some(life) = &mut self.peers.booths[v].life else { return };
        life.clock.step(now, ahead);
        let own = life.clock.read(now);
        if !trusts {
            life.bind_anew(own);
        }
        self.fault(Fault::ResumedAhead);
        self.log(None, || format!("v{v} resumes, and its clock is {} ms ahead", ahead / 1_000_000));
        self.arm_end(v);
        self.check_promises();
    }

    /// A frame reaches a voter, if the process runs that it is meant for.
    pub(super) fn put_to_voter(&mut self, v: usize, life: Option<u64>, connection: u64, frame: Frame) {
        let Some(own) = &mut self.peers.booths[v].life else { return };
        if life.is_none_or(|life| life == own.number) {
            own.inbox.push_back((connection, frame));
            self.run_voter(v);
        }
    }

    /// Answers what has come, unless it is stopped or waits for its disk.
    fn run_voter(&mut self, v: usize) {
        let (now, at) = (self.now, self.peers.booths[v].runs(self.now));
        let early = self.has(DriverFlaw::AnswersBeforeSync);
        let ready = |life: &&mut Life| at && life.flush.is_none() && life.post.as_ref().is_none_or(|post| !post.is_out);
        let Some(life) = self.peers.booths[v].life.as_mut().filter(ready) else { return };
        let own = life.clock.read(now);
        let works = std::mem::take(&mut life.inbox);
        let mut answers = Vec::new();
        let (mut must_flush, mut is_news) = (false, false);
        for (connection, frame) in works {
            match frame {
                Frame::Leave(id) => {
                    if let Some(life) = &mut self.peers.booths[v].life {
                        life.state.waiting.leave(id);
                    }
                }
                // Another voter was there when this was asked.
                Frame::Ask { to, .. } | Frame::Roll { to, .. } | Frame::Behind { to, .. }
                    if to != self.peers.booths[v].id => {}
                Frame::Behind { number, .. } => {
                    self.is_told_behind(v);
                    answers.push((connection, Frame::Told { number, told: Box::new(super::wire::Told::Refused) }));
                }
                Frame::Roll { number, by, ask, .. } if !self.may_ask(by, &ask) => {
                    answers.push((connection, Frame::Told { number, told: Box::new(super::wire::Told::Refused) }));
                }
                Frame::Roll { number, ask, .. } => {
                    let Some((told, flush)) = self.answer_roll(v, *ask, own) else { return };
                    (must_flush, is_news) = (must_flush | flush, is_news | flush);
                    answers.push((connection, Frame::Told { number, told: Box::new(told) }));
                }
                Frame::Ask { number, question, .. } if !self.admits(v, question.of) => {
                    let told = Box::new(self.tell_voters(v));
                    answers.push((connection, Frame::Told { number, told }));
                }
                Frame::Ask { number, question, .. } => {
                    let Some((answer, standing, flush, news)) = self.answer_as(v, &question, own) else { return };
                    (must_flush, is_news) = (must_flush | flush, is_news | news);
                    answers.push((connection, Frame::Answer { number, answer: Box::new(answer), standing }));
                }
                Frame::Answer { .. } | Frame::Told { .. } | Frame::Reset => {}
            }
            if self.violation.is_some() {
                return;
            }
        }
        let Some(life) = &mut self.peers.booths[v].life else { return };
        if life.bound_until.is_some_and(|until| until <= own) {
            life.bound_until = None;
            is_news = true;
        }
        if !must_flush {
            self.tell(v, answers, is_news);
        } else if early {
            let disk = life.disk();
            self.tell(v, answers, is_news);
            self.flush(v, Flush { disk, answers: Vec::new(), is_news: false });
        } else {
            let disk = life.disk();
            self.flush(v, Flush { disk, answers, is_news });
        }
        self.arm_end(v);
    }

    /// Writes down what has changed by something else than a question, unless a question waits for that already.
    pub(super) fn write_down(&mut self, v: usize) {
        let Some(life) = self.peers.booths[v].life.as_ref().filter(|life| life.flush.is_none()) else { return };
        let disk = life.disk();
        self.flush(v, Flush { disk, answers: Vec::new(), is_news: true });
    }

    /// What it answers; whether that must be flushed first; and whether others should hear of it.
    fn answer_as(&mut self, v: usize, question: &Question, own: Instant) -> Option<(Answer, Standing, bool, bool)> {
        let life = self.peers.booths[v].life.as_mut()?;
        let Question { ask, asker, waits, .. } = question;
        let bound_before = life.state.voter.bound_until(own);
        let outcome = life.state.answer(ask, *asker, waits.map(|rank| (*asker, rank, ())), own);
        life.bound_until = outcome.bound_until;
        match (ask, &outcome.supported) {
            (Ask::Claim { term, granted: Some(_), .. }, Some((before, _))) => {
                self.tally.saw(Sometimes::CaughtUp);
                if term == before {
                    self.tally.saw(Sometimes::WonOver);
                }
            }
            (Ask::Withdraw { .. }, _) if outcome.bound_until < bound_before => self.tally.saw(Sometimes::Withdrawn),
            _ => {}
        }
        self.trace.hash(&(self.now, v, ask, &outcome.answer));
        self.log(None, || format!("  v{v}: {}", describe(ask, &outcome.answer)));
        if !matches!(ask, Ask::Read) {
            self.check_promises();
            self.note_renewal(ask);
        }
        Some((outcome.answer, outcome.standing, outcome.must_flush, outcome.is_news))
    }

    /// What was done may be told of: the answers leave, and hints.
    fn tell(&mut self, v: usize, answers: Vec<(u64, Frame)>, is_news: bool) {
        self.publish_voters(v);
        let breaks = self.scenario.peers.as_ref().map_or(0, |setting| setting.rates.breaks);
        for (connection, frame) in answers {
            if let Frame::Answer { answer, .. } = &frame {
                self.check_memory(v, answer);
            }
            self.send_frame(connection, false, frame);
            if self.rng.chance(breaks) {
                let host = self.peers.connections.get(connection).map(|connection| connection.host);
                self.fault(Fault::ConnectionsBroken);
                self.break_connections(v, host.or(Some(usize::MAX)), true);
            }
        }
        if is_news {
            for n in 0..self.nodes.len() {
                let host = self.scenario.peers.as_ref().map_or(v, |setting| setting.hosts[n]);
                if self.peers.cuts.open_at(v, host, self.now).is_none() {
                    self.hint_one(n);
                }
            }
        }
    }

    fn flush(&mut self, v: usize, flush: Flush) {
        let Some(setting) = &self.scenario.peers else { return };
        let rates = setting.rates.clone();
        let slow = self.rng.chance(rates.flush_slow);
        let mut takes =
            if slow { self.rng.spread(rates.flush_max, rates.flush_slow_max) } else { self.rng.below(rates.flush_max) };
        if slow {
            self.fault(Fault::SlowFlush);
        }
        let booth = &mut self.peers.booths[v];
        takes = takes.max(booth.disk_stands_until.saturating_sub(self.now));
        let Some(life) = &mut booth.life else { return };
        let number = life.number;
        life.flush = Some(flush);
        self.after_peers(takes, What::Flushed { voter: v, life: number });
        if self.rng.chance(rates.killed_at_flush) {
            self.fault(Fault::VoterKilled);
            self.kill_voter(v);
        } else if self.rng.chance(rates.lost_at_flush) {
            self.power_off(v);
        }
    }

    /// What a disk that stood has kept waiting is written soon.
    pub(super) fn hurry_flush(&mut self, v: usize, within: u64) {
        let pending = self.peers.booths[v].life.as_ref().filter(|life| life.flush.is_some());
        if let Some(life) = pending.map(|life| life.number) {
            self.after_peers(within, What::Flushed { voter: v, life });
        }
    }

    /// What was written is on disk; or nobody knows what is, and the voter ends.
    pub(super) fn flushed(&mut self, v: usize, number: u64) {
        let now = self.now;
        let fails = self.scenario.peers.as_ref().map_or(0, |setting| setting.rates.flush_fails);
        let fails = self.rng.chance(fails);
        let booth = &mut self.peers.booths[v];
        let Some(life) = booth.life.as_mut().filter(|life| life.number == number) else { return };
        // Its disk goes on while it is stopped; its process learns of that later.
        let held_up = booth.stopped_until.max(booth.disk_stands_until);
        if held_up > now {
            return self.after_peers(held_up - now, What::Flushed { voter: v, life: number });
        }
        if std::mem::take(&mut booth.next_flush_fails) || fails {
            self.fault(Fault::DiskFailed);
            self.log(None, || format!("v{v} cannot write, and ends"));
            return self.kill_voter(v);
        }
        let Some(Flush { disk, answers, is_news }) = life.flush.take() else { return };
        let before = booth.number();
        booth.synced = disk.clone();
        booth.kept = disk;
        if booth.number() != before {
            self.note_effect();
        }
        self.tell(v, answers, is_news);
        self.run_voter(v);
    }

    /// A promise may have ended, of which others are to hear.
    pub(super) fn promise_ends(&mut self, v: usize, number: u64) {
        let Some(life) = self.peers.booths[v].life.as_mut().filter(|life| life.number == number) else { return };
        life.armed = None;
        self.run_voter(v);
        self.arm_end(v);
    }

    /// Its promise may end at another time than it was going to.
    pub(super) fn tell_end_of(&mut self, v: usize, own: Instant) {
        if let Some(life) = &mut self.peers.booths[v].life {
            life.bound_until = life.state.voter.bound_until(own);
        }
    }

    fn arm_end(&mut self, v: usize) {
        let now = self.now;
        // While it waits for its disk it notices nothing, and looks again after that.
        let Some(life) = self.peers.booths[v].life.as_mut().filter(|life| life.flush.is_none()) else { return };
        let Some(until) = life.bound_until.filter(|until| life.armed.is_none_or(|armed| *until < armed)) else {
            return;
        };
        life.armed = Some(until);
        let number = life.number;
        let wait = (life.clock.real_at(until).saturating_sub(now) + 100_000)
            .max(self.peers.booths[v].stopped_until.saturating_sub(now));
        self.after_peers(wait, What::Ends { voter: v, life: number });
    }

    /// Its process is gone, at any point of what it did. What a write has left that was under way, nobody knows.
    pub(super) fn kill_voter(&mut self, v: usize) {
        let written = self.rng.chance(500_000);
        let Some(life) = self.peers.booths[v].life.take() else { return };
        self.log(None, || format!("v{v} is killed"));
        if let Some(flush) = life.flush.filter(|_| written) {
            self.peers.booths[v].kept = flush.disk;
        }
        self.break_connections(v, None, true);
        self.voter_comes_back(v);
        self.check_promises();
    }

    /// A machine loses its power: whatever ran on it is gone, and what was not flushed.
    pub(super) fn power_off(&mut self, v: usize) {
        self.fault(Fault::PowerLost);
        self.log(None, || format!("the host of v{v} loses its power"));
        let written = self.rng.chance(500_000);
        let booth = &mut self.peers.booths[v];
        let life = booth.life.take();
        if let Some(flush) = life.and_then(|life| life.flush).filter(|_| written) {
            booth.synced = flush.disk;
        }
        if booth.kept != booth.synced {
            booth.kept = booth.synced.clone();
            self.saw(Sometimes::LostUnsynced);
        }
        self.note_effect();
        self.peers.booths[v].is_off = true;
        self.break_connections(v, None, false);
        let hosts = self.scenario.peers.as_ref().map(|setting| setting.hosts.clone()).unwrap_or_default();
        for n in (0..self.nodes.len()).filter(|n| hosts[*n] == v) {
            self.crash(n);
            self.end_warden(n);
        }
        self.voter_comes_back(v);
        self.check_promises();
    }

    fn voter_comes_back(&mut self, v: usize) {
        let lease = crate::nanos(self.scenario.longest);
        let pause = self.rng.spread(lease / 1_000, lease * 2);
        self.after_peers(pause, What::Start { voter: v });
    }
}

impl Life {
    fn bind_anew(&mut self, own: Instant) {
        self.state.voter.bind_anew(own);
        self.bound_until = self.state.voter.bound_until(own);
        if let Some(post) = &mut self.post {
            post.bound_anew(&mut self.state.voter, own);
        }
    }

    /// Whether it waits for its disk.
    pub(super) fn is_busy(&self) -> bool {
        self.flush.is_some()
    }

    /// What is to be on disk.
    fn disk(&self) -> Disk {
        Disk {
            promise: self.state.voter.durable().clone(),
            roll: self.post.as_ref().map(|post| Arc::clone(&post.disk)),
        }
    }
}

/// The voter as its process starts.
#[cfg(feature = "canaries")]
fn restarted(durable: Durable, drift_ppm: u32, now: Instant, planted: Option<Planted>) -> Voter {
    match planted {
        Some(Planted::Quorum(flaw)) => Voter::flawed(durable, drift_ppm, now, Some(flaw)),
        _ => Voter::restarted(durable, drift_ppm, now),
    }
}

#[cfg(not(feature = "canaries"))]
fn restarted(durable: Durable, drift_ppm: u32, now: Instant, _: Option<crate::planted::Planted>) -> Voter {
    Voter::restarted(durable, drift_ppm, now)
}

fn describe(ask: &Ask, answer: &Answer) -> String {
    let asked = match ask {
        Ask::Read => "read".to_owned(),
        Ask::Claim { term, holder, granted, .. } => {
            let late = if granted.is_some() { ", granted already" } else { "" };
            format!("claim of term {term} for {}{late}", holder.label)
        }
        Ask::Renew { term, beat, .. } => format!("renewal {term}.{beat}"),
        Ask::Withdraw { term, beat, .. } => format!("renewal {term}.{beat} withdrawn"),
        Ask::Release { term, beat: 0, .. } => format!("claim of term {term} taken back"),
        Ask::Release { term, beat, .. } => format!("release {term}.{beat}"),
        Ask::Order { .. } => "order".to_owned(),
        Ask::Forget { term } => format!("forgetting in term {term}"),
    };
    let view = &answer.view;
    let holder = view.holder.as_ref().map_or("nobody", |holder| holder.label.as_str());
    let bound = view.bound.map_or_else(|| "free".to_owned(), |bound| format!("bound for {bound:?}"));
    let done = if answer.accepted { "done" } else { "refused" };
    format!("{asked}: {done}; {}.{} of {holder}, {bound}", view.term, view.beat)
}
