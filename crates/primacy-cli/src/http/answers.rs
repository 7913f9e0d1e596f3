//! How answers and refusals are written.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use crate::output::schema::SCHEMA;

/// Why there is no answer.
#[derive(Debug, Serialize)]
struct RefusalReply<'a> {
    schema: u32,
    error: &'a str,
}

pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec_pretty(value) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

pub(super) fn refused(status: StatusCode, why: &str) -> Response {
    (status, json(&RefusalReply { schema: SCHEMA, error: why })).into_response()
}
