//! Frames of every kind, as they are and changed at random, through all that reads them at either end.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use primacy_core::lease::Request;
use primacy_core::quorum::{
    Answer, Ask, Ballot, ConfigAcceptor, ConfigEvidence, ConfigReply, Configuration as _, Durable, GrantProgress,
    OrderNumbers, Output, QuorumClient, ReconfigurationAttempt, ReconfigurationOutput, VoterPromises, VoterReport,
    VoterView,
};
use prost::Message as _;
use prost::encoding::{decode_varint, encode_varint};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::super::file_data::VoterFileData;
use super::super::file_data::tests::file_data;
use super::super::hosted_elections::HostedElections;
use super::super::task::VoterTask;
use super::*;
use crate::peers::config::Roster;
use crate::peers::wire::{
    ConfigReplyFrame, FRAME_BYTES_MAX, Frame, Leave, Names, Piggyback, ProbeReply, Recall, Reply, Terms, WaitingEntry,
};
use crate::select::Rank;
use crate::store::{Holder, Standing, Term, Waiting};
use crate::{CandidateId, ElectionName, Instant, Label, Token};

/// How many frames are drawn: a few seconds' worth.
const FRAMES: u64 = 20_000;

/// The seed of the first frame. A failure names its own.
const SEED: u64 = 1;
/// The same in each run, so that a seed draws the same frames.
const OWN_CLUSTER: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;

