//! Whatever comes to a voter that does not belong there is refused with one line that says what to do, and its leader goes on.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use primacy_servers::with_wall_clock;

use crate::tap::Tap;
use crate::voters::{Cluster, primacy};
use crate::world::{BRIEF, Line, PATIENCE, STEADY, World, await_death, now};

/// The version of the peers' protocol.
fn version() -> u8 {
    let wire = include_str!("../../../primacy/src/peers/wire/messages.rs");
    let version = wire.split("const VERSION: u32 = ").nth(1).and_then(|rest| rest.split(';').next());
    version.and_then(|version| version.parse().ok()).expect("it stands there")
}

/// The longest frame that a voter reads.
const FRAME_MOST: usize = 1 << 20;

/// The leader does what it did, after this moment too.
fn goes_on(world: &mut World, led: &Line, what: &str) {
    let from = now();
    let on = world.expect(&format!("work after {what}"), |line| line.nanos > from);
    assert_eq!((on.word.as_str(), on.token, on.pid), ("beat", led.token, led.pid), "after {what}");
}

/// A number, as the peers' messages have it.
fn number(tag: u8, value: u8) -> Vec<u8> {
    vec![tag << 3, value]
}

/// Bytes, text or a message in a message.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut all = varint(usize::from(tag) << 3 | 2);
    all.extend(varint(content.len()));
    all.extend(content);
    all
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).expect("seven bits"));
    bytes
}

/// Behind its length.
fn frame(content: &[u8]) -> Vec<u8> {
    [&u32::try_from(content.len()).expect("short").to_be_bytes(), content].concat()
}

/// A greeting that a voter accepts, with these fields beside.
fn hello_with(version: u8, more: &[u8]) -> Vec<u8> {
    frame(&field(2, &[number(1, version), field(3, b"mallory"), more.to_vec()].concat()))
}

fn hello() -> Vec<u8> {
    hello_with(version(), &[])
}

/// That, and then a frame.
fn after_hello(content: &[u8]) -> Vec<u8> {
    [hello(), frame(content)].concat()
}

/// Who votes, as nobody here knows it.
fn another_cluster() -> Vec<u8> {
    let member = |n: u8, name: &str| {
        field(
            2,
            &[field(1, &[n; 16]), field(2, name.as_bytes()), field(3, format!("{name}@127.0.0.1:9").as_bytes())]
                .concat(),
        )
    };
    [field(1, &[7; 16]), member(1, "a"), member(2, "b"), member(3, "c")].concat()
}

/// As many empty messages as make a frame of the longest size.
fn many(tag: u8) -> Vec<u8> {
    field(tag, &[]).repeat(FRAME_MOST / 2 - 16)
}

/// How a stranger goes on when it has said what it has to say.
enum Then {
    Waits,
    Ends,
}
use Then::{Ends, Waits};

/// Says this to a voter, and gives what it answers until it ends the connection.
fn say(port: u16, bytes: &[u8], then: &Then) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    // It may have heard enough before the end.
    let _ = stream.write_all(bytes);
    if matches!(then, Ends) {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answers = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answers) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it does not end the connection");
    }
    answers
}

/// What its log says of one that was refused; nothing else was worth a warning before that.
#[track_caller]
fn refuses(cluster: &Cluster, n: usize, says: &str) {
    let line = cluster.voter(n).await_log(" WARN ");
    assert!(line.contains("a connection is refused: ") && line.contains("from=127.0.0.1:"), "{line}");
    assert!(line.contains(says), "{says:?} in {line}");
}

/// Ends all voters, and makes sure that there was nothing else to warn of.
fn nothing_else_was_said(cluster: &mut Cluster, count: usize) {
    for n in 0..count {
        let log = cluster.end_and_read(n);
        assert!(!log.iter().any(|line| line.contains("WARN") || line.contains("ERROR")), "{log:#?}");
    }
}

