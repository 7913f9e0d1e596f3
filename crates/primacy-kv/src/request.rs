//! What a node asks a group for on behalf of its clients, and what it is told if there is no answer: between the clients' front and
//! the groups of one node, and from node to node. The bytes of all of it have a version, and hostile ones are refused.

use alloc::vec::Vec;

use crate::command::{Key, Operation, ScanFilter};
use crate::entry::{Change, operation};
use crate::resp::Reply;
use crate::wire::{Malformed, Reader, put_bytes, put_number};

/// The version of the format. A reader refuses others.
const VERSION: u8 = 1;

/// What one group is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientRequest {
    /// Has to be logged.
    Write(Change),
    /// Changes nothing.
    Read(Query),
}

impl ClientRequest {
    /// How many bytes it has, about.
    pub fn size(&self) -> usize {
        match self {
            Self::Write(change) => change.size(),
            Self::Read(query) => query.size(),
        }
    }
}

/// A question to one group. The answer is linearizable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// An operation that only reads. Its answer is the client's.
    Operation(Operation),
    /// The versions of keys, for `WATCH`, in their order: [`Reply::Array`] of [`Reply::Integer`]; 0 for a key that is not there.
    Versions(Vec<Key>),
    /// One step of a scan: [`Reply::Array`] of where to go on as [`Reply::Bulk`], and of keys.
    Scan {
        /// Where to go on.
        cursor: u64,
        /// How many keys to look at, about.
        count: usize,
        /// Which of them to return.
        filter: ScanFilter,
    },
    /// All keys that a filter lets pass: [`Reply::Array`] of [`Reply::Bulk`].
    Keys(ScanFilter),
    /// How many keys there are: [`Reply::Integer`].
    Count,
    /// Some key, chosen by a random number: [`Reply::Bulk`], or [`Reply::Null`] if there is none.
    Random(u64),
}

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nobody has led the group for as long as a request waits. Nothing was done.
    #[error("nobody leads the group")]
    NoLeader,
    /// It may have been done.
    #[error("it may have been done")]
    Unknown,
    /// The leader has used up the memory that it may use. Nothing was done.
    #[error("the leader's memory is used up")]
    OutOfMemory,
    /// The leader's disk has too little room left. Nothing was done.
    #[error("the leader's disk is full")]
    DiskFull,
    /// It does not fit into a log entry. Nothing was done.
    #[error("the request is too large for a log entry")]
    TooLarge,
    /// The node that was asked is ending. Nothing was done.
    #[error("the node is ending")]
    Stopped,
    /// Too many requests of the node are under way. Nothing was done.
    #[error("too many requests of the node are under way")]
    Busy,
    /// It was refused, and what its node had sent behind it was done before anybody heard of that. Nothing was done.
    #[error("it was refused, and later ones were done")]
    Overtaken,
}

/// What a group answers.
pub type Answered = Result<Reply, Failure>;

/// The first byte of a request, behind the version. A number once given is never given to another kind.
mod tag {
    pub(super) const WRITE: u8 = 0;
    pub(super) const OPERATION: u8 = 1;
    pub(super) const VERSIONS: u8 = 2;
    pub(super) const SCAN: u8 = 3;
    pub(super) const KEYS: u8 = 4;
    pub(super) const COUNT: u8 = 5;
    pub(super) const RANDOM: u8 = 6;
}

impl ClientRequest {
    /// Whether it has to be logged.
    pub const fn is_write(&self) -> bool {
        matches!(self, Self::Write(_))
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        self.put(out);
    }

    /// Reads them back.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        whole(bytes, Self::read)
    }

    /// Appends it to what has a version of its own.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Write(change) => {
                out.push(tag::WRITE);
                change.put(out);
            }
            Self::Read(query) => query.put(out),
        }
    }

    /// Reads back what [`ClientRequest::put`] wrote.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.byte()? {
            tag::WRITE => Self::Write(Change::read(reader)?),
            tag => Self::Read(Query::of_kind(tag, reader)?),
        })
    }
}

