//! What `primacy doctor` is told of a server: what it guarantees (R12), and how long a durable change takes.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::ids::escape;

use super::super::findings::{RENEWALS, finding, latency};
use super::super::history::unix_ms;
use super::super::{Finding, Probe, Severity, StoreError};
use super::connection::Connection;
use super::errors::Fault;
use super::packet::{Packet, bytes};
use super::schema;
use crate::clock;

pub(super) async fn run(connection: &mut Connection) -> Result<Probe, StoreError> {
    let settings = Settings::read(connection).await?;
    let refuses = settings.is("log_bin", "ON") && settings.is("binlog_format", "STATEMENT");
    let (has_registers, outdated) = match schema::has_registers(connection).await {
        Ok(has_registers) => (has_registers, None),
        Err(StoreError::Unusable(message)) => (false, Some(finding(Severity::Warning, "registers", message))),
        Err(error) => return Err(error),
    };
    let missing = if refuses { Vec::new() } else { missing_rights(connection, has_registers).await? };
    let mut findings = vec![engine(connection).await?];
    findings.extend(outdated);
    findings.extend(durability(&settings, connection.server.is_galera));
    findings.extend(galera(&settings, connection.server.is_galera));
    findings.extend(replication(&settings, dump_threads(connection).await?));
    findings.push(connections(&settings));
    findings.push(difference(connection).await?);
    findings.push(transport(&settings, connection));
    findings.push(procedure(connection).await?);
    if has_registers && missing.is_empty() {
        findings.extend(beats(connection, &settings).await?);
    }
    let mut taken = Vec::new();
    if refuses {
        let message = "the binary log is in STATEMENT format, in which the server refuses what primacy writes: set \
                       binlog_format to ROW or MIXED";
        findings.push(finding(Severity::Danger, "binary-log", message));
    } else if !missing.is_empty() {
        let message = format!(
            "this user has no right to {}; it can watch elections but not take part in them. `primacy schema` prints \
             the SQL for an administrator",
            missing.join(", ")
        );
        findings.push(finding(Severity::Warning, "permission", message));
    } else {
        taken = renewals(connection).await?;
        findings.push(latency(&taken));
    }
    Ok(Probe { product: connection.server.version.clone(), renewals: taken, findings, latencies: None })
}

/// Variables and counters of the server, as far as it has them.
struct Settings(BTreeMap<String, String>);

impl Settings {
    async fn read(connection: &mut Connection) -> Result<Self, StoreError> {
        let packet = Packet::of(&[
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', \
             'binlog_format', 'innodb_doublewrite', 'max_connections', 'wsrep_provider_options', \
             'rpl_semi_sync_master_timeout', 'rpl_semi_sync_source_timeout')"
                .to_owned(),
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Slaves_connected', 'Slaves_running', \
             'Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status', 'Rpl_semi_sync_master_clients', \
             'Rpl_semi_sync_source_clients', 'wsrep_cluster_size')"
                .to_owned(),
            "SHOW SESSION STATUS WHERE Variable_name = 'Ssl_cipher'".to_owned(),
        ]);
        let mut settings = BTreeMap::new();
        for row in connection.run(&packet).await?.iter().flat_map(|answer| &answer.rows) {
            let mut row = row.clone();
            let (name, value) = (row.text()?.to_ascii_lowercase(), row.text()?);
            settings.insert(name, value);
        }
        Ok(Self(settings))
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.text(name).eq_ignore_ascii_case(value)
    }

    fn number(&self, names: &[&str]) -> u64 {
        names.iter().find_map(|name| self.0.get(*name)?.parse().ok()).unwrap_or(0)
    }
}

