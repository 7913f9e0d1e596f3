//! A connection: to a server that may be written and is no straggler, and what is sent over it.

use std::time::Duration;

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, DriverError, Row, Value};
use tracing::debug;

use super::super::race::{race, together};
use super::super::{BoxFuture, StoreError};
use super::fault::{self, Fault};
use super::packet::{self, Packet};
use super::place::{Host, Place};
use super::rows::Change;
use super::{lookout, presence, schema};

/// How long one host may take to become usable.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Longer transactions are sent statement by statement: half of what the driver sends at once.
const LONGEST_PACKET: usize = 1 << 19;

/// An answer to one statement.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rows: Vec<Fields>,
    /// How many rows an `UPDATE`, `INSERT` or `DELETE` counted.
    pub(super) affected: u64,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A candidate's steps: missing tables are made.
    Campaign,
    /// What is left to do for a process that is dead: it has seen to the tables and its rights.
    Close,
    /// Observers and operators: missing tables are said.
    Observe,
    /// Hints: nothing that is read has to be new, and a server that falls silent is hung up on.
    Listen,
    /// A leader's sign of life: as for hints, but it may be silent for longer.
    Lead,
}

/// A connection of our own. Never pooled; after a round trip that was interrupted it refuses everything.
pub(super) struct Line {
    conn: Conn,
    host: String,
    is_here: bool,
    health: Health,
    before_change: Option<String>,
    pub(super) server: Server,
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

/// What answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Server {
    /// As it calls itself.
    pub(super) version: String,
    /// A node of a Galera cluster.
    pub(super) is_galera: bool,
    is_read_only: bool,
    is_ready: bool,
    is_primary: bool,
}

impl Line {
    /// Connects to the first host that may be written.
    pub(super) async fn open(place: &Place, purpose: Purpose) -> Result<Self, StoreError> {
        let order: Vec<usize> = place.turns().map(|(index, _)| index).collect();
        let attempts = order.iter().map(|&index| {
            let place = place.clone();
            Box::pin(async move {
                place.doubt(index);
                let host = place.host(index);
                let opening = tokio::time::timeout(CONNECT_WITHIN, Self::open_at(&place, host, purpose)).await;
                let late = |_| Err(StoreError::Unreachable(format!("{host}: no answer in time")));
                opening.unwrap_or_else(late).inspect_err(|error| debug!(%error, "a host cannot be used"))
            }) as BoxFuture<'static, _>
        });
        let (winner, line) = race(attempts.collect()).await.map_err(together)?;
        place.trust(order[winner]);
        Ok(line)
    }

    /// Where everything is in place, all that is asked and set goes in one packet.
    async fn open_at(place: &Place, host: &Host, purpose: Purpose) -> Result<Self, StoreError> {
        let host_name = host.to_string();
        let conn = Conn::new(place.opts(host)?)
            .await
            .map_err(|error| fault::of_connecting(&error, &host_name, place.has_password()))?;
        let (is_here, server) = (host.is_here(), Server::default());
        let before_change = place.oddities.before_change.clone();
        let mut line = Self { conn, host: host_name, is_here, health: Health::Idle, before_change, server };
        let questions = ask_server().into_iter().chain(settings(purpose));
        let needs_tables = matches!(purpose, Purpose::Campaign | Purpose::Observe);
        let asked: Vec<String> = questions.clone().chain(needs_tables.then(schema::ask_version)).collect();
        let rights = if purpose == Purpose::Campaign { schema::ask_rights() } else { Vec::new() };
        let mut is_denied = false;
        let answered = match line.run(&Packet::of(&[asked.as_slice(), &rights].concat())).await {
            Err(fault) if fault.is_denied() && !rights.is_empty() => {
                is_denied = true;
                line.run(&Packet::of(&asked)).await
            }
            answered => answered,
        };
        let (answers, version) = match answered {
            Ok(mut answers) if needs_tables => {
                answers.truncate(asked.len());
                let version = schema::version_of(answers.pop())?;
                (answers, version)
            }
            // The last statement has failed, and the answers to all others are lost.
            Err(Fault::NoTables(_)) => (line.run(&Packet::of(&questions.collect::<Vec<_>>())).await?, None),
            answered => (answered?, None),
        };
        line.server = Server::from_answers(&answers[..ASKED])?;
        line.server.refuse_if_unfit(&line.host)?;
        if let Some(settings) = settings_of_galera(&line.server, purpose) {
            line.run(&Packet::read(settings)).await?;
        }
        if let Some(settings) = &place.oddities.settings {
            line.run(&Packet::read(settings.clone())).await?;
        }
        match purpose {
            Purpose::Campaign => {
                schema::make_or_check(&mut line, version).await?;
                if is_denied {
                    schema::refuse_without_rights(&mut line).await?;
                }
            }
            Purpose::Observe => schema::check(&line, version)?,
            Purpose::Close | Purpose::Listen | Purpose::Lead => {}
        }
        Ok(line)
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
        match self.health {
            Health::Idle => {}
            Health::Untidy => drop(self.exchange(&Packet::tidy()).await?),
            Health::Busy | Health::Broken => {
                return Err(StoreError::Unreachable(format!("{}: the connection is no longer good", self.host)).into());
            }
        }
        self.exchange(packet).await
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
                let message =
                    "something between here and the server has turned autocommit off, or keeps a transaction open";
                Err(StoreError::Unknown(format!("{}: {message}", self.host)).into())
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
        Ok(answers)
    }
}

/// How many statements [`ask_server`] makes.
const ASKED: usize = 2;

