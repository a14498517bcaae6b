//! Where log lines go, and in which form. A line is an event: a level, words, and fields whose names stay what they are.

use crate::report;
use crate::settings::{LogFormat, Settings};
use sexton::protocols::lockserver::DEBUG_TARGET;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

/// What the program says from now on goes to standard error, as far as it was asked for.
pub(crate) fn start(settings: &Settings) -> Filter {
    start_with(filter(settings), settings.log_format)
}

/// What is let through, and may be changed.
pub(crate) struct Filter(reload::Handle<Targets, Registry>);

impl Filter {
    /// Lets through what these settings ask for from now on.
    pub(crate) fn change(&self, settings: &Settings) {
        // It is there as long as the process is.
        drop(self.0.reload(filter(settings)));
    }
}

fn filter(settings: &Settings) -> Targets {
    let wire = if settings.debug {
        LevelFilter::DEBUG
    } else {
        LevelFilter::OFF
    };
    settings.log.clone().with_target(DEBUG_TARGET, wire)
}

/// The same for what a filter lets through.
pub(crate) fn start_with(filter: Targets, format: LogFormat) -> Filter {
    let (filter, changing) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines
            .with_ansi(report::colours())
            .with_target(false)
            .boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    // A panic inside an actor is an event like others: one line, not a dump in between.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        let words = panic
            .payload_as_str()
            .unwrap_or("a panic without a message");
        tracing::error!(place, "panicked: {words}");
    }));
    Filter(changing)
}
