//! Files that are not what they should be, and files that do not stay.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use primacy::Token;
use primacy::select::Rank;
use primacy::store::{Reply, Store};

use crate::support::{Actor, applied, at, election, place, sql, unusable};

#[tokio::test]
async fn what_is_no_file_is_refused_and_left_alone() {
    let (folder, path) = place();
    let missing = folder.path().join("no/such/p.db");
    let why = unusable(Actor::try_join(&at(&missing), "e", 1).await, &missing);
    assert!(why.contains("there is no folder") && !missing.parent().expect("has one").exists(), "{why}");
    let why = unusable(Actor::try_join(&at(folder.path()), "e", 1).await, folder.path());
    assert!(why.contains("folder"), "{why}");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let why = unusable(Actor::try_join(&at(&path), "e", 1).await, &path);
    assert!(why.contains("pipe"), "{why}");
    let device = Path::new("/dev/null");
    let why = unusable(Actor::try_join(&at(device), "e", 1).await, device);
    assert!(why.contains("device"), "{why}");
    let proc = Path::new("/proc/p.db");
    let why = unusable(Actor::try_join(&at(proc), "e", 1).await, proc);
    assert!(why.contains("0x9fa0") && why.contains("filesystem=any"), "{why}");
    let file = folder.path().join("f");
    fs::write(&file, "").expect("writable");
    let below = file.join("p.db");
    unusable(Actor::try_join(&at(&below), "e", 1).await, &below);
}

#[tokio::test]
async fn a_desk_creates_nothing() {
    let (folder, path) = place();
    let opened = |result: Result<Box<dyn primacy::store::Admin>, _>| result.map(|_| "an admin connection");
    let why = unusable(opened(at(&path).admin().await), &path);
    assert!(why.contains("nobody has run an election there"), "{why}");
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
    fs::write(&path, "").expect("writable");
    unusable(opened(at(&path).admin().await), &path);
    assert_eq!(fs::metadata(&path).expect("there").len(), 0);
    // A candidate may begin in an empty file.
    Actor::join(&at(&path), "e", 1).await.take().await;
    let mut admin = at(&path).admin().await.expect("opens");
    assert!(admin.snapshot(&election("e")).await.expect("reads").is_some());
    assert!(admin.snapshot(&election("other")).await.expect("reads").is_none());
}

#[tokio::test]
async fn a_file_of_something_else_is_refused_and_left_alone() {
    let (_folder, path) = place();
    for content in ["not a database, but a text that is longer than the header of one. ".repeat(40), "short".into()] {
        fs::write(&path, &content).expect("writable");
        let why = unusable(Actor::try_join(&at(&path), "e", 1).await, &path);
        assert!(why.contains("not a SQLite database"), "{why}");
        assert_eq!(fs::read_to_string(&path).expect("readable"), content);
    }
    for prepare in [
        "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)",
        "PRAGMA application_id = 7; CREATE TABLE theirs (x)",
        "PRAGMA user_version = 3; CREATE TABLE theirs (x)",
        "PRAGMA application_id = 7",
    ] {
        fs::remove_file(&path).expect("removable");
        sql(&path).execute_batch(prepare).expect("prepares");
        let before = fs::read(&path).expect("readable");
        let why = unusable(Actor::try_join(&at(&path), "e", 1).await, &path);
        assert!(why.contains("another program"), "{prepare}: {why}");
        unusable(at(&path).admin().await.map(|_| ()), &path);
        assert_eq!(fs::read(&path).expect("readable"), before, "{prepare}: it was changed");
    }
}

#[tokio::test]
async fn another_version_of_the_tables_is_refused_by_number() {
    let (_folder, path) = place();
    drop(Actor::join(&at(&path), "e", 1).await);
    for version in [0, 3, 7] {
        sql(&path).pragma_update(None, "user_version", version).expect("writes");
        for why in [
            unusable(Actor::try_join(&at(&path), "e", 1).await, &path),
            unusable(at(&path).admin().await.map(|_| ()), &path),
        ] {
            assert!(why.contains(&format!("version {version}")) && why.contains("version 2"), "{why}");
        }
    }
}

