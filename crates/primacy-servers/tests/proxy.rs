//! The proxy holds, delays, loses and breaks what it is told to.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use primacy_servers::{Direction, Proxy};

/// A server that says everything twice. It goes when the test does.
fn twice() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || serve(client));
        }
    });
    port
}

fn serve(mut client: TcpStream) {
    let mut byte = [0];
    while let Ok(1) = client.read(&mut byte) {
        if client.write_all(&[byte[0], byte[0]]).is_err() {
            return;
        }
    }
}

fn connect(proxy: &Proxy) -> TcpStream {
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("the proxy listens");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
    client
}

fn say(mut client: &TcpStream, byte: u8) {
    client.write_all(&[byte]).expect("the proxy reads");
}

/// The next two bytes, or none if the connection is gone.
fn hear(mut client: &TcpStream) -> Option<[u8; 2]> {
    let mut bytes = [0; 2];
    client.read_exact(&mut bytes).ok().map(|()| bytes)
}

fn is_silent(mut client: &TcpStream) -> bool {
    client.set_nonblocking(true).expect("it can be set");
    let kind = client.read(&mut [0]).map_err(|error| error.kind());
    client.set_nonblocking(false).expect("it can be set");
    kind == Err(ErrorKind::WouldBlock)
}

#[test]
fn what_was_held_arrives_after_healing() {
    let proxy = Proxy::to(twice()).expect("it listens");
    let client = connect(&proxy);
    say(&client, 1);
    assert_eq!(hear(&client), Some([1, 1]));
    for (way, byte) in [(Direction::ToServer, 2), (Direction::ToClient, 3)] {
        proxy.hold(way);
        say(&client, byte);
        proxy.await_held(way).expect("it is held");
        assert!(is_silent(&client), "{way:?}");
        proxy.heal();
        assert_eq!(hear(&client), Some([byte, byte]), "{way:?}");
    }
    proxy.cut();
    say(&client, 4);
    proxy.await_held(Direction::ToServer).expect("it is held");
    assert_eq!(proxy.kill_connections(), 1);
    assert_eq!(hear(&client), None, "it was lost for good");
    assert_eq!(proxy.connections(), 0);
}

#[test]
fn one_answer_is_lost_and_the_next_connection_works() {
    let proxy = Proxy::to(twice()).expect("it listens");
    let client = connect(&proxy);
    proxy.lose_next_answer();
    say(&client, 1);
    proxy.await_lost_answer().expect("it was answered");
    assert_eq!(hear(&client), None);
    let client = connect(&proxy);
    say(&client, 2);
    assert_eq!(hear(&client), Some([2, 2]));
}

#[test]
fn refused_and_redirected_connections() {
    let proxy = Proxy::to(twice()).expect("it listens");
    let old = connect(&proxy);
    say(&old, 1);
    assert_eq!(hear(&old), Some([1, 1]));
    proxy.refuse();
    assert_eq!(hear(&connect(&proxy)), None);
    proxy.heal();
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("it has one").port();
    proxy.point_to(nobody);
    assert_eq!(hear(&connect(&proxy)), None, "nobody listens there");
    say(&old, 2);
    assert_eq!(hear(&old), Some([2, 2]), "what exists stays");
}

#[test]
fn a_delay_applies_to_both_ways() {
    let proxy = Proxy::to(twice()).expect("it listens");
    let client = connect(&proxy);
    proxy.delay(Duration::from_millis(50));
    #[expect(clippy::disallowed_methods, reason = "a duration on a machine that is awake")]
    let start = std::time::Instant::now();
    say(&client, 1);
    assert_eq!(hear(&client), Some([1, 1]));
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
}

#[test]
fn a_long_way_takes_its_time_from_the_first_byte_on() {
    const ROUND_TRIP: Duration = Duration::from_millis(60);
    let proxy = Proxy::to(twice()).expect("it listens");
    proxy.move_away(ROUND_TRIP);
    #[expect(clippy::disallowed_methods, reason = "a duration on a machine that is awake")]
    let start = std::time::Instant::now();
    let client = connect(&proxy);
    say(&client, 1);
    assert_eq!(hear(&client), Some([1, 1]));
    assert!(start.elapsed() >= ROUND_TRIP * 2, "{:?}: the connection, and what is said", start.elapsed());
    // What is sent one after the other is one round trip.
    say(&client, 2);
    say(&client, 3);
    assert_eq!((hear(&client), hear(&client)), (Some([2, 2]), Some([3, 3])));
    assert!((2..=3).contains(&proxy.flights()), "{} round trips", proxy.flights());
    let before = proxy.flights();
    say(&client, 4);
    assert_eq!(hear(&client), Some([4, 4]));
    assert_eq!(proxy.flights(), before + 1);
}

#[test]
fn a_dropped_proxy_breaks_its_connections() {
    let proxy = Proxy::to(twice()).expect("it listens");
    let client = connect(&proxy);
    say(&client, 1);
    assert_eq!(hear(&client), Some([1, 1]));
    drop(proxy);
    assert_eq!(hear(&client), None);
}
