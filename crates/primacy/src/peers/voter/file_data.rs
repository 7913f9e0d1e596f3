//! What a voter's file holds, and how that is written as bytes that cannot be mistaken for others.

use std::collections::BTreeMap;

use crc::{CRC_32_ISCSI, Crc};
use primacy_core::ElectionName;
use primacy_core::quorum::{Ballot, Durable, DurableState, VoterId};
use prost::Message as _;

use crate::peers::config::Cluster;
use crate::peers::wire::entry::{ElectionEntry, bits};
use crate::peers::wire::{self, MalformedFrame, NextConfigEntry};

/// The first bytes of every voter's file, of whatever format.
const MAGIC: &[u8] = b"primacy voter\n";
/// The format that is written here. A program refuses later ones: it would lose what it does not know.
pub(super) const FORMAT: u32 = 3;
/// CRC-32C: finds every error in up to 32 neighbouring bits.
const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The content of a voter's file: what it keeps on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VoterFileData {
    voter: VoterId,
    /// Who votes, as its own module encodes it. Absent until the voter has joined others.
    pub(crate) cluster: Option<Vec<u8>>,
    /// What it has promised about the next voters, encoded likewise. Absent until anybody has begun to exchange them.
    pub(crate) next: Option<Vec<u8>>,
    /// Who voted before, the latest last, encoded likewise: for voters that were away meanwhile.
    pub(crate) past: Vec<Vec<u8>>,
    /// Its promise in each election that it has ever heard of.
    pub(crate) elections: BTreeMap<ElectionName, Durable>,
    /// How often it was written, so that a file that went back is noticed. Files of before this was counted have 0.
    pub(crate) generation: u64,
}

impl VoterFileData {
    /// That of a new voter, whose identity is drawn here.
    pub(super) fn drawn() -> Self {
        Self::of(VoterId::from_bits(rand::random()))
    }

    /// That of a voter that knows of nothing.
    pub(super) const fn of(voter: VoterId) -> Self {
        Self { voter, cluster: None, next: None, past: Vec::new(), elections: BTreeMap::new(), generation: 0 }
    }

    /// What a voter keeps of this many writes.
    pub(super) fn with(voter: VoterId, generation: u64, state: DurableState<Cluster>) -> Self {
        let encoded = |cluster: &Cluster| wire::Cluster::from(cluster).encode_to_vec();
        let DurableState { configuration, promised, taken, past, elections } = state;
        let has_next = taken.is_some() || promised != Ballot::default();
        Self {
            voter,
            cluster: configuration.as_ref().map(encoded),
            next: has_next.then(|| NextConfigEntry::of((promised, taken.as_ref())).encode_to_vec()),
            past: past.iter().map(encoded).collect(),
            elections,
            generation,
        }
    }

    /// What it keeps of who votes, decoded, and its promises. Voters of the past that cannot be read are left out: nothing rests
    /// on them.
    ///
    /// # Errors
    /// If the present or the next voters cannot be read.
    pub(super) fn into_state(self) -> Result<DurableState<Cluster>, MalformedFrame> {
        let decoded = |_| MalformedFrame("what a voter has kept of the voters");
        let configuration = self.cluster.as_deref().map(wire::Cluster::decode).transpose().map_err(decoded)?;
        let next = self.next.as_deref().map(NextConfigEntry::decode).transpose().map_err(decoded)?;
        let (promised, taken) = next.map(NextConfigEntry::checked).transpose()?.unwrap_or_default();
        let past = self.past.iter().filter_map(|past| wire::Cluster::decode(&**past).ok()?.try_into().ok());
        Ok(DurableState {
            configuration: configuration.map(Cluster::try_from).transpose()?,
            promised,
            taken,
            past: past.collect(),
            elections: self.elections,
        })
    }

    /// Who it is. It never changes: a voter without its file is another voter.
    pub(crate) const fn voter(&self) -> VoterId {
        self.voter
    }

    /// The content of the file: the magic bytes, the format, the length of the body, the checksum of all but itself, the body.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let elections = self.elections.iter().map(|(name, durable)| ElectionEntry::of(name, durable)).collect();
        let voter = self.voter.to_bits().to_be_bytes().to_vec();
        let (cluster, next, past) = (self.cluster.clone(), self.next.clone(), self.past.clone());
        let generation = self.generation;
        sealed(FORMAT, &FileBody { voter, cluster, elections, next, past, generation }.encode_to_vec())
    }

    /// Reads it back.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, FileFormatError> {
        let body = FileBody::decode(opened(bytes)?).map_err(|error| damage(&error))?;
        let mut elections = BTreeMap::new();
        for entry in body.elections {
            let (name, durable) = entry.checked().map_err(FileFormatError::Damaged)?;
            if elections.insert(name, durable).is_some() {
                return Err(damage("it names an election twice"));
            }
        }
        let voter = VoterId::from_bits(bits(&body.voter).map_err(FileFormatError::Damaged)?);
        let FileBody { cluster, next, past, generation, .. } = body;
        Ok(Self { voter, cluster, next, past, elections, generation })
    }
}