/// What a voter and its clients may hear, drawn.
struct Draw(StdRng);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    fn often(&mut self) -> bool {
        self.below(4) > 0
    }

    fn number(&mut self) -> u64 {
        match self.below(5) {
            0 => 0,
            1 => u64::MAX,
            2 => self.0.random_range(0..4),
            _ => self.0.random::<u64>() >> self.below(64),
        }
    }

    fn token(&mut self) -> Token {
        Token::new(self.number() >> 1).expect("it fits")
    }

    fn span(&mut self) -> Duration {
        Duration::from_nanos(self.number())
    }

    fn durable(&mut self) -> (ElectionName, Durable) {
        loop {
            let all = file_data(self.0.random::<u64>() >> 1).elections;
            if let Some(one) = all.into_iter().next() {
                return one;
            }
        }
    }

    fn election(&mut self) -> ElectionName {
        ElectionName::new(["default", "jobs"][self.below(2)]).expect("valid")
    }

    fn holder(&mut self) -> Holder {
        let label = Label::new(["web-1", "web-2"][self.below(2)]).expect("valid");
        Holder { id: CandidateId::from_bits(u128::from(self.number())), label, data: "x".repeat(self.below(9)) }
    }

    fn ask(&mut self) -> Ask {
        let (term, beat, lease) = (self.token(), self.number(), Duration::from_millis(self.number() % 90_000_000));
        let holder = self.holder();
        let (id, completed_order) = (holder.id, self.number());
        match self.below(7) {
            0 => Ask::Read,
            1 => {
                let seen = OrderNumbers { handover: self.number(), paused: self.number() };
                let granted = self.often().then_some(GrantProgress { beat, completed_order });
                Ask::Claim { term, holder, lease, seen, granted }
            }
            2 => Ask::Renew { term, id, beat, lease, completed_order },
            3 => Ask::Release { term, id, beat, completed_order },
            4 => Ask::Withdraw { term, id, beat },
            5 => Ask::Forget { term },
            _ => Ask::Order { orders: self.durable().1.orders, token: self.often().then_some(term) },
        }
    }

    /// One of those that have this identity, or of others.
    fn cluster(&mut self, own: &Cluster) -> Cluster {
        let mut cluster = if self.below(3) > 0 {
            own.clone()
        } else {
            let names = self.below(3) + 1;
            Cluster::known(self.0.random(), 0, roster(u128::from(self.number()), &["a", "b", "d"][..names]), None)
        };
        for _ in 0..self.below(4) {
            let incoming = roster(9, &["a", "b", "c", "d"][..self.below(4) + 1]);
            cluster = cluster.settled().unwrap_or_else(|| cluster.joint(incoming));
        }
        cluster
    }

    fn answer(&mut self) -> Piggyback {
        let (_, durable) = self.durable();
        let view = VoterView {
            highest: self.token(),
            term: self.token(),
            holder: self.often().then(|| self.holder()),
            beat: self.number(),
            seen: self.number(),
            lease: self.span(),
            bound: self.often().then(|| self.span()),
            age: self.span(),
            released: !self.often(),
            orders: durable.orders,
            completed_order: self.number(),
        };
        let waiting = |draw: &mut Self| Waiting {
            who: draw.holder(),
            note: "waits".to_owned(),
            rank: Rank::new(&[3, -9]).ok(),
            age: Some(draw.span()),
        };
        Piggyback {
            answer: Answer { accepted: self.often(), view },
            standing: Standing { ahead: 1, others: u32::MAX },
            waiting: (0..self.below(3)).map(|_| waiting(self)).collect(),
            held_for: self.often().then(|| self.span()),
            proven: self.often().then(|| self.term()),
            claimed: self.often().then(|| self.term()),
        }
    }

    fn config_reply(&mut self, own: &Cluster) -> ConfigReply<Cluster> {
        let ballot = Ballot { count: self.number(), by: self.0.random() };
        match self.below(7) {
            0 => ConfigReply::Done,
            4 => ConfigReply::Partly { bound: self.span() },
            1 => ConfigReply::Prepared(self.often().then(|| (ballot, self.cluster(own)))),
            2 => ConfigReply::Outbid(ballot),
            3 => ConfigReply::Elsewhere(self.often().then(|| self.cluster(own))),
            _ => {
                let elections = (0..self.below(3)).map(|_| self.durable()).collect();
                ConfigReply::Reported(VoterReport { settles_in: self.span(), elections })
            }
        }
    }

    fn config_request(&mut self, own: &Cluster) -> ConfigRequestFrame {
        let (number, ballot) = (self.number(), Ballot { count: self.number(), by: self.0.random() });
        let ask = match self.below(5) {
            0 => ConfigRequest::Prepare { number, ballot },
            1 => ConfigRequest::Take { number, ballot, proposal: self.cluster(own) },
            2 => ConfigRequest::Adopt(self.cluster(own)),
            3 => return ConfigRequestFrame::report(number, ["", "jobs", "\n"][self.below(3)]),
            _ => ConfigRequest::Inherit { number, elections: (0..self.below(3)).map(|_| self.durable()).collect() },
        };
        ConfigRequestFrame::of(&ask).remove(0)
    }

    fn term(&mut self) -> Term {
        let Holder { id, label, .. } = self.holder();
        let ended = self.often().then(|| (i64::MIN, "died".to_owned()));
        Term { token: self.token(), id, label, granted_unix_ms: i64::MAX, ended }
    }

    /// A body of each kind.
    fn body(&mut self, own: &Cluster) -> Body {
        let id = |draw: &mut Self| wire::candidate_bytes(draw.holder().id);
        match self.below(32) {
            0 => Body::Hello(Hello {
                version: VERSION + u32::from(!self.often()),
                cluster: if self.often() { own.id_bytes() } else { vec![7; self.below(40)] },
                name: "\u{202e}web-1".repeat(self.below(40)),
                to: ["", "a@h:1", "b@h:1", "?"][self.below(4)].to_owned(),
                role: u32::try_from(self.below(6)).expect("few"),
                protocol: ["", "kv/1"][self.below(2)].to_owned(),
                voter: vec![7; self.below(40)],
            }),
            1 => Body::Welcome(Welcome {
                version: VERSION,
                voter: wire::voter_bytes(VoterId::from_bits(self.0.random())),
                name: "a".to_owned(),
                cluster: self.often().then(|| (&self.cluster(own)).into()),
                proves: self.often(),
                echoes: self.often(),
                process: vec![7; self.below(40)],
                generation: self.number(),
                gives_evidence: self.often(),
                role: u32::try_from(self.below(6)).expect("few"),
                is_link: self.often(),
            }),
            2 => Body::Refused(RefusalFrame {
                why: "not \u{1b}[31mnow".to_owned(),
                is_passing: self.often(),
                is_denied: self.often(),
            }),
            3 | 4 => Body::Ask(wire::ElectionRequest {
                voters: if self.often() { 0 } else { self.number() },
                election: self.election().as_str().to_owned(),
                body: Some((&self.ask()).into()),
                waits: self.often().then(|| WaitingEntry {
                    who: Some((&self.holder()).into()),
                    note: "é".repeat(self.below(400)),
                    age_ns: self.number(),
                    rank: wire::rank_bytes(Rank::new(&[-3, 7]).expect("few")),
                }),
                asker: id(self),
                lists: self.often(),
                reason: "resigned".repeat(self.below(20)),
            }),
            5 => Body::Answer((&self.answer()).into()),
            6 => Body::Watch(self.election().as_str().to_owned()),
            7 => Body::Hint(self.election().as_str().to_owned()),
            8 => Body::List(true),
            9 => Body::Listed(Names { names: vec!["jobs".to_owned(); self.below(5)] }),
            10 => Body::Recall(Recall { election: "jobs".to_owned(), limit: u32::MAX }),
            11 => Body::Recalled(Terms { terms: (0..self.below(4)).map(|_| (&self.term()).into()).collect() }),
            12 => Body::Found((&self.cluster(own)).into()),
            13 => Body::Probe(true),
            14 => {
                Body::Probed(ProbeReply { product: "primacy".to_owned(), flushes_ns: vec![u64::MAX; self.below(30)] })
            }
            15 => Body::Leave(Leave { election: "jobs".to_owned(), id: id(self) }),
            16 => Body::Moved((&self.cluster(own)).into()),
            17 => Body::Echo(true),
            28 => Body::ListAfter(self.election().as_str().to_owned()),
            18 => Body::Echoed(EchoReply { requests: self.often().then(|| self.number()) }),
            29 => Body::Behind(self.number()),
            30 => Body::Testify(self.number()),
            31 => {
                let adopted = (0..self.below(4)).map(|_| self.cluster(own)).collect();
                let taken = self.often().then(|| (Ballot { count: self.number(), by: 7 }, self.cluster(own)));
                Body::Testified((&ConfigEvidence { adopted, taken }).into())
            }
            19..=23 => Body::ConfigRequest(self.config_request(own)),
            _ => Body::ConfigReply(ConfigReplyFrame::of(&self.config_reply(own), None)),
        }
    }

    /// With one field more, less or changed, at any depth. `None` if these are no fields.
    fn reshaped(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut fields = fields(bytes).filter(|fields| !fields.is_empty())?;
        let at = self.below(fields.len());
        match self.below(6) {
            0 => drop(fields.remove(at)),
            1 => fields.insert(at, fields[at].clone()),
            _ => match &mut fields[at].1 {
                Value::Number(number) => *number = self.number(),
                Value::Bytes(inner) => {
                    *inner = self.reshaped(inner).unwrap_or_else(|| inner[..inner.len() / 2].to_vec())
                }
            },
        }
        let mut bytes = Vec::new();
        for (key, value) in fields {
            encode_varint(key, &mut bytes);
            match value {
                Value::Number(number) => encode_varint(number, &mut bytes),
                Value::Bytes(inner) => {
                    encode_varint(u64::try_from(inner.len()).expect("short"), &mut bytes);
                    bytes.extend(inner);
                }
            }
        }
        Some(bytes)
    }

    /// The same, or what somebody else made of it.
    fn spoilt(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.often() {
            for _ in 0..self.below(8) {
                bytes = self.reshaped(&bytes).unwrap_or(bytes);
            }
            return bytes;
        }
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len().max(1)).min(bytes.len());
            let end = (at + self.below(12)).min(bytes.len());
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] = self.0.random(),
                1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.0.random()),
                4 => drop(bytes.drain(at..end)),
                _ => {
                    let again = bytes[at..end].repeat(self.below(4));
                    bytes.splice(at..at, again);
                }
            }
        }
        bytes
    }
}

