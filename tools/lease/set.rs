//! `sexton lease set`: changes the settings of a lease.

use crate::lease::command::LeaseSelector;
use crate::lease::page;
use crate::lease::request::ClientOptions;
use crate::process::{command_line, here, plain, variables};
use crate::report::Failure;
use crate::span::milliseconds;
use clap::{Args, ValueEnum};
use sexton_api::lease::{self as api, Lease, SPAN_MS_MAX};
use sexton_api::process::Launch;
use sexton_api::value::Number;
use std::ffi::OsString;

/// Change a setting of a lease
///
/// The setting applies to every request for a pass; a flag of `sexton lease run` overrides it. Creates the lease if it does not
/// exist. Prints the lease and the setting; `sexton lease show` prints all settings.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton lease set sync period 5m                          no two passes begin within five minutes
  sexton lease set sync no-delay on                        requests never wait
  sexton lease set sync max-run 1h                         a pass is stopped after an hour; 0 for never
  sexton lease set nightly command -- ./backup             the command for requests without one
  sexton lease set nightly schedule \"0 3 * * *\" Europe/Berlin
  sexton lease set nightly schedule none                   no schedule
  sexton lease set nightly catch-up on                     make up for missed dates with one pass
  sexton lease set nightly logfile /var/log/nightly.log    a line at the start and end of each pass

A command set here runs in the environment of the coordinator's keeper, with the variables of --env.")]
pub(super) struct Set {
    #[command(flatten)]
    which: LeaseSelector,

    /// The setting
    #[arg(value_enum)]
    what: SettingName,

    /// The command's working directory [default: the current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,

    /// Variables to set for the command, as NAME=VALUE
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Set the command even if its arguments seem to contain a secret; they are stored unchanged, but masked when shown
    #[arg(long)]
    allow_secrets: bool,

    /// The value, according to the setting: a time span; `on` or `off`; a command; a file; or a cron expression and a time zone.
    /// `none` removes a command, file or schedule
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    value: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SettingName {
    /// The minimum time from the start of a pass to the start of the next
    Period,
    /// Whether requests never wait
    NoDelay,
    /// How long a pass may run before it is stopped; 0 for no limit
    MaxRun,
    /// Whether requests are refused
    Disabled,
    /// The command that runs on the schedule, and for requests without a command
    Command,
    /// When the coordinator requests passes by itself: a cron expression of five fields, and a time zone if not UTC
    Schedule,
    /// Whether missed dates of the schedule are made up for with one pass
    CatchUp,
    /// The file to which a line is appended when a pass begins and when it ends
    Logfile,
}

impl SettingName {
    /// Describes this setting of a lease, in one line.
    fn show(self, lease: &Lease) -> String {
        let switch = |is_on| if is_on { "on" } else { "off" }.to_owned();
        let or_none = |value: String| match value.as_str() {
            "" | "-" => NONE.to_owned(),
            _ => value,
        };
        let name = self.to_possible_value().expect("every setting should have a name");
        let value = match self {
            Self::Period => page::exact(lease.period_ms),
            Self::NoDelay => switch(lease.no_delay),
            Self::MaxRun if lease.max_run_ms == 0 => NONE.to_owned(),
            Self::MaxRun => page::exact(lease.max_run_ms),
            Self::Disabled => switch(lease.disabled),
            Self::Command => or_none(command_line(lease.command.as_deref().unwrap_or_default())),
            Self::Schedule => match or_none(page::schedule(lease)) {
                none if none == NONE => none,
                schedule => format!("{schedule}, due {}", page::date(lease.due_at)),
            },
            Self::CatchUp => switch(lease.catch_up),
            Self::Logfile => or_none(page::log_file(lease)),
        };
        format!("{} {value}", name.get_name())
    }
}

/// Parses the period of a lease, and returns it in milliseconds.
pub(super) fn period(text: &str) -> Result<u64, String> {
    let ms = milliseconds(text)?;
    if (1..=SPAN_MS_MAX).contains(&ms) {
        Ok(ms)
    } else {
        Err(format!("a period is from 1ms to 366d, not {text:?}"))
    }
}

/// Parses the time limit of a lease's passes, and returns it in milliseconds.
pub(super) fn max_run(text: &str) -> Result<u64, String> {
    let ms = milliseconds(text)?;
    if ms <= SPAN_MS_MAX {
        Ok(ms)
    } else {
        Err(format!("the time limit of a pass is from 1ms to 366d, or 0 for none, not {text:?}"))
    }
}

/// Makes the path of a log file absolute, since the coordinator has its own working directory. Fails if the path is not UTF-8.
pub(super) fn log_file(path: &str) -> Result<String, Failure> {
    let whole = here()?.join(path).into_os_string().into_string();
    whole.map_err(|_| Failure::usage("the path of a log file must be UTF-8"))
}

/// The value that removes a setting.
const NONE: &str = "none";

impl Set {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        let asked = self.setting()?;
        let existed = options.exists(&self.which.name)?;
        let answer = options.ask(&asked)?;
        options.tell(&answer, |lease| {
            let (name, setting) = (lease.name.name.to_text(), self.what.show(lease));
            let created = if existed { "" } else { " (new lease)" };
            format!("{name}{created}: {setting}\n")
        })
    }

