//! Two programs talk over the voters' port, and who may not.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use primacy_core::quorum::Configuration as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;

use super::super::{Peer, PeerSettings};
use super::*;
use crate::peers::config::{Cluster, RoleNames, Roster, certs};
use crate::peers::tls::Identity;
use crate::peers::wire::Welcome;

const PATIENCE: Duration = Duration::from_secs(20);

const KV: &str = "kv/1";

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {what}"))
}

fn free() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("a port")
}

/// Peers on this machine that are still to be started.
struct Site {
    folder: tempfile::TempDir,
    voters: Vec<PeerAddress>,
    is_secure: bool,
}

impl Site {
    fn new(is_secure: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let names = ["a", "b", "c", "operator-1", "web-1", "observer"].map(str::to_owned);
        if is_secure {
            certs::make(&folder.path().join("certs"), &names, 1).expect("they can be made");
        }
        let voters = names[..3].iter().map(|name| format!("{name}@{}", free()).parse().expect("an address"));
        Self { voters: voters.collect(), folder, is_secure }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn tls(&self, name: &str) -> Option<Arc<Tls>> {
        let identity = Identity::within(&self.path().join("certs"), name);
        self.is_secure.then(|| Arc::new(Tls::load(&identity).expect("they fit")))
    }

    fn socket(&self, n: usize) -> PathBuf {
        self.path().join(format!("{n}.socket"))
    }

    fn settings(&self, n: usize) -> PeerSettings {
        let own = &self.voters[n];
        PeerSettings {
            name: own.name().to_owned(),
            listen: own.place().parse().expect("an address"),
            voters: self.voters.clone(),
            folder: self.path().join(own.name()),
            socket: Some(self.socket(n)),
            drift_ppm: 20_000,
            roles: RoleNames::default(),
            tls: self.tls(own.name()),
        }
    }

    async fn start(&self, n: usize) -> (Peer, Links) {
        Peer::start_with_links(self.settings(n)).await.expect("it starts")
    }

    /// Why somebody that greets like this is not let through.
    async fn refusal(&self, n: usize, certificate: &str, hello: Hello) -> String {
        let wire = connect(&self.voters[n], self.tls(certificate).as_deref()).await.expect("it listens");
        greet(wire, hello).await.map(drop).expect_err("it must be refused").to_string()
    }
}

fn hello(name: &str) -> Hello {
    Hello { version: VERSION, name: name.to_owned(), protocol: KV.to_owned(), ..Hello::default() }
}

/// Says back whatever comes, once it has said something itself.
async fn echo(mut link: Link) {
    link.stream.write_all(b"first").await.expect("it stands");
    link.stream.flush().await.expect("it stands");
    let (mut from, mut to) = tokio::io::split(link.stream);
    // Who drops a secure connection does not say so before.
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

async fn is_spoken_over(mut link: Link) {
    let sent: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
    let mut heard = [0; 5];
    within("its first word", link.stream.read_exact(&mut heard)).await.expect("it stands");
    assert_eq!(&heard, b"first");
    let (mut from, mut to) = tokio::io::split(link.stream);
    let mut back = vec![0; sent.len()];
    let writing = async {
        to.write_all(&sent).await?;
        to.flush().await
    };
    let (read, written) = tokio::join!(within("the echo", from.read_exact(&mut back)), writing);
    written.and(read).expect("it stands");
    assert!(back == sent, "all comes back in order");
}

/// The third is not there: nothing can be granted yet.
#[tokio::test]
async fn programs_of_peers_talk_before_the_voters_have_met_and_in_runtimes_of_their_own() {
    for is_secure in [true, false] {
        let site = Site::new(is_secure);
        let (a, mut of_a) = site.start(0).await;
        let (b, mut of_b) = site.start(1).await;
        let id = b.voter();
        let own = of_b.dialer();
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let program = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let link = of_b.accept().await;
                told.send((link.peer.clone(), link.voter, link.protocol.clone())).expect("the test waits");
                echo(link).await;
            });
        });
        let link = within("a link", of_a.dialer().dial(&site.voters[1], KV)).await.expect("b takes it");
        assert_eq!((&*link.peer, link.voter, &*link.protocol), ("b", Some(id), KV));
        is_spoken_over(link).await;
        let (peer, voter, protocol) = within("what b has seen", heard.recv()).await.expect("it is told");
        assert_eq!((&*peer, voter, &*protocol), ("a", Some(a.voter()), KV));
        program.join().expect("no panic");
        // The other way, and at a peer that waits for no voter any more.
        let (_c, _of_c) = site.start(2).await;
        within("the voters to meet", a.founded()).await;
        let taking = tokio::spawn(async move { echo(of_a.accept().await).await });
        is_spoken_over(within("a link", own.dial(&site.voters[0], "other")).await.expect("a takes it")).await;
        within("the end", taking).await.expect("no panic");
    }
}

