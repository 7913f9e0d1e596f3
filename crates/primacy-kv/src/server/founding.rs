//! How nodes come to keep groups together: once, by the word of the one with the least name, when all others have promised to take no
//! other word. No I/O.
//!
//! It is not enough that all were told of the same names: behind a name there may be a node that has lost its disk. So the nodes'
//! identities are written down, once. The decider asks for a *pledge* of each other node. Who pledges itself takes a founding from that
//! decider alone from then on, unless it restarts; who has a founding tells it and pledges nothing. So if a decider dies after it has told
//! somebody, and another one with its name begins anew, that one is told of the founding, or nobody ever acts on it.

use std::collections::BTreeMap;

use primacy_core::log::ReplicaId;

use super::fields::{replica, text};
use crate::wire::{Malformed, Reader, put_bytes, put_number};

/// Which nodes keep the groups first, and what all of them have to agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founding {
    /// Random: which store it is.
    pub id: u128,
    /// The seed of the tables.
    pub seed: [u8; 16],
    /// How many groups there are. That never changes.
    pub groups: u16,
    /// The first nodes, by name.
    pub members: Vec<(String, ReplicaId)>,
}

impl Founding {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_le_bytes());
        out.extend(self.seed);
        put_number(out, u64::from(self.groups));
        put_number(out, self.members.len() as u64);
        for (name, id) in &self.members {
            put_bytes(out, name.as_bytes());
            out.extend(id.to_bits().to_le_bytes());
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let founding = Self {
            id: u128::from_le_bytes(reader.array()?),
            seed: reader.array()?,
            groups: u16::try_from(reader.number()?).map_err(|_| Malformed("too many groups"))?,
            members: reader.list(|reader| Ok((text(reader)?, replica(reader)?)))?,
        };
        let names = founding.names();
        if founding.groups == 0 || names.is_empty() || !names.is_sorted_by(|one, next| one < next) {
            return Err(Malformed("no founding"));
        }
        Ok(founding)
    }

    /// The names of the first nodes, in order.
    pub fn names(&self) -> Vec<&str> {
        self.members.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Whether this node is one of the first.
    pub fn has(&self, node: ReplicaId) -> bool {
        self.members.iter().any(|(_, id)| *id == node)
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Tell that node that this one takes no other decider's word.
    Pledge { to: String },
    /// Keep this on the disk, and call [`Founder::kept`] then.
    Keep(Founding),
}

/// A node that has no founding yet.
#[derive(Debug)]
pub(super) struct Founder {
    own: (String, ReplicaId),
    /// All nodes, in order, as this one was told.
    names: Vec<String>,
    groups: u16,
    founding: Option<Founding>,
    /// The decider that it has pledged itself to.
    pledged: Option<ReplicaId>,
    /// Of a decider: who has pledged itself to it.
    pledges: BTreeMap<String, ReplicaId>,
}

impl Founder {
    pub(super) fn new(own: (String, ReplicaId), mut names: Vec<String>, groups: u16, kept: Option<Founding>) -> Self {
        names.sort_unstable();
        Self { own, names, groups, founding: kept, pledged: None, pledges: BTreeMap::new() }
    }

    pub(super) const fn founding(&self) -> Option<&Founding> {
        self.founding.as_ref()
    }

    /// All nodes, as this one was told.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    fn decides(&self) -> bool {
        self.names.first() == Some(&self.own.0)
    }

    /// Those of whom the decider has no pledge.
    pub(super) fn missing(&self) -> Vec<&str> {
        let others = self.names.iter().filter(|name| **name != self.own.0);
        others.filter(|name| !self.pledges.contains_key(*name)).map(String::as_str).collect()
    }

    /// Alone it needs nobody's word.
    pub(super) fn begin(&self, draw: impl FnOnce() -> (u128, [u8; 16])) -> Option<Step> {
        self.decide(draw)
    }

    /// A node with this name and identity has come, was told of these nodes, and has this founding.
    pub(super) fn met(
        &mut self,
        name: &str,
        node: ReplicaId,
        names: &[String],
        told: Option<Founding>,
    ) -> Option<Step> {
        if self.founding.is_some() {
            return None;
        }
        // What it had promised as another one counts for nothing.
        if self.pledges.get(name).is_some_and(|known| *known != node) {
            self.pledges.remove(name);
        }
        if let Some(told) = told {
            return self.told(node, told);
        }
        let is_decider = self.names.first().is_some_and(|decider| decider == name);
        if !is_decider || names != self.names {
            return None;
        }
        self.pledged = Some(node);
        Some(Step::Pledge { to: name.to_owned() })
    }

    /// That node tells of a founding.
    pub(super) fn told(&mut self, by: ReplicaId, told: Founding) -> Option<Step> {
        let is_new = self.founding.is_none();
        // A decider's word is its word, also if another node passes it on.
        let said_by = told.members.first().map(|(_, id)| *id);
        let is_free = self.pledged.is_none_or(|decider| decider == by || Some(decider) == said_by);
        (is_new && is_free && told.names() == self.names).then_some(Step::Keep(told))
    }

    /// That node has pledged itself to this one.
    pub(super) fn pledged(
        &mut self,
        name: &str,
        node: ReplicaId,
        draw: impl FnOnce() -> (u128, [u8; 16]),
    ) -> Option<Step> {
        if self.founding.is_some() || !self.decides() {
            return None;
        }
        self.pledges.insert(name.to_owned(), node);
        self.decide(draw)
    }

    /// The connection to that node has ended: whether it comes back as the same one is not known.
    pub(super) fn parted(&mut self, name: &str) {
        self.pledges.remove(name);
    }

    fn decide(&self, draw: impl FnOnce() -> (u128, [u8; 16])) -> Option<Step> {
        if self.founding.is_some() || !self.decides() || !self.missing().is_empty() {
            return None;
        }
        let member = |name: &String| {
            let id = if *name == self.own.0 { self.own.1 } else { *self.pledges.get(name)? };
            Some((name.clone(), id))
        };
        let (id, seed) = draw();
        let members = self.names.iter().map(member).collect::<Option<_>>()?;
        Some(Step::Keep(Founding { id, seed, groups: self.groups, members }))
    }

    /// That is on the disk.
    pub(super) fn kept(&mut self, founding: Founding) {
        self.founding = Some(founding);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use super::*;

    fn id(bits: u128) -> ReplicaId {
        ReplicaId::from_bits(bits)
    }

    #[derive(Clone, Debug, PartialEq)]
    enum Told {
        Hello,
        Pledge,
        Founding(Founding),
    }

    /// What is on its way, and what the one who said it had said of itself.
    type Said = (ReplicaId, Vec<String>, Option<Founding>, Told);

    /// A world of nodes whose connections keep order, and that crash and lose disks.
    struct World {
        nodes: BTreeMap<String, Founder>,
        /// What is on each disk: the identity and the founding.
        disks: BTreeMap<String, (ReplicaId, Option<Founding>)>,
        lists: BTreeMap<String, Vec<String>>,
        /// From, to: in order. They are lost with either end.
        under_way: BTreeMap<(String, String), VecDeque<Said>>,
        drawn: u128,
        foundings: BTreeSet<u128>,
    }

    impl World {
        fn new(lists: &[(&str, &[&str])]) -> Self {
            let lists: BTreeMap<_, Vec<_>> = lists
                .iter()
                .map(|(name, list)| ((*name).to_owned(), list.iter().map(|name| (*name).to_owned()).collect()))
                .collect();
            let mut world = Self {
                nodes: BTreeMap::new(),
                disks: BTreeMap::new(),
                lists,
                under_way: BTreeMap::new(),
                drawn: 100,
                foundings: BTreeSet::new(),
            };
            for name in world.lists.keys().cloned().collect::<Vec<_>>() {
                world.lose_disk(&name);
            }
            world
        }

        fn lose_disk(&mut self, name: &str) {
            self.drawn += 1;
            self.disks.insert(name.to_owned(), (id(self.drawn), None));
            self.restart(name);
        }

        fn restart(&mut self, name: &str) {
            self.under_way.retain(|(from, to), _| from != name && to != name);
            let (node, kept) = self.disks[name].clone();
            let founder = Founder::new((name.to_owned(), node), self.lists[name].clone(), 4, kept);
            self.nodes.insert(name.to_owned(), founder);
            let others: Vec<String> = self.nodes.keys().filter(|other| *other != name).cloned().collect();
            for other in others {
                self.nodes.get_mut(&other).expect("it is there").parted(name);
                self.send(&other, name, Told::Hello);
                self.send(name, &other, Told::Hello);
            }
        }

        fn send(&mut self, from: &str, to: &str, told: Told) {
            let node = &self.nodes[from];
            let said = (node.own.1, node.names.clone(), node.founding.clone(), told);
            self.under_way.entry((from.to_owned(), to.to_owned())).or_default().push_back(said);
        }

        /// Delivers the next thing on this connection. Returns what is to be kept then.
        fn deliver(&mut self, from: &str, to: &str) -> Option<Founding> {
            let queue = self.under_way.get_mut(&(from.to_owned(), to.to_owned()))?;
            let (node, names, founding, told) = queue.pop_front()?;
            self.drawn += 1;
            let drawn = self.drawn;
            let founder = self.nodes.get_mut(to).expect("it is there");
            let step = match told {
                Told::Hello => founder.met(from, node, &names, founding),
                Told::Pledge => founder.pledged(from, node, || (drawn, [0; 16])),
                Told::Founding(founding) => founder.told(node, founding),
            };
            match step {
                Some(Step::Pledge { to: decider }) => {
                    self.send(to, &decider, Told::Pledge);
                    None
                }
                Some(Step::Keep(founding)) => Some(founding),
                None => None,
            }
        }

        fn keep(&mut self, name: &str, founding: Founding) {
            self.disks.get_mut(name).expect("it is there").1 = Some(founding.clone());
            self.nodes.get_mut(name).expect("it is there").kept(founding.clone());
            let others: Vec<String> = self.nodes.keys().filter(|other| *other != name).cloned().collect();
            for other in others {
                self.send(name, &other, Told::Founding(founding.clone()));
            }
        }

        /// Nodes act on one founding only.
        fn check(&mut self) {
            for (name, (node, founding)) in &self.disks {
                if let Some(founding) = founding
                    && founding.has(*node)
                {
                    assert_eq!(founding.names(), self.lists[name], "it was told of others");
                    self.foundings.insert(founding.id);
                }
            }
        }

        fn run(&mut self) {
            while let Some((from, to)) =
                self.under_way.iter().find(|(_, queue)| !queue.is_empty()).map(|(ends, _)| ends.clone())
            {
                if let Some(founding) = self.deliver(&from, &to) {
                    self.keep(&to, founding);
                }
                self.check();
            }
        }
    }

    const ALL: &[&str] = &["a", "b", "c"];

    fn three() -> World {
        World::new(&[("a", ALL), ("b", ALL), ("c", ALL)])
    }

    #[test]
    fn all_are_told_one_founding_with_all_of_them() {
        let mut world = three();
        world.run();
        let ids: Vec<_> = world.disks.values().map(|(id, _)| *id).collect();
        for (_, founding) in world.disks.values() {
            let founding = founding.as_ref().expect("all have heard");
            assert_eq!(founding.members.iter().map(|(_, id)| *id).collect::<Vec<_>>(), ids);
        }
        assert_eq!(world.foundings.len(), 1);
    }

    #[test]
    fn one_alone_founds_at_once() {
        let founder = Founder::new(("a".into(), id(1)), vec!["a".into()], 4, None);
        assert!(matches!(founder.begin(|| (1, [0; 16])), Some(Step::Keep(_))));
    }

    /// At every step each node restarts, before and after what it keeps is on its disk, or loses its disk.
    #[test]
    fn a_crash_or_a_lost_disk_at_any_step_never_makes_two_foundings() {
        for step in 0..60 {
            for who in ALL {
                for (loses, keeps) in [(false, false), (false, true), (true, false), (true, true)] {
                    // Another connection first each time.
                    for shift in 0..6 {
                        let mut world = three();
                        let mut count = 0;
                        let mut at = shift;
                        loop {
                            let busy: Vec<_> = world
                                .under_way
                                .iter()
                                .filter(|(_, queue)| !queue.is_empty())
                                .map(|(ends, _)| ends.clone())
                                .collect();
                            let Some((from, to)) = busy.get(at % busy.len().max(1)).cloned() else { break };
                            at = at.wrapping_mul(5).wrapping_add(shift + 1);
                            let kept = world.deliver(&from, &to);
                            let is_blow = count == step;
                            count += 1;
                            if let Some(founding) = kept.filter(|_| !is_blow || keeps || to != *who) {
                                world.keep(&to, founding);
                            }
                            world.check();
                            if is_blow && loses {
                                world.lose_disk(who);
                            } else if is_blow {
                                world.restart(who);
                            }
                        }
                        world.check();
                        let found: BTreeSet<_> = world
                            .disks
                            .values()
                            .filter_map(|(_, founding)| founding.as_ref())
                            .map(|founding| founding.id)
                            .collect();
                        assert_eq!(found.len(), 1, "step {step}, {who}: all have heard of one founding in the end");
                        let acts = |(id, founding): &(ReplicaId, Option<Founding>)| {
                            founding.as_ref().is_some_and(|founding| founding.has(*id))
                        };
                        let acting = world.disks.values().filter(|disk| acts(disk)).count();
                        assert!(acting >= 2, "step {step}, {who}: {acting} act on it");
                    }
                }
            }
        }
    }

    #[test]
    fn nodes_with_other_lists_found_nothing_with_each_other() {
        let mut world = World::new(&[("a", ALL), ("b", ALL), ("c", &["b", "c"])]);
        world.run();
        assert!(world.foundings.is_empty());
        assert!(world.disks.values().all(|(_, founding)| founding.is_none()));
    }
}
