//! `primacy history`: past leaderships and why they ended.

use jiff::tz::TimeZone;

use crate::cli::HistoryArgs;
use crate::failure::Failure;
use crate::output::{Output, report};
use crate::reach::{PastLeaderships, Reach};

pub(super) async fn run(args: &HistoryArgs, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    let past = PastLeaderships::ask(reach, args.limit).await?;
    if !past.has_begun {
        return Err(Failure::refused(format!(
            "nobody has ever campaigned in the election {} in {}; see primacy list",
            reach.election(),
            reach.location()
        )));
    }
    if let Some(token) = past.known_from(args.limit) {
        output.remark(&format!(
            "the history begins with token {token}: leaderships before it, if there were any, are not known any more (the \
             last 1,000 are kept; the history of an election that was forgotten, or whose voters were replaced, begins anew)"
        ));
    }
    output.text(&report::history(&past.terms, past.current, &TimeZone::system(), output.palette))?;
    output.json(&past.history(reach, args.limit))?;
    Ok(0)
}
