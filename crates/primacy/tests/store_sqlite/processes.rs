//! Many sessions and many processes on one file.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use primacy::store::{Reply, Store, StoreError};
use primacy::{CandidateId, Token};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{Actor, applied, at, election, is_busy, join_among_many, place};

/// Runs the named test of this binary alone in a process of its own. `true` in the parent, once the child has passed.
pub(crate) fn in_a_process_of_its_own(name: &str) -> bool {
    alone(itself(name), name)
}

/// The same as a user whom the modes of files bind, as they do not bind root. `false` if they bind this process anyway.
pub(crate) fn bound_by_modes(name: &str) -> bool {
    use std::os::unix::fs::OpenOptionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let closed = folder.path().join("closed");
    let open = |mode| std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(mode).open(&closed);
    open(0o400).expect("creates");
    if open(0o400).is_err() {
        return false;
    }
    let test = itself(name);
    let mut bound = Command::new("setpriv");
    bound.args(["--bounding-set=-dac_override", "--inh-caps=-dac_override"]);
    bound.arg(test.get_program()).args(test.get_args());
    alone(bound, name)
}

fn alone(mut command: Command, name: &str) -> bool {
    const MARK: &str = "PRIMACY_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return false;
    }
    let status = command.env(MARK, "1").status().expect("starts");
    assert!(status.success(), "{name} failed in a process of its own");
    true
}

fn itself(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.args(["--exact", "--nocapture", name]);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_threads_that_race_one_wins_each_token() {
    let (_folder, path) = place();
    let mut actors = Vec::new();
    for number in 1..=50 {
        actors.push(Actor::join(&at(&path), "e", number).await);
    }
    let mut expect = None;
    for round in 1..=10_u64 {
        let start = Arc::new(Barrier::new(actors.len()));
        let mut racing = JoinSet::new();
        for mut actor in actors.drain(..) {
            let start = Arc::clone(&start);
            racing.spawn(async move {
                start.wait().await;
                let asking = actor.asking(expect, Token::NONE);
                loop {
                    let reply = actor.step(asking.clone()).await;
                    if !is_busy(&reply) {
                        return (actor, reply);
                    }
                }
            });
        }
        let mut won = Vec::new();
        while let Some(raced) = racing.join_next().await {
            let (actor, reply) = raced.expect("no panic");
            match reply.expect("answers") {
                Reply::Applied(record) => won.push(record),
                Reply::Conflict(_) => {}
                other => panic!("{other:?}"),
            }
            actors.push(actor);
        }
        let [record] = &won[..] else { panic!("{} won round {round}", won.len()) };
        assert_eq!(record.version.token, Token::new(round).expect("small"));
        expect = Some(record.expectation());
    }
}

const CHILD_FILE: &str = "PRIMACY_TEST_FILE";
const CHILD_NUMBER: &str = "PRIMACY_TEST_NUMBER";

/// What each of the processes below does: takes, renews and releases, and tells of every token it was granted.
#[test]
fn contender() {
    let Some(path) = std::env::var_os(CHILD_FILE) else { return };
    let number: u128 = std::env::var(CHILD_NUMBER).expect("set").parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = at(Path::new(&path));
        let mut actor = join_among_many(&store, "e", number).await;
        for _ in 0..200 {
            let result = contend(&mut actor).await;
            match result {
                Ok(Some(token)) => println!("\nGRANTED {token}"),
                Ok(None) => {}
                // Busy: on a new connection.
                Err(StoreError::Unreachable(_)) => actor = join_among_many(&store, "e", number).await,
                Err(error) => panic!("{error}"),
            }
        }
    });
}

async fn contend(actor: &mut Actor) -> Result<Option<Token>, StoreError> {
    let expect = actor.try_look().await?.record.map(|record| record.expectation());
    let asking = actor.asking(expect, Token::NONE);
    let Reply::Applied(record) = actor.step(asking).await? else { return Ok(None) };
    let renewal = actor.renewal(&record);
    if let Reply::Applied(renewed) = actor.step(renewal).await? {
        let release = actor.release(&renewed);
        actor.step(release).await?;
    }
    Ok(Some(record.version.token))
}

fn start(path: &Path, number: u128) -> Child {
    itself("processes::contender")
        .env(CHILD_FILE, path)
        .env(CHILD_NUMBER, number.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts")
}

/// Eight processes on one file, two of which are killed in the middle: no token is granted twice, and the history
/// agrees with what each was told.
#[test]
fn processes_that_race_and_die_share_no_token() {
    let (_folder, path) = place();
    let mut children: Vec<(u128, Child)> = (1..=8).map(|number| (number, start(&path, number))).collect();
    let mut granted: BTreeMap<u64, u128> = BTreeMap::new();
    let mut total = 0;
    for (number, child) in &mut children {
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut own = 0;
        for line in output.lines() {
            // A killed process may end in the middle of a line.
            let line = line.expect("readable");
            let Some(token) = line.strip_prefix("GRANTED ").and_then(|token| token.parse().ok()) else { continue };
            assert!(token > own, "process {number} was granted {token} after {own}");
            own = token;
            if let Some(other) = granted.insert(token, *number) {
                panic!("token {token} was granted to {other} and to {number}");
            }
            total += 1;
            if *number <= 2 && total % 20 == 19 {
                child.kill().expect("kills");
                break;
            }
        }
        let status = child.wait().expect("ends");
        assert!(status.success() || *number <= 2, "process {number}: {status}");
    }
    assert!(total > 100, "only {total} grants");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = at(&path);
        let mut admin = store.admin().await.expect("opens");
        let history = admin.history(&election("e"), 5_000).await.expect("reads");
        let known: BTreeMap<u64, CandidateId> = history.iter().map(|term| (term.token.get(), term.id)).collect();
        let oldest = known.keys().next().copied().expect("not empty");
        for (token, number) in granted.range(oldest..) {
            assert_eq!(known.get(token), Some(&CandidateId::from_bits(*number)), "token {token}");
        }
        let (mut last, record) = Actor::leading(&store, "e", 99).await;
        assert!(record.version.token > history[0].token);
        let renewal = last.renewal(&record);
        applied(last.step(renewal).await);
    });
}