    fn setting(&self) -> Result<api::Set, Failure> {
        let flag = self.value.iter().filter_map(|it| it.to_str());
        let flag = flag.skip(1).find(|it| it.starts_with("--"));
        if let Some(flag) = flag.filter(|_| self.what != SettingName::Command) {
            return Err(Failure::usage(format!("{flag} must come before the value"))
                .help("put flags before the name of the lease"));
        }
        if self.what != SettingName::Command
            && (self.dir.is_some() || self.allow_secrets || !self.env.is_empty())
        {
            return Err(Failure::usage(
                "--dir, --env and --allow-secrets apply only to the setting `command`",
            ));
        }
        let mut asked = api::Set::of(self.which.name.clone());
        match self.what {
            SettingName::Period => asked.period_ms = Some(Number(self.span(period)?)),
            SettingName::MaxRun => asked.max_run_ms = Some(Number(self.span(max_run)?)),
            SettingName::NoDelay => asked.no_delay = Some(self.is_on()?),
            SettingName::Disabled => asked.disabled = Some(self.is_on()?),
            SettingName::Logfile if self.value == [NONE] => asked.logfile = Some(String::new()),
            SettingName::Logfile => asked.logfile = Some(log_file(self.one()?)?),
            SettingName::CatchUp => asked.catch_up = Some(self.is_on()?),
            SettingName::Command if self.value == [NONE] => asked.no_launch = true,
            SettingName::Command => {
                let dir = here()?.join(self.dir.as_deref().unwrap_or_default());
                let env = variables(&self.env)?;
                asked.launch =
                    Some(Launch { env, ..plain(&self.value, self.allow_secrets, &dir)? });
            }
            SettingName::Schedule => {
                let words = self.words()?;
                let (schedule, zone) = match *words.as_slice() {
                    [NONE] => ("", None),
                    [expression] => (expression, None),
                    [expression, zone] => (expression, Some(zone)),
                    _ => {
                        return Err(Failure::usage(
                            "expected a cron expression as one argument, and optionally a time zone, as in \"0 3 * * *\" Europe/Berlin",
                        ));
                    }
                };
                asked.schedule = Some(schedule.to_owned());
                asked.zone = zone.map(str::to_owned);
            }
        }
        Ok(asked)
    }

    fn words(&self) -> Result<Vec<&str>, Failure> {
        let words = self.value.iter().map(|it| it.to_str());
        let words: Option<Vec<&str>> = words.collect();
        words.ok_or_else(|| Failure::usage("the value must be UTF-8"))
    }

    fn one(&self) -> Result<&str, Failure> {
        match self.words()?.as_slice() {
            [one] => Ok(one),
            _ => Err(Failure::usage("expected one value")),
        }
    }

    fn span(&self, parse: fn(&str) -> Result<u64, String>) -> Result<u64, Failure> {
        parse(self.one()?).map_err(Failure::usage)
    }

    fn is_on(&self) -> Result<bool, Failure> {
        match self.one()? {
            "on" | "true" | "yes" | "1" => Ok(true),
            "off" | "false" | "no" | "0" => Ok(false),
            other => Err(Failure::usage(format!("{other:?} is neither on nor off"))),
        }
    }
}
