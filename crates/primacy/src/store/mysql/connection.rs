//! A connection, and what is sent over it.

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, DriverError, Row};
use tracing::debug;

use super::super::StoreError;
use super::answer::{Answer, Fields};
use super::change::Change;
use super::errors::Fault;
use super::packet::{self, Packet};
use super::server::Server;

/// Longer transactions are sent statement by statement: half of what the driver sends at once.
const LONGEST_PACKET: usize = 1 << 19;

/// A connection of our own. Never pooled; after a round trip that was interrupted it refuses everything.
pub(super) struct Connection {
    conn: Conn,
    host: String,
    is_here: bool,
    health: Health,
    before_change: Option<String>,
    pub(super) server: Server,
}

/// What became of statements that were sent together.
pub(super) struct Outcomes {
    /// How many rows each of the first has changed, which is committed.
    pub(super) counts: Vec<u64>,
    /// What has ended them, and of those that are not counted the one that it is about, if it is about one. On a
    /// [sound](Connection::is_sound) connection none of these was done; otherwise nothing is known of them.
    pub(super) failed: Option<(Option<usize>, Fault)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Idle,
    /// A transaction may be open, or statements do not commit by themselves.
    Untidy,
    /// A round trip is under way. If it is still so when the next begins, that one was abandoned.
    Busy,
    Broken,
}

