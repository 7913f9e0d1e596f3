//! What the nodes that keep a group tell each other, and the bytes of it. Hostile bytes are refused.

use alloc::vec::Vec;

use primacy_core::log::{self, Answer, Ballot, Entry, GroupTime, Request, Standing, Verdict};

use crate::entry::Change;
use crate::log_codec::{
    Bytes, put_ballot, put_config, put_entry, put_option, put_position, put_snapshot, put_u32, put_u64,
};
use crate::payload::LogBytes;
use crate::request::{Answered, Query, put_answer, read_answer};
use crate::resp::Reply;
use crate::wire::{Malformed, Reader, put_number};

/// The version of the format. A reader refuses others.
const VERSION: u8 = 1;

/// How many bytes of requests or answers a message has, or one.
pub(super) const MESSAGE_BYTES: usize = 1 << 20;

/// What one node tells another about a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Between a leader of the log and its replicas.
    Log(log::Message<LogBytes>),
    /// Requests of clients, for the leader to carry out.
    Forward(Forward),
    /// What became of them.
    Answers(Answers),
}

/// Requests that a node sends to the leader, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The leader that is meant. Another one, and one that serves no more, does none of it.
    pub ballot: Ballot,
    /// How often the node has been started.
    pub starts: u64,
    /// All writes up to this number are answered and will not be repeated.
    pub acknowledged: u64,
    /// Writes up to this number may have been sent to a leader before, and so may be done: this one must not refuse them.
    pub sent_before: u64,
    /// By their numbers.
    pub writes: Vec<(u64, Change)>,
    /// By numbers of their own.
    pub reads: Vec<(u64, Query)>,
}

/// What became of forwarded requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Who was asked.
    pub ballot: Ballot,
    /// The start of the node that has asked.
    pub starts: u64,
    /// The leader serves no more: what it was sent and is not answered goes to the next one.
    pub is_over: bool,
    /// The node keeps no replica as far as the leader knows, and what it sent was left out: it sends that again a while later.
    pub is_left_out: bool,
    /// Of writes, by their numbers.
    pub writes: Vec<(u64, Answered)>,
    /// Of reads.
    pub reads: Vec<(u64, Answered)>,
}

mod tag {
    pub(super) const REQUEST: u8 = 0;
    pub(super) const ANSWER: u8 = 1;
    pub(super) const FORWARD: u8 = 2;
    pub(super) const ANSWERS: u8 = 3;
}

impl Message {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        match self {
            Self::Log(log::Message::Request(request)) => {
                out.push(tag::REQUEST);
                put_request(out, request);
            }
            Self::Log(log::Message::Answer(answer)) => {
                out.push(tag::ANSWER);
                put_ballot(out, answer.ballot);
                put_verdict(out, &answer.verdict);
            }
            Self::Forward(forward) => {
                out.push(tag::FORWARD);
                forward.put(out);
            }
            Self::Answers(answers) => {
                out.push(tag::ANSWERS);
                answers.put(out);
            }
        }
    }

    /// Reads them back.
    ///
    /// # Errors
    /// If they are no message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let [VERSION, tag, rest @ ..] = bytes else { return Err(Malformed("a message of another version")) };
        Ok(match *tag {
            tag::REQUEST => Self::Log(log::Message::Request(whole(rest, request)?)),
            tag::ANSWER => Self::Log(log::Message::Answer(whole(rest, |from| {
                Some(Answer { ballot: from.ballot()?, verdict: verdict(from)? })
            })?)),
            tag::FORWARD => Self::Forward(Forward::read(rest)?),
            tag::ANSWERS => Self::Answers(Answers::read(rest)?),
            _ => return Err(Malformed("an unknown kind of message")),
        })
    }

    /// Whether it is large and may wait: a chunk of a snapshot.
    pub const fn is_bulk(&self) -> bool {
        matches!(
            self,
            Self::Log(
                log::Message::Request(Request::Install { .. })
                    | log::Message::Answer(Answer { verdict: Verdict::FetchedChunk { .. }, .. })
            )
        )
    }
}

