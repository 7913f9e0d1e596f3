//! What the files hold, as JSON.

use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use primacy::select::Rank;
use primacy::store::wait_queue::QueuedWaiter;
use primacy::store::{HandoverRequest, Holder, Record, Term, TermHistory, Version, WaitQueue, WaiterInfo};
use primacy::{CandidateId, ElectionName, Instant, Label, Token};
use serde::{Deserialize, Serialize};

/// What is kept of one election, but for who waits.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Absent if somebody has deleted it, and in an election that was forgotten.
    pub(crate) record: Option<Record>,
    /// When the lease was granted and last renewed, on the clock of this boot. Unknown after a restart of the machine.
    pub(crate) granted: Option<Instant>,
    pub(crate) renewed: Option<Instant>,
    /// Also remembers the highest token.
    pub(crate) past: TermHistory,
}

/// Files of another version are refused.
const VERSION: u32 = 1;

/// This boot of the machine, by the kernel's word. Times of one boot mean nothing in another.
static BOOT: LazyLock<String> =
    LazyLock::new(|| fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default());

#[derive(Serialize, Deserialize)]
struct StateFile {
    version: u32,
    election: String,
    boot: String,
    record: Option<RecordText>,
    granted_boot_ns: Option<u64>,
    renewed_boot_ns: Option<u64>,
    terms: Vec<TermText>,
}

#[derive(Serialize, Deserialize)]
struct RecordText {
    token: u64,
    beat: u64,
    holder: Option<HolderText>,
    lease_ns: u64,
    orders: u64,
    successor: Option<String>,
    new_election: bool,
    paused: bool,
}

#[derive(Serialize, Deserialize)]
struct HolderText {
    id: String,
    label: String,
    data: String,
}

#[derive(Serialize, Deserialize)]
struct TermText {
    token: u64,
    id: String,
    label: String,
    granted_unix_ms: i64,
    ended: Option<(i64, String)>,
}

#[derive(Serialize, Deserialize)]
struct WaitingFile {
    boot: String,
    entries: Vec<EntryText>,
}

#[derive(Serialize, Deserialize)]
struct EntryText {
    who: HolderText,
    note: String,
    rank: Vec<i32>,
    at_boot_ns: u64,
    fresh_for_ns: u64,
}

/// Why a file is refused.
type Refusal = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn parse_state(bytes: &[u8]) -> Result<State, Refusal> {
    let file: StateFile = serde_json::from_slice(bytes)?;
    if file.version != VERSION {
        return Err(format!("its version is {}, and this program knows {VERSION}", file.version).into());
    }
    let at = |nanos: Option<u64>| nanos.filter(|_| is_this_boot(&file.boot)).map(Instant::from_nanos);
    let terms: Result<Vec<Term>, Refusal> = file.terms.into_iter().map(TermText::read).collect();
    Ok(State {
        granted: at(file.granted_boot_ns),
        renewed: at(file.renewed_boot_ns),
        record: file.record.map(RecordText::read).transpose()?,
        past: TermHistory::from_terms(terms?),
    })
}

/// The name of the election whose state this is.
pub(crate) fn name_in(bytes: &[u8]) -> Option<ElectionName> {
    let file: StateFile = serde_json::from_slice(bytes).ok()?;
    ElectionName::new(file.election).ok()
}

pub(crate) fn write_state(election: &ElectionName, state: &State) -> Vec<u8> {
    json(&StateFile {
        version: VERSION,
        election: election.as_str().to_owned(),
        boot: BOOT.clone(),
        record: state.record.as_ref().map(RecordText::of),
        granted_boot_ns: state.granted.map(Instant::as_nanos),
        renewed_boot_ns: state.renewed.map(Instant::as_nanos),
        terms: state.past.terms().iter().map(TermText::of).collect(),
    })
}

pub(crate) fn parse_waiting(bytes: &[u8]) -> Result<WaitQueue, Refusal> {
    let file: WaitingFile = serde_json::from_slice(bytes)?;
    file.entries.into_iter().filter(|_| is_this_boot(&file.boot)).map(EntryText::read).collect()
}

pub(crate) fn write_waiting(waiting: &WaitQueue) -> Vec<u8> {
    json(&WaitingFile { boot: BOOT.clone(), entries: waiting.entries().iter().map(EntryText::of).collect() })
}

fn is_this_boot(boot: &str) -> bool {
    !boot.is_empty() && boot == *BOOT
}

fn json(file: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(file).expect("texts, numbers and lists become JSON")
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn token(number: u64) -> Result<Token, Refusal> {
    Token::new(number).ok_or_else(|| format!("{number} is no token").into())
}

impl RecordText {
    fn of(record: &Record) -> Self {
        Self {
            token: record.version.token.get(),
            beat: record.version.beat,
            holder: record.holder.as_ref().map(HolderText::of),
            lease_ns: nanos(record.lease),
            orders: record.order_number,
            successor: match &record.handover {
                Some(HandoverRequest::Successor(label)) => Some(label.as_str().to_owned()),
                _ => None,
            },
            new_election: record.handover == Some(HandoverRequest::NewElection),
            paused: record.paused,
        }
    }

    fn read(self) -> Result<Record, Refusal> {
        let successor = self.successor.map(Label::new).transpose()?.map(HandoverRequest::Successor);
        Ok(Record {
            version: Version { token: token(self.token)?, beat: self.beat },
            holder: self.holder.map(HolderText::read).transpose()?,
            lease: Duration::from_nanos(self.lease_ns),
            order_number: self.orders,
            handover: successor.or(self.new_election.then_some(HandoverRequest::NewElection)),
            paused: self.paused,
        })
    }
}

impl HolderText {
    fn of(holder: &Holder) -> Self {
        Self { id: holder.id.to_string(), label: holder.label.as_str().to_owned(), data: holder.data.clone() }
    }

    fn read(self) -> Result<Holder, Refusal> {
        Ok(Holder { id: id(&self.id)?, label: Label::new(self.label)?, data: self.data })
    }
}

fn id(text: &str) -> Result<CandidateId, Refusal> {
    Ok(CandidateId::from_bits(u128::from_str_radix(text, 16)?))
}

impl TermText {
    fn of(term: &Term) -> Self {
        Self {
            token: term.token.get(),
            id: term.id.to_string(),
            label: term.label.as_str().to_owned(),
            granted_unix_ms: term.granted_unix_ms,
            ended: term.ended.clone(),
        }
    }

    fn read(self) -> Result<Term, Refusal> {
        Ok(Term {
            token: token(self.token)?,
            id: id(&self.id)?,
            label: Label::new(self.label)?,
            granted_unix_ms: self.granted_unix_ms,
            ended: self.ended,
        })
    }
}

impl EntryText {
    fn of(entry: &QueuedWaiter<WaiterInfo>) -> Self {
        Self {
            who: HolderText::of(&entry.told.who),
            note: entry.told.note.clone(),
            rank: entry.rank.elements().to_vec(),
            at_boot_ns: entry.at.as_nanos(),
            fresh_for_ns: nanos(entry.fresh_for),
        }
    }

    fn read(self) -> Result<QueuedWaiter<WaiterInfo>, Refusal> {
        let who = self.who.read()?;
        Ok(QueuedWaiter {
            id: who.id,
            rank: Rank::new(&self.rank)?,
            at: Instant::from_nanos(self.at_boot_ns),
            told: WaiterInfo { who, note: self.note },
            fresh_for: Duration::from_nanos(self.fresh_for_ns),
        })
    }
}
