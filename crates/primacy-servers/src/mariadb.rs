//! A private MariaDB server.

use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::host::{self, Account, Port, percent_encoded, program};
use crate::keeper::Keeper;
use crate::template::Template;

pub(crate) const PACKAGE: &str = "mariadb-server";
/// The user and the database of tests: everything within that database and those whose names begin with it.
const USER: &str = "primacy";
/// Who may do everything.
const ADMIN: &str = "admin";
const READY: &str = "ready for connections.";

/// How a [`MariaDb`] is set up. The default is a server with the durability of a production server.
#[derive(Clone, Debug, Default)]
pub struct MariaDbOptions {
    /// Settings of the server, such as `("innodb_lock_wait_timeout", "5")`.
    pub settings: Vec<(String, String)>,
    /// Variables for the environment of the server.
    pub env: Vec<(String, String)>,
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
}

impl MariaDb {
    /// Starts a new, empty server.
    pub fn start(options: &MariaDbOptions) -> Result<Self> {
        let account = Account::ordinary(&["mysql"])?;
        let template = template(account)?;
        let keeper = Keeper::new(account, "KILL", Some(&template.data))?;
        let server = Self { keeper, port: Port::free()?, password: template.password, options: options.clone() };
        server.launch()?;
        Ok(server)
    }

    fn launch(&self) -> Result<()> {
        configure(&self.keeper, Some(&self.port), &self.options.settings)?;
        self.keeper.run(&command(&self.keeper)?, &self.options.env, READY)
    }

    fn socket(&self) -> PathBuf {
        socket(&self.keeper)
    }

    /// Where the server listens on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// For an ordinary user who may do everything in the database `primacy`.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The same through another port, such as that of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, port: u16) -> String {
        format!("mysql://{USER}:{}@127.0.0.1:{port}/{USER}", self.password)
    }

    /// The same through the server's unix socket.
    pub fn unix_url(&self) -> String {
        format!("{}?socket={}", self.url(), percent_encoded(&self.socket().to_string_lossy()))
    }

    /// For a user who may do everything.
    pub fn admin_url(&self) -> String {
        format!("mysql://{ADMIN}:{}@127.0.0.1:{}/{USER}", self.password, self.port())
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

    /// Ends the server in an orderly way; [`start_again`](Self::start_again) follows.
    pub fn stop(&self) -> Result<()> {
        self.keeper.stop("TERM")
    }

    /// Kills the server, as a crash of its machine would.
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

    /// Stops the server's process, which keeps its connections and answers nothing until [`thaw`](Self::thaw).
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

    /// The server's process.
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

fn socket(keeper: &Keeper) -> PathBuf {
    keeper.folder().join("socket")
}

fn command(keeper: &Keeper) -> Result<Vec<String>> {
    let server = program("mariadbd", PACKAGE)?.to_string_lossy().into_owned();
    let settings = keeper.folder().join("my.cnf");
    Ok(vec![server, format!("--defaults-file={}", settings.display())])
}

/// Writes everything that the server reads: the machine's own settings do not count. Without a port it is reached
/// through its socket only.
fn configure(keeper: &Keeper, port: Option<&Port>, asked: &[(String, String)]) -> Result<()> {
    let mut text = String::from("[mariadbd]\n");
    let mut set = |name: &str, value: &str| text += &format!("{name}={value}\n");
    set("datadir", &keeper.data().to_string_lossy());
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

fn client(socket: &std::path::Path, user: &str, password: &str, sql: &str) -> Result<String> {
    let mut command = Command::new(program("mariadb", "mariadb-client")?);
    command.args(["--no-defaults", "--batch", "--skip-column-names", "--protocol=socket", "--connect-timeout=30"]);
    command.arg(format!("--socket={}", socket.display())).arg(format!("--user={user}"));
    host::output(command.args([USER, "-e", sql]).env("MYSQL_PWD", password))
}

/// An initialised data folder with the users, and the database of tests.
fn template(account: Account) -> Result<Template> {
    let version = host::output(Command::new(program("mariadbd", PACKAGE)?).arg("--version"))?;
    let version = version.split_whitespace().nth(2).unwrap_or("unknown");
    Template::get("mariadb", version, account, |keeper, password| {
        let mut create = account.command(&program("mariadb-install-db", PACKAGE)?);
        configure(keeper, None, &[])?;
        create.arg(format!("--defaults-file={}", keeper.folder().join("my.cnf").display()));
        create.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
        host::output(create.current_dir(keeper.data()))?;
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
        configure(keeper, None, &[("init_file".to_string(), sql.to_string_lossy().into_owned())])?;
        keeper.run(&command(keeper)?, &[], READY)?;
        keeper.stop("TERM")
    })
}
