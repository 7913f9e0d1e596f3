//! A real Chromium that looks at the page of a process, steered by WebDriver.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use fantoccini::actions::{InputSource as _, KeyAction, KeyActions};
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::world::{PATIENCE, World};

/// A browser with one tab. It and its driver end with this value.
pub(crate) struct Browser {
    runtime: Runtime,
    client: Option<Client>,
    driver: Child,
    port: u16,
    /// The folder in which the browser keeps what it does.
    _profile: TempDir,
}

impl Browser {
    /// `None` where there is no Chromium with its driver, which is a failure under CI.
    pub(crate) fn start(world: &World) -> Option<Self> {
        let mut command = Command::new("chromedriver");
        world.mark(&mut command);
        let profile = TempDir::new().expect("a temporary folder");
        command.arg("--port=0").env("HOME", profile.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut driver = match command.stderr(Stdio::null()).spawn() {
            Ok(driver) => driver,
            Err(error) => {
                primacy_servers::skipped(&format!("chromedriver is not installed: {error}"));
                return None;
            }
        };
        let lines = BufReader::new(driver.stdout.take().expect("it is piped")).lines();
        let (tell, told) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let port = line.split_once("started successfully on port ").map(|(_, port)| port.trim_end_matches('.'));
                let _: Option<Result<(), _>> = port.map(|port| tell.send(port.parse::<u16>().expect("a port")));
            }
        });
        let port = told.recv_timeout(PATIENCE).expect("the driver says where it listens");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let folder = format!("--user-data-dir={}", profile.path().display());
        let options = json!({ "args": [
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            // It sees nothing but a page of this test, and root may have no sandbox.
            "--no-sandbox",
            "--hide-scrollbars",
            // Pictures without colours at the edges of letters are half as large.
            "--disable-lcd-text",
            "--force-device-scale-factor=1",
            "--window-size=1000,800",
            "--lang=en-GB",
            folder,
        ] });
        let mut wanted = serde_json::Map::new();
        wanted.insert("goog:chromeOptions".to_owned(), options);
        let place = format!("http://127.0.0.1:{port}");
        let client = runtime.block_on(ClientBuilder::new(HttpConnector::new()).capabilities(wanted).connect(&place));
        let browser = Self { runtime, client: Some(client.expect("a session")), driver, port, _profile: profile };
        browser.width(1000);
        Some(browser)
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("it is there until the end")
    }

    pub(crate) fn open(&self, address: SocketAddr, hash: &str) {
        self.runtime.block_on(self.client().goto(&format!("http://{address}/{hash}"))).expect("a page");
    }

    pub(crate) fn reload(&self) {
        self.runtime.block_on(self.client().refresh()).expect("the page again");
    }

    pub(crate) fn back(&self) {
        self.runtime.block_on(self.client().back()).expect("a page before");
    }

    /// What a script returns.
    pub(crate) fn run(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.runtime.block_on(self.client().execute(script, arguments)).expect("a script that runs")
    }

    /// The value of an expression.
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.run(&format!("return ({expression});"), Vec::new())
    }

    /// What a script gives to `done`.
    pub(crate) fn wait_for(&self, script: &str) -> Value {
        let script = format!("const done = arguments[arguments.length - 1]; {script}");
        self.runtime.block_on(self.client().execute_async(&script, Vec::new())).expect("a script that runs")
    }

    /// Waits until an expression is neither false nor nothing, and gives its value.
    #[track_caller]
    pub(crate) fn until(&self, expression: &str) -> Value {
        let look = format!(
            "const end = performance.now() + {};
            const look = () => {{
                let found = null;
                try {{ found = ({expression}); }} catch (error) {{ found = null; }}
                if (found || performance.now() > end) done(found); else setTimeout(look, 10);
            }};
            look();",
            PATIENCE.as_millis()
        );
        let found = self.wait_for(&look);
        let is_there = !matches!(&found, Value::Null | Value::Bool(false));
        assert!(is_there, "waited {PATIENCE:?} for {expression}; the page says: {}", self.all());
        found
    }

    /// Waits until what this element shows contains these words.
    #[track_caller]
    pub(crate) fn until_says(&self, selector: &str, words: &str) -> String {
        let says = format!(
            "(() => {{ const says = document.querySelector({}).innerText; return says.includes({}) && says; }})()",
            json!(selector),
            json!(words)
        );
        self.until(&says).as_str().unwrap_or_default().to_owned()
    }

    /// What can be read in this element; nothing if it is hidden.
    ///
    /// A row of the table has no text before the browser has drawn it (`content-visibility: auto`), which is a frame
    /// later than it is in the document: for rows, [`Self::until_says`].
    pub(crate) fn says(&self, selector: &str) -> String {
        let says = self.run(
            "const part = document.querySelector(arguments[0]); return part.checkVisibility() ? part.innerText : '';",
            vec![json!(selector)],
        );
        says.as_str().unwrap_or_default().to_owned()
    }

    /// All that can be read.
    pub(crate) fn all(&self) -> String {
        format!("{}\n{}", self.value("document.title"), self.says("body"))
    }

    pub(crate) fn click(&self, selector: &str) {
        self.runtime.block_on(async {
            self.client()
                .find(Locator::Css(selector))
                .await
                .expect("it is there")
                .click()
                .await
                .expect("it can be clicked");
        });
    }

    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        self.runtime.block_on(async {
            let field = self.client().find(Locator::Css(selector)).await.expect("it is there");
            field.clear().await.expect("it is a field");
            field.send_keys(text).await.expect("it takes keys");
        });
    }

    /// Presses keys, where the focus is.
    pub(crate) fn press(&self, keys: &[Key]) {
        let actions = keys.iter().fold(KeyActions::new("keys".to_owned()), |actions, key| {
            let value = char::from(*key);
            actions.then(KeyAction::Down { value }).then(KeyAction::Up { value })
        });
        self.runtime.block_on(self.client().perform_actions(actions)).expect("keys");
    }

    /// Types where the focus is.
    pub(crate) fn write(&self, text: &str) {
        let actions = text.chars().fold(KeyActions::new("keys".to_owned()), |actions, value| {
            actions.then(KeyAction::Down { value }).then(KeyAction::Up { value })
        });
        self.runtime.block_on(self.client().perform_actions(actions)).expect("keys");
    }

    /// A command that only Chromium knows.
    fn command(&self, command: &str, parameters: &Value) {
        let session = self.runtime.block_on(self.client().session_id()).expect("a driver").expect("a session");
        let body = json!({ "cmd": command, "params": parameters }).to_string();
        let head = format!(
            "POST /session/{session}/goog/cdp/execute HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the driver listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.write_all(format!("{head}{body}").as_bytes()).expect("it reads");
        // It leaves the connection open, and what matters is in the first line.
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status).expect("it answers");
        assert!(status.starts_with("HTTP/1.1 200"), "{command}: {status}");
    }

    fn screen(&self, width: u32, height: u32, scale: f64) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", &size);
    }

    /// As on a screen of this width.
    pub(crate) fn width(&self, width: u32) {
        self.screen(width, 800, 1.0);
    }

    /// As for somebody who likes it `dark` or `light`.
    pub(crate) fn scheme(&self, scheme: &str) {
        self.prefers("prefers-color-scheme", scheme);
    }

    /// As for somebody who has set this in their system.
    pub(crate) fn prefers(&self, what: &str, value: &str) {
        self.command("Emulation.setEmulatedMedia", &json!({ "features": [{ "name": what, "value": value }] }));
        self.until(&format!("matchMedia('({what}: {value})').matches"));
    }

    /// As while another tab is looked at, or this one again.
    pub(crate) fn look_away(&self, is_away: bool) {
        self.run(
            "Object.defineProperty(document, 'hidden', { value: arguments[0], configurable: true });
            document.dispatchEvent(new Event('visibilitychange'));",
            vec![json!(is_away)],
        );
    }

    /// What can be seen, as a small PNG.
    pub(crate) fn picture(&self) -> Vec<u8> {
        self.screen(1000, 900, 0.75);
        let picture = self.runtime.block_on(self.client().screenshot()).expect("a picture");
        self.width(1000);
        picture
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            // The browser ends with its session.
            let _ = self.runtime.block_on(client.close());
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