/// What a field holds.
#[derive(Clone)]
enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message, by their keys.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Value)>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = decode_varint(&mut bytes).ok()?;
        let number = decode_varint(&mut bytes).ok()?;
        all.push(match key & 7 {
            0 => (key, Value::Number(number)),
            2 => {
                let (inner, rest) = bytes.split_at_checked(usize::try_from(number).ok()?)?;
                bytes = rest;
                (key, Value::Bytes(inner.to_vec()))
            }
            _ => return None,
        });
    }
    Some(all)
}

fn roster(first: u128, names: &[&str]) -> Roster {
    let voter = |name: &&str| {
        let id = VoterId::from_bits(first + u128::from(name.as_bytes()[0]));
        ((*name).to_owned(), (id, format!("{name}@h:1").parse().expect("an address")))
    };
    names.iter().map(voter).collect()
}

impl Listener {
    /// That of a voter without sockets.
    pub(in super::super) fn alone(cluster: watch::Receiver<Option<Cluster>>, post: mpsc::Sender<VoterCommand>) -> Self {
        Self {
            own: "a@h:1".parse().expect("an address"),
            stays_here: true,
            voter: OWN,
            process: Arc::default(),
            told: Vec::new(),
            roles: RoleNames::default(),
            tls: None,
            known: KnownVoters {
                names: ["a", "b", "c"].map(str::to_owned).to_vec(),
                cluster,
                seen: watch::channel(None).1,
            },
            links: None,
            post,
            refusals: Default::default(),
            requests: watch::channel(None).1,
        }
    }
}

