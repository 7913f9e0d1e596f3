//! The folder of hint files beside a database: touched when an election changes, watched by those who wait.
//!
//! Each election has a file of its own, so that a change of one wakes nobody who waits for another. Its *times* are the
//! hint; its *content* is the highest token granted, so that tokens still grow, and a lost record is still waited out,
//! after the database itself was deleted (rules R6 and R11). Neither is needed for safety while the database lives.
//!
//! Others may be able to write into the folder. So a file in it is used only if it is what primacy would have made there: see
//! [`HintFile::check`]. No call here waits for anybody, and none is made while the database is locked but the writing of a token
//! into a file that was opened and checked before.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{OFlag, open, openat};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::{Mode, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, unlinkat};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::debug;

use super::super::{BoxFuture, Hints};
use super::hint_poller::HintFilePoller;
use super::host::fnv128;
use crate::{ElectionName, Token};

/// One election's hint file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HintFile {
    database: PathBuf,
    folder: PathBuf,
    file: PathBuf,
}

impl HintFile {
    pub(super) fn of(database: &Path, election: &ElectionName) -> Self {
        // All who use a file by different symbolic links meet in one folder.
        let database = fs::canonicalize(database).unwrap_or_else(|_| database.to_owned());
        let mut folder: OsString = database.clone().into();
        folder.push(".hints");
        let folder = PathBuf::from(folder);
        let file = folder.join(file_name(election));
        Self { database, folder, file }
    }

    /// Tells all who watch the election to look. Best effort: they look by themselves too, only later.
    pub(super) fn ring(&self) {
        let now = &TimeSpec::UTIME_NOW;
        match self.open_file(OFlag::O_WRONLY).and_then(|file| Ok(futimens(&file, now, now)?)) {
            Ok(()) => {}
            // Nobody has ever watched; a candidate that comes now looks first.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                debug!(%error, file = %self.file.display(), "no hint could be given; waiting candidates poll");
            }
        }
    }

    /// Removes the file, of an election that is forgotten. Best effort: who still watches makes it anew.
    pub(super) fn remove(&self) {
        let removed = self.open_folder().and_then(|folder| {
            let name = self.file.file_name().ok_or(ErrorKind::NotFound)?;
            Ok(unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir)?)
        });
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                debug!(%error, file = %self.file.display(), "the hint file of a forgotten election stays");
            }
            _ => {}
        }
    }

    /// The highest token that the file tells of. A number that no token could follow is none.
    pub(super) fn remembered(&self) -> Token {
        self.open_file(OFlag::O_RDONLY).map_or(Token::NONE, |file| read_token(&file))
    }

    /// Opens the file for a grant, which reads it before the database is locked and writes it before its commit.
    pub(super) fn memory(&self) -> OpenHintFile {
        let opened = self.create_file(OFlag::O_RDWR).or_else(|_| self.open_file(OFlag::O_RDONLY));
        if let Err(error) = &opened {
            debug!(%error, file = %self.file.display(), "no token is remembered beside the database");
        }
        OpenHintFile(opened.ok())
    }

    /// Why the folder is not used, if it is there and is not.
    pub(super) fn refusal(database: &Path) -> Option<String> {
        let election = ElectionName::new("any").ok()?;
        let error = Self::of(database, &election).open_folder().err()?;
        (error.kind() != ErrorKind::NotFound).then(|| error.to_string())
    }

    fn open_file(&self, how: OFlag) -> io::Result<File> {
        let folder = self.open_folder()?;
        let name = self.file.file_name().ok_or(ErrorKind::NotFound)?;
        let file = File::from(openat(&folder, name, how | CAREFULLY, Mode::from_bits_truncate(0o666))?);
        self.check(&file)?;
        Ok(file)
    }

    fn create_file(&self, how: OFlag) -> io::Result<File> {
        match self.open_file(how | OFlag::O_CREAT) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.database.exists() => {
                match fs::create_dir(&self.folder) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                    _ => self.open_file(how | OFlag::O_CREAT),
                }
            }
            result => result,
        }
    }

    fn open_folder(&self) -> io::Result<File> {
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | CAREFULLY;
        let folder = File::from(open(&self.folder, how, Mode::empty())?);
        self.check_owner(&folder.metadata()?)?;
        Ok(folder)
    }

    /// Refuses what primacy would not have made: what is no regular file, has another name too, belongs to a user whom
    /// nobody here trusts, or may be written by those who may not write the database.
    fn check(&self, file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        if !found.is_file() || found.nlink() != 1 {
            return Err(io::Error::other("it is not a plain file with one name"));
        }
        let database = self.check_owner(&found)?;
        const OTHERS_WRITE: u32 = 0o022;
        if found.mode() & OTHERS_WRITE & !database.mode() != 0 {
            return Err(io::Error::other("others may write it than may write the database"));
        }
        Ok(())
    }

    /// This user, root, and the owner of the database, who could change what matters more than hints.
    fn check_owner(&self, found: &fs::Metadata) -> io::Result<fs::Metadata> {
        let database = fs::metadata(&self.database)?;
        let trusted = [nix::unistd::geteuid().as_raw(), 0, database.uid()];
        if !trusted.contains(&found.uid()) {
            let why = format!(
                "it belongs to user {}, who is neither this user nor root nor the owner of the database",
                found.uid()
            );
            return Err(io::Error::other(why));
        }
        Ok(database)
    }

    /// Hints without the kernel's help.
    pub(super) fn poller(self) -> HintFilePoller {
        HintFilePoller::at(self.file, self.database)
    }

    /// Starts to watch. To be called inside a tokio runtime with I/O.
    pub(super) fn watch(self) -> io::Result<SqliteHints> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        #[expect(deprecated, reason = "`Source` owns its descriptor, and what replaces this is unsafe to call")]
        let watched = AsyncFd::with_interest(Source(inotify), Interest::READABLE)?;
        let mut hints = SqliteHints { watched, hint_file: self, armed: false, retry: SOON };
        hints.arm();
        Ok(hints)
    }
}

