//! Every frame that asks a voter for something, from everybody who may come, to real voters with real certificates. The design
//! page on roles holds the same table.

use std::fs::{self, Permissions};
use std::io;
use std::mem::discriminant;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use primacy_core::lease::Holder;
use primacy_core::quorum::{Ask, Ballot, ConfigRequest, Configuration as _, OrderNumbers, Orders, VoterId};
use prost::Message as _;
use prost::encoding::encode_varint;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use super::command::ReplySender;
use super::listener::{AN_ANSWER, Listener};
use super::principal::{self, Authentication, Principal};
use super::{Links, Peer, PeerSettings};
use crate::peers::client::dial::{EstablishedConnection, Transport, connect, dial, greet};
use crate::peers::config::{Cluster, PeerAddress, Role, RoleNames, Roster, certs};
use crate::peers::tls::{Identity, Tls};
use crate::peers::wire::channel::{self, Receiver, Sender};
use crate::peers::wire::{
    self, Body, ConfigRequestFrame, ElectionRequest, Frame, Hello, Leave, Recall, RefusalFrame, RequestBody, VERSION,
    WaitingEntry, Welcome,
};
use crate::{CandidateId, Label, Token};

const PATIENCE: Duration = Duration::from_secs(20);

/// A step that no voter is at.
const NOWHERE: u64 = 999;

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {what}"))
}

// ---- what is asked ----

/// A frame, as the page names it, the least role that it takes, by the product's own table, and one that changes nothing.
struct Row {
    name: &'static str,
    /// `None`: nobody may, once the voters have been brought together.
    least: Option<Role>,
    body: Body,
}

fn holder() -> Holder {
    Holder { id: CandidateId::from_bits(7), label: Label::new("web-1").expect("valid"), data: String::new() }
}

fn ask(ask: &Ask, waits: bool) -> Body {
    let waits =
        waits.then(|| WaitingEntry { who: Some((&holder()).into()), note: String::new(), age_ns: 0, rank: Vec::new() });
    Body::Ask(ElectionRequest {
        election: "matrix".to_owned(),
        body: Some(RequestBody::from(ask)),
        waits,
        asker: wire::candidate_bytes(holder().id),
        ..ElectionRequest::default()
    })
}

fn acceptor(ask: &ConfigRequest<Cluster>) -> Body {
    Body::ConfigRequest(ConfigRequestFrame::of(ask).remove(0))
}

