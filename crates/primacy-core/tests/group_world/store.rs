//! A store of registers, and the lease that says who may scan them.

use primacy_core::lease::{Holder, Record, Sighting, Standing, Version};
use primacy_core::registers::{Reply, Request, Table, Vars};
use primacy_core::{CandidateId, Instant, Label, Token};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Registers {
    table: Table,
    lease: Option<Record>,
}

impl Registers {
    pub(crate) fn vars(&self) -> Vars {
        *self.table.vars().expect("somebody has joined")
    }

    pub(crate) fn lead(&mut self, holder: CandidateId, token: Token) {
        let label = Label::new("the leader").expect("valid");
        self.lease = Some(Record {
            version: Version { token, beat: 1 },
            holder: Some(Holder { id: holder, label, data: String::new() }),
            lease: Duration::from_secs(4),
            order_number: 0,
            handover: None,
            paused: false,
        });
    }

    pub(crate) fn processes(&self) -> Vec<u128> {
        self.table.members().map(|member| member.descriptor.process.to_bits()).collect()
    }

    pub(crate) fn step(&mut self, request: &Request, now: Instant) -> Reply {
        let sighting = Sighting {
            record: self.lease.clone(),
            remembered: self.lease.as_ref().map_or(Token::NONE, |record| record.version.token),
            age: None,
            holder_gone: false,
            standing: Standing::default(),
        };
        let mut reply = self.table.step(request, sighting, now, &mut Vec::new());
        if let Reply::Beaten { sighting, .. } | Reply::Evicted { sighting, .. } = &mut reply {
            // Nobody is shown who leads: candidates ask for the lease whenever it is their turn.
            (sighting.record, sighting.remembered) = (None, Token::NONE);
        }
        reply
    }
}