#[tokio::test]
async fn who_has_sent_before_it_is_welcome_loses_nothing() {
    let site = Site::new(true);
    let (_a, mut of_a) = site.start(0).await;
    let mut wire = connect(&site.voters[0], site.tls("b").as_deref()).await.expect("it listens");
    let frame = wire::Frame { number: 0, body: Some(Body::Hello(hello("b"))) };
    let frame = prost::Message::encode_to_vec(&frame);
    let mut bytes = u32::try_from(frame.len()).expect("short").to_be_bytes().to_vec();
    bytes.extend(frame);
    bytes.extend(b"early");
    wire.write_all(&bytes).await.expect("it listens");
    let mut link = within("a link", of_a.accept()).await;
    assert_eq!((&*link.peer, link.voter), ("b", None));
    let mut heard = [0; 5];
    within("what came early", link.stream.read_exact(&mut heard)).await.expect("it stands");
    assert_eq!(&heard, b"early");
}

#[tokio::test]
async fn nobody_else_than_a_peer_of_the_cluster_is_let_through() {
    let site = Site::new(true);
    let (a, of_a) = site.start(0).await;
    let (_b, _of_b) = site.start(1).await;
    let without = Peer::start(site.settings(2)).await.expect("it starts");
    within("the voters to meet", a.founded()).await;
    within("the voters to meet", without.founded()).await;
    for certificate in ["operator-1", "web-1", "observer"] {
        let why = site.refusal(0, certificate, hello("b")).await;
        assert!(why.contains("programs of voters talk to each other only") && why.contains(certificate), "{why}");
    }
    for (given, part) in [
        (Hello { cluster: vec![7; 16], ..hello("b") }, "belongs to another cluster"),
        (Hello { to: site.voters[0].to_string(), ..hello("b") }, "not through another"),
        (Hello { role: 4, ..hello("b") }, "not through another"),
        (Hello { protocol: "two words".to_owned(), ..hello("b") }, "'two words' names no protocol"),
        (Hello { version: VERSION + 1, ..hello("b") }, "give both the same release"),
    ] {
        let why = site.refusal(0, "b", given).await;
        assert!(why.contains(part), "{part}: {why}");
    }
    for to in ["", &site.voters[1].to_string()] {
        let stream = UnixStream::connect(site.socket(0)).await.expect("it listens");
        let given = Hello { to: to.to_owned(), ..hello("b") };
        let why = greet(Box::new(stream), given).await.map(drop).expect_err("it must be refused").to_string();
        assert!(why.contains("not through the socket of 'a'"), "{why}");
    }
    let dialer = of_a.dialer();
    let refused = async |peer: &PeerAddress, protocol: &str| {
        within("a refusal", dialer.dial(peer, protocol)).await.map(drop).expect_err("it must be refused").to_string()
    };
    let why = refused(&site.voters[2], KV).await;
    assert!(why.contains("'c' takes no connections of programs: start there too what speaks 'kv/1'"), "{why}");
    let stranger = format!("web-1@{}", site.voters[1].place()).parse().expect("an address");
    assert_eq!(refused(&stranger, KV).await, "'web-1' is not among the voters");
    let wrong = format!("b@{}", site.voters[0].place()).parse().expect("an address");
    let why = refused(&wrong, KV).await;
    assert!(why.contains("certificate not valid for name \"b\""), "it is another's: {why}");
    assert!(refused(&site.voters[1], "").await.contains("names no protocol"));
}

#[tokio::test]
async fn in_plain_text_who_comes_says_the_name_of_a_voter_at_least() {
    let site = Site::new(false);
    let (_a, of_a) = site.start(0).await;
    let why = site.refusal(0, "", hello("web-1")).await;
    assert!(why.contains("programs of voters talk to each other only"), "{why}");
    let far: PeerAddress = "b@192.0.2.1:7".parse().expect("an address");
    let why = of_a.dialer().dial(&far, KV).await.map(drop).expect_err("it must be refused").to_string();
    assert!(why.contains("peers on its machine only"), "{why}");
}