impl Query {
    /// How many bytes it has, about.
    pub fn size(&self) -> usize {
        const FRAME: usize = 16;
        match self {
            Self::Operation(operation) => operation.size(),
            Self::Versions(keys) => FRAME + keys.iter().map(|key| key.len() + FRAME).sum::<usize>(),
            Self::Scan { filter, .. } | Self::Keys(filter) => {
                2 * FRAME + filter.pattern.as_ref().map_or(0, |pattern| pattern.len())
            }
            Self::Count | Self::Random(_) => FRAME,
        }
    }

    /// Appends it to what has a version of its own.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Operation(operation) => {
                out.push(tag::OPERATION);
                operation::put(operation, out);
            }
            Self::Versions(keys) => {
                out.push(tag::VERSIONS);
                put_number(out, keys.len() as u64);
                keys.iter().for_each(|key| put_bytes(out, key));
            }
            Self::Scan { cursor, count, filter } => {
                out.push(tag::SCAN);
                put_number(out, *cursor);
                put_number(out, *count as u64);
                put_filter(out, filter);
            }
            Self::Keys(filter) => {
                out.push(tag::KEYS);
                put_filter(out, filter);
            }
            Self::Count => out.push(tag::COUNT),
            Self::Random(number) => {
                out.push(tag::RANDOM);
                put_number(out, *number);
            }
        }
    }

    /// Reads back what [`Query::put`] wrote.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::of_kind(reader.byte()?, reader)
    }

    fn of_kind(tag: u8, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match tag {
            tag::OPERATION => {
                let operation = operation::read(reader)?;
                if operation.is_write() {
                    return Err(Malformed("a question that changes keys"));
                }
                Self::Operation(operation)
            }
            tag::VERSIONS => Self::Versions(reader.list(|reader| reader.bytes(usize::MAX).map(Into::into))?),
            tag::SCAN => {
                let (cursor, count) = (reader.number()?, usize::try_from(reader.number()?));
                let count = count.map_err(|_| Malformed("a count is too large"))?;
                Self::Scan { cursor, count, filter: filter(reader)? }
            }
            tag::KEYS => Self::Keys(filter(reader)?),
            tag::COUNT => Self::Count,
            tag::RANDOM => Self::Random(reader.number()?),
            _ => return Err(Malformed("an unknown kind of request")),
        })
    }
}

fn put_filter(out: &mut Vec<u8>, filter: &ScanFilter) {
    let ScanFilter { pattern, is_other_type } = filter;
    out.push(u8::from(pattern.is_some()));
    if let Some(pattern) = pattern {
        put_bytes(out, pattern);
    }
    out.push(u8::from(*is_other_type));
}

fn filter(reader: &mut Reader<'_>) -> Result<ScanFilter, Malformed> {
    let pattern = if reader.flag()? { Some(reader.bytes(usize::MAX)?.into()) } else { None };
    Ok(ScanFilter { pattern, is_other_type: reader.flag()? })
}

impl Failure {
    /// Whether nothing was done, for certain.
    pub const fn is_certain(self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// Its number in the format. A number once given is never given to another one, and 0 is none.
    const fn number(self) -> u8 {
        match self {
            Self::NoLeader => 1,
            Self::Unknown => 2,
            Self::OutOfMemory => 3,
            Self::DiskFull => 4,
            Self::TooLarge => 5,
            Self::Stopped => 6,
            Self::Busy => 7,
            Self::Overtaken => 8,
        }
    }
}

/// Appends the bytes of an answer.
pub fn encode_answer(answer: &Answered, out: &mut Vec<u8>) {
    out.push(VERSION);
    put_answer(answer, out);
}

/// Reads them back.
pub fn decode_answer(bytes: &[u8]) -> Result<Answered, Malformed> {
    whole(bytes, read_answer)
}

/// Appends an answer to what has a version of its own.
pub(crate) fn put_answer(answer: &Answered, out: &mut Vec<u8>) {
    match answer {
        Ok(reply) => {
            out.push(0);
            reply.put(out);
        }
        Err(failure) => out.push(failure.number()),
    }
}

/// Reads back what [`put_answer`] wrote.
pub(crate) fn read_answer(reader: &mut Reader<'_>) -> Result<Answered, Malformed> {
    Ok(match reader.byte()? {
        0 => Ok(Reply::read(reader)?),
        1 => Err(Failure::NoLeader),
        2 => Err(Failure::Unknown),
        3 => Err(Failure::OutOfMemory),
        4 => Err(Failure::DiskFull),
        5 => Err(Failure::TooLarge),
        6 => Err(Failure::Stopped),
        7 => Err(Failure::Busy),
        8 => Err(Failure::Overtaken),
        _ => return Err(Malformed("an unknown kind of failure")),
    })
}

fn whole<T>(bytes: &[u8], read: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>) -> Result<T, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.byte()? != VERSION {
        return Err(Malformed("a request or an answer of another version"));
    }
    let read = read(&mut reader)?;
    reader.end()?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec as many;
    use proptest::prelude::*;

