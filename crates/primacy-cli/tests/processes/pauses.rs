//! Runner, program and warden stopped for longer than the lease, and let go again.

use nix::sys::signal::Signal;

use crate::world::{BRIEF, STEADY, STEADY_NANOS, World, await_death, lives, now, send};

#[test]
fn a_stopped_runner_loses_the_lead_and_its_program_dies_in_time() {
    let mut world = World::new();
    let first = world.start("a", BRIEF, &["ignore-term"]);
    let led = world.expect_start_after(0);
    let second = world.start("b", STEADY, &[]);
    first.send(Signal::SIGSTOP);
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "b");
    assert!(!lives(led.pid), "the warden has killed it at the deadline");
    first.send(Signal::SIGCONT);
    // The first goes on as a candidate and leads again when its turn comes.
    second.send(Signal::SIGTERM);
    assert_eq!(world.expect_start_after(next.token).name, "a");
    world.assert_never_two();
}

#[test]
fn a_stopped_program_keeps_its_lead_and_can_be_ended() {
    let mut world = World::new();
    let mut first = world.start("a", STEADY, &[]);
    let led = world.expect_start_after(0);
    send(led.pid, Signal::SIGSTOP);
    let _second = world.start("b", STEADY, &[]);
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(0), "a stopped program is woken to hear the signal");
    assert_eq!(world.expect_start_after(led.token).name, "b");
    world.assert_never_two();
}

#[test]
fn a_runner_stopped_with_its_program_loses_it() {
    let mut world = World::new();
    let first = world.start("a", BRIEF, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", STEADY, &[]);
    send(led.pid, Signal::SIGSTOP);
    first.send(Signal::SIGSTOP);
    let next = world.expect_start_after(led.token);
    assert!(!lives(led.pid), "the warden has killed it although it was stopped");
    first.send(Signal::SIGCONT);
    world.expect("the second to go on", |line| line.pid == next.pid && line.nanos > next.nanos + 300_000_000);
    world.assert_never_two();
}

#[test]
fn a_stopped_warden_alone_costs_nothing() {
    let mut world = World::new();
    let first = world.start("a", STEADY, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", STEADY, &[]);
    let warden = first.warden();
    send(warden, Signal::SIGSTOP);
    let stopped = now();
    world.expect("its deadline to pass", |line| line.nanos > stopped + STEADY_NANOS);
    send(warden, Signal::SIGCONT);
    let awake = now();
    let late = world.expect("a renewal to be sent", |line| line.nanos > awake + STEADY_NANOS / 3);
    assert_eq!(late.token, led.token, "it heard of the renewals before it looked at its deadline");
    world.assert_never_two();
}

/// Where all of one candidate is stopped at once, as on a suspended host, nobody can keep the program from waking up:
/// the manual says so. It must be dead as soon as a warden on a busy machine can see to that, and what it writes with its old token
/// refused.
#[test]
fn when_everything_was_stopped_the_woken_program_dies_at_once_and_its_writes_are_refused() {
    let mut world = World::new();
    let fence = format!("fence={}", world.path("fence").display());
    let first = world.start("a", BRIEF, &[&fence, "ignore-term"]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", STEADY, &[&fence]);
    let warden = first.warden();
    for pid in [warden, first.pid(), led.pid] {
        send(pid, Signal::SIGSTOP);
    }
    // The program of the old leader still holds the witness's lock, so this start tells of an overlap: it must.
    let next = world.expect_start_after(led.token);
    world.expect("a fenced write of the new leader", |line| line.word == "beat" && line.token == next.token);
    // The program first: it gets every chance to write.
    for pid in [led.pid, first.pid(), warden] {
        send(pid, Signal::SIGCONT);
    }
    let took = await_death(led.pid);
    assert!(took.as_secs() < 2, "the woken program lived for {took:?}");
    world.expect("the new leader to work on", |line| line.word == "beat" && line.token == next.token);
    let late: Vec<_> =
        world.log().iter().filter(|line| line.token == led.token && line.nanos > next.nanos).cloned().collect();
    // Each step of the witness is: write through the fence, then tell of a beat. A beat without a refusal before it
    // would be a stale write that was admitted.
    let refused = late.iter().filter(|line| line.word == "refused").count();
    let beats = late.iter().filter(|line| line.word == "beat").count();
    assert!(beats <= refused + 1, "{refused} refusals for {beats} late steps: {late:#?}");
}

#[test]
fn a_stopped_warden_is_overruled_when_the_program_must_stop() {
    let mut world = World::new();
    let first = world.start("a", &["--lease", "10m", "--grace", "300ms"], &["fork"]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", STEADY, &[]);
    world.await_candidates(1);
    send(first.warden(), Signal::SIGSTOP);
    let order = world.primacy(["depose", "--no-wait"]).status().expect("primacy starts");
    assert!(order.success());
    // The runner kills its warden, and all that the program has started, before it releases.
    assert_eq!(world.expect_start_after(led.token).name, "b");
    assert!(!lives(led.pid));
    world.assert_never_two();
}

#[test]
fn a_stopped_warden_does_not_keep_its_runner_from_ending() {
    let mut world = World::new();
    let _first = world.start("a", STEADY, &[]);
    world.expect_start_after(0);
    let mut second = world.start("b", STEADY, &[]);
    world.await_candidates(1);
    let warden = second.warden();
    send(warden, Signal::SIGSTOP);
    second.send(Signal::SIGTERM);
    assert_eq!(second.wait().code(), Some(143));
    send(warden, Signal::SIGCONT);
}