fn rows(cluster: &Cluster) -> Vec<Row> {
    let (term, id, ballot) = (Token::new(1).expect("small"), holder().id, Ballot { count: 1, by: 7 });
    let claim = Ask::Claim {
        term: Token::NONE,
        holder: holder(),
        lease: Duration::from_secs(1),
        seen: OrderNumbers::default(),
        granted: None,
    };
    let (_known, known) = watch::channel(Some(cluster.clone()));
    let listener = Listener::alone(known, mpsc::channel(1).0);
    let row = |name, body| Row { name, least: least(&listener, &body), body };
    let mut rows = vec![
        row("`Ask` `Read`", ask(&Ask::Read, false)),
        row("`Watch`", Body::Watch("matrix".to_owned())),
        row("`List`", Body::List(true)),
        row("`ListAfter`", Body::ListAfter("matrix".to_owned())),
        row("`Recall`", Body::Recall(Recall { election: "matrix".to_owned(), limit: 9 })),
        row("`Probe`", Body::Probe(true)),
        row("`Echo`", Body::Echo(true)),
        row("`Testify`", Body::Testify(0)),
        row("`Ask` that announces its candidate", ask(&Ask::Read, true)),
        row("`Ask` `Claim`", ask(&claim, false)),
        row(
            "`Ask` `Renew`",
            ask(&Ask::Renew { term, id, beat: 1, lease: Duration::from_secs(1), completed_order: 0 }, false),
        ),
        row("`Ask` `Withdraw`", ask(&Ask::Withdraw { term, id, beat: 1 }, false)),
        row("`Ask` `Release`", ask(&Ask::Release { term, id, beat: 1, completed_order: 0 }, false)),
        row("`Leave`", Body::Leave(Leave { election: "matrix".to_owned(), id: wire::candidate_bytes(id) })),
        row("`Behind`", Body::Behind(1 << 63)),
        row("`Ask` `Order`", ask(&Ask::Order { orders: Orders::default(), token: None }, false)),
        row("`Ask` `Forget`", ask(&Ask::Forget { term }, false)),
        row("`ConfigRequest` `Prepare`", acceptor(&ConfigRequest::Prepare { number: NOWHERE, ballot })),
        row(
            "`ConfigRequest` `Take`",
            acceptor(&ConfigRequest::Take {
                number: NOWHERE,
                ballot,
                proposal: cluster.joint(cluster.voters().clone()),
            }),
        ),
        row("`ConfigRequest` `Adopt`", acceptor(&ConfigRequest::Adopt(cluster.clone()))),
        row("`ConfigRequest` `Report`", acceptor(&ConfigRequest::Report { number: NOWHERE })),
        row(
            "`ConfigRequest` `Inherit`",
            acceptor(&ConfigRequest::Inherit { number: NOWHERE, elections: Default::default() }),
        ),
        row("`Found`, when the voters have met", Body::Found((&cluster.joint(cluster.voters().clone())).into())),
        row("`Hello`, a second one", Body::Hello(Hello { role: 3, ..greeting("", 3) })),
    ];
    let is_answer =
        |body: &Body| listener.parse(1, body.clone(), &ReplySender::new().0, &stranger()).err() == Some(AN_ANSWER);
    rows.extend(known_frames().into_iter().filter(is_answer).map(|body| row("`Welcome`, or any other answer", body)));
    rows
}

fn stranger() -> Principal {
    Principal::new(Authentication::Nothing)
}

/// The least role from which the product takes this frame, by its own table; `None`: it takes it from nobody.
fn least(listener: &Listener, body: &Body) -> Option<Role> {
    match listener.parse(1, body.clone(), &ReplySender::new().0, &stranger()) {
        Ok(Some(command)) => Some(principal::right(&command).0),
        // It is answered at once, to anyone.
        Ok(None) => Some(Role::Observer),
        Err(_) => None,
    }
}

/// Every frame that this version knows, with nothing in it. They are found by what it can read, so that none is forgotten.
fn known_frames() -> Vec<Body> {
    let mut known: Vec<Body> = Vec::new();
    for body in fields().filter_map(|bytes| Frame::decode(&*bytes).ok()?.body) {
        let kinds: Vec<Body> = match body {
            Body::Ask(_) => {
                let questions = fields().filter_map(|bytes| ElectionRequest::decode(&*bytes).ok());
                questions.filter(|question| question.body.is_some()).map(Body::Ask).collect()
            }
            Body::ConfigRequest(_) => {
                let questions = fields().filter_map(|bytes| ConfigRequestFrame::decode(&*bytes).ok());
                questions.filter(ConfigRequestFrame::asks).map(Body::ConfigRequest).collect()
            }
            other => vec![other],
        };
        for kind in kinds {
            if !known.iter().any(|known| is_like(known, &kind)) {
                known.push(kind);
            }
        }
    }
    known
}

/// Messages of one field each: all numbers that a field has here, in every way to write a field.
fn fields() -> impl Iterator<Item = Vec<u8>> {
    const WAYS: [(u64, &[u8]); 4] = [(0, &[1]), (1, &[0; 8]), (2, &[0]), (5, &[0; 4])];
    (1..200).flat_map(|field| {
        WAYS.into_iter().map(move |(wire_type, content)| {
            let mut bytes = Vec::new();
            encode_varint(field << 3 | wire_type, &mut bytes);
            bytes.extend(content);
            bytes
        })
    })
}

