//! Clients: connections to a node, each with some requests under way.

use std::collections::BTreeMap;

use primacy_kv::command::{Condition, Expiry, Operation, Set, SetAnswer};
use primacy_kv::entry::Change;
use primacy_kv::request::{Answered, ClientRequest, Failure, Query};
use primacy_kv::resp::Reply;
use primacy_linearizability::Outcome;

use super::history::{Pending, Use};
use super::scenario::MILLI;
use super::spec::{Ask, Said, When};
use super::tally::{Promise, Sometimes};
use super::{Happening, World};

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    /// Its number among all of this world.
    number: u64,
    words: u64,
    /// Of each group: whether writes are under way, and how many requests.
    busy: BTreeMap<u16, (bool, usize)>,
    /// Values that it has seen last, of each family.
    seen: BTreeMap<(u16, usize), Option<Vec<u8>>>,
    /// Versions of first keys that it has asked for.
    versions: BTreeMap<(u16, usize), u64>,
}

impl World {
    pub(super) fn start_clients(&mut self, node: usize) {
        while self.clients.len() <= node {
            self.clients.push(Vec::new());
        }
        self.clients[node].clear();
        for client in 0..self.scenario.clients {
            let number = self.engine.number();
            self.clients[node].push(Client {
                number,
                words: 0,
                busy: BTreeMap::new(),
                seen: BTreeMap::new(),
                versions: BTreeMap::new(),
            });
            let after = self.engine.rng.below(self.scenario.think);
            let run = self.nodes[node].run;
            self.engine.after(after, Happening::Client { node, client, run });
        }
    }

    /// What the clients of a node had under way is in doubt for ever.
    pub(super) fn clients_die(&mut self, node: usize) {
        self.clients[node].clear();
        let tags: Vec<u64> =
            self.history.pending.iter().filter(|(_, pending)| pending.node == node).map(|(tag, _)| *tag).collect();
        for tag in tags {
            if let Some(pending) = self.history.pending.remove(&tag) {
                self.history.record(pending, Outcome::Unknown);
            }
        }
    }

    /// A client asks for something, perhaps for several things at once.
    pub(super) fn client(&mut self, node: usize, client: usize) {
        if self.is_over {
            return;
        }
        let run = self.nodes[node].run;
        let after = self.engine.rng.between(1, self.scenario.think * 2);
        self.engine.after(after, Happening::Client { node, client, run });
        let burst = if self.engine.rng.chance(300_000) { self.scenario.depth } else { 1 };
        for _ in 0..burst {
            let group = self.engine.rng.below(u64::from(self.scenario.groups)) as u16;
            self.ask_something(node, client, group);
        }
    }

    fn ask_something(&mut self, node: usize, client: usize, group: u16) {
        let (is_writing, busy) = self.clients[node][client].busy.get(&group).copied().unwrap_or_default();
        let depth = self.scenario.depth;
        let rng = &mut self.engine.rng;
        let family = rng.below(self.history.families[usize::from(group)].len() as u64) as usize;
        let what = self.history.families[usize::from(group)][family].what;
        let dice = rng.below(100);
        let mut version = None;
        let ask = match (what, dice) {
            (Use::Register, 0..40) => Some(Ask::Get(0)),
            (Use::Register, 40..46) => None,
            (Use::Register, 46..60) => {
                version = self.clients[node][client].versions.remove(&(group, family));
                if version.is_none() {
                    return;
                }
                let value = self.history.value();
                let set = Ask::Set { key: 0, value, when: When::Always, live: None };
                Some(Ask::All { asks: vec![Ask::Get(0), set], watches: true })
            }
            (Use::Register, 60..68) => Some(Ask::GetDelete(0)),
            (Use::Register, 68..72) => Some(Ask::Delete(0)),
            (Use::Register, _) => {
                let when = match self.clients[node][client].seen.get(&(group, family)) {
                    Some(Some(value)) if dice < 84 => When::Is(value.clone()),
                    Some(None) if dice < 84 => When::Absent,
                    _ => When::Always,
                };
                let live = rng.chance(250_000).then(|| rng.between(1, self.scenario.lease / MILLI / 2));
                Some(Ask::Set { key: 0, value: self.history.value(), when, live: live.map(|live| live * MILLI) })
            }
            (Use::Counter, 0..60) => Some(Ask::Increment(0)),
            (Use::List, 0..65) => {
                let client = &mut self.clients[node][client];
                client.words += 1;
                Some(Ask::Append(0, format!("{:04x}{:04x};", client.number & 0xffff, client.words).into_bytes()))
            }
            (Use::Counter | Use::List, _) => Some(Ask::Get(0)),
            (Use::Pair, 0..45) => {
                let value = self.history.value();
                let set = |key| Ask::Set { key, value: value.clone(), when: When::Always, live: None };
                Some(Ask::All { asks: vec![set(0), Ask::Get(1), set(1)], watches: false })
            }
            (Use::Pair, 45..55) => Some(Ask::Delete((dice % 2) as usize)),
            (Use::Pair, _) => Some(Ask::GetBoth),
        };
        let is_write = !matches!(ask, None | Some(Ask::Get(_) | Ask::GetBoth));
        // Reads wait for reads to end, and no kind begins beside the other.
        if busy > 0 && (is_write != is_writing || !is_write || busy >= depth) {
            return;
        }
        if busy > 0 {
            self.saw(Sometimes::Pipelined);
        }
        self.clients[node][client].busy.insert(group, (is_write, busy + 1));
        self.submit(node, Some(client), group, family, ask, version);
    }

