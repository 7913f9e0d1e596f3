//! Who sends too much, reads too little, or sends what is no request.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use primacy_kv::server::clients::Password;
use proptest::prelude::*;

use crate::front::{Client, Front, request, requests};
use crate::groups::Pace;

/// Writes until the other side takes no more for a moment, or has closed. Returns how many bytes it took.
fn write_until_full(client: &mut Client, bytes: &[u8]) -> usize {
    client.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut written = 0;
    loop {
        match client.stream.write(bytes) {
            Ok(length) => written += length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return written,
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => return written,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_client_that_does_not_read_is_not_read_and_then_cut_off() {
    let front = Front::with(4, |settings| settings.stalled_max = Duration::from_secs(1));
    let mut client = front.connect();
    assert_eq!(client.stream.peer_addr().unwrap(), front.address);
    client.ask(&[b"set", b"a", &vec![b'x'; 64 << 10]]);
    let before = front.on(|_, statistics| statistics.commands());
    let many = requests(&["get a"; 1000]);
    let mut written = 0;
    // The system's own buffers take some. Then nothing more is taken.
    while written < many.len() {
        written += write_until_full(&mut client, &many[written..]).max(1);
        if written >= many.len() {
            break;
        }
    }
    front.until("it is cut off", |_, statistics| statistics.cut_off() == 1);
    let commands = front.on(|_, statistics| statistics.commands()) - before;
    assert!(commands < 400, "{commands} replies of 64 KiB are more than the buffers");
    assert_eq!(front.connect().say("ping"), "PONG");
    front.until("it has gone", |_, statistics| statistics.connections() <= 1);
}

#[test]
fn replies_beyond_the_bound_cut_a_client_off() {
    let front = Front::with(4, |settings| (settings.value_max, settings.output_max) = (1 << 20, 4 << 20));
    let mut client = front.connect();
    let value = vec![b'x'; 1 << 20];
    client.ask(&[b"set", b"a", &value]);
    client.send(&requests(&["mget a a a a a a a a a a"]));
    front.until("it is cut off", |_, statistics| statistics.cut_off() == 1);
    assert!(client.is_closed());
    // Who reads gets as much as it likes.
    let mut client = front.connect();
    client.send(&requests(&["get a"; 64]));
    assert!(client.replies(64).iter().all(|reply| reply.len() == 1 << 20));
}

#[test]
fn a_slow_reader_gets_everything_in_order() {
    let front = Front::start();
    front.go(Pace::Mixed);
    let mut client = front.connect();
    let value = |number: usize| format!("{number}:{}", "y".repeat(20_000));
    for number in 0..50 {
        client.ask(&[b"set", number.to_string().as_bytes(), value(number).as_bytes()]);
    }
    let lines: Vec<String> = (0..500).map(|number| format!("get {}", number % 50)).collect();
    client.send(&requests(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
    for number in 0..500 {
        assert_eq!(client.replies(1)[0], value(number % 50));
        std::thread::yield_now();
    }
}

#[test]
fn values_and_keys_are_bounded() {
    let front = Front::with(4, |settings| settings.value_max = 1 << 20);
    let mut client = front.connect();
    let text = |client: &mut Client, words: &[&[u8]]| crate::front::text(&client.ask(words));
    assert_eq!(text(&mut client, &[b"set", b"a", &vec![0; 1 << 20]]), "OK");
    let too_long = "-ERR string exceeds maximum allowed size";
    assert_eq!(text(&mut client, &[b"set", b"a", &vec![0; (1 << 20) + 1]]), too_long);
    assert_eq!(text(&mut client, &[b"append", b"a", b"x"]), too_long);
    assert_eq!(
        text(&mut client, &[b"get", &vec![b'k'; (64 << 10) + 1]]),
        "-ERR the key is longer than this store allows"
    );
    assert_eq!(client.say("strlen a"), ":1048576");
    // Much too long: what follows is not looked at any more.
    client.send(b"*3\r\n$3\r\nset\r\n$1\r\na\r\n$99999999\r\n");
    assert_eq!(client.rest(), "-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn a_refused_client_gets_its_error_though_it_goes_on_sending() {
    let front = Front::start();
    let mut client = front.connect();
    client.send(&requests(&["set a 1"]));
    client.send(b"*3\r\n$3\r\nset\r\n$1\r\na\r\n$999999999\r\n");
    let _ = client.stream.write_all(&vec![b'x'; 20 << 20]);
    client.finish_writing();
    assert_eq!(client.rest(), "+OK\r\n-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn what_is_no_request_ends_the_connection() {
    let front = Front::start();
    for (bytes, told) in [
        (&b"*x\r\n"[..], "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*9999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
        (b"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$4\r\npingxx", "-ERR Protocol error: expected CRLF behind an argument\r\n"),
        (&[b'a'; 100_000], "-ERR Protocol error: too big inline request\r\n"),
    ] {
        let mut client = front.connect();
        client.send(&[&requests(&["ping"])[..], bytes].concat());
        client.finish_writing();
        assert_eq!(client.rest(), format!("+PONG\r\n{told}"));
    }
    // A request that is cut off is no error.
    let mut client = front.connect();
    client.send(b"*2\r\n$3\r\nget\r\n$1\r\n");
    client.finish_writing();
    assert!(client.is_closed());
}

#[test]
fn clients_that_are_not_known_get_small_limits() {
    let front = Front::with(4, |settings| settings.password = Password::new(*b"secret"));
    for bytes in [&b"*11\r\n"[..], b"*1\r\n$20000\r\n"] {
        let mut client = front.connect();
        client.send(bytes);
        let told = client.rest();
        assert!(told.starts_with("-ERR Protocol error: unauthenticated"), "{told}");
    }
    let mut client = front.connect();
    // The request behind AUTH has the limits of a client that is known.
    client.send(&requests(&["auth secret"]));
    client.send(&request(&[b"set", b"a", &vec![b'x'; 1 << 20]]));
    assert_eq!(client.replies(2), ["OK", "OK"]);
    assert_eq!(client.say("reset"), "RESET");
    client.send(b"*11\r\n");
    assert!(client.rest().starts_with("-ERR Protocol error: unauthenticated"));
}

#[test]
fn clients_that_do_not_say_who_they_are_are_cut_off() {
    let front = Front::with(4, |settings| {
        settings.password = Password::new(*b"secret");
        settings.greeting_max = Duration::from_secs(1);
    });
    let (mut silent, mut known) = (front.connect(), front.connect());
    assert_eq!(known.say("auth secret"), "OK");
    assert!(silent.is_closed());
    assert_eq!(known.say("ping"), "PONG");
    assert_eq!(front.on(|_, statistics| statistics.cut_off()), 1);
}

#[test]
fn there_are_no_more_connections_than_allowed() {
    let front = Front::with(4, |settings| settings.connections_max = 3);
    let mut clients: Vec<Client> = (0..3).map(|_| front.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.say("ping"), "PONG"));
    assert_eq!(front.connect().rest(), "-ERR max number of clients reached\r\n");
    assert_eq!(front.on(|_, statistics| (statistics.refused(), statistics.connections())), (1, 3));
    drop(clients.pop());
    front.until("one has gone", |_, statistics| statistics.connections() == 2);
    assert_eq!(front.connect().say("ping"), "PONG");
}

#[test]
fn hundreds_of_connections_are_served_side_by_side() {
    let front = Front::start();
    front.go(Pace::Mixed);
    let mut clients: Vec<Client> = (0..400).map(|_| front.connect()).collect();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            let (set, get) = (format!("set k{number} {round}"), format!("get k{number}"));
            client.send(&requests(&[&set, "incr all", &get]));
        }
        for client in &mut clients {
            let said = client.replies(3);
            assert_eq!((&said[0][..], said[2].clone()), ("OK", round.to_string()));
        }
    }
    assert_eq!(clients[0].say("get all"), "1200");
    assert_eq!(front.on(|_, statistics| statistics.connections()), 400);
    drop(clients);
    front.until("all have gone", |_, statistics| statistics.connections() == 0);
}

#[test]
fn clients_that_leave_in_the_middle_harm_nobody() {
    let front = Front::start();
    front.go(Pace::Held);
    for _ in 0..50 {
        let mut client = front.connect();
        client.send(&requests(&["set a 1", "set b 1", "mget a b c", "multi", "set a 2", "exec", "randomkey"]));
    }
    front.until("writes wait", |groups, _| groups.waiting() >= 100);
    front.go(Pace::Mixed);
    front.until("all have gone", |groups, statistics| groups.waiting() == 0 && statistics.connections() == 0);
    assert_eq!(front.connect().say("get b"), "1");
}

fn exchange(front: &Front, pieces: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let mut stream = TcpStream::connect(front.address).unwrap();
    for piece in pieces {
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => return Err(TestCaseError::fail(error.to_string())),
        _ => {}
    }
    let mut client = front.connect();
    prop_assert_eq!(client.say("ping"), "PONG");
    Ok(())
}

#[test]
fn no_bytes_make_it_panic() {
    let front = Front::start();
    front.go(Pace::Mixed);
    let words = prop::sample::select(vec![
        "get",
        "SET",
        "multi",
        "exec",
        "watch",
        "mget",
        "del",
        "a",
        "b",
        "{a}c",
        "scan",
        "0",
        "hello",
        "3",
        "reset",
        "client",
        "list",
        "kill",
        "info",
        "flushall",
        "px",
        "",
        "-1",
        "9223372036854775807",
        "config",
        "command",
        "docs",
        "\r\n",
        "quit",
        "discard",
        "keys",
        "*",
        "dbsize",
        "wait",
        "auth",
        "randomkey",
        "unwatch",
        "incr",
        "id",
        "skipme",
        "no",
    ]);
    let sensible = prop::collection::vec(words, 1..7)
        .prop_map(|words| request(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()));
    let line = prop::collection::vec(any::<u8>(), 0..60);
    let piece = prop_oneof![6 => sensible, 1 => line, 1 => "[*$+:0-9a-z\r\n\" ]{0,40}".prop_map(String::into_bytes)];
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(pieces in prop::collection::vec(piece, 0..20))| exchange(&front, &pieces)?);
}
