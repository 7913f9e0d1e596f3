//! What is said about who votes, on the wire, and back again, checked. Some of it also stands in a voter's file.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::ElectionName;
use primacy_core::quorum::{
    Ballot, ConfigEvidence, ConfigReply, ConfigRequest, Configuration as _, Durable, VoterReport,
};
use prost::{Message, Oneof};

use super::convert::{election, ns};
use super::entry::ElectionEntry;
use super::messages::{Cluster, FRAME_BYTES_MAX, MalformedFrame};
use crate::peers::config::Cluster as Known;

/// As much of what a voter has promised as is sent in one frame, in bytes.
const PAGE_BYTES: usize = FRAME_BYTES_MAX / 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
struct BallotEntry {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(uint64, tag = "2")]
    by_high: u64,
    #[prost(uint64, tag = "3")]
    by_low: u64,
}

/// What a voter has taken for the next change.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct ProposalEntry {
    #[prost(message, optional, tag = "1")]
    ballot: Option<BallotEntry>,
    #[prost(message, optional, tag = "2")]
    proposal: Option<Cluster>,
}

/// What a voter has promised about the next change, as its file holds it.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct NextConfigEntry {
    #[prost(message, optional, tag = "1")]
    promised: Option<BallotEntry>,
    #[prost(message, optional, tag = "2")]
    taken: Option<ProposalEntry>,
}

