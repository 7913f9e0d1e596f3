//! `run --on-elected --on-lost`: nobody's `--on-elected` begins before the `--on-lost` of the one before has succeeded, or before its
//! lease is over.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::rights::{as_nobody, setuid_root, world_of_nobody};
use crate::world::{Line, PATIENCE, Runner, World, await_death, lives, now, pause, send};

/// Long enough that nothing in a test can be explained by it running out.
pub(crate) const LONG: &[&str] = &["--lease", "10m", "--grace", "2s"];
/// A lease that runs out within a test, and what of it is left at least when a leader is told to stop.
pub(crate) const SHORT: &[&str] = &["--lease", "3s", "--grace", "500ms"];
const LEFT: Duration = Duration::from_millis(1_500);

/// A hook that tells its lines, for the command line.
pub(crate) fn hook(world: &World, hook: &str, wishes: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/hook.pl");
    let wishes: Vec<String> = wishes
        .iter()
        .map(|wish| match wish.split_once("=@") {
            Some((name, file)) => format!("{name}={}", world.path(file).display()),
            None => (*wish).to_owned(),
        })
        .collect();
    format!("exec perl '{}' '{}' {hook} {}", script.display(), world.path("witness").display(), wishes.join(" "))
}

/// A runner of such hooks, not started yet. In wishes `@` is a file of the world.
pub(crate) fn hooks(world: &World, name: &str, options: &[&str], elected: &[&str], lost: &[&str]) -> Command {
    commands(world, name, options, &hook(world, "elected", elected), &hook(world, "lost", lost))
}

/// The same of any commands.
pub(crate) fn commands(world: &World, name: &str, options: &[&str], elected: &str, lost: &str) -> Command {
    let mut command = world.primacy(["run", "--name", name]);
    command.args(options).args(["--on-elected", elected, "--on-lost", lost]).stdout(world.output());
    command
}

pub(crate) fn start(world: &World, name: &str, options: &[&str], elected: &[&str], lost: &[&str]) -> Runner {
    Runner::start(hooks(world, name, options, elected, lost))
}

pub(crate) fn elected_after(world: &mut World, token: u64) -> Line {
    world.expect(&format!("an election with a token above {token}"), |line| {
        line.word == "elected-done" && line.token > token
    })
}

/// The first that leads, and a second that waits.
pub(crate) fn pair(world: &mut World, options: &[&str], elected: &[&str], lost: &[&str]) -> (Runner, Runner, Line) {
    let first = start(world, "a", options, elected, lost);
    let led = elected_after(world, 0);
    let second = start(world, "b", options, elected, lost);
    world.await_candidates(1);
    (first, second, led)
}

pub(crate) fn order(world: &World, words: &[&str]) {
    assert!(world.primacy(words).status().expect("primacy starts").success(), "{words:?}");
}

/// The witness's verdict: from the start of an `--on-elected` until the success of the `--on-lost` of the same candidate there is no
/// other, and tokens only grow.
pub(crate) fn assert_never_two(world: &World) {
    let text = fs::read_to_string(world.path("witness")).expect("hooks ran");
    let (mut works, mut highest): (Option<String>, u64) = (None, 0);
    for line in text.lines() {
        let [word, token, _pid, name, _nanos] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let token: u64 = token.parse().expect("a token");
        match word {
            "elected-start" => {
                assert!(works.is_none(), "{line}, and {works:?} may be at work:\n{text}");
                assert!(token > highest, "{line} after token {highest}:\n{text}");
                (works, highest) = (Some(name.to_owned()), token);
            }
            "lost-done" if works.as_deref() == Some(name) => works = None,
            _ => {}
        }
    }
    assert!(highest > 0, "nobody ever led: the test shows nothing");
}

pub(crate) fn create(world: &World, file: &str) {
    File::create(world.path(file)).expect("a temporary folder");
}

pub(crate) fn remove(world: &World, file: &str) {
    fs::remove_file(world.path(file)).expect("it was created");
}

pub(crate) fn after(begin: u64, line: &Line) -> Duration {
    Duration::from_nanos(line.nanos.saturating_sub(begin))
}

// ---- order and environment ----

