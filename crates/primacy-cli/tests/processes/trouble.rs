//! Full disks, read-only and broken files, stepped clocks.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::world::{BRIEF, Runner, STEADY, STEADY_NANOS, World, lives};

const SHORT: &[&str] = &["--lease", "1s", "--grace", "200ms"];

fn refused(world: &World) -> String {
    let output = world.primacy(["run", "--", "true"]).output().expect("primacy starts");
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_corrupt_file_is_refused_and_left_alone() {
    let world = World::new();
    let garbage = vec![0x5a; 8192];
    fs::write(world.path("primacy.db"), &garbage).expect("a temporary folder");
    let said = refused(&world);
    assert!(said.contains("primacy.db"), "{said}");
    assert_eq!(fs::read(world.path("primacy.db")).expect("it is there"), garbage);
}

#[test]
fn a_folder_that_is_not_there_is_refused() {
    let world = World::new();
    let store = format!("sqlite:{}", world.path("no/such/folder/primacy.db").display());
    let output = world.primacy(["run", "--store", &store, "--", "true"]).output().expect("primacy starts");
    assert_eq!(output.status.code(), Some(69));
    assert!(!world.path("no").exists());
}

#[test]
fn a_file_that_is_deleted_under_a_leader_ends_its_leadership() {
    let mut world = World::new();
    let _first = world.start("a", SHORT, &[]);
    let led = world.expect_start_after(0);
    for name in ["primacy.db", "primacy.db-wal", "primacy.db-shm"] {
        let _ = fs::remove_file(world.path(name));
    }
    // It leads again in a new file, under a larger token, and no longer in one that nobody else can see.
    world.expect_start_after(led.token);
    assert!(!lives(led.pid));
    world.assert_never_two();
}

/// What SQLite has in memory still works for those who have the file open; nobody else may lead beside them.
#[test]
fn a_file_damaged_under_a_leader_brings_no_second_one() {
    let mut world = World::new();
    let _first = world.start("a", SHORT, &[]);
    let led = world.expect_start_after(0);
    for name in ["primacy.db", "primacy.db-wal"] {
        let Ok(file) = File::options().write(true).open(world.path(name)) else { continue };
        let length = file.metadata().expect("it is there").len();
        file.write_all_at(&vec![0xa5; usize::try_from(length).expect("small")], 0).expect("writable");
    }
    let mut second = world.start("b", SHORT, &[]);
    assert_eq!(second.wait().code(), Some(69));
    // One who leads on does so alone; one who cannot any more has ended in time.
    if lives(led.pid) {
        world.expect("the first to go on for a lease", |line| line.nanos > led.nanos + 1_000_000_000);
    }
    world.assert_never_two();
}

/// A file system of one mebibyte, or `None` where this user may not mount one.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn mount() -> Option<Self> {
        Self::mount_of("1m")
    }

    pub(crate) fn mount_of(size: &str) -> Option<Self> {
        let disk = Self(TempDir::new().expect("a temporary folder"));
        disk.mounted(&format!("size={size}")).then_some(disk)
    }

    /// Gives it more room.
    pub(crate) fn grow_to(&self, size: &str) {
        assert!(self.mounted(&format!("remount,size={size}")), "it is mounted");
    }

    fn mounted(&self, options: &str) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(self.path());
        mount.status().is_ok_and(|status| status.success())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_ends_leadership_in_time_and_room_brings_it_back() {
    let Some(disk) = SmallDisk::mount() else {
        return primacy_servers::skipped("mounting a small file system needs root");
    };
    let folder = TempDir::new_in(disk.0.path()).expect("room for a folder");
    let mut world = World::within(folder);
    let _first = world.start("a", BRIEF, &[]);
    let led = world.expect_start_after(0);
    let ballast = disk.0.path().join("ballast");
    fill(&ballast);
    world.expect("the program to be told", |line| line.word == "told" && line.token == led.token);
    fs::remove_file(&ballast).expect("it was written");
    world.expect_start_after(led.token);
    world.assert_never_two();
}

/// Leaves no room on the disk of this file.
pub(crate) fn fill(path: &Path) {
    let file = File::create(path).expect("a file has room for its name");
    let block = [0; 4096];
    let mut at = 0;
    while file.write_all_at(&block, at).is_ok() {
        at += 4096;
    }
}

#[test]
fn a_wall_clock_that_is_an_hour_off_changes_nothing() {
    let mut world = World::new();
    let Some(library) = wall_clock(&world) else { return primacy_servers::skipped("there is no C compiler") };
    let start = |world: &World, name, offset: i64| {
        let mut command = world.witness(name, STEADY, &[]);
        command.env("LD_PRELOAD", &library).env("WALL_CLOCK_OFFSET", offset.to_string());
        Runner::start(command)
    };
    let before = jiff::Timestamp::now().as_millisecond();
    let mut ahead = start(&world, "ahead", 3_600);
    let led = world.expect_start_after(0);
    let _behind = start(&world, "behind", -3_600);
    world.await_candidates(1);
    let history = world.primacy(["history", "--json"]).output().expect("primacy starts");
    let history: serde_json::Value = serde_json::from_slice(&history.stdout).expect("JSON");
    let began = history["terms"][0]["granted_unix_ms"].as_i64().expect("a time of day");
    assert!(began >= before + 3_600_000, "the leader's clock is an hour ahead: {history}");
    let kept = world.expect("a lease to pass", |line| line.nanos > led.nanos + STEADY_NANOS + 1_000_000_000);
    assert_eq!(kept.token, led.token, "nobody takes a live lease, whatever the clocks say");
    crate::world::send(kept.pid, Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "behind", "a clock that is behind does not block a takeover");
    assert!(!lives(led.pid));
    assert_eq!(ahead.wait().code(), Some(128 + 9), "a runner ends with its program");
    world.assert_never_two();
}

/// The library that shows a process another time of day.
fn wall_clock(world: &World) -> Option<PathBuf> {
    preloaded("wall_clock", &world.path("wall_clock.so"))
}

/// A library of these tests that changes what processes are told, at this path.
pub(crate) fn preloaded(name: &str, library: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes").join(name).with_extension("c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(source).status().ok()?;
    assert!(compiled.success(), "it compiles");
    Some(library.to_owned())
}
