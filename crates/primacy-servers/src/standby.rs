//! PostgreSQL's physical replication: a standby of a server, synchronous or not, and its promotion.

use std::process::Command;

use crate::host::{self, PATIENCE, program, wait_until};
use crate::keeper::{Keeper, remove_shared_memory};
use crate::postgres::{ADMIN, PACKAGE, Postgres, PostgresOptions};
use crate::{Problem, Result};

/// Whether commits wait for the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// A commit that was acknowledged is on the standby's disk too.
    Synchronous,
    /// A promotion may lose the last commits.
    Asynchronous,
}

impl Postgres {
    /// Starts a standby, which follows this server and answers reads.
    pub fn standby(&self, replication: Replication) -> Result<Postgres> {
        let keeper = Postgres::empty(self.keeper.account())?;
        self.copy_to(&keeper)?;
        let options = PostgresOptions { tls: None, ..self.options.clone() };
        let standby = Postgres::over(keeper, self.password.clone(), &options)?;
        self.lead(replication)?;
        Ok(standby)
    }

    /// Makes a server that has ended a standby of another one, with a fresh copy of what that has: its own data, in
    /// which there may be commits that the other never received, is gone.
    pub fn follow(&self, primary: &Postgres, replication: Replication) -> Result<()> {
        if self.is_running() {
            return Err(Problem::new("a server that runs cannot become a standby"));
        }
        let data = self.keeper.data();
        remove_shared_memory(self.keeper.folder());
        // The folder itself stays: it may be a disk, and the keeper knows processes by it.
        host::output(Command::new("find").arg(&data).args(["-mindepth", "1", "-delete"]))?;
        primary.copy_to(&self.keeper)?;
        self.configure()?;
        self.launch()?;
        primary.lead(replication)
    }

    /// Copies this server's data, to be a standby's.
    fn copy_to(&self, keeper: &Keeper) -> Result<()> {
        let mut copy = self.keeper.account().command(&program("pg_basebackup", PACKAGE)?);
        copy.arg("-D").arg(keeper.data()).arg("-h").arg(self.sockets()).args(["-p", &self.port().to_string()]);
        copy.args(["-U", ADMIN, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
        host::output(copy.env("PGPASSWORD", &self.password).current_dir(keeper.data())).map(drop)
    }

    /// Makes commits wait for a standby, or not, and waits until one follows.
    fn lead(&self, replication: Replication) -> Result<()> {
        if replication == Replication::Synchronous {
            self.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")?;
            self.sql("SELECT pg_reload_conf()")?;
        }
        self.await_standby(replication)
    }

    /// Waits until a standby has caught up and follows.
    pub fn await_standby(&self, replication: Replication) -> Result<()> {
        let wanted = match replication {
            Replication::Synchronous => "'sync', 'quorum'",
            Replication::Asynchronous => "'sync', 'quorum', 'async'",
        };
        let question =
            format!("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ({wanted})");
        wait_until("the standby to follow", PATIENCE, || Ok(self.sql(&question)? != "0"))
    }

    /// From now on a standby receives nothing, though the two servers could reach each other.
    pub fn detach(&self) -> Result<()> {
        self.sql("ALTER SYSTEM SET primary_conninfo = ''")?;
        self.sql("SELECT pg_reload_conf()")?;
        let receivers = "SELECT count(*) FROM pg_stat_wal_receiver";
        wait_until("the receiver's end", PATIENCE, || Ok(self.sql(receivers)? == "0"))
    }

    /// Makes a standby a primary, on a new timeline.
    pub fn promote(&self) -> Result<()> {
        match self.sql("SELECT pg_promote(true, 60)")?.as_str() {
            "t" => Ok(()),
            told => Err(Problem::new(format!("pg_promote said `{told}`"))),
        }
    }

    /// The number of the timeline that a primary writes.
    pub fn timeline(&self) -> Result<u32> {
        let told = self.sql("SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)")?;
        u32::from_str_radix(&told, 16).map_err(|_| Problem::new(format!("`{told}` is no timeline")))
    }
}