#[test]
fn on_lost_is_run_first_then_on_elected_then_on_lost_with_its_token() {
    let mut world = World::new();
    let mut command = hooks(&world, "a", LONG, &[], &[]);
    // As if another runner had started it.
    let mut first = Runner::start({
        command.env("PRIMACY_TOKEN", "99");
        command
    });
    elected_after(&mut world, 0);
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(0));
    world.expect("the last word", |line| line.word == "lost-done" && line.token == 1);
    let told: Vec<(&str, u64)> = world.log().iter().map(|line| (line.word.as_str(), line.token)).collect();
    let wanted = [
        ("lost-start", 0),
        ("lost-done", 0),
        ("elected-start", 1),
        ("elected-done", 1),
        ("lost-start", 1),
        ("lost-done", 1),
    ];
    assert_eq!(told, wanted);
    assert_never_two(&world);
}

#[test]
fn hooks_find_their_election_and_name_and_an_empty_input() {
    let world = World::new();
    let told = world.path("told");
    let tell = |word: &str| {
        format!("cat; echo \"{word} $PRIMACY_ELECTION/$PRIMACY_NAME/${{PRIMACY_TOKEN-none}}\" >> '{}'", told.display())
    };
    let mut command = world.primacy(["run", "--name", "a", "--election", "it's mine", "--once"]);
    command.args(["--on-elected", &format!("{}; exit 4", tell("elected")), "--on-lost", &tell("lost")]);
    let ended = command.stdin(Stdio::piped()).status().expect("primacy starts");
    assert_eq!(ended.code(), Some(70), "--on-elected has failed, with --once");
    let said = fs::read_to_string(&told).expect("hooks ran");
    assert_eq!(said, "lost it's mine/a/none\nelected it's mine/a/1\nlost it's mine/a/1\n");
}

#[test]
fn a_candidate_campaigns_only_after_on_lost_has_succeeded() {
    let mut world = World::new();
    create(&world, "wait");
    let _first = start(&world, "a", LONG, &[], &["wait-while=@wait"]);
    world.expect("on-lost to be run", |line| line.word == "lost-start");
    // There is not even an election.
    let status = world.primacy(["status"]).output().expect("primacy starts");
    assert_eq!(status.status.code(), Some(69), "{status:?}");
    remove(&world, "wait");
    let done = world.expect("on-lost to succeed", |line| line.word == "lost-done");
    assert!(done.nanos < elected_after(&mut world, 0).nanos);
}

