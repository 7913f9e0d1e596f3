//! A private PostgreSQL server.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use crate::certificates::{Certificates, Tls};
use crate::host::{self, Account, PATIENCE, Port, percent_encoded, program, wait_until};
use crate::keeper::Keeper;
use crate::lifecycle::lifecycle;
use crate::template::Template;
use crate::{Problem, Result};

pub(crate) const PACKAGE: &str = "postgresql";
/// The user and the database of tests. Not a superuser: what it may do, an ordinary application may.
pub(crate) const USER: &str = "primacy";
/// Who owns the server.
pub(crate) const ADMIN: &str = "postgres";
/// What both a primary and a standby say.
const READY: &str = "database system is ready to accept";
/// An immediate shutdown.
const END: &str = "QUIT";

/// How a [`Postgres`] is set up. The default is a server with the durability of a production server.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Lines for `postgresql.conf`: names and values, such as `("fsync", "off")`.
    pub settings: Vec<(String, String)>,
    /// Variables for the environment of the server.
    pub env: Vec<(String, String)>,
    /// Whether and how TCP connections are encrypted.
    pub tls: Option<Tls>,
    /// The size in megabytes of a [`Disk`](crate::Disk) of its own for the data, which few users may mount.
    pub disk: Option<u32>,
}

impl PostgresOptions {
    /// With one more setting.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_string(), value.to_string()));
        self
    }
}

/// A running PostgreSQL server, which ends with this value.
#[derive(Debug)]
pub struct Postgres {
    pub(crate) keeper: Keeper,
    pub(crate) port: Port,
    pub(crate) password: String,
    pub(crate) options: PostgresOptions,
    certificates: Option<Certificates>,
}

lifecycle!(Postgres);

impl Postgres {
    /// Starts a new, empty server.
    pub fn start(options: &PostgresOptions) -> Result<Self> {
        let account = Account::ordinary(&["postgres"])?;
        let template = template(account)?;
        let keeper = Keeper::on_disk(account, END, Some(&template.data), options.disk)?;
        Self::over(keeper, template.password, options)
    }

    /// Starts a server with a data folder that is there, such as a copy of another server's.
    pub(crate) fn over(keeper: Keeper, password: String, options: &PostgresOptions) -> Result<Self> {
        let certificates = match &options.tls {
            None => None,
            Some(tls) => {
                let made = Certificates::make(keeper.folder(), &tls.hosts)?;
                made.give_to(keeper.account())?;
                Some(made)
            }
        };
        let server = Self { keeper, port: Port::free()?, password, options: options.clone(), certificates };
        server.keeper.account().folder(&server.sockets())?;
        server.configure()?;
        server.launch()?;
        Ok(server)
    }

    /// A folder for another server of this kind.
    pub(crate) fn empty(account: Account) -> Result<Keeper> {
        Keeper::new(account, END, None)
    }

    /// Writes what differs from PostgreSQL's defaults. `ALTER SYSTEM` is stronger, as on every server.
    pub(crate) fn configure(&self) -> Result<()> {
        let mut settings = vec![
            ("listen_addresses", "127.0.0.1".to_string()),
            ("port", self.port().to_string()),
            ("unix_socket_directories", self.sockets().to_string_lossy().into_owned()),
            // What it logs is compared, whatever the language of this machine.
            ("lc_messages", "C".to_string()),
            // What PostgreSQL 13 does not do by itself: it would keep passwords that none of the lines below takes.
            ("password_encryption", "scram-sha-256".to_string()),
            ("max_connections", "300".to_string()),
            ("shared_buffers", "32MB".to_string()),
            // A server that is killed must leave nothing in /dev/shm.
            ("dynamic_shared_memory_type", "mmap".to_string()),
            // Standbys that were away find what they have missed.
            ("wal_keep_size", "256MB".to_string()),
        ];
        let mut authentication = String::from("local all,replication all scram-sha-256\n");
        authentication += "host replication all 127.0.0.1/32 scram-sha-256\n";
        if let (Some(tls), Some(made)) = (&self.options.tls, &self.certificates) {
            let path = |file: PathBuf| file.to_string_lossy().into_owned();
            settings.push(("ssl", "on".to_string()));
            settings.push(("ssl_ca_file", path(made.ca())));
            settings.push(("ssl_cert_file", path(made.server_certificate())));
            settings.push(("ssl_key_file", path(made.server_key())));
            let mutual = if tls.mutual { " clientcert=verify-ca" } else { "" };
            authentication += &format!("hostssl all all 127.0.0.1/32 scram-sha-256{mutual}\n");
        } else {
            authentication += "host all all 127.0.0.1/32 scram-sha-256\n";
        }
        let own = settings.iter().map(|(name, value)| (*name, value.as_str()));
        let asked = self.options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let line = |(name, value): (&str, &str)| format!("{name} = '{}'\n", value.replace('\'', "''"));
        let text: String = own.chain(asked).map(line).collect();
        let account = self.keeper.account();
        account.write(&self.keeper.data().join("postgresql.conf"), &text)?;
        account.write(&self.keeper.data().join("pg_hba.conf"), &authentication)
    }

