//! What clients order: who may, what they say, and how it is answered.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use primacy::{ElectionName, Token};
use serde::Deserialize;
use subtle::ConstantTimeEq as _;
use tracing::{info, warn};

use super::answers::refused;
use super::listener::Client;
use crate::cli::http::{HttpArgs, TOKEN_VARIABLE};
use crate::failure::{Failure, code};
use crate::order::RemoteOrder;
use crate::reach::Reach;

/// Shorter ones can be guessed.
const SECRET_LEAST: usize = 16;
const SECRET_MOST: usize = 512;
/// How long what an order says may be.
pub(super) const BODY_MAX: usize = 4 << 10;

/// What a client has to know to give orders.
#[derive(Clone)]
pub(crate) struct OrderSecret(Arc<str>);

impl fmt::Debug for OrderSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderSecret")
    }
}

impl OrderSecret {
    /// From the file or the variable that was named, if there is one.
    ///
    /// # Errors
    /// If the file cannot be read, both are given, or it is none.
    pub(crate) fn of(args: &HttpArgs) -> Result<Option<Self>, Failure> {
        let said = std::env::var_os(TOKEN_VARIABLE).filter(|said| !said.is_empty() && args.http.is_some());
        match (&args.http_token_file, said) {
            (Some(_), Some(_)) => Err(Failure::usage(format!(
                "--http-token-file and {TOKEN_VARIABLE} both name a token: keep one of them"
            ))),
            (Some(file), None) => Self::read(file).map(Some),
            (None, Some(said)) => Self::new(&said.to_string_lossy(), TOKEN_VARIABLE).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn read(file: &Path) -> Result<Self, Failure> {
        let place = format!("--http-token-file {}", file.display());
        let text = fs::read_to_string(file).map_err(|error| Failure::usage(format!("{place}: {error}")))?;
        Self::new(text.trim_end_matches(['\n', '\r']), &place)
    }

    fn new(secret: &str, place: &str) -> Result<Self, Failure> {
        let is_sayable = secret.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_sayable || !(SECRET_LEAST..=SECRET_MOST).contains(&secret.len()) {
            return Err(Failure::usage(format!(
                "{place}: a token is {SECRET_LEAST} to {SECRET_MOST} printable ASCII characters without spaces; make one with: openssl \
                 rand -hex 32"
            )));
        }
        Ok(Self(secret.into()))
    }

    fn is(&self, said: &str) -> bool {
        self.0.as_bytes().ct_eq(said.as_bytes()).into()
    }
}

/// Whether a client may give orders. What is refused is logged: it may be an attack.
pub(super) fn may_order(
    secret: Option<&OrderSecret>,
    headers: &HeaderMap,
    client: Client,
) -> Result<(), Box<Response>> {
    let Some(secret) = secret else {
        let why =
            format!("orders are not taken here: start this process with --http-token-file, or with {TOKEN_VARIABLE}");
        return Err(refused(StatusCode::FORBIDDEN, &why).into());
    };
    let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let said = said.and_then(|value| {
        let (scheme, said) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| said.trim())
    });
    if said.is_some_and(|said| secret.is(said)) {
        return Ok(());
    }
    let why = match said {
        None => "an order needs a token: Authorization: Bearer TOKEN",
        Some(_) => "this is not the token",
    };
    warn!(%client, "an order over HTTP is refused: {}", if said.is_some() { "a wrong token" } else { "no token" });
    let mut response = refused(StatusCode::UNAUTHORIZED, why);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(response.into())
}

/// Logs who orders what.
pub(super) fn note(order: &RemoteOrder, election: &ElectionName, client: Client) {
    info!(%client, %election, %order, "ordered over HTTP");
}

/// What an order says beside its path.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    /// Whom to promote: a label, or an id.
    candidate: Option<String>,
    /// The last token that the client knows of.
    token: Option<u64>,
}

/// What is ordered by this word of the path, and this body.
///
/// # Errors
/// Why it is none.
pub(super) fn read(word: &str, body: &[u8]) -> Result<RemoteOrder, String> {
    let said: Said = match body {
        [] => Said::default(),
        body => serde_json::from_slice(body)
            .map_err(|error| format!("the order is not the JSON that it should be: {error}"))?,
    };
    let token =
        said.token.map(|number| Token::new(number).ok_or_else(|| format!("{number} is no token"))).transpose()?;
    RemoteOrder::read(word, said.candidate, token)
}

/// Gives the order, and answers what it came to.
pub(super) async fn give(order: RemoteOrder, reach: &mut Reach) -> Response {
    match order.give(reach).await {
        Ok(printed) => ([(header::CONTENT_TYPE, "application/json")], printed).into_response(),
        Err(failure) => {
            let status = match failure.code {
                code::REFUSED => StatusCode::CONFLICT,
                code::USAGE => StatusCode::BAD_REQUEST,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            refused(status, &failure.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use primacy::Label;

    use super::*;

    fn token(number: u64) -> Option<Token> {
        Token::new(number)
    }

    #[test]
    fn an_order_says_what_its_path_needs_and_nothing_else() {
        let promote = br#"{"candidate": "web-2", "token": 7}"#;
        let label = Label::new("web-2").expect("a label");
        assert_eq!(read("promote", promote), Ok(RemoteOrder::Promote(label, token(7))));
        assert_eq!(read("depose", b""), Ok(RemoteOrder::Depose(None)));
        assert_eq!(read("depose", br#"{"token": 7}"#), Ok(RemoteOrder::Depose(token(7))));
        assert_eq!(read("pause", b"{}"), Ok(RemoteOrder::Pause));
        assert_eq!(read("resume", b""), Ok(RemoteOrder::Resume));
        for (word, body) in [
            ("promote", &b""[..]),
            ("promote", br#"{"candidate": ""}"#),
            ("promote", br#"{"candidate": "a", "token": -1}"#),
            ("promote", br#"{"candidate": "a", "now": true}"#),
            ("depose", br#"{"candidate": "a"}"#),
            ("pause", br#"{"token": 7}"#),
            ("resume", b"["),
            ("depose", b"\xff"),
            ("forget", b""),
        ] {
            assert!(read(word, body).is_err(), "{word} {body:?}");
        }
    }

    #[test]
    fn a_token_is_compared_whole_and_can_be_said_in_a_field() {
        let secret = OrderSecret::new("0123456789abcdef", "a test").expect("long enough");
        assert!(secret.is("0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdeg", "0123456789abcdef0", "0123456789ABCDEF"] {
            assert!(!secret.is(other), "{other}");
        }
        for none in ["", "0123456789abcde", "0123456789abcdef ghi", "0123456789abcdé0", &"x".repeat(513)] {
            assert!(OrderSecret::new(none, "a test").is_err(), "{none}");
        }
    }
}
