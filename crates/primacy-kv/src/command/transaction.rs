//! Commands that begin, end and guard transactions. What is between them, and what is watched, a connection keeps.

use alloc::vec::Vec;

use super::Command;
use super::arguments::Arguments;
use super::error::CommandError;
use super::operation::Key;

/// A command about transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionCommand {
    /// `MULTI`.
    Begin,
    /// `EXEC`.
    Execute,
    /// `DISCARD`.
    Discard,
    /// `WATCH`.
    Watch(Vec<Key>),
    /// `UNWATCH`.
    Unwatch,
}

pub(super) fn begin(_: &mut Arguments<'_>) -> Result<Command, CommandError> {
    Ok(Command::Transaction(TransactionCommand::Begin))
}

pub(super) fn execute(_: &mut Arguments<'_>) -> Result<Command, CommandError> {
    Ok(Command::Transaction(TransactionCommand::Execute))
}

pub(super) fn discard(_: &mut Arguments<'_>) -> Result<Command, CommandError> {
    Ok(Command::Transaction(TransactionCommand::Discard))
}

pub(super) fn watch(arguments: &mut Arguments<'_>) -> Result<Command, CommandError> {
    Ok(Command::Transaction(TransactionCommand::Watch(arguments.all(Arguments::key)?)))
}

pub(super) fn unwatch(_: &mut Arguments<'_>) -> Result<Command, CommandError> {
    Ok(Command::Transaction(TransactionCommand::Unwatch))
}
