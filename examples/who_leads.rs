//! A web service that runs in several copies, of which one does the chores. `GET /leader` says which, from every copy.
#![expect(clippy::print_stdout, reason = "it says where it listens")]

use axum::{Router, extract::State, http::StatusCode, routing::get};
use primacy::{CandidateConfig, Election, Label, Observation};
use tokio::sync::watch;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: who_leads STORE-URL")?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut config = CandidateConfig::new(Label::new(format!("web-{}", address.port()))?);
    config.data = format!("http://{address}/"); // what it publishes about itself
    let election = Election::open(&url, "web")?;
    let (candidate, seen) = (election.campaign_with(config)?, election.observe()?);
    let handle = candidate.handle();
    let chores = tokio::spawn(candidate.run(async |leadership| {
        leadership.lost().await; // … the chores, until then …
    }));
    println!("{address}");
    let ctrl_c = async { drop(tokio::signal::ctrl_c().await) };
    let service = Router::new().route("/leader", get(leader)).with_state(seen);
    axum::serve(listener, service).with_graceful_shutdown(ctrl_c).await?;
    handle.shutdown();
    Ok(chores.await??)
}

/// What was seen last, unless that lease has run out since.
async fn leader(State(seen): State<watch::Receiver<Observation>>) -> (StatusCode, String) {
    match seen.borrow().leader() {
        Some(leader) => (StatusCode::OK, format!("{} at {}\n", leader.label, leader.data)),
        None => (StatusCode::SERVICE_UNAVAILABLE, "nobody is known to lead\n".to_owned()),
    }
}
