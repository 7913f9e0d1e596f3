//! What `PRIMACY_LOG` says of the log.

use tracing_subscriber::EnvFilter;

use crate::foreign_text::shorten;

/// The filter in `PRIMACY_LOG`, if there is one, or why it is none.
pub(crate) fn from_environment() -> Result<Option<EnvFilter>, String> {
    let Some(text) = std::env::var_os("PRIMACY_LOG").filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    let filter = if text.split(',').any(|word| word.trim_start().starts_with('=')) {
        Err("a level without a target".to_owned())
    } else {
        EnvFilter::try_new(&text).map_err(|error| error.to_string())
    };
    let shown = shorten(&text, 60);
    filter.map(Some).map_err(|why| {
        format!("'{shown}' is no value for PRIMACY_LOG: {why}; write a filter such as primacy=debug, or unset it")
    })
}
