//! Elections of one contest, one after another, and what each of them took.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use primacy_core::Instant;
use primacy_core::contest::PeerId;
use serde::Serialize;

use super::group::{Group, Make, Manner};
use super::journal::{Entry, What};
use super::network::Network;
use super::peer::Machine;
use super::seat::Kind;

/// How many elections happen in one group before another one is made, with other orders of peers.
const ELECTIONS_EACH: usize = 50;

/// How many groups in a row may come to no leader before the benchmark gives up.
const VAIN_MOST: usize = 5;

/// What is measured.
pub(super) struct Setup {
    pub(super) peers: u16,
    pub(super) network: Arc<Network>,
    pub(super) elections: usize,
    /// How long a group may take to become steady, or an election, beside what its network takes.
    pub(super) patience: Duration,
    /// For how long the peers are watched at rest.
    pub(super) rest: Duration,
    pub(super) seed: u64,
}

/// One election. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trial {
    /// How the leader was stopped. None: nobody had led.
    pub(super) manner: Option<Manner>,
    /// From then, or from the start, until the first peer knew of no leader.
    pub(super) to_suspicion: u64,
    /// From there until another had the grant, or believed that it leads.
    pub(super) to_lead: u64,
    /// From the suspicion until all others knew that one.
    pub(super) to_all: u64,
    /// From the suspicion until the first began a round, or nominated itself.
    pub(super) to_launch: Option<u64>,
    /// Who began rounds, or nominated themselves.
    pub(super) candidates: usize,
    /// More than one of them in one and the same round.
    pub(super) is_split: bool,
    /// In how many rounds there were any.
    pub(super) rounds: usize,
    /// How many led, one after another or at once.
    pub(super) leaders: usize,
    /// From the suspicion until all knew: the machines' own messages.
    pub(super) contest_messages: usize,
    /// In the same time: those for the grant, without renewals.
    pub(super) grant_messages: usize,
}

/// A group at rest.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Rest {
    pub(super) seconds: f64,
    /// New leaders meanwhile: then it was no rest.
    pub(super) leaders: usize,
    pub(super) renewals: usize,
    /// Renewals or heartbeats, and their answers.
    pub(super) beats: usize,
    /// The machines' own.
    pub(super) contest_messages: usize,
    /// CPU of all peers.
    pub(super) cpu_seconds: f64,
}

/// What all elections of a contest came to.
#[derive(Debug, Default)]
pub(super) struct Trials {
    pub(super) trials: Vec<Trial>,
    /// Elections that came to no leader that all know, in the time that they have.
    pub(super) undecided: usize,
    /// Leaders that came while none had been stopped.
    pub(super) unplanned: usize,
    /// Grants while another could still believe in its own: there must be none.
    pub(super) overlaps: usize,
    pub(super) rest: Option<Rest>,
}

/// Runs the elections. `make` gives a machine for a peer, with what it has kept, in the group of that number.
///
/// # Errors
/// When the system fails, or no group comes to a leader.
pub(super) fn measure<M: Machine>(setup: &Setup, make: impl Fn(PeerId, M::Durable, u64) -> M) -> Result<Trials> {
    let mut all = Trials::default();
    let (mut number, mut vain) = (0, 0);
    while all.trials.len() + all.undecided < setup.elections {
        number += 1;
        let seed = setup.seed << 20 | number;
        let make: &Make<'_, M> = &|peer, kept| make(peer, kept, seed);
        let mut group = Group::start(setup.peers, &setup.network, seed, make)?;
        let before = all.trials.len();
        for at in 0..ELECTIONS_EACH.min(setup.elections - all.trials.len() - all.undecided) {
            if !one(&mut group, setup, at == 0, &mut all)? {
                all.undecided += 1;
                break;
            }
        }
        vain = if all.trials.len() > before { 0 } else { vain + 1 };
        if vain == VAIN_MOST {
            bail!("{vain} groups in a row have come to no leader");
        }
        if all.trials.len() + all.undecided >= setup.elections && !setup.rest.is_zero() {
            all.rest = rest(&mut group, setup);
        }
        all.overlaps += group.overlaps;
        group.end()?;
    }
    Ok(all)
}

