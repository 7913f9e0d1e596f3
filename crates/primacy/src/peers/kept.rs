//! What a voter's file holds, and how that is written as bytes that cannot be mistaken for others.

use std::collections::BTreeMap;
use std::time::Duration;

use crc::{CRC_32_ISCSI, Crc};
use primacy_core::lease::{Holder, Wish};
use primacy_core::quorum::{Ballot, Durable, DurableState, Ordered, Orders, VoterId};
use primacy_core::{CandidateId, ElectionName, Label, Token};
use prost::Message as _;

use super::cluster::Cluster;
use super::wire::{self, Malformed, NextKept};

/// The first bytes of every voter's file, of whatever format.
const MAGIC: &[u8] = b"primacy voter\n";
/// The format that is written here. A program refuses later ones: it would lose what it does not know.
pub(super) const FORMAT: u32 = 2;
/// CRC-32C: finds every error in up to 32 neighbouring bits.
const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// What a voter keeps on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    voter: VoterId,
    /// Who votes, as its own module encodes it. Absent until the voter has joined others.
    pub cluster: Option<Vec<u8>>,
    /// What it has promised about the next voters, encoded likewise. Absent until anybody has begun to exchange them.
    pub next: Option<Vec<u8>>,
    /// Who voted before, the latest last, encoded likewise: for voters that were away meanwhile.
    pub past: Vec<Vec<u8>>,
    /// Its promise in each election that it has ever heard of.
    pub elections: BTreeMap<ElectionName, Durable>,
    /// How often it was written, so that a file that went back is noticed. Files of before this was counted have 0.
    pub generation: u64,
}

impl Kept {
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
            next: has_next.then(|| NextKept::of((promised, taken.as_ref())).encode_to_vec()),
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
    pub(super) fn into_state(self) -> Result<DurableState<Cluster>, Malformed> {
        let decoded = |_| Malformed("what a voter has kept of the voters");
        let configuration = self.cluster.as_deref().map(wire::Cluster::decode).transpose().map_err(decoded)?;
        let next = self.next.as_deref().map(NextKept::decode).transpose().map_err(decoded)?;
        let (promised, taken) = next.map(NextKept::checked).transpose()?.unwrap_or_default();
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
    pub const fn voter(&self) -> VoterId {
        self.voter
    }

    /// The content of the file: the magic bytes, the format, the length of the body, the checksum of all but itself, the body.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let elections = self.elections.iter().map(|(name, durable)| ElectionEntry::of(name, durable)).collect();
        let voter = self.voter.to_bits().to_be_bytes().to_vec();
        let (cluster, next, past) = (self.cluster.clone(), self.next.clone(), self.past.clone());
        let generation = self.generation;
        sealed(FORMAT, &Body { voter, cluster, elections, next, past, generation }.encode_to_vec())
    }

    /// Reads it back.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Unfit> {
        let body = Body::decode(opened(bytes)?).map_err(|error| damage(&error))?;
        let mut elections = BTreeMap::new();
        for entry in body.elections {
            let (name, durable) = entry.checked()?;
            if elections.insert(name, durable).is_some() {
                return Err(damage("it names an election twice"));
            }
        }
        let voter = VoterId::from_bits(bits(&body.voter)?);
        let Body { cluster, next, past, generation, .. } = body;
        Ok(Self { voter, cluster, next, past, elections, generation })
    }
}

/// Why these bytes are not what a voter has kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// They are something else.
    Foreign,
    /// They were, but have been changed or cut off since.
    Damaged(String),
    /// A later program has written them, in this format.
    Newer(u32),
}

fn damage(why: &(impl ToString + ?Sized)) -> Unfit {
    Unfit::Damaged(why.to_string())
}

fn sealed(format: u32, body: &[u8]) -> Vec<u8> {
    let format = format.to_be_bytes();
    let length = u64::try_from(body.len()).unwrap_or(u64::MAX).to_be_bytes();
    [MAGIC, &format, &length, &checksum(format, length, body), body].concat()
}

/// The body of these bytes, proven to be as it was written. All formats are sealed in the same way, so that a damaged one is
/// never taken for a newer one.
fn opened(bytes: &[u8]) -> Result<&[u8], Unfit> {
    let cut = || damage("it is cut off");
    let rest = match bytes.strip_prefix(MAGIC) {
        Some(rest) => rest,
        None if MAGIC.starts_with(bytes) => return Err(cut()),
        None => return Err(Unfit::Foreign),
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
        // The first knew nothing of exchanges.
        1..=FORMAT => Ok(body),
        newer => Err(Unfit::Newer(newer)),
    }
}

fn checksum(format: [u8; 4], length: [u8; 8], body: &[u8]) -> [u8; 4] {
    let mut digest = CHECKSUM.digest();
    [MAGIC, &format, &length, body].iter().for_each(|part| digest.update(part));
    digest.finalize().to_be_bytes()
}

