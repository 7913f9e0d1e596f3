//! A server of either kind, for what must hold on both.

use std::time::Duration;

use primacy::{ElectionName, Token, fenced};
use primacy_servers::{MariaDb, MariaDbOptions, Postgres, PostgresOptions, Tls};

use crate::server::{admits, is_admitted};

pub(crate) enum Database {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Database {
    pub(crate) fn postgres(tls: Option<Tls>) -> Self {
        let options = PostgresOptions { tls, ..PostgresOptions::default() };
        Self::Postgres(Postgres::start(&options).expect("PostgreSQL starts"))
    }

    pub(crate) fn mariadb(tls: Option<Tls>) -> Self {
        let options = MariaDbOptions { tls, ..MariaDbOptions::default() };
        Self::MariaDb(MariaDb::start(&options).expect("MariaDB starts"))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::MariaDb(server) => server.url(),
        }
    }

    /// As its administrator.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let told = match self {
            Self::Postgres(server) => server.sql(sql),
            Self::MariaDb(server) => server.sql(sql),
        };
        told.expect("runs")
    }

    /// Gives the user of candidates another password.
    pub(crate) fn rotate(&self, password: &str) {
        self.sql(&match self {
            Self::Postgres(_) => format!("ALTER ROLE primacy PASSWORD '{password}'"),
            Self::MariaDb(_) => format!("ALTER USER primacy@'127.0.0.1' IDENTIFIED BY '{password}'"),
        });
    }

    /// The password that everybody has from the start.
    pub(crate) fn password(&self) -> &str {
        match self {
            Self::Postgres(server) => server.password(),
            Self::MariaDb(server) => server.password(),
        }
    }

    #[cfg(all(feature = "postgres-tls", feature = "mysql-tls"))]
    pub(crate) fn certificates(&self) -> &primacy_servers::Certificates {
        let certificates = match self {
            Self::Postgres(server) => server.certificates(),
            Self::MariaDb(server) => server.certificates(),
        };
        certificates.expect("a server with TLS")
    }

    /// Makes the server read its certificate again. PostgreSQL does it in its own time.
    #[cfg(all(feature = "postgres-tls", feature = "mysql-tls"))]
    pub(crate) fn reload(&self) {
        self.sql(match self {
            Self::Postgres(_) => "SELECT pg_reload_conf()",
            Self::MariaDb(_) => "FLUSH SSL",
        });
    }

    /// Ends the connections of candidates.
    pub(crate) fn end_connections(&self) {
        self.sql(match self {
            Self::Postgres(_) => "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'primacy'",
            Self::MariaDb(_) => "KILL USER primacy",
        });
    }

    /// Whether its own fence lets this leadership commit.
    pub(crate) async fn admits(&self, election: &str, token: Token) -> bool {
        let server = match self {
            Self::Postgres(server) => return admits(server, election, token).await,
            Self::MariaDb(server) => server,
        };
        let name = ElectionName::new(election).expect("valid");
        let mut conn = mysql_async::Conn::from_url(server.url()).await.expect("connects");
        let mut transaction = conn.start_transaction(mysql_async::TxOpts::default()).await.expect("begins");
        is_admitted(fenced::fence(&mut transaction, &name, token, Duration::from_secs(5)).await)
    }
}