async fn engine(connection: &mut Connection) -> Result<Finding, StoreError> {
    let question = "SELECT COALESCE(GROUP_CONCAT(CONCAT(table_name, ' is ', COALESCE(engine, 'a view')) SEPARATOR ', '), '') \
                    FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN \
                    ('primacy_schema', 'primacy_election', 'primacy_token', 'primacy_candidate', 'primacy_term', \
                     'primacy_registers', 'primacy_round', 'primacy_process', 'primacy_member', 'primacy_event') \
                    AND COALESCE(engine, '') <> 'InnoDB'";
    let others = text(connection, question).await?;
    // As far as this user is shown them. A view would have been found above.
    let question = "SELECT COALESCE(GROUP_CONCAT(CONCAT(trigger_name, ' on ', event_object_table) SEPARATOR ', '), '') \
                    FROM information_schema.triggers WHERE event_object_schema = DATABASE() \
                    AND LEFT(event_object_table, 8) = 'primacy_'";
    let triggers = text(connection, question).await?;
    Ok(if !triggers.is_empty() {
        let message = format!(
            "somebody else's code runs with each change of the tables, and may change what a candidate writes: the trigger \
             {}. Drop it, and grant TRIGGER to administrators only",
            escape(&triggers)
        );
        finding(Severity::Danger, "engine", message)
    } else if others.is_empty() {
        finding(Severity::Fine, "engine", "all tables are InnoDB: changes are atomic")
    } else {
        let message = format!("not all tables are InnoDB, so that changes are not atomic: {}", escape(&others));
        finding(Severity::Danger, "engine", message)
    })
}

fn durability(settings: &Settings, is_galera: bool) -> Vec<Finding> {
    const CODE: &str = "durability";
    let mut findings = Vec::new();
    let flush = settings.text("innodb_flush_log_at_trx_commit");
    let synced = settings.text("sync_binlog");
    let logs = settings.is("log_bin", "ON");
    if !matches!(flush, "1" | "3") {
        // The other nodes have what one has lost, unless all are lost at once.
        let severity = if is_galera { Severity::Warning } else { Severity::Danger };
        let lost = if is_galera { "all nodes at once" } else { "the server" };
        let message = format!(
            "innodb_flush_log_at_trx_commit is {}: when power fails for {lost}, a grant that was answered can be lost, \
             two may lead for a lease, and a token can be granted twice. Set it to 1",
            escape(flush)
        );
        findings.push(finding(severity, CODE, message));
    }
    if logs && synced != "1" {
        let severity = if is_galera { Severity::Warning } else { Severity::Danger };
        let message = format!(
            "sync_binlog is {}: when power fails, what is not yet in the binary log is undone, also a grant that was \
             answered. Set it to 1",
            escape(synced)
        );
        findings.push(finding(severity, CODE, message));
    }
    if settings.is("innodb_doublewrite", "OFF") || settings.is("innodb_doublewrite", "0") {
        let message = "innodb_doublewrite is off: a power cut in the middle of a page can damage the tables, unless the \
                       file system writes pages whole";
        findings.push(finding(Severity::Warning, CODE, message));
    }
    if findings.is_empty() {
        findings.push(finding(Severity::Fine, CODE, "every grant, renewal and release is flushed to disk"));
    }
    findings
}

fn galera(settings: &Settings, is_galera: bool) -> Option<Finding> {
    const CODE: &str = "galera";
    if !is_galera {
        return None;
    }
    let options = settings.text("wsrep_provider_options").replace(' ', "").to_ascii_lowercase();
    let ignored: Vec<&str> = ["pc.ignore_sb", "pc.ignore_quorum"]
        .into_iter()
        .filter(|name| options.contains(&format!("{name}=true")))
        .collect();
    if !ignored.is_empty() {
        let message = format!(
            "{} is set in wsrep_provider_options: both halves of a split cluster take writes, and each elects a leader",
            ignored.join(" and ")
        );
        return Some(finding(Severity::Danger, CODE, message));
    }
    let size = settings.number(&["wsrep_cluster_size"]);
    Some(match size {
        0 | 1 => finding(Severity::Warning, CODE, "a cluster of one node: nothing takes over when it fails"),
        2 => finding(
            Severity::Warning,
            CODE,
            "a cluster of two nodes: when one fails or the network between them does, the other stops too. Add a third, \
             or an arbitrator (garbd)",
        ),
        _ => finding(
            Severity::Fine,
            CODE,
            format!(
                "a cluster of {size} nodes; each session waits for what the cluster has committed (wsrep_sync_wait)"
            ),
        ),
    })
}