fn bits(bytes: &[u8]) -> Result<u128, Unfit> {
    bytes.try_into().map(u128::from_be_bytes).map_err(|_| damage("an identity in it has not 16 bytes"))
}

#[derive(Clone, PartialEq, prost::Message)]
struct Body {
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

/// One election, as voters also tell each other of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ElectionEntry {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(message, optional, tag = "3")]
    holder: Option<HolderEntry>,
    #[prost(uint64, tag = "4")]
    seen: u64,
    #[prost(uint64, tag = "5")]
    lease_seconds: u64,
    #[prost(uint32, tag = "6")]
    lease_nanos: u32,
    #[prost(uint64, tag = "7")]
    fulfilled: u64,
    #[prost(uint64, tag = "8")]
    wish_count: u64,
    #[prost(oneof = "WishEntry", tags = "9, 10")]
    wish: Option<WishEntry>,
    #[prost(uint64, tag = "11")]
    paused_count: u64,
    #[prost(bool, tag = "12")]
    paused: bool,
    #[prost(uint64, optional, tag = "13")]
    wish_until: Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    paused_until: Option<u64>,
    #[prost(uint64, optional, tag = "15")]
    released: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HolderEntry {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(string, tag = "2")]
    label: String,
    #[prost(string, tag = "3")]
    data: String,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum WishEntry {
    #[prost(message, tag = "9")]
    NewElection(()),
    #[prost(string, tag = "10")]
    Successor(String),
}

impl ElectionEntry {
    pub(super) fn of(name: &ElectionName, durable: &Durable) -> Self {
        let Durable { term, holder, seen, lease, orders: Orders { wish, paused }, fulfilled, released } =
            durable.clone();
        Self {
            name: name.as_str().to_string(),
            term: term.get(),
            holder: holder.map(HolderEntry::of),
            seen,
            lease_seconds: lease.as_secs(),
            lease_nanos: lease.subsec_nanos(),
            fulfilled,
            wish_count: wish.count,
            wish: wish.value.map(WishEntry::of),
            paused_count: paused.count,
            paused: paused.value,
            wish_until: wish.until.map(Token::get),
            paused_until: paused.until.map(Token::get),
            released,
        }
    }

    /// Everything that a voter may keep passes, or a file could be written that is refused afterwards.
    pub(super) fn checked(self) -> Result<(ElectionName, Durable), Unfit> {
        const SECOND: u32 = 1_000_000_000;
        if self.lease_nanos >= SECOND {
            return Err(damage("a lease in it is no length of time"));
        }
        let wish = self.wish.map(WishEntry::checked).transpose()?;
        let token = |number| Token::new(number).ok_or_else(|| damage("a term in it is too large"));
        let until = |number: Option<u64>| number.map(token).transpose();
        let durable = Durable {
            term: token(self.term)?,
            holder: self.holder.map(HolderEntry::checked).transpose()?,
            seen: self.seen,
            lease: Duration::new(self.lease_seconds, self.lease_nanos),
            orders: Orders {
                wish: Ordered { count: self.wish_count, value: wish, until: until(self.wish_until)? },
                paused: Ordered { count: self.paused_count, value: self.paused, until: until(self.paused_until)? },
            },
            fulfilled: self.fulfilled,
            released: self.released,
        };
        let name = ElectionName::new(self.name).map_err(|error| damage(&format!("an election's name: {error}")))?;
        Ok((name, durable))
    }
}

impl HolderEntry {
    fn of(Holder { id, label, data }: Holder) -> Self {
        Self { id: id.to_bits().to_be_bytes().to_vec(), label: label.as_str().to_string(), data }
    }

    fn checked(self) -> Result<Holder, Unfit> {
        Ok(Holder { id: CandidateId::from_bits(bits(&self.id)?), label: label(self.label)?, data: self.data })
    }
}

impl WishEntry {
    fn of(wish: Wish) -> Self {
        match wish {
            Wish::NewElection => Self::NewElection(()),
            Wish::Successor(label) => Self::Successor(label.as_str().to_string()),
        }
    }

    fn checked(self) -> Result<Wish, Unfit> {
        match self {
            Self::NewElection(()) => Ok(Wish::NewElection),
            Self::Successor(name) => label(name).map(Wish::Successor),
        }
    }
}

fn label(label: String) -> Result<Label, Unfit> {
    Label::new(label).map_err(|error| damage(&format!("a label: {error}")))
}

#[cfg(test)]
pub(super) mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    /// Some content, drawn by this seed: every field takes its extremes at times.
    pub(in super::super) fn kept(seed: u64) -> Kept {
        let random = &mut StdRng::seed_from_u64(seed);
        let voter = VoterId::from_bits(random.random());
        let mut some =
            || random.random::<bool>().then(|| (0..random.random_range(0..40)).map(|_| random.random()).collect());
        let (cluster, next) = (some(), some());
        let past = vec![seed.to_le_bytes().to_vec(); usize::try_from(seed % 3).expect("few")];
        let elections = (0..random.random_range(0..6))
            .map(|_| (ElectionName::new(word(random, 1)).expect("a valid name"), durable(random)));
        Kept { voter, cluster, next, past, elections: elections.collect(), generation: seed }
    }

