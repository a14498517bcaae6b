//! Sets up logging to standard error. A log line is an event: a level, a message, and fields with stable names.

use crate::report;
use crate::settings::{LogFormat, Settings};
use sexton::protocols::lockserver::DEBUG_TARGET;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

/// Starts logging to standard error, with the filter and format of `settings`.
pub(crate) fn start(settings: &Settings) -> Filter {
    start_with(filter(settings), settings.log_format)
}

/// The filter in force, which can be changed later.
pub(crate) struct Filter(reload::Handle<Targets, Registry>);

impl Filter {
    /// Replaces the filter with that of `settings`.
    pub(crate) fn change(&self, settings: &Settings) {
        // Fails only if the subscriber was dropped, but it lives as long as the process.
        drop(self.0.reload(filter(settings)));
    }
}

fn filter(settings: &Settings) -> Targets {
    let wire = if settings.debug { LevelFilter::DEBUG } else { LevelFilter::OFF };
    settings.log.clone().with_target(DEBUG_TARGET, wire)
}

/// Starts logging with `filter` and `format`.
pub(crate) fn start_with(filter: Targets, format: LogFormat) -> Filter {
    let (filter, changing) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(report::colours()).with_target(false).boxed(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    // Log each panic as an event, in one line, instead of the several lines that the default hook prints.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let words = panic.payload_as_str().unwrap_or("(no message)");
        tracing::error!(place, "panicked: {words}");
    }));
    Filter(changing)
}