    use super::*;
    use crate::testing;

    fn filters() -> impl Strategy<Value = ScanFilter> {
        let pattern = prop::option::of(many(any::<u8>(), 0..9).prop_map(Vec::into_boxed_slice));
        (pattern, any::<bool>()).prop_map(|(pattern, is_other_type)| ScanFilter { pattern, is_other_type })
    }

    fn requests() -> impl Strategy<Value = ClientRequest> {
        let reads = testing::operation().prop_filter("it only reads", |operation| !operation.is_write());
        let scan = (any::<u64>(), 0..1_usize << 40, filters());
        let scan = scan.prop_map(|(cursor, count, filter)| Query::Scan { cursor, count, filter });
        let queries = prop_oneof![
            reads.prop_map(Query::Operation),
            many(testing::key(), 0..4).prop_map(Query::Versions),
            scan,
            filters().prop_map(Query::Keys),
            Just(Query::Count),
            any::<u64>().prop_map(Query::Random),
        ];
        prop_oneof![testing::change().prop_map(ClientRequest::Write), queries.prop_map(ClientRequest::Read)]
    }

    fn encoded(request: &ClientRequest) -> Vec<u8> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        bytes
    }

    #[test]
    fn a_question_changes_nothing() {
        let mut bytes = alloc::vec![VERSION, tag::OPERATION];
        operation::put(&Operation::FlushAll, &mut bytes);
        assert_eq!(ClientRequest::decode(&bytes), Err(Malformed("a question that changes keys")));
    }

    #[test]
    fn another_version_is_refused() {
        assert_eq!(ClientRequest::decode(&[VERSION, tag::COUNT]), Ok(ClientRequest::Read(Query::Count)));
        assert!(ClientRequest::decode(&[VERSION + 1, tag::COUNT]).is_err());
        assert!(decode_answer(&[VERSION + 1, 2]).is_err());
        assert!(ClientRequest::decode(&[VERSION, tag::COUNT, 0]).is_err(), "bytes are left over");
    }

    proptest! {
        #[test]
        fn a_request_is_read_back(request in requests()) {
            prop_assert_eq!(ClientRequest::decode(&encoded(&request)), Ok(request));
        }

        #[test]
        fn a_request_has_one_form(request in requests(), at: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = encoded(&request);
            *at.get_mut(&mut bytes) ^= 1 << bit;
            if let Ok(read) = ClientRequest::decode(&bytes) {
                prop_assert_eq!(encoded(&read), bytes);
            }
        }

        #[test]
        fn a_part_of_a_request_is_refused(request in requests(), at: prop::sample::Index) {
            let bytes = encoded(&request);
            prop_assert!(ClientRequest::decode(&bytes[..at.index(bytes.len())]).is_err());
        }

        #[test]
        fn an_answer_is_read_back(answer in testing::answer()) {
            let mut bytes = Vec::new();
            encode_answer(&answer, &mut bytes);
            prop_assert_eq!(decode_answer(&bytes), Ok(answer));
            prop_assert!(decode_answer(&bytes[..bytes.len() - 1]).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut bytes: Vec<u8>) {
            bytes.insert(0, VERSION);
            let _ = ClientRequest::decode(&bytes);
            let _ = decode_answer(&bytes);
        }
    }
}
