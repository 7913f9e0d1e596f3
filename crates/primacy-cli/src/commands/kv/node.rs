//! A node that runs, until a signal asks for its end.

use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use primacy_core::log::Reading;
use primacy_kv::server::node::{self, Event, NodeSettings};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::failures::NodeContext;
use super::warden::Warden;
use crate::cli::kv::{KvArgs, NodeOptions, Reads};
use crate::failure::Failure;
use crate::output::Output;
use crate::output::kv_schema;
use crate::output::schema::SCHEMA;
use crate::panics;
use crate::run::signals::SignalStream;

pub(super) fn run(args: &KvArgs, output: &mut Output) -> Result<u8, Failure> {
    let options = args.options()?;
    let context = NodeContext::of(args, &options);
    let NodeOptions { folder, voter, store_url, store, groups, timing, reads, memory, snapshot_every, clients } =
        options;
    let name = voter.name.clone();
    let settings = NodeSettings {
        folder: folder.clone(),
        voter,
        store,
        groups,
        timing,
        reads: match reads {
            Reads::Lease => Reading::Lease,
            Reads::Quorum => Reading::Quorum,
        },
        memory_max: memory,
        snapshot_every,
        clients,
    };
    // What takes longer to release than the lease lasts runs out by itself.
    let warden = Warden::start(&store_url, timing.lease() + Duration::from_secs(1));
    let warden = warden.map_err(|error| warn!("without a warden its leases run out when it is killed: {error}")).ok();
    let warden = Rc::new(warden);
    panics::end_the_process();
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.map_err(|error| super::super::no_runtime(&error))?;
    let ended = runtime.block_on(async {
        let failed = |error: std::io::Error| Failure::unavailable(format!("signals cannot be handled: {error}"));
        let mut ends = SignalStream::take(&[Signal::SIGTERM, Signal::SIGINT]).map_err(failed)?;
        let (tell, mut told) = mpsc::unbounded_channel();
        let events = {
            let warden = Rc::clone(&warden);
            move |event: &Event| match (event, &*warden) {
                (Event::Granted { election, holder, version }, Some(warden)) => {
                    warden.granted(election, holder, *version);
                }
                (Event::Ended { election }, Some(warden)) => warden.ended(election),
                (Event::Granted { .. } | Event::Ended { .. }, None) => {}
                (event, _) => _ = tell.send(event.clone()),
            }
        };
        let running = node::run(settings, events, async move { ends.next().await });
        tokio::pin!(running);
        let mut serves = String::new();
        loop {
            tokio::select! {
                ended = &mut running => break ended.map_err(|error| context.failure(&error)),
                Some(event) = told.recv() => {
                    let (event, text) = match event {
                        Event::Listening { clients, voter } => {
                            let text = format!("{name} listens on {clients} for clients, and on {voter} for other nodes");
                            serves = clients;
                            ("listening", text)
                        }
                        Event::Waiting { why } => ("waiting", why),
                        Event::Ready => ("ready", format!("ready: {name} serves clients on {serves}")),
                        _ => continue,
                    };
                    if event != "waiting" {
                        info!("{text}");
                    }
                    output.json_line(&kv_schema::Serving {
                        schema: SCHEMA,
                        at_unix_ms: Timestamp::now().as_millisecond(),
                        event,
                        text,
                        node: name.clone(),
                        serves: serves.clone(),
                        dir: folder.display().to_string(),
                    })?;
                }
            }
        }
    });
    if let Some(warden) = &*warden {
        // After a failure it may hold leaderships: they are released when the process is gone.
        if ended.is_ok() {
            warden.farewell();
        }
    }
    ended?;
    info!("the node ends: it was asked to");
    Ok(0)
}
