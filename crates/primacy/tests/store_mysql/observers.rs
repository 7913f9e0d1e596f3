//! Observers: the server sees the end of their connections.

use std::sync::Arc;

use mysql_async::prelude::Queryable as _;
use tokio::sync::Mutex;

use crate::support::{at, connect, server};
use crate::watching::end_at_the_server;

#[tokio::test]
async fn the_server_sees_the_end_of_an_observer() {
    const SESSIONS: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'primacy'";
    let server = server();
    let eyes = Mutex::new(connect(&server.admin_url()).await);
    let sessions = async || -> u64 {
        let mut eyes = eyes.lock().await;
        eyes.query_drop("DO SLEEP(0.01)").await.expect("waits");
        eyes.query_first(SESSIONS).await.expect("told").expect("a row")
    };
    end_at_the_server(|| Arc::new(at(&server.url())), sessions).await;
}