fn is_like(one: &Body, other: &Body) -> bool {
    match (one, other) {
        (Body::Ask(one), Body::Ask(other)) => {
            one.body.as_ref().map(discriminant) == other.body.as_ref().map(discriminant)
        }
        (Body::ConfigRequest(one), Body::ConfigRequest(other)) => one.is_like(other),
        _ => discriminant(one) == discriminant(other),
    }
}

#[test]
fn every_frame_has_a_row() {
    let (known, rows) = (known_frames(), rows(&any_cluster()));
    assert!(known.len() > 30, "{known:?}");
    for body in known {
        assert!(rows.iter().any(|row| is_like(&row.body, &body)), "say in rows() from whom this is taken: {body:?}");
    }
}

// ---- who asks ----

/// Everybody who may come, as the page names them, and the role that each has.
const CALLERS: [(&str, Option<Role>); 10] = [
    ("voter", Some(Role::Voter)),
    ("operator", Some(Role::Operator)),
    ("candidate", Some(Role::Candidate)),
    ("candidate that claims to be an operator", Some(Role::Candidate)),
    ("observer", Some(Role::Observer)),
    ("socket: root or the voter's user", Some(Role::Operator)),
    ("socket: others of its group", Some(Role::Candidate)),
    ("the same, and it claims to be an operator", Some(Role::Candidate)),
    ("another cluster", None),
    ("plain text", Some(Role::Voter)),
];

fn greeting(to: &str, role: u32) -> Hello {
    Hello {
        version: VERSION,
        cluster: Vec::new(),
        name: "mallory".to_owned(),
        to: to.to_owned(),
        role,
        ..Hello::default()
    }
}

type Greeting = io::Result<(Welcome, Sender, Receiver)>;

/// Who talks to a socket as another user, until it is dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const RELAY: &str = r#"
use IO::Socket::UNIX;
my $s = IO::Socket::UNIX->new($ARGV[0]) or die;
if (fork) { while (sysread(STDIN, my $b, 65536)) { syswrite($s, $b) } shutdown($s, 1) }
else { while (sysread($s, my $b, 65536)) { syswrite(STDOUT, $b) } shutdown(STDOUT, 1) }
"#;

/// A connection to this socket by a user that is in the group of the socket and is not its owner.
fn by_another_user(socket: &Path) -> (Other, UnixStream) {
    let (own, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    own.set_nonblocking(true).expect("it is ours");
    let (input, output) = (OwnedFd::from(theirs.try_clone().expect("it is ours")), OwnedFd::from(theirs));
    let mut command = Command::new("perl");
    command.args(["-e", RELAY]).arg(socket).stdin(Stdio::from(input)).stdout(Stdio::from(output)).uid(65_534).gid(0);
    let child = command.spawn().expect("perl is there");
    (Other(child), UnixStream::from_std(own).expect("it is ours"))
}

struct World {
    folder: tempfile::TempDir,
    voters: Vec<PeerAddress>,
    peers: Vec<Peer>,
    _links: Vec<Links>,
    plain: (PeerAddress, Peer, tempfile::TempDir),
}

fn free() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("a port")
}

fn settings(folder: &Path, own: &PeerAddress, voters: &[PeerAddress], tls: Option<Arc<Tls>>) -> PeerSettings {
    PeerSettings {
        name: own.name().to_owned(),
        listen: own.place().parse().expect("an address"),
        voters: voters.to_vec(),
        folder: folder.join(own.name()),
        socket: Some(folder.join(format!("{}.socket", own.name()))),
        drift_ppm: 20_000,
        roles: RoleNames::default(),
        tls,
    }
}

