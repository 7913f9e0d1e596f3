//! A private MariaDB server.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::certificates::{Certificates, Tls};
use crate::host::{self, Account, PATIENCE, Port, percent_encoded, program, wait_until};
use crate::keeper::Keeper;
use crate::lifecycle::lifecycle;
use crate::template::Template;

pub(crate) const PACKAGE: &str = "mariadb-server";
/// The user and the database of tests: everything within that database and those whose names begin with it.
const USER: &str = "primacy";
/// Who may do everything.
const ADMIN: &str = "admin";
/// Names the `mysqld` of MySQL, which is then started in the place of MariaDB: for the tests that hold for both.
const MYSQL: &str = "PRIMACY_TEST_MYSQLD";
/// Whose user the server runs as, instead of root.
pub(crate) const USERS: &[&str] = &["mysql"];
/// It has no children that would need an orderly end.
const END: &str = "KILL";
const READY: &str = "ready for connections.";

/// How a [`MariaDb`] is set up. The default is a server with the durability of a production server.
#[derive(Clone, Debug, Default)]
pub struct MariaDbOptions {
    /// Settings of the server, such as `("innodb_lock_wait_timeout", "5")`.
    pub settings: Vec<(String, String)>,
    /// Variables for the environment of the server.
    pub env: Vec<(String, String)>,
    /// Whether and how TCP connections are encrypted.
    pub tls: Option<Tls>,
    /// The size in megabytes of a [`Disk`](crate::Disk) of its own for the data, which few users may mount.
    pub disk: Option<u32>,
}

impl MariaDbOptions {
    /// With one more setting.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_string(), value.to_string()));
        self
    }
}

/// A running MariaDB server, which ends with this value.
#[derive(Debug)]
pub struct MariaDb {
    keeper: Keeper,
    port: Port,
    password: String,
    options: MariaDbOptions,
    certificates: Option<Certificates>,
}

lifecycle!(MariaDb);

impl MariaDb {
    /// Starts a new, empty server.
    pub fn start(options: &MariaDbOptions) -> Result<Self> {
        let account = Account::ordinary(USERS)?;
        let template = template(account)?;
        let server = Self::over(&template, options)?;
        server.launch()?;
        if options.tls.as_ref().is_some_and(|tls| tls.mutual) {
            server.sql(&format!("ALTER USER {USER}@'127.0.0.1' REQUIRE X509"))?;
        }
        Ok(server)
    }

    /// A server with a copy of this data folder, not started yet.
    pub(crate) fn over(template: &Template, options: &MariaDbOptions) -> Result<Self> {
        let account = Account::ordinary(USERS)?;
        let keeper = Keeper::on_disk(account, END, Some(&template.data), options.disk)?;
        let mut options = options.clone();
        let certificates = match &options.tls {
            None => None,
            Some(tls) => {
                let made = Certificates::make(keeper.folder(), &tls.hosts)?;
                made.give_to(account)?;
                let path = |file: PathBuf| file.to_string_lossy().into_owned();
                options = options.set("require_secure_transport", "1");
                options = options.set("ssl_ca", &path(made.ca()));
                options = options.set("ssl_cert", &path(made.server_certificate()));
                options = options.set("ssl_key", &path(made.server_key()));
                Some(made)
            }
        };
        Ok(Self { keeper, port: Port::free()?, password: template.password.clone(), options, certificates })
    }

    pub(crate) fn launch(&self) -> Result<()> {
        self.launch_with(&[])
    }

    /// Starts the server with more arguments.
    pub(crate) fn launch_with(&self, more: &[String]) -> Result<()> {
        configure(&self.keeper, Some(&self.port), &self.options.settings)?;
        let words = [&command(&self.keeper)?, more].concat();
        self.keeper.run(&words, &self.options.env, READY)
    }

    /// What the server says when it is started only to tell something.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<String> {
        configure(&self.keeper, Some(&self.port), &self.options.settings)?;
        let words = command(&self.keeper)?;
        let mut ask = self.keeper.account().command(Path::new(&words[0]));
        ask.args(&words[1..]).args(arguments).current_dir(self.keeper.data());
        host::told(&mut ask)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.keeper.data()
    }

    fn socket(&self) -> PathBuf {
        socket(&self.keeper)
    }

    /// For an ordinary user who may do everything in the database `primacy`.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The same through another port, such as that of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, port: u16) -> String {
        self.url_of(USER, port)
    }

    /// For a user who may do everything.
    pub fn admin_url(&self) -> String {
        self.url_of(ADMIN, self.port())
    }

    fn url_of(&self, user: &str, port: u16) -> String {
        let mutual = self.options.tls.as_ref().is_some_and(|tls| tls.mutual);
        let query = self.certificates.as_ref().map(|made| made.query(mutual)).unwrap_or_default();
        format!("mysql://{user}:{}@127.0.0.1:{port}/{USER}{query}", self.password)
    }

    /// The same as [`url`](Self::url) through the server's unix socket.
    pub fn unix_url(&self) -> String {
        let socket = percent_encoded(&self.socket().to_string_lossy());
        format!("mysql://{USER}:{}@127.0.0.1:{}/{USER}?socket={socket}", self.password, self.port())
    }

    /// The password of all users.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The certificates of a server with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Runs SQL as a user who may do everything, in the database of [`url`](Self::url): values with tabs between, a
    /// line for each row.
    pub fn sql(&self, sql: &str) -> Result<String> {
        client(&self.socket(), ADMIN, &self.password, sql)
    }

    /// Runs SQL as the user of [`url`](Self::url).
    pub fn sql_as_user(&self, sql: &str) -> Result<String> {
        client(&self.socket(), USER, &self.password, sql)
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

    /// Ends the server in an orderly way; [`start_again`](Self::start_again) follows.
    pub fn stop(&self) -> Result<()> {
        self.keeper.stop("TERM")
    }
}

