//! Programs whose locks, runners and starts are given by the test.

use std::cell::RefCell;
use std::fs;
use std::future::Future;
use std::io::Write as _;
use std::process::Command;

use primacy::Label;
use primacy::store::memory::MemoryStore;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::super::lock::{LockFolder, note};
use super::super::start::RunnerSettings;
use super::super::{Log, Place, Programs, Surroundings};
use super::*;
use crate::agent::settings::Work;
use crate::cli::LogFormat;
use crate::standing::ProcessKind;

const PATIENCE: Duration = Duration::from_secs(60);

/// Those to whom it is told what was started.
type Starts = Rc<RefCell<Vec<oneshot::Sender<Result<Child, String>>>>>;

/// An agent's place for programs, where the test starts runners.
struct Ground {
    folder: TempDir,
    place: Rc<Place>,
    told: Arc<Candidates>,
    starts: Starts,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let locks = LockFolder::make(folder.path().join("locks")).expect("it is made");
        let log = Log { format: LogFormat::Text, verbose: 0, quiet: false };
        let (socket, label) = ("/agent.sock".into(), Label::new("a").expect("short"));
        let settings = RunnerSettings { socket, label, log, open_files: None };
        let starts = Starts::default();
        let begun = Rc::clone(&starts);
        let mut place = Place::new(Arc::new(settings), locks);
        place.begin = Box::new(move |_, _| {
            let (tell, told) = oneshot::channel();
            begun.borrow_mut().push(tell);
            Ok(told)
        });
        let told = Arc::new(Candidates::new(Arc::new(MemoryStore::default()), ProcessKind::Agent));
        Self { folder, place: Rc::new(place), told, starts }
    }

    fn supervisor(&self, wanted: Wanted) -> (watch::Sender<Wanted>, Supervisor) {
        let (tell, wanted) = watch::channel(wanted);
        (tell, Supervisor::new("p", &self.place, wanted, &self.told))
    }

    /// Locks what a runner of this agent has, before it has said which process it is.
    fn locked(&self) -> File {
        let path = self.folder.path().join("locks/p.lock");
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
        file.try_lock().expect("it is free");
        note(&file, &self.place.settings.started_with(&program("true"))).expect("it can be written");
        file
    }

    async fn until(&self, is_so: impl Fn(&ProgramState) -> bool) {
        let so = async {
            while !self.told.programs().all().iter().any(&is_so) {
                tokio::task::yield_now().await;
            }
        };
        within(so).await;
    }
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it does not come to that")
}

fn program(command: &str) -> Program {
    Program {
        name: "p".to_owned(),
        election: "e".to_owned(),
        work: Work::Command(vec![command.to_owned()]),
        directory: None,
        environment: [("SECRET".to_owned(), "hunter2".to_owned())].into(),
        isolate: false,
        data: None,
    }
}

async fn await_end(child: &mut Child) {
    while matches!(child.try_wait(), Ok(None)) {
        tokio::task::yield_now().await;
    }
}

fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().expect("it starts")
}

fn mark(mut lock: &File, child: &Child) {
    let mark = ProcessMark::of(nix::unistd::Pid::from_raw(child.id().cast_signed())).expect("it lives");
    let line = serde_json::to_string(&mark).expect("it can be written") + "\n";
    lock.write_all(line.as_bytes()).expect("it can be written");
}

#[tokio::test]
async fn a_runner_that_says_late_who_it_is_is_ended_all_the_same() {
    let ground = Ground::new();
    let lock = ground.locked();
    let mut runner = sleeper();
    let (_wanted, supervisor) = ground.supervisor(None);
    let late = async {
        ground.until(|program| program.why.is_some()).await;
        mark(&lock, &runner);
        await_end(&mut runner).await;
        drop(lock);
    };
    within(async { tokio::join!(supervisor.run(), late) }).await;
    assert_eq!(ground.told.programs().all(), []);
}

#[tokio::test]
async fn a_runner_of_another_container_is_left_alone_whatever_its_number_means_here() {
    let ground = Ground::new();
    let mut lock = ground.locked();
    let mut other = sleeper();
    let here = ProcessMark::of(nix::unistd::Pid::from_raw(other.id().cast_signed())).expect("it lives");
    let place = here.place.replace("pid:[", "pid:[1");
    let line = serde_json::to_string(&ProcessMark { place, ..here }).expect("it can be written") + "\n";
    lock.write_all(line.as_bytes()).expect("it can be written");
    let (wanted, supervisor) = ground.supervisor(Some(Arc::new(program("true"))));
    let end = async {
        ground.until(|program| program.why.as_ref().is_some_and(|why| why.contains("another container"))).await;
        wanted.send_replace(None);
    };
    within(async { tokio::join!(supervisor.run(), end) }).await;
    assert!(matches!(other.try_wait(), Ok(None)));
    other.kill().and_then(|()| other.wait()).expect("it is ours");
}

