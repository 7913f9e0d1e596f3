//! What `primacy doctor` is told of a file: what it guarantees (R12), and how long a durable change takes.

use std::time::Duration;

use nix::sys::statvfs::statvfs;
use rusqlite::params;

use super::super::findings::{RENEWALS, finding, latency};
use super::super::{Finding, Probe, Severity, StoreError};
use super::connection::{Db, Durability, End};
use super::hints::HintFile;
use super::url::{FileSystem, OVERLAY};
use crate::clock;

pub(super) fn run(db: &mut Db) -> Result<Probe, StoreError> {
    let mut findings = vec![file_system(db), space(db)];
    if let Some(why) = HintFile::refusal(db.file.path()) {
        let message = format!(
            "the folder of hints beside the file is not used: {why}; waiting candidates only look now and then. Remove the folder"
        );
        findings.push(finding(Severity::Warning, "hints", message));
    }
    findings.extend(settings(db)?);
    let renewals = if db.is_read_only() {
        let message = "this user can only read the file, so that it can watch elections but not take part in them";
        findings.push(finding(Severity::Warning, "permission", message));
        Vec::new()
    } else {
        let renewals = renewals(db)?;
        findings.push(latency(&renewals));
        renewals
    };
    Ok(Probe { product: format!("SQLite {}", rusqlite::version()), renewals, findings, latencies: None })
}

fn file_system(db: &Db) -> Finding {
    let kind = FileSystem::of(db.file.path());
    const CODE: &str = "file-system";
    match (kind.is_local(), kind.name()) {
        (Err(why), _) => finding(Severity::Danger, CODE, why),
        (Ok(()), Some("tmpfs" | "ramfs")) => finding(
            Severity::Warning,
            CODE,
            "the file is in memory: after a restart of this machine tokens begin anew, and fenced resources that \
             remember higher ones refuse every leader; put it on a disk",
        ),
        (Ok(()), _) if kind.is_overlay() => finding(Severity::Warning, CODE, OVERLAY),
        (Ok(()), name) => finding(Severity::Fine, CODE, format!("on {}, a local file system", name.unwrap_or("disk"))),
    }
}

fn space(db: &Db) -> Finding {
    /// The log grows to about 4 MB before it is folded back.
    const ENOUGH: u64 = 64 << 20;
    const CODE: &str = "space";
    match statvfs(db.file.path()) {
        Ok(stat) => {
            let free = stat.blocks_available().saturating_mul(stat.fragment_size());
            let severity = if free < ENOUGH { Severity::Warning } else { Severity::Fine };
            finding(severity, CODE, format!("{} MB of disk are free", free >> 20))
        }
        Err(error) => finding(Severity::Warning, CODE, format!("the free space cannot be read: {error}")),
    }
}

fn settings(db: &mut Db) -> Result<Vec<Finding>, StoreError> {
    let read_only = db.is_read_only();
    db.read(|conn| {
        let text = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, String>(0));
        let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let mut findings = Vec::new();
        findings.push(match text("journal_mode")?.as_str() {
            "wal" => {
                finding(Severity::Fine, "journal", "write-ahead log: looking and renewing do not block each other")
            }
            other => finding(
                Severity::Warning,
                "journal",
                format!("the journal mode is '{other}', changed by another program; the next candidate makes it 'wal'"),
            ),
        });
        findings.push(match number("synchronous")? {
            2.. => finding(Severity::Fine, "durability", "every grant, renewal and release is flushed to disk"),
            _ if read_only => finding(Severity::Fine, "durability", "candidates flush to disk; this user only reads"),
            _ => finding(Severity::Danger, "durability", "SQLite does not flush to disk: a power cut can lose a grant"),
        });
        findings.push(match text("quick_check")?.as_str() {
            "ok" => finding(Severity::Fine, "integrity", "the file is sound"),
            problem => finding(
                Severity::Danger,
                "integrity",
                format!(
                    "the file is damaged ({}); stop all candidates and move it away",
                    primacy_core::ids::escape(problem)
                ),
            ),
        });
        Ok(findings)
    })
}

/// What a renewal costs: a durable change of one small row in a transaction of its own.
fn renewals(db: &mut Db) -> Result<Vec<Duration>, StoreError> {
    let id: [u8; 16] = rand::random();
    let clean_up = |db: &mut Db| {
        // Also what a probe left that was killed.
        db.write(Durability::Full, |conn| Ok(End::Commit(conn.execute("DELETE FROM primacy_probe", [])?)))
    };
    db.write(Durability::Full, |conn| {
        Ok(End::Commit(conn.execute("INSERT INTO primacy_probe (id, beat) VALUES (?1, 0)", [id])?))
    })?;
    let mut taken = Vec::with_capacity(RENEWALS);
    for beat in 0..RENEWALS as i64 {
        let start = clock::now();
        let step = db.write(Durability::Full, |conn| {
            let mut statement = conn.prepare_cached("UPDATE primacy_probe SET beat = ?2 WHERE id = ?1")?;
            Ok(End::Commit(statement.execute(params![id, beat + 1])?))
        });
        match step {
            Ok(_) => taken.push(clock::now().since(start)),
            Err(error) => {
                clean_up(db)?;
                return Err(error);
            }
        }
    }
    clean_up(db)?;
    taken.sort_unstable();
    Ok(taken)
}
