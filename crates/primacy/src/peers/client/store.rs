//! A majority of peers in the place of a database.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use primacy_core::quorum::{Configuration as _, QuorumCalls, QuorumClient, TERM_LEAP_MOST};
use tokio::sync::{Mutex, Notify};

use super::admin::PeersAdmin;
use super::dial::Transport;
use super::endpoints::VoterEndpoints;
use super::errors::{failure, no_registers};
use super::latency::PeersLatencyProbe;
use super::pool::{Pool, VoterEvent, carry_out};
use crate::peers::config::PeerAddress;
use crate::peers::tls::{Identity, Revocations, Tls};
use crate::peers::wire::{self, Body, ElectionRequest, RequestBody, WaitingEntry};
use crate::store::hint_task::HintTask;
use crate::store::{
    Admin, Announcement, BoxFuture, Hints, Holder, LatencyProbe, Registry, Reply, Request, Session, Store, StoreError,
    UrlError,
};
use crate::{CandidateId, ElectionName, Label};

/// What a candidate keeps for its whole life, whatever becomes of its connections.
struct CandidateState {
    /// The terms and rounds of its quorum client are never used again.
    calls: QuorumCalls,
    /// What it has told of itself last, while it waits: voters that have restarted since do not know.
    waits: Option<WaitingEntry>,
}

type CandidateStates = HashMap<(ElectionName, CandidateId), Arc<Mutex<CandidateState>>>;

/// Elections that are kept by peers: each grant is the promise of a majority.
///
/// Written `peers://[NAME@]HOST:PORT,…`. With `?certs=FOLDER&name=NAME`, or with `?cert=FILE&key=FILE&ca=FILE`, both sides prove
/// who they are; `&crl=FILE` names a list of certificates that were revoked. Without, plain text is spoken: to peers on this machine, or with `?plaintext=yes` to any. `peers:///PATH` is all
/// voters through the socket of one on this machine.
pub struct PeersStore {
    pub(super) endpoints: VoterEndpoints,
    states: StdMutex<CandidateStates>,
}

impl fmt::Debug for PeersStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeersStore").field("location", &self.location()).finish_non_exhaustive()
    }
}

impl PeersStore {
    /// Those at these addresses.
    pub fn new(peers: Vec<PeerAddress>, tls: Option<Arc<Tls>>) -> Self {
        Self { endpoints: VoterEndpoints::new(peers, Transport::Network(tls)), states: StdMutex::default() }
    }

    /// Those of the cluster in which the peer with this socket votes. That peer knows them, connects to them and proves who it
    /// is: here no address and no certificate is needed. While it is away, none of them is reached.
    pub fn through(socket: &Path) -> Self {
        Self {
            endpoints: VoterEndpoints::new(Vec::new(), Transport::Socket(socket.into())),
            states: StdMutex::default(),
        }
    }

    /// Reads what follows `peers:` in a URL.
    ///
    /// # Errors
    /// If it names no peers, or asks for something that does not go together. Certificates are read here.
    pub fn parse(rest: &str) -> Result<Self, UrlError> {
        let invalid = |why: String| UrlError::Invalid(why);
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (list, query) = rest.split_once('?').unwrap_or((rest, ""));
        if list.starts_with('/') {
            // One who adds certificates thinks that they are used.
            return match query {
                "" => Ok(Self::through(Path::new(list))),
                _ => Err(invalid("a peer's socket has no settings: the peer proves who it is".into())),
            };
        }
        let peers = PeerAddress::list(list.trim_end_matches('/')).map_err(|error| {
            let hint = if list.contains('/') { "; the socket of a peer is written peers:///PATH" } else { "" };
            invalid(format!("{error}{hint}"))
        })?;
        let mut settings = HashMap::new();
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            if !["certs", "name", "cert", "key", "ca", "crl", "plaintext"].contains(&key) {
                let key = primacy_core::ids::escape(key);
                return Err(invalid(format!(
                    "'{key}' is no setting of peers:; there are certs, name, cert, key, ca, crl and plaintext"
                )));
            }
            settings.insert(key, value);
        }
        let get = |key: &str| settings.get(key).copied();
        let identity = match (get("certs"), get("name"), get("cert"), get("key"), get("ca")) {
            (None, None, None, None, None) => None,
            (Some(folder), Some(name), None, None, None) => Some(Identity::within(&PathBuf::from(folder), name)),
            (None, None, Some(cert), Some(key), Some(ca)) => {
                let revocations = Revocations::default();
                Some(Identity { certificate: cert.into(), key: key.into(), authority: ca.into(), revocations })
            }
            _ => {
                return Err(invalid("write certs and name, or cert, key and ca, to prove to peers who you are".into()));
            }
        };
        let identity = match (identity, get("crl")) {
            (Some(identity), Some(list)) => {
                Some(Identity { revocations: Revocations::Required(list.into()), ..identity })
            }
            (None, Some(_)) => {
                return Err(invalid("crl goes with certs and name, or with cert, key and ca".into()));
            }
            (identity, None) => identity,
        };
        let is_plain = get("plaintext") == Some("yes");
        if identity.is_none() && !is_plain && !peers.iter().all(PeerAddress::is_here) {
            return Err(invalid(
                "peers on other machines are talked to over TLS: add ?certs=FOLDER&name=NAME, made by 'primacy peer certs' \
                 (or ?plaintext=yes, where everybody on the network may lead)"
                    .into(),
            ));
        }
        let tls =
            identity.map(|identity| Tls::load(&identity).map(Arc::new).map_err(|error| invalid(error.to_string())));
        Ok(Self::new(peers, tls.transpose()?))
    }

    fn state(&self, election: &ElectionName, candidate: CandidateId, pool: &Pool) -> Arc<Mutex<CandidateState>> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states.entry((election.clone(), candidate));
        let new =
            || CandidateState { calls: QuorumCalls::new(QuorumClient::new(pool.cluster.voter_set())), waits: None };
        Arc::clone(state.or_insert_with(|| Arc::new(Mutex::new(new()))))
    }
}

