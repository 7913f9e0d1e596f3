//! The lock of a program: a file that is locked while a runner of the program lives, or the warden of one, whichever agent has
//! started it. It says which process the runner is, and what it was started with.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::thread;

use nix::unistd::geteuid;
use rustix::fs::OFlags;
use tokio::sync::oneshot;

use crate::run::supervised::ProcessMark;

/// How much of a lock is read at most: what is longer was not written by an agent.
const BYTES_MOST: u64 = 4 << 20;
/// What the names of locks end with.
const ENDING: &str = ".lock";

/// The folder with the locks of an agent's programs.
#[derive(Clone, Debug)]
pub(super) struct LockFolder(PathBuf);

impl LockFolder {
    /// Makes it, unless it is there.
    ///
    /// # Errors
    /// If it cannot be made, or others could put files in it.
    pub(super) fn make(path: PathBuf) -> Result<Self, String> {
        let failed = |error: io::Error| format!("the folder {} for the locks of programs: {error}", path.display());
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let found = std::fs::symlink_metadata(&path).map_err(failed)?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(failed(io::Error::other("it must be a folder that only the agent's user can write to")));
        }
        Ok(Self(path))
    }

    /// The lock of the program with this name.
    pub(super) fn lock(&self, name: &str) -> LockFile {
        LockFile(self.0.join(format!("{name}{ENDING}")))
    }

    /// The names of all programs that ever had a lock here.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let files = std::fs::read_dir(&self.0)?;
        let names =
            files.flatten().filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(ENDING)?.to_owned()));
        Ok(names.collect())
    }
}

/// The lock of a program. What is done with it is done in threads: a disk that does not answer holds up nothing else.
#[derive(Clone, Debug)]
pub(super) struct LockFile(PathBuf);

/// Who has a lock.
#[derive(Debug)]
pub(super) enum Look {
    /// Now this one. It is given back when all files are closed that mean the same opening: that of the runner to which it was
    /// given, and that of its warden.
    Taken(File),
    /// Somebody else, of whom this is written.
    Held(LockText),
}

/// What is written in a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockText {
    /// What the runner was started with, on one line.
    pub(super) started_with: String,
    /// Which process it is, once it has said so.
    pub(super) runner: Option<ProcessMark>,
}

impl LockFile {
    /// Takes it, or reads who has it.
    ///
    /// # Errors
    /// Why neither can be done.
    pub(super) async fn look(&self) -> Result<Look, String> {
        self.in_thread(|lock| lock.look_now()).await
    }

    /// Leaves nothing in it of what was started, and gives it back.
    ///
    /// # Errors
    /// Why it still says that.
    pub(super) async fn empty(&self, file: File) -> Result<(), String> {
        self.in_thread(move |_| file.set_len(0)).await
    }

    async fn in_thread<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let lock = self.clone();
        let failed = |error: io::Error| format!("its lock {} cannot be used: {error}", self.0.display());
        let done = in_thread(move || act(&lock)).map_err(failed)?;
        done.await.unwrap_or_else(|_| Err(io::Error::other("its thread has ended"))).map_err(failed)
    }

    fn look_now(&self) -> io::Result<Look> {
        let file = self.open()?;
        match file.try_lock() {
            Ok(()) => Ok(Look::Taken(file)),
            Err(TryLockError::WouldBlock) => text(&file).map(Look::Held),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&self.0)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        Ok(file)
    }
}

/// Does this in a thread of its own. Who has asked need not wait for it.
///
/// # Errors
/// If the system gives no thread.
pub(super) fn in_thread<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (tell, told) = oneshot::channel();
    let act = move || drop(tell.send(act()));
    thread::Builder::new().name("primacy-program".to_owned()).spawn(act)?;
    Ok(told)
}

fn text(file: &File) -> io::Result<LockText> {
    let mut text = String::new();
    file.take(BYTES_MOST).read_to_string(&mut text)?;
    let mut lines = text.split_inclusive('\n').map_while(|line| line.strip_suffix('\n'));
    let started_with = lines.next().unwrap_or_default().to_owned();
    Ok(LockText { started_with, runner: lines.next().and_then(|line| serde_json::from_str(line).ok()) })
}

/// Writes what a runner is started with into its lock, in the place of what was there.
///
/// # Errors
/// If it cannot be written, as when the disk is full.
pub(super) fn note(mut lock: &File, started_with: &str) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(started_with.as_bytes())?;
    lock.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, LockFolder) {
        let place = tempfile::tempdir().expect("a folder");
        let folder = LockFolder::make(place.path().join("locks")).expect("it is made");
        (place, folder)
    }

    fn taken(lock: &LockFile) -> Option<File> {
        match lock.look_now().expect("it can be asked") {
            Look::Taken(file) => Some(file),
            Look::Held(_) => None,
        }
    }

    #[test]
    fn a_lock_is_had_once_and_until_its_last_file_is_closed() {
        let (_place, folder) = folder();
        let lock = folder.lock("p");
        let first = taken(&lock).expect("it is free");
        let shared = first.try_clone().expect("it can be shared");
        assert!(taken(&lock).is_none());
        drop(first);
        assert!(taken(&lock).is_none());
        drop(shared);
        assert!(taken(&lock).is_some());
        assert_eq!(folder.names().expect("it can be listed"), ["p"]);
    }

    #[tokio::test]
    async fn a_lock_says_what_was_started_and_what_is_cut_off_counts_for_nothing() {
        let (_place, folder) = folder();
        let lock = folder.lock("p");
        let mut file = taken(&lock).expect("it is free");
        let text = || match lock.look_now().expect("it can be asked") {
            Look::Taken(_) => panic!("it is not free"),
            Look::Held(text) => text,
        };
        assert_eq!(text(), LockText::default());
        note(&file, "a long line that stood there before").expect("it can be written");
        note(&file, "this").expect("it can be written");
        let started_with = "this".to_owned();
        assert_eq!(text(), LockText { started_with: started_with.clone(), runner: None });
        let mark = ProcessMark::of(nix::unistd::Pid::this()).expect("it lives");
        let line = serde_json::to_vec(&mark).expect("it can be written");
        let (begin, end) = line.split_at(line.len() - 1);
        file.write_all(begin).expect("it can be written");
        assert_eq!(text().runner, None);
        file.write_all(end).and_then(|()| file.write_all(b"\n")).expect("it can be written");
        assert_eq!(text(), LockText { started_with, runner: Some(mark) });
        lock.empty(file).await.expect("it can be written");
        let _file = taken(&lock).expect("it is free");
        assert_eq!(text(), LockText::default());
    }

    #[tokio::test]
    async fn what_fails_names_the_lock() {
        let (place, folder) = folder();
        std::fs::create_dir(place.path().join("locks/p.lock")).expect("it is made");
        let failed = folder.lock("p").look().await.expect_err("it is a folder");
        assert!(failed.contains("locks/p.lock"), "{failed}");
    }

    #[test]
    fn a_folder_that_others_could_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;

        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("locks");
        std::fs::create_dir(&path).expect("it is made");
        for (mode, is_taken) in [(0o777, false), (0o770, false), (0o755, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
            assert_eq!(LockFolder::make(path.clone()).is_ok(), is_taken, "{mode:o}");
        }
        assert!(LockFolder::make(place.path().join("a/b")).is_err());
    }
}
