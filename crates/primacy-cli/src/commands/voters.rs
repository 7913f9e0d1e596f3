//! `primacy peer list`, `add`, `remove` and `replace`: who votes, and who shall.

use std::time::Duration;

use primacy::peers::{
    PeersStore, Reconfiguration, ReconfigurationError, ReconfigurationOutcome, ReconfigurationProgress, VoterStatus,
    Voters,
};
use primacy::store::{Store as _, StoreError};

use crate::cli::Common;
use crate::failure::{Failure, code};
use crate::foreign_text::shorten;
use crate::output::Output;
use crate::output::schema::{self, SCHEMA};
use crate::output::span::span;
use crate::output::style::Tone;
use crate::output::table::{Cell, table};

/// How often voters that cannot be reached are tried again.
const AGAIN: Duration = Duration::from_millis(200);

fn open(common: &Common) -> Result<PeersStore, Failure> {
    let url = common.store_url()?;
    let rest = url.strip_prefix("peers:").ok_or_else(|| {
        Failure::usage("name the voters, some of them at least: --store peers://NAME@HOST:PORT,... or PRIMACY_STORE")
    })?;
    PeersStore::parse(rest).map_err(|error| Failure::usage(format!("--store: {error}")))
}

/// Until a majority can be reached, for as long as somebody wants to wait.
async fn reached(store: &PeersStore, common: &Common) -> Result<Voters, Failure> {
    let wait = common.wait.unwrap_or(Common::DEFAULT_WAIT);
    let mut last = None;
    let trying = async {
        loop {
            match store.voters().await {
                Err(error @ (StoreError::Unreachable(_) | StoreError::Unknown(_))) => last = Some(error),
                settled => return settled,
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    // One attempt is made even if nobody wants to wait.
    let settled = tokio::time::timeout(wait.max(Duration::from_secs(3)), trying).await;
    let settled = settled.unwrap_or_else(|_| {
        Err(last.unwrap_or_else(|| StoreError::Unreachable("the voters do not answer".to_owned())))
    });
    settled.map_err(|error| Failure::unavailable(error.to_string()))
}

/// Who votes.
pub(super) async fn list(common: &Common, output: &mut Output) -> Result<u8, Failure> {
    let store = open(common)?;
    let voters = reached(&store, common).await?;
    let mut text = match &voters.incoming {
        None => voters.strength(),
        Some(_) => format!("{}; an exchange is under way", voters.strength()),
    };
    text += &format!("\n{}", places(&voters.voters, output));
    if let Some(incoming) = &voters.incoming {
        text += &format!("those who vote after it:\n{}", places(incoming, output));
        text += &format!("To finish it: {}\n", voters.finish().unwrap_or_default());
    }
    output.text(&text)?;
    tell("listed", &store.location(), &voters, output)?;
    Ok(0)
}

/// Exchanges voters.
pub(super) async fn reconfigure(
    reconfiguration: &Reconfiguration,
    common: &Common,
    output: &mut Output,
) -> Result<u8, Failure> {
    exchange(&open(common)?, reconfiguration, common, output).await?.tell(output)?;
    Ok(0)
}

/// Voters that have been exchanged.
pub(super) struct Exchanged {
    outcome: &'static str,
    head: String,
    store: String,
    voters: Voters,
}

impl Exchanged {
    /// Whether something was done.
    pub(super) fn is_news(&self) -> bool {
        self.outcome != "already"
    }

    /// Prints it.
    pub(super) fn tell(&self, output: &mut Output) -> Result<(), Failure> {
        let Self { head, voters, .. } = self;
        output.text(&format!("{head}{}\n{}", voters.strength(), places(&voters.voters, output)))?;
        if voters.voters.len() % 2 == 0 {
            output.remark("an even number of voters survives no more losses than one less");
        }
        self.tell_json(output)
    }

    /// Prints it for programs alone.
    pub(super) fn tell_json(&self, output: &mut Output) -> Result<(), Failure> {
        tell(self.outcome, &self.store, &self.voters, output)
    }
}

/// Exchanges the voters of this store.
pub(super) async fn exchange(
    store: &PeersStore,
    reconfiguration: &Reconfiguration,
    common: &Common,
    output: &mut Output,
) -> Result<Exchanged, Failure> {
    reached(store, common).await?;
    let mut told = |progress| {
        output.remark(&match progress {
            ReconfigurationProgress::Finishing => "an exchange of voters is under way: it is finished first".to_owned(),
            ReconfigurationProgress::Begun => {
                "begun: majorities of the old and of the new voters grant leases together. If this ends early, do the same \
                 again"
                    .to_owned()
            }
            ReconfigurationProgress::Waiting(left) => format!(
                "the new voters vote alone in {}, when leases have ended or been renewed that only old ones granted",
                span(left)
            ),
            _ => return,
        });
    };
    let done = store.reconfigure(reconfiguration, &mut told).await.map_err(failure)?;
    let ReconfigurationOutcome { voters, is_changed, has_finished, told, .. } = done;
    let (outcome, head) = match &*told {
        _ if is_changed => ("exchanged", String::new()),
        _ if has_finished => ("finished", "the exchange that was under way is finished: ".to_owned()),
        [] => ("already", "nothing to do: ".to_owned()),
        told => ("told", format!("told who votes: {}; ", told.join(", "))),
    };
    Ok(Exchanged { outcome, head, store: store.location(), voters })
}

fn places(voters: &[VoterStatus], output: &Output) -> String {
    let row = |place: &VoterStatus| {
        let (state, tone) = match &place.trouble {
            None => ("answers".to_owned(), Tone::Plain),
            Some(why) => (shorten(why, 200), Tone::Notice),
        };
        vec![Cell::plain(place.address.name()), Cell::plain(place.address.place()), Cell::new(state, tone)]
    };
    table(&voters.iter().map(row).collect::<Vec<_>>(), 2, output.palette)
}

fn tell(outcome: &'static str, store: &str, voters: &Voters, output: &mut Output) -> Result<(), Failure> {
    let told = |places: &[VoterStatus]| places.iter().map(schema::VoterState::from).collect();
    output.json(&schema::Voters {
        schema: SCHEMA,
        store: shorten(store, 400),
        outcome,
        number: voters.number,
        voters: told(&voters.voters),
        incoming: voters.incoming.as_deref().map(told),
    })
}

fn failure(error: ReconfigurationError) -> Failure {
    let text = error.to_string();
    match error {
        ReconfigurationError::Store(_) => Failure::unavailable(text),
        ReconfigurationError::Stuck { .. } => Failure::new(code::PENDING, text),
        _ => Failure::refused(text),
    }
}
