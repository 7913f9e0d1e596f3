//! Exchanging the voters of a cluster while it elects.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::quorum::{Change, ChangeOutput, LEAP_MOST, Report, RollAnswer, VoterId};

use super::address::{AddressError, PeerAddress};
use super::cluster::{Cluster, Roster};
use super::link::{Greeted, dial};
use super::pool::{Heard, Pool};
use super::roles::Role;
use super::store::PeersStore;
use super::wire::{Body, Malformed, RollQuestion};
use crate::store::StoreError;

/// Which voters come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Those that come. Each must run already, and wait.
    pub add: Vec<PeerAddress>,
    /// The names of those that go.
    pub remove: Vec<String>,
}

/// One of the voters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterPlace {
    /// What it is called, and where it listens.
    pub address: PeerAddress,
    /// Its identity.
    pub voter: VoterId,
    /// What stands in the way to it, or why it does not vote with the others yet. `None` if it can be asked.
    pub trouble: Option<String>,
}

/// Who votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voters {
    /// Steps of exchanges so far: two for each exchange.
    pub number: u64,
    /// Those who vote; during an exchange the old ones.
    pub voters: Vec<VoterPlace>,
    /// During an exchange: the new ones.
    pub incoming: Option<Vec<VoterPlace>>,
}

impl Voters {
    /// How many more voters may be lost, whichever they are: a majority must be left, of the old and of the new ones during an
    /// exchange. None if there is no majority now.
    pub fn spare(&self) -> usize {
        let spare = |all: &[VoterPlace]| {
            let up = all.iter().filter(|place| place.trouble.is_none()).count();
            up.saturating_sub(all.len() / 2 + 1)
        };
        let of_new = self.incoming.as_deref().map(spare);
        of_new.into_iter().fold(spare(&self.voters), usize::min)
    }

    /// How many answer, and how many more may be lost, as a sentence.
    pub fn strength(&self) -> String {
        let count = self.voters.len();
        let up = self.voters.iter().filter(|place| place.trouble.is_none()).count();
        let answer =
            if up == count { format!("all {count} voters answer") } else { format!("{up} of {count} voters answer") };
        let lost = match (self.spare(), up == count) {
            (0, true) => "none may be lost".to_owned(),
            (0, false) => "no more may be lost".to_owned(),
            (spare, true) => format!("{spare} may be lost"),
            (spare, false) => format!("{spare} more may be lost"),
        };
        format!("{answer}; {lost}")
    }

    /// The command that finishes the exchange that is under way, if one is: the same as has begun it.
    pub fn finish(&self) -> Option<String> {
        let incoming = self.incoming.as_ref()?;
        let misses = |all: &[VoterPlace], one: &VoterPlace| {
            !all.iter().any(|other| (other.voter, &other.address) == (one.voter, &one.address))
        };
        let come = incoming.iter().filter(|new| misses(&self.voters, new)).map(|new| new.address.to_string());
        let go = self.voters.iter().filter(|old| misses(incoming, old)).map(|old| old.address.name().to_owned());
        let (come, go): (Vec<_>, Vec<_>) = (come.collect(), go.collect());
        Some(match (&*come, &*go) {
            (come, []) => format!("primacy peer add {}", come.join(" ")),
            ([], go) => format!("primacy peer remove {}", go.join(" ")),
            ([comes], [goes]) => format!("primacy peer replace {goes} {comes}"),
            _ => "primacy peer add, remove or replace, the same as before".to_owned(),
        })
    }
}

/// How an exchange has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// Who votes now.
    pub voters: Voters,
    /// Whether anybody came or went by it.
    pub is_changed: bool,
    /// Whether an exchange was under way, and has been finished first.
    pub has_finished: bool,
    /// The names of those who vote now and knew only of earlier voters before.
    pub told: Vec<String>,
}

/// What an exchange tells on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// An exchange is under way that somebody else has begun, and is finished first.
    Finishing,
    /// It has begun: majorities of the old and of the new voters must agree from now on. It can be finished and not undone.
    Begun,
    /// Leases still hold that only old voters have granted: the new ones do not vote alone for so long.
    Waiting(Duration),
}