/// Tables from before ranks: candidates bring them forward, one that runs with them goes on, and nothing is lost.
#[tokio::test]
async fn tables_of_version_1_are_brought_forward_by_a_candidate_and_not_by_an_observer() {
    let (_folder, path) = place();
    let (_running, led) = Actor::leading(&at(&path), "e", 1).await;
    let mut old = Actor::join(&at(&path), "e", 2).await;
    old.announce().await;
    sql(&path)
        .execute_batch("ALTER TABLE primacy_candidate DROP COLUMN rank; PRAGMA user_version = 1")
        .expect("goes back");
    assert!(unusable(at(&path).admin().await.map(|_| ()), &path).contains("primacy run"));
    let mut new = Actor::join(&at(&path), "e", 3).await;
    assert_eq!(new.announce().await.record, Some(led), "what was there is there");
    new.announce_as(Rank::new(&[-1]).expect("one")).await;
    assert_eq!(new.look().await.standing.ahead, 0, "before the one that waited already");
    assert_eq!(old.look().await.standing.ahead, 1);
    let version: i32 = sql(&path).pragma_query_value(None, "user_version", |row| row.get(0)).expect("reads");
    assert_eq!(version, 2);
    at(&path).admin().await.expect("observers are welcome again");
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_elects_nobody() {
    let (_folder, path) = place();
    let mut actor = Actor::join(&at(&path), "e", 1).await;
    actor.take().await;
    drop(actor);
    // Everything is in the file itself, and nothing in its log.
    let conn = sql(&path);
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("folds back");
    drop(conn);
    let sound = fs::read(&path).expect("readable");
    let mut refused = 0;
    for page in 1..sound.len() / 4096 {
        let mut damaged = sound.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0xA5);
        fs::write(&path, &damaged).expect("writable");
        let Ok(mut actor) = Actor::try_join(&at(&path), "e", 2).await else {
            refused += 1;
            continue;
        };
        match actor.try_look().await {
            Err(error) => {
                refused += 1;
                let why = unusable::<()>(Err(error), &path);
                assert!(why.contains("damaged"), "{why}");
            }
            // The damaged page belongs to another table or index.
            Ok(seen) => assert!(seen.record.is_some(), "page {page}: the row is missing"),
        }
        drop(actor);
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{suffix}", path.display()));
        }
    }
    assert!(refused >= 2, "only {refused} damaged pages were noticed");
    fs::write(&path, &sound[..5_000]).expect("writable");
    unusable(Actor::try_join(&at(&path), "e", 2).await, &path);
}

#[tokio::test]
async fn rows_that_primacy_never_writes_are_named_as_damage() {
    let (_folder, path) = place();
    let mut actor = Actor::join(&at(&path), "e", 1).await;
    actor.take().await;
    let conn = sql(&path);
    // The tables' own checks refuse most of it.
    assert!(conn.execute("UPDATE primacy_election SET token = -1", []).is_err());
    assert!(conn.execute("UPDATE primacy_election SET holder = x'00'", []).is_err());
    assert!(conn.execute("UPDATE primacy_election SET wish = 'x'", []).is_err());
    assert!(conn.execute("UPDATE primacy_election SET label = 7.5, data = NULL", []).is_err());
    conn.execute("UPDATE primacy_election SET label = ''", []).expect("writes");
    let why = unusable(actor.try_look().await, &path);
    assert!(why.contains("a label") && why.contains("damaged"), "{why}");
    conn.execute_batch("DROP TABLE primacy_term").expect("writes");
    unusable(actor.try_look().await, &path);
}

