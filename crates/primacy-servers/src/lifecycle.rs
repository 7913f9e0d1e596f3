//! What can be done to every server, in the same words.

/// Adds the common methods to a type with a `keeper`, a `port`, `stop` and `launch`.
macro_rules! lifecycle {
    ($server:ty) => {
        impl $server {
            /// Where the server listens on 127.0.0.1.
            pub fn port(&self) -> u16 {
                self.port.number()
            }

            /// Kills all processes of the server, as a crash of its machine would.
            pub fn kill9(&self) -> crate::Result<()> {
                self.keeper.kill()
            }

            /// Starts a server that was stopped or killed, with its data and at its port.
            pub fn start_again(&self) -> crate::Result<()> {
                self.launch()
            }

            /// Stops and starts.
            pub fn restart(&self) -> crate::Result<()> {
                self.stop()?;
                self.start_again()
            }

            /// Suspends all processes of the server. They keep their connections and answer nothing until
            /// [`thaw`](Self::thaw).
            pub fn freeze(&self) -> crate::Result<()> {
                self.keeper.signal_all("STOP").map(drop)
            }

            /// Continues after [`freeze`](Self::freeze).
            pub fn thaw(&self) -> crate::Result<()> {
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
            pub fn folder(&self) -> std::path::PathBuf {
                self.keeper.folder().to_path_buf()
            }

            /// The disk of its own that its data is on, if its options ask for one.
            pub fn disk(&self) -> Option<&crate::Disk> {
                self.keeper.disk()
            }

            /// What the server has logged so far.
            pub fn log(&self) -> String {
                self.keeper.log()
            }
        }
    };
}

pub(crate) use lifecycle;
