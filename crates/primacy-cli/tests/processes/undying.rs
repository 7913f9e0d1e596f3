//! What was killed and does not die holds up nobody else for longer than the lease: what may not be killed, and what is silent.
//! A dead process that another one traces stands for what hangs in the kernel: it is a child for as long, and no signal to it fails.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::agent::Agent;
use crate::hooks::{create, hook, remove};
use crate::rights::{as_nobody, await_log, setuid_root, start_immune, world_of_nobody};
use crate::through_agent::TIMELY;
use crate::world::{PATIENCE, Runner, World, lives, pause, send};

/// Whether somebody else can lead in time.
fn another_leads(world: &World) -> bool {
    let mut other = world.primacy(["run", "--name", "q", "--for", "18s"]);
    let status = other.args(TIMELY).args(["--", "true"]).status();
    status.is_ok_and(|status: ExitStatus| status.success())
}

fn await_file(path: &Path) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        match fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(Instant::now() < end, "no {}", path.display()),
        }
        pause();
    }
}

#[test]
fn a_program_that_has_ended_and_left_what_may_not_be_killed_keeps_nobody_from_leading() {
    for through_agent in [false, true] {
        let Some(world) = world_of_nobody() else { return };
        create(&world, "immune");
        let become_root = setuid_root(&world, "/usr/bin/setpriv");
        let [ready, immune] = ["ready", "immune"].map(|name| world.path(name).display().to_string());
        let left = format!("echo $$ > {ready}; while [ -e {immune} ]; do sleep 0.02; done");
        let left = format!("{} --reuid=0 --clear-groups -- sh -c '{left}' &", become_root.display());
        let program = format!("{left} while [ ! -s {ready} ]; do sleep 0.02; done; exit 3");
        let agent = through_agent.then(|| Agent::start_as(&world, "a", TIMELY, |command| as_nobody(&command)));
        let mut command = world.primacy(["run", "--name", "a", "--allow-privileges"]);
        match &agent {
            Some(agent) => command.arg("--agent").arg(&agent.socket).env_remove("PRIMACY_STORE"),
            None => command.args(TIMELY),
        };
        let mut command = as_nobody(command.args(["--", "sh", "-c", &program]));
        let mut first = Runner::start({
            command.stderr(File::create(world.path("log")).expect("a temporary folder"));
            command
        });
        await_log(&world, "may not kill process");
        let left = await_file(&world.path("ready")).parse().expect("a number");
        assert!(another_leads(&world) && lives(left) && lives(first.pid()), "through an agent: {through_agent}");
        remove(&world, "immune");
        assert_eq!(first.wait().code(), Some(3), "as the program did");
    }
}

#[test]
fn nor_does_a_runner_whose_warden_was_killed() {
    let Some(mut world) = world_of_nobody() else { return };
    let first = start_immune(&world, TIMELY);
    let led = world.expect_start_after(0);
    send(first.warden(), Signal::SIGKILL);
    assert!(another_leads(&world) && lives(led.pid) && lives(first.pid()));
    send(led.pid, Signal::SIGKILL);
    // It leads again, and its user may not kill that program either.
    send(world.expect_start_after(led.token + 1).pid, Signal::SIGKILL);
}

/// What keeps a process from being reaped.
struct Tracer(Child);

impl Tracer {
    /// Of the process whose number is in the file `left`.
    fn start(world: &World) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/tracer.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(await_file(&world.path("left"))).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut tracer = Self(command.spawn().expect("python is installed"));
        let mut line = String::new();
        BufReader::new(tracer.0.stdout.take().expect("piped")).read_line(&mut line).expect("it is text");
        assert_eq!(line, "traced\n");
        tracer
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A part of a script that leaves a process, and waits until the file `wait` is removed.
fn leaves_and_waits(world: &World) -> String {
    create(world, "wait");
    let [left, wait] = ["left", "wait"].map(|name| world.path(name).display().to_string());
    format!("sleep 1000 & echo $! > {left}; while [ -e {wait} ]; do sleep 0.02; done")
}

fn start(world: &World, arguments: &[&str]) -> Runner {
    let mut command = world.primacy(["run", "--name", "a"]);
    command.args(TIMELY).args(arguments);
    Runner::start({
        command.stderr(File::create(world.path("log")).expect("a temporary folder"));
        command
    })
}

#[test]
fn what_hangs_in_the_kernel_after_its_program_has_ended_keeps_nobody_from_leading() {
    let world = World::new();
    let mut first = start(&world, &["--", "sh", "-c", &format!("{}; exit 3", leaves_and_waits(&world))]);
    let tracer = Tracer::start(&world);
    remove(&world, "wait");
    assert!(another_leads(&world) && lives(first.pid()));
    assert!(await_log(&world, "does not die").contains("ERROR"));
    drop(tracer);
    assert_eq!(first.wait().code(), Some(3), "as the program did");
}

#[test]
fn what_hangs_in_the_kernel_after_on_elected_has_succeeded_keeps_nobody_from_leading() {
    let world = World::new();
    let elected = leaves_and_waits(&world);
    let first = start(&world, &["--on-elected", &elected, "--on-lost", &hook(&world, "lost", &[])]);
    let tracer = Tracer::start(&world);
    remove(&world, "wait");
    assert!(another_leads(&world) && lives(first.pid()));
    await_log(&world, "--on-lost has succeeded, but something");
    drop(tracer);
    await_log(&world, "gives back the lease");
}

#[test]
fn a_runner_that_is_asked_to_end_waits_a_while_for_what_hangs_in_the_kernel() {
    let world = World::new();
    let mut first = start(&world, &["--", "sh", "-c", &leaves_and_waits(&world)]);
    let _tracer = Tracer::start(&world);
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(77));
    assert!(another_leads(&world));
}
