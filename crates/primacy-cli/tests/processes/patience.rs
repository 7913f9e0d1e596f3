//! `--try` and `--for`, and the crontab line of the examples on two hosts.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::world::{PATIENCE, Runner, World, pause};

const LONG: &[&str] = &["--lease", "10m", "--grace", "2s"];

fn run(world: &World, options: &[&str]) -> Output {
    world.primacy(["run", "--name", "b"]).args(options).args(["--", "true"]).output().expect("primacy starts")
}

#[test]
fn try_does_not_wait_while_another_leads_and_leads_where_nobody_does() {
    let mut world = World::new();
    assert_eq!(run(&world, &["--try"]).status.code(), Some(0), "nobody leads");
    let _first = world.start("a", LONG, &[]);
    world.expect_start_after(0);
    let output = run(&world, &["--try"]);
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the lease that a holds with token") && said.contains("told not to wait"), "{said}");
    let output = run(&world, &["--try", "--quiet"]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(75), &b""[..]));
    world.await_candidates(0);
}

#[test]
fn for_waits_so_long_and_no_longer() {
    let mut world = World::new();
    let first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    let begin = Instant::now();
    let output = run(&world, &["--for", "3s"]);
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    assert!(begin.elapsed() >= Duration::from_secs(3));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("gives up after 3s: this candidate waits for the lease that a holds with token"), "{said}");
    world.await_candidates(0);

    let second = world.start("b", &[LONG, &["--for", "1m"]].concat(), &[]);
    world.await_candidates(1);
    first.send(Signal::SIGTERM);
    assert_eq!(world.expect_start_after(led.token).name, "b");
    drop(second);
}

#[test]
fn what_cannot_be_waited_for_is_refused() {
    let world = World::new();
    for options in [&["--for", "0s"][..], &["--try", "--for", "1s"], &["--for", "soon"]] {
        assert_eq!(run(&world, options).status.code(), Some(2), "{options:?}");
    }
    let nowhere = format!("sqlite:{}", world.path("no/such/primacy.db").display());
    let output = run(&world, &["--try", "--store", &nowhere]);
    assert_eq!(output.status.code(), Some(69), "a store that is not there is another matter: {output:?}");
}

/// The crontab line of the tutorial with this job. It waits for seconds instead of minutes, and what keeps the lease
/// lasts until the test says so, instead of for longer than that.
fn crontab_line(world: &World, job: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorials/cron.md");
    let page = fs::read_to_string(page).expect("it is there");
    let line = page.lines().find_map(|line| line.strip_prefix("0 3 * * * ")).expect("a crontab line");
    let parts = ["--for 5m ", "'/opt/jobs/nightly_postgres.sh && sleep 600'"];
    assert!(parts.iter().all(|part| line.contains(part)), "it keeps the lease for longer than the others wait: {line}");
    let kept = format!("until test -e {}; do sleep 0.02; done", world.path("others-gave-up").display());
    line.replace("/opt/jobs/nightly_postgres.sh", job).replace("--for 5m ", "--for 5s ").replace("sleep 600", &kept)
}

fn others_gave_up(world: &World) {
    fs::write(world.path("others-gave-up"), "").expect("a temporary folder");
}

/// The crontab line on a host. The test's program stands first in its path.
fn host(world: &World, name: &str, job: &str) -> Runner {
    let bin = Path::new(env!("CARGO_BIN_EXE_primacy")).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("exec {}", crontab_line(world, job)));
    command.env("PATH", format!("{}:{path}", bin.display()));
    command.env("PRIMACY_STORE", world.store()).env("PRIMACY_NAME", name);
    Runner::start(command)
}

fn jobs(world: &World) -> String {
    fs::read_to_string(world.path("jobs")).unwrap_or_default()
}

fn await_job(world: &World, name: &str) {
    let end = Instant::now() + PATIENCE;
    while !jobs(world).contains(name) {
        assert!(Instant::now() < end, "no job of {name}: {}", jobs(world));
        pause();
    }
}

#[test]
fn the_crontab_line_runs_a_short_job_once_on_two_hosts() {
    let world = World::new();
    let job = format!("echo $PRIMACY_NAME >> {}", world.path("jobs").display());
    // At the same time.
    let mut both = [host(&world, "a", &job), host(&world, "b", &job)];
    let end = Instant::now() + PATIENCE;
    let first = loop {
        let ended = both.iter_mut().find_map(|host| host.child.try_wait().expect("it was started"));
        if let Some(status) = ended {
            break status.code();
        }
        assert!(Instant::now() < end, "both wait");
        pause();
    };
    assert_eq!(first, Some(75), "{}", jobs(&world));
    others_gave_up(&world);
    let mut codes = both.map(|mut host| host.wait().code());
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(75)]);
    assert_eq!(jobs(&world).lines().count(), 1, "{}", jobs(&world));
    for name in ["jobs", "others-gave-up"] {
        fs::remove_file(world.path(name)).expect("it was written");
    }
    // One after the other, when the job is done.
    let mut first = host(&world, "a", &job);
    await_job(&world, "a");
    let mut second = host(&world, "b", &job);
    assert_eq!(second.wait().code(), Some(75));
    others_gave_up(&world);
    assert_eq!(first.wait().code(), Some(0));
    assert_eq!(jobs(&world), "a\n");
}

#[test]
fn with_the_crontab_line_the_other_host_does_the_job_of_one_that_fails() {
    let world = World::new();
    let job = format!("sh -c 'echo $PRIMACY_NAME >> {}; test $PRIMACY_NAME = b'", world.path("jobs").display());
    let job = job.replace('\'', "\"").replace('$', "\\$");
    others_gave_up(&world);
    let mut first = host(&world, "a", &job);
    await_job(&world, "a");
    let mut second = host(&world, "b", &job);
    assert_eq!((first.wait().code(), second.wait().code()), (Some(1), Some(0)));
    assert_eq!(jobs(&world), "a\nb\n");
}

#[test]
fn with_the_crontab_line_the_other_host_does_the_job_of_one_that_is_lost() {
    let world = World::new();
    let hangs = format!(
        "if test $PRIMACY_NAME = a; then sleep 1000; fi; echo $PRIMACY_NAME >> {}",
        world.path("done").display()
    );
    let job = format!("echo $PRIMACY_NAME >> {}; {hangs}", world.path("jobs").display());
    let job = format!("sh -c \"{}\"", job.replace('$', "\\$"));
    others_gave_up(&world);
    let first = host(&world, "a", &job);
    await_job(&world, "a");
    let mut second = host(&world, "b", &job);
    world.await_candidates_of("nightly", 1);
    first.send(Signal::SIGKILL);
    assert_eq!(second.wait().code(), Some(0));
    assert_eq!(jobs(&world), "a\nb\n");
    assert_eq!(fs::read_to_string(world.path("done")).expect("it was done"), "b\n");
}
