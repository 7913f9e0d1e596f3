//! Where the file is: its URL, what may lie there, and whether it still does.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Once;

use nix::sys::statfs::statfs;
use tracing::warn;

use super::super::{StoreError, UrlError};
use super::worker::Stuck;

/// The file of a `sqlite:` URL.
#[derive(Clone, Debug)]
pub(super) struct DatabaseFile {
    path: PathBuf,
    any_filesystem: bool,
    /// The threads for this file that hang.
    pub(super) stuck: Stuck,
}

const OPT_IN: &str = "filesystem=any";

impl DatabaseFile {
    /// Reads what follows `sqlite:`.
    pub(super) fn parse(rest: &str) -> Result<Self, UrlError> {
        let refuse = |why: &str| {
            let shown = primacy_core::ids::escape(rest);
            Err(UrlError::Invalid(format!(
                "sqlite:{shown}: {why}; write for example sqlite:/var/lib/primacy/primacy.db"
            )))
        };
        let (path, option) = rest.split_once('?').map_or((rest, None), |(path, option)| (path, Some(option)));
        let any_filesystem = match option {
            None => false,
            Some(OPT_IN) => true,
            Some(_) => return refuse("the only option there is, is ?filesystem=any, and a path cannot contain '?'"),
        };
        let path = match path.strip_prefix("//") {
            Some(absolute) if absolute.starts_with('/') => absolute,
            Some(_) => return refuse("a file on another host cannot be used, so the path follows sqlite: at once"),
            None => path,
        };
        if path.is_empty() {
            return refuse("the path of a file is missing");
        }
        if path == ":memory:" {
            return refuse("a database in memory is seen by one connection only and elects nobody");
        }
        if path.contains('\0') {
            return refuse("a path cannot contain a NUL byte");
        }
        if path.ends_with('/') {
            return refuse("this names a folder, not a file");
        }
        // Against the working directory of now: it may change.
        match std::path::absolute(path) {
            Ok(path) => Ok(Self { path, any_filesystem, stuck: Stuck::default() }),
            Err(error) => refuse(&format!("the path cannot be resolved ({error})")),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether all who open the file run on this host, as far as its file system tells.
    pub(super) fn is_of_one_host(&self) -> bool {
        !self.any_filesystem
    }

    pub(super) fn url(&self) -> String {
        let option = if self.any_filesystem { "?filesystem=any" } else { "" };
        format!("sqlite:{}{option}", self.path.display())
    }

    /// The name of the file for messages.
    pub(super) fn shown(&self) -> String {
        primacy_core::ids::escape(&self.path.display().to_string())
    }

    pub(super) fn unusable(&self, why: impl std::fmt::Display) -> StoreError {
        StoreError::Unusable(format!("{}: {why}", self.shown()))
    }

    /// Looks at what is there before SQLite touches it. `true` if there is something in the file.
    pub(super) fn inspect(&self) -> Result<bool, StoreError> {
        let found = match fs::metadata(&self.path) {
            Ok(meta) if meta.is_dir() => return Err(self.unusable("this is a folder; name a file")),
            // Opening a named pipe would wait for ever.
            Ok(meta) if !meta.is_file() => {
                let what = if meta.file_type().is_fifo() { "a named pipe" } else { "a device or socket" };
                return Err(self.unusable(format_args!("this is {what}; name a file")));
            }
            Ok(meta) if meta.nlink() > 1 => return Err(self.unusable(HARD_LINKS)),
            Ok(meta) => Some(meta.len() > 0),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(self.unusable(error)),
        };
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        if found.is_none() && !folder.is_dir() {
            let shown = primacy_core::ids::escape(&folder.display().to_string());
            return Err(self.unusable(format_args!("there is no folder {shown}; create it first")));
        }
        if !self.any_filesystem {
            let kind = FileSystem::of(if found.is_some() { &self.path } else { folder });
            kind.is_local().map_err(|why| self.unusable(why))?;
            if kind.is_overlay() {
                static ONCE: Once = Once::new();
                ONCE.call_once(|| warn!(file = %self.shown(), "{OVERLAY}"));
            }
        }
        Ok(found.unwrap_or(false))
    }
}

/// What a user is warned of who puts the file on an overlay.
pub(super) const OVERLAY: &str = "the file is on an overlay: processes in other containers have a file of their own under the same \
                                  name; put it on a volume that all share";

const HARD_LINKS: &str = "the file has several names (hard links), and each would have a log of its own; keep one name";

/// A file as the system knows it: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileId {
    fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|meta| Self(meta.dev(), meta.ino()))
    }
}