/// A voter as its process has it, but for sockets and disk.
struct Subject {
    listener: Listener,
    task: VoterTask,
    out: ReplySender,
    folder: tempfile::TempDir,
    _inbox: (mpsc::Receiver<VoterCommand>, ReplyReceiver),
}

impl Subject {
    fn new(cluster: Option<&Cluster>) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let mut data = VoterFileData::of(OWN);
        data.cluster = cluster.map(|cluster| wire::Cluster::from(cluster).encode_to_vec());
        let elections = HostedElections::restarted(data, folder.path(), 20_000, clock::now()).expect("it is sound");
        let (known, told) = watch::channel(cluster.cloned());
        let (post, inbox) = mpsc::channel(1);
        let (out, sent) = ReplySender::new();
        let listener = Listener::alone(told, post);
        Self { listener, task: VoterTask::new(elections, known, Arc::default()), out, folder, _inbox: (inbox, sent) }
    }

    /// Whatever it is, it is refused, or done and answered; and what is kept of it can be read again.
    fn hears(&mut self, number: u64, body: Body) -> bool {
        if let Body::Hello(hello) = &body {
            let why = self.listener.objection(hello).unwrap_or_default();
            assert!(why.len() < 2_000 && !why.chars().any(char::is_control), "{why:?}");
        }
        let Ok(command) =
            self.listener.command(number, body, &self.out, ("mallory", &Principal::new(Authentication::Nothing)))
        else {
            return false;
        };
        let Some(command) = command else { return true };
        self.task.take(command, clock::now());
        if let Some(data) = self.task.done(FRAME_BYTES_MAX) {
            let read = VoterFileData::from_bytes(&data.to_bytes());
            assert_eq!(read.as_ref(), Ok(&data), "it is written as it can be read");
            let again = HostedElections::<()>::restarted(data, self.folder.path(), 20_000, clock::now());
            assert!(again.is_ok(), "it starts again");
        }
        true
    }
}

const OWN: VoterId = VoterId::from_bits(9 + b'a' as u128);

/// What clients make of it. Returns whether it could be used.
fn is_used_by_clients(body: Body, client: &mut QuorumClient, own: &Cluster, draw: &mut Draw) -> bool {
    let from = VoterId::from_bits(9 + u128::from(b"abc"[draw.below(3)]));
    match body {
        Body::Welcome(welcome) => {
            let cluster = welcome.cluster.map(Cluster::try_from).transpose();
            wire::voter(&welcome.voter).is_ok() && cluster.is_ok_and(|cluster| cluster.is_none_or(|c| c.has(from)))
        }
        Body::Refused(refused) => {
            assert!(!primacy_core::ids::escape(&refused.why).chars().any(char::is_control));
            true
        }
        Body::Answer(reply) => {
            let Ok(told) = Piggyback::try_from(&reply) else { return false };
            assert_eq!(Piggyback::try_from(&Reply::from(&told)), Ok(told.clone()), "it can be told again");
            let mut out = Vec::new();
            client.answered(from, client.round(), told.answer, &mut out);
            if draw.below(8) == 0 {
                client.conclude(&mut out);
                client.ask_again(&mut out);
            }
            if out.iter().any(|output| matches!(output, Output::Done(_))) {
                begin(client, draw);
            }
            true
        }
        Body::Moved(cluster) => Cluster::try_from(cluster).is_ok_and(|cluster| {
            client.moved(cluster.voter_set(), &mut Vec::new());
            *client = QuorumClient::new(own.voter_set());
            begin(client, draw);
            true
        }),
        Body::ConfigReply(reply) => reply.checked().is_ok_and(|(answer, _)| {
            let wanted = own.joint(roster(9, &["a", "b", "d"]));
            let mut change = ReconfigurationAttempt::new(own.clone(), Some(wanted), 7);
            let mut out = Vec::new();
            change.resume(&mut out);
            for sent in std::mem::take(&mut out) {
                if let ReconfigurationOutput::Send { to, round, .. } = sent {
                    change.answered(to, round, answer.clone(), &mut out);
                }
            }
            true
        }),
        Body::Recalled(terms) => terms.terms.iter().all(|term| Term::try_from(term).is_ok()),
        Body::Testified(said) => said.checked(own).is_ok_and(|said| {
            assert!(said.adopted.iter().all(|adopted| adopted.is_same(own) && adopted.number() > own.number()));
            let mut acceptor =
                ConfigAcceptor::restarted(Some(own.clone()), Ballot::default(), None, &NoElections, Instant::ZERO);
            acceptor.catch_up(&[(from, said)].into(), &NoElections, Instant::ZERO);
            acceptor.configuration() == Some(own) || own.voter_set().old().len() == 1
        }),
        Body::Listed(names) => names.names.iter().all(|name| wire::election(name).is_ok()),
        _ => true,
    }
}