/// Why these bytes are not the content of a voter's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileFormatError {
    /// They are something else.
    Foreign,
    /// They were, but have been changed or cut off since.
    Damaged(String),
    /// A later program has written them, in this format.
    Newer(u32),
}

fn damage(why: &(impl ToString + ?Sized)) -> FileFormatError {
    FileFormatError::Damaged(why.to_string())
}

fn sealed(format: u32, body: &[u8]) -> Vec<u8> {
    let format = format.to_be_bytes();
    let length = u64::try_from(body.len()).unwrap_or(u64::MAX).to_be_bytes();
    [MAGIC, &format, &length, &checksum(format, length, body), body].concat()
}

/// The body of these bytes, proven to be as it was written. All formats are sealed in the same way, so that a damaged one is
/// never taken for a newer one.
fn opened(bytes: &[u8]) -> Result<&[u8], FileFormatError> {
    let cut = || damage("it is cut off");
    let rest = match bytes.strip_prefix(MAGIC) {
        Some(rest) => rest,
        None if MAGIC.starts_with(bytes) => return Err(cut()),
        None => return Err(FileFormatError::Foreign),
    };
    let (format, rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let (sum, body) = rest.split_first_chunk().ok_or_else(cut)?;
    if u64::try_from(body.len()).is_ok_and(|bytes| bytes < u64::from_be_bytes(*length)) {
        return Err(cut());
    }
    if checksum(*format, *length, body) != *sum {
        return Err(damage("its checksum is wrong"));
    }
    match u32::from_be_bytes(*format) {
        0 => Err(damage("there is no format 0")),
        // The first knew nothing of exchanges, the second nothing of voters that come back to an earlier term.
        1..=FORMAT => Ok(body),
        newer => Err(FileFormatError::Newer(newer)),
    }
}

fn checksum(format: [u8; 4], length: [u8; 8], body: &[u8]) -> [u8; 4] {
    let mut digest = CHECKSUM.digest();
    [MAGIC, &format, &length, body].iter().for_each(|part| digest.update(part));
    digest.finalize().to_be_bytes()
}

/// What follows the checksum in the file.
#[derive(Clone, PartialEq, prost::Message)]
struct FileBody {
    #[prost(bytes = "vec", tag = "1")]
    voter: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "2")]
    cluster: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "3")]
    elections: Vec<ElectionEntry>,
    #[prost(bytes = "vec", optional, tag = "4")]
    next: Option<Vec<u8>>,
    #[prost(uint64, tag = "30")]
    generation: u64,
    /// A program that does not know it leaves it out, which costs nothing but the proofs that others could have had of it.
    #[prost(bytes = "vec", repeated, tag = "20")]
    past: Vec<Vec<u8>>,
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use primacy_core::lease::{HandoverRequest, Holder};
    use primacy_core::quorum::{OrderRegister, Orders};
    use primacy_core::{CandidateId, Label, Token};
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;
    use crate::peers::wire::entry::{HandoverEntry, HolderEntry};

    /// Some content, drawn by this seed: every field takes its extremes at times.
    pub(crate) fn file_data(seed: u64) -> VoterFileData {
        let random = &mut StdRng::seed_from_u64(seed);
        let voter = VoterId::from_bits(random.random());
        let mut some =
            || random.random::<bool>().then(|| (0..random.random_range(0..40)).map(|_| random.random()).collect());
        let (cluster, next) = (some(), some());
        let past = vec![seed.to_le_bytes().to_vec(); usize::try_from(seed % 3).expect("few")];
        let elections = (0..random.random_range(0..6))
            .map(|_| (ElectionName::new(word(random, 1)).expect("a valid name"), durable(random)));
        VoterFileData { voter, cluster, next, past, elections: elections.collect(), generation: seed }
    }

    fn durable(random: &mut StdRng) -> Durable {
        let holder = random.random::<bool>().then(|| Holder {
            id: CandidateId::from_bits(random.random()),
            label: Label::new(word(random, 1)).expect("a valid label"),
            data: word(random, 0),
        });
        let handover = match random.random_range(0..3) {
            0 => None,
            1 => Some(HandoverRequest::NewElection),
            _ => Some(HandoverRequest::Successor(Label::new(word(random, 1)).expect("a valid label"))),
        };
        let term = Token::new(number(random) >> 1).expect("it fits");
        Durable {
            highest: if random.random() { term } else { Token::MAX },
            term,
            holder,
            seen: number(random),
            lease: Duration::new(number(random), random.random_range(0..1_000_000_000)),
            orders: Orders {
                handover: OrderRegister { count: number(random), value: handover, until: Token::new(number(random)) },
                paused: OrderRegister::new(number(random), random.random()),
            },
            completed_order: number(random),
            released: random.random::<bool>().then(|| number(random)),
            floor: Token::new(number(random) >> 1).expect("it fits"),
        }
    }

    fn number(random: &mut StdRng) -> u64 {
        match random.random_range(0..4) {
            0 => 0,
            1 => u64::MAX,
            _ => random.random::<u64>() >> random.random_range(0..64),
        }
    }

    fn word(random: &mut StdRng, least: usize) -> String {
        const LETTERS: [char; 5] = ['a', 'Z', ' ', 'é', '\u{202e}'];
        (0..random.random_range(least..40)).map(|_| LETTERS[random.random_range(0..LETTERS.len())]).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        for seed in 0..500 {
            let data = file_data(seed);
            assert_eq!(VoterFileData::from_bytes(&data.to_bytes()), Ok(data), "seed {seed}");
        }
    }

    #[test]
    fn any_other_byte_and_any_other_length_is_refused() {
        let good = file_data(5).to_bytes();
        assert!(good.len() > 300, "all parts are in it");
        for place in 0..good.len() {
            for flip in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                let mut bad = good.clone();
                bad[place] ^= flip;
                assert!(VoterFileData::from_bytes(&bad).is_err(), "byte {place} flipped by {flip}");
            }
            let refused = VoterFileData::from_bytes(&good[..place]);
            assert_eq!(refused, Err(damage("it is cut off")), "cut off at {place}");
        }
        let longer = [good, vec![0]].concat();
        assert!(matches!(VoterFileData::from_bytes(&longer), Err(FileFormatError::Damaged(_))));
    }

    #[test]
    fn another_file_and_a_newer_format_are_told_from_damage() {
        assert_eq!(VoterFileData::from_bytes(b"SQLite format 3\0"), Err(FileFormatError::Foreign));
        assert_eq!(
            VoterFileData::from_bytes(&sealed(FORMAT + 1, b"whatever")),
            Err(FileFormatError::Newer(FORMAT + 1))
        );
        assert!(matches!(VoterFileData::from_bytes(&sealed(0, b"")), Err(FileFormatError::Damaged(_))));
        let body = FileBody { voter: vec![7; 16], ..FileBody::default() }.encode_to_vec();
        assert!(
            VoterFileData::from_bytes(&sealed(1, &body)).is_ok(),
            "files from before voters could be exchanged are read"
        );
    }

    #[test]
    fn content_that_no_voter_keeps_is_damage_though_its_checksum_is_right() {
        let holder = HolderEntry { id: vec![7; 16], label: "web-1".into(), data: String::new() };
        let entry = ElectionEntry { name: "jobs".into(), holder: Some(holder.clone()), ..ElectionEntry::default() };
        let read = |voter: usize, elections: Vec<ElectionEntry>| {
            let body = FileBody { voter: vec![1; voter], elections, ..FileBody::default() };
            VoterFileData::from_bytes(&sealed(FORMAT, &body.encode_to_vec()))
        };
        assert!(read(16, vec![entry.clone()]).is_ok(), "the example is right");
        let bad = [
            ElectionEntry { name: "a\nb".into(), ..entry.clone() },
            ElectionEntry { term: u64::MAX, ..entry.clone() },
            ElectionEntry { lease_nanos: 1_000_000_000, ..entry.clone() },
            ElectionEntry { handover: Some(HandoverEntry::Successor(String::new())), ..entry.clone() },
            ElectionEntry { holder: Some(HolderEntry { id: vec![7; 15], ..holder.clone() }), ..entry.clone() },
            ElectionEntry { holder: Some(HolderEntry { label: "x".repeat(129), ..holder }), ..entry.clone() },
        ];
        for entry in bad {
            let refused = read(16, vec![entry.clone()]);
            assert!(matches!(refused, Err(FileFormatError::Damaged(_))), "{entry:?}: {refused:?}");
        }
        assert!(matches!(read(15, vec![]), Err(FileFormatError::Damaged(_))), "an identity that is too short");
        assert!(matches!(read(16, vec![entry.clone(), entry]), Err(FileFormatError::Damaged(_))), "an election twice");
        let garbage = VoterFileData::from_bytes(&sealed(FORMAT, &[0xff; 9]));
        assert!(matches!(garbage, Err(FileFormatError::Damaged(_))), "{garbage:?}");
    }
}
