//! Applies what is committed, then acknowledges writes and answers the reads that are certain; drops entries that are in a snapshot.
//!
//! What makes a read certain is the log's to say: `primacy_core::log`, `leader/reads.rs`.

use alloc::vec::Vec;

use primacy_core::Instant;
use primacy_core::log::{Content, LogNode, Snapshot};

use super::Group;
use super::flaws::Flaw;
use super::leading::{Builder, RequestName, group_time};
use super::port::Broken;
use crate::entry::{Batch, Change};
use crate::request::{Failure, Query};
use crate::resp::Reply;
use crate::table::{AnswerRoom, Outcome, Refusal, Table};

/// How many bytes of entries are applied in one turn, before other groups have theirs.
const APPLIED_AT_ONCE: usize = 8 << 20;

impl Group {
    /// Applies what is committed, some of it at a time, and tells the nodes whose requests it were.
    pub(super) fn apply(&mut self) {
        let mut bytes = 0;
        while let Some((index, entry)) = self.log.next_to_apply() {
            self.is_behind = bytes >= APPLIED_AT_ONCE;
            if self.is_behind {
                return;
            }
            let (ballot, time, size) = (entry.ballot, group_time(entry.time), entry.size());
            bytes += size;
            let own = self.leading.as_mut().and_then(|leading| leading.applied(index, ballot));
            let is_own = own.is_some();
            let batch = match (&entry.content, own) {
                (Content::Payload(_), Some(batch)) => Ok(Some(batch)),
                (Content::Payload(bytes), None) => Batch::decode(bytes.as_ref()).map(Some),
                _ => Ok(None),
            };
            let applied = batch.map_err(|source| Broken::Entry { index, source }).and_then(|batch| {
                let table = self.tables.table.as_mut().ok_or(Broken::Incomplete)?;
                Ok(match batch {
                    Some(batch) => {
                        let name = |request| RequestName::of(request, &batch);
                        let names = if is_own { batch.requests.iter().map(name).collect() } else { Vec::new() };
                        Some((names, table.apply(index, batch)?))
                    }
                    None => {
                        table.advance(index, time)?;
                        None
                    }
                })
            });
            self.tables.applied(size);
            match applied {
                Ok(Some((names, outcomes))) => self.tell(names, outcomes),
                Ok(None) if self.log.opening() == Some(index) => self.tell_kept(),
                Ok(None) => {}
                Err(broken) => return self.break_off(broken),
            }
            self.log_does(LogNode::applied);
        }
        self.is_behind = false;
    }

    /// Tells what became of the requests of an entry that this leader has appended.
    pub(super) fn tell(&mut self, names: Vec<Option<RequestName>>, outcomes: Vec<Outcome>) {
        let Some(ballot) = self.log.leads() else { return };
        for (name, outcome) in names.into_iter().zip(outcomes) {
            let Some(name) = name else { continue };
            let answer = match outcome {
                Outcome::Done(reply) => Ok(reply),
                // Nobody waits for it.
                Outcome::Refused(Refusal::Acknowledged | Refusal::EarlierStart) => continue,
                Outcome::Refused(Refusal::Overtaken) => Err(Failure::Overtaken),
                Outcome::Refused(_) => Err(Failure::Busy),
            };
            self.tell_write(name, answer, ballot);
        }
    }

    /// Tells the answers that are kept, which somebody may wait for: those to requests that earlier leaders have appended.
    fn tell_kept(&mut self) {
        let (Some(ballot), Some(table)) = (self.log.leads(), &self.tables.table) else { return };
        let kept: Vec<_> =
            table.kept_answers().map(|(origin, number, reply)| (origin, number, reply.clone())).collect();
        for (origin, number, reply) in kept {
            self.tell_write(RequestName::new(&origin, number), Ok(reply), ballot);
        }
    }

    /// Answers the reads that may be, from all that is applied by now.
    pub(super) fn answer_reads(&mut self, now: Instant) {
        if self.is_behind {
            // They are answered when all is applied that was committed when they became certain.
            return;
        }
        for number in core::mem::take(&mut self.certain) {
            let reads = self.leading.as_mut().map(|leading| leading.answer(number)).unwrap_or_default();
            for (reader, query) in reads {
                self.answer_read(reader, query, now);
            }
        }
    }

    fn answer_read(&mut self, reader: RequestName, query: Query, now: Instant) {
        let (Some(leading), Some(table)) = (&mut self.leading, &self.tables.table) else { return };
        let (ballot, time) = (leading.ballot, leading.time(now));
        let found = match look(table, &query, time) {
            Err(_) if self.planted.is(Flaw::ExpiresByOwnClock) => Ok(Reply::Null),
            found => found,
        };
        match found {
            Ok(reply) => self.tell_read(reader, Ok(reply), ballot),
            Err(expired) => {
                // It is asked again behind the removal.
                leading.ask_again(reader, query);
                if leading.serves() && !self.removes() {
                    let mut builder = Builder::new(time, 0);
                    builder.push(None, Change::RemoveExpired(expired));
                    self.remove(builder);
                }
            }
        }
    }

    /// Lets the entries go that are in a snapshot on disk, unless a replica needs them that is not far behind.
    pub(super) fn compact(&mut self) {
        self.late.heard(&self.log, self.now, self.settings.lease);
        let Some((index, chunks)) = self.tables.to_compact() else { return };
        if self.late.waits(&self.log, index, self.snapshot_due(), self.bytes()) {
            return;
        }
        let _: Option<Snapshot> = self.log.compact(index, chunks);
        self.tables.compacted(self.log.replica().log());
    }
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
        Query::Keys(filter) => AnswerRoom::new().take(bulks(table.keys(filter))),
        Query::Count => Reply::count(table.len()),
        Query::Random(number) => Reply::maybe(table.random_key(*number)),
    })
}
