//! A worker of which one copy works at a time. SIGTERM lets it finish its step, and then another copy goes on.
#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::time::Duration;

use primacy::Election;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: drain_on_sigterm STORE-URL")?;
    let name = format!("worker-{}", std::process::id());
    let candidate = Election::open(&url, "chores")?.campaign(&name)?;
    let (handle, mut sigterm) = (candidate.handle(), signal(SignalKind::terminate())?);
    tokio::spawn(async move {
        sigterm.recv().await;
        handle.shutdown(); // the work below is told, and has its grace
    });
    let ended = candidate.run(async |leadership| {
        println!("{name} leads with token {}", leadership.token());
        // Between two steps it asks whether to stop; a step is never interrupted.
        let told_to_stop = loop {
            println!("{name} begins a step");
            tokio::time::sleep(Duration::from_millis(300)).await; // … the work, with the token in every write …
            println!("{name} ends a step");
            if let Ok(why) = tokio::time::timeout(Duration::from_millis(20), leadership.lost()).await {
                break why;
            }
        };
        println!("{name} has drained: {told_to_stop}");
    });
    Ok(ended.await?)
}
