//! What `primacy doctor` finds, asked for over HTTP: one client at a time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use primacy::store::Store;
use primacy::{ElectionName, Timing, clock};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::answers::{json, refused};
use super::questions::{Asked, Unanswered, wait};
use crate::cli::{DoctorArgs, duration};
use crate::diagnosis::diagnose;
use crate::reach::Reach;
use crate::standing::Candidates;

/// How long the store may take for all that is measured.
const WITHIN: Duration = Duration::from_secs(10);
/// How long a client waits, less than its connection lasts.
const PATIENCE: Duration = Duration::from_secs(12);

/// Brings to the task that measures what is to be judged.
#[derive(Clone)]
pub(super) struct Doctor(mpsc::Sender<Asked<DoctorArgs>>);

/// What to judge, as the options of the command.
#[derive(Debug, Deserialize)]
pub(super) struct DoctorQuery {
    lease: Option<String>,
    grace: Option<String>,
}

impl DoctorQuery {
    fn args(&self) -> Result<DoctorArgs, String> {
        let read = |text: &Option<String>| text.as_deref().map(duration::parse).transpose();
        Ok(DoctorArgs { lease: read(&self.lease)?.unwrap_or(Timing::DEFAULT_LEASE), grace: read(&self.grace)? })
    }
}

impl Doctor {
    /// With the task, which never ends before all of these are gone. One client at a time has it measured: that takes connections to
    /// the store, and time of its.
    pub(super) fn new(candidates: &Candidates) -> (Self, impl Future<Output = ()> + use<>) {
        let (asks, mut asked) = mpsc::channel::<Asked<DoctorArgs>>(1);
        let store = candidates.store();
        let measuring = async move {
            while let Some(Asked { what, tell, .. }) = asked.recv().await {
                if !tell.is_closed() {
                    drop(tell.send(measure(&store, &what).await));
                }
            }
        };
        (Self(asks), measuring)
    }

    pub(super) async fn answer(&self, wanted: &DoctorQuery) -> Response {
        match wanted.args() {
            Ok(args) => wait(&self.0, args, PATIENCE).await.unwrap_or_else(|Unanswered| {
                refused(StatusCode::SERVICE_UNAVAILABLE, "others have it measured: ask again")
            }),
            Err(why) => refused(StatusCode::BAD_REQUEST, &why),
        }
    }
}

async fn measure(store: &Arc<dyn Store>, args: &DoctorArgs) -> Response {
    let timing = match args.timing() {
        Ok(timing) => timing,
        Err(failure) => return refused(StatusCode::BAD_REQUEST, &failure.to_string()),
    };
    let mut reach = Reach::new(Arc::clone(store), ElectionName::default(), None).within(WITHIN);
    reach.end_at(clock::now() + WITHIN);
    match tokio::time::timeout(WITHIN, diagnose(&mut reach, timing, args.grace)).await {
        Ok(Ok(diagnosis)) => json(&diagnosis.json()),
        Ok(Err(failure)) => refused(StatusCode::SERVICE_UNAVAILABLE, &failure.to_string()),
        Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE, "the store has not answered in time"),
    }
}