    /// Hands a request to the node's group. Its tag.
    pub(super) fn submit(
        &mut self,
        node: usize,
        client: Option<usize>,
        group: u16,
        family: usize,
        ask: Option<Ask>,
        version: Option<u64>,
    ) -> u64 {
        let tag = self.engine.number();
        let names = &self.history.families[usize::from(group)][family].names;
        let request = match &ask {
            None => ClientRequest::Read(Query::Versions(vec![names[0].clone().into()])),
            Some(ask) => request(names, ask, version),
        };
        let (called, came) = (self.engine.now, self.local(node));
        let ask = ask.map(|ask| self.with_least_lives(ask));
        self.note(Some(node), || format!("group {group}: request {tag}: {ask:?} of family {family}"));
        let pending = Pending { node, client, group, family, ask, called, came, version };
        self.history.pending.insert(tag, pending);
        self.input(node, group, |replica, now| replica.group.request(tag, request, now));
        tag
    }

    /// A key lives at least so long by real time: leaders' clocks are fast, and count in milliseconds.
    fn with_least_lives(&self, ask: Ask) -> Ask {
        let least = |live: u64| {
            let drift = u64::from(self.scenario.drift);
            (live * 1_000_000 / (1_000_000 + drift)).saturating_sub(2 * MILLI)
        };
        match ask {
            Ask::Set { key, value, when, live } => Ask::Set { key, value, when, live: live.map(least) },
            other => other,
        }
    }

    /// A group has answered.
    pub(super) fn answered(&mut self, node: usize, tag: u64, answer: Answered) {
        let now = self.engine.now;
        let Some(pending) = self.history.pending.remove(&tag) else {
            return self
                .violate(Promise::Answered, || format!("request {tag} of n{node} is answered twice: {answer:?}"));
        };
        self.note(Some(node), || format!("request {tag} is answered: {answer:?}"));
        if pending.node != node {
            return self.violate(Promise::Answered, || format!("request {tag} is answered at n{node}"));
        }
        if let Some(client) = pending.client.and_then(|client| self.clients[node].get_mut(client))
            && let Some((_, busy)) = client.busy.get_mut(&pending.group)
        {
            *busy -= 1;
        }
        match answer {
            Ok(reply) => self.done(tag, pending, reply, now),
            Err(failure) => self.failed(tag, pending, failure),
        }
    }

    fn done(&mut self, tag: u64, pending: Pending, reply: Reply, now: u64) {
        let Pending { node, client, group, family, .. } = pending;
        let place = (group, family);
        let client = client.and_then(|client| self.clients[node].get_mut(client));
        let Some(ask) = &pending.ask else {
            if let (Reply::Array(versions), Some(client)) = (&reply, client)
                && let [Reply::Integer(version)] = versions[..]
            {
                client.versions.insert(place, version.cast_unsigned());
            }
            return;
        };
        let Some(said) = said(ask, &reply) else {
            return self.violate(Promise::Answered, || format!("{ask:?} is answered with {reply:?}"));
        };
        if let (Said::Value(value), Some(client)) = (&said, client) {
            client.seen.insert(place, value.clone());
        }
        match (&said, pending.version) {
            (Said::Aborted, _) => self.saw(Sometimes::Aborted),
            (Said::All(_), Some(version)) => {
                self.saw(Sometimes::Watched);
                // A key that is not there has version 0 each time.
                if version > 0
                    && let Some(other) = self.history.watched(group, family, version, tag)
                {
                    self.violate(Promise::Watch, || {
                        format!("requests {other} and {tag} both watched version {version} of one key, and were done")
                    });
                }
            }
            (Said::All(_), None) => self.saw(Sometimes::Transaction),
            _ => {}
        }
        self.history.record(pending, Outcome::Answered(now, said));
    }

