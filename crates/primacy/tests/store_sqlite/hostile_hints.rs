//! What somebody else has put into the folder of hints, which may be one that others can write to.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use primacy::Token;
use primacy::store::{Severity, Store as _};

use crate::support::{Actor, applied, at, election, place};

/// Far more than a step takes. One that waits for what was planted never ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest number that a token can be.
const LARGEST: &str = "9223372036854775807\n";

const STRANGER: u32 = 54_321;

fn hint_file(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.hints", path.display())).join("e")
}

/// Files and threads of this process.
fn held() -> usize {
    let count = |folder| fs::read_dir(folder).expect("this is Linux").count();
    count("/proc/self/fd") + count("/proc/self/task")
}

/// Three leaders, one after another, while somebody waits for hints.
async fn runs(path: &Path) -> Vec<u64> {
    let store = at(path);
    let mut tokens = Vec::new();
    let election = election("e");
    let hints = store.hints(&election).await.expect("an election needs no hints");
    for id in 1..=3 {
        let (mut actor, record) = Actor::leading(&store, "e", id).await;
        tokens.push(record.version.token.get());
        let renewal = actor.renewal(&record);
        let record = applied(actor.step(renewal).await);
        let release = actor.release(&record);
        applied(actor.step(release).await);
    }
    drop(hints);
    tokens
}

/// Each is put where the election's hint file will be, in a folder that anybody can write to.
#[tokio::test]
async fn whatever_stands_in_place_of_a_hint_file_an_election_goes_on() {
    let is_root = nix::unistd::geteuid().is_root();
    type Plant = fn(&Path, &Path);
    let plants: [(&str, Plant); 10] = [
        ("a pipe", |file, _| mkfifo(file, Mode::all()).expect("a pipe")),
        ("a folder", |file, _| fs::create_dir(file).expect("a folder")),
        ("a socket", |file, _| drop(std::os::unix::net::UnixListener::bind(file).expect("a socket"))),
        ("a link to a file", |file, victim| symlink(victim, file).expect("a link")),
        ("a link to a device", |file, _| symlink("/dev/zero", file).expect("a link")),
        ("a link to itself", |file, _| symlink(file, file).expect("a link")),
        ("another name of a file", |file, victim| fs::hard_link(victim, file).expect("a link")),
        ("a file that anybody may write", |file, _| {
            fs::write(file, LARGEST).expect("writable");
            fs::set_permissions(file, fs::Permissions::from_mode(0o666)).expect("mine");
        }),
        ("a file of a stranger", |file, _| {
            fs::write(file, "1000\n").expect("writable");
            // Without root there are no files of strangers here, and its number may be believed.
            match chown(file, Some(STRANGER), None) {
                Ok(()) => {}
                Err(_) => fs::remove_file(file).expect("removes"),
            }
        }),
        ("a huge file", |file, _| {
            let planted = fs::File::create(file).expect("writable");
            planted.set_len(1 << 40).expect("it is empty");
        }),
    ];
    let before = held();
    for (what, plant) in plants {
        let (folder, path) = place();
        let victim = folder.path().join("victim");
        fs::write(&victim, LARGEST).expect("writable");
        let file = hint_file(&path);
        fs::create_dir(file.parent().expect("has one")).expect("a folder");
        fs::set_permissions(file.parent().expect("has one"), fs::Permissions::from_mode(0o777)).expect("mine");
        plant(&file, &victim);
        let tokens = tokio::time::timeout(PATIENCE, runs(&path)).await;
        assert_eq!(tokens.as_deref(), Ok(&[1, 2, 3][..]), "{what} (root: {is_root})");
        assert_eq!(fs::read_to_string(&victim).expect("readable"), LARGEST, "{what}: the other file is as it was");
    }
    let gone = async {
        while held() > before + 2 {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, gone).await.is_ok(), "{} files and threads, {before} before", held());
}

/// The file of primacy itself with a number in it after which there is none.
#[tokio::test]
async fn a_number_that_no_token_could_follow_is_not_believed() {
    for number in [LARGEST, "9223372036854775807junk\n", "-1\n"] {
        let (_folder, path) = place();
        let file = hint_file(&path);
        fs::create_dir(file.parent().expect("has one")).expect("a folder");
        fs::write(&file, number).expect("writable");
        let tokens = tokio::time::timeout(PATIENCE, runs(&path)).await.expect("in time");
        assert_eq!(tokens, [1, 2, 3], "{number:?}");
        let mut actor = Actor::join(&at(&path), "e", 4).await;
        assert_eq!(actor.look().await.remembered, Token::new(3).expect("small"));
    }
}

#[tokio::test]
async fn a_folder_of_hints_that_others_have_made_is_not_used_and_the_doctor_says_so() {
    type Plant = fn(&Path, &Path);
    let plants: [(&str, Plant); 4] = [
        ("a pipe", |folder, _| mkfifo(folder, Mode::all()).expect("a pipe")),
        ("a link to a folder", |folder, elsewhere| symlink(elsewhere, folder).expect("a link")),
        ("a link to nothing", |folder, _| symlink("nothing", folder).expect("a link")),
        ("a folder of a stranger", |folder, elsewhere| {
            fs::create_dir(folder).expect("a folder");
            fs::write(folder.join("e"), "1000\n").expect("writable");
            // Without root there are no folders of strangers here.
            if chown(folder, Some(STRANGER), None).is_err() {
                fs::remove_dir_all(folder).expect("removes");
                symlink(elsewhere, folder).expect("a link");
            }
        }),
    ];
    for (what, plant) in plants {
        let (folder, path) = place();
        let elsewhere = folder.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("a folder");
        fs::write(elsewhere.join("e"), "1000\n").expect("writable");
        plant(hint_file(&path).parent().expect("has one"), &elsewhere);
        let tokens = tokio::time::timeout(PATIENCE, runs(&path)).await;
        assert_eq!(tokens.as_deref(), Ok(&[1, 2, 3][..]), "{what}");
        assert_eq!(fs::read_to_string(elsewhere.join("e")).expect("readable"), "1000\n", "{what}");
        let probe = at(&path).admin().await.expect("opens").probe().await.expect("probes");
        let told = probe.findings.iter().any(|found| found.code == "hints" && found.severity == Severity::Warning);
        assert!(told, "{what}: {:?}", probe.findings);
    }
}