fn socket(keeper: &Keeper) -> PathBuf {
    keeper.folder().join("socket")
}

fn command(keeper: &Keeper) -> Result<Vec<String>> {
    let server = Server::chosen()?.program().to_string_lossy().into_owned();
    let settings = keeper.folder().join("my.cnf");
    Ok(vec![server, format!("--defaults-file={}", settings.display())])
}

/// Which program of the family is started.
enum Server {
    MariaDb(PathBuf),
    MySql(PathBuf),
}

impl Server {
    fn chosen() -> Result<Self> {
        match env::var_os(MYSQL) {
            Some(path) => Ok(Self::MySql(PathBuf::from(path))),
            None => Ok(Self::MariaDb(program("mariadbd", PACKAGE)?)),
        }
    }

    fn program(&self) -> &Path {
        let (Self::MariaDb(program) | Self::MySql(program)) = self;
        program
    }

    /// Fills the data folder with what a new server has: one user, root, without a password.
    fn initialise(&self, keeper: &Keeper) -> Result<()> {
        let settings = format!("--defaults-file={}", keeper.folder().join("my.cnf").display());
        let mut create = match self {
            Self::MariaDb(_) => {
                let mut create = keeper.account().command(&program("mariadb-install-db", PACKAGE)?);
                create.args([&settings, "--auth-root-authentication-method=normal", "--skip-test-db"]);
                create.arg("--skip-name-resolve");
                create
            }
            Self::MySql(mysqld) => {
                let mut create = keeper.account().command(mysqld);
                create.args([&settings, "--initialize-insecure"]);
                create
            }
        };
        host::output(create.current_dir(keeper.data())).map(drop)
    }
}

/// Writes everything that the server reads: the machine's own settings do not count. Without a port it is reached
/// through its socket only.
fn configure(keeper: &Keeper, port: Option<&Port>, asked: &[(String, String)]) -> Result<()> {
    let mut text = String::from("[mysqld]\n");
    let mut set = |name: &str, value: &str| text += &format!("{name}={value}\n");
    if let Server::MySql(mysqld) = Server::chosen()? {
        // Where its messages are, beside the program.
        let share = mysqld.with_file_name("share").join("mysql");
        set("lc_messages_dir", &share.to_string_lossy());
        // Where an installed MariaDB keeps its own, which it cannot read, it would look first.
        set("character_sets_dir", &share.to_string_lossy());
        // Its own default is a folder that only an installed server has.
        set("secure_file_priv", "NULL");
        set("explicit_defaults_for_timestamp", "1");
    }
    set("datadir", &keeper.data().to_string_lossy());
    // A server that starts removes the temporary tables there, also those of another that runs.
    set("tmpdir", &keeper.folder().to_string_lossy());
    set("socket", &socket(keeper).to_string_lossy());
    set("pid_file", &keeper.folder().join("pid").to_string_lossy());
    match port {
        None => set("skip_networking", "1"),
        Some(port) => {
            set("bind_address", "127.0.0.1");
            set("port", &port.number().to_string());
        }
    }
    set("max_connections", "500");
    set("skip_name_resolve", "1");
    // Small, so that they are copied and created quickly.
    set("innodb_log_file_size", "8M");
    set("innodb_buffer_pool_size", "32M");
    set("performance_schema", "0");
    set("character_set_server", "utf8mb4");
    for (name, value) in asked {
        set(name, value);
    }
    keeper.account().write(&keeper.folder().join("my.cnf"), &text)
}

fn client(socket: &Path, user: &str, password: &str, sql: &str) -> Result<String> {
    let mut command = Command::new(program("mariadb", "mariadb-client")?);
    command.args(["--no-defaults", "--batch", "--skip-column-names", "--protocol=socket", "--connect-timeout=30"]);
    command.arg(format!("--socket={}", socket.display())).arg(format!("--user={user}"));
    host::output(command.args([USER, "-e", sql]).env("MYSQL_PWD", password))
}

fn template(account: Account) -> Result<Template> {
    let kind = if matches!(Server::chosen()?, Server::MySql(_)) { "mysql" } else { "mariadb" };
    initialised(kind, account, &[])
}

/// An initialised data folder with the users, and the database of tests, made with these settings.
pub(crate) fn initialised(kind: &str, account: Account, settings: &[(String, String)]) -> Result<Template> {
    let server = Server::chosen()?;
    let version = host::output(Command::new(server.program()).arg("--version"))?;
    let version = version.split_whitespace().nth(2).unwrap_or("unknown");
    Template::get(kind, version, account, |keeper, password| {
        configure(keeper, None, &[])?;
        server.initialise(keeper)?;
        let sql = keeper.folder().join("sql");
        let mut statements = format!("CREATE DATABASE {USER};\n");
        for host in ["localhost", "127.0.0.1"] {
            statements += &format!(
                "CREATE USER {USER}@'{host}' IDENTIFIED BY '{password}';
                 CREATE USER {ADMIN}@'{host}' IDENTIFIED BY '{password}';
                 GRANT ALL ON `{USER}%`.* TO {USER}@'{host}';
                 GRANT ALL ON *.* TO {ADMIN}@'{host}' WITH GRANT OPTION;\n"
            );
        }
        statements += "DROP USER root@localhost;\n";
        account.write(&sql, &statements)?;
        let init = ("init_file".to_string(), sql.to_string_lossy().into_owned());
        configure(keeper, None, &[settings, &[init]].concat())?;
        keeper.run(&command(keeper)?, &[], READY)?;
        keeper.stop("TERM")
    })
}
