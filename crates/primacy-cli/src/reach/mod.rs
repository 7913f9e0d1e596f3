//! The store, asked within bounds, and what was seen of an election.

mod ask;
mod view;

pub(crate) use ask::{Answer, Reach, aged};
pub(crate) use view::{ElectionView, PastLeaderships};