    pub(crate) fn launch(&self) -> Result<()> {
        let postgres = program("postgres", PACKAGE)?.to_string_lossy().into_owned();
        let data = self.keeper.data().to_string_lossy().into_owned();
        self.keeper.run(&[postgres, "-D".to_string(), data], &self.options.env, READY)
    }

    /// Ends the server in an orderly way, cutting off its clients; [`start_again`](Self::start_again) follows.
    pub fn stop(&self) -> Result<()> {
        self.keeper.stop("INT")
    }

    /// Starts the server if it has ended, whatever befell it, and waits until it answers.
    pub fn come_back(&self) -> Result<()> {
        wait_until("the server to answer again", PATIENCE, || {
            if !self.is_running() {
                self.start_again()?;
            }
            Ok(self.sql("SELECT 1").is_ok())
        })
    }

    pub(crate) fn sockets(&self) -> PathBuf {
        self.keeper.folder().join("s")
    }

    /// For an ordinary user who owns the database `primacy`.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The same through another port, such as that of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, port: u16) -> String {
        self.url_of(USER, port)
    }

    /// One URL with this server and these, such as its standbys.
    pub fn url_with(&self, others: &[&Postgres]) -> String {
        let ports = others.iter().map(|other| other.port());
        let others: String = ports.map(|port| format!(",127.0.0.1:{port}")).collect();
        let own = format!("127.0.0.1:{}", self.port());
        self.url().replacen(&own, &format!("{own}{others}"), 1)
    }

    /// For the superuser.
    pub fn admin_url(&self) -> String {
        self.url_of(ADMIN, self.port())
    }

    fn url_of(&self, user: &str, port: u16) -> String {
        let mutual = self.options.tls.as_ref().is_some_and(|tls| tls.mutual);
        let query = self.certificates.as_ref().map(|made| made.query(mutual)).unwrap_or_default();
        format!("postgresql://{user}:{}@127.0.0.1:{port}/{USER}{query}", self.password)
    }

    /// The same as [`url`](Self::url) through the server's unix socket.
    pub fn unix_url(&self) -> String {
        let host = percent_encoded(&self.sockets().to_string_lossy());
        format!("postgresql://{USER}:{}@{host}:{}/{USER}", self.password, self.port())
    }

    /// The password of all users.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The certificates of a server with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Runs SQL as the superuser, in the database of [`url`](Self::url): values with `|` between, a line for each row.
    pub fn sql(&self, sql: &str) -> Result<String> {
        self.psql(ADMIN, sql)
    }

    /// Runs SQL as the user of [`url`](Self::url).
    pub fn sql_as_user(&self, sql: &str) -> Result<String> {
        self.psql(USER, sql)
    }

    fn psql(&self, user: &str, sql: &str) -> Result<String> {
        let mut command = Command::new(program("psql", "postgresql-client")?);
        // What the tester's own environment says is meant for other servers.
        for (name, _) in env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", user, "-d", USER]);
        command.arg("-h").arg(self.sockets()).arg("-p").arg(self.port().to_string());
        host::output(command.args(["-c", sql]).env("PGPASSWORD", &self.password).env("PGCONNECT_TIMEOUT", "30"))
    }
}

/// An initialised data folder with the users, and the database of tests.
fn template(account: Account) -> Result<Template> {
    let initdb = program("initdb", PACKAGE)?;
    let version = host::output(Command::new(&initdb).arg("--version"))?;
    let version = version.split_whitespace().nth(2).unwrap_or("unknown");
    Template::get("postgres", version, account, |keeper, password| {
        let (data, secret) = (keeper.data(), keeper.folder().join("secret"));
        account.write(&secret, password)?;
        let mut create = account.command(&initdb);
        create.arg("-D").arg(&data).arg("--pwfile").arg(&secret).args(["--username", ADMIN]);
        create.args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--wal-segsize=1", "--no-sync"]);
        host::output(create.current_dir(&data))?;
        // The server is not needed for users and databases: its single-user mode takes statements from a file.
        let sql = keeper.folder().join("sql");
        let statements =
            format!("CREATE ROLE {USER} LOGIN CREATEDB PASSWORD '{password}';\nCREATE DATABASE {USER} OWNER {USER};\n");
        account.write(&sql, &statements)?;
        let file = fs::File::open(&sql).map_err(|error| Problem::io(&sql, &error))?;
        let mut single = account.command(&program("postgres", PACKAGE)?);
        single.args(["--single", "-D"]).arg(&data).arg("postgres").current_dir(&data);
        host::output_with(&mut single, file.into()).map(drop)
    })
}
