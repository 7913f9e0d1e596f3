//! A group of peers in threads of this process: started, made leaderless in two ways, watched, and started again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use primacy_core::Instant;
use primacy_core::contest::PeerId;
use tempfile::TempDir;

use super::journal::{Beliefs, Entry, Journal, What};
use super::links::Clock;
use super::network::Network;
use super::peer::{Disk, Machine, Peer, Start};
use primacy_bench::Entropy;

/// How a leader is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Manner {
    /// Its process ends, and its connections with it.
    Kill,
    /// It neither reads nor writes any more.
    Silence,
}

/// A machine for a peer of this group, with what that one has kept.
pub(super) type Make<'a, M> = dyn Fn(PeerId, <M as Machine>::Durable) -> M + 'a;

pub(super) struct Group<'a, M: Machine> {
    make: &'a Make<'a, M>,
    network: Arc<Network>,
    clock: Clock,
    journal: Arc<Journal>,
    entropy: Entropy,
    members: BTreeMap<PeerId, Member<M::Durable>>,
    folder: TempDir,
    /// What was noted and not asked for yet.
    log: Vec<Entry>,
    beliefs: Beliefs,
    /// How often somebody was granted the lead while another could still believe in its own.
    pub(super) overlaps: usize,
}

struct Member<K> {
    listener: TcpListener,
    address: SocketAddr,
    disk: Disk<K>,
    thread: Option<Running<K>>,
    leader: Option<PeerId>,
    reaches: usize,
}

struct Running<K> {
    control: UnixStream,
    handle: JoinHandle<Result<Disk<K>>>,
}

impl<'a, M: Machine> Group<'a, M> {
    /// Starts them all.
    ///
    /// # Errors
    /// When the system gives no thread, port or file.
    pub(super) fn start(peers: u16, network: &Arc<Network>, seed: u64, make: &'a Make<'a, M>) -> Result<Self> {
        let mut group = Self {
            make,
            network: Arc::clone(network),
            clock: Clock::start(),
            journal: Arc::default(),
            entropy: Entropy(seed),
            members: BTreeMap::new(),
            folder: tempfile::tempdir()?,
            log: Vec::new(),
            beliefs: Beliefs::default(),
            overlaps: 0,
        };
        for peer in (1..=peers).map(PeerId) {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            let disk = Disk { machine: M::Durable::default(), voter: Default::default() };
            let member = Member { listener, address, disk, thread: None, leader: None, reaches: 0 };
            group.members.insert(peer, member);
        }
        (1..=peers).map(PeerId).try_for_each(|peer| group.start_peer(peer))?;
        Ok(group)
    }

    fn start_peer(&mut self, me: PeerId) -> Result<()> {
        let peers = self.members.keys().copied().collect();
        let running = self.members.values().filter(|other| other.thread.is_some()).map(|other| other.address).collect();
        let (control, controlled) = UnixStream::pair()?;
        let member = self.members.get_mut(&me).context("no such peer")?;
        let start = Start {
            me,
            peers,
            listener: member.listener.try_clone()?,
            running,
            network: Arc::clone(&self.network),
            journal: Arc::clone(&self.journal),
            clock: self.clock,
            control: controlled,
            file: File::create(self.folder.path().join(me.to_string()))?,
            seed: self.entropy.next(),
        };
        let machine = (self.make)(me, member.disk.machine.clone());
        let peer = Peer::new(start, machine, member.disk.voter.clone())?;
        let handle = thread::Builder::new().name(me.to_string()).spawn(move || peer.run())?;
        (member.leader, member.reaches) = (None, 0);
        member.thread = Some(Running { control, handle });
        Ok(())
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn entropy(&mut self) -> u64 {
        self.entropy.next()
    }

    /// Everything that was noted since this was asked last.
    pub(super) fn take_log(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.log)
    }

    /// Takes note of what happens until it is as wanted, and says that; or until that time, and says no.
    pub(super) fn wait(&mut self, until: Instant, is_wanted: impl Fn(&Self) -> bool) -> bool {
        while !is_wanted(self) {
            if self.now() >= until {
                return false;
            }
            let entries = self.journal.take(until, self.clock);
            for entry in &entries {
                self.overlaps += usize::from(self.beliefs.overlap(*entry));
                let Entry { by, what, .. } = entry;
                let Some(member) = self.members.get_mut(by) else { continue };
                match what {
                    What::Leads => member.leader = Some(*by),
                    What::Follows(leader) => member.leader = Some(*leader),
                    What::Vacant | What::Lost => member.leader = None,
                    What::Reaches(others) => member.reaches = *others,
                    What::Stopped
                    | What::Launched(_)
                    | What::Stands
                    | What::Renewed
                    | What::Believes(_)
                    | What::Sent(_) => {}
                }
            }
            self.log.extend(entries);
        }
        true
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, span: Duration) {
        let until = self.now() + span;
        self.wait(until, |_| false);
    }

    /// Whom all know for the leader, but those who are not asked; the leader among them.
    pub(super) fn leader(&self, without: Option<PeerId>) -> Option<PeerId> {
        let mut asked = self.members.iter().filter(|(peer, _)| Some(**peer) != without);
        let leader = asked.clone().next()?.1.leader?;
        (asked.all(|(_, member)| member.leader == Some(leader)) && Some(leader) != without).then_some(leader)
    }

    /// Who leads, if all know it, and all reach each other.
    pub(super) fn steady(&self) -> Option<PeerId> {
        let others = self.members.len() - 1;
        self.leader(None).filter(|_| self.members.values().all(|member| member.reaches == others))
    }

    /// Stops a peer.
    ///
    /// # Errors
    /// If it does not run.
    pub(super) fn stop(&mut self, peer: PeerId, manner: Manner) -> Result<()> {
        let member = self.members.get_mut(&peer).context("no such peer")?;
        match manner {
            Manner::Silence => member.thread.as_mut().context("it does not run")?.control.write_all(&[0])?,
            Manner::Kill => member.end()?,
        }
        Ok(())
    }

    /// Starts a peer again that was stopped, with what was on its disk.
    ///
    /// # Errors
    /// If it failed before, or cannot be started.
    pub(super) fn revive(&mut self, peer: PeerId) -> Result<()> {
        self.members.get_mut(&peer).context("no such peer")?.end()?;
        self.start_peer(peer)
    }

    /// Ends all.
    ///
    /// # Errors
    /// The first failure of one of them.
    pub(super) fn end(mut self) -> Result<()> {
        self.members.values_mut().try_for_each(Member::end)
    }
}

impl<K> Member<K> {
    fn end(&mut self) -> Result<()> {
        if let Some(Running { control, handle }) = self.thread.take() {
            drop(control);
            self.disk = handle.join().map_err(|_| anyhow!("a peer has panicked"))??;
        }
        Ok(())
    }
}

impl<M: Machine> Drop for Group<'_, M> {
    fn drop(&mut self) {
        // Only after a failure is there anything left to end, and that failure is told already.
        self.members.values_mut().for_each(|member| drop(member.end()));
    }
}