/// A voter that has promised nothing.
struct NoElections;

impl VoterPromises for NoElections {
    fn bound_until(&self, _: Instant) -> Option<Instant> {
        None
    }

    fn kept(&self) -> BTreeMap<ElectionName, Durable> {
        BTreeMap::new()
    }

    fn inherit(&mut self, _: &ElectionName, _: &Durable, _: Instant) -> Option<Duration> {
        None
    }
}

fn begin(client: &mut QuorumClient, draw: &mut Draw) {
    let mut out = Vec::new();
    if draw.often() {
        client.begin(Request::Look { announce: None }, &mut out);
    } else {
        let orders = draw.durable().1.orders;
        client.order(orders, Some(draw.token()), &mut out);
    }
}

#[test]
fn no_frame_of_any_kind_does_any_harm() {
    let own = Cluster::known(OWN_CLUSTER, 0, roster(9, &["a", "b", "c"]), None);
    let new = || (Subject::new(Some(&own)), Subject::new(None), QuorumClient::new(own.voter_set()));
    let (mut voter, mut outside, mut client) = new();
    let mut counts = [0_u32; 5];
    for seed in SEED..SEED + FRAMES {
        // One that has been led astray, by terms and voters that nobody may exceed, does not hide the rest.
        if seed % 500 == 0 {
            (voter, outside, client) = new();
        }
        let harmless = catch_unwind(AssertUnwindSafe(|| {
            let draw = &mut Draw(StdRng::seed_from_u64(seed));
            let frame = Frame { number: draw.number(), body: Some(draw.body(&own)) };
            let bytes = draw.spoilt(frame.encode_to_vec());
            let Ok(Frame { number, body: Some(body) }) = Frame::decode(&*bytes) else { return [1, 0, 0, 0, 0] };
            let at_voter = voter.hears(number, body.clone());
            let at_new = outside.hears(number, body.clone());
            let at_client = is_used_by_clients(body, &mut client, &own, draw);
            [0, u32::from(at_voter), u32::from(!at_voter), u32::from(at_new), u32::from(at_client)]
        }));
        let told = harmless.unwrap_or_else(|_| panic!("seed {seed}"));
        counts.iter_mut().zip(told).for_each(|(count, more)| *count += more);
    }
    assert!(counts.iter().all(|count| *count > 600), "everything happens: {counts:?}");
}

#[test]
fn no_file_that_somebody_has_changed_does_any_harm() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let own = Cluster::known(OWN_CLUSTER, 0, roster(9, &["a", "b", "c"]), None);
    let (mut read, mut refused) = (0, 0);
    for seed in SEED..SEED + 400 {
        let harmless = catch_unwind(AssertUnwindSafe(|| {
            let draw = &mut Draw(StdRng::seed_from_u64(seed));
            let mut content = file_data(seed);
            // As if the checksum were right: what a program has written that was wrong itself.
            content.cluster =
                draw.often().then(|| draw.cluster(&own)).map(|own| wire::Cluster::from(&own).encode_to_vec());
            content.cluster = content.cluster.map(|bytes| draw.spoilt(bytes));
            content.next = content.next.map(|bytes| draw.spoilt(bytes));
            let whole = VoterFileData::from_bytes(&draw.spoilt(content.to_bytes()));
            let is_started = |data: VoterFileData| {
                HostedElections::<()>::restarted(data, folder.path(), 20_000, clock::now()).is_ok()
            };
            is_started(content) | whole.is_ok_and(is_started)
        }));
        *if harmless.unwrap_or_else(|_| panic!("seed {seed}")) { &mut read } else { &mut refused } += 1;
    }
    assert!(read > 20 && refused > 20, "both happen: {read} {refused}");
}

#[test]
fn a_text_is_cut_between_characters() {
    for (text, most, shown) in
        [("", 2, ""), ("é", 1, "é"), ("éé", 2, "éé"), ("ééé", 2, "éé"), ("abc", 2, "ab"), ("é", 0, "")]
    {
        assert_eq!(cut(text.to_owned(), most), shown, "{text} to {most}");
    }
}
