//! A selector of one's own: who leads next is the candidate on the host that has the least to do.
//!
//! `cargo run -p primacy --features sqlite --example least_loaded -- sqlite:primacy.db web-1`, in two terminals, with another name in the second.

#![expect(clippy::print_stdout, reason = "an example tells its user what happens")]

use std::time::Duration;

use primacy::select::{FailBack, Rank};
use primacy::{CandidateConfig, Election, Label, Leadership};

/// The selector: a number that is smaller for a candidate that should lead sooner, from whatever the program knows.
/// `None`: not now.
fn rank() -> Option<Rank> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    let (whole, _) = load.split_once('.')?; // by whole units: small differences shall not move the leadership
    Rank::new(&[whole.parse().ok()?]).ok()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (url, name) = args.next().zip(args.next()).ok_or("usage: least_loaded STORE-URL NAME")?;
    let mut config = CandidateConfig::new(Label::new(name)?);
    config.rank = rank();
    config.fail_back = FailBack::After(Duration::from_secs(60)); // to one that was better for a minute
    let mut candidate = Election::open(&url, "least-loaded")?.campaign_with(config)?;
    let mut leadership: Option<Leadership> = None;
    loop {
        tokio::select! {
            elected = candidate.elected(), if leadership.is_none() => {
                let elected = leadership.insert(elected?);
                println!("leading with token {}", elected.token());
            }
            reason = async { leadership.as_ref().expect("it leads").lost().await }, if leadership.is_some() => {
                println!("leading no more: {reason}");
                leadership = None; // which says that the work has stopped
            }
            () = tokio::time::sleep(Duration::from_secs(5)) => candidate.prefer(rank()),
        }
    }
}