/// How long a group may take to become steady, or an election.
fn patience(setup: &Setup) -> Duration {
    setup.patience + setup.network.lease * 3 + setup.network.round_trip() * 20
}

fn await_steady<M: Machine>(group: &mut Group<'_, M>, setup: &Setup) -> Option<PeerId> {
    let until = group.now() + patience(setup);
    group.wait(until, |group| group.steady().is_some());
    group.steady()
}

fn leads(log: &[Entry]) -> usize {
    log.iter().filter(|entry| entry.what == What::Leads).count()
}

/// Says whether it came to a leader whom all know, and is in the group's past.
fn one<M: Machine>(group: &mut Group<'_, M>, setup: &Setup, is_first: bool, all: &mut Trials) -> Result<bool> {
    let old = loop {
        if await_steady(group, setup).is_none() {
            return Ok(false);
        }
        // The leader is stopped at any time between two renewals.
        let phase = setup.network.renew_every().as_nanos() as u64;
        let phase = Duration::from_nanos(group.entropy() % phase.max(1));
        group.pass(phase);
        if let Some(leader) = group.steady() {
            break leader;
        }
    };
    // The first leader of a group is not unplanned.
    all.unplanned += leads(&group.take_log()).saturating_sub(usize::from(is_first));
    let manner = if all.trials.len().is_multiple_of(2) { Manner::Kill } else { Manner::Silence };
    group.stop(old, manner)?;
    let until = group.now() + patience(setup);
    let is_decided = group.wait(until, |group| group.leader(Some(old)).is_some());
    let log = group.take_log();
    if !is_decided {
        return Ok(false);
    }
    group.revive(old)?;
    all.trials.extend(told(&log, Some((old, manner))));
    Ok(true)
}

/// What one election took, by what the peers have noted.
pub(super) fn told(log: &[Entry], lost: Option<(PeerId, Manner)>) -> Option<Trial> {
    let (old, manner) = lost.unzip();
    let stopped = match lost {
        Some(_) => log.iter().find(|entry| entry.what == What::Stopped)?.at,
        None => Instant::ZERO,
    };
    let of_others = |entry: &&Entry| Some(entry.by) != old && entry.at >= stopped;
    // Each peer notes in order, and at most a little later than it happened.
    let first =
        |what: What| log.iter().filter(of_others).filter(|entry| entry.what == what).map(|entry| entry.at).min();
    let led = first(What::Leads)?;
    // Who is drawn by the first to notice may lead before anybody else has noticed; so nobody has after that.
    let suspected = first(What::Vacant)?.min(led);
    let knows = |entry: &&Entry| matches!(entry.what, What::Follows(_) | What::Leads);
    let all = log.iter().filter(of_others).filter(knows).map(|entry| entry.at).max()?;
    let within = |entry: &&Entry| of_others(entry) && (suspected..=all).contains(&entry.at);
    let who = |is: What| log.iter().filter(within).filter(move |entry| entry.what == is).map(|entry| entry.by);
    let launches: Vec<(Instant, PeerId, u64)> = log
        .iter()
        .filter(within)
        .filter_map(|entry| match entry.what {
            What::Launched(round) => Some((entry.at, entry.by, round)),
            _ => None,
        })
        .collect();
    // Where rounds are not counted, who nominates itself is a candidate.
    let stands = || log.iter().filter(within).filter(|entry| entry.what == What::Stands);
    let asks: Vec<(Instant, PeerId, u64)> =
        if launches.is_empty() { stands().map(|entry| (entry.at, entry.by, 0)).collect() } else { launches };
    let launch = asks.iter().map(|(at, ..)| *at).min();
    let mut rounds: BTreeMap<u64, BTreeSet<PeerId>> = BTreeMap::new();
    for (_, by, round) in &asks {
        rounds.entry(*round).or_default().insert(*by);
    }
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    Some(Trial {
        manner,
        to_suspicion: nanos(suspected.since(stopped)),
        to_lead: nanos(led.since(suspected)),
        to_all: nanos(all.since(suspected)),
        to_launch: launch.map(|launch| nanos(launch.since(suspected))),
        candidates: asks.iter().map(|(_, by, _)| by).collect::<BTreeSet<_>>().len(),
        is_split: rounds.values().any(|candidates| candidates.len() > 1),
        rounds: rounds.len(),
        leaders: who(What::Leads).collect::<BTreeSet<_>>().len(),
        contest_messages: who(What::Sent(Kind::Contest)).count(),
        grant_messages: who(What::Sent(Kind::Grant)).count(),
    })
}

