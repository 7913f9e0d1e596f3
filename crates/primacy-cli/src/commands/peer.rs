//! `primacy peer`: one of the voters of elections without a database, and the certificates by which they know each other.

use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use primacy::peers::certs::{self, CertsError};
use primacy::peers::tls::{Identity, LOOK, Tls, TlsError};
use primacy::peers::{FileError, Peer, PeerAddress, PeerError, PeersStore};
use primacy::select::{Score, ScoreError};
use primacy::store::Store;
use tracing::{error, info, warn};

use super::voters;
use crate::cli::Common;
use crate::cli::peer::{CertsArgs, PeerArgs, PeerCommand};
use crate::failure::{Failure, code};
use crate::http::HttpListener;
use crate::output::Output;
use crate::output::certificates;
use crate::output::schema::{self, SCHEMA};
use crate::run::command_poll::{CommandPoll, PolledCommand};
use crate::run::signals::SignalStream;
use crate::standing::{Candidates, ProcessKind};

pub(super) fn run(args: &PeerArgs, common: &Common, output: &mut Output) -> Result<u8, Failure> {
    match &args.command {
        Some(PeerCommand::Certs(args)) => make(args, output),
        Some(PeerCommand::Revoke { folder, certificates }) => revoke(folder, certificates, output),
        Some(PeerCommand::List) => super::runtime()?.block_on(voters::list(common, output)),
        Some(command) => super::runtime()?.block_on(voters::reconfigure(&command.reconfiguration(), common, output)),
        None => super::runtime()?.block_on(vote(args, output)),
    }
}

/// What it means that the socket nobody asked for cannot be had.
const WITHOUT_SOCKET: &str = "programs here reach the voters by one only with --socket";

/// Votes until a signal asks for the end.
async fn vote(args: &PeerArgs, output: &mut Output) -> Result<u8, Failure> {
    let (mut settings, asks_for_socket) = (args.settings()?, args.asks_for_socket());
    let tls = settings.tls.clone();
    HttpListener::check(&args.http)?;
    let store = args.http.http.as_ref().map(|_| told_store(settings.socket.as_deref())).transpose()?;
    let http = HttpListener::bind(&args.http)?;
    // Before anybody may know that it listens. Without certificates SIGHUP ends it, as when a terminal is closed.
    let failed = |error: io::Error| Failure::unavailable(format!("signals cannot be handled: {error}"));
    let mut ends = SignalStream::take(&[Signal::SIGTERM, Signal::SIGINT]).map_err(failed)?;
    let mut reloads = SignalStream::take(if tls.is_some() { &[Signal::SIGHUP] } else { &[] }).map_err(failed)?;
    let name = settings.name.clone();
    let voters: Vec<String> = settings.voters.iter().map(PeerAddress::to_string).collect();
    if settings.socket.is_none() {
        warn!("the path of the folder is too long for a socket: {WITHOUT_SOCKET}");
    }
    let peer = match Peer::start(settings.clone()).await {
        Err(error @ PeerError::Socket { .. }) if !asks_for_socket && args.http.http.is_none() => {
            warn!("{error}: {WITHOUT_SOCKET}");
            settings.socket = None;
            Peer::start(settings.clone()).await
        }
        started => started,
    };
    let peer = peer.map_err(|error| failure(&error))?;
    let socket = settings.socket.as_ref().map(|path| path.display().to_string());
    let (voter, address) = (peer.voter().to_string(), peer.address().to_string());
    let told = |output: &mut Output, event, text: &str| {
        output.json_line(&schema::Voting {
            schema: SCHEMA,
            at_unix_ms: Timestamp::now().as_millisecond(),
            event,
            text: text.to_owned(),
            peer: name.clone(),
            voter: voter.clone(),
            address: address.clone(),
            socket: socket.clone(),
            peers: voters.clone(),
        })
    };
    let here = socket.as_ref().map(|path| format!(", and for programs here on {path}")).unwrap_or_default();
    told(output, "listening", &format!("{name} listens on {address}{here}"))?;
    let served = http.zip(store).map(|(http, store)| http.serve(Arc::new(Candidates::new(store, ProcessKind::Voter))));
    let served = served.transpose();
    let served =
        served.map_err(|error| Failure::unavailable(format!("the system gives no thread for HTTP: {error}")))?;
    if let Some(server) = &served {
        info!("tells over HTTP who leads, on {}", server.place);
    }
    let rate = peer.requests();
    let rates = requests_command(args, &name).map(|command| CommandPoll::start(command, requests)).transpose();
    let mut rates =
        rates.map_err(|error| Failure::unavailable(format!("the system gives no thread for the requests: {error}")))?;
    let (founded, outside) = (peer.founded(), peer.outside());
    let voting = peer.run();
    tokio::pin!(founded, outside, voting);
    let (mut is_ready, mut is_outside) = (false, false);
    loop {
        tokio::select! {
            error = &mut voting => return Err(failure(&error)),
            () = &mut founded, if !is_ready => {
                is_ready = true;
                let text = "ready: all voters know each other, and a majority of them grants leases";
                info!("{text}");
                told(output, "ready", text)?;
            }
            why = &mut outside, if !is_ready && !is_outside => {
                is_outside = true;
                told(output, "waiting", &why)?;
            }
            requests = CommandPoll::next(&mut rates) => rate.tell(Some(requests)),
            () = reloads.next() => tls.as_deref().into_iter().for_each(reload),
            () = ends.next() => {
                info!("{name} votes no more: it was asked to end");
                return Ok(0);
            }
        }
    }
}

