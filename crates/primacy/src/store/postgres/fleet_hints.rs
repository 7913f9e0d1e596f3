//! How a connection comes to listen to what the candidates of a fleet want to hear.

use std::collections::HashMap;

use tracing::debug;

use super::connection::Connection;
use super::ears::{Ears, Heard};
use super::errors::{Fault, Stake};
use super::notifier::{Channel, NotifierHandle, listening};
use super::parameter::Parameter;
use super::statements;
use crate::ElectionName;

impl Ears {
    /// Has the server notify a connection of what is to be heard.
    pub(super) async fn follow(&self, connection: &mut Connection, heard: &mut Heard) -> Result<(), Fault> {
        let (changes, wanted): (u64, HashMap<ElectionName, (NotifierHandle, Channel)>) = {
            let wishes = self.wishes();
            let wanted = wishes.all.iter().map(|(name, wish)| (name.clone(), (wish.notifier.clone(), wish.to)));
            (wishes.changes, wanted.collect())
        };
        let unnamed: Vec<&NotifierHandle> =
            wanted.values().map(|(notifier, _)| notifier).filter(|notifier| notifier.channel().is_none()).collect();
        if !unnamed.is_empty() {
            let names: Parameter<'_> = unnamed.iter().map(|notifier| notifier.election()).collect();
            let rows = connection.run(statements::CHANNELS, &[names], Stake::Reading).await?;
            for (index, notifier) in unnamed.iter().enumerate() {
                notifier.learn(rows.get(index..).unwrap_or_default())?;
            }
        }
        let (mut text, mut fresh) = (Vec::new(), Vec::new());
        for (election, (notifier, to)) in &wanted {
            let Some(channel) = notifier.channel() else { continue };
            if heard.all.get(election).is_none_or(|(heard, _)| heard != to) {
                text.push(listening(channel, *to));
                fresh.push((election.clone(), channel.clone(), *to));
            }
        }
        heard.all.retain(|election, (_, channel)| {
            let stays = wanted.contains_key(election);
            if !stays {
                text.push(format!("UNLISTEN \"{channel}\"; UNLISTEN \"{channel}{}\"", statements::PROMOTIONS));
            }
            stays
        });
        {
            // Before the server begins to tell.
            let mut wishes = self.wishes();
            wishes.channels = wanted
                .values()
                .filter_map(|(notifier, _)| Some((notifier.channel()?.clone(), notifier.clone())))
                .collect();
        }
        if !text.is_empty() {
            connection.run_batch(&text.join("; "), Stake::Reading).await?;
        }
        heard.changes = changes;
        let mut wishes = self.wishes();
        for (election, channel, to) in fresh {
            let before = heard.all.insert(election.clone(), (to, channel));
            if to == Channel::Everything
                && let Some(wish) = wishes.all.get_mut(&election)
                && (std::mem::take(&mut wish.has_gap) || before.is_some())
            {
                wish.notifier.ring();
            }
        }
        debug!(elections = heard.all.len(), "the fleet listens");
        Ok(())
    }
}
