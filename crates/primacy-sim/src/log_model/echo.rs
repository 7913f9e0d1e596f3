//! What follows at once if a message arrives: remembered, since the same is asked in many states.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use primacy_core::log::Effect;

use super::alike::rename;
use super::ids::{index_of, replica_id};
use super::world::{Packet, World};
use crate::search::Prints;

/// What is sent, or `None` if something changes where the message arrives.
type Echoes = Option<Vec<Packet>>;

thread_local! {
    static REMEMBERED: RefCell<BTreeMap<u128, Echoes>> = RefCell::default();
}

/// This many are remembered.
const MOST: usize = 1 << 19;

impl World {
    /// Does something with what follows at once if this message arrives. The prints of the processes must be noted.
    pub(super) fn echoes<T>(&self, packet: &Packet, does: impl FnOnce(Option<&Vec<Packet>>) -> T) -> T {
        let mut print = Prints::new(|name| name);
        (self.alike.salt, packet.from, packet.to).hash(&mut print);
        print.write_u128(packet.print);
        self.posts[usize::from(packet.to)].prints.iter().for_each(|part| print.write_u128(*part));
        let key = print.print();
        REMEMBERED.with_borrow_mut(|remembered| {
            if remembered.len() > MOST {
                remembered.clear();
            }
            does(remembered.entry(key).or_insert_with(|| self.echo(packet)).as_ref())
        })
    }

    fn echo(&self, packet: &Packet) -> Echoes {
        let target = &self.posts[usize::from(packet.to)].node;
        let mut node = target.clone();
        let mut out = Vec::new();
        node.receive(replica_id(packet.from), (*packet.message).clone(), &mut out);
        node.forget_repeats();
        if node != *target {
            return None;
        }
        let sent = |effect| match effect {
            Effect::Send { to, message } => {
                let mut print = Prints::new(rename(&self.alike.kinds));
                message.hash(&mut print);
                let (from, to, print) = (packet.to, index_of(to), print.print());
                Some(Packet { from, to, print, message: Arc::new(message), is_idle: false, is_new: true })
            }
            // A chunk is sent again.
            _ => None,
        };
        out.into_iter().map(sent).collect()
    }
}
