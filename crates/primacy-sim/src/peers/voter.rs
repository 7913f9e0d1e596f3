//! A voter's host: the process that answers, one question after the other, what its disk has, and how both are lost.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};

use primacy_core::quorum::{Answer, Ask, Inquiry, Query, VoterHost, VoterId, VoterSet};
use primacy_core::{ElectionName, Instant};

use crate::clock::Clock;
use crate::planted::DriverFlaw;
#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::tally::{Fault, Sometimes};
use crate::voters::PeersEvent;
use crate::voters::config_state::ConfigState;
use crate::voters::voter_node::{Disk, Life, promise_on};
use crate::voters::wire::{ConfigMessage, Frame, Question};
use crate::world::World;

impl World {
    /// Starts a voter with what its disk has.
    pub(super) fn start_voter(&mut self, v: usize) {
        let number = self.number();
        let drift_ppm = self.scenario.peers.as_ref().map_or(0, |setting| setting.drift_ppm);
        let origin = self.engine.rng.spread(1, 3_600_000_000_000);
        let voter_node = &mut self.peers.voter_nodes[v];
        if voter_node.life.is_some() || voter_node.dead_for_good {
            return;
        }
        (voter_node.is_off, voter_node.was_suspended) = (false, false);
        self.clear_folder(v);
        let voter_node = &mut self.peers.voter_nodes[v];
        let clock = Clock::new(self.engine.now, origin, voter_node.ppm);
        let own = clock.read(self.engine.now);
        let mut host = restarted(voter_node.id, voter_node.kept.clone(), drift_ppm, own, self.scenario.planted);
        let config = self
            .peers
            .reconfiguration
            .is_some()
            .then(|| ConfigState::new(host.configuration().cloned(), Inquiry::new(voter_node.id)));
        let (term, is_bound) = (promise_on(&voter_node.kept).term, host.next_end().is_some());
        // A disk that does not work is known at once, and nothing is said before.
        let disk = host.rewrite();
        let election = ElectionName::new("e").expect("a letter is a valid name");
        let (inbox, flush, armed) = (VecDeque::new(), None, None);
        voter_node.life = Some(Life { number, clock, election, host, config, inbox, flush, armed });
        if is_bound {
            self.saw(Sometimes::BootWait);
        }
        self.log(None, || format!("v{v} starts with term {term}"));
        self.flush(v, disk);
        self.plan_inquiry(v);
        self.check_promises();
    }

    pub(super) fn resume_voter(&mut self, v: usize) {
        if self.peers.voter_nodes[v].stopped_until <= self.engine.now {
            self.notice_suspend(v);
            self.run_voter(v);
        }
    }

    /// A voter whose machine was suspended cannot know by its clock for how long: it binds itself anew.
    fn notice_suspend(&mut self, v: usize) {
        /// A real-time clock that counts a suspend counts whole seconds.
        const AHEAD_MOST: u64 = 1_000_000_000;
        if !std::mem::take(&mut self.peers.voter_nodes[v].was_suspended) {
            return;
        }
        let (now, trusts) = (self.engine.now, self.has(DriverFlaw::TrustsResumed));
        let ahead = self.engine.rng.spread(1, AHEAD_MOST);
        let Some(life) = &mut self.peers.voter_nodes[v].life else { return };
        life.clock.step(now, ahead);
        let own = life.clock.read(now);
        if !trusts {
            life.host.bind_anew(own);
        }
        self.fault(Fault::ResumedAhead);
        self.log(None, || format!("v{v} resumes, and its clock is {} ms ahead", ahead / 1_000_000));
        self.arm_end(v);
        self.check_promises();
    }

    /// A frame reaches a voter, if the process runs that it is meant for.
    pub(super) fn put_to_voter(&mut self, v: usize, life: Option<u64>, connection: u64, frame: Frame) {
        let Some(own) = &mut self.peers.voter_nodes[v].life else { return };
        if life.is_none_or(|life| life == own.number) {
            own.inbox.push_back((connection, frame));
            self.run_voter(v);
        }
    }