impl Connection {
    /// Over this connection of the driver, of which nothing is known yet.
    pub(super) fn new(conn: Conn, host: String, is_here: bool, before_change: Option<String>) -> Self {
        Self { conn, host, is_here, health: Health::Idle, before_change, server: Server::default() }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Whether the server is on this host.
    pub(super) fn is_here(&self) -> bool {
        self.is_here
    }

    /// Whether a further round trip may succeed.
    pub(super) fn is_sound(&self) -> bool {
        matches!(self.health, Health::Idle | Health::Untidy)
    }

    /// Sends a packet and takes the answers to all its statements.
    pub(super) async fn run(&mut self, packet: &Packet) -> Result<Vec<Answer>, Fault> {
        self.tidy_up().await?;
        self.exchange(packet).await
    }

    /// Whether statements over a connection that candidates share wait a second for a lock from now on, or end at once. Only MariaDB
    /// can do without any wait. Where it cannot be said, the connection is no longer good, and the next step tells.
    pub(super) async fn wait_for_locks(&mut self, wait: bool) {
        if self.server.is_mariadb() {
            let setting = format!("SET SESSION innodb_lock_wait_timeout = {}", u8::from(wait));
            drop(self.run(&Packet::read(setting)).await);
        }
    }

    async fn tidy_up(&mut self) -> Result<(), Fault> {
        match self.health {
            Health::Idle => Ok(()),
            Health::Untidy => self.exchange(&Packet::tidy()).await.map(drop),
            Health::Busy | Health::Broken => {
                Err(StoreError::Unreachable(format!("{}: the connection is no longer good", self.host)).into())
            }
        }
    }

    fn unsettled(&self) -> Fault {
        let message = "something between here and the server has turned autocommit off, or keeps a transaction open";
        StoreError::Unknown(format!("{}: {message}", self.host)).into()
    }

    /// Sends statements of which each is about a row of its own: in one transaction, or, on Galera and where there is only one,
    /// such that each commits by itself.
    pub(super) async fn run_many(&mut self, statements: &[String]) -> Outcomes {
        if let Err(fault) = self.tidy_up().await {
            return Outcomes { counts: Vec::new(), failed: Some((None, fault)) };
        }
        // MariaDB does not tell when a cluster aborts a transaction between two statements of one packet.
        if self.server.is_galera || statements.len() == 1 {
            self.run_each(statements).await
        } else {
            self.run_all(statements).await
        }
    }

    /// All of them, or none.
    async fn run_all(&mut self, statements: &[String]) -> Outcomes {
        let packet = Packet::transaction(statements);
        self.health = Health::Busy;
        let mut answers = Vec::with_capacity(packet.statements);
        let ended = self.converse_into(&packet, &mut answers).await;
        match self.judge(&packet, ended) {
            // Those to the START TRANSACTION and the COMMIT say nothing.
            Ok(()) => {
                let counts = answers.into_iter().skip(1).take(statements.len()).map(|answer| answer.affected);
                Outcomes { counts: counts.collect(), failed: None }
            }
            Err((at, fault)) => {
                if self.health == Health::Untidy {
                    // Others wait for the locks. If it fails, the next round trip tells.
                    drop(self.exchange(&Packet::tidy()).await);
                }
                let at = at.checked_sub(1).filter(|at| *at < statements.len());
                Outcomes { counts: Vec::new(), failed: Some((at, fault)) }
            }
        }
    }

    /// Those before the first that fails are done, and those after it are not begun.
    async fn run_each(&mut self, statements: &[String]) -> Outcomes {
        let packet = Packet::each(statements);
        self.health = Health::Busy;
        let mut answers = Vec::with_capacity(statements.len());
        let ended = self.converse_into(&packet, &mut answers).await;
        let is_settled = match &ended {
            Ok(()) => self.is_settled(),
            // An error tells no flags.
            Err((mysql_async::Error::Server(_), _)) if !answers.is_empty() => {
                self.converse(&Packet::read("DO 0".to_owned())).await.is_ok() && self.is_settled()
            }
            Err(_) => true,
        };
        let failed = match ended {
            // Counted and not committed, or who knows.
            _ if !is_settled => {
                self.health = Health::Broken;
                return Outcomes { counts: Vec::new(), failed: Some((None, self.unsettled())) };
            }
            ended => self.judge(&packet, ended).err(),
        };
        // Without a sound connection nobody is left to say whether what was counted was committed.
        let counts = if self.is_sound() { answers.iter().map(|answer| answer.affected).collect() } else { Vec::new() };
        // What was counted is no longer among those that wait.
        Outcomes { counts, failed: failed.map(|(_, fault)| (Some(0), fault)) }
    }

    /// What the end of a packet means, and of which statement it tells.
    fn judge(&mut self, packet: &Packet, ended: Result<(), (mysql_async::Error, usize)>) -> Result<(), (usize, Fault)> {
        match ended {
            Ok(()) if self.is_settled() => {
                self.health = Health::Idle;
                Ok(())
            }
            Ok(()) => {
                self.health = Health::Broken;
                Err((packet.statements, self.unsettled()))
            }
            Err((error, at)) => {
                let is_servers = matches!(error, mysql_async::Error::Server(_));
                self.health = if is_servers { Health::Untidy } else { Health::Broken };
                Err((at, Fault::of(&error, packet, at, &self.host)))
            }
        }
    }

    /// Sends a packet that may be sent again, until nobody else is faster.
    pub(super) async fn run_patiently(&mut self, packet: &Packet) -> Result<Vec<Answer>, Fault> {
        const TRIES: u32 = 5;
        for _ in 1..TRIES {
            match self.run(packet).await {
                Err(Fault::Outrun(_)) => {}
                done => return done,
            }
        }
        self.run(packet).await
    }

    async fn exchange(&mut self, packet: &Packet) -> Result<Vec<Answer>, Fault> {
        self.health = Health::Busy;
        match self.converse(packet).await {
            Ok(answers) if packet.is_part || self.is_settled() => {
                self.health = Health::Idle;
                Ok(answers)
            }
            Ok(answers) if packet.change == packet::Change::Nothing => {
                self.health = Health::Untidy;
                Ok(answers)
            }
            // Counted and not committed, or who knows: it ends with the connection.
            Ok(_) => {
                self.health = Health::Broken;
                Err(self.unsettled())
            }
            Err((error, at)) => {
                let is_servers = matches!(error, mysql_async::Error::Server(_));
                self.health = if is_servers { Health::Untidy } else { Health::Broken };
                Err(Fault::of(&error, packet, at, &self.host))
            }
        }
    }

    /// Whether what was sent last has left no transaction open, by what the server says along with its last answer, and
    /// statements commit by themselves. A statement that does not is counted just like one that does.
    fn is_settled(&self) -> bool {
        self.conn.last_ok_packet().is_some_and(|ok| {
            let flags = ok.status_flags();
            flags.contains(StatusFlags::SERVER_STATUS_AUTOCOMMIT)
                && !flags.contains(StatusFlags::SERVER_STATUS_IN_TRANS)
        })
    }

    /// Makes a change. `false` if the row was not as it must be; then nothing is done.
    pub(super) async fn make(&mut self, change: &Change) -> Result<bool, Fault> {
        Ok(self.transact(change).await?.is_some())
    }

    /// Makes a change, and tells the answers to its statements; `None` if the row was not as it must be.
    pub(super) async fn transact(&mut self, change: &Change) -> Result<Option<Vec<Answer>>, Fault> {
        if let Some(settings) = &self.before_change {
            let done = self.conn.query_drop(settings).await;
            done.map_err(|error| StoreError::Unreachable(format!("{}: {error}", self.host)))?;
        }
        let is_long = || change.statements.iter().map(String::len).sum::<usize>() > LONGEST_PACKET;
        let made = if change.statements.len() > 1 && (self.server.is_galera || is_long()) {
            self.make_by_and_by(change).await
        } else {
            self.make_at_once(change).await
        };
        if made.is_err() && self.health == Health::Untidy {
            // Others wait for the locks. If it fails, the next round trip tells.
            drop(self.exchange(&Packet::tidy()).await);
        }
        made
    }

    async fn make_at_once(&mut self, change: &Change) -> Result<Option<Vec<Answer>>, Fault> {
        let packet = match &change.statements[..] {
            [deciding] => Packet::single(deciding.clone()),
            statements => Packet::transaction(statements),
        };
        let mut answers = self.run(&packet).await?;
        if change.statements.len() > 1 {
            // Those to the START TRANSACTION and the COMMIT.
            answers.pop();
            answers.drain(..answers.len().min(1));
        }
        let is_made = answers.get(change.decides).is_some_and(|answer| answer.affected == 1);
        Ok(is_made.then_some(answers))
    }

    /// Deletes what nobody needs, if it can be done at once. `false` if it was not.
    pub(super) async fn clear(&mut self, deletion: &str) -> bool {
        // Elsewhere there is no such way to say it, and the wait is bounded by the session's settings.
        let at_once = if self.server.is_mariadb() {
            "SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR "
        } else {
            ""
        };
        let cleared = self.run(&Packet::read(format!("{at_once}{deletion}"))).await;
        cleared.inspect_err(|fault| debug!(error = %fault.error(), "what is no longer needed was not deleted")).is_ok()
    }

    /// A round trip for each statement. When the cluster aborts a transaction between two statements of one packet,
    /// MariaDB tells nobody: it runs those that follow each by itself, and answers the `COMMIT` with OK. Between two
    /// packets it tells.
    async fn make_by_and_by(&mut self, change: &Change) -> Result<Option<Vec<Answer>>, Fault> {
        self.run(&Packet::start()).await?;
        let mut all = Vec::with_capacity(change.statements.len());
        for (index, statement) in change.statements.iter().enumerate() {
            let answers = self.run(&Packet::part(statement.clone())).await?;
            if index == change.decides && answers.iter().any(|answer| answer.affected != 1) {
                self.run(&Packet::rollback()).await?;
                return Ok(None);
            }
            all.extend(answers);
        }
        self.run(&Packet::commit()).await?;
        Ok(Some(all))
    }

    /// The answers, or the first error and the statement that it answers.
    async fn converse(&mut self, packet: &Packet) -> Result<Vec<Answer>, (mysql_async::Error, usize)> {
        let mut answers = Vec::with_capacity(packet.statements);
        self.converse_into(packet, &mut answers).await?;
        Ok(answers)
    }

    /// The answers, until the first error.
    async fn converse_into(
        &mut self,
        packet: &Packet,
        answers: &mut Vec<Answer>,
    ) -> Result<(), (mysql_async::Error, usize)> {
        let mut result = self.conn.query_iter(&packet.text).await.map_err(|error| (error, 0))?;
        for at in 0..packet.statements {
            // The driver would take it for an answer without rows, with the count of the one before.
            let is_missing = result.columns().is_none();
            let affected = result.affected_rows();
            // An error in place of an answer comes out here.
            let rows: Vec<Row> = result.collect().await.map_err(|error| (error, at))?;
            if is_missing {
                return Err((DriverError::PacketOutOfOrder.into(), at));
            }
            answers.push(Answer { rows: rows.into_iter().map(Fields::of).collect(), affected });
        }
        Ok(())
    }
}
