//! A panic ends the process: its warden finds it dead, and gives back what it held.

/// The thread whose panics end nothing but a request: the one that serves HTTP.
pub(crate) const SPARED_THREAD: &str = "primacy-http";

/// From now on a panic ends the process at once, but for one of the [`SPARED_THREAD`]. If it only ended its thread or its task, the
/// process could keep what nobody works with any more; and nothing may unwind through a leadership, which would release it while the
/// work goes on.
pub(crate) fn end_the_process() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        if std::thread::current().name() != Some(SPARED_THREAD) {
            std::process::abort();
        }
    }));
}
