//! What a replica does with what is certain: it applies what is committed, answers reads, and lets go of entries that are in a snapshot.

use alloc::vec::Vec;

use primacy_core::Instant;
use primacy_core::log::{Content, LogNode, ReplicaId, Snapshot};

use super::Group;
use super::flaws::Flaw;
use super::leading::{Builder, group_time};
use super::port::Broken;
use crate::entry::{Batch, Change};
use crate::request::{Failure, Query};
use crate::resp::Reply;
use crate::table::{Outcome, Refusal, Table};

impl Group {
    /// Applies what is committed, and tells the nodes whose requests it were.
    pub(super) fn apply(&mut self) {
        while let Some((index, entry)) = self.log.next_to_apply() {
            let (ballot, time) = (entry.ballot, group_time(entry.time));
            let own = self.leading.as_mut().and_then(|leading| leading.applied(index, ballot));
            let batch = match (&entry.content, own) {
                (Content::Payload(_), Some(batch)) => Ok(Some(batch)),
                (Content::Payload(bytes), None) => Batch::decode(bytes.as_ref()).map(Some),
                _ => Ok(None),
            };
            let applied = batch.map_err(|source| Broken::Entry { index, source }).and_then(|batch| {
                let table = self.tables.table.as_mut().ok_or(Broken::Incomplete)?;
                Ok(match batch {
                    Some(batch) => {
                        let names = names(&batch);
                        Some((names, table.apply(index, batch)?))
                    }
                    None => {
                        table.advance(index, time)?;
                        None
                    }
                })
            });
            match applied {
                Ok(Some((names, outcomes))) => self.tell(names, outcomes),
                Ok(None) => {}
                Err(broken) => return self.break_off(broken),
            }
            self.log_does(LogNode::applied);
        }
    }

    /// Tells what became of an entry's requests, if this node leads.
    pub(super) fn tell(&mut self, names: Vec<Option<(ReplicaId, u64, u64)>>, outcomes: Vec<Outcome>) {
        let Some(ballot) = self.log.leads() else { return };
        for (name, outcome) in names.into_iter().zip(outcomes) {
            let Some(name) = name else { continue };
            let answer = match outcome {
                Outcome::Done(reply) => Ok(reply),
                // Nobody waits for it.
                Outcome::Refused(Refusal::Acknowledged | Refusal::EarlierStart) => continue,
                Outcome::Refused(_) => Err(Failure::Busy),
            };
            self.tell_write(name, answer, ballot);
        }
    }

    /// Answers the reads that may be, from all that is applied by now.
    pub(super) fn answer_reads(&mut self, now: Instant) {
        for number in core::mem::take(&mut self.certain) {
            let Some(leading) = &mut self.leading else { return };
            let (ballot, time) = (leading.ballot, leading.time(now));
            let Some((reader, query)) = leading.reads.remove(&number) else { continue };
            let Some(table) = &self.tables.table else { return };
            let found = match look(table, &query, time) {
                Err(_) if self.planted.is(Flaw::ExpiresByOwnClock) => Ok(Reply::Null),
                found => found,
            };
            match found {
                Ok(reply) => self.tell_read(reader, Ok(reply), ballot),
                Err(expired) => {
                    // It is asked again behind the removal.
                    let number = leading.ask(reader, query);
                    leading.has_unasked = true;
                    let is_removed = leading.removal > self.log.replica().applied();
                    if leading.serves && !is_removed {
                        let mut builder = Builder::new(time, 0);
                        builder.push(None, Change::RemoveExpired(expired));
                        self.remove(builder);
                    }
                    let how = self.settings.reads;
                    self.log_does(|log, effects| log.read(number, how, effects));
                }
            }
        }
    }

    /// Lets the entries go that are in a snapshot on disk, unless a replica needs them that is not far behind.
    pub(super) fn compact(&mut self) {
        let Some((index, chunks)) = self.tables.to_compact() else { return };
        let config = self.log.replica().log().config().filter(|_| self.log.opening().is_some());
        let needs = |id: ReplicaId| self.log.matched(id) < index;
        let is_needed = config.is_some_and(|config| config.replicas().any(needs));
        if is_needed && self.tables.log_bytes() < self.settings.snapshot_every.saturating_mul(4) {
            return;
        }
        let _: Option<Snapshot> = self.log.compact(index, chunks);
        self.tables.compacted();
    }
}

/// Who has sent each request of a batch, and its number there.
fn names(batch: &Batch) -> Vec<Option<(ReplicaId, u64, u64)>> {
    let name = |request: &crate::entry::Request| {
        let forwarded = request.forwarded?;
        let origin = batch.origins.get(usize::from(forwarded.origin))?;
        Some((ReplicaId::from_bits(origin.node), origin.starts, forwarded.number))
    };
    batch.requests.iter().map(name).collect()
}

/// What a query finds, or the keys that have to be removed before it can be answered.
pub(super) fn look(
    table: &Table,
    query: &Query,
    now: crate::entry::GroupTime,
) -> Result<Reply, crate::entry::ExpiredKeys> {
    let bulks = |keys: Vec<crate::command::Key>| Reply::Array(keys.into_iter().map(Reply::bulk).collect());
    Ok(match query {
        Query::Operation(operation) => match table.read(operation, now) {
            crate::table::Answer::Reply(reply) => reply,
            crate::table::Answer::Expired(expired) => return Err(expired),
        },
        Query::Versions(keys) => {
            let versions = table.versions(keys, now)?.into_iter();
            Reply::Array(versions.map(|(_, version)| Reply::Integer(version.cast_signed())).collect())
        }
        Query::Scan { cursor, count, filter } => {
            let (next, keys) = table.scan(*cursor, *count, filter);
            Reply::Array([Reply::bulk(alloc::format!("{next}")), bulks(keys)].into())
        }
        Query::Keys(filter) => bulks(table.keys(filter)),
        Query::Count => Reply::count(table.len()),
        Query::Random(number) => Reply::maybe(table.random_key(*number)),
    })
}
