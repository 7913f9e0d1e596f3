//! What a search needs of a node beside what it does: its state in parts, one for each replica.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use super::super::ballot::ReplicaId;
use super::super::effect::Effect;
use super::super::port::{ChunkOrder, Payload};
use super::LogNode;

impl<B: Payload> LogNode<B> {
    /// What its leader knows of that replica, and what it will answer it.
    pub fn hash_of(&self, replica: ReplicaId, state: &mut impl Hasher) {
        let is_meant = |effect: &Effect<B>| match effect {
            Effect::Send { to, .. } | Effect::SendChunk(ChunkOrder { to, .. }) => *to == replica,
            _ => false,
        };
        self.held.iter().filter(|(_, effect)| is_meant(effect)).for_each(|held| held.hash(state));
        if let Some(leader) = &self.leader {
            leader.hash_of(replica, state);
        }
    }

    /// Holds each answer once: said twice it says nothing more.
    pub fn forget_repeats(&mut self) {
        let mut held: Vec<_> = Vec::new();
        for one in self.held.drain(..) {
            if !held.contains(&one) {
                held.push(one);
            }
        }
        self.held = held;
    }

    /// All that is of no single replica, but for what only tells which grant to ask for.
    pub fn hash_beside(&self, state: &mut impl Hasher) {
        let Self {
            own: _,
            replica,
            leader,
            held: _,
            unwritten,
            is_writing,
            outbid: _,
            diverged,
            limits: _,
            planted: _,
        } = self;
        (replica, leader.is_some(), unwritten, is_writing, diverged).hash(state);
        if let Some(leader) = leader {
            leader.hash_beside(state);
        }
    }
}