/// Why voters have not been exchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The voters cannot be reached. Nothing was changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A voter that is to come cannot be asked. Nothing was changed.
    #[error("{peer} cannot be reached: {why}. Start it first; it waits to be taken in")]
    NotReached {
        /// Which one.
        peer: PeerAddress,
        /// Why not.
        why: String,
    },
    /// A voter that is to come does not take the one that exchanges voters for an operator. Nothing was changed.
    #[error(
        "to {peer} this is no more than a certificate of a {role}: use one with the name of an operator, or the socket of a \
         voter that stands among the --peers of the new one"
    )]
    Denied {
        /// Which one.
        peer: PeerAddress,
        /// What it takes the asker for.
        role: Role,
    },
    /// A voter that is to come votes elsewhere. Nothing was changed.
    #[error(
        "{peer} votes in another cluster: a new voter starts with an empty folder, and is told of more peers than itself"
    )]
    Foreign {
        /// Which one.
        peer: PeerAddress,
    },
    /// A voter that is to come was taken out before, and ends when it hears of that. Nothing was changed.
    #[error("{peer} was taken out by an exchange before: to take it in again, start it with an empty folder")]
    Removed {
        /// Which one.
        peer: PeerAddress,
    },
    /// Another voter has its name. Nothing was changed.
    #[error(
        "another voter called '{name}' votes already: have the new one take its place with 'primacy peer replace {name}', or name it otherwise"
    )]
    Taken {
        /// The name.
        name: String,
    },
    /// None of the voters has this name. Nothing was changed.
    #[error("no voter is called '{name}': {voters} vote. Nothing was changed")]
    Absent {
        /// The name.
        name: String,
        /// Who votes.
        voters: String,
    },
    /// Too many would vote, or nobody. Nothing was changed.
    #[error("{0} peers cannot vote: one to nine can, three or five as a rule")]
    Count(usize),
    /// The new voters could not grant anything. Nothing was changed.
    #[error("no majority of the new voters can be reached: {missing}. Nothing was changed")]
    Minority {
        /// Who cannot, and why.
        missing: String,
    },
    /// It cannot go on. It may have begun, and is then finished by the next exchange.
    #[error(
        "the exchange could not be finished: no majority of the {whose} voters answers; not heard: {silent}. Bring them back, and do the same again"
    )]
    Stuck {
        /// Of which voters a majority is needed.
        whose: &'static str,
        /// Who has not answered.
        silent: String,
    },
    /// Others exchange voters all the time.
    #[error(
        "others exchange voters at the same time, and were sooner again and again: look who votes, and try once more"
    )]
    Rivals,
}

impl From<AddressError> for ExchangeError {
    fn from(error: AddressError) -> Self {
        match error {
            AddressError::Count(count) => Self::Count(count),
            error => Self::Store(StoreError::Unusable(error.to_string())),
        }
    }
}

/// So often others may be sooner.
const RIVALS_MOST: usize = 10;

impl PeersStore {
    /// Who votes now, as far as a majority of them knows.
    ///
    /// # Errors
    /// If no majority can be reached.
    pub async fn voters(&self) -> Result<Voters, StoreError> {
        let mut pool = Pool::open(&self.places, "an operator", None).await?;
        // Whoever knows of later voters says so.
        pool.poll(&Body::List(true)).await?;
        let behind = pool.behind().await;
        Ok(voters_of(&pool, &behind))
    }

