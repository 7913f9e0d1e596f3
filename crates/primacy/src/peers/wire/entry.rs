//! What a voter keeps of one election, as its file holds it and as voters tell each other of it.

use std::time::Duration;

use primacy_core::lease::{HandoverRequest, Holder};
use primacy_core::quorum::{Durable, OrderRegister, Orders};
use primacy_core::{CandidateId, ElectionName, Label, Token};

/// One election, as voters also tell each other of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ElectionEntry {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint64, tag = "2")]
    pub(crate) term: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) holder: Option<HolderEntry>,
    #[prost(uint64, tag = "4")]
    pub(crate) seen: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) lease_seconds: u64,
    #[prost(uint32, tag = "6")]
    pub(crate) lease_nanos: u32,
    #[prost(uint64, tag = "7")]
    pub(crate) completed_order: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) handover_count: u64,
    #[prost(oneof = "HandoverEntry", tags = "9, 10")]
    pub(crate) handover: Option<HandoverEntry>,
    #[prost(uint64, tag = "11")]
    pub(crate) paused_count: u64,
    #[prost(bool, tag = "12")]
    pub(crate) paused: bool,
    #[prost(uint64, optional, tag = "13")]
    pub(crate) handover_until: Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    pub(crate) paused_until: Option<u64>,
    #[prost(uint64, optional, tag = "15")]
    pub(crate) released: Option<u64>,
    /// Absent where it is the term.
    #[prost(uint64, optional, tag = "16")]
    pub(crate) highest: Option<u64>,
    /// Absent in formats before the third: then it follows from what was released.
    #[prost(uint64, optional, tag = "17")]
    pub(crate) floor: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HolderEntry {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) id: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(crate) label: String,
    #[prost(string, tag = "3")]
    pub(crate) data: String,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum HandoverEntry {
    #[prost(message, tag = "9")]
    NewElection(()),
    #[prost(string, tag = "10")]
    Successor(String),
}

impl ElectionEntry {
    pub(crate) fn of(name: &ElectionName, durable: &Durable) -> Self {
        let Durable {
            highest,
            term,
            holder,
            seen,
            lease,
            orders: Orders { handover, paused },
            completed_order,
            released,
            floor,
        } = durable.clone();
        Self {
            name: name.as_str().to_string(),
            term: term.get(),
            holder: holder.map(HolderEntry::of),
            seen,
            lease_seconds: lease.as_secs(),
            lease_nanos: lease.subsec_nanos(),
            completed_order,
            handover_count: handover.count,
            handover: handover.value.map(HandoverEntry::of),
            paused_count: paused.count,
            paused: paused.value,
            handover_until: handover.until.map(Token::get),
            paused_until: paused.until.map(Token::get),
            released,
            highest: (highest != term).then(|| highest.get()),
            floor: Some(floor.get()),
        }
    }

    /// Everything that a voter may keep passes, or a file could be written that is refused afterwards.
    pub(crate) fn checked(self) -> Result<(ElectionName, Durable), String> {
        const SECOND: u32 = 1_000_000_000;
        if self.lease_nanos >= SECOND {
            return Err("a lease in it is no length of time".to_owned());
        }
        let handover = self.handover.map(HandoverEntry::checked).transpose()?;
        let token = |number| Token::new(number).ok_or_else(|| "a term in it is too large".to_owned());
        let until = |number: Option<u64>| number.map(token).transpose();
        let term = token(self.term)?;
        // A holder that has led gave the term back. One in which the election was forgotten may have been granted to somebody else.
        let earlier_floor = match (&self.holder, self.released) {
            (Some(_), Some(1..)) => term.next(0),
            (None, Some(_)) => term,
            _ => Token::NONE,
        };
        let durable = Durable {
            highest: self.highest.map(token).transpose()?.unwrap_or_default().max(term),
            term,
            holder: self.holder.map(HolderEntry::checked).transpose()?,
            seen: self.seen,
            lease: Duration::new(self.lease_seconds, self.lease_nanos),
            orders: Orders {
                handover: OrderRegister {
                    count: self.handover_count,
                    value: handover,
                    until: until(self.handover_until)?,
                },
                paused: OrderRegister {
                    count: self.paused_count,
                    value: self.paused,
                    until: until(self.paused_until)?,
                },
            },
            completed_order: self.completed_order,
            released: self.released,
            floor: self.floor.map(token).transpose()?.unwrap_or(earlier_floor),
        };
        let name = ElectionName::new(self.name).map_err(|error| format!("an election's name: {error}"))?;
        Ok((name, durable))
    }
}

impl HolderEntry {
    fn of(Holder { id, label, data }: Holder) -> Self {
        Self { id: id.to_bits().to_be_bytes().to_vec(), label: label.as_str().to_string(), data }
    }

    fn checked(self) -> Result<Holder, String> {
        Ok(Holder { id: CandidateId::from_bits(bits(&self.id)?), label: label(self.label)?, data: self.data })
    }
}

impl HandoverEntry {
    fn of(handover: HandoverRequest) -> Self {
        match handover {
            HandoverRequest::NewElection => Self::NewElection(()),
            HandoverRequest::Successor(label) => Self::Successor(label.as_str().to_string()),
        }
    }

    fn checked(self) -> Result<HandoverRequest, String> {
        match self {
            Self::NewElection(()) => Ok(HandoverRequest::NewElection),
            Self::Successor(name) => label(name).map(HandoverRequest::Successor),
        }
    }
}

fn label(label: String) -> Result<Label, String> {
    Label::new(label).map_err(|error| format!("a label: {error}"))
}

/// An identity.
pub(crate) fn bits(bytes: &[u8]) -> Result<u128, String> {
    bytes.try_into().map(u128::from_be_bytes).map_err(|_| "an identity in it has not 16 bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The floor that is read of an entry in which a format before the third says that of the fifth term.
    fn floor(holder: bool, released: Option<u64>) -> u64 {
        let holder = holder.then(|| HolderEntry { id: vec![7; 16], label: "web-1".into(), data: String::new() });
        let entry = ElectionEntry { name: "jobs".into(), term: 5, holder, released, ..ElectionEntry::default() };
        entry.checked().expect("it was written").1.floor.get()
    }

    #[test]
    fn an_earlier_format_leaves_the_floor_where_a_voter_of_now_has_it() {
        assert_eq!(floor(true, Some(3)), 6, "a leader gave the term back");
        assert_eq!(floor(true, Some(0)), 0, "a claim was taken back");
        assert_eq!(floor(true, None), 0);
        assert_eq!(floor(false, Some(1)), 5, "forgotten: who was granted the same term is supported");
    }
}