fn ask_server() -> [String; ASKED] {
    [
        "SHOW VARIABLES WHERE Variable_name IN \
         ('version', 'version_comment', 'read_only', 'innodb_read_only', 'wsrep_on', 'wsrep_provider')"
            .into(),
        "SHOW STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status')".into(),
    ]
}

impl Server {
    fn from_answers(answers: &[Answer]) -> Result<Self, Fault> {
        let mut server = Self { is_primary: true, is_ready: true, ..Self::default() };
        let mut comment = String::new();
        let mut provided = false;
        for row in answers.iter().flat_map(|answer| &answer.rows) {
            let mut row = row.clone();
            let (name, value) = (row.text()?.to_ascii_lowercase(), row.text()?);
            let is_on = matches!(value.as_str(), "1") || value.eq_ignore_ascii_case("on");
            match name.as_str() {
                "version" => server.version = value,
                "version_comment" => comment = value,
                // Also what later versions call it: ON, NO_LOCK, NO_LOCK_NO_ADMIN.
                "read_only" => server.is_read_only |= !matches!(value.as_str(), "OFF" | "0"),
                "innodb_read_only" => server.is_read_only |= is_on,
                "wsrep_on" => server.is_galera = is_on,
                "wsrep_provider" => provided = !value.is_empty() && value != "none",
                "wsrep_ready" => server.is_ready = is_on,
                "wsrep_cluster_status" => server.is_primary = value.eq_ignore_ascii_case("primary"),
                _ => {}
            }
        }
        server.is_galera &= provided;
        if !comment.is_empty() && !server.is_mariadb() {
            server.version = format!("{} ({comment})", server.version);
        }
        Ok(server)
    }

    pub(super) fn is_mariadb(&self) -> bool {
        self.version.to_ascii_lowercase().contains("mariadb")
    }

    /// What is read from such servers may be old, and what is written to them nobody else sees.
    fn refuse_if_unfit(&self, host: &str) -> Result<(), StoreError> {
        if self.is_read_only {
            return Err(StoreError::Unusable(format!(
                "{host}: it is read-only, a replica or being moved; candidates need the server that takes writes"
            )));
        }
        if self.is_galera && !(self.is_ready && self.is_primary) {
            return Err(StoreError::Unreachable(format!("{host}: this node is not part of its cluster's majority")));
        }
        Ok(())
    }
}

/// What a server's administrator, or a pooler, may have chosen otherwise. It is looked at after each round trip.
pub(super) const COMMIT_EACH: &str = "SET SESSION autocommit = 1, completion_type = 'NO_CHAIN'";

/// Each is for this connection alone. None is needed for safety, so that a pooler may lose them: whether a change has
/// committed is told by the server's status flags.
fn settings(purpose: Purpose) -> Vec<String> {
    let mut settings = vec![
        // No gap locks, by which first grants of different elections would deadlock.
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE".to_owned(),
        COMMIT_EACH.to_owned(),
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES'".to_owned(),
        // A caller that is locked out is told soon, and abandoned steps do not pile up behind a lock.
        //
        // A lock that cannot be got ends a packet and leaves its transaction open, and on Galera a grant takes several
        // round trips. A client that is stopped then must not hold its locks. Only MariaDB from 10.3 on reads that part.
        "SET SESSION innodb_lock_wait_timeout = 2, lock_wait_timeout = 2 /*M!100300 , idle_transaction_timeout = 3 */"
            .to_owned(),
    ];
    let silent_for = match purpose {
        Purpose::Campaign | Purpose::Close | Purpose::Observe => None,
        Purpose::Listen => Some(lookout::SILENT_FOR_SECONDS),
        Purpose::Lead => Some(presence::SILENT_FOR_SECONDS),
    };
    if let Some(seconds) = silent_for {
        // A candidate that is stopped or lost must not keep its lock: the server closes what has been silent for this long.
        settings.push(format!("SET SESSION wait_timeout = {seconds} /*M!100101 , max_statement_time = 0 */"));
    }
    settings
}

/// What no other server knows.
fn settings_of_galera(server: &Server, purpose: Purpose) -> Option<String> {
    let settings = match purpose {
        // Reads and writes wait until this node has applied what the cluster had committed when they came.
        Purpose::Campaign | Purpose::Close | Purpose::Observe | Purpose::Lead => {
            "SET SESSION wsrep_sync_wait = 7, wsrep_dirty_reads = 0"
        }
        Purpose::Listen => "SET SESSION wsrep_sync_wait = 0",
    };
    server.is_galera.then(|| settings.to_owned())
}

/// The columns of a row, taken one after the other.
#[derive(Clone, Debug)]
pub(super) struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    fn of(row: Row) -> Self {
        Self(row.unwrap().into_iter())
    }

    pub(super) fn optional_bytes(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        match self.0.next() {
            Some(Value::NULL) => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            _ => Err(Fault::damaged("an answer")),
        }
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<String>, Fault> {
        let text = self.optional_bytes()?.map(String::from_utf8).transpose();
        text.map_err(|_| Fault::damaged("a text"))
    }

    pub(super) fn text(&mut self) -> Result<String, Fault> {
        self.optional_text()?.ok_or_else(|| Fault::damaged("an empty column"))
    }

    pub(super) fn optional_number(&mut self) -> Result<Option<i64>, Fault> {
        let number = self.optional_text()?.map(|text| text.parse()).transpose();
        number.map_err(|_| Fault::damaged("a number"))
    }

    pub(super) fn number(&mut self) -> Result<i64, Fault> {
        self.optional_number()?.ok_or_else(|| Fault::damaged("an empty column"))
    }
}
