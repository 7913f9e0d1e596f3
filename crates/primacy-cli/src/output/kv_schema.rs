//! What `primacy kv` and its subcommands print as JSON.
#![cfg(feature = "kv")]

use primacy_kv::server::control::{GroupStatus, NodeStatus};
use serde::Serialize;

/// One line of `primacy kv --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Serving {
    pub(crate) schema: u32,
    pub(crate) at_unix_ms: i64,
    pub(crate) event: &'static str,
    pub(crate) text: String,
    pub(crate) node: String,
    pub(crate) serves: String,
    pub(crate) dir: String,
}

/// `primacy kv status --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KvStatus {
    pub(crate) schema: u32,
    #[serde(flatten)]
    pub(crate) node: NodeStatus,
}

/// `primacy kv explain --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KvGroup {
    pub(crate) schema: u32,
    #[serde(flatten)]
    pub(crate) group: GroupStatus,
    pub(crate) text: String,
}

/// `primacy kv snapshot` and `replace` with `--json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KvDone {
    pub(crate) schema: u32,
    pub(crate) text: String,
}

/// `primacy kv check --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KvCheck {
    pub(crate) schema: u32,
    pub(crate) is_sound: bool,
    pub(crate) lines: Vec<String>,
}
