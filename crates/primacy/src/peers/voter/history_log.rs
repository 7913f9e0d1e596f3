//! Who has led, in a file of the voter's folder, for people. Nothing rests on it: what is lost or damaged of it is only forgotten.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use prost::Message;
use tracing::warn;

use crate::peers::disk;
use crate::peers::wire::{self, TermEntry};
use crate::store::Term;
use crate::store::history::TermHistory;
use crate::{ElectionName, Token};

/// A term as it is now; later entries of the same term replace earlier ones.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    election: String,
    #[prost(message, optional, tag = "2")]
    term: Option<TermEntry>,
    /// A term that was never granted.
    #[prost(uint64, tag = "3")]
    struck: u64,
    /// A term that was granted for certain.
    #[prost(uint64, tag = "4")]
    proven: u64,
    /// All that stands before this is forgotten.
    #[prost(bool, tag = "5")]
    forgotten: bool,
}

impl Entry {
    fn of(election: &ElectionName) -> Self {
        Self { election: election.as_str().to_owned(), ..Self::default() }
    }
}

/// The history file of a voter's folder, to which terms are appended.
pub(super) struct HistoryLog {
    path: PathBuf,
    /// What has not been written yet.
    pending: Vec<u8>,
    /// `None` after it could not be written.
    file: Option<File>,
    /// How long the file is, and was when it was last made anew.
    bytes: usize,
    least_bytes: usize,
}

/// By how much the file grows before what is no longer needed of it is left out.
const GROWTH: usize = 1 << 20;

impl HistoryLog {
    /// Opens the file in a voter's folder, and reads what is in it. What is no longer needed of it is left out from now on.
    pub(super) fn open(folder: &Path) -> (Self, BTreeMap<ElectionName, TermHistory>) {
        let path = folder.join("history");
        let all = match std::fs::read(&path) {
            Ok(bytes) => read(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                warn!(path = %path.display(), %error, "the history cannot be read");
                BTreeMap::new()
            }
        };
        let mut log = Self { path, pending: Vec::new(), file: None, bytes: 0, least_bytes: 0 };
        log.compact(all.iter());
        (log, all)
    }

    /// Makes the file anew, of what is still needed.
    fn compact<'a>(&mut self, all: impl Iterator<Item = (&'a ElectionName, &'a TermHistory)>) {
        self.pending.clear();
        for (election, past) in all {
            let terms: Vec<&Term> = past.newest(u32::MAX).collect();
            terms.into_iter().rev().for_each(|term| self.note(election, term));
            if let Some(term) = past.proven() {
                self.prove(election, term.token);
            }
        }
        let compacted = std::mem::take(&mut self.pending);
        (self.bytes, self.least_bytes) = (compacted.len(), compacted.len());
        let opened = disk::replace(&self.path, &compacted)
            .and_then(|()| OpenOptions::new().append(true).mode(0o600).open(&self.path));
        self.file = opened.inspect_err(|error| self.complain(error)).ok();
    }

    /// A term has begun or ended.
    pub(super) fn note(&mut self, election: &ElectionName, term: &Term) {
        self.add(&Entry { term: Some(term.into()), ..Entry::of(election) });
    }

    /// A term was never granted.
    pub(super) fn strike(&mut self, election: &ElectionName, token: Token) {
        self.add(&Entry { struck: token.get(), ..Entry::of(election) });
    }

    /// A term was granted for certain.
    pub(super) fn prove(&mut self, election: &ElectionName, token: Token) {
        self.add(&Entry { proven: token.get(), ..Entry::of(election) });
    }

    /// An election is forgotten. Its terms are left out of the file when the voter starts again.
    pub(super) fn forget(&mut self, election: &ElectionName) {
        self.add(&Entry { forgotten: true, ..Entry::of(election) });
    }

    fn add(&mut self, entry: &Entry) {
        self.pending.extend(entry.encode_length_delimited_to_vec());
    }

    /// Writes what was noted since. `all`: what is known by now.
    pub(super) fn write<'a>(&mut self, all: impl Iterator<Item = (&'a ElectionName, &'a TermHistory)>) {
        self.bytes = self.bytes.saturating_add(self.pending.len());
        if self.file.is_some() && self.bytes > self.least_bytes.saturating_mul(2).saturating_add(GROWTH) {
            return self.compact(all);
        }
        let pending = std::mem::take(&mut self.pending);
        if let Some(mut file) = self.file.take() {
            match file.write_all(&pending) {
                Ok(()) => self.file = Some(file),
                Err(error) => self.complain(&error),
            }
        }
    }

    fn complain(&self, error: &io::Error) {
        warn!(path = %self.path.display(), %error, "the history is not kept any more; elections go on without it");
    }
}