fn replication(settings: &Settings, dump_threads: u64) -> Vec<Finding> {
    const CODE: &str = "replication";
    let mut findings = Vec::new();
    let semi_sync =
        settings.is("rpl_semi_sync_master_status", "ON") || settings.is("rpl_semi_sync_source_status", "ON");
    let acknowledge = settings.number(&["rpl_semi_sync_master_clients", "rpl_semi_sync_source_clients"]);
    let replicas = settings.number(&["slaves_connected"]).max(dump_threads);
    if replicas > 0 && semi_sync && acknowledge > 0 {
        let patience = settings.number(&["rpl_semi_sync_master_timeout", "rpl_semi_sync_source_timeout"]);
        let message = format!(
            "{replicas} replicas, {acknowledge} of them semi-synchronous: a failover to one that acknowledged loses \
             nothing. But after {patience} ms without an acknowledgement the server goes on without it; then a failover \
             can lose grants, two may lead for a lease, and tokens can be granted twice. Make the timeout long"
        );
        findings.push(finding(Severity::Warning, CODE, message));
    } else if replicas > 0 {
        let message = format!(
            "{replicas} asynchronous replicas: if one is promoted, the last commits may be missing there. Then two may \
             lead for a lease, and tokens can be granted twice, which no fence can tell apart. Use semi-synchronous \
             replication or Galera, or let one lease pass after a failover and raise the tokens in primacy_token"
        );
        findings.push(finding(Severity::Warning, CODE, message));
    }
    if settings.number(&["slaves_running"]) > 0 {
        let message = "this server is a replica that takes writes: candidates that use its source do not see what is \
                       granted here. Make it read_only, and name the source";
        findings.push(finding(Severity::Danger, CODE, message));
    }
    if findings.is_empty() {
        findings.push(finding(Severity::Fine, CODE, "no asynchronous replica that could be promoted"));
    }
    findings
}

/// Replicas that read the binary log, as far as this user is shown other connections.
async fn dump_threads(connection: &mut Connection) -> Result<u64, StoreError> {
    let question = "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    Ok(text(connection, question).await?.parse().unwrap_or(0))
}

fn connections(settings: &Settings) -> Finding {
    let (used, most) = (settings.number(&["threads_connected"]), settings.number(&["max_connections"]));
    let message = format!("{used} of {most} connections are in use; each candidate needs two, and a leader a third");
    let severity = if used * 5 > most * 4 { Severity::Warning } else { Severity::Fine };
    finding(severity, "connections", message)
}

