//! Two PostgreSQL servers, one of which follows the other, and failovers between them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use primacy_servers::{Postgres, PostgresOptions, Proxy, Replication};

/// A primary and its standby. If that is synchronous, what is committed is on both.
#[derive(Debug)]
pub(crate) struct Pair {
    servers: [Postgres; 2],
    replication: Replication,
    /// Which of them leads.
    leading: AtomicUsize,
    /// An address that moves with the primary, for operators and the auditor.
    address: Proxy,
}

impl Pair {
    pub(crate) fn start(replication: Replication) -> Result<Self> {
        // A primary that comes back is found soon: otherwise commits hang for PostgreSQL's five seconds.
        let options = PostgresOptions::default().set("wal_retrieve_retry_interval", "200ms");
        let first = Postgres::start(&options)?;
        let second = first.standby(replication)?;
        let address = Proxy::to(first.port())?;
        Ok(Self { servers: [first, second], replication, leading: AtomicUsize::new(0), address })
    }

    pub(crate) fn replication(&self) -> Replication {
        self.replication
    }

    pub(crate) fn servers(&self) -> &[Postgres; 2] {
        &self.servers
    }

    pub(crate) fn address(&self) -> &Proxy {
        &self.address
    }

    pub(crate) fn primary(&self) -> &Postgres {
        &self.servers[self.leading.load(Ordering::SeqCst)]
    }

    pub(crate) fn standby(&self) -> &Postgres {
        &self.servers[1 - self.leading.load(Ordering::SeqCst)]
    }

    /// The primary dies, and after a while its standby is promoted. It has no standby then. One for which nobody waits has
    /// missed the last commits.
    pub(crate) fn fail_over(&self, span: Duration) -> Result<()> {
        if self.replication == Replication::Asynchronous {
            self.standby().detach()?;
            thread::park_timeout(span / 2);
        }
        self.primary().kill9()?;
        thread::park_timeout(span / 2);
        self.promote()
    }

    /// The primary hangs, its standby is promoted, and the primary goes on for a while: it takes writes and confirms none,
    /// since nobody follows it.
    pub(crate) fn fail_over_unfenced(&self, span: Duration) -> Result<()> {
        let former = self.primary();
        former.freeze()?;
        thread::park_timeout(span / 2);
        self.promote()?;
        former.thaw()?;
        thread::park_timeout(span / 2);
        Ok(former.kill9()?)
    }

    fn promote(&self) -> Result<()> {
        let next = self.standby();
        next.promote()?;
        self.leading.store(1 - self.leading.load(Ordering::SeqCst), Ordering::SeqCst);
        self.address.point_to(next.port());
        self.address.kill_connections();
        Ok(())
    }

    /// The server that has failed becomes a standby of the other one.
    pub(crate) fn rejoin(&self) -> Result<()> {
        self.standby().follow(self.primary(), self.replication)?;
        self.await_whole()
    }

    pub(crate) fn freeze_standby(&self, span: Duration) -> Result<()> {
        self.standby().freeze()?;
        thread::park_timeout(span);
        self.standby().thaw()?;
        self.await_whole()
    }

    pub(crate) fn kill_standby(&self, span: Duration) -> Result<()> {
        self.standby().kill9()?;
        thread::park_timeout(span);
        self.standby().start_again()?;
        self.await_whole()
    }

    /// Waits until whatever can be read from the primary is on the standby, too. A commit whose wait was cut short, by the
    /// end of its session or of the server, is visible although nobody was told that it is safe.
    pub(crate) fn await_whole(&self) -> Result<()> {
        let primary = self.primary();
        primary.await_standby(self.replication)?;
        // A commit that waits for the standby, and so for all before it.
        Ok(primary.sql("SELECT pg_logical_emit_message(true, 'chaos', '')").map(drop)?)
    }
}