/// An election's open hint file, which has been checked: reading and writing it waits for no more than the disk.
pub(super) struct OpenHintFile(Option<File>);

impl OpenHintFile {
    /// The highest token that the file tells of.
    pub(super) fn remembered(&self) -> Token {
        self.0.as_ref().map_or(Token::NONE, read_token)
    }

    /// Writes down a token that is being granted. To be called while nobody else can grant.
    pub(super) fn remember(&self, token: Token) {
        // Of constant length: a token never overwrites a part of a longer one.
        let text = format!("{:019}\n", token.get());
        if let Some(file) = &self.0
            && let Err(error) = file.write_all_at(text.as_bytes(), 0)
        {
            debug!(%error, "the token could not be written beside the database");
        }
    }
}

/// Nothing is waited for, and no symbolic link is followed.
const CAREFULLY: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC).union(OFlag::O_NOCTTY);

fn read_token(file: &File) -> Token {
    let mut text = String::new();
    let number = match file.take(64).read_to_string(&mut text) {
        Ok(_) => text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(Token::NONE),
        Err(_) => Token::NONE,
    };
    if number.next(0) > number { number } else { Token::NONE }
}

/// The election's name where a file name can hold it, with everything but letters, digits, `-` and `_` escaped. Names
/// too long for that share a file if their digests are equal, which wakes the one for the other and no more.
fn file_name(election: &ElectionName) -> String {
    const LONGEST: usize = 200;
    let mut name = String::new();
    for byte in election.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            name.push(char::from(byte));
        } else {
            // A `String` takes every write.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    if name.len() > LONGEST { format!("%{:032x}", fnv128(election.as_str().as_bytes())) } else { name }
}

struct Source(Inotify);