    /// Exchanges voters, and returns when a majority of the new ones votes without the old ones. An exchange that is under way
    /// is finished first, whoever has begun it. It may be given up at any moment, and the same be asked again.
    ///
    /// # Errors
    /// If it cannot begin, which changes nothing; or cannot be finished: then majorities of both the old and the new voters
    /// go on granting leases, and the next exchange finishes it.
    pub async fn exchange(
        &self,
        exchange: &Exchange,
        told: &mut dyn FnMut(Progress),
    ) -> Result<Exchanged, ExchangeError> {
        let mut pool = Pool::open(&self.places, "an operator", None).await?;
        let (mut is_changed, mut has_finished) = (false, false);
        // One that answers a moment later than the majority may be behind, too.
        pool.settle().await;
        let before = pool.behind().await;
        for _ in 0..RIVALS_MOST {
            has_finished |= drive(&mut pool, None, &mut |progress| match progress {
                Progress::Begun => told(Progress::Finishing),
                progress => told(progress),
            })
            .await?;
            let number = pool.cluster.number();
            let Some(target) = self.plan(&mut pool, exchange, is_changed || has_finished).await? else {
                return Ok(exchanged(&mut pool, &before, is_changed, has_finished).await);
            };
            if pool.cluster.number() > number {
                // Somebody knows of a later exchange: that is finished first.
                continue;
            }
            let wanted = pool.cluster.joint(target.clone());
            is_changed |= drive(&mut pool, Some(wanted), told).await?;
            if pool.cluster.incoming().is_none() && *pool.cluster.voters() == target {
                // The voter on the way may be none any more, and speak for no operator.
                return Ok(exchanged(&mut pool, &before, is_changed, has_finished).await);
            }
        }
        Err(ExchangeError::Rivals)
    }

    /// Who is to vote, if those are others than vote now. `is_later`: an exchange has been finished meanwhile, by which those that
    /// go may have gone.
    async fn plan(
        &self,
        pool: &mut Pool,
        exchange: &Exchange,
        is_later: bool,
    ) -> Result<Option<Roster>, ExchangeError> {
        let current = &pool.cluster.clone();
        let mut target = current.voters().clone();
        target.retain(|name, _| !exchange.remove.contains(name));
        let mut missing: BTreeMap<VoterId, String> =
            current.addresses().filter_map(|(voter, _)| Some((voter, pool.trouble(voter)?))).collect();
        for peer in &exchange.add {
            let greeted = dial(peer, &self.places.way, Vec::new(), "an operator").await;
            let Greeted { voter, cluster, role, .. } =
                greeted.map_err(|error| ExchangeError::NotReached { peer: peer.clone(), why: error.to_string() })?;
            if let Some(role) = role.filter(|role| *role < Role::Operator) {
                return Err(ExchangeError::Denied { peer: peer.clone(), role });
            }
            if cluster.as_ref().is_some_and(|cluster| !cluster.is_same(current)) {
                return Err(ExchangeError::Foreign { peer: peer.clone() });
            }
            match cluster {
                Some(later) if later.number() > current.number() => {
                    pool.learn(&later);
                    return Ok(Some(target));
                }
                // The next exchange could not be finished without it.
                Some(_) if !current.has(voter) => return Err(ExchangeError::Removed { peer: peer.clone() }),
                _ => {}
            }
            missing.remove(&voter);
            match target.get(peer.name()) {
                Some((other, _)) if *other != voter => {
                    return Err(ExchangeError::Taken { name: peer.name().to_owned() });
                }
                _ => drop(target.insert(peer.name().to_owned(), (voter, peer.clone()))),
            }
        }
        // One that comes in the place of another, and votes already, has come by the same exchange.
        let has_come = !exchange.add.is_empty() && target == *current.voters();
        if let Some(name) = exchange.remove.iter().find(|name| !current.voters().contains_key(*name))
            && !is_later
            && !has_come
        {
            let voters = current.names().collect::<Vec<_>>().join(", ");
            return Err(ExchangeError::Absent { name: primacy_core::ids::escape(name), voters });
        }
        if target == *current.voters() {
            return Ok(None);
        }
        PeerAddress::check(&target.values().map(|(_, peer)| peer).collect::<Vec<_>>())?;
        missing.retain(|voter, _| target.values().any(|(wanted, _)| wanted == voter));
        let count = target.len();
        if (count - missing.len().min(count)) * 2 <= count {
            let missing: Vec<String> = missing.into_values().collect();
            return Err(ExchangeError::Minority { missing: missing.join(", ") });
        }
        Ok(Some(target))
    }
}