    fn failed(&mut self, tag: u64, pending: Pending, failure: Failure) {
        let waited = self.local(pending.node).since(pending.came);
        let is_early = waited < self.scenario.lease() * 2;
        if matches!(failure, Failure::Unknown | Failure::NoLeader) && is_early {
            self.violate(Promise::Certain, || format!("request {tag} ends as {failure} after {waited:?}"));
        }
        if pending.client.is_none() {
            self.violate(Promise::Settled, || format!("request {tag} in a healed world ends as {failure}"));
        }
        match failure {
            Failure::Unknown => self.saw(Sometimes::Unknown),
            Failure::NoLeader => self.saw(Sometimes::NoLeader),
            Failure::DiskFull => self.saw(Sometimes::RefusedFull),
            Failure::OutOfMemory => self.saw(Sometimes::RefusedMemory),
            // Some leader has to have refused something of this node.
            Failure::Overtaken if self.ledgers[usize::from(pending.group)].refused.contains(&pending.node) => {
                self.saw(Sometimes::Overtaken);
            }
            _ => self.violate(Promise::Certain, || format!("request {tag} ends as {failure}")),
        }
        // What was certainly not done is not in the history: if its value is seen all the same, that is a violation.
        if !failure.is_certain() {
            self.history.record(pending, Outcome::Unknown);
        }
    }
}

fn request(names: &[Vec<u8>], ask: &Ask, version: Option<u64>) -> ClientRequest {
    match ask {
        Ask::Get(_) | Ask::GetBoth => ClientRequest::Read(Query::Operation(operation(names, ask))),
        Ask::All { asks, .. } => {
            let watched = version.map(|version| (names[0].clone().into(), version)).into_iter().collect();
            let operations = asks.iter().map(|ask| operation(names, ask)).collect();
            ClientRequest::Write(Change::Transaction { watched, operations })
        }
        _ => ClientRequest::Write(Change::Operation(operation(names, ask))),
    }
}

fn operation(names: &[Vec<u8>], ask: &Ask) -> Operation {
    let name = |key: &usize| names[*key].clone().into_boxed_slice();
    match ask {
        Ask::Get(key) => Operation::Get { key: name(key) },
        Ask::GetBoth | Ask::All { .. } => Operation::GetMany { keys: vec![name(&0), name(&1)] },
        Ask::Set { key, value, when, live } => Operation::Set(Set {
            key: name(key),
            value: value.clone().into(),
            condition: match when {
                When::Always => Condition::Always,
                When::Absent => Condition::IfAbsent,
                When::Is(value) => Condition::IfEqual(value.clone().into()),
            },
            expiry: live.map_or(Expiry::Never, |live| Expiry::After((live / MILLI).cast_signed())),
            answer: SetAnswer::Done,
        }),
        Ask::Append(key, value) => Operation::Append { key: name(key), value: value.clone().into(), max: u64::MAX },
        Ask::Increment(key) => Operation::Add { key: name(key), delta: 1 },
        Ask::Delete(key) => Operation::Delete { keys: vec![name(key)] },
        Ask::GetDelete(key) => Operation::GetDelete { key: name(key) },
    }
}

fn value(reply: &Reply) -> Option<Option<Vec<u8>>> {
    match reply {
        Reply::Bulk(bytes) => Some(Some(bytes.to_vec())),
        Reply::Null => Some(None),
        _ => None,
    }
}

fn said(ask: &Ask, reply: &Reply) -> Option<Said> {
    Some(match (ask, reply) {
        (Ask::Get(_) | Ask::GetDelete(_), _) => Said::Value(value(reply)?),
        (Ask::GetBoth, Reply::Array(both)) => match &both[..] {
            [one, other] => Said::Both([value(one)?, value(other)?]),
            _ => return None,
        },
        (Ask::Set { .. }, reply) if *reply == Reply::OK => Said::Done(true),
        (Ask::Set { .. }, Reply::Null) => Said::Done(false),
        (Ask::Append(..) | Ask::Increment(_) | Ask::Delete(_), Reply::Integer(number)) => Said::Number(*number),
        (Ask::All { watches: true, .. }, Reply::NullArray) => Said::Aborted,
        (Ask::All { asks, .. }, Reply::Array(replies)) if asks.len() == replies.len() => {
            let said: Option<Vec<Said>> = asks.iter().zip(replies).map(|(ask, reply)| said(ask, reply)).collect();
            Said::All(said?)
        }
        _ => return None,
    })
}
