//! Observers: the server sees the end of their connections.

use crate::support::{BACKENDS, Superuser, server, shared};
use crate::watching::end_at_the_server;

#[tokio::test]
async fn the_server_sees_the_end_of_an_observer() {
    let server = server();
    let superuser = Superuser::of(&server).await;
    let sessions = async || {
        superuser.run("SELECT pg_sleep(0.01)").await;
        superuser.count(BACKENDS).await.unsigned_abs()
    };
    end_at_the_server(|| shared(&server.url()), sessions).await;
}