/// The files that a connection has open: the database, its log and the log's index. While they are open, SQLite
/// neither deletes nor replaces any of them, and the system gives their inode numbers to no others.
#[derive(Debug)]
pub(super) struct OpenFiles {
    main: Option<FileId>,
    beside: Vec<(PathBuf, Option<FileId>)>,
}

impl OpenFiles {
    /// To be called after the first read, which opens the log.
    pub(super) fn of(file: &DatabaseFile) -> Self {
        // SQLite puts the log beside the file that a symbolic link leads to.
        let target = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        let beside = ["-wal", "-shm"].map(|suffix| {
            let mut path = target.clone().into_os_string();
            path.push(suffix);
            let path = PathBuf::from(path);
            let id = FileId::at(&path);
            (path, id)
        });
        Self { main: FileId::at(&file.path), beside: beside.into() }
    }

    /// Refuses when a file was deleted, moved or replaced since: others who open it now do not see what this
    /// connection writes, and it does not see what they write.
    pub(super) fn still_there(&self, file: &DatabaseFile) -> Result<(), StoreError> {
        let meta = fs::metadata(&file.path).ok();
        if meta.as_ref().map(|meta| FileId(meta.dev(), meta.ino())) != self.main || self.main.is_none() {
            return Err(file.unusable("the file was removed or replaced while in use"));
        }
        if meta.is_some_and(|meta| meta.nlink() > 1) {
            return Err(file.unusable(HARD_LINKS));
        }
        match self.beside.iter().find(|(path, id)| id.is_some() && FileId::at(path) != *id) {
            Some((path, _)) => Err(file.unusable(format_args!(
                "its file {} was removed or replaced while in use",
                primacy_core::ids::escape(&path.display().to_string())
            ))),
            None => Ok(()),
        }
    }
}

/// The kind of file system that a path is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileSystem(Option<i64>);