async fn exchanged(
    pool: &mut Pool,
    before: &BTreeMap<VoterId, u64>,
    is_changed: bool,
    has_finished: bool,
) -> Exchanged {
    let behind = pool.behind().await;
    let told = before.keys().filter(|voter| !behind.contains_key(voter) && pool.trouble(**voter).is_none());
    let told = told.filter_map(|voter| Some(pool.cluster.address_of(*voter)?.name().to_owned())).collect();
    Exchanged { voters: voters_of(pool, &behind), is_changed, has_finished, told }
}

/// Why a voter that answers does not vote with the others. `own`: the number of the voters that it knows of.
fn lag(peer: &PeerAddress, own: u64, number: u64) -> String {
    if number.saturating_sub(own) > LEAP_MOST {
        let name = peer.name();
        format!(
            "it is too many exchanges of voters behind to be brought up to date; start it with an empty folder, then: primacy peer \
             replace {name} {peer}"
        )
    } else {
        "it has not learned yet who votes by now; if it does not catch up: primacy peer confirm".to_owned()
    }
}

/// `behind`: those that know of earlier voters, by [`Pool::behind`].
pub(super) fn voters_of(pool: &Pool, behind: &BTreeMap<VoterId, u64>) -> Voters {
    let number = pool.cluster.number();
    let places = |roster: &Roster| {
        let place = |(voter, address): &(VoterId, PeerAddress)| VoterPlace {
            address: address.clone(),
            voter: *voter,
            trouble: pool.trouble(*voter).or_else(|| Some(lag(address, *behind.get(voter)?, number))),
        };
        roster.values().map(place).collect()
    };
    let cluster = &pool.cluster;
    Voters { number: cluster.number(), voters: places(cluster.voters()), incoming: cluster.incoming().map(places) }
}

/// What a voter has answered to the parts of one question so far.
struct Parts {
    /// How many answers are to come.
    open: usize,
    said: RollAnswer<Cluster>,
}

/// From the voters of the pool to these, or to the end of what is under way. Returns whether anything was under way or begun.
async fn drive(
    pool: &mut Pool,
    wanted: Option<Cluster>,
    told: &mut dyn FnMut(Progress),
) -> Result<bool, ExchangeError> {
    let mut change = Change::new(pool.cluster.clone(), wanted, rand::random());
    let mut out = Vec::new();
    change.resume(&mut out);
    let mut has_begun = false;
    let (mut round, mut tag) = (0, 0);
    let mut parts: BTreeMap<VoterId, Parts> = BTreeMap::new();
    loop {
        pool.learn(change.current());
        for output in std::mem::take(&mut out) {
            match output {
                ChangeOutput::Send { to, round: new, ask } => {
                    if new != round {
                        (round, tag) = (new, pool.tag());
                        parts.clear();
                    }
                    let questions = RollQuestion::of(&ask);
                    parts.insert(to, Parts { open: questions.len(), said: RollAnswer::Done });
                    questions.into_iter().for_each(|question| pool.ask(to, tag, Body::Roll(question)));
                }
                ChangeOutput::Begun(_) if has_begun => {}
                ChangeOutput::Begun(_) => {
                    has_begun = true;
                    told(Progress::Begun);
                }
                ChangeOutput::Wait(span) => {
                    if !span.is_zero() {
                        told(Progress::Waiting(span));
                    }
                    // Two that are in each other's way do not meet again.
                    let more = Duration::from_millis(rand::random_range(20..200));
                    tokio::time::sleep(span.saturating_add(more)).await;
                    change.resume(&mut out);
                }
                ChangeOutput::Done(cluster) => {
                    pool.learn(&cluster);
                    return Ok(has_begun);
                }
                ChangeOutput::Stuck(silent) => {
                    if let Some(why) = pool.denied() {
                        return Err(StoreError::Unusable(why).into());
                    }
                    let name = |voter| match pool.cluster.address_of(voter) {
                        Some(peer) => format!("{peer} ({})", pool.trouble(voter).unwrap_or_else(|| "no answer".into())),
                        None => voter.to_string(),
                    };
                    let silent: Vec<String> = silent.into_iter().map(name).collect();
                    let whose =
                        if has_begun || pool.cluster.incoming().is_some() { "old and of the new" } else { "present" };
                    return Err(ExchangeError::Stuck { whose, silent: silent.join(", ") });
                }
            }
        }
        if !out.is_empty() {
            continue;
        }
        match pool.heard().await {
            Heard::Answer(voter, same, body) if same == tag => {
                match answer(*body, pool, voter, tag, &change, &mut parts) {
                    Ok(Some(answer)) => change.answered(voter, round, answer, &mut out),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%voter, %error, "an answer cannot be used");
                        change.unheard(voter, round, &mut out);
                    }
                }
            }
            Heard::Lost(voter, same) if same == tag => change.unheard(voter, round, &mut out),
            _ => {}
        }
    }
}

