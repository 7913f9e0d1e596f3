//! One election's folder: its lock, its state, who waits, and a count of changes that are hinted at.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use primacy::store::{StoreError, WaitQueue};
use primacy::{ElectionName, clock};

use crate::format::{self, State};

/// How long a step waits for the lock. A process that was stopped while it holds the lock must not hold up threads here.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The folder of one election.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// The folder while its lock is held: nobody else reads or writes it.
#[derive(Debug)]
pub(crate) struct Locked {
    folder: Folder,
    /// Unlocked when it is closed, also by the death of the process.
    _lock: File,
}

impl Folder {
    /// The folder of this election below `root`.
    pub(crate) fn of(root: &Path, election: &ElectionName) -> Self {
        Self { path: root.join(file_name(election.as_str())) }
    }

    /// All folders of elections below `root`.
    pub(crate) fn all(root: &Path) -> Result<Vec<Self>, StoreError> {
        let entries = match fs::read_dir(root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(unusable(root))?,
        };
        let folders = entries.map(|entry| Ok(Self { path: entry?.path() }));
        let folders: io::Result<Vec<Self>> = folders.collect();
        Ok(folders.map_err(unusable(root))?.into_iter().filter(|folder| folder.exists()).collect())
    }

    /// Makes the folder, so that it outlives a crash.
    pub(crate) fn create(&self) -> Result<(), StoreError> {
        let root = self.path.parent().unwrap_or(Path::new("."));
        let made = fs::create_dir_all(&self.path)
            .and_then(|()| File::options().create(true).append(true).open(self.file("lock")))
            .and_then(|_| sync(root));
        made.map_err(unusable(&self.path))
    }

    /// The election whose state this is; none if nobody has led yet, or the file is damaged.
    pub(crate) fn election(&self) -> Option<ElectionName> {
        format::name_in(&fs::read(self.file("state")).ok()?)
    }

    pub(crate) fn exists(&self) -> bool {
        self.file("lock").exists()
    }

    /// The lock, once nobody else has it. A future that is dropped meanwhile has taken nothing.
    pub(crate) async fn lock(&self) -> Result<Locked, StoreError> {
        let path = self.file("lock");
        // Opened anew each time: the kernel's lock belongs to the opening, so that two threads exclude each other too.
        let lock = File::open(&path).map_err(unusable(&path))?;
        let start = clock::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Locked { folder: self.clone(), _lock: lock }),
                Err(TryLockError::Error(error)) => return Err(unusable(&path)(error)),
                Err(TryLockError::WouldBlock) if clock::now().since(start) > LOCK_WAIT => {
                    return Err(StoreError::Unreachable(format!("{}: locked for {LOCK_WAIT:?}", path.display())));
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    /// Changes whenever something is hinted at. Read without the lock, and never believed.
    pub(crate) fn changes(&self) -> Vec<u8> {
        fs::read(self.file("changes")).unwrap_or_default()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Locked {
    /// What is kept of the election. Nothing if nobody has ever led.
    pub(crate) fn state(&self) -> Result<State, StoreError> {
        let path = self.folder.file("state");
        // The writer of this may have been killed between `rename` and `sync`: it is not answered before it would
        // outlive a crash (rule R11).
        sync(&self.folder.path).map_err(unusable(&self.folder.path))?;
        match fs::read(&path) {
            Ok(bytes) => format::parse_state(&bytes).map_err(|why| unusable(&path)(io::Error::other(why))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(State::default()),
            Err(error) => Err(unusable(&path)(error)),
        }
    }

    /// Puts another state in its place, durably. Until the file has its name nothing is changed, and after that all is.
    pub(crate) fn write_state(&self, election: &ElectionName, state: &State) -> Result<(), StoreError> {
        let (new, path) = (self.folder.file("state.new"), self.folder.file("state"));
        let text = format::write_state(election, state);
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&new, &path)).map_err(unusable(&new))?;
        let unknown = |error| StoreError::Unknown(format!("{}: {error}", path.display()));
        sync(&self.folder.path).map_err(unknown)
    }

    /// Who waits. It need not outlive a crash, so that half a file counts as none.
    pub(crate) fn waiting(&self) -> WaitQueue {
        let bytes = fs::read(self.folder.file("waiting")).unwrap_or_default();
        format::parse_waiting(&bytes).unwrap_or_default()
    }

    /// Writes down who waits. Of a failure nothing is told: who cannot be announced may lead all the same.
    pub(crate) fn write_waiting(&self, waiting: &WaitQueue) {
        let _ = fs::write(self.folder.file("waiting"), format::write_waiting(waiting));
    }

    /// Hints at a change. A hint that is lost costs time, never safety.
    pub(crate) fn hint(&self) {
        let _ = fs::write(self.folder.file("changes"), clock::boot_nanos().unwrap_or_default().to_string());
    }
}

/// For an error that changed nothing.
fn unusable(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::Unusable(format!("{}: {error}", path.display()))
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A name of at most 128 bytes as a file name that no file system folds, cuts or forbids: five bits a character.
fn file_name(name: &str) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digits = name.as_bytes().chunks(5).flat_map(|chunk| {
        let mut block = [0; 8];
        block[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(block);
        (0..(chunk.len() * 8).div_ceil(5))
            .map(move |digit| char::from(DIGITS[(bits >> (35 - 5 * digit)) as usize & 31]))
    });
    digits.collect()
}
