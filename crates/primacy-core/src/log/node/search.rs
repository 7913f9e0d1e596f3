//! What a search needs of a node beside what it does: its state in parts, one for each replica.

use core::hash::{Hash, Hasher};

use super::super::ballot::ReplicaId;
use super::super::port::Payload;
use super::LogNode;

impl<B: Payload> LogNode<B> {
    /// What its leader knows of that replica.
    pub fn hash_of(&self, replica: ReplicaId, state: &mut impl Hasher) {
        if let Some(leader) = &self.leader {
            leader.hash_of(replica, state);
        }
    }

    /// All that is of no single replica, but for what only tells which grant to ask for.
    pub fn hash_beside(&self, state: &mut impl Hasher) {
        let Self { own: _, replica, leader, held, unwritten, is_writing, outbid: _, diverged, limits: _, planted: _ } =
            self;
        (replica, leader.is_some(), held, unwritten, is_writing, diverged).hash(state);
        if let Some(leader) = leader {
            leader.hash_beside(state);
        }
    }
}