impl AsRawFd for Source {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// The wait before a watch that could not be set, or was lost, is tried again; doubled up to [`LATE`].
const SOON: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(30);

/// Hints from the times of a file, and from the disappearance of the database.
pub(super) struct SqliteHints {
    watched: AsyncFd<Source>,
    hint_file: HintFile,
    /// Whether both files are watched.
    armed: bool,
    retry: Duration,
}

impl SqliteHints {
    fn arm(&mut self) {
        // Reading and writing change no attributes. What was deleted or moved away may still be in use.
        let what = AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF;
        let inotify = &self.watched.get_ref().0;
        let here = what | AddWatchFlags::IN_DONT_FOLLOW;
        // One that may not write the file can watch it all the same.
        let opened = self.hint_file.create_file(OFlag::O_WRONLY).or_else(|_| self.hint_file.open_file(OFlag::O_RDONLY));
        let armed = opened
            .and_then(|_| Ok(inotify.add_watch(&self.hint_file.file, here)?))
            .and_then(|_| Ok(inotify.add_watch(&self.hint_file.database, what)?));
        self.armed = armed.is_ok();
        if let Err(error) = armed {
            debug!(%error, file = %self.hint_file.file.display(), "no hints for now; the store is polled");
        }
    }

    /// Reads all that has happened.
    fn drain(&mut self) {
        let gone = AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_IGNORED;
        while let Ok(events) = self.watched.get_ref().0.read_events() {
            if events.is_empty() {
                break;
            }
            if events.iter().any(|event| event.mask.intersects(gone)) {
                self.armed = false;
            }
        }
        // A deleted file that is still open somewhere only tells of a changed attribute.
        if !self.hint_file.file.exists() || !self.hint_file.database.exists() {
            self.armed = false;
        }
    }

    async fn hint(&mut self) {
        loop {
            if self.armed {
                let Ok(mut ready) = self.watched.readable().await else {
                    return std::future::pending().await;
                };
                ready.clear_ready();
                drop(ready);
                self.drain();
                self.retry = SOON;
                return;
            }
            tokio::time::sleep(self.retry).await;
            self.retry = (self.retry * 2).min(LATE);
            self.arm();
            if self.armed {
                return;
            }
        }
    }
}

impl Hints for SqliteHints {
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        file_name(&ElectionName::new(text).expect("valid"))
    }

    #[test]
    fn each_name_has_its_file() {
        assert_eq!(name("billing-7_x"), "billing-7_x");
        assert_eq!(name("../a b"), "%2e%2e%2fa%20b");
        assert_eq!(name("%41"), "%2541", "not the same as A");
        let long = name(&"é".repeat(64));
        assert!(long.len() < 200 && long.starts_with('%'));
        assert_ne!(long, name(&"è".repeat(64)));
    }

    #[test]
    fn a_token_is_remembered_and_garbage_is_not_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = folder.path().join("p.db");
        let hint_file = HintFile::of(&database, &ElectionName::new("e").expect("valid"));
        assert_eq!(hint_file.remembered(), Token::NONE);
        hint_file.memory().remember(Token::NONE.next(0));
        assert_eq!(hint_file.remembered(), Token::NONE, "without a database nothing is created");
        assert!(!hint_file.folder.exists());
        fs::write(&database, "").expect("writable");
        for number in [1, 1 << 40, 2] {
            let token = Token::new(number).expect("small");
            hint_file.memory().remember(token);
            assert_eq!((hint_file.remembered(), hint_file.memory().remembered()), (token, token));
        }
        for garbage in ["", "-1", "x", "99999999999999999999", "9223372036854775807", "\u{feff}7"] {
            fs::write(&hint_file.file, garbage).expect("writable");
            assert_eq!(hint_file.remembered(), Token::NONE, "{garbage:?}");
        }
        fs::write(&hint_file.file, [0xFF, 0xFE]).expect("writable");
        assert_eq!(hint_file.remembered(), Token::NONE);
    }
}