impl Store for PeersStore {
    fn location(&self) -> String {
        match &self.endpoints.transport {
            Transport::Socket(path) => format!("peers://{}", path.display()),
            Transport::Network(_) => {
                let peers: Vec<String> = self.endpoints.peers.iter().map(ToString::to_string).collect();
                format!("peers://{}", peers.join(","))
            }
        }
    }

    fn sharing(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(Self { endpoints: self.endpoints.sharing(), states: StdMutex::default() }))
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let pool = Pool::open(&self.endpoints, candidate.label.as_str(), None).await?;
            let state = self.state(election, candidate.id, &pool);
            let session = PeersSession { pool, state, election: election.clone(), me: candidate.clone() };
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }

    fn registry<'a>(&'a self, _: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(std::future::ready(Err(no_registers())))
    }

    fn keeps_registers(&self) -> bool {
        false
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        Box::pin(async move {
            let pool = Pool::open(&self.endpoints, "an observer", None).await?;
            Ok(Box::new(PeersAdmin::new(pool)) as Box<dyn Admin>)
        })
    }

    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async move {
            let pool = Pool::open(&self.endpoints, "a listener", Some(election.as_str())).await?;
            Ok(Box::new(hints(pool)) as Box<dyn Hints>)
        })
    }

    fn latency_probe(&self, candidate: &Label) -> Option<Box<dyn LatencyProbe>> {
        Some(Box::new(PeersLatencyProbe::new(self.endpoints.clone(), candidate.as_str().to_owned())))
    }
}

/// Each voter hints at each change.
fn hints(mut pool: Pool) -> HintTask {
    let notify = Arc::<Notify>::default();
    let rung = Arc::clone(&notify);
    HintTask::spawn(notify, async move {
        loop {
            // Voters that are new have not been listened to.
            if let VoterEvent::Hint | VoterEvent::Moved(_) = pool.heard().await {
                rung.notify_one();
            }
        }
    })
}

struct PeersSession {
    pool: Pool,
    state: Arc<Mutex<CandidateState>>,
    election: ElectionName,
    me: Holder,
}

impl Session for PeersSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(self.take(request))
    }
}

impl PeersSession {
    async fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        let mut state = self.state.lock().await;
        match &request {
            Request::Look { announce: Some(Announcement { why, rank }) } => {
                let (note, rank) = (why.to_string(), wire::rank_bytes(*rank));
                state.waits = Some(WaitingEntry { who: Some((&self.me).into()), note, age_ns: 0, rank });
            }
            Request::Look { announce: None } | Request::Acquire { .. } => {}
            _ => state.waits = None,
        }
        let waits = state.waits.clone();
        let reason = match &request {
            Request::Release { reason, .. } => reason.word(),
            _ => "",
        };
        let dress = |body: RequestBody| ElectionRequest {
            voters: 0,
            election: self.election.as_str().to_owned(),
            body: Some(body),
            waits: waits.clone(),
            asker: wire::candidate_bytes(self.me.id),
            lists: false,
            reason: reason.to_owned(),
        };
        if request == Request::Leave {
            let (election, id) = (self.election.as_str().to_owned(), wire::candidate_bytes(self.me.id));
            self.pool.poll(&Body::Leave(wire::Leave { election, id })).await?;
        }
        let begin = |client: &mut QuorumClient, out: &mut Vec<_>| client.begin(request, out);
        let (result, piggyback) = carry_out(&mut self.pool, &mut state.calls, begin, dress).await;
        // Who has been heard of by fewer voters may ask a little sooner or later.
        let standing = piggyback.by_voter.values().map(|reply| reply.standing).max_by_key(|standing| standing.others);
        let standing = standing.unwrap_or_default();
        match result {
            Ok(Reply::Seen(seen)) => Ok(Reply::Seen(crate::store::Sighting { standing, ..seen })),
            Ok(Reply::Conflict(seen)) => Ok(Reply::Conflict(crate::store::Sighting { standing, ..seen })),
            Ok(reply) => Ok(reply),
            Err(_) if let Some(highest) = state.calls.client().leap() => Err(StoreError::Unusable(format!(
                "no token is granted so far above {highest}, which is the highest that the voters know of '{}': they leap by \
                 {TERM_LEAP_MOST} at most. The floor that the candidate was given is of another cluster, or wrong",
                self.election
            ))),
            Err(error) => Err(failure(error, &self.pool)),
        }
    }
}