/// It knows nothing of protocols of programs, and welcomes any voter.
#[tokio::test]
async fn a_peer_of_an_earlier_release_is_told_from_one_that_lets_through() {
    let site = Site::new(false);
    let (_a, of_a) = site.start(0).await;
    let old = TcpListener::bind(site.voters[1].place()).await.expect("it is free");
    let answering = tokio::spawn(async move {
        let (stream, _) = old.accept().await.expect("a comes");
        let (mut sender, mut receiver) = channel::channel(Box::new(stream));
        assert!(matches!(receiver.first().await, Ok(Body::Hello(_))));
        let welcome = Welcome { version: VERSION, voter: vec![7; 16], name: "b".to_owned(), ..Welcome::default() };
        sender.send(0, Body::Welcome(welcome)).await.expect("a waits");
        receiver.next().await.map(|next| next.is_none())
    });
    let dialer = of_a.dialer();
    let why = within("an error", dialer.dial(&site.voters[1], KV)).await.map(drop).expect_err("it cannot").to_string();
    assert_eq!(why, "'b' runs a release of primacy that carries no connections of programs");
    let ended = within("its end", answering).await.expect("no panic").expect("it ends in order");
    assert!(ended, "nothing is left standing there");
}

#[tokio::test]
async fn links_that_nobody_takes_are_bounded_in_number_and_time() {
    let site = Site::new(false);
    let queue = Arc::new(LinkQueue::new(Duration::from_secs(1)));
    let (_a, dialer) = Peer::launch(site.settings(0), Some(Arc::clone(&queue))).await.expect("it starts");
    let (_b, of_b) = site.start(1).await;
    let taking = Links::new(queue, dialer);
    let mut waiting = Vec::new();
    let why = loop {
        match within("an answer", of_b.dialer().dial(&site.voters[0], KV)).await {
            Ok(link) => waiting.push(link),
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(waiting.len(), UNTAKEN_MOST);
    assert!(why.contains("64 connections wait at 'a' for its program"), "{why}");
    for mut link in waiting {
        let end = within("its end", link.stream.read(&mut [0; 9])).await;
        assert!(matches!(end, Ok(0) | Err(_)), "nobody has taken it: {end:?}");
    }
    let mut again = within("an answer", of_b.dialer().dial(&site.voters[0], KV)).await.expect("there is room again");
    drop(taking);
    let end = within("its end", again.stream.read(&mut [0; 9])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "the program takes none any more: {end:?}");
    let why = of_b.dialer().dial(&site.voters[0], KV).await.map(drop).expect_err("it must be refused").to_string();
    assert!(why.contains("takes no connections of programs"), "{why}");
}

/// Both ends look: each by what it knows itself.
#[tokio::test]
async fn a_link_ends_when_the_other_is_a_fellow_no_more() {
    let roster = |names: &[&str]| -> Roster {
        let voters = names.iter().zip(1_u16..);
        let member = |(name, n): (&&str, u16)| {
            let address = format!("{name}@h:{n}").parse().expect("an address");
            ((*name).to_owned(), (VoterId::from_bits(n.into()), address))
        };
        voters.map(member).collect()
    };
    let own = Cluster::of(roster(&["a", "b", "c"]));
    let joint = own.joint(roster(&["a", "b"]));
    let cases = [
        (vec![own.clone(), joint.clone(), joint.settled().expect("it changes")], "is not among the voters any more"),
        (vec![Cluster::of(roster(&["a", "b", "c"]))], "belongs to another cluster"),
    ];
    for (steps, why) in cases {
        let ((adopted, cluster), (_introduced, seen)) = (watch::channel(None), watch::channel(None));
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let known = KnownVoters { names, cluster, seen };
        let (near, mut far) = tokio::io::duplex(64);
        let parted = known.parted("c".to_owned(), own.id_bytes());
        let wire: Box<dyn channel::Wire> = Box::new(near);
        let mut stream = LinkStream::new((wire, Default::default()), parted, None);
        let last = steps.len() - 1;
        for (n, step) in steps.into_iter().enumerate() {
            if n == last {
                adopted.send_replace(Some(step));
                continue;
            }
            adopted.send_replace(Some(step));
            far.write_all(b"x").await.expect("it is read");
            assert_eq!(within("a word", stream.read_u8()).await.expect("it stands"), b'x');
        }
        let error = within("the end", stream.read_u8()).await.expect_err("it ends");
        assert!(error.to_string().contains(why), "{error}");
        assert!(stream.write_all(b"y").await.is_err() && stream.read_u8().await.is_err());
    }
}
