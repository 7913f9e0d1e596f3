//! The statements' arithmetic, tried on a server.

use super::super::connection::Purpose;
use super::super::dialer::Dialer;
use super::super::ears::Ringer;
use super::super::errors::Stake;
use super::super::url::StoreUrl;
use super::*;
use crate::Token;
use std::sync::Arc;

#[tokio::test]
async fn the_servers_next_token_is_ours() {
    let url = StoreUrl::parse(&primacy_servers::postgres_url()).expect("valid");
    let (mut connection, _) = Arc::new(Dialer::new(url)).dial(Purpose::Watch, Ringer::Nobody).await.expect("connects");
    let counter = (1 << 40) - 1;
    let highest = (1 << 23) - 1;
    let epochs = [0, 1, 2, highest - 1, highest];
    let mut tokens = vec![Token::NONE, Token::MAX];
    for epoch in epochs {
        for count in [0, 1, 41, counter - 1, counter] {
            tokens.push(Token::new((u64::from(epoch) << 40) + count).expect("fits"));
        }
    }
    tokens.extend((0..200).filter_map(|_| Token::new(rand::random::<u64>() >> rand::random_range(1..60))));
    for token in tokens {
        for epoch in epochs {
            let parameters = [token.get().into(), u64::from(epoch).into()];
            let rows = connection.run(NEXT_TOKEN, &parameters, Stake::Reading).await.expect("answers");
            let next: i64 = rows[0].get(0);
            assert_eq!(u64::try_from(next), Ok(token.next(epoch).get()), "after {token} in epoch {epoch}");
        }
    }
}