    /// Answers what has come, unless it is stopped or waits for its disk.
    fn run_voter(&mut self, v: usize) {
        let (now, at) = (self.engine.now, self.peers.voter_nodes[v].runs(self.engine.now));
        let early = self.has(DriverFlaw::AnswersBeforeSync);
        let ready = |life: &&mut Life| {
            at && !life.host.is_writing() && life.config.as_ref().is_none_or(|config| !config.is_out)
        };
        let Some(life) = self.peers.voter_nodes[v].life.as_mut().filter(ready) else { return };
        let own = life.clock.read(now);
        for (connection, frame) in std::mem::take(&mut life.inbox) {
            let answer = self.answer_frame(v, frame, own);
            if self.violation.is_some() {
                return;
            }
            let Some(life) = &mut self.peers.voter_nodes[v].life else { return };
            if let Some(answer) = answer {
                life.host.hold((connection, answer));
            }
        }
        let Some(life) = &mut self.peers.voter_nodes[v].life else { return };
        life.host.expire(own);
        if early {
            let (answers, news) = released_early(&mut life.host);
            self.tell(v, answers, !news.is_empty());
        }
        self.write_or_tell(v);
        self.arm_end(v);
    }

    /// Writes down what has changed, or else tells what may be told.
    pub(super) fn write_or_tell(&mut self, v: usize) {
        let Some(life) = &mut self.peers.voter_nodes[v].life else { return };
        if let Some(disk) = life.host.begin_write() {
            return self.flush(v, disk);
        }
        let (answers, news) = life.host.release();
        self.tell(v, answers, !news.is_empty());
    }

    /// What it answers, if it does.
    fn answer_frame(&mut self, v: usize, frame: Frame, own: Instant) -> Option<Frame> {
        let told = |number, told| Some(Frame::Config { number, told: Box::new(told) });
        match frame {
            Frame::Leave(id) => {
                let life = self.peers.voter_nodes[v].life.as_mut()?;
                life.host.leave(&life.election, id);
                None
            }
            // Another voter was there when this was asked.
            Frame::Ask { to, .. } | Frame::ConfigRequest { to, .. } | Frame::Behind { to, .. }
                if to != self.peers.voter_nodes[v].id =>
            {
                None
            }
            Frame::Behind { number, .. } => {
                self.is_told_behind(v);
                told(number, ConfigMessage::Refused)
            }
            Frame::ConfigRequest { number, by, ask, .. } if !self.may_ask(by, &ask) => {
                told(number, ConfigMessage::Refused)
            }
            Frame::ConfigRequest { number, ask, .. } => {
                let answer = self.answer_config(v, *ask, own)?;
                told(number, answer)
            }
            Frame::Ask { number, question, .. } => self.answer_as(v, number, *question, own),
            Frame::Answer { .. } | Frame::Config { .. } | Frame::Reset => None,
        }
    }