/// The whole answer of a voter, once all parts of it are there.
fn answer(
    body: Body,
    pool: &mut Pool,
    voter: VoterId,
    tag: u64,
    change: &Change<Cluster>,
    parts: &mut BTreeMap<VoterId, Parts>,
) -> Result<Option<RollAnswer<Cluster>>, Malformed> {
    let reply = match body {
        Body::Rolled(reply) => reply,
        Body::Refused(_) => return Err(Malformed("a refusal")),
        _ => return Err(Malformed("an answer to another question")),
    };
    let (said, more) = reply.checked()?;
    let Some(own) = parts.get_mut(&voter) else { return Ok(None) };
    if more
        && let RollAnswer::Reported(report) = &said
        && let Some((last, _)) = report.elections.last_key_value()
    {
        own.open += 1;
        let next = RollQuestion::report(change.current().number(), last.as_str());
        pool.ask(voter, tag, Body::Roll(next));
    }
    own.open = own.open.saturating_sub(1);
    own.said = match (std::mem::replace(&mut own.said, RollAnswer::Done), said) {
        (RollAnswer::Reported(mut all), RollAnswer::Reported(Report { elections, settles_in })) => {
            all.elections.extend(elections);
            all.settles_in = all.settles_in.max(settles_in);
            RollAnswer::Reported(all)
        }
        (before @ (RollAnswer::NotYet | RollAnswer::Elsewhere(_)), _) => before,
        (_, said) => said,
    };
    Ok((own.open == 0).then(|| own.said.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &[&str]) -> Vec<VoterPlace> {
        // The number before the name is who it is.
        let place = |text: &&str| {
            let (who, address) = text.split_once('=').expect("an identity");
            let voter = VoterId::from_bits(who.parse().expect("a number"));
            VoterPlace { address: address.parse().expect("an address"), voter, trouble: None }
        };
        text.iter().map(place).collect()
    }

    #[test]
    fn a_voter_that_is_too_far_behind_is_replaced_and_another_is_confirmed() {
        let peer = "c@h:3".parse().expect("an address");
        assert!(lag(&peer, 4, 4 + LEAP_MOST).ends_with("primacy peer confirm"));
        assert!(lag(&peer, 4, 5 + LEAP_MOST).ends_with("primacy peer replace c c@h:3"));
    }

    #[test]
    fn the_command_that_finishes_an_exchange_is_the_one_that_began_it() {
        let old = ["1=a@h:1", "2=b@h:2", "3=c@h:3"];
        for (new, command) in [
            (&["1=a@h:1", "2=b@h:2", "3=c@h:3", "4=d@h:4"][..], "primacy peer add d@h:4"),
            (&["1=a@h:1"], "primacy peer remove b c"),
            (&["1=a@h:1", "2=b@h:2", "4=d@h:4"], "primacy peer replace c d@h:4"),
            (&["1=a@h:1", "2=b@h:2", "4=c@h:3"], "primacy peer replace c c@h:3"),
            // It has moved.
            (&["1=a@h:1", "2=b@h:2", "3=c@h:4"], "primacy peer replace c c@h:4"),
            (&["1=a@h:1", "4=d@h:4"], "primacy peer add, remove or replace, the same as before"),
        ] {
            let voters = Voters { number: 1, voters: places(&old), incoming: Some(places(new)) };
            assert_eq!(voters.finish().as_deref(), Some(command));
        }
        assert_eq!(Voters { number: 0, voters: places(&old), incoming: None }.finish(), None);
    }
}