    fn durable(random: &mut StdRng) -> Durable {
        let holder = random.random::<bool>().then(|| Holder {
            id: CandidateId::from_bits(random.random()),
            label: Label::new(word(random, 1)).expect("a valid label"),
            data: word(random, 0),
        });
        let wish = match random.random_range(0..3) {
            0 => None,
            1 => Some(Wish::NewElection),
            _ => Some(Wish::Successor(Label::new(word(random, 1)).expect("a valid label"))),
        };
        Durable {
            term: Token::new(number(random) >> 1).expect("it fits"),
            holder,
            seen: number(random),
            lease: Duration::new(number(random), random.random_range(0..1_000_000_000)),
            orders: Orders {
                wish: Ordered { count: number(random), value: wish, until: Token::new(number(random)) },
                paused: Ordered::new(number(random), random.random()),
            },
            fulfilled: number(random),
            released: random.random::<bool>().then(|| number(random)),
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
            let kept = kept(seed);
            assert_eq!(Kept::from_bytes(&kept.to_bytes()), Ok(kept), "seed {seed}");
        }
    }

    #[test]
    fn any_other_byte_and_any_other_length_is_refused() {
        let good = kept(5).to_bytes();
        assert!(good.len() > 300, "all parts are in it");
        for place in 0..good.len() {
            for flip in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                let mut bad = good.clone();
                bad[place] ^= flip;
                assert!(Kept::from_bytes(&bad).is_err(), "byte {place} flipped by {flip}");
            }
            let refused = Kept::from_bytes(&good[..place]);
            assert_eq!(refused, Err(damage("it is cut off")), "cut off at {place}");
        }
        let longer = [good, vec![0]].concat();
        assert!(matches!(Kept::from_bytes(&longer), Err(Unfit::Damaged(_))));
    }

    #[test]
    fn another_file_and_a_newer_format_are_told_from_damage() {
        assert_eq!(Kept::from_bytes(b"SQLite format 3\0"), Err(Unfit::Foreign));
        assert_eq!(Kept::from_bytes(&sealed(FORMAT + 1, b"whatever")), Err(Unfit::Newer(FORMAT + 1)));
        assert!(matches!(Kept::from_bytes(&sealed(0, b"")), Err(Unfit::Damaged(_))));
        let body = Body { voter: vec![7; 16], ..Body::default() }.encode_to_vec();
        assert!(Kept::from_bytes(&sealed(1, &body)).is_ok(), "files from before voters could be exchanged are read");
    }

    #[test]
    fn content_that_no_voter_keeps_is_damage_though_its_checksum_is_right() {
        let holder = HolderEntry { id: vec![7; 16], label: "web-1".into(), data: String::new() };
        let entry = ElectionEntry { name: "jobs".into(), holder: Some(holder.clone()), ..ElectionEntry::default() };
        let read = |voter: usize, elections: Vec<ElectionEntry>| {
            let body = Body { voter: vec![1; voter], elections, ..Body::default() };
            Kept::from_bytes(&sealed(FORMAT, &body.encode_to_vec()))
        };
        assert!(read(16, vec![entry.clone()]).is_ok(), "the example is right");
        let bad = [
            ElectionEntry { name: "a\nb".into(), ..entry.clone() },
            ElectionEntry { term: u64::MAX, ..entry.clone() },
            ElectionEntry { lease_nanos: 1_000_000_000, ..entry.clone() },
            ElectionEntry { wish: Some(WishEntry::Successor(String::new())), ..entry.clone() },
            ElectionEntry { holder: Some(HolderEntry { id: vec![7; 15], ..holder.clone() }), ..entry.clone() },
            ElectionEntry { holder: Some(HolderEntry { label: "x".repeat(129), ..holder }), ..entry.clone() },
        ];
        for entry in bad {
            let refused = read(16, vec![entry.clone()]);
            assert!(matches!(refused, Err(Unfit::Damaged(_))), "{entry:?}: {refused:?}");
        }
        assert!(matches!(read(15, vec![]), Err(Unfit::Damaged(_))), "an identity that is too short");
        assert!(matches!(read(16, vec![entry.clone(), entry]), Err(Unfit::Damaged(_))), "an election twice");
        let garbage = Kept::from_bytes(&sealed(FORMAT, &[0xff; 9]));
        assert!(matches!(garbage, Err(Unfit::Damaged(_))), "{garbage:?}");
    }
}