impl World {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
        let names = ["a", "b", "c", "operator-1", "web-1", "observer"].map(str::to_owned);
        certs::make(&folder.path().join("certs"), &names, 1).expect("they can be made");
        let voters: Vec<PeerAddress> =
            names[..3].iter().map(|name| format!("{name}@{}", free()).parse().expect("an address")).collect();
        let (mut peers, mut links) = (Vec::new(), Vec::new());
        for own in &voters {
            let tls = tls(folder.path(), own.name());
            let (peer, taking) =
                Peer::start_with_links(settings(folder.path(), own, &voters, Some(tls))).await.expect("it starts");
            peers.push(peer);
            links.push(taking);
        }
        for peer in &peers {
            within("the voters to meet", peer.founded()).await;
        }
        let place: PeerAddress = format!("p@{}", free()).parse().expect("an address");
        let aside = tempfile::tempdir().expect("a folder for the test");
        let alone = settings(aside.path(), &place, std::slice::from_ref(&place), None);
        let (plain, taking) = Peer::start_with_links(alone).await.expect("it starts");
        links.push(taking);
        within("it to be founded", plain.founded()).await;
        Self { folder, voters, peers, _links: links, plain: (place, plain, aside) }
    }

    fn tls(&self, name: &str) -> Arc<Tls> {
        tls(self.folder.path(), name)
    }

    /// The voters, as one of them tells.
    async fn cluster(&self, n: usize) -> Cluster {
        let transport = Transport::Network(Some(self.tls("observer")));
        let EstablishedConnection { cluster, .. } =
            dial(&self.voters[n], &transport, Vec::new(), "test").await.expect("it is there");
        cluster.expect("they have met")
    }

    async fn by_certificate(&self, name: &str, hello: Hello) -> Greeting {
        greet(connect(&self.voters[1], Some(&self.tls(name))).await?, hello).await
    }

    /// A connection to a voter from one of [`CALLERS`].
    async fn call(&self, who: &str, protocol: &str, others: &mut Vec<Other>) -> Greeting {
        let greeting = |to: &str, role| Hello { protocol: protocol.to_owned(), ..greeting(to, role) };
        let beyond = self.voters[1].to_string();
        let socket = self.folder.path().join("a.socket");
        match who {
            "voter" => self.by_certificate("a", greeting("", 0)).await,
            "operator" => self.by_certificate("operator-1", greeting("", 0)).await,
            "candidate" => self.by_certificate("web-1", greeting("", 0)).await,
            "candidate that claims to be an operator" => self.by_certificate("web-1", greeting(&beyond, 3)).await,
            "observer" => self.by_certificate("observer", greeting("", 4)).await,
            "socket: root or the voter's user" => {
                greet(Box::new(UnixStream::connect(socket).await?), greeting(&beyond, 0)).await
            }
            "socket: others of its group" | "the same, and it claims to be an operator" => {
                let (other, stream) = by_another_user(&socket);
                others.push(other);
                let role = if who.starts_with("the same") { 3 } else { 0 };
                greet(Box::new(stream), greeting(&beyond, role)).await
            }
            "another cluster" => {
                let hello = Hello { cluster: vec![7; 16], ..greeting("", 0) };
                self.by_certificate("operator-1", hello).await
            }
            "plain text" => {
                // It is believed what it says: also that it is that voter.
                greet(connect(&self.plain.0, None).await?, Hello { name: "p".to_owned(), ..greeting("", 0) }).await
            }
            other => panic!("nobody is called {other}"),
        }
    }

    /// How a voter takes each of these frames from somebody: `yes`, `no`, or `ends`, if that ends the connection.
    async fn takes(&self, who: &str, bodies: impl IntoIterator<Item = Body>) -> Vec<&'static str> {
        let (mut others, mut channel, mut taken) = (Vec::new(), None, Vec::new());
        for body in bodies {
            if channel.is_none() {
                channel = self.call(who, "", &mut others).await.ok().map(|(_, sender, receiver)| (sender, receiver));
            }
            let Some((sender, receiver)) = &mut channel else {
                taken.push("ends");
                continue;
            };
            let answer = match sender.send(5, body).await {
                Ok(()) => within("an answer", receiver.next()).await,
                Err(error) => Err(error),
            };
            taken.push(match &answer {
                Ok(Some((_, Body::Refused(RefusalFrame { is_denied: true, .. })))) => "no",
                Ok(Some(_)) => "yes",
                Ok(None) | Err(_) => "ends",
            });
            // Who watches hears of other things too.
            if !matches!(answer, Ok(Some((5, _)))) {
                channel = None;
            }
        }
        taken
    }
}