/// As much as can be read: a crash may have cut off the end.
fn read(mut bytes: &[u8]) -> BTreeMap<ElectionName, TermHistory> {
    let mut all: BTreeMap<ElectionName, TermHistory> = BTreeMap::new();
    while !bytes.is_empty() {
        let Ok(entry) = Entry::decode_length_delimited(&mut bytes) else { break };
        let Ok(election) = wire::election(&entry.election) else { break };
        let past = all.entry(election).or_default();
        if entry.forgotten {
            *past = TermHistory::default();
        }
        match entry.term.as_ref().map(Term::try_from) {
            Some(Ok(term)) => past.put(term),
            Some(Err(_)) => break,
            None => {
                if let Some(token) = Token::new(entry.struck) {
                    past.strike(token);
                }
                if let Some(token) = Token::new(entry.proven) {
                    past.prove(token);
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Holder;
    use crate::{CandidateId, Label};

    fn name() -> ElectionName {
        ElectionName::new("jobs").expect("valid")
    }

    fn token(number: u64) -> Token {
        Token::new(number).expect("small")
    }

    fn terms(past: &BTreeMap<ElectionName, TermHistory>) -> Vec<(u64, Option<String>)> {
        let terms = past.get(&name()).into_iter().flat_map(|past| past.newest(10));
        terms.map(|term| (term.token.get(), term.ended.clone().map(|(_, why)| why))).collect()
    }

    /// Three terms: the first ended, the second never granted, the third under way.
    fn written(folder: &Path) {
        let (mut log, past) = HistoryLog::open(folder);
        assert!(past.is_empty());
        let holder = Holder {
            id: CandidateId::from_bits(1),
            label: Label::new("a").expect("valid"),
            data: "not kept".to_owned(),
        };
        let mut past = TermHistory::default();
        past.open(token(1), &holder, "");
        past.open(token(2), &holder, "taken-over");
        past.open(token(3), &holder, "");
        let all: Vec<Term> = past.newest(10).cloned().collect();
        all.iter().rev().for_each(|term| log.note(&name(), term));
        log.strike(&name(), token(2));
        log.write(std::iter::empty());
    }

    #[test]
    fn who_has_led_is_known_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        written(folder.path());
        for _ in 0..2 {
            let (_, past) = HistoryLog::open(folder.path());
            assert_eq!(terms(&past), [(3, None), (1, Some("taken-over".to_owned()))]);
        }
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_forgotten_and_the_rest_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        written(folder.path());
        let file = folder.path().join("history");
        let whole = std::fs::read(&file).expect("it is there");
        for length in 0..whole.len() {
            std::fs::write(&file, &whole[..length]).expect("writable");
            let (_, past) = HistoryLog::open(folder.path());
            assert!(terms(&past).len() <= 3, "{length}");
        }
        std::fs::write(&file, [0xff; 100]).expect("writable");
        let (mut log, past) = HistoryLog::open(folder.path());
        assert!(past.is_empty());
        log.strike(&name(), token(9));
        log.write(std::iter::empty());
    }
}