/// What the group costs while nothing happens.
fn rest<M: Machine>(group: &mut Group<'_, M>, setup: &Setup) -> Option<Rest> {
    await_steady(group, setup)?;
    // What the start has left to do is no rest.
    group.pass(setup.network.lease * 2);
    group.take_log();
    let cpu = || primacy_bench::cpu(std::process::id());
    let (begin, before): (Instant, _) = (group.now(), cpu());
    group.pass(setup.rest);
    let (elapsed, used) = (group.now().since(begin), cpu().saturating_sub(before));
    let log = group.take_log();
    let many = |what: What| log.iter().filter(|entry| entry.what == what).count();
    Some(Rest {
        seconds: elapsed.as_secs_f64(),
        leaders: many(What::Leads),
        renewals: many(What::Renewed),
        beats: many(What::Sent(Kind::Beat)),
        contest_messages: many(What::Sent(Kind::Contest)),
        cpu_seconds: used.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(micros: u64, by: u16, what: What) -> Entry {
        Entry { at: Instant::from_nanos(micros * 1_000), by: PeerId(by), what }
    }

    #[test]
    fn an_election_is_told_by_what_peers_have_noted() {
        let (contest, grant) = (What::Sent(Kind::Contest), What::Sent(Kind::Grant));
        let log = [
            entry(5, 3, contest),
            entry(10, 3, What::Stopped),
            entry(40, 1, What::Vacant),
            entry(45, 2, What::Vacant),
            entry(50, 1, What::Launched(4)),
            entry(50, 1, contest),
            entry(60, 2, contest),
            entry(70, 2, What::Stands),
            entry(71, 2, grant),
            entry(80, 2, What::Leads),
            entry(81, 2, What::Sent(Kind::Beat)),
            entry(90, 1, What::Follows(PeerId(2))),
            entry(95, 1, contest),
        ];
        let trial = told(&log, Some((PeerId(3), Manner::Kill))).expect("an election");
        assert_eq!([trial.to_suspicion, trial.to_lead, trial.to_all], [30_000, 40_000, 50_000]);
        assert_eq!((trial.to_launch, trial.candidates, trial.leaders), (Some(10_000), 1, 1));
        assert_eq!((trial.is_split, trial.rounds), (false, 1));
        assert_eq!((trial.contest_messages, trial.grant_messages), (2, 1));
    }

    #[test]
    fn only_candidates_of_one_round_split_its_votes() {
        let with = |second: What| {
            let log = [
                entry(40, 1, What::Vacant),
                entry(50, 1, What::Launched(4)),
                entry(60, 2, second),
                entry(80, 2, What::Leads),
            ];
            let trial = told(&log, None).expect("an election");
            assert_eq!((trial.manner, trial.to_suspicion, trial.candidates), (None, 40_000, 2));
            (trial.is_split, trial.rounds)
        };
        assert_eq!([with(What::Launched(4)), with(What::Launched(5))], [(true, 1), (false, 2)]);
    }
}
