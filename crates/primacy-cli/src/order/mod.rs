//! Orders of operators into an election's record, and what comes of them: the same for commands and over HTTP.

pub(crate) mod handover;
mod operator_order;
mod outcome;
pub(crate) mod pause;
mod refusals;

pub(crate) use operator_order::OperatorOrder;
pub(crate) use refusals::no_such_election;