#[test]
fn where_on_lost_fails_at_the_start_nobody_campaigns() {
    let world = World::new();
    create(&world, "fail");
    create(&world, "wait");
    for wish in ["fail-if=@fail", "wait-while=@wait"] {
        let mut command = hooks(&world, "a", SHORT, &[], &[wish]);
        let output = command.stderr(Stdio::piped()).output().expect("primacy starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(70), "{said}");
        assert!(said.contains("--on-lost has failed, so that nobody knows"), "{said}");
        assert!(!world.path("primacy.db").exists(), "{wish}");
    }
    let witness = fs::read_to_string(world.path("witness")).expect("it was run");
    assert!(witness.lines().count() > 4 && !witness.contains("lost-done"), "several tries, and no success: {witness}");
}

#[test]
fn a_waiting_candidate_ends_at_once_and_runs_nothing_more() {
    let mut world = World::new();
    let (_first, mut second, _) = pair(&mut world, LONG, &[], &[]);
    second.send(Signal::SIGTERM);
    assert_eq!(second.wait().code(), Some(128 + 15));
    let of_second = world.log().iter().filter(|line| line.name == "b").count();
    assert_eq!(of_second, 2, "on-lost at the start");
}

// ---- never two ----

#[test]
fn a_stop_is_followed_by_on_lost_and_only_then_by_another() {
    let mut world = World::new();
    let (mut first, _second, led) = pair(&mut world, LONG, &[], &["linger=0.3"]);
    first.send(Signal::SIGTERM);
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    assert_eq!(first.wait().code(), Some(0));
    assert_never_two(&world);
}

#[test]
fn the_warden_of_a_killed_runner_runs_on_lost_and_gives_the_lease_back() {
    let mut world = World::new();
    let (first, _second, led) = pair(&mut world, LONG, &[], &["linger=0.3"]);
    first.send(Signal::SIGKILL);
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    assert_never_two(&world);
}

#[test]
fn the_runner_of_a_killed_warden_runs_on_lost_itself() {
    let mut world = World::new();
    let (first, _second, led) = pair(&mut world, LONG, &[], &["linger=0.3"]);
    let warden = first.warden();
    send(warden, Signal::SIGKILL);
    let next = elected_after(&mut world, led.token);
    assert_eq!(next.name, "b");
    assert_ne!(first.warden(), warden);
    assert_never_two(&world);
}

#[test]
fn a_stopped_runner_has_its_warden_run_on_lost_in_time() {
    let mut world = World::new();
    let (first, second, led) = pair(&mut world, SHORT, &[], &["linger=0.05"]);
    first.send(Signal::SIGSTOP);
    let next = elected_after(&mut world, led.token);
    assert_eq!(next.name, "b");
    first.send(Signal::SIGCONT);
    world.await_candidates(1);
    second.send(Signal::SIGTERM);
    assert_eq!(elected_after(&mut world, next.token).name, "a");
    assert_never_two(&world);
}

#[test]
fn a_stopped_warden_is_overruled_early_enough_for_on_lost() {
    let mut world = World::new();
    let (first, _second, led) = pair(&mut world, LONG, &[], &["linger=0.3"]);
    let warden = first.warden();
    send(warden, Signal::SIGSTOP);
    order(&world, &["depose", "--no-wait"]);
    // Not from before: the order is written to a disk, which may take longer than the grace.
    let begin = now();
    let done = world.expect("on-lost to succeed", |line| line.word == "lost-done" && line.token == led.token);
    assert!(after(begin, &done) < Duration::from_secs(2), "within the grace");
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    assert!(!lives(warden));
    assert_never_two(&world);
}

#[test]
fn a_leader_that_is_deposed_or_replaced_hands_over_and_waits_to_lead_again() {
    let mut world = World::new();
    let (_first, _second, led) = pair(&mut world, LONG, &["linger=0.05"], &["linger=0.2"]);
    order(&world, &["depose", "--no-wait"]);
    let next = elected_after(&mut world, led.token);
    assert_eq!(next.name, "b");
    world.await_candidates(1);
    order(&world, &["promote", "a", "--no-wait"]);
    assert_eq!(elected_after(&mut world, next.token).name, "a");
    assert_never_two(&world);
}

/// The leadership ends in this way while `--on-elected` still runs.
fn on_elected_is_dead_before_on_lost(end: impl Fn(&World, &Runner)) {
    let mut world = World::new();
    create(&world, "wait");
    // And so is what it has started, in a session of its own.
    let waits = hook(&world, "elected", &["wait-while=@wait"]);
    let elected = format!("setsid sleep 1000 & echo $! > '{}'; {waits}", world.path("left").display());
    let first = Runner::start(commands(&world, "a", LONG, &elected, &hook(&world, "lost", &[])));
    let led = world.expect("on-elected to begin", |line| line.word == "elected-start");
    let _second = start(&world, "b", LONG, &[], &[]);
    world.await_candidates(1);
    end(&world, &first);
    world.expect("on-lost to begin", |line| line.word == "lost-start" && line.token == led.token);
    let left: i32 = fs::read_to_string(world.path("left")).expect("it was started").trim().parse().expect("a number");
    assert!(!lives(led.pid) && !lives(left), "on-elected went on");
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    assert_never_two(&world);
}

#[test]
fn an_on_elected_that_still_runs_is_dead_before_on_lost_begins() {
    on_elected_is_dead_before_on_lost(|world, _| order(world, &["depose", "--no-wait"]));
    on_elected_is_dead_before_on_lost(|_, first| first.send(Signal::SIGTERM));
}

#[test]
fn an_on_elected_that_still_runs_does_not_outlive_its_runner_or_warden() {
    on_elected_is_dead_before_on_lost(|_, first| first.send(Signal::SIGKILL));
    on_elected_is_dead_before_on_lost(|_, first| send(first.warden(), Signal::SIGKILL));
}

#[test]
fn once_ends_with_75_when_the_leadership_is_lost() {
    let mut world = World::new();
    let mut first = start(&world, "a", &[LONG, &["--once"]].concat(), &[], &[]);
    let led = elected_after(&mut world, 0);
    let _second = start(&world, "b", LONG, &[], &[]);
    world.await_candidates(1);
    order(&world, &["depose", "--no-wait"]);
    assert_eq!(first.wait().code(), Some(75));
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    assert_never_two(&world);
}

/// One after another, in all the ways in which a leadership ends while runner or warden lives.
#[test]
fn whatever_happens_to_leaders_nobody_begins_beside_another() {
    const TIMING: &[&str] = &["--lease", "4s", "--grace", "1200ms"];
    let mut world = World::new();
    let run = |world: &World, name: &str| start(world, name, TIMING, &["linger=0.02"], &["linger=0.05"]);
    let mut runners = BTreeMap::from(["a", "b", "c"].map(|name| (name, run(&world, name))));
    let mut led = elected_after(&mut world, 0);
    for end in ["stop", "term", "kill", "warden", "depose", "warden", "kill", "depose", "term", "stop"] {
        world.await_candidates(2);
        let runner = runners.get_mut(led.name.as_str()).expect("one of these");
        match end {
            "stop" => runner.send(Signal::SIGSTOP),
            "term" => runner.send(Signal::SIGTERM),
            "kill" => runner.send(Signal::SIGKILL),
            "warden" => send(runner.warden(), Signal::SIGKILL),
            _ => order(&world, &["depose", "--no-wait"]),
        }
        let next = elected_after(&mut world, led.token);
        runner.send(Signal::SIGCONT);
        if matches!(end, "term" | "kill") {
            assert_eq!(runner.wait().code(), (end == "term").then_some(0));
            *runner = run(&world, &led.name);
        }
        led = next;
    }
    assert_never_two(&world);
}

#[test]
fn members_with_registers_hand_over_in_the_same_way() {
    let mut world = World::new();
    let options = &["--protocol", "registers", "--round", "1s", "--grace", "500ms"];
    let first = start(&world, "a", options, &[], &["linger=0.1"]);
    let led = elected_after(&mut world, 0);
    let _second = start(&world, "b", options, &[], &["linger=0.1"]);
    world.await_candidates(1);
    first.send(Signal::SIGTERM);
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    assert_never_two(&world);
}

/// As on a suspended host: the work goes on beside another's, as the manual says, and is stopped as soon as one of them goes on.
#[test]
fn when_runner_and_warden_go_on_after_their_lease_on_lost_is_run_at_once() {
    let mut world = World::new();
    let (first, second, led) = pair(&mut world, SHORT, &[], &[]);
    let warden = first.warden();
    first.send(Signal::SIGSTOP);
    send(warden, Signal::SIGSTOP);
    let next = elected_after(&mut world, led.token);
    assert!(!world.log().iter().any(|line| line.word == "lost-start" && line.token == led.token));
    send(warden, Signal::SIGCONT);
    first.send(Signal::SIGCONT);
    world.expect("on-lost to succeed", |line| line.word == "lost-done" && line.token == led.token);
    // It stays a candidate.
    world.await_candidates(1);
    second.send(Signal::SIGTERM);
    assert_eq!(elected_after(&mut world, next.token).name, "a");
}

// ---- hooks that fail ----

/// `--on-lost` of the first fails or hangs from now on, and the leadership ends in this way: the second leads only when the lease has
/// run out, and `--on-lost` was tried again and again until a grace after that, one that hangs twice.
fn is_not_given_back(wish: &str, file: &str, end: impl Fn(&World, &Runner)) -> Option<i32> {
    let mut world = World::new();
    let mut first = start(&world, "a", SHORT, &[], &[wish]);
    let led = elected_after(&mut world, 0);
    let _second = start(&world, "b", SHORT, &[], &[]);
    world.await_candidates(1);
    create(&world, file);
    let begin = now();
    end(&world, &first);
    let code = first.wait().code();
    let next = elected_after(&mut world, led.token);
    assert_eq!(next.name, "b");
    assert!(after(begin, &next) >= LEFT, "{:?}", after(begin, &next));
    let log = world.log();
    let tries: Vec<&Line> = log.iter().filter(|line| line.word == "lost-start" && line.token == led.token).collect();
    assert!(if file == "wait" { tries.len() == 2 } else { tries.len() > 2 }, "{log:#?}");
    assert!(!log.iter().any(|line| line.word == "lost-done" && line.token == led.token));
    tries.iter().for_each(|tried| assert!(!lives(tried.pid), "{tried:?} goes on"));
    code
}

#[test]
fn a_lease_is_not_given_back_when_on_lost_fails() {
    let depose = |world: &World, _: &Runner| order(world, &["depose", "--no-wait"]);
    assert_eq!(is_not_given_back("fail-if=@fail", "fail", depose), Some(70));
}

#[test]
fn a_lease_is_not_given_back_when_on_lost_hangs() {
    let stop = |_: &World, first: &Runner| first.send(Signal::SIGTERM);
    assert_eq!(is_not_given_back("wait-while=@wait", "wait", stop), Some(70));
}

#[test]
fn a_warden_alone_does_not_give_back_the_lease_when_on_lost_fails() {
    let kill = |_: &World, first: &Runner| first.send(Signal::SIGKILL);
    assert_eq!(is_not_given_back("fail-if=@fail", "fail", kill), None);
    assert_eq!(is_not_given_back("wait-while=@wait", "wait", kill), None);
}

#[test]
fn a_runner_without_a_warden_does_not_give_back_the_lease_when_on_lost_fails() {
    let kill = |_: &World, first: &Runner| send(first.warden(), Signal::SIGKILL);
    assert_eq!(is_not_given_back("fail-if=@fail", "fail", kill), Some(70));
    assert_eq!(is_not_given_back("wait-while=@wait", "wait", kill), Some(70));
}

#[test]
fn a_lease_is_given_back_when_on_lost_succeeds_at_the_second_try() {
    let mut world = World::new();
    let (first, _second, led) = pair(&mut world, LONG, &[], &["fail-once=@once"]);
    create(&world, "once");
    order(&world, &["depose", "--no-wait"]);
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    let tries = world.log().iter().filter(|line| line.word == "lost-start" && line.token == led.token).count();
    assert_eq!(tries, 2);
    assert!(lives(first.pid()), "it waits to lead again");
    assert_never_two(&world);
}

#[test]
fn who_cannot_do_its_part_gives_the_lease_up_and_another_leads() {
    let mut world = World::new();
    create(&world, "fail");
    let first = start(&world, "a", LONG, &["fail-if=@fail"], &[]);
    let begun = world.expect("on-elected to begin", |line| line.word == "elected-start");
    world.expect("on-lost to succeed", |line| line.word == "lost-done" && line.token == begun.token);
    let second = start(&world, "b", LONG, &[], &[]);
    let led = elected_after(&mut world, 0);
    assert_eq!(led.name, "b");
    // Later it leads again, if it can.
    remove(&world, "fail");
    second.send(Signal::SIGTERM);
    assert_eq!(elected_after(&mut world, led.token).name, "a");
    assert!(lives(first.pid()));
    assert_never_two(&world);
}

#[test]
fn who_stands_alone_tries_again_after_a_rest() {
    let mut world = World::new();
    create(&world, "once");
    let _first = start(&world, "a", LONG, &["fail-once=@once"], &[]);
    let failed = world.expect("on-elected to begin", |line| line.word == "elected-start");
    let next = elected_after(&mut world, failed.token);
    assert!(after(failed.nanos, &next) >= Duration::from_secs(1), "it rests");
    assert_eq!(next.token, failed.token + 1, "and does not ask for the lease meanwhile");
    assert_never_two(&world);
}

/// Both are killed: nobody is left to run on-lost, and the lease runs out. Who is started again runs it first.
#[test]
fn after_the_death_of_runner_and_warden_the_lease_runs_out() {
    let mut world = World::new();
    let (first, _second, led) = pair(&mut world, SHORT, &[], &[]);
    let warden = first.warden();
    first.send(Signal::SIGSTOP);
    send(warden, Signal::SIGSTOP);
    let begin = now();
    first.send(Signal::SIGKILL);
    send(warden, Signal::SIGKILL);
    let next = elected_after(&mut world, led.token);
    assert!(after(begin, &next) >= LEFT, "{:?}", after(begin, &next));
    assert!(!world.log().iter().any(|line| line.word == "lost-start" && line.token == led.token));
}

// ---- what is told, what is left, what is refused ----

fn standing(world: &World) -> String {
    let text = fs::read_to_string(world.path("status.json")).unwrap_or_default();
    let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    status["standing"].as_str().unwrap_or_default().to_owned()
}

fn await_standing(world: &World, wanted: &str) {
    let end = Instant::now() + PATIENCE;
    while standing(world) != wanted {
        assert!(Instant::now() < end, "{:?} instead of {wanted}", standing(world));
        pause();
    }
}

#[test]
fn it_is_told_to_lead_when_on_elected_has_succeeded_and_what_that_has_left_is_gone() {
    let mut world = World::new();
    create(&world, "wait");
    let file = world.path("status.json").display().to_string();
    let waits = hook(&world, "elected", &["wait-while=@wait"]).replacen("exec ", "", 1);
    let pid = world.path("left").display().to_string();
    let elected = format!("{waits}; setsid sleep 1000 & echo $! > '{pid}'");
    let options = [LONG, &["--status-file", &file]].concat();
    let mut first = Runner::start(commands(&world, "a", &options, &elected, &hook(&world, "lost", &[])));
    world.expect("on-elected to begin", |line| line.word == "elected-start");
    await_standing(&world, "stops");
    remove(&world, "wait");
    await_standing(&world, "leads");
    let left: i32 = fs::read_to_string(&pid).expect("it was started").trim().parse().expect("a number");
    assert!(!lives(left), "what a hook leaves is gone when it counts as ended");
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(0));
    assert_eq!(standing(&world), "gone");
}