fn whole<T>(bytes: &[u8], read: impl FnOnce(&mut Bytes<'_>) -> Option<T>) -> Result<T, Malformed> {
    let mut from = Bytes::new(bytes);
    let read = read(&mut from).ok_or(Malformed("a message of the log"))?;
    if from.is_empty() { Ok(read) } else { Err(Malformed("bytes are left over")) }
}

impl Forward {
    fn put(&self, out: &mut Vec<u8>) {
        put_ballot(out, self.ballot);
        put_number(out, self.starts);
        put_number(out, self.acknowledged);
        put_number(out, self.sent_before);
        put_list(out, &self.writes, |out, (number, change)| {
            put_number(out, *number);
            change.put(out);
        });
        put_list(out, &self.reads, |out, (number, query)| {
            put_number(out, *number);
            query.put(out);
        });
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (ballot, mut reader) = ballot(bytes)?;
        let forward = Self {
            ballot,
            starts: reader.number()?,
            acknowledged: reader.number()?,
            sent_before: reader.number()?,
            writes: reader.list(|reader| Ok((reader.number()?, of_client(Change::read(reader)?)?)))?,
            reads: reader.list(|reader| Ok((reader.number()?, Query::read(reader)?)))?,
        };
        reader.end()?;
        Ok(forward)
    }
}

impl Answers {
    /// Nothing yet.
    pub(super) const fn none(ballot: Ballot, starts: u64) -> Self {
        Self { ballot, starts, is_over: false, is_left_out: false, writes: Vec::new(), reads: Vec::new() }
    }

    /// How many bytes it has, about.
    #[cfg(feature = "server")]
    pub(crate) fn size(&self) -> usize {
        self.writes.iter().chain(&self.reads).map(Self::size_of).sum()
    }

    fn size_of((_, answer): &(u64, Answered)) -> usize {
        16 + answer.as_ref().map_or(0, Reply::size)
    }

    /// The same in several messages of about this many bytes each. The end is told in the last one.
    pub(super) fn split(self, bytes: usize) -> Vec<Self> {
        let Self { ballot, starts, is_over, is_left_out, writes, reads } = self;
        let (mut messages, mut size) = (alloc::vec![Self::none(ballot, starts)], 0);
        let kinds =
            writes.into_iter().map(|answer| (true, answer)).chain(reads.into_iter().map(|answer| (false, answer)));
        for (is_write, answer) in kinds {
            if size >= bytes {
                messages.push(Self::none(ballot, starts));
                size = 0;
            }
            size += Self::size_of(&answer);
            if let Some(last) = messages.last_mut() {
                (if is_write { &mut last.writes } else { &mut last.reads }).push(answer);
            }
        }
        if let Some(last) = messages.last_mut() {
            (last.is_over, last.is_left_out) = (is_over, is_left_out);
        }
        messages
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_ballot(out, self.ballot);
        put_number(out, self.starts);
        out.push(u8::from(self.is_over));
        out.push(u8::from(self.is_left_out));
        put_list(out, &self.writes, put_numbered);
        put_list(out, &self.reads, put_numbered);
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (ballot, mut reader) = ballot(bytes)?;
        let answers = Self {
            ballot,
            starts: reader.number()?,
            is_over: reader.flag()?,
            is_left_out: reader.flag()?,
            writes: reader.list(numbered)?,
            reads: reader.list(numbered)?,
        };
        reader.end()?;
        Ok(answers)
    }
}

/// A leader alone says the others.
fn of_client(change: Change) -> Result<Change, Malformed> {
    match change {
        Change::Operation(_) | Change::Transaction { .. } => Ok(change),
        Change::RemoveExpired(_) | Change::ForgetNode(_) => Err(Malformed("a change that no client asks for")),
    }
}

fn ballot(bytes: &[u8]) -> Result<(Ballot, Reader<'_>), Malformed> {
    let mut from = Bytes::new(bytes);
    let ballot = from.ballot().ok_or(Malformed("a ballot"))?;
    Ok((ballot, Reader::new(from.rest())))
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_number(out, list.len() as u64);
    list.iter().for_each(|element| put(out, element));
}

fn put_numbered(out: &mut Vec<u8>, (number, answer): &(u64, Answered)) {
    put_number(out, *number);
    put_answer(answer, out);
}

fn numbered(reader: &mut Reader<'_>) -> Result<(u64, Answered), Malformed> {
    Ok((reader.number()?, read_answer(reader)?))
}

fn put_entries(out: &mut Vec<u8>, entries: &[Entry<LogBytes>]) {
    put_u32(out, entries.len() as u32);
    entries.iter().for_each(|entry| put_entry(out, entry));
}

fn entries(from: &mut Bytes<'_>) -> Option<Vec<Entry<LogBytes>>> {
    let count = from.u32()?;
    (0..count).map(|_| from.entry()).collect()
}

fn put_data(out: &mut Vec<u8>, data: &LogBytes) {
    put_u32(out, data.as_ref().len() as u32);
    out.extend_from_slice(data.as_ref());
}

fn data(from: &mut Bytes<'_>) -> Option<LogBytes> {
    let length = from.u32()? as usize;
    Some(from.take(length)?.to_vec().into())
}

fn put_request(out: &mut Vec<u8>, request: &Request<LogBytes>) {
    let kind = match request {
        Request::Open { .. } => 0,
        Request::Append { .. } => 1,
        Request::Install { .. } => 2,
        Request::Beat { .. } => 3,
        Request::Fetch { .. } => 4,
    };
    out.push(kind);
    put_ballot(out, request.ballot());
    match request {
        Request::Open { .. } => {}
        Request::Append { prev, entries, commit, time, .. } => {
            put_position(out, *prev);
            put_u64(out, *commit);
            put_u64(out, time.millis());
            put_entries(out, entries);
        }
        Request::Install { snapshot, chunk, data, .. } => {
            put_snapshot(out, snapshot);
            put_u32(out, *chunk);
            put_data(out, data);
        }
        Request::Beat { round, commit, time, .. } => {
            put_u64(out, *round);
            put_u64(out, *commit);
            put_u64(out, time.millis());
        }
        Request::Fetch { prev, end, chunk, .. } => {
            put_position(out, *prev);
            put_position(out, *end);
            put_u32(out, *chunk);
        }
    }
}

fn request(from: &mut Bytes<'_>) -> Option<Request<LogBytes>> {
    let (kind, ballot) = (from.u8()?, from.ballot()?);
    let time = |from: &mut Bytes<'_>| from.u64().map(GroupTime::from_millis);
    Some(match kind {
        0 => Request::Open { ballot },
        1 => {
            let (prev, commit, time) = (from.position()?, from.u64()?, time(from)?);
            Request::Append { ballot, prev, entries: entries(from)?, commit, time }
        }
        2 => Request::Install { ballot, snapshot: from.snapshot()?, chunk: from.u32()?, data: data(from)? },
        3 => Request::Beat { ballot, round: from.u64()?, commit: from.u64()?, time: time(from)? },
        4 => Request::Fetch { ballot, prev: from.position()?, end: from.position()?, chunk: from.u32()? },
        _ => return None,
    })
}

fn put_verdict(out: &mut Vec<u8>, verdict: &Verdict<LogBytes>) {
    match verdict {
        Verdict::Outbid(ballot) => {
            out.push(0);
            put_ballot(out, *ballot);
        }
        Verdict::Leap => out.push(1),
        Verdict::Opened(Standing { last, commit, config }) => {
            out.push(2);
            put_position(out, *last);
            put_u64(out, *commit);
            put_option(out, config.as_ref(), put_config);
        }
        Verdict::Matched(matched) => {
            out.push(3);
            put_u64(out, *matched);
        }
        Verdict::Behind { commit, last } => {
            out.push(4);
            put_u64(out, *commit);
            put_position(out, *last);
        }
        Verdict::Blank => out.push(5),
        Verdict::Wants { position, chunk } => {
            out.push(6);
            put_position(out, *position);
            put_u32(out, *chunk);
        }
        Verdict::Beaten { round, matched } => {
            out.push(7);
            put_u64(out, *round);
            put_u64(out, *matched);
        }
        Verdict::Fetched { prev, entries } => {
            out.push(8);
            put_position(out, *prev);
            put_entries(out, entries);
        }
        Verdict::FetchedChunk { snapshot, chunk, data } => {
            out.push(9);
            put_snapshot(out, snapshot);
            put_u32(out, *chunk);
            put_data(out, data);
        }
    }
}

fn verdict(from: &mut Bytes<'_>) -> Option<Verdict<LogBytes>> {
    Some(match from.u8()? {
        0 => Verdict::Outbid(from.ballot()?),
        1 => Verdict::Leap,
        2 => Verdict::Opened(Standing {
            last: from.position()?,
            commit: from.u64()?,
            config: from.option(Bytes::config)?,
        }),
        3 => Verdict::Matched(from.u64()?),
        4 => Verdict::Behind { commit: from.u64()?, last: from.position()? },
        5 => Verdict::Blank,
        6 => Verdict::Wants { position: from.position()?, chunk: from.u32()? },
        7 => Verdict::Beaten { round: from.u64()?, matched: from.u64()? },
        8 => Verdict::Fetched { prev: from.position()?, entries: entries(from)? },
        9 => Verdict::FetchedChunk { snapshot: from.snapshot()?, chunk: from.u32()?, data: data(from)? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
