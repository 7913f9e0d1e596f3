//! What `primacy doctor` is told of a database: what it guarantees (R12), and what a durable change costs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::timeout;
use tokio_postgres::Row;

use super::super::findings::{RENEWALS, finding, latency};
use super::super::{Finding, Probe, Severity};
use super::about::{PROBE_CLOCK, PROBE_CREATORS, PROBE_SETTINGS, PROBE_TABLES};
use super::connection::Connection;
use super::errors::{Fault, Stake};
use super::notifier::{Channel, NotifierHandle};
use super::schema::Server;
use super::schema_choice;
use super::statements::{PROBE_CLEAR, PROBE_RENEW};
use crate::clock;

pub(super) async fn run(
    connection: &mut Connection,
    server: &Server,
    notifier: &NotifierHandle,
) -> Result<Probe, Fault> {
    let mut findings = Vec::new();
    let settings = Settings::read(connection).await?;
    findings.push(finding(Severity::Fine, "server", settings.place.clone()));
    findings.extend(settings.durability());
    findings.push(settings.replication(server.has_timeline));
    findings.push(settings.timeline());
    findings.push(settings.isolation());
    findings.push(settings.encryption(connection.is_local()));
    let tables = connection.run(PROBE_TABLES, &[], Stake::Reading).await?;
    findings.push(logged(&tables)?);
    findings.push(creators(&connection.run(PROBE_CREATORS, &[], Stake::Reading).await?)?);
    findings.push(homes(&schema_choice::all(connection).await?));
    findings.push(fence(&settings));
    findings.push(clock_difference(connection).await?);
    findings.push(push(connection, notifier).await);
    let lacking = lacking(&tables)?;
    let renewals = if server.is_read_only || !lacking.is_empty() {
        let why = match server.is_read_only {
            true => "the server is read-only for this user".to_owned(),
            false => format!("this user lacks {}", lacking.join(", ")),
        };
        let message = format!("{why}, so that it can watch elections but not take part in them");
        findings.push(finding(Severity::Warning, "permission", message));
        Vec::new()
    } else {
        let renewals = renewals(connection).await?;
        findings.push(latency(&renewals));
        renewals
    };
    Ok(Probe { product: format!("PostgreSQL {}", server.version), renewals, findings, latencies: None })
}

/// What the server says of itself.
struct Settings {
    place: String,
    fsync: bool,
    full_page_writes: bool,
    synchronous_commit: String,
    standby_names: String,
    isolation: String,
    standbys: i64,
    synchronous_standbys: i64,
    /// Whose role this user may not see.
    veiled_standbys: i64,
    timeline: Option<i64>,
    is_encrypted: bool,
    has_fence: Option<bool>,
}

impl Settings {
    async fn read(connection: &mut Connection) -> Result<Self, Fault> {
        let timeline = match connection.run(super::statements::TIMELINE, &[], Stake::Reading).await {
            Ok(rows) => rows.first().map(|row| row.try_get(0)).transpose()?,
            Err(fault) if fault.code().is_some() => None,
            Err(fault) => return Err(fault),
        };
        let rows = connection.run(PROBE_SETTINGS, &[], Stake::Reading).await?;
        let row = rows.first().ok_or(Fault::Damaged("the answer about the server"))?;
        let (database, user): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let shown = |text: &str| primacy_core::ids::escape(text);
        Ok(Self {
            place: format!(
                "the tables are in schema {} of database {}, and this user is {}",
                connection.schema(),
                shown(&database),
                shown(&user)
            ),
            fsync: row.try_get(2)?,
            full_page_writes: row.try_get(3)?,
            synchronous_commit: row.try_get(4)?,
            standby_names: row.try_get(5)?,
            isolation: row.try_get(6)?,
            standbys: row.try_get(7)?,
            synchronous_standbys: row.try_get(8)?,
            veiled_standbys: row.try_get(9)?,
            is_encrypted: row.try_get(10)?,
            has_fence: row.try_get(11)?,
            timeline,
        })
    }

    fn durability(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.fsync {
            let message = "fsync is off: a crash of the machine can lose grants or damage the database, and then two \
                           may lead; set fsync = on";
            findings.push(finding(Severity::Danger, "durability", message));
        }
        if !self.full_page_writes {
            let message = "full_page_writes is off: a crash of the machine can damage the database, unless its file \
                           system never writes half a page; set full_page_writes = on";
            findings.push(finding(Severity::Danger, "durability", message));
        }
        if findings.is_empty() {
            let message = match self.synchronous_commit.as_str() {
                "on" | "remote_apply" => "every grant, renewal and release is flushed to disk".to_owned(),
                weak => format!(
                    "every grant, renewal and release is flushed to disk: synchronous_commit is {weak} here, and \
                     primacy sets it to on for its own changes"
                ),
            };
            findings.push(finding(Severity::Fine, "durability", message));
        }
        findings
    }

