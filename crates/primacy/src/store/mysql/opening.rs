//! How a connection is opened: to a server that may be written and is no straggler, with the settings that it needs.

use std::time::Duration;

use mysql_async::Conn;
use tracing::debug;

use super::super::race::{race, together};
use super::super::{BoxFuture, StoreError};
use super::connection::Connection;
use super::errors::{self, Fault};
use super::packet::{COMMIT_EACH, Packet};
use super::schema;
use super::server::{ASKED, Server, ask_server};
use super::url::{Host, StoreUrl};

/// How long one host may take to become usable.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// After this long without a glance the server closes the poller's connection, and the next takes the lock.
pub(super) const LISTENER_SILENT_SECONDS: u64 = 2;

/// After this long without a word the server closes the connection: a host that was lost leaves nothing behind.
const LEADER_SILENT_SECONDS: u64 = 30;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A candidate's steps: missing tables are made.
    Campaign,
    /// The same of many candidates, who do not wait for each other's locks.
    Share,
    /// What is left to do for a process that is dead: it has seen to the tables and its rights.
    Close,
    /// Observers and operators: missing tables are said.
    Observe,
    /// Hints: nothing that is read has to be new, and a server that falls silent is hung up on.
    Listen,
    /// A leader's sign of life: as for hints, but it may be silent for longer.
    Lead,
}

impl Connection {
    /// Connects to the first host that may be written.
    pub(super) async fn open(url: &StoreUrl, purpose: Purpose) -> Result<Self, StoreError> {
        let order: Vec<usize> = url.turns().map(|(index, _)| index).collect();
        let attempts = order.iter().map(|&index| {
            let url = url.clone();
            Box::pin(async move {
                url.doubt(index);
                let host = url.host(index);
                let opening = tokio::time::timeout(CONNECT_WITHIN, Self::open_at(&url, host, purpose)).await;
                let late = |_| Err(StoreError::Unreachable(format!("{host}: no answer in time")));
                opening.unwrap_or_else(late).inspect_err(|error| debug!(%error, "a host cannot be used"))
            }) as BoxFuture<'static, _>
        });
        let (winner, connection) = race(attempts.collect()).await.map_err(together)?;
        url.trust(order[winner]);
        Ok(connection)
    }

    /// Where everything is in place, all that is asked and set goes in one packet.
    async fn open_at(url: &StoreUrl, host: &Host, purpose: Purpose) -> Result<Self, StoreError> {
        let host_name = host.to_string();
        let conn = Conn::new(url.opts(host)?)
            .await
            .map_err(|error| errors::of_connecting(&error, &host_name, url.has_password()))?;
        let mut connection = Self::new(conn, host_name, host.is_here(), url.oddities.before_change.clone());
        let questions = ask_server().into_iter().chain(settings(purpose));
        let campaigns = matches!(purpose, Purpose::Campaign | Purpose::Share);
        let needs_tables = campaigns || purpose == Purpose::Observe;
        let asked: Vec<String> = questions.clone().chain(needs_tables.then(schema::ask_version)).collect();
        let rights = if campaigns { schema::ask_rights() } else { Vec::new() };
        let mut is_denied = false;
        let answered = match connection.run(&Packet::of(&[asked.as_slice(), &rights].concat())).await {
            Err(fault) if fault.is_denied() && !rights.is_empty() => {
                is_denied = true;
                connection.run(&Packet::of(&asked)).await
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
            Err(Fault::NoTables(_)) => (connection.run(&Packet::of(&questions.collect::<Vec<_>>())).await?, None),
            answered => (answered?, None),
        };
        connection.server = Server::from_answers(&answers[..ASKED])?;
        connection.server.refuse_if_unfit(connection.host())?;
        if let Some(settings) = settings_of_galera(&connection.server, purpose) {
            connection.run(&Packet::read(settings)).await?;
        }
        if let Some(settings) = &url.oddities.settings {
            connection.run(&Packet::read(settings.clone())).await?;
        }
        match purpose {
            Purpose::Campaign | Purpose::Share => {
                schema::make_or_check(&mut connection, version).await?;
                if is_denied {
                    schema::refuse_without_rights(&mut connection).await?;
                }
                if purpose == Purpose::Share {
                    // Who makes the tables waits for others who do.
                    connection.run(&Packet::read(AT_ONCE.to_owned())).await?;
                }
            }
            Purpose::Observe => schema::check(&connection, version)?,
            Purpose::Close | Purpose::Listen | Purpose::Lead => {}
        }
        Ok(connection)
    }
}

/// A step that meets a lock is tried again, and the others that share the connection go on. Only MariaDB can do without any wait.
const AT_ONCE: &str = "SET SESSION innodb_lock_wait_timeout = 1, lock_wait_timeout = 1 \
                       /*M!100300 , innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 */";

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
        Purpose::Campaign | Purpose::Share | Purpose::Close | Purpose::Observe => None,
        Purpose::Listen => Some(LISTENER_SILENT_SECONDS),
        Purpose::Lead => Some(LEADER_SILENT_SECONDS),
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
        Purpose::Campaign | Purpose::Share | Purpose::Close | Purpose::Observe | Purpose::Lead => {
            "SET SESSION wsrep_sync_wait = 7, wsrep_dirty_reads = 0"
        }
        Purpose::Listen => "SET SESSION wsrep_sync_wait = 0",
    };
    server.is_galera.then(|| settings.to_owned())
}