/// File systems whose locks hold between all processes that see the file, since one kernel manages them. A list of
/// those that do not could never be complete, and one that it lacks would elect two leaders.
const LOCAL: &[(i64, &str)] = &[
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    (0xF2F5_2010, "f2fs"),
    (0x2FC1_2FC1, "zfs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x794C_7630, "overlayfs"),
    (0x5265_4973, "reiserfs"),
    (0x3153_464A, "jfs"),
    (0x3434, "nilfs2"),
    (0x7366_746E, "ntfs3"),
    (0x2011_BAB0, "exfat"),
    (0x4D44, "vfat"),
    (0x2405_1905, "ubifs"),
];

/// File systems that are known not to be local, for a message that says so.
const SHARED: &[(i64, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    // Its locks are those of what it is stacked on, which may be anything.
    (0xF15F, "ecryptfs"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x7375_7245, "Coda"),
    (0x7461_636F, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786F_4256, "VirtualBox"),
    (0xBACB_ACBC, "VMware"),
];

impl FileSystem {
    pub(super) fn of(path: &Path) -> Self {
        // The width and sign of the number differ between platforms; the kinds are 32 bits.
        let kind = statfs(path).ok().map(|stat| stat.filesystem_type().0);
        Self(kind.and_then(|kind| i64::try_from(i128::from(kind) & 0xFFFF_FFFF).ok()))
    }

    pub(super) fn name(self) -> Option<&'static str> {
        let kind = self.0?;
        LOCAL.iter().chain(SHARED).find(|(magic, _)| *magic == kind).map(|(_, name)| *name)
    }

    /// A container's own layer, which other containers do not see.
    pub(super) fn is_overlay(self) -> bool {
        self.name() == Some("overlayfs")
    }

    /// The message says why it is refused.
    pub(super) fn is_local(self) -> Result<(), String> {
        match (self.0, self.name()) {
            (Some(kind), Some(_)) if LOCAL.iter().any(|(magic, _)| *magic == kind) => Ok(()),
            (_, Some(name)) => Err(format!(
                "it is on {name}, whose locks and shared memory may not hold between processes, so that two could \
                 lead; use a local file system. If only processes of this one host use the file and its locks work, \
                 say so with ?{OPT_IN}"
            )),
            (Some(kind), None) => Err(format!(
                "it is on a file system of unknown kind {kind:#x}, whose locks may not hold between processes, so \
                 that two could lead; use a local file system. If you know that it is one, say so with ?{OPT_IN}"
            )),
            (None, None) => Err(format!("the kind of its file system cannot be read; ?{OPT_IN} uses it all the same")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rest: &str) -> String {
        DatabaseFile::parse(rest).expect("valid").path.display().to_string()
    }

    #[test]
    fn what_is_stacked_on_anything_is_not_known_to_be_local_and_an_overlay_is() {
        let why = FileSystem(Some(0xF15F)).is_local().expect_err("it may be on NFS");
        assert!(why.contains("ecryptfs") && why.contains("?filesystem=any"), "{why}");
        assert!(FileSystem(Some(0x794C_7630)).is_local().is_ok() && FileSystem(Some(0x794C_7630)).is_overlay());
        assert!(!FileSystem(Some(0xEF53)).is_overlay());
    }

    #[test]
    fn paths_are_taken_as_they_are() {
        assert_eq!(path("/a/b.db"), "/a/b.db");
        assert_eq!(path("///a/b.db"), "/a/b.db");
        assert_eq!(path("/a/100%20.db"), "/a/100%20.db");
        let here = std::env::current_dir().expect("there is one").display().to_string();
        assert_eq!(path("b.db"), format!("{here}/b.db"));
        assert_eq!(path("file:b.db"), format!("{here}/file:b.db"), "never read as SQLite's own URL");
    }

    #[test]
    fn what_is_no_file_is_refused_with_the_reason() {
        for (rest, why) in [
            ("", "missing"),
            ("?filesystem=any", "missing"),
            (":memory:", "in memory"),
            ("//host/a.db", "another host"),
            ("/a/", "folder"),
            ("/a\0b", "NUL"),
            ("/a?mode=ro", "option"),
            ("/a?filesystem=any?", "option"),
        ] {
            let message = DatabaseFile::parse(rest).expect_err(rest).to_string();
            assert!(message.contains(why), "{rest:?}: {message}");
            assert!(!message.contains('\0') && !message.contains('\n'), "{message:?}");
        }
    }

    #[test]
    fn the_opt_in_is_explicit_and_shown() {
        let file = DatabaseFile::parse("/a.db?filesystem=any").expect("valid");
        assert!(!file.is_of_one_host());
        assert_eq!(file.url(), "sqlite:/a.db?filesystem=any");
        assert_eq!(DatabaseFile::parse("/a.db").expect("valid").url(), "sqlite:/a.db");
    }

    #[test]
    fn only_known_local_kinds_pass() {
        assert!(FileSystem(Some(0xEF53)).is_local().is_ok());
        for (kind, name) in SHARED {
            let why = FileSystem(Some(*kind)).is_local().expect_err(name);
            assert!(why.contains(name) && why.contains(OPT_IN), "{why}");
        }
        assert!(FileSystem(Some(0x1234)).is_local().expect_err("unknown").contains("0x1234"));
        assert!(FileSystem(None).is_local().is_err());
    }
}