#[test]
fn whatever_does_not_belong_is_refused_with_one_line_and_the_leader_goes_on() {
    let mut cluster = Cluster::planned(3).start();
    let tap = Tap::before(cluster.port(0));
    let mut world = World::on(format!("peers://a@127.0.0.1:{},{},{}", tap.port(), cluster.peer(1), cluster.peer(2)));
    let first = world.start("web-1", STEADY, &[]);
    let before = world.expect_start_after(0);
    let second = world.start("web-2", STEADY, &[]);
    world.await_candidates(1);
    let promoted = world.primacy(["promote", "web-2"]).output().expect("it starts");
    assert!(promoted.status.success(), "{promoted:?}");
    let led = world.expect_start_after(before.token);
    drop(first);

    let header = |length: usize| u32::try_from(length).expect("it fits").to_be_bytes().to_vec();
    let too_long = header(FRAME_MOST + 1);
    let speaks = |other: u8, own: &str| {
        let version = version();
        format!(
            "'mallory' speaks version {other} of the peers' protocol, and '{own}' speaks version {version}: give both the same release"
        )
    };
    let (later, earlier) = (speaks(version() + 1, "a"), speaks(version() - 1, "b"));
    let cut = hello()[..12].to_vec();
    let with = |content: Vec<u8>| after_hello(&content);
    // What comes to which voter, how it goes on, and what the log says. A voter tells of ten kinds from one host a minute.
    let cases: Vec<(&str, usize, Vec<u8>, Then, &str)> = vec![
        ("garbage", 0, vec![0xff; 64], Waits, "bytes that are no frame"),
        ("another protocol", 1, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), Waits, "bytes that are no frame"),
        ("garbage in a frame", 2, frame(&[0xff; 8]), Waits, "bytes that are no frame"),
        ("a frame too long", 0, too_long.clone(), Waits, "a frame of more than 1 MiB"),
        ("a frame too long later", 1, [hello(), too_long].concat(), Waits, "a frame of more than 1 MiB"),
        ("half a frame, and the end", 0, cut.clone(), Ends, "half a frame, and then the end"),
        (
            "half a frame later",
            1,
            [hello(), header(9)].concat().into_iter().chain([1]).collect(),
            Ends,
            "half a frame, and then the end",
        ),
        ("half a frame, and silence", 2, cut, Waits, "half a frame, and then nothing"),
        ("no greeting", 1, frame(&field(7, b"default")), Waits, "no greeting"),
        ("a second greeting", 1, [hello(), hello()].concat(), Waits, "a second greeting"),
        ("a later version", 0, hello_with(version() + 1, &[]), Waits, &later),
        ("an earlier version", 1, hello_with(version() - 1, &[]), Waits, &earlier),
        (
            "another cluster",
            0,
            hello_with(version(), &field(2, &[7; 16])),
            Waits,
            "'mallory' belongs to another cluster than 'a': tell it of the peers of its own",
        ),
        (
            "another voter",
            0,
            hello_with(version(), &field(4, b"b@127.0.0.1:9")),
            Waits,
            "'mallory' means another than 'a': mend the addresses",
        ),
        ("what a later version says", 2, with(field(31, b"?")), Waits, "nothing that this version knows"),
        ("what a voter says", 2, with(field(3, &[])), Waits, "something that only a voter says"),
        ("a wrong name", 2, with(field(7, b"a\nb")), Waits, "the name of an election"),
        ("other voters", 0, with(field(13, &another_cluster())), Waits, "other voters than this one was told of"),
        (
            "an exchange for others",
            2,
            with(field(19, &field(5, &another_cluster()))),
            Waits,
            "voters that this one has nothing to do with",
        ),
        ("as many answers as fit", 1, with(field(6, &many(13))), Waits, "something that only a voter says"),
        (
            "as many elections as fit",
            1,
            with(field(19, &field(7, &many(1)))),
            Waits,
            "what no voter keeps of an election",
        ),
    ];
    for (what, n, bytes, then, says) in cases {
        let answers = say(cluster.port(n), &bytes, &then);
        refuses(&cluster, n, says);
        goes_on(&mut world, &led, what);
        if what.ends_with("version") {
            let told = String::from_utf8_lossy(&answers);
            assert!(told.contains(says), "one that is refused reads why: {told}");
        }
    }
    // One that tries again is refused again, and not told of each time.
    say(cluster.port(0), &hello_with(version() + 1, &[]), &Waits);
    // Who only looks whether somebody listens is none to tell of; and a frame of just that length is one.
    say(cluster.port(0), &[], &Ends);
    let longest = FRAME_MOST - hello_with(version(), &field(5, &[0; FRAME_MOST - 64])).len() + FRAME_MOST - 64 + 4;
    let longest = hello_with(version(), &field(5, &vec![0; longest]));
    assert_eq!(longest.len(), FRAME_MOST + 4);
    assert!(!say(cluster.port(0), &longest, &Ends).is_empty(), "it is greeted");

    // What the former leader has sent, asks and all, once more to everybody.
    let sent = tap.longest();
    let frames = frames(&sent);
    assert!(frames > 3, "{frames} frames of a leader");
    for n in 0..3 {
        let answers = say(cluster.port(n), &sent, &Ends);
        assert!(!answers.is_empty(), "each is answered, as a late copy is");
        goes_on(&mut world, &led, "an earlier leader's frames");
    }
    goes_on(&mut world, &led, "all of that");
    let status = world.primacy(["status", "--json"]).output().expect("it starts");
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!((&status["token"], &status["leader"]["label"]), (&led.token.into(), &"web-2".into()), "{status}");
    for n in 0..3 {
        let most = cluster.voter(n).memory_most_mib();
        assert!(most < 300, "{most} MiB");
    }

    // Who speaks TLS, with a certificate that is right.
    cluster.certify(&["web-3"]);
    let secret = format!("{}?certs={}&name=web-3", cluster.url(), cluster.certs());
    let look = primacy(["status", "--wait", "0s", "--store", &secret]).output().expect("it starts");
    let said = String::from_utf8_lossy(&look.stderr);
    assert!(look.status.code() == Some(69) && said.contains("no majority of the voters"), "{said}");
    (0..3).for_each(|n| {
        refuses(&cluster, n, "the other side speaks TLS, and this one plain text: give certificates to both")
    });
    goes_on(&mut world, &led, "TLS");
    world.assert_never_two();
    drop(second);
    nothing_else_was_said(&mut cluster, 3);
}

