//! `PgBouncer` in transaction mode: every transaction may run in another session.

use crate::Result;
use crate::host::{Port, program};
use crate::keeper::Keeper;
use crate::lifecycle::lifecycle;
use crate::postgres::{ADMIN, Postgres, USER};

const READY: &str = "process up:";

/// A running pooler, which ends with this value.
#[derive(Debug)]
pub struct Pooler {
    keeper: Keeper,
    port: Port,
    url: String,
}

lifecycle!(Pooler);

impl Postgres {
    /// Starts a pooler with this many connections to the server.
    pub fn pooler(&self, connections: u32) -> Result<Pooler> {
        let keeper = Keeper::new(self.keeper.account(), "KILL", None)?;
        let port = Port::free()?;
        let (data, account) = (keeper.data(), keeper.account());
        let users = data.join("users.txt");
        let password = &self.password;
        account.write(&users, &format!("\"{USER}\" \"{password}\"\n\"{ADMIN}\" \"{password}\"\n"))?;
        let settings = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {connections}\nmax_client_conn = 500\nadmin_users = {ADMIN}\n",
            self.sockets().display(),
            self.port(),
            port.number(),
            users.display(),
        );
        account.write(&data.join("pgbouncer.ini"), &settings)?;
        let pooler = Pooler { keeper, url: self.url_at(port.number()), port };
        pooler.launch()?;
        Ok(pooler)
    }
}

impl Pooler {
    fn launch(&self) -> Result<()> {
        let pgbouncer = program("pgbouncer", "pgbouncer")?.to_string_lossy().into_owned();
        let settings = self.keeper.data().join("pgbouncer.ini").to_string_lossy().into_owned();
        self.keeper.run(&[pgbouncer, settings], &[], READY)
    }

    /// For the user of the server's own [`url`](Postgres::url), never encrypted.
    pub fn url(&self) -> &str {
        self.url.split('?').next().unwrap_or(&self.url)
    }

    /// Ends the pooler; [`start_again`](Self::start_again) follows.
    pub fn stop(&self) -> Result<()> {
        self.keeper.stop("TERM")
    }
}
