//! The socket of a process that serves programs on its host: a voter, or an agent. Who may connect is decided by the rights to the
//! socket and its folder.

use std::ffi::OsString;
use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

use super::disk::try_lock;

/// Why there is no socket. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the socket {}: {why}", path.display())]
#[non_exhaustive]
pub struct SocketError {
    /// Where it was to be.
    pub path: PathBuf,
    /// Why it is not.
    pub why: String,
}

const OTHER: &str = "another process listens there";

/// Connections that wait to be taken.
const BACKLOG: i32 = 1_024;

/// The file of a socket, as long as this lives.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and number of the file: somebody may have put another in its place.
    id: (u64, u64),
    /// Without it, of two processes that replace what a dead one left, the later could remove the socket of the earlier.
    _lock: File,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.id) {
            // What stays is replaced by the next process.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at this path, with these rights to the socket. What a dead process has left there is replaced. It runs in a tokio
/// runtime.
///
/// # Errors
/// If another process listens there, something else than a socket is there, or everybody may change the folder.
pub fn bind(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), SocketError> {
    let failed = |why: String| SocketError { path: path.to_path_buf(), why };
    let in_words = |error: io::Error| failed(error.to_string());
    // The process may change its working directory later.
    let path = &std::path::absolute(path).map_err(in_words)?;
    let address = SockAddr::unix(path).map_err(|_| failed("its path is too long: 107 bytes fit".to_owned()))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    if fs::metadata(folder).map_err(in_words)?.mode() & 0o002 != 0 {
        return Err(failed(
            "everybody may put another socket in its place: choose a folder that others cannot write to".to_owned(),
        ));
    }
    let lock = lock(path).map_err(failed)?;
    clear(path, &address).map_err(failed)?;
    let listener = listener(&address, mode).map_err(in_words)?;
    // The creation mask has narrowed it.
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(in_words)?;
    let file = fs::symlink_metadata(path).map_err(in_words)?;
    Ok((listener, SocketFile { path: path.clone(), id: (file.dev(), file.ino()), _lock: lock }))
}

/// The right to put a socket at this path and to remove it, which one process at a time has.
fn lock(path: &Path) -> Result<File, String> {
    let mut beside = OsString::from(path);
    beside.push(".lock");
    try_lock(Path::new(&beside)).map_err(|error| match error {
        TryLockError::WouldBlock => OTHER.to_owned(),
        TryLockError::Error(error) => format!("{}: {error}", beside.display()),
    })
}

/// Removes the socket of a process that is gone.
fn clear(path: &Path, address: &SockAddr) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
        Ok(file) if !file.file_type().is_socket() => return Err("something else than a socket is there".to_owned()),
        Ok(_) => {}
    }
    let trial = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).and_then(|socket| socket.connect(address));
    match trial {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| error.to_string())
        }
        // One that takes no more connections lives.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error.to_string()),
        _ => Err(OTHER.to_owned()),
    }
}

fn listener(address: &SockAddr, mode: u32) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // Before it has a path, so that at no moment others may connect.
    let socket = File::from(OwnedFd::from(socket));
    socket.set_permissions(Permissions::from_mode(mode))?;
    let socket = Socket::from(OwnedFd::from(socket));
    socket.bind(address)?;
    socket.listen(BACKLOG)?;
    UnixListener::from_std(OwnedFd::from(socket).into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::UnixStream;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const MODE: u32 = 0o660;

    fn refused(path: &Path) -> String {
        bind(path, MODE).expect_err("it must be refused").to_string()
    }

    #[tokio::test]
    async fn only_its_user_and_group_may_use_it_and_it_goes_with_its_owner() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("socket");
        let (listener, file) = bind(&path, MODE).expect("it is free");
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o7777, 0o660);
        assert!(refused(&path).ends_with("another process listens there"), "{}", refused(&path));
        drop((listener, file));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_a_dead_process_left_is_replaced_and_anything_else_is_not() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("it is free"));
        let (listener, file) = bind(&path, MODE).expect("nobody listens there");

        // Another one has taken its place: that one stays.
        fs::remove_file(&path).expect("it is there");
        assert!(refused(&path).ends_with("another process listens there"), "{}", refused(&path));
        let other = std::os::unix::net::UnixListener::bind(&path).expect("it is free");
        drop((listener, file));
        assert!(path.exists());
        drop(other);
        fs::remove_file(&path).expect("it is there");

        fs::write(&path, "precious").expect("it can be written");
        assert!(refused(&path).contains("something else than a socket"), "{}", refused(&path));
        assert_eq!(fs::read(&path).expect("it is there"), b"precious");
    }

    /// Each has a voter's folder of its own, and the same socket was asked for.
    #[tokio::test]
    async fn of_many_that_replace_what_a_dead_process_left_one_listens() {
        const MANY: usize = 4;
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("socket");
        let runtime = tokio::runtime::Handle::current();
        for turn in 0..200 {
            drop(std::os::unix::net::UnixListener::bind(&path).expect("it is free"));
            let together = std::sync::Barrier::new(MANY);
            let one = || {
                let _runtime = runtime.enter();
                together.wait();
                bind(&path, MODE)
            };
            let tried: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..MANY).map(|_| scope.spawn(one)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let mut had = tried.into_iter().filter_map(Result::ok);
            let (listener, _file) = had.next().expect("nobody listened there");
            assert!(had.next().is_none(), "turn {turn}: two listen at one path, and one of them in vain");
            let _caller = UnixStream::connect(&path).await.expect("it listens");
            tokio::time::timeout(PATIENCE, listener.accept()).await.expect("it is this one's").expect("it is taken");
        }
    }

    #[tokio::test]
    async fn a_folder_of_everybody_and_a_path_too_long_are_refused() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("socket");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).expect("it is ours");
        assert!(refused(&path).contains("everybody may put another socket in its place"), "{}", refused(&path));
        assert!(refused(&folder.path().join("x".repeat(108))).contains("107 bytes"));
        assert!(refused(&folder.path().join("nowhere/socket")).contains("No such file"));
    }
}
