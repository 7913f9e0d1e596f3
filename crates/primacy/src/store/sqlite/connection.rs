//! An open file: how it is opened, and its short transactions.

use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags};

use super::super::StoreError;
use super::errors::{Fault, Phase};
use super::host::Host;
use super::schema::{self, Content};
use super::url::{DatabaseFile, OpenFiles};
use super::worker::{Abandoned, wait_for_lock};

/// A connection to the file of a [`DatabaseFile`].
#[derive(Debug)]
pub(super) struct Db {
    conn: Connection,
    files: OpenFiles,
    durability: Durability,
    poisoned: bool,
    pub(super) file: DatabaseFile,
    pub(super) host: Host,
}

/// What a commit promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// It survives a power cut (rule R11).
    Full,
    /// It survives the death of the process. A power cut may take it, unless a full commit followed.
    Normal,
}

/// What becomes of a transaction.
#[derive(Debug)]
pub(super) enum End<T> {
    Commit(T),
    Rollback(T),
}

impl Db {
    /// Opens the file for a candidate. Creates it, and the tables in it.
    pub(super) fn create(file: &DatabaseFile, abandoned: &Abandoned) -> Result<Self, StoreError> {
        file.inspect()?;
        let conn = connect(file, OpenFlags::SQLITE_OPEN_CREATE, abandoned)?;
        let explain = |fault: Fault, phase| fault.meaning(file, phase).error;
        let content = schema::inspect(&conn, file).map_err(|fault| explain(fault, Phase::Before))?;
        // Before anything else is written: in this mode readers and the writer do not block each other.
        write_ahead(&conn, file).map_err(|fault| explain(fault, Phase::Before))?;
        let mut db = Self::around(conn, file)?;
        if content != Content::Ours {
            db.write(Durability::Full, |conn| match schema::inspect(conn, file)? {
                Content::Nothing => schema::create(conn).map(End::Commit),
                Content::Older => schema::migrate(conn).map(End::Commit),
                Content::Ours => Ok(End::Rollback(())),
            })?;
        }
        Ok(db)
    }

    /// The same, and refuses a file that this user can only read.
    pub(super) fn create_writable(file: &DatabaseFile, abandoned: &Abandoned) -> Result<Self, StoreError> {
        let db = Self::create(file, abandoned)?;
        if db.is_read_only() {
            return Err(file.unusable("it cannot be written; make it and its folder writable for this user"));
        }
        Ok(db)
    }

    /// Opens the file for an observer. Creates nothing.
    pub(super) fn existing(file: &DatabaseFile, abandoned: &Abandoned) -> Result<Self, StoreError> {
        let nothing = || file.unusable("nobody has run an election there yet; `primacy run` does");
        if !file.inspect()? {
            return Err(nothing());
        }
        let conn = connect(file, OpenFlags::empty(), abandoned)?;
        match schema::inspect(&conn, file).map_err(|fault| fault.meaning(file, Phase::Before).error)? {
            Content::Nothing => Err(nothing()),
            Content::Older => {
                Err(file.unusable("an older primacy made its tables; the first `primacy run` of this one changes them"))
            }
            Content::Ours => Self::around(conn, file),
        }
    }

    fn around(conn: Connection, file: &DatabaseFile) -> Result<Self, StoreError> {
        // The first read opens the log, and only then are all files there.
        schema::inspect(&conn, file).map_err(|fault| fault.meaning(file, Phase::Before).error)?;
        let files = OpenFiles::of(file);
        let db =
            Self { conn, files, durability: Durability::Full, poisoned: false, file: file.clone(), host: Host::here() };
        db.files.still_there(file).map(|()| db)
    }

    /// Whether the file cannot be written by this user.
    pub(super) fn is_read_only(&self) -> bool {
        self.conn.is_readonly(MAIN_DB).unwrap_or(true)
    }

