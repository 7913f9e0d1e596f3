//! Orders of operators into an election's record, and what comes of them: the same for commands, over HTTP and over an
//! agent's socket.

pub(crate) mod handover;
mod operator_order;
mod outcome;
pub(crate) mod pause;
mod refusals;
mod remote_order;

pub(crate) use operator_order::OperatorOrder;
pub(crate) use refusals::no_such_election;
pub(crate) use remote_order::RemoteOrder;
