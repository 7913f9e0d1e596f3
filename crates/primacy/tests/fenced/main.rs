//! Fenced transactions on real servers: what a deposed leader writes is refused, and a grant waits for what is in flight.

#[cfg(feature = "postgres")]
mod example;
#[cfg(feature = "mysql")]
mod galera;
#[cfg(feature = "sqlite")]
mod leadership;
#[cfg(feature = "mysql")]
mod mariadb;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod race;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-mysql", feature = "sqlx-sqlite"))]
mod sqlx;

use std::time::Duration;

use primacy::fenced::FenceError;
use primacy::{ElectionName, Token};

/// No test waits for it.
const LONG: Duration = Duration::from_secs(60);

/// A bound that may be waited for. Whatever happens before it is over takes far less, also where the machine stalls.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const SHORT: Duration = Duration::from_secs(5);

fn token(number: u64) -> Token {
    Token::new(number).expect("small")
}

fn election(name: &str) -> ElectionName {
    ElectionName::new(name).expect("valid")
}

/// The tokens of a refusal: the offered one and the highest.
#[track_caller]
fn stale(result: Result<(), FenceError>) -> (u64, u64) {
    match result {
        Err(FenceError::Stale { token, highest, .. }) => (token.get(), highest.get()),
        other => panic!("not stale: {other:?}"),
    }
}

#[track_caller]
fn busy(result: Result<(), FenceError>) {
    assert!(matches!(result, Err(FenceError::Busy(_))), "{result:?}");
}