#[test]
fn hooks_gain_no_rights_unless_they_are_allowed_to() {
    let Some(world) = world_of_nobody() else { return };
    let id = setuid_root(&world, "/usr/bin/id");
    for (options, user) in [(&[][..], "65534"), (&["--allow-privileges"], "0")] {
        let told = world.path(&format!("user-{user}"));
        let mut command = world.primacy(["run", "--once", "--on-lost", "true"]);
        command.args(options).args(["--on-elected", &format!("'{}' -u > '{}'; exit 1", id.display(), told.display())]);
        let output = as_nobody(&command).output().expect("primacy starts");
        assert_eq!(output.status.code(), Some(70), "{output:?}");
        assert_eq!(fs::read_to_string(told).expect("it ran").trim(), user);
    }
}

#[test]
fn what_does_not_go_together_is_refused_and_nothing_is_run() {
    let world = World::new();
    let touch = format!("touch '{}'", world.path("touched").display());
    let both = ["--on-elected", &touch, "--on-lost", &touch];
    for (words, said) in [
        (vec!["--on-elected", &touch], "--on-elected needs --on-lost"),
        (vec!["--on-lost", &touch], "--on-lost needs --on-elected"),
        (vec!["--on-lost", " ", "--on-elected", &touch], "--on-lost has no command"),
        ([&both[..], &["--isolate"]].concat(), "leave --isolate out"),
        ([&both[..], &["--", "true"]].concat(), "stand in the place of a program"),
        (vec!["--on-lost", &touch, "--", "true"], "--on-lost needs --on-elected"),
    ] {
        let output = world.primacy(["run"]).args(&words).output().expect("primacy starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {told}");
        assert!(told.lines().count() == 1 && told.contains(said), "{told}");
    }
    assert!(!world.path("touched").exists() && !world.path("primacy.db").exists());
}

#[test]
fn hooks_of_a_runner_that_is_killed_at_its_start_end_with_it() {
    let mut world = World::new();
    create(&world, "wait");
    let first = start(&world, "a", &["--lease", "2s", "--grace", "300ms"], &[], &["wait-while=@wait"]);
    let run = world.expect("on-lost to begin", |line| line.word == "lost-start");
    let warden = first.warden();
    first.send(Signal::SIGKILL);
    await_death(warden);
    assert!(!lives(run.pid));
    assert!(!world.path("primacy.db").exists());
}

#[test]
fn a_runner_that_is_asked_to_end_at_its_start_takes_its_hook_along() {
    let mut world = World::new();
    create(&world, "wait");
    let mut first = start(&world, "a", LONG, &[], &["wait-while=@wait"]);
    let run = world.expect("on-lost to begin", |line| line.word == "lost-start");
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(128 + 15));
    await_death(run.pid);
    assert!(!world.path("primacy.db").exists());
}