/// Some elections with what is kept of them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ElectionEntries {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<ElectionEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConfigRequestFrame {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(message, optional, tag = "2")]
    ballot: Option<BallotEntry>,
    #[prost(oneof = "ConfigRequestBody", tags = "3, 4, 5, 6, 7")]
    body: Option<ConfigRequestBody>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ConfigRequestBody {
    #[prost(bool, tag = "3")]
    Prepare(bool),
    #[prost(message, tag = "4")]
    Take(Cluster),
    #[prost(message, tag = "5")]
    Adopt(Cluster),
    /// What comes after this election in the order of names; empty: from the first on.
    #[prost(string, tag = "6")]
    Report(String),
    #[prost(message, tag = "7")]
    Inherit(ElectionEntries),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConfigReplyFrame {
    #[prost(oneof = "ConfigReplyBody", tags = "1, 2, 3, 4, 5, 6")]
    body: Option<ConfigReplyBody>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ConfigReplyBody {
    #[prost(bool, tag = "1")]
    Done(bool),
    #[prost(message, tag = "2")]
    Prepared(ProposalEntry),
    #[prost(message, tag = "3")]
    Outbid(BallotEntry),
    #[prost(message, tag = "4")]
    Elsewhere(OtherConfigEntry),
    #[prost(message, tag = "5")]
    Reported(ReportEntry),
    /// For how many nanoseconds it is bound.
    #[prost(uint64, tag = "6")]
    Partly(u64),
}

/// What a voter knows of the steps after some number.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EvidenceEntry {
    #[prost(message, repeated, tag = "1")]
    adopted: Vec<Cluster>,
    #[prost(message, optional, tag = "2")]
    taken: Option<ProposalEntry>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct OtherConfigEntry {
    #[prost(message, optional, tag = "1")]
    cluster: Option<Cluster>,
}

#[derive(Clone, PartialEq, Message)]
struct ReportEntry {
    #[prost(uint64, tag = "1")]
    settles_in_ns: u64,
    #[prost(message, optional, tag = "2")]
    elections: Option<ElectionEntries>,
    /// Set if there are more after these.
    #[prost(bool, tag = "3")]
    more: bool,
}

/// A question as it comes in.
pub(crate) struct Page {
    pub(crate) ask: ConfigRequest<Known>,
    /// A report is wanted of what comes after this election.
    pub(crate) after: Option<ElectionName>,
}

impl From<Ballot> for BallotEntry {
    fn from(Ballot { count, by }: Ballot) -> Self {
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default();
        Self { count, by_high: half(by >> 64), by_low: half(by) }
    }
}

impl From<BallotEntry> for Ballot {
    fn from(entry: BallotEntry) -> Self {
        Self { count: entry.count, by: u128::from(entry.by_high) << 64 | u128::from(entry.by_low) }
    }
}

impl ProposalEntry {
    fn of(taken: Option<&(Ballot, Known)>) -> Self {
        Self { ballot: taken.map(|(ballot, _)| (*ballot).into()), proposal: taken.map(|(_, known)| known.into()) }
    }

    fn checked(self) -> Result<Option<(Ballot, Known)>, MalformedFrame> {
        match (self.ballot, self.proposal) {
            (Some(ballot), Some(proposal)) => Ok(Some((ballot.into(), proposal.try_into()?))),
            (None, None) => Ok(None),
            _ => Err(MalformedFrame("half of what a voter has taken")),
        }
    }
}

impl From<&ConfigEvidence<Known>> for EvidenceEntry {
    fn from(told: &ConfigEvidence<Known>) -> Self {
        let taken = told.taken.as_ref().map(|taken| ProposalEntry::of(Some(taken)));
        Self { adopted: told.adopted.iter().map(Into::into).collect(), taken }
    }
}

impl EvidenceEntry {
    /// What it says of the cluster of `own`. What is said of another counts for nothing.
    pub(crate) fn checked(self, own: &Known) -> Result<ConfigEvidence<Known>, MalformedFrame> {
        let adopted = self.adopted.into_iter().map(Known::try_from).collect::<Result<Vec<_>, _>>()?;
        let taken = self.taken.unwrap_or_default().checked()?;
        let is_later = |other: &Known| other.is_same(own) && other.voter_set().number() > own.number();
        Ok(ConfigEvidence {
            adopted: adopted.into_iter().filter(is_later).collect(),
            taken: taken.filter(|(_, next)| is_later(next)),
        })
    }
}

impl NextConfigEntry {
    pub(crate) fn of((promised, taken): (Ballot, Option<&(Ballot, Known)>)) -> Self {
        Self { promised: Some(promised.into()), taken: Some(ProposalEntry::of(taken)) }
    }

    pub(crate) fn checked(self) -> Result<(Ballot, Option<(Ballot, Known)>), MalformedFrame> {
        let promised = self.promised.ok_or(MalformedFrame("no attempt"))?.into();
        Ok((promised, self.taken.unwrap_or_default().checked()?))
    }
}

impl ElectionEntries {
    fn checked(self) -> Result<BTreeMap<ElectionName, Durable>, MalformedFrame> {
        let checked =
            |entry: ElectionEntry| entry.checked().map_err(|_| MalformedFrame("what no voter keeps of an election"));
        self.entries.into_iter().map(checked).collect()
    }

    /// As many of them as fit into a frame.
    fn page<'a>(elections: impl Iterator<Item = (&'a ElectionName, &'a Durable)>) -> Self {
        let mut bytes = 0;
        let mut page = Self::default();
        for (name, durable) in elections {
            let entry = ElectionEntry::of(name, durable);
            bytes += entry.encoded_len() + 8;
            if bytes > PAGE_BYTES && !page.entries.is_empty() {
                break;
            }
            page.entries.push(entry);
        }
        page
    }
}

impl ConfigRequestFrame {
    /// As many questions as its content needs.
    pub(crate) fn of(ask: &ConfigRequest<Known>) -> Vec<Self> {
        let one =
            |number, ballot: Option<Ballot>, body| Self { number, ballot: ballot.map(Into::into), body: Some(body) };
        match ask {
            ConfigRequest::Prepare { number, ballot } => {
                vec![one(*number, Some(*ballot), ConfigRequestBody::Prepare(true))]
            }
            ConfigRequest::Take { number, ballot, proposal } => {
                vec![one(*number, Some(*ballot), ConfigRequestBody::Take(proposal.into()))]
            }
            ConfigRequest::Adopt(cluster) => {
                vec![one(cluster.number(), None, ConfigRequestBody::Adopt(cluster.into()))]
            }
            ConfigRequest::Report { number } => vec![Self::report(*number, "")],
            ConfigRequest::Inherit { number, elections } => {
                let (mut all, mut sent) = (Vec::new(), 0);
                while sent < elections.len() || all.is_empty() {
                    let page = ElectionEntries::page(elections.iter().skip(sent));
                    sent += page.entries.len();
                    all.push(one(*number, None, ConfigRequestBody::Inherit(page)));
                }
                all
            }
        }
    }

    /// What a voter has promised in the elections after this one.
    pub(crate) fn report(number: u64, after: &str) -> Self {
        Self { number, ballot: None, body: Some(ConfigRequestBody::Report(after.to_owned())) }
    }

    pub(crate) fn checked(self) -> Result<Page, MalformedFrame> {
        let number = self.number;
        let ballot = || self.ballot.map(Ballot::from).ok_or(MalformedFrame("no attempt"));
        let mut from = None;
        let ask = match self.body.ok_or(MalformedFrame("a question that asks nothing"))? {
            ConfigRequestBody::Prepare(_) => ConfigRequest::Prepare { number, ballot: ballot()? },
            ConfigRequestBody::Take(proposal) => {
                ConfigRequest::Take { number, ballot: ballot()?, proposal: proposal.try_into()? }
            }
            ConfigRequestBody::Adopt(cluster) => ConfigRequest::Adopt(cluster.try_into()?),
            ConfigRequestBody::Report(after) => {
                from = (!after.is_empty()).then(|| election(&after)).transpose()?;
                ConfigRequest::Report { number }
            }
            ConfigRequestBody::Inherit(elections) => ConfigRequest::Inherit { number, elections: elections.checked()? },
        };
        Ok(Page { ask, after: from })
    }
}

impl ConfigReplyFrame {
    /// Of a report: what comes after this election.
    pub(crate) fn of(answer: &ConfigReply<Known>, after: Option<&ElectionName>) -> Self {
        let body = match answer {
            ConfigReply::Done => ConfigReplyBody::Done(true),
            ConfigReply::Partly { bound } => ConfigReplyBody::Partly(super::ns(*bound)),
            ConfigReply::Prepared(taken) => ConfigReplyBody::Prepared(ProposalEntry::of(taken.as_ref())),
            ConfigReply::Outbid(ballot) => ConfigReplyBody::Outbid((*ballot).into()),
            ConfigReply::Elsewhere(known) => {
                ConfigReplyBody::Elsewhere(OtherConfigEntry { cluster: known.as_ref().map(Into::into) })
            }
            ConfigReply::Reported(VoterReport { settles_in, elections }) => {
                let rest = || elections.iter().filter(|(name, _)| after.is_none_or(|after| *name > after));
                let page = ElectionEntries::page(rest());
                let more = page.entries.len() < rest().count();
                ConfigReplyBody::Reported(ReportEntry { settles_in_ns: ns(*settles_in), elections: Some(page), more })
            }
        };
        Self { body: Some(body) }
    }

    /// What it says, and of a report whether there is more.
    pub(crate) fn checked(self) -> Result<(ConfigReply<Known>, bool), MalformedFrame> {
        let mut is_more = false;
        let answer = match self.body.ok_or(MalformedFrame("an answer that says nothing"))? {
            ConfigReplyBody::Done(_) => ConfigReply::Done,
            ConfigReplyBody::Partly(bound) => ConfigReply::Partly { bound: Duration::from_nanos(bound) },
            ConfigReplyBody::Prepared(taken) => ConfigReply::Prepared(taken.checked()?),
            ConfigReplyBody::Outbid(ballot) => ConfigReply::Outbid(ballot.into()),
            ConfigReplyBody::Elsewhere(other) => {
                ConfigReply::Elsewhere(other.cluster.map(Known::try_from).transpose()?)
            }
            ConfigReplyBody::Reported(page) => {
                is_more = page.more;
                let settles_in = Duration::from_nanos(page.settles_in_ns);
                ConfigReply::Reported(VoterReport {
                    settles_in,
                    elections: page.elections.unwrap_or_default().checked()?,
                })
            }
        };
        Ok((answer, is_more))
    }
}

#[cfg(test)]
impl ConfigRequestFrame {
    /// Whether it asks something.
    pub(crate) const fn asks(&self) -> bool {
        self.body.is_some()
    }

    /// Whether both ask for the same kind of thing.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let kind = |question: &Self| question.body.as_ref().map(std::mem::discriminant);
        kind(self) == kind(other)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use primacy_core::quorum::VoterId;

    use super::*;
    use crate::peers::config::Roster;
    use crate::peers::voter::any_file_data;

    fn cluster() -> Known {
        let roster = |names: &[&str]| -> Roster {
            let voter = |name: &&str| {
                let id = VoterId::from_bits(u128::from(name.as_bytes()[0]) << 100);
                ((*name).to_owned(), (id, format!("{name}@h:1").parse().expect("an address")))
            };
            names.iter().map(voter).collect()
        };
        Known::of(roster(&["a", "b", "c"])).joint(roster(&["b", "c", "d"]))
    }

    fn elections() -> BTreeMap<ElectionName, Durable> {
        (0..40).flat_map(|seed| any_file_data(seed).elections).collect()
    }

    #[test]
    fn what_is_asked_about_voters_arrives_as_it_was_asked() {
        let ballot = Ballot { count: u64::MAX, by: u128::MAX - 7 };
        let asks = [
            ConfigRequest::Prepare { number: 3, ballot },
            ConfigRequest::Take { number: 3, ballot, proposal: cluster() },
            ConfigRequest::Adopt(cluster()),
            ConfigRequest::Report { number: u64::MAX },
            ConfigRequest::Inherit { number: 1, elections: elections() },
            ConfigRequest::Inherit { number: 1, elections: BTreeMap::new() },
        ];
        for ask in asks {
            let questions = ConfigRequestFrame::of(&ask);
            let read = ConfigRequestFrame::decode(&*questions[0].encode_to_vec()).expect("it is whole");
            assert_eq!(read.checked().expect("it is right").ask, ask);
        }
    }

    #[test]
    fn what_a_voter_says_of_voters_arrives_as_it_was_said() {
        let ballot = Ballot { count: 2, by: 9 };
        let report = VoterReport { settles_in: Duration::from_nanos(5), elections: elections() };
        let answers = [
            ConfigReply::Done,
            ConfigReply::Partly { bound: Duration::from_nanos(7) },
            ConfigReply::Prepared(None),
            ConfigReply::Prepared(Some((ballot, cluster()))),
            ConfigReply::Outbid(ballot),
            ConfigReply::Elsewhere(None),
            ConfigReply::Elsewhere(Some(cluster())),
            ConfigReply::Reported(report),
        ];
        for answer in answers {
            let bytes = ConfigReplyFrame::of(&answer, None).encode_to_vec();
            let read = ConfigReplyFrame::decode(&*bytes).expect("it is whole").checked();
            assert_eq!(read.expect("it is right"), (answer, false));
        }
        let next = (ballot, Some((ballot, cluster())));
        let bytes = NextConfigEntry::of((next.0, next.1.as_ref())).encode_to_vec();
        assert_eq!(NextConfigEntry::decode(&*bytes).expect("it is whole").checked(), Ok(next));
    }

    #[test]
    fn what_does_not_fit_into_a_frame_comes_in_several() {
        let data = "x".repeat(1_000);
        // Made once: each of these files is drawn anew, and there are 40.
        let (_, mut durable) = elections().into_iter().next().expect("there are some");
        durable.holder = Some(crate::store::Holder {
            id: crate::CandidateId::from_bits(1),
            label: crate::Label::new("a").expect("valid"),
            data,
        });
        let long = |n: u32| (ElectionName::new(format!("e{n:05}")).expect("valid"), durable.clone());
        let all: BTreeMap<_, _> = (0..3_000).map(long).collect();
        let questions = ConfigRequestFrame::of(&ConfigRequest::Inherit { number: 1, elections: all.clone() });
        assert!(questions.len() > 4, "{}", questions.len());
        let mut given = BTreeMap::new();
        for question in questions {
            assert!(question.encoded_len() < FRAME_BYTES_MAX);
            let ConfigRequest::Inherit { elections, .. } = question.checked().expect("it is right").ask else {
                panic!()
            };
            given.extend(elections);
        }
        assert_eq!(given, all);

        let answer = ConfigReply::Reported(VoterReport { settles_in: Duration::ZERO, elections: all.clone() });
        let (mut told, mut after) = (BTreeMap::new(), None);
        loop {
            let reply = ConfigReplyFrame::of(&answer, after.as_ref());
            assert!(reply.encoded_len() < FRAME_BYTES_MAX);
            let (ConfigReply::Reported(report), more) = reply.checked().expect("it is right") else { panic!() };
            after = report.elections.last_key_value().map(|(name, _)| name.clone());
            told.extend(report.elections);
            if !more {
                break;
            }
        }
        assert_eq!(told, all);
    }
}