#[tokio::test]
async fn a_lock_that_cannot_be_used_is_tried_again_although_nothing_is_wanted() {
    let ground = Ground::new();
    let path = ground.folder.path().join("locks/p.lock");
    fs::create_dir(&path).expect("it is made");
    let mut runner = sleeper();
    let (_wanted, supervisor) = ground.supervisor(None);
    let later = async {
        ground.until(|program| program.why.as_ref().is_some_and(|why| why.contains("cannot be used"))).await;
        fs::remove_dir(&path).expect("it is empty");
        let lock = ground.locked();
        mark(&lock, &runner);
        await_end(&mut runner).await;
    };
    within(async { tokio::join!(supervisor.run(), later) }).await;
}

#[tokio::test]
async fn a_warden_that_stays_is_not_waited_for_without_limit_when_nothing_is_wanted() {
    let ground = Ground::new();
    let lock = ground.locked();
    let mut runner = sleeper();
    mark(&lock, &runner);
    runner.kill().and_then(|()| runner.wait()).expect("it is ours");
    let (wanted, mut supervisor) = ground.supervisor(Some(Arc::new(program("true"))));
    // It has waited for long.
    supervisor.looked = WARDEN_WITHIN;
    let end = async {
        // One that is wanted waits for as long as that takes.
        ground.until(|program| program.state == ProgramPhase::Stopping).await;
        assert!(ground.starts.borrow().is_empty());
        wanted.send_replace(None);
    };
    within(async { tokio::join!(supervisor.run(), end) }).await;
    drop(lock);
}

#[tokio::test]
async fn a_start_that_hangs_holds_up_no_end_and_its_runner_is_ended_when_it_comes() {
    let ground = Ground::new();
    let hung = async {
        let (wanted, supervisor) = ground.supervisor(Some(Arc::new(program("true"))));
        let end = async {
            while ground.starts.borrow().is_empty() {
                tokio::task::yield_now().await;
            }
            wanted.send_replace(None);
        };
        within(async { tokio::join!(supervisor.run(), end) }).await;
        assert_eq!(ground.place.starting.get(), 1);
        let start = ground.starts.borrow_mut().pop().expect("it was begun");
        start.send(Ok(sleeper())).expect("it is heard still");
        let ended = async {
            while ground.place.starting.get() > 0 {
                tokio::task::yield_now().await;
            }
        };
        within(ended).await;
    };
    LocalSet::new().run_until(hung).await;
}

#[tokio::test]
async fn a_runner_that_is_being_started_hears_also_of_an_end_that_does_not_wait() {
    let ground = Ground::new();
    let RunnerSettings { label, log, .. } = &*ground.place.settings;
    let surroundings =
        Surroundings { socket: Err("none".to_owned()), label: label.clone(), log: *log, open_files: None };
    let mut programs = Programs::new(surroundings, &ground.told);
    programs.place = Some(Rc::clone(&ground.place));
    let ended = async {
        programs.keep(&[program("true")]).expect("it has a place");
        while ground.starts.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        programs.end();
        let start = async {
            let start = ground.starts.borrow_mut().pop().expect("it was begun");
            start.send(Ok(sleeper())).expect("it is awaited");
        };
        tokio::join!(programs.end_again(), start);
        let told = ground.told.programs().all();
        assert!(told.iter().all(|program| program.state == ProgramPhase::Stopping), "{told:?}");
        within(programs.ended(PATIENCE)).await;
    };
    LocalSet::new().run_until(ended).await;
}

#[tokio::test]
async fn what_was_started_is_not_on_the_disk_when_it_has_ended() {
    let ground = Ground::new();
    let lock = ground.locked();
    let path = ground.folder.path().join("locks/p.lock");
    assert!(fs::read_to_string(&path).expect("it is there").contains("hunter2"));
    drop(lock);
    let (_wanted, supervisor) = ground.supervisor(None);
    within(supervisor.run()).await;
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "");
}
