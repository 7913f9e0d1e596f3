//! Hosts hear each other, and do not when they are cut off.

use std::time::Instant;

use super::net::{Cut, Host, address};
use super::*;

/// Says to a test that it is in a network of its own.
const INSIDE: &str = "PRIMACY_BENCH_TEST_INSIDE";

#[test]
fn hosts_hear_each_other_unless_they_are_cut_off_or_frames_are_lost() {
    if std::env::var_os(INSIDE).is_none() {
        if !net::unshare(&["--net", "--pid", "--mount-proc", "--fork"]).arg("true").status().is_ok_and(|s| s.success())
        {
            return;
        }
        let mut again = net::unshare(&["--net"]);
        again.arg(std::env::current_exe().expect("it runs")).arg("--exact");
        again.arg("hosts::tests::hosts_hear_each_other_unless_they_are_cut_off_or_frames_are_lost");
        let output = again.env(INSIDE, "1").output().expect("it is there");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let net = Net::lay(3, 7).expect("this network is our own");
    // Nobody listens there, which only who hears a frame can answer; and the answer is heard.
    let reaches = |from: &Host, to: usize| {
        let knock = format!("echo > /dev/tcp/{}/9", address(to));
        let code =
            from.command(Path::new("timeout")).args(["0.5", "bash", "-c", &knock]).status().expect("it is there");
        assert!(matches!(code.code(), Some(1 | 124)), "{code}");
        code.code() == Some(1)
    };
    let [a, b, c] = &net.hosts[..] else { panic!("three were asked for") };
    assert!(reaches(a, 1) && reaches(b, 2) && reaches(c, 0) && reaches(a, 0));
    assert!(a.is_calm().expect("it is there"));
    let passed_by = |from: &Host, to: usize| {
        let before = net.frames()[0];
        assert!(!reaches(from, to));
        net.frames()[0] - before
    };

    net.cut(1, Cut { deaf: true, mute: false });
    assert_eq!(passed_by(a, 1), 0, "it hears nothing");
    assert!(passed_by(b, 0) > 0, "it is heard, and hears no answer");
    assert!(reaches(a, 2), "nobody else is cut off");
    net.cut(1, Cut { deaf: false, mute: true });
    assert!(passed_by(a, 1) > 0, "it hears, and its answer is not heard");
    assert_eq!(passed_by(b, 0), 0, "it is not heard");
    net.cut(1, Cut { deaf: true, mute: true });
    assert_eq!(passed_by(a, 1) + passed_by(b, 0), 0);
    net.cut(1, Cut { deaf: false, mute: false });
    assert!(reaches(a, 1) && reaches(b, 0));

    net.lose(1_000);
    assert_eq!(passed_by(a, 2), 0);
    assert!(net.frames()[1] > 0);
    let knock = format!("echo > /dev/tcp/{}/9", address(2));
    let mut knocking = a.command(Path::new("bash")).args(["-c", &knock]).spawn().expect("it is there");
    let end = Instant::now() + Duration::from_secs(20);
    while a.is_calm().expect("it is there") {
        assert!(Instant::now() < end, "a connection that cannot be made was not seen");
    }
    net.lose(0);
    assert_eq!(knocking.wait().expect("it was started").code(), Some(1), "the kernel tries again");
    assert!(a.is_calm().expect("it is there"));
}

#[test]
fn timings_are_as_the_command_has_them_where_they_are_not_given() {
    let parsed = |text: &str| text.parse::<Spec>().map(|Spec(timing)| (timing.renew_every(), timing.grace()));
    let millis = Duration::from_millis;
    assert_eq!(parsed("100/20/10"), Ok((millis(20), millis(10))));
    assert_eq!(parsed("1000"), Ok((Duration::from_micros(212_500), millis(500))));
    assert_eq!(parsed("60000/1000"), Ok((millis(1_000), millis(5_000))));
    assert!(parsed("50").is_err_and(|error| error.contains("choose 100ms to 24h")));
    assert!(parsed("100/20/10/5").is_err_and(|error| error.contains("more than three")));
    assert!(parsed("1000/x").is_err_and(|error| error.contains("x is no number")));
}
