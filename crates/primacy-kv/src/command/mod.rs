//! What a client asks for, as checked types: from the arguments of a request, by one list of all commands.

mod arguments;
mod connection;
mod error;
mod keys;
mod operation;
mod specification;
mod strings;
mod transaction;

pub use arguments::Limits;
pub use connection::{ClientCommand, ClientFilter, CommandQuery, ConnectionCommand, Credentials, Hello};
pub use error::CommandError;
pub use keys::{KeyspaceCommand, ScanFilter};
pub(crate) use operation::entry_size;
pub use operation::{
    Condition, ExpireCondition, Expiry, Key, Operation, Part, Placement, Precision, Set, SetAnswer, Value,
};
pub use specification::{COMMANDS, Flag, KeyPositions, Specification, describe};
pub use transaction::TransactionCommand;

/// One command of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Reads or writes keys that it names, or removes all.
    Operation(Operation),
    /// Reads all keys, group by group. It cannot be part of a transaction.
    Keyspace(KeyspaceCommand),
    /// Begins, ends or guards a transaction.
    Transaction(TransactionCommand),
    /// Concerns the connection, or the node at its other end.
    Connection(ConnectionCommand),
}

impl Command {
    /// Reads the arguments of a request, the name of the command first.
    pub fn parse(arguments: &[&[u8]], limits: &Limits) -> Result<Self, CommandError> {
        specification::parse(arguments, limits)
    }
}

#[cfg(test)]
mod tests;
