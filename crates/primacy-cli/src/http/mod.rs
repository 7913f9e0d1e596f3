//! `--http`: who leads, for load balancers, scripts and people.
//!
//! The server has a thread of its own: whatever its clients do, no renewal waits for them. The manual's page on HTTP says what it
//! answers, and who may ask and order.

mod answers;
mod crowd;
mod doctor;
mod events;
mod listener;
mod metrics;
mod orders;
mod page;
mod questions;
mod routes;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use primacy::peers::local_socket::SocketFile;
use primacy::peers::tls::ServerTls;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, error};

use crate::cli::http::{HttpAddress, HttpArgs};
use crate::failure::Failure;
use crate::panics;
use crate::standing::Candidates;
use crowd::{Crowd, Visitor};
use doctor::Doctor;
use events::STREAM_LASTS;
use listener::{Listener, Stream};
use orders::OrderSecret;
use questions::Questions;

/// How many connections are served at once, at most, and at most which part of the files that the process may have open. If more come,
/// those end that have asked for nothing yet.
const CONNECTIONS_MAX: u64 = 256;
const SHARE_OF_FILES: u64 = 4;
/// How long the head of a request may take.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How many bytes the head of a request may have, and how many fields.
const HEAD_MAX: (usize, usize) = (16 << 10, 64);
/// How long a connection lasts, which is for one request: so no client keeps one by reading slowly. One for a stream lasts longer.
const CONNECTION_LASTS: Duration = Duration::from_secs(15);
/// How long no connection is taken after one could not be.
const PAUSE: Duration = Duration::from_millis(100);

/// Where it listens.
#[derive(Debug)]
pub(crate) struct HttpListener {
    listener: Listener,
    file: Option<SocketFile>,
    tls: Option<ServerTls>,
    /// Nobody may order anything without one.
    secret: Option<OrderSecret>,
}

/// A server, for as long as the process lives. When this is dropped, its socket's file is removed.
#[derive(Debug)]
pub(crate) struct HttpServer {
    /// Where it listens.
    pub(crate) place: String,
    _file: Option<SocketFile>,
}

impl HttpListener {
    /// Listens, if that was asked for. Connections wait until it [serves](Self::serve).
    ///
    /// # Errors
    /// If something else listens there, or the files for TLS or the token of orders cannot be had.
    pub(crate) fn bind(args: &HttpArgs) -> Result<Option<Self>, Failure> {
        let Some(address) = &args.http else { return Ok(None) };
        let secret = OrderSecret::of(args)?;
        let tls = args.tls().map(ServerTls::load).transpose();
        let tls = tls.map_err(|error| Failure::usage(format!("--http-cert and --http-key: {error}")))?;
        let unavailable = |error: io::Error| {
            Failure::unavailable(format!("--http {address}: {error}"))
                .with("end what listens there, or choose another address")
        };
        let (listener, file) = Listener::bind(address).map_err(unavailable)?;
        Ok(Some(Self { listener, file, tls, secret }))
    }

    /// Whether it may listen there.
    ///
    /// # Errors
    /// If others can reach the address, and that was not allowed.
    pub(crate) fn check(args: &HttpArgs) -> Result<(), Failure> {
        match &args.http {
            Some(HttpAddress::Tcp(address)) if !address.ip().is_loopback() && args.tls().is_none() => {
                if args.http_insecure {
                    return Ok(());
                }
                Err(Failure::usage(format!(
                    "--http {address}: other hosts could read who leads, and nothing is encrypted; give a certificate with \
                     --http-cert and --http-key, choose 127.0.0.1, or allow it with --http-insecure"
                )))
            }
            Some(address @ HttpAddress::Unix(_)) if args.tls().is_some() => Err(Failure::usage(format!(
                "--http {address}: nobody can listen between a socket and its clients; leave --http-cert out"
            ))),
            _ => Ok(()),
        }
    }

    /// Serves for as long as the process lives.
    ///
    /// # Errors
    /// If the system gives no thread or event queue.
    pub(crate) fn serve(self, candidates: Arc<Candidates>) -> io::Result<HttpServer> {
        let Self { listener, file, tls, secret } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let place = listener.place()?;
        let place = if tls.is_some() { format!("https://{place}") } else { place };
        let serve = move || {
            loop {
                let serving = || runtime.block_on(serve(&listener, tls.as_ref(), &candidates, secret.clone()));
                if catch_unwind(AssertUnwindSafe(serving)).is_ok() {
                    return;
                }
                // A leader that nobody can see is none for its clients.
                error!("the HTTP server has panicked, which is a bug; it begins again");
            }
        };
        Builder::new().name(panics::SPARED_THREAD.into()).spawn(serve)?;
        Ok(HttpServer { place, _file: file })
    }
}

async fn serve(
    listener: &Listener,
    tls: Option<&ServerTls>,
    candidates: &Arc<Candidates>,
    secret: Option<OrderSecret>,
) {
    let accepting = match listener.listen() {
        Ok(accepting) => accepting,
        Err(error) => return error!(%error, "HTTP is not served"),
    };
    let (questions, answering) = Questions::new(Arc::clone(candidates));
    let (doctor, measuring) = Doctor::new(candidates);
    let (is_loopback, most) = (listener.is_loopback(), connections_max());
    let routes = routes::router(Arc::clone(candidates), questions, doctor, secret, is_loopback, most);
    let crowd = Crowd::new(most);
    let connections = async {
        for number in 0.. {
            let taken = accepting.accept().await;
            // Not before somebody is there: only then another one makes room.
            let Some(place) = crowd.place(number).await else { return };
            match taken {
                Ok((stream, client)) => {
                    let routes = routes.clone().layer(Extension(client)).layer(Extension(place.visitor.clone()));
                    let tls = tls.cloned();
                    let serving = tokio::spawn(async move { connection(stream, tls, routes, &place.visitor).await });
                    // It has not begun: all is on one thread.
                    crowd.enter(number, serving.abort_handle());
                }
                // There are too many open files, perhaps: those of connections are closed in time.
                Err(error) => {
                    debug!(%error, "a connection of HTTP cannot be taken");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    };
    tokio::join!(connections, answering, measuring);
}

fn connections_max() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from((files / SHARE_OF_FILES).clamp(1, CONNECTIONS_MAX)).unwrap_or(1)
}

async fn connection(stream: Stream, tls: Option<ServerTls>, routes: Router, visitor: &Visitor) {
    match (stream, tls) {
        (Stream::Tcp(stream), None) => exchange(stream, routes, visitor).await,
        (Stream::Unix(stream), _) => exchange(stream, routes, visitor).await,
        (Stream::Tcp(stream), Some(tls)) => match tokio::time::timeout(HEAD_WITHIN, tls.accept(stream)).await {
            Ok(Ok(stream)) => exchange(stream, routes, visitor).await,
            Ok(Err(error)) => debug!(%error, "no TLS with a client of HTTP"),
            Err(_) => debug!("no TLS with a client of HTTP: it takes too long"),
        },
    }
}

/// One request, and its answer.
async fn exchange<S>(stream: S, routes: Router, visitor: &Visitor)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_MAX.0).max_headers(HEAD_MAX.1);
    server.keep_alive(false);
    let served = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let over = async {
        tokio::time::sleep(CONNECTION_LASTS).await;
        if visitor.is_following() {
            tokio::time::sleep(STREAM_LASTS).await;
        }
    };
    tokio::select! {
        served = served => if let Err(error) = served {
            debug!(%error, "a connection of HTTP has failed");
        },
        () = over => {}
    }
}