    /// Reads, taking no lock that would make anyone wait. What was read is the state of some moment since the call
    /// began: the file was still in its place after it.
    pub(super) fn read<T>(&mut self, read: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, StoreError> {
        self.refuse_if_poisoned()?;
        let result = read(&self.conn).map_err(|fault| self.note(fault, Phase::Before))?;
        self.files.still_there(&self.file)?;
        Ok(result)
    }

    /// Several reads of one moment.
    pub(super) fn snapshot<T>(&mut self, read: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, StoreError> {
        self.transaction("BEGIN", |conn| read(conn).map(End::Rollback))
    }

    /// Runs a transaction that may write. Nobody else writes between its begin and its end.
    pub(super) fn write<T>(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&Connection) -> Result<End<T>, Fault>,
    ) -> Result<T, StoreError> {
        self.make_commits(durability)?;
        self.transaction("BEGIN IMMEDIATE", work)
    }

    fn transaction<T>(
        &mut self,
        begin: &str,
        work: impl FnOnce(&Connection) -> Result<End<T>, Fault>,
    ) -> Result<T, StoreError> {
        self.refuse_if_poisoned()?;
        self.run(begin).map_err(|error| self.note(error.into(), Phase::Before))?;
        let (result, end, phase) = match work(&self.conn) {
            Ok(End::Commit(result)) => (Ok(result), "COMMIT", Phase::Commit),
            Ok(End::Rollback(result)) => (Ok(result), "ROLLBACK", Phase::Before),
            Err(fault) => (Err(self.note(fault, Phase::Before)), "ROLLBACK", Phase::Before),
        };
        // Some errors end the transaction by themselves.
        let ended = if self.conn.is_autocommit() { Ok(()) } else { self.run(end) };
        let ended = ended.map_err(|error| self.note(error.into(), phase));
        if !self.conn.is_autocommit() && self.run("ROLLBACK").is_err() {
            self.poisoned = true;
        }
        let result = result?;
        ended?;
        // A commit into a file that others can no longer see is none.
        self.files.still_there(&self.file)?;
        Ok(result)
    }

    fn run(&self, statement: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(statement)?.execute([]).map(drop)
    }

    fn make_commits(&mut self, durability: Durability) -> Result<(), StoreError> {
        if self.durability != durability {
            self.refuse_if_poisoned()?;
            set_synchronous(&self.conn, durability).map_err(|error| self.note(error.into(), Phase::Before))?;
            self.durability = durability;
        }
        Ok(())
    }

    fn note(&mut self, fault: Fault, phase: Phase) -> StoreError {
        let meaning = fault.meaning(&self.file, phase);
        self.poisoned |= meaning.poisons;
        meaning.error
    }

    /// Whether it may be used again.
    pub(super) const fn is_fit(&self) -> bool {
        !self.poisoned
    }

    fn refuse_if_poisoned(&self) -> Result<(), StoreError> {
        if self.poisoned {
            return Err(self.file.unusable("the disk failed under this connection, which is not used again"));
        }
        Ok(())
    }
}

fn connect(file: &DatabaseFile, create: OpenFlags, abandoned: &Abandoned) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE
        | create;
    let open = || -> rusqlite::Result<Connection> {
        let mut opened = Connection::open_with_flags(file.path(), flags)?;
        // Some versions of the library set a handler only through a unique reference.
        let conn = &mut opened;
        abandoned.on_drop(conn.get_interrupt_handle());
        conn.busy_handler(Some(wait_for_lock))?;
        conn.set_prepared_statement_cache_capacity(48);
        // The file is input: what its schema says must not run anything.
        conn.pragma_update(None, "trusted_schema", false)?;
        conn.pragma_update(None, "cell_size_check", true)?;
        set_synchronous(conn, Durability::Full)?;
        Ok(opened)
    };
    open().map_err(|error| Fault::from(error).meaning(file, Phase::Before).error)
}

fn set_synchronous(conn: &Connection, durability: Durability) -> rusqlite::Result<()> {
    let mode = match durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    conn.pragma_update(None, "synchronous", mode)
}

/// Switches the file to its write-ahead log, where it is not already. SQLite does not call the busy handler for this.
fn write_ahead(conn: &Connection, file: &DatabaseFile) -> Result<(), Fault> {
    let switch = || conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
    let mode = loop {
        match switch() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && wait_for_lock(0) => {}
            result => break result?,
        }
    };
    if mode == "wal" {
        return Ok(());
    }
    let why = if conn.is_readonly(MAIN_DB)? {
        "it cannot be written; make it and its folder writable for this user".to_owned()
    } else {
        format!("its journal mode is '{mode}' and cannot be made 'wal' here; use another file system")
    };
    Err(Fault::Said(file.unusable(why)))
}
