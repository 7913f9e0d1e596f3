//! A private PostgreSQL server.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::host::{self, Account, Port, percent_encoded, program};
use crate::keeper::Keeper;
use crate::template::Template;
use crate::{Problem, Result};

const PACKAGE: &str = "postgresql-15";
/// The user and the database of tests. Not a superuser: what it may do, an ordinary application may.
const USER: &str = "primacy";
/// Who owns the server.
const ADMIN: &str = "postgres";
/// An immediate shutdown.
const END: &str = "QUIT";
const READY: &str = "database system is ready to accept connections";

/// How a [`Postgres`] is set up. The default is a server with the durability of a production server.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Lines for `postgresql.conf`: names and values as they are written there, such as `("fsync", "off")`.
    pub settings: Vec<(String, String)>,
    /// Variables for the environment of the server.
    pub env: Vec<(String, String)>,
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
    keeper: Keeper,
    port: Port,
    password: String,
    options: PostgresOptions,
}

impl Postgres {
    /// Starts a new, empty server.
    pub fn start(options: &PostgresOptions) -> Result<Self> {
        let account = Account::ordinary(&["postgres"])?;
        let template = template(account)?;
        let keeper = Keeper::new(account, END, Some(&template.data))?;
        let server = Self { keeper, port: Port::free()?, password: template.password, options: options.clone() };
        server.configure()?;
        server.launch()?;
        Ok(server)
    }

    /// Writes what differs from PostgreSQL's defaults. `ALTER SYSTEM` is stronger, as on every server.
    fn configure(&self) -> Result<()> {
        let sockets = self.sockets();
        if !sockets.is_dir() {
            self.keeper.account().folder(&sockets)?;
        }
        let own = [
            ("listen_addresses", "127.0.0.1".to_string()),
            ("port", self.port.number().to_string()),
            ("unix_socket_directories", sockets.to_string_lossy().into_owned()),
            ("max_connections", "300".to_string()),
            ("shared_buffers", "32MB".to_string()),
            // A server that is killed must leave nothing in /dev/shm.
            ("dynamic_shared_memory_type", "mmap".to_string()),
        ];
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let asked = self.options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let line = |(name, value): (&str, &str)| format!("{name} = '{}'\n", value.replace('\'', "''"));
        let text: String = own.chain(asked).map(line).collect();
        self.keeper.account().write(&self.keeper.data().join("postgresql.conf"), &text)
    }

    fn launch(&self) -> Result<()> {
        let postgres = program("postgres", PACKAGE)?.to_string_lossy().into_owned();
        let data = self.keeper.data().to_string_lossy().into_owned();
        self.keeper.run(&[postgres, "-D".to_string(), data], &self.options.env, READY)
    }

    fn sockets(&self) -> PathBuf {
        self.keeper.folder().join("s")
    }

    /// Where the server listens on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// For an ordinary user who owns the database `primacy`.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The same through another port, such as that of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, port: u16) -> String {
        format!("postgresql://{USER}:{}@127.0.0.1:{port}/{USER}", self.password)
    }

    /// The same through the server's unix socket.
    pub fn unix_url(&self) -> String {
        let host = percent_encoded(&self.sockets().to_string_lossy());
        format!("postgresql://{USER}:{}@{host}:{}/{USER}", self.password, self.port())
    }

    /// For the superuser.
    pub fn admin_url(&self) -> String {
        format!("postgresql://{ADMIN}:{}@127.0.0.1:{}/{USER}", self.password, self.port())
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
        let mut command = Command::new(program("psql", "postgresql-client-15")?);
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", user, "-d", USER]);
        command.arg("-h").arg(self.sockets()).arg("-p").arg(self.port().to_string());
        host::output(command.args(["-c", sql]).env("PGPASSWORD", &self.password).env("PGCONNECT_TIMEOUT", "30"))
    }

    /// Ends the server in an orderly way, cutting off whoever is connected; [`start_again`](Self::start_again) follows.
    pub fn stop(&self) -> Result<()> {
        self.keeper.stop("INT")
    }

    /// Kills all processes of the server, as a crash of its machine would.
    pub fn kill9(&self) -> Result<()> {
        self.keeper.kill()
    }

    /// Starts a server that was stopped or killed, with its data and at its port.
    pub fn start_again(&self) -> Result<()> {
        self.launch()
    }

    /// Stops and starts.
    pub fn restart(&self) -> Result<()> {
        self.stop()?;
        self.start_again()
    }

    /// Stops all processes of the server, which keep their connections and answer nothing until [`thaw`](Self::thaw).
    pub fn freeze(&self) -> Result<()> {
        self.keeper.signal_all("STOP").map(drop)
    }

    /// Continues after [`freeze`](Self::freeze).
    pub fn thaw(&self) -> Result<()> {
        self.keeper.signal_all("CONT").map(drop)
    }

    /// Whether the server is running.
    pub fn is_running(&self) -> bool {
        self.keeper.is_running()
    }

    /// The server's main process.
    pub fn pid(&self) -> Option<u32> {
        self.keeper.main()
    }

    /// Where everything of the server is.
    pub fn folder(&self) -> PathBuf {
        self.keeper.folder().to_path_buf()
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        self.keeper.log()
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