/// No grant depends on the server's clock; the ages that people are shown do.
async fn difference(connection: &mut Connection) -> Result<Finding, StoreError> {
    const SMALL_MS: u64 = 2_000;
    let (start, before) = (clock::now(), unix_ms());
    let theirs = text(connection, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000").await?;
    let half = clock::now().since(start) / 2;
    let theirs: i64 = theirs.parse().map_err(|_| Fault::damaged("a number"))?;
    let ours = before.saturating_add(i64::try_from(half.as_millis()).unwrap_or(0));
    let difference = theirs.saturating_sub(ours);
    let (severity, what) = match difference.unsigned_abs() {
        0..=SMALL_MS => (Severity::Fine, "which nobody notices"),
        _ => (Severity::Warning, "so that times in the history confuse; leases are not affected"),
    };
    let message = format!("the server's clock differs by {difference} ms from the one here, {what}");
    Ok(finding(severity, "clock", message))
}

fn transport(settings: &Settings, connection: &Connection) -> Finding {
    const CODE: &str = "transport";
    match settings.text("ssl_cipher") {
        "" if connection.is_here() => finding(Severity::Fine, CODE, "not encrypted, within this host"),
        "" => finding(
            Severity::Warning,
            CODE,
            "not encrypted, as the URL asks: anyone on the way can read the password's proof and write into the row",
        ),
        cipher => finding(Severity::Fine, CODE, format!("encrypted ({}), the server's name verified", escape(cipher))),
    }
}

async fn procedure(connection: &mut Connection) -> Result<Finding, StoreError> {
    let question = "SELECT COALESCE(MAX(security_type), '') FROM information_schema.routines \
                    WHERE routine_schema = DATABASE() AND routine_name = 'primacy_fence'";
    let (severity, message) = match text(connection, question).await?.as_str() {
        "" => (
            Severity::Fine,
            "the procedure primacy_fence, for programs in other languages, is not there or not for this user; \
             `primacy schema` prints it",
        ),
        "INVOKER" => (Severity::Fine, "the procedure primacy_fence is there, for programs in other languages"),
        _ => (
            Severity::Danger,
            "the procedure primacy_fence is not the one that `primacy schema` prints, which is SQL SECURITY INVOKER: \
             somebody has put another in its place. Print and run it again, and grant CREATE ROUTINE and ALTER ROUTINE to \
             administrators only",
        ),
    };
    Ok(finding(severity, "fence", message))
}

/// What the beats of the `registers` protocol cost. They need not be durable, but how a commit is flushed is one setting
/// for the whole server, and grants need it.
async fn beats(connection: &mut Connection, settings: &Settings) -> Result<Option<Finding>, StoreError> {
    let question = "SELECT CONCAT(COUNT(*), ' ', CAST(COALESCE(SUM(86400e9 / v.round_ns), 0) AS UNSIGNED)) \
                    FROM primacy_process AS p JOIN primacy_round AS v ON v.election = p.election";
    let told = text(connection, question).await?;
    let counts = told.split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let (processes, a_day) = counts.ok_or_else(|| Fault::damaged("an answer"))?;
    Ok(told_beats(processes, a_day, settings))
}

fn told_beats(processes: u64, a_day: u64, settings: &Settings) -> Option<Finding> {
    const CODE: &str = "beats";
    /// What one adds to the binary log with the settings of a new MariaDB, measured with short names.
    const LOGGED: u64 = 600;
    const MUCH_GB: u64 = 5;
    if processes == 0 {
        return None;
    }
    let rate = a_day as f64 / 86_400.0;
    let message = format!(
        "{processes} processes beat, together {rate:.1} times a second. Each beat is a commit and flushed like a grant; \
         those that come together share a flush. Leave innodb_flush_log_at_trx_commit at 1 all the same: it is one for \
         the whole server"
    );
    let logged_gb = a_day.saturating_mul(LOGGED) / 1_000_000_000;
    if settings.is("log_bin", "ON") && logged_gb >= MUCH_GB {
        let message = format!(
            "{message}. The binary log grows by about {logged_gb} GB a day from them: let rounds be longer, or set \
             binlog_row_image to MINIMAL and, on MariaDB, binlog_annotate_row_events to OFF"
        );
        return Some(finding(Severity::Warning, CODE, message));
    }
    Some(finding(Severity::Fine, CODE, message))
}

/// What candidates need and this user may not do. Each question touches no row.
async fn missing_rights(connection: &mut Connection, has_registers: bool) -> Result<Vec<String>, StoreError> {
    let mut missing = Vec::new();
    let registers = schema::REGISTERS_RIGHTS.into_iter().filter(|_| has_registers);
    for (table, column, deletes) in schema::ELECTION_RIGHTS.into_iter().chain(registers) {
        for (right, question) in schema::questions(deletes, table, column) {
            match connection.run(&Packet::read(question)).await {
                Ok(_) => {}
                Err(_) if connection.is_sound() => missing.push(format!("{right} {table}")),
                Err(fault) => return Err(fault.into()),
            }
        }
    }
    Ok(missing)
}

/// What a renewal costs: a durable change of one small row by a statement that commits by itself.
async fn renewals(connection: &mut Connection) -> Result<Vec<Duration>, StoreError> {
    let key = bytes(&rand::random::<[u8; 16]>());
    connection.run(&Packet::single(format!("INSERT INTO primacy_probe (id, beat) VALUES ({key}, 0)"))).await?;
    let beat = Packet::single(format!("UPDATE primacy_probe SET beat = beat + 1 WHERE id = {key}"));
    let mut taken = Vec::with_capacity(RENEWALS);
    let mut failure = None;
    for _ in 0..RENEWALS {
        let start = clock::now();
        match connection.run(&beat).await {
            Ok(_) => taken.push(clock::now().since(start)),
            Err(fault) => {
                failure = Some(fault);
                break;
            }
        }
    }
    let cleaned = connection.run(&Packet::single(format!("DELETE FROM primacy_probe WHERE id = {key}"))).await;
    match failure {
        Some(fault) => Err(fault.into()),
        None => {
            cleaned?;
            taken.sort_unstable();
            Ok(taken)
        }
    }
}

async fn text(connection: &mut Connection, question: &str) -> Result<String, StoreError> {
    let answers = connection.run(&Packet::read(question.to_owned())).await?;
    let row = answers.into_iter().next().and_then(|answer| answer.rows.into_iter().next());
    let mut row = row.ok_or_else(|| Fault::damaged("an answer"))?;
    Ok(row.text()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        Settings(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn worst(findings: impl IntoIterator<Item = Finding>) -> Severity {
        findings.into_iter().map(|finding| finding.severity).max().unwrap_or(Severity::Fine)
    }

    #[test]
    fn what_can_lose_a_grant_is_a_danger() {
        let rate = |flush, log, sync| {
            let settings =
                settings(&[("innodb_flush_log_at_trx_commit", flush), ("log_bin", log), ("sync_binlog", sync)]);
            (worst(durability(&settings, false)), worst(durability(&settings, true)))
        };
        use Severity::{Danger, Fine, Warning};
        assert_eq!(rate("1", "OFF", "0"), (Fine, Fine));
        assert_eq!(rate("1", "ON", "1"), (Fine, Fine));
        assert_eq!(rate("1", "ON", "0"), (Danger, Warning));
        assert_eq!(rate("2", "OFF", "1"), (Danger, Warning));
        assert_eq!(rate("0", "OFF", "1"), (Danger, Warning));
        assert_eq!(rate("3", "OFF", "1"), (Fine, Fine));
    }

    #[test]
    fn replicas_that_may_be_promoted_are_told() {
        let told = |pairs: &[(&str, &str)], threads| replication(&settings(pairs), threads).remove(0);
        assert_eq!(told(&[], 0).severity, Severity::Fine);
        assert!(told(&[("slaves_connected", "1")], 0).message.contains("asynchronous"));
        assert!(told(&[], 2).message.contains("asynchronous"));
        let semi = [("rpl_semi_sync_master_status", "ON"), ("rpl_semi_sync_master_clients", "1")];
        assert!(told(&semi, 1).message.contains("semi-synchronous"));
        assert_eq!(told(&[("slaves_running", "1")], 0).severity, Severity::Danger);
    }

    #[test]
    fn a_binary_log_that_beats_fill_is_told() {
        let rate = |processes, round_s: u64, logs| {
            let a_day = processes * 86_400 / round_s;
            told_beats(processes, a_day, &settings(&[("log_bin", logs)])).map(|finding| finding.severity)
        };
        assert_eq!(rate(0, 2, "ON"), None);
        assert_eq!(rate(20, 2, "ON"), Some(Severity::Fine));
        assert_eq!(rate(800, 2, "OFF"), Some(Severity::Fine));
        assert_eq!(rate(800, 2, "ON"), Some(Severity::Warning));
    }

    #[test]
    fn a_cluster_without_a_majority_is_told() {
        let rate = |size, options: &str| {
            galera(&settings(&[("wsrep_cluster_size", size), ("wsrep_provider_options", options)]), true)
                .map(|finding| finding.severity)
        };
        assert_eq!(rate("3", "pc.ignore_quorum = false; pc.ignore_sb = false"), Some(Severity::Fine));
        assert_eq!(rate("2", ""), Some(Severity::Warning));
        assert_eq!(rate("1", ""), Some(Severity::Warning));
        assert_eq!(rate("3", "pc.ignore_sb = true; x = 1"), Some(Severity::Danger));
        assert_eq!(galera(&settings(&[]), false), None);
    }
}