/// How many whole frames these are.
fn frames(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let Some(rest) = rest.get(u32::from_be_bytes(*length) as usize..) else { break };
        (bytes, count) = (rest, count + 1);
    }
    count
}

/// A folder, and whose certificate in it, if any.
type Certificate<'a> = Option<(&'a Path, &'a str)>;

/// Comes over TLS with this certificate, takes the other side's as it is, and says this.
fn say_over_tls(port: u16, certificate: Certificate<'_>, bytes: &[u8]) {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-tls1_3", "-connect", &format!("127.0.0.1:{port}"), "-servername", "a"]);
    if let Some((folder, name)) = certificate {
        let file = |ending| folder.join(format!("{name}.{ending}"));
        client.arg("-cert").arg(file("pem")).arg("-key").arg(file("key"));
    }
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("openssl");
    // It may have ended already.
    let _ = client.stdin.as_mut().expect("it is piped").write_all(bytes);
    client.wait().expect("it was started");
}

#[test]
fn who_does_not_prove_who_it_is_is_refused_with_one_line_and_the_leader_goes_on() {
    let mut cluster = Cluster::planned(3).with_certificates(&["web-1"]).start();
    let certs = cluster.path("certs");
    let mut world = World::on(format!("{}?certs={}&name=web-1", cluster.url(), cluster.certs()));
    let runner = world.start("web-1", STEADY, &[]);
    let led = world.expect_start_after(0);

    let (strange, strange_name) = (cluster.path("strange"), "web-1");
    let strange_folder = strange.to_str().expect("UTF-8");
    let made = primacy(["peer", "certs", strange_folder, strange_name, "--quiet"]).status().expect("it starts");
    assert!(made.success());
    // Made ten days ago by the right authority, for a week.
    let mut old = with_wall_clock(env!("CARGO_BIN_EXE_primacy"), "-10d");
    let old = old.args(["peer", "certs"]).arg(&certs).args(["old", "--days", "7", "--quiet"]);
    let made = old.output().expect("it starts");
    assert!(made.status.success(), "{made:?}");

    let found = after_hello(&field(13, &another_cluster()));
    let other = hello_with(version(), &field(2, &[7; 16]));
    let cases: Vec<(&str, usize, Certificate<'_>, &[u8], &str)> = vec![
        ("no certificate", 0, None, b"", "the other side has shown no certificate: make one by 'primacy peer certs'"),
        (
            "one of another authority",
            0,
            Some((&strange, strange_name)),
            b"",
            "is not signed by our authority: make one by 'primacy peer certs' with that one's 'ca.pem'",
        ),
        (
            "one that has expired",
            0,
            Some((&certs, "old")),
            b"",
            "certificate expired 3 days ago: make one by 'primacy peer certs'",
        ),
        ("garbage", 0, Some((&certs, "web-1")), &[0xff; 64], "bytes that are no frame"),
        (
            "another cluster of this authority",
            0,
            Some((&certs, "web-1")),
            &other,
            "'mallory' belongs to another cluster than 'a'",
        ),
        // Only the first among the voters may say who votes.
        (
            "the certificate of another peer",
            2,
            Some((&certs, "b")),
            &found,
            "voters that another peer has to bring together",
        ),
        (
            "the certificate of no peer",
            1,
            Some((&certs, "web-1")),
            &found,
            "voters that another peer has to bring together",
        ),
        ("that of the first, for others", 2, Some((&certs, "a")), &found, "other voters than this one was told of"),
    ];
    for (what, n, certificate, bytes, says) in cases {
        say_over_tls(cluster.port(n), certificate, bytes);
        refuses(&cluster, n, says);
        goes_on(&mut world, &led, what);
    }
    // Who goes away before the end of the handshake is none to tell of.
    say(cluster.port(0), &[], &Ends);

    let look = |url: &str| {
        let look = primacy(["status", "--wait", "0s", "--store", url]).output().expect("it starts");
        (look.status.code(), String::from_utf8_lossy(&look.stderr).into_owned())
    };
    let (code, said) = look(&cluster.url());
    assert!(code == Some(69) && said.contains("the other side speaks TLS, and this one plain text"), "{said}");
    (0..3)
        .for_each(|n| refuses(&cluster, n, "the other side does not speak TLS: give it certificates (--certs FOLDER"));
    goes_on(&mut world, &led, "plain text");

    // Two addresses that were mixed up.
    let (b, c) = (cluster.port(1), cluster.port(2));
    let mixed = format!("peers://b@127.0.0.1:{c},c@127.0.0.1:{b}?certs={}&name=web-1", cluster.certs());
    let (code, said) = look(&mixed);
    assert!(code == Some(69) && said.contains("not valid for name"), "{said}");
    (1..3).for_each(|n| refuses(&cluster, n, "if it looks for a peer of another name here, mend the addresses"));
    goes_on(&mut world, &led, "addresses that were mixed up");
    world.assert_never_two();
    drop(runner);
    nothing_else_was_said(&mut cluster, 3);
}