fn tls(folder: &Path, name: &str) -> Arc<Tls> {
    Arc::new(Tls::load(&Identity::within(&folder.join("certs"), name)).expect("they fit"))
}

fn expected(role: Option<Role>, least: Option<Role>) -> &'static str {
    match (role, least) {
        (Some(role), Some(least)) if role >= least => "yes",
        (Some(_), Some(_)) => "no",
        _ => "ends",
    }
}

/// What comes of a greeting that names a protocol of a program.
fn link_expected(role: Option<Role>) -> &'static str {
    if role == Some(Role::Voter) { "yes" } else { "ends" }
}

/// The table of the page.
fn page(rows: &[Row]) -> String {
    let head = CALLERS.iter().map(|(who, _)| format!(" {who} |")).collect::<String>();
    let mut text = format!("| frame |{head}\n|---|{}\n", "---|".repeat(CALLERS.len()));
    for (_, row) in rows.iter().enumerate().filter(|(n, row)| *n == 0 || rows[n - 1].name != row.name) {
        let cells = CALLERS.iter().map(|(_, role)| format!(" {} |", expected(*role, row.least))).collect::<String>();
        text += &format!("| {} |{cells}\n", row.name);
    }
    let cells = CALLERS.iter().map(|(_, role)| format!(" {} |", link_expected(*role))).collect::<String>();
    text + &format!("| `Hello` that names a protocol of a program |{cells}\n")
}

fn any_cluster() -> Cluster {
    let voter = |(name, n): (&str, u128)| {
        let address = format!("{name}@h:{n}").parse().expect("an address");
        (name.to_owned(), (VoterId::from_bits(n), address))
    };
    Cluster::of([("a", 1), ("b", 2), ("c", 3)].into_iter().map(voter).collect::<Roster>())
}