    fn answer_as(&mut self, v: usize, number: u64, question: Question, own: Instant) -> Option<Frame> {
        let life = self.peers.voter_nodes[v].life.as_mut()?;
        let Question { ask, asker, waits, of } = question;
        let bound_before = life.bound_until(own);
        let announce = waits.map(|rank| (asker, rank, ()));
        let query = Query { number: of, election: life.election.clone(), ask: ask.clone(), asker, announce };
        let Ok(outcome) = life.host.answer(query, own) else {
            return Some(Frame::Config { number, told: Box::new(self.tell_voters(v)) });
        };
        match (&ask, &outcome.supported) {
            (Ask::Claim { term, granted: Some(_), .. }, Some((before, _))) => {
                self.tally.saw(Sometimes::CaughtUp);
                match term.cmp(before) {
                    Ordering::Less => self.tally.saw(Sometimes::CameBack),
                    Ordering::Equal => self.tally.saw(Sometimes::WonOver),
                    Ordering::Greater => {}
                }
            }
            (Ask::Withdraw { .. }, _) if outcome.bound_until < bound_before => self.tally.saw(Sometimes::Withdrawn),
            _ => {}
        }
        self.engine.trace.hash(&(self.engine.now, v, &ask, &outcome.answer));
        self.log(None, || format!("  v{v}: {}", describe(&ask, &outcome.answer)));
        if !matches!(ask, Ask::Read) {
            self.check_promises();
            self.note_renewal(&ask);
        }
        Some(Frame::Answer { number, answer: Box::new(outcome.answer), standing: outcome.standing })
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
            if self.engine.rng.chance(breaks) {
                let host = self.peers.connections.get(connection).map(|connection| connection.host);
                self.fault(Fault::ConnectionsBroken);
                self.break_connections(v, host.or(Some(usize::MAX)), true);
            }
        }
        if is_news {
            for n in 0..self.nodes.len() {
                let host = self.scenario.peers.as_ref().map_or(v, |setting| setting.hosts[n]);
                if self.peers.cuts.open_at(v, host, self.engine.now).is_none() {
                    self.hint_one(n);
                }
            }
        }
    }

    fn flush(&mut self, v: usize, disk: Disk) {
        let Some(setting) = &self.scenario.peers else { return };
        let rates = setting.rates.clone();
        let slow = self.engine.rng.chance(rates.flush_slow);
        let mut takes = if slow {
            self.engine.rng.spread(rates.flush_max, rates.flush_slow_max)
        } else {
            self.engine.rng.below(rates.flush_max)
        };
        if slow {
            self.fault(Fault::SlowFlush);
        }
        let voter_node = &mut self.peers.voter_nodes[v];
        takes = takes.max(voter_node.disk_stands_until.saturating_sub(self.engine.now));
        let Some(life) = &mut voter_node.life else { return };
        let number = life.number;
        life.flush = Some(disk);
        self.after_peers(takes, PeersEvent::Flushed { voter: v, life: number });
        if self.engine.rng.chance(rates.killed_at_flush) {
            self.fault(Fault::VoterKilled);
            self.kill_voter(v);
        } else if self.engine.rng.chance(rates.lost_at_flush) {
            self.power_off(v);
        }
    }

    /// What a disk that stood has kept waiting is written soon.
    pub(super) fn hurry_flush(&mut self, v: usize, within: u64) {
        let pending = self.peers.voter_nodes[v].life.as_ref().filter(|life| life.flush.is_some());
        if let Some(life) = pending.map(|life| life.number) {
            self.after_peers(within, PeersEvent::Flushed { voter: v, life });
        }
    }

    /// What was written is on disk; or nobody knows what is, and the voter ends.
    pub(super) fn flushed(&mut self, v: usize, number: u64) {
        let now = self.engine.now;
        let fails = self.scenario.peers.as_ref().map_or(0, |setting| setting.rates.flush_fails);
        let fails = self.engine.rng.chance(fails);
        let voter_node = &mut self.peers.voter_nodes[v];
        let Some(life) = voter_node.life.as_mut().filter(|life| life.number == number) else { return };
        // Its disk goes on while it is stopped; its process learns of that later.
        let held_up = voter_node.stopped_until.max(voter_node.disk_stands_until);
        if held_up > now {
            return self.after_peers(held_up - now, PeersEvent::Flushed { voter: v, life: number });
        }
        if std::mem::take(&mut voter_node.next_flush_fails) || fails {
            self.fault(Fault::DiskFailed);
            self.log(None, || format!("v{v} cannot write, and ends"));
            return self.kill_voter(v);
        }
        let Some(disk) = life.flush.take() else { return };
        life.host.written();
        let before = voter_node.number();
        voter_node.synced = disk.clone();
        voter_node.kept = disk;
        if voter_node.number() != before {
            self.note_effect();
        }
        self.write_or_tell(v);
        self.run_voter(v);
    }

    /// A promise may have ended, of which others are to hear.
    pub(super) fn promise_ends(&mut self, v: usize, number: u64) {
        let Some(life) = self.peers.voter_nodes[v].life.as_mut().filter(|life| life.number == number) else { return };
        life.armed = None;
        self.run_voter(v);
        self.arm_end(v);
    }

    fn arm_end(&mut self, v: usize) {
        let now = self.engine.now;
        // While it waits for its disk it notices nothing, and looks again after that.
        let Some(life) = self.peers.voter_nodes[v].life.as_mut().filter(|life| !life.host.is_writing()) else { return };
        let Some(until) = life.host.next_end().filter(|until| life.armed.is_none_or(|armed| *until < armed)) else {
            return;
        };
        life.armed = Some(until);
        let number = life.number;
        let wait = (life.clock.real_at(until).saturating_sub(now) + 100_000)
            .max(self.peers.voter_nodes[v].stopped_until.saturating_sub(now));
        self.after_peers(wait, PeersEvent::Ends { voter: v, life: number });
    }

    /// Its process is gone, at any point of what it did. What a write has left that was under way, nobody knows.
    pub(super) fn kill_voter(&mut self, v: usize) {
        let written = self.engine.rng.chance(500_000);
        let Some(life) = self.peers.voter_nodes[v].life.take() else { return };
        self.log(None, || format!("v{v} is killed"));
        if let Some(flush) = life.flush.filter(|_| written) {
            self.peers.voter_nodes[v].kept = flush;
        }
        self.break_connections(v, None, true);
        self.voter_comes_back(v);
        self.check_promises();
    }

    /// A machine loses its power: whatever ran on it is gone, and what was not flushed.
    pub(super) fn power_off(&mut self, v: usize) {
        self.fault(Fault::PowerLost);
        self.log(None, || format!("the host of v{v} loses its power"));
        let written = self.engine.rng.chance(500_000);
        let voter_node = &mut self.peers.voter_nodes[v];
        let life = voter_node.life.take();
        if let Some(flush) = life.and_then(|life| life.flush).filter(|_| written) {
            voter_node.synced = flush;
        }
        if voter_node.kept != voter_node.synced {
            voter_node.kept = voter_node.synced.clone();
            self.saw(Sometimes::LostUnsynced);
        }
        self.note_effect();
        self.peers.voter_nodes[v].is_off = true;
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
        let pause = self.engine.rng.spread(lease / 1_000, lease * 2);
        self.after_peers(pause, PeersEvent::Start { voter: v });
    }
}

