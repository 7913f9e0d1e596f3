//! Several ways to one store, tried one beside the other: the first that will do is used.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{BoxFuture, StoreError};

/// After how long the next host is tried beside one that has not answered. A host that swallows packets must cost a leader
/// with a short lease little.
const STAGGER: Duration = Duration::from_millis(200);

/// Starts one attempt after another, the next as soon as one has failed or is slow; the first success wins. Says which.
///
/// # Errors
/// If none succeeds: why each did not.
pub(super) async fn race<T: Send + 'static>(
    attempts: Vec<BoxFuture<'static, Result<T, StoreError>>>,
) -> Result<(usize, T), Vec<StoreError>> {
    let mut waiting = attempts.into_iter().enumerate();
    let mut running = JoinSet::new();
    let mut failures = Vec::new();
    let mut start = |running: &mut JoinSet<_>| {
        if let Some((index, attempt)) = waiting.next() {
            running.spawn(async move { (index, attempt.await) });
        }
    };
    start(&mut running);
    loop {
        match timeout(STAGGER, running.join_next()).await {
            Ok(Some(Ok((index, Ok(reached))))) => return Ok((index, reached)),
            Ok(Some(Ok((_, Err(error))))) => failures.push(error),
            Ok(Some(Err(error))) => failures.push(StoreError::Unreachable(format!("an attempt to connect: {error}"))),
            Ok(None) => return Err(failures),
            Err(_) => {}
        }
        start(&mut running);
    }
}

/// What several failed hosts mean together: worth another try as long as one of them may come back.
pub(super) fn together(mut failures: Vec<StoreError>) -> StoreError {
    if failures.len() == 1 {
        return failures.remove(0);
    }
    let transient = failures.iter().any(|error| !matches!(error, StoreError::Unusable(_)));
    let messages: Vec<_> = failures
        .into_iter()
        .map(|error| match error {
            StoreError::Unreachable(message) | StoreError::Unknown(message) | StoreError::Unusable(message) => message,
        })
        .collect();
    let message = messages.join("; ");
    if transient { StoreError::Unreachable(message) } else { StoreError::Unusable(message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(what: Result<u8, StoreError>) -> BoxFuture<'static, Result<u8, StoreError>> {
        Box::pin(std::future::ready(what))
    }

    #[tokio::test]
    async fn one_that_says_nothing_or_fails_is_passed_by() {
        let silent = || Box::pin(std::future::pending()) as BoxFuture<'static, Result<u8, StoreError>>;
        let refused = || StoreError::Unusable("it is a standby".into());
        assert_eq!(race(vec![silent(), attempt(Ok(7))]).await.expect("the other answers"), (1, 7));
        let all = vec![attempt(Err(refused())), attempt(Ok(8)), silent()];
        assert_eq!(race(all).await.expect("one answers"), (1, 8));
        let gone = StoreError::Unreachable("gone".into());
        let none = race(vec![attempt(Err(refused())), attempt(Err(gone))]).await.expect_err("none answers");
        assert!(matches!(together(none), StoreError::Unreachable(all) if all == "it is a standby; gone"));
        assert!(matches!(together(vec![refused(), refused()]), StoreError::Unusable(_)));
    }
}
