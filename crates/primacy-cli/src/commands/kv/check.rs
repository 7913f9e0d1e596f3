//! `primacy kv check`: what is in a stopped node's folder.

use std::path::Path;

use primacy_kv::server::identity::IdentityError;
use primacy_kv::server::{identity, snapshots};
use primacy_kv::wal;

use crate::cli::kv::NodeArgs;
use crate::failure::{Failure, code};
use crate::output::Output;
use crate::output::kv_schema;
use crate::output::schema::SCHEMA;

/// There is nothing that could be damaged.
fn no_node(folder: &Path) -> Failure {
    let what = if folder.is_dir() { "there is no node in this folder" } else { "there is no such folder" };
    Failure::unavailable(format!(
        "{}: {what}; give the one that the node's --dir named, or else kv-NAME in the state directory, such as {}",
        folder.display(),
        NodeArgs::default().folder().display()
    ))
}

pub(super) fn run(folder: &Path, output: &mut Output) -> Result<u8, Failure> {
    let record = match identity::read(folder) {
        Ok(Some(record)) => record,
        Ok(None) if folder.join("wal").exists() => {
            let path = folder.join("node");
            return Err(Failure::refused(format!("{} is missing, and there is a log beside it", path.display())));
        }
        Ok(None) => return Err(no_node(folder)),
        Err(IdentityError::Disk { .. }) if !folder.is_dir() => return Err(no_node(folder)),
        Err(error @ IdentityError::Damaged { .. }) => return Err(Failure::refused(error.to_string())),
        Err(error) => return Err(Failure::unavailable(error.to_string())),
    };
    let mut lines = vec![format!("node {} ({}), started {} times", record.name, record.node, record.starts)];
    match &record.founding {
        Some(founding) => lines.push(format!(
            "store {:032x} of {} groups, first kept by {}{}",
            founding.id,
            founding.groups,
            founding.names().join(", "),
            if founding.has(record.node) { "" } else { "; this node came later" },
        )),
        None => lines.push("it has not met the other nodes".to_owned()),
    }
    let mut is_sound = true;
    if record.has_replicas {
        match wal::check(&folder.join("wal")) {
            Ok(report) => {
                is_sound = report.damage.is_none();
                lines.extend(report.to_string().lines().map(|line| format!("log: {line}")));
            }
            Err(error @ wal::OpenError::InUse { .. }) => return Err(Failure::unavailable(error.to_string())),
            Err(error) => {
                is_sound = false;
                lines.push(format!("log: {error}"));
            }
        }
    }
    if record.has_replicas {
        match snapshots::check(&folder.join("snapshots")) {
            Ok(found) => lines.extend(found.iter().map(|(group, index, chunks)| {
                format!("snapshot of group {} up to entry {index}: {chunks} chunks, sound", group.0 - 1)
            })),
            Err(error) => {
                is_sound = false;
                lines.push(format!("snapshots: {error}"));
            }
        }
    }
    output.text(&format!("{}\n", lines.join("\n")))?;
    output.json(&kv_schema::KvCheck { schema: SCHEMA, is_sound, lines })?;
    Ok(if is_sound { 0 } else { code::REFUSED })
}