/// A leader whose file is gone must not go on renewing it: others already elect in a new one.
#[tokio::test]
async fn a_file_that_was_removed_or_replaced_is_noticed_by_every_step() {
    for replace in [false, true] {
        let (folder, path) = place();
        let mut a = Actor::join(&at(&path), "e", 1).await;
        let mut b = Actor::join(&at(&path), "e", 2).await;
        let mut admin = at(&path).admin().await.expect("opens");
        let first = a.take().await;
        for suffix in ["", "-wal", "-shm"] {
            let file = format!("{}{suffix}", path.display());
            fs::rename(&file, folder.path().join(format!("moved{suffix}"))).expect("moves");
        }
        if replace {
            drop(Actor::join(&at(&path), "other", 3).await);
        }
        let renewal = a.renewal(&first);
        let why = unusable(a.step(renewal).await, &path);
        assert!(why.contains("removed or replaced"), "{why}");
        unusable(b.try_look().await, &path);
        let asking = b.asking(Some(first.expectation()), Token::NONE);
        unusable(b.step(asking).await, &path);
        unusable(admin.snapshot(&election("e")).await, &path);
        // What was granted is still known from beside the file: a first grant is waited for, and is larger.
        let mut fresh = Actor::join(&at(&path), "e", 4).await;
        let seen = fresh.look().await;
        assert_eq!((seen.record, seen.remembered), (None, first.version.token));
        assert!(fresh.take().await.version.token > first.version.token);
    }
}

#[tokio::test]
async fn a_log_that_was_removed_is_noticed() {
    for suffix in ["-wal", "-shm"] {
        let (_folder, path) = place();
        let (mut a, record) = Actor::leading(&at(&path), "e", 1).await;
        fs::remove_file(format!("{}{suffix}", path.display())).expect("removes");
        let renewal = a.renewal(&record);
        let why = unusable(a.step(renewal).await, &path);
        assert!(why.contains(suffix) && why.contains("removed"), "{why}");
    }
}

#[tokio::test]
async fn a_second_name_of_the_file_is_refused_and_a_symbolic_link_is_not() {
    let (folder, path) = place();
    let (mut a, record) = Actor::leading(&at(&path), "e", 1).await;
    let link = folder.path().join("link.db");
    symlink(&path, &link).expect("links");
    let mut b = Actor::join(&at(&link), "e", 2).await;
    assert_eq!(b.look().await.record.as_ref(), Some(&record));
    let mut hints = at(&link).hints(&election("e")).await.expect("hints");
    let renewed = {
        let renewal = a.renewal(&record);
        applied(a.step(renewal).await)
    };
    let release = a.release(&renewed);
    applied(a.step(release).await);
    hints.next().await;
    let name = folder.path().join("hard.db");
    fs::hard_link(&path, &name).expect("links");
    assert!(unusable(Actor::try_join(&at(&name), "e", 3).await, &name).contains("several names"));
    assert!(unusable(b.try_look().await, &link).contains("several names"));
}

#[tokio::test]
async fn tokens_grow_past_all_that_is_left_of_the_row() {
    let (_folder, path) = place();
    let mut a = Actor::join(&at(&path), "e", 1).await;
    let first = a.take().await.version.token;
    let conn = sql(&path);
    conn.execute_batch("DELETE FROM primacy_election; DELETE FROM primacy_term").expect("deletes");
    let seen = a.look().await;
    assert_eq!((seen.record, seen.remembered), (None, first), "the hint file remembers");
    let second = a.take().await.version.token;
    assert!(second > first);
    conn.execute("UPDATE primacy_election SET token = 1", []).expect("writes");
    let lowered = a.look().await.record.expect("there");
    let asking = a.asking(Some(lowered.expectation()), Token::NONE);
    let Ok(Reply::Applied(third)) = a.step(asking).await else { panic!("granted") };
    assert!(third.version.token > second, "a row that someone lowered does not lower what is granted");
    // Nobody can lift it beyond what a token can be.
    let hints = format!("{}.hints/e", path.display());
    assert!(fs::read_to_string(&hints).expect("is there").starts_with("0000000000000000003"), "it holds the token");
    fs::write(&hints, "99999999999999999999999").expect("writable");
    assert_eq!(a.take().await.version.token, Token::new(4).expect("small"));
}