#[test]
fn a_peer_and_a_candidate_of_another_cluster_are_refused_and_the_leader_goes_on() {
    let mut cluster = Cluster::planned(3).start();
    let mut old = cluster.world();
    let former = old.start("web-old", BRIEF, &[]);
    let led = old.expect_start_after(0);
    // All voters are lost but the folder of one.
    for n in 0..3 {
        cluster.end(n, Signal::SIGKILL);
    }
    ["a", "b"].iter().for_each(|name| fs::remove_dir_all(cluster.path(name)).expect("it was there"));
    fs::rename(cluster.path("c"), cluster.path("old")).expect("it was there");
    (0..3).for_each(|n| cluster.run(n));
    (0..3).for_each(|n| drop(cluster.voter(n).await_event("ready")));
    await_death(led.pid);
    // Nobody knows what those that were lost had promised.
    for n in 0..3 {
        cluster.voter(n).await_log("'web-old' belongs to another cluster than");
    }
    let mut world = cluster.world();
    let _runner = world.start("web-1", STEADY, &[]);
    let led = world.expect_start_after(0);

    drop(former);

    cluster.end(2, Signal::SIGTERM);
    fs::rename(cluster.path("c"), cluster.path("new")).expect("it was there");
    fs::rename(cluster.path("old"), cluster.path("c")).expect("it was there");
    cluster.run(2);
    for n in 0..2 {
        cluster.voter(n).await_log("'c' belongs to another cluster than");
    }
    let said = cluster.voter(2).await_log("no majority of the voters has been heard yet");
    assert!(
        said.contains("a, in the folder that it had there") || said.contains("belongs to another cluster"),
        "{said}"
    );
    goes_on(&mut world, &led, "a peer of another cluster");
    // Who comes now is not led astray.
    let second = world.start("web-2", STEADY, &[]);
    world.await_candidates(1);
    let promoted = world.primacy(["promote", "web-2"]).output().expect("it starts");
    assert!(promoted.status.success(), "{promoted:?}");
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "web-2");

    cluster.end(2, Signal::SIGTERM);
    fs::remove_dir_all(cluster.path("c")).expect("it was there");
    fs::rename(cluster.path("new"), cluster.path("c")).expect("it was there");
    cluster.run(2);
    cluster.voter(2).await_event("ready");
    goes_on(&mut world, &next, "the right one");
    world.assert_never_two();
    drop(second);
}
