//! Elections for the tests of what people and scripts see.

use std::time::Duration;

use primacy::select::Rank;
use primacy::store::{Basis, HandoverRequest, Holder, Record, Snapshot, Term, Version, Waiting};
use primacy::{CandidateId, ElectionName, Label, Token};

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).expect("a valid label")
}

pub(crate) fn election() -> ElectionName {
    ElectionName::new("billing").expect("a valid name")
}

pub(crate) fn token(number: u64) -> Token {
    Token::new(number).expect("a valid token")
}

pub(crate) fn holder(n: u8) -> Holder {
    Holder {
        id: CandidateId::from_bits(u128::from_be_bytes([0x10 * n + n; 16])),
        label: label(&format!("web-{n}")),
        data: format!("http://10.0.0.{n}:8080"),
    }
}

pub(crate) fn waiting(n: u8, note: &str, ago_ms: u64) -> Waiting {
    let rank = Some(Rank::default());
    Waiting { who: holder(n), note: note.to_owned(), rank, age: Some(Duration::from_millis(ago_ms)) }
}

/// web-1 leads with token 17, web-2 and web-3 wait.
pub(crate) fn led() -> Snapshot {
    Snapshot {
        election: election(),
        record: Record {
            version: Version { token: token(17), beat: 92 },
            holder: Some(holder(1)),
            lease: Duration::from_secs(10),
            order_number: 0,
            handover: None,
            paused: false,
        },
        age: Some(Duration::from_millis(2_100)),
        held_for: Some(Duration::from_secs(192)),
        candidates: vec![
            waiting(2, "waits for the lease that web-1 holds with token 17", 1_200),
            waiting(3, "waits for the lease that web-1 holds with token 17", 3_400),
        ],
        basis: Basis::Record,
    }
}

/// web-1 has not renewed for longer than its lease.
pub(crate) fn silent() -> Snapshot {
    Snapshot { age: Some(Duration::from_millis(10_150)), ..led() }
}

/// web-1 gave the lease back.
pub(crate) fn vacant() -> Snapshot {
    let snapshot = led();
    Snapshot { record: Record { holder: None, ..snapshot.record }, held_for: None, ..snapshot }
}

pub(crate) fn with(mut snapshot: Snapshot, change: impl FnOnce(&mut Snapshot)) -> Snapshot {
    change(&mut snapshot);
    snapshot
}

pub(crate) fn promoting(snapshot: Snapshot, successor: &str) -> Snapshot {
    with(snapshot, |snapshot| snapshot.record.handover = Some(HandoverRequest::Successor(label(successor))))
}

/// How web-1 came to lead.
pub(crate) fn history() -> Vec<Term> {
    let term = |number, n, granted_unix_ms, ended: Option<(i64, &str)>| Term {
        token: token(number),
        id: holder(n).id,
        label: holder(n).label,
        granted_unix_ms,
        ended: ended.map(|(at, why)| (at, why.to_owned())),
    };
    vec![
        term(17, 1, 1_790_000_000_000, None),
        term(16, 2, 1_789_991_420_000, Some((1_789_999_999_950, "died"))),
        term(15, 1, 1_789_991_300_000, Some((1_789_991_419_990, "deposed"))),
    ]
}