    /// R12: what a failover to a standby may forget.
    fn replication(&self, has_timeline: bool) -> Finding {
        const CODE: &str = "replication";
        let standbys = self.standbys;
        match (self.standby_names.trim().is_empty(), standbys) {
            (true, 0) => finding(
                Severity::Fine,
                CODE,
                "no standby is connected; should there be one to fail over to, set synchronous_standby_names",
            ),
            (true, _) => {
                let tokens = if has_timeline {
                    "tokens still grow, since the server's timeline is in their high bits"
                } else {
                    "and tokens may be granted a second time, since the timeline cannot be read"
                };
                let message = format!(
                    "{standbys} standby(s) follow asynchronously: a failover can lose the last commits. Then, until the \
                     lease of that moment is over, two may lead (Integrity), and an order may be forgotten; {tokens}. \
                     Set synchronous_standby_names"
                );
                finding(Severity::Danger, CODE, message)
            }
            (false, _) if self.synchronous_standbys > 0 => finding(
                Severity::Fine,
                CODE,
                format!("{} standby(s) confirm every commit; fail over to no other", self.synchronous_standbys),
            ),
            (false, _) if self.veiled_standbys > 0 => finding(
                Severity::Fine,
                CODE,
                format!(
                    "synchronous_standby_names is set and {standbys} standby(s) are connected; which of them confirm \
                     commits, only a user with pg_monitor sees"
                ),
            ),
            (false, _) => finding(
                Severity::Warning,
                CODE,
                "synchronous_standby_names is set, but no such standby is connected: no commit ends, nobody can lead",
            ),
        }
    }

    fn timeline(&self) -> Finding {
        const CODE: &str = "timeline";
        match self.timeline {
            Some(timeline) => {
                finding(Severity::Fine, CODE, format!("timeline {timeline}: tokens of a later one are larger"))
            }
            None => finding(
                Severity::Warning,
                CODE,
                "the timeline cannot be read, so that a failover which loses commits can repeat tokens; grant EXECUTE \
                 on pg_current_wal_lsn() and pg_walfile_name(pg_lsn)",
            ),
        }
    }

    fn isolation(&self) -> Finding {
        const CODE: &str = "isolation";
        match self.isolation.as_str() {
            "read committed" => finding(Severity::Fine, CODE, "read committed, the default"),
            other => finding(
                Severity::Warning,
                CODE,
                format!("default_transaction_isolation is {other}: steps that meet are repeated; read committed waits"),
            ),
        }
    }

    fn encryption(&self, is_local: bool) -> Finding {
        const CODE: &str = "encryption";
        match (self.is_encrypted, is_local) {
            (true, _) => finding(Severity::Fine, CODE, "the connection is encrypted and the server was verified"),
            (false, true) => finding(Severity::Fine, CODE, "the connection does not leave this machine"),
            (false, false) => finding(
                Severity::Warning,
                CODE,
                "the connection is not encrypted: who can read or change it can lead; use sslmode=verify-full",
            ),
        }
    }
}

fn fence(settings: &Settings) -> Finding {
    const CODE: &str = "fence";
    match settings.has_fence {
        Some(true) => finding(Severity::Fine, CODE, "the function primacy_fence is there for transactions in SQL"),
        Some(false) => finding(
            Severity::Warning,
            CODE,
            "this user may not call the function primacy_fence; grant EXECUTE to fence transactions in SQL",
        ),
        None => finding(
            Severity::Warning,
            CODE,
            "there is no function primacy_fence; run what `primacy schema` prints to fence transactions in SQL",
        ),
    }
}

/// What a crash empties, forgets leaders.
fn logged(tables: &[Row]) -> Result<Finding, Fault> {
    let mut unlogged = Vec::new();
    for row in tables {
        let (name, persistence): (String, i8) = (row.try_get(0)?, row.try_get(1)?);
        if persistence != b'p' as i8 && name != "primacy_candidate" {
            unlogged.push(name);
        }
    }
    Ok(if unlogged.is_empty() {
        finding(Severity::Fine, "tables", "the tables survive a crash of the server")
    } else {
        let message = format!(
            "{} would be empty after a crash of the server, and tokens would begin anew; ALTER TABLE … SET LOGGED",
            unlogged.join(", ")
        );
        finding(Severity::Danger, "tables", message)
    })
}