/// How it is learnt here who leads, to be told over HTTP: over the voter's own socket, as programs learn it.
fn told_store(socket: Option<&Path>) -> Result<Arc<dyn Store>, Failure> {
    let Some(socket) = socket else {
        return Err(Failure::usage("--http asks the voters over this one's socket: name a path for it with --socket"));
    };
    let absolute = std::path::absolute(socket);
    let absolute = absolute.map_err(|error| Failure::usage(format!("--socket {}: {error}", socket.display())))?;
    Ok(Arc::new(PeersStore::through(&absolute)))
}

/// The command that says how many requests arrive here, if there is one.
fn requests_command(args: &PeerArgs, name: &str) -> Option<PolledCommand> {
    let (command, every) = (args.requests_command.clone()?, args.requests_every);
    Some(PolledCommand { what: "requests", command, every, variables: vec![("PRIMACY_NAME", name.to_owned())] })
}

/// How many requests arrive, as a command says it.
fn requests(line: &str) -> Result<Score, String> {
    let requests: Score = line.parse().map_err(|error: ScoreError| error.to_string())?;
    if requests < Score::default() { Err(format!("{requests} requests are less than none")) } else { Ok(requests) }
}

fn reload(tls: &Tls) {
    match tls.reload() {
        Ok(()) => info!("the certificates have been read again"),
        Err(error @ TlsError::Revoked { .. }) => error!("{error}"),
        Err(error) => warn!("the certificates stay as they were: {error}"),
    }
}

/// Why a peer does not vote, with the exit code for it.
pub(super) fn failure(error: &PeerError) -> Failure {
    let text = error.to_string();
    match error {
        PeerError::Stranger { .. }
        | PeerError::OtherVoters { .. }
        | PeerError::Another { .. }
        | PeerError::Certificate { .. } => Failure::usage(text),
        PeerError::File(FileError::Unwritten { .. } | FileError::Poisoned { .. }) => Failure::new(code::OUTPUT, text),
        PeerError::Listen { .. } => {
            Failure::unavailable(text).with("end what listens there, or choose another address with --listen")
        }
        PeerError::Socket { .. } => Failure::unavailable(text).with("choose another place with --socket"),
        _ => Failure::unavailable(text),
    }
}

fn not_made(error: &CertsError) -> Failure {
    let text = error.to_string();
    match error {
        CertsError::Io { .. } | CertsError::Making(_) => Failure::new(code::OUTPUT, text),
        _ => Failure::usage(text),
    }
}

fn revoke(folder: &Path, wanted: &[String], output: &mut Output) -> Result<u8, Failure> {
    let revoked = certs::revoke(folder, wanted).map_err(|error| not_made(&error))?;
    let list = revoked.list.display();
    let mut text = String::new();
    for certificate in &revoked.certificates {
        let when = if certificate.is_new { "is revoked" } else { "was revoked before" };
        text += &format!("{}: the certificate {} {when}\n", certificate.given, certificate.serial);
    }
    text += &format!(
        "list: {list} ({} in all). Bring it to each peer and candidate: beside ca.pem for --certs and ?certs=,\n\
         elsewhere with --crl and &crl=. Each takes it within 10 s.\n",
        revoked.total
    );
    output.text(&text)?;
    let certificate = |certs::RevokedCertificate { given, serial, is_new, .. }: &_| certificates::RevokedCertificate {
        given: String::clone(given),
        serial: String::clone(serial),
        is_new: *is_new,
    };
    output.json(&certificates::Revocation {
        schema: SCHEMA,
        list: list.to_string(),
        total: revoked.total,
        revoked: revoked.certificates.iter().map(certificate).collect(),
    })?;
    Ok(0)
}

fn make(args: &CertsArgs, output: &mut Output) -> Result<u8, Failure> {
    let made = certs::make(&args.folder, &args.names, args.days).map_err(|error| not_made(&error))?;
    let path = |path: &Path| path.display().to_string();
    let authority = Identity::within(&args.folder, "ca");
    let mut text = String::new();
    for (name, files) in args.names.iter().zip(&made) {
        text += &format!("{name}: {} and {}\n", path(&files.certificate), path(&files.key));
    }
    let (folder, days) = (path(&args.folder), args.days);
    let (public, secret) = (path(&authority.certificate), path(&authority.key));
    let node = if cfg!(feature = "kv") {
        format!("  primacy kv --certs {folder} --name NAME --peers NAME@HOST:PORT,...\n")
    } else {
        String::new()
    };
    text += &format!(
        "authority: {public} for all, and {secret}, which signs: keep that to yourself\n\n\
         They last {days} days. Bring {public} and the two files of its name to each peer and candidate, then\n  \
         primacy peer --certs {folder} --name NAME --peers NAME@HOST:PORT,...\n\
         {node}  \
         primacy run --store 'peers://NAME@HOST:PORT,...?certs={folder}&name=NAME' -- ./program\n\
         To renew them, do the same again: they are read anew within {} s.\n",
        LOOK.as_secs()
    );
    output.text(&text)?;
    let pair = |name: &str, files: &Identity| certificates::Pair {
        name: name.to_owned(),
        certificate: path(&files.certificate),
        key: path(&files.key),
    };
    output.json(&certificates::Certificates {
        schema: SCHEMA,
        folder: folder.clone(),
        days,
        authority: pair("ca", &authority),
        made: args.names.iter().zip(&made).map(|(name, files)| pair(name, files)).collect(),
    })?;
    Ok(0)
}
