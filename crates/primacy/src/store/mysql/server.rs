//! What answers at the other end: which product, and whether it may be written and is no straggler.

use super::super::StoreError;
use super::answer::Answer;
use super::errors::Fault;

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

/// How many statements [`ask_server`] makes.
pub(super) const ASKED: usize = 2;

pub(super) fn ask_server() -> [String; ASKED] {
    [
        "SHOW VARIABLES WHERE Variable_name IN \
         ('version', 'version_comment', 'read_only', 'innodb_read_only', 'wsrep_on', 'wsrep_provider')"
            .into(),
        "SHOW STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status')".into(),
    ]
}

impl Server {
    pub(super) fn from_answers(answers: &[Answer]) -> Result<Self, Fault> {
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
    pub(super) fn refuse_if_unfit(&self, host: &str) -> Result<(), StoreError> {
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