#[test]
fn the_page_holds_this_table() {
    let table = page(&rows(&any_cluster()));
    let page = include_str!("../../../../../docs/design/roles.md");
    assert!(page.contains(&table), "docs/design/roles.md is to hold:\n{table}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_frame_is_taken_from_those_who_may_and_from_nobody_else() {
    let world = World::start().await;
    let cluster = world.cluster(1).await;
    let plain = Transport::Network(None);
    let EstablishedConnection { cluster: alone, .. } =
        dial(&world.plain.0, &plain, Vec::new(), "test").await.expect("it is there");
    let alone = alone.expect("it is founded");
    for (who, role) in CALLERS {
        let of = if who == "plain text" { &alone } else { &cluster };
        let taken = world.takes(who, rows(of).into_iter().map(|row| row.body)).await;
        for (row, taken) in rows(of).iter().zip(taken) {
            assert_eq!(taken, expected(role, row.least), "{} from {who}", row.name);
        }
    }
    for (who, role) in CALLERS {
        let answer = world.call(who, "kv/1", &mut Vec::new()).await;
        let taken = if answer.is_ok_and(|(welcome, ..)| welcome.is_link) { "yes" } else { "ends" };
        assert_eq!(taken, link_expected(role), "a connection of a program from {who}");
    }
    for n in 0..3 {
        assert_eq!(world.cluster(n).await, cluster, "nothing of all that has changed who votes");
    }
    assert_eq!(world.peers.len(), 3);
}

/// Who brings voters together may not have seen yet that one was told, and tells it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_is_told_twice_to_vote_with_the_same_goes_on() {
    let world = World::start().await;
    let cluster = world.cluster(1).await;
    let (_, mut sender, mut receiver) = world.by_certificate("a", greeting("", 0)).await.expect("it is there");
    sender.send(1, Body::Found((&cluster).into())).await.expect("it is there");
    sender.send(2, ask(&Ask::Read, false)).await.expect("it is there");
    let answer = within("an answer", receiver.next()).await.expect("the connection stays");
    assert!(matches!(answer, Some((2, Body::Answer(_)))), "{answer:?}");
    assert_eq!(world.cluster(1).await, cluster);
    // From another it is refused as ever.
    assert_eq!(world.takes("operator", [Body::Found((&cluster).into())]).await, ["ends"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_candidate_makes_a_voter_adopt_anything_and_no_operator_uses_up_the_numbers() {
    let world = World::start().await;
    let cluster = world.cluster(0).await;
    let evil: Roster =
        [("evil".to_owned(), (VoterId::from_bits(9), "evil@127.0.0.1:9".parse().expect("an address")))].into();
    let next = cluster.joint(evil.clone());
    let with = |number, of: &Cluster| {
        let mut sent = wire::Cluster::from(of);
        sent.number = number;
        Cluster::try_from(sent).expect("it can be read")
    };
    let alone = next.settled().expect("it changes");
    let forged = [with(1 << 63, &alone), with(u64::MAX, &alone), with(1, &alone), alone.clone(), next.clone()];
    let candidates = CALLERS.iter().filter(|(_, role)| *role == Some(Role::Candidate));
    for (who, _) in candidates {
        let sent = forged.iter().map(|forged| acceptor(&ConfigRequest::Adopt(forged.clone())));
        assert_eq!(world.takes(who, sent).await, ["no"; 5], "{who}");
    }
    // What an operator may do is bounded too: a wrong step is not taken.
    for forged in &forged[..3] {
        let sent = [acceptor(&ConfigRequest::Adopt(forged.clone()))];
        assert_eq!(world.takes("operator", sent).await, ["yes"], "it is answered");
        assert_eq!(world.cluster(1).await, cluster, "and not done");
    }
    for n in 0..3 {
        assert_eq!(world.cluster(n).await, cluster);
    }
    for n in 0..3 {
        let (_, mut sender, mut receiver) =
            greet(connect(&world.voters[n], Some(&world.tls("web-1"))).await.expect("it is there"), greeting("", 0))
                .await
                .expect("it greets");
        sender.send(1, ask(&Ask::Read, false)).await.expect("it is there");
        let answer = within("an answer", receiver.next()).await.expect("it stays");
        assert!(matches!(answer, Some((1, Body::Answer(_)))), "the voters go on: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_socket_nothing_reaches_what_does_not_greet_as_a_voter() {
    let world = World::start().await;
    let strange = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = format!("zz@{}", strange.local_addr().expect("bound"));
    let socket = world.folder.path().join("a.socket");
    // Who is no operator reaches voters only.
    let (_other, stream) = by_another_user(&socket);
    let refused = greet(Box::new(stream), greeting(&to, 0)).await.map(|_| ()).expect_err("it is no voter");
    assert!(refused.to_string().contains("knows of no voter zz@"), "{refused}");
    // An operator may greet one that is to come: but nothing else is said before that has greeted back.
    let hello = greeting(&format!("p@{}", strange.local_addr().expect("bound")), wire::role_number(Role::Operator));
    let alone = world.plain.2.path().join("p.socket");
    let asking = tokio::spawn(async move {
        let stream = UnixStream::connect(alone).await.expect("it listens");
        let (mut sender, mut receiver) = channel::channel(Box::new(stream));
        sender.send(0, Body::Hello(Hello { to: hello.to.replace("p@", "q@"), ..hello })).await.expect("it is there");
        sender.send(1, Body::List(true)).await.expect("it is there");
        receiver.next().await
    });
    let (stream, _) = within("the greeting", strange.accept()).await.expect("it comes");
    let (_silent, mut heard) = channel::channel(Box::new(stream));
    assert!(matches!(within("a frame", heard.next()).await, Ok(Some((0, Body::Hello(_))))));
    let next = heard.next().await;
    assert!(matches!(next, Ok(None) | Err(_)), "nothing else: {next:?}");
    let told = within("an answer", asking).await.expect("no panic").expect("an answer");
    assert!(matches!(told, Some((_, Body::Refused(_)))), "{told:?}");
}