/// Who may put an object where this user's programs look for theirs. Primacy names the schema of everything that it uses;
/// others seldom do.
fn creators(rows: &[Row]) -> Result<Finding, Fault> {
    const CODE: &str = "schema";
    let mut others = Vec::new();
    for row in rows {
        let (schema, role): (String, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
        let role = role.map_or("everyone".to_owned(), |role| primacy_core::ids::escape(&role));
        others.push(format!("{role} in {}", primacy_core::ids::escape(&schema)));
    }
    Ok(if others.is_empty() {
        finding(Severity::Fine, CODE, "nobody else may create objects where this user's programs look for theirs")
    } else {
        let message = format!(
            "others may create objects in schemas of this user's search_path ({}): a program of this user that calls a \
             function without its schema may call theirs, and they may make tables of primacy before it does. Primacy \
             itself names every schema. REVOKE CREATE ON SCHEMA … FROM PUBLIC",
            others.join(", ")
        );
        finding(Severity::Warning, CODE, message)
    })
}

/// Candidates that use different sets of tables do not hear of each other.
fn homes(homes: &[String]) -> Finding {
    const CODE: &str = "schemas";
    if homes.len() < 2 {
        return finding(Severity::Fine, CODE, "no other schema of this database holds tables of primacy");
    }
    let message = format!(
        "schemas {} of this database hold tables of primacy each: candidates of one election that use different ones lead at \
         the same time. Give every candidate of an election the same ?schema=NAME, or drop the tables that nobody uses",
        schema_choice::shown(homes)
    );
    finding(Severity::Warning, CODE, message)
}

/// The rights that a candidate needs and this user does not have.
fn lacking(tables: &[Row]) -> Result<Vec<String>, Fault> {
    let mut lacking = Vec::new();
    for row in tables {
        let (name, right): (String, Option<String>) = (row.try_get(0)?, row.try_get(2)?);
        lacking.extend(right.map(|right| format!("{right} on {name}")));
    }
    Ok(lacking)
}

/// Nothing is decided by it, but people compare times of day.
async fn clock_difference(connection: &mut Connection) -> Result<Finding, Fault> {
    const MUCH: Duration = Duration::from_secs(30);
    let wall = || {
        #[expect(clippy::disallowed_methods, reason = "it only informs people")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default()
    };
    let (start, before) = (clock::now(), wall());
    let rows = connection.run(PROBE_CLOCK, &[], Stake::Reading).await?;
    let round_trip = clock::now().since(start);
    let row = rows.first().ok_or(Fault::Damaged("the answer about the clock"))?;
    let theirs = Duration::from_micros(u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0));
    let ours = before + round_trip / 2;
    let (difference, word) = if theirs > ours { (theirs - ours, "ahead of") } else { (ours - theirs, "behind") };
    let severity = if difference > MUCH { Severity::Warning } else { Severity::Fine };
    let message = format!(
        "the server's clock is {difference:.1?} {word} this machine's, give or take {:.1?}; no lease depends on it",
        round_trip / 2
    );
    Ok(finding(severity, "clock", message))
}

/// Behind a pooler that hands its connections around, notifications find nobody.
async fn push(connection: &mut Connection, notifier: &NotifierHandle) -> Finding {
    const CODE: &str = "push";
    const PATIENCE: Duration = Duration::from_secs(2);
    let mut rings = notifier.subscribe();
    rings.mark_unchanged();
    let start = clock::now();
    let heard = async {
        notifier.listen(connection, Channel::Everything).await.ok()?;
        notifier.notify(connection).await.ok()?;
        timeout(PATIENCE, rings.changed()).await.ok()?.ok()
    };
    let heard = heard.await;
    let took = clock::now().since(start);
    // Best effort: behind a pooler, somebody else's connection may listen now.
    let _ = connection.run_batch("UNLISTEN *", Stake::Reading).await;
    match heard {
        Some(()) => finding(Severity::Fine, CODE, format!("notifications arrive: heard one's own after {took:.1?}")),
        None => finding(
            Severity::Warning,
            CODE,
            "notifications do not arrive, probably because of a transaction pooler in between: candidates learn of a \
             release only when they look next. Name the server itself, or set push=off to listen to nothing",
        ),
    }
}

/// What a renewal costs: a durable change of one small row in one round trip.
async fn renewals(connection: &mut Connection) -> Result<Vec<Duration>, Fault> {
    let id: [u8; 16] = rand::random();
    let mut taken = Vec::with_capacity(RENEWALS);
    // The first one finds nothing in the server's caches.
    for beat in 0..=RENEWALS as u64 {
        let start = clock::now();
        connection.run(PROBE_RENEW, &[id.as_slice().into(), beat.into()], Stake::Reading).await?;
        if beat > 0 {
            taken.push(clock::now().since(start));
        }
    }
    // Also what a probe left that was killed.
    connection.run(PROBE_CLEAR, &[], Stake::Reading).await?;
    taken.sort_unstable();
    Ok(taken)
}
