//! `primacy kv`: a node of the key-value store, and what is asked of one.

mod check;
mod failures;
mod node;
mod questions;
pub(crate) mod warden;

use crate::cli::Common;
use crate::cli::kv::{KvArgs, KvCommand};
use crate::failure::Failure;
use crate::output::Output;

pub(super) fn run(args: &KvArgs, common: &Common, output: &mut Output) -> Result<u8, Failure> {
    match &args.command {
        None => node::run(args, output),
        Some(KvCommand::Check { dir }) => check::run(dir, output),
        Some(KvCommand::Status(node)) => super::runtime()?.block_on(questions::status(&node.folder(), output)),
        Some(KvCommand::Explain { group, node }) => {
            super::runtime()?.block_on(questions::explain(*group, &node.folder(), output))
        }
        Some(KvCommand::Snapshot(node)) => super::runtime()?.block_on(questions::snapshot(&node.folder(), output)),
        Some(KvCommand::Replace { name, node }) => {
            super::runtime()?.block_on(questions::replace(name, &node.folder(), common, output))
        }
    }
}