/// What leaves before the disk has what it rests on.
#[cfg(feature = "canaries")]
fn released_early<T, A>(host: &mut VoterHost<VoterSet, T, A>) -> (Vec<A>, BTreeSet<ElectionName>) {
    host.release_early()
}

#[cfg(not(feature = "canaries"))]
fn released_early<T, A>(host: &mut VoterHost<VoterSet, T, A>) -> (Vec<A>, BTreeSet<ElectionName>) {
    host.release()
}

/// The voter as its process starts.
#[cfg(feature = "canaries")]
fn restarted<T, A>(
    id: VoterId,
    disk: Disk,
    drift_ppm: u32,
    now: Instant,
    planted: Option<Planted>,
) -> VoterHost<VoterSet, T, A> {
    match planted {
        Some(Planted::Quorum(flaw)) => VoterHost::flawed(id, disk, drift_ppm, now, Some(flaw)),
        _ => VoterHost::restarted(id, disk, drift_ppm, now),
    }
}

#[cfg(not(feature = "canaries"))]
fn restarted<T, A>(
    id: VoterId,
    disk: Disk,
    drift_ppm: u32,
    now: Instant,
    _: Option<crate::planted::Planted>,
) -> VoterHost<VoterSet, T, A> {
    VoterHost::restarted(id, disk, drift_ppm, now)
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
