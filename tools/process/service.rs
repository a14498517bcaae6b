//! `sexton service`: services of a running coordinator.

use crate::client::{self, Fields, Where, fields};
use crate::process::logs;
use crate::process::request::ClientOptions;
use crate::process::service_page;
use crate::report::{Failure, print, shows_whole};
use crate::span::{SPAN, seconds};
use crate::text::{number, plain, words};
use clap::{Args, Subcommand};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use sexton::clock::{Clock as _, SystemClock, Timestamp};
use std::path::Path;
use std::time::Duration;

/// Show services, and start, stop and restart them
///
/// A service is a program that the coordinator keeps running as long as the file given to `sexton serve --config` has a table
/// [services.NAME] for it. When the program ends, it is launched again.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sexton service                     the status of all services
  sexton service restart web         replace its process, and wait until the new one runs
  sexton service stop worker         stop it until it is started, even if the coordinator restarts
  sexton service logs web --follow   its output, as it is written
  sexton service reload              reload the configuration; unchanged services are not touched

Exit status: 0 success; 1 there is no such service, or it is not in the requested state in time; 2 wrong flags; 3 no \
coordinator runs there."
)]
pub(crate) struct Service {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    at: Where,

    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Show the status of all services, as `sexton service` does
    List,
    /// Show the status of services
    ///
    /// RESTARTS is the number of times that a process was launched again within the last `period`, which the service's table sets (a
    /// minute by default). The count is reset when the service is started, stopped, restarted or changed.
    Status {
        /// Only these services, with the full reason for their state
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Start services, including failed ones
    Start(Acting),
    /// Stop services until they are started again; each is stopped before the services that it needs
    Stop(Acting),
    /// Replace the processes of services with new ones
    Restart(Acting),
    /// Show the output of a service
    Logs(Reading),
    /// Reload the coordinator's configuration, as SIGHUP does
    ///
    /// If the new configuration cannot be used, prints why; the old settings then stay in force.
    Reload,
}

#[derive(Args)]
struct Acting {
    /// Names of the services
    #[arg(value_name = "NAME", required_unless_present = "all")]
    names: Vec<String>,

    /// All services
    #[arg(long, conflicts_with = "names")]
    all: bool,

    /// How long to wait until the services are in the requested state; with 0, does not wait
    #[arg(long, value_name = SPAN, value_parser = seconds(0, 3600), default_value = "60")]
    wait: u64,
}

#[derive(Args)]
struct Reading {
    /// The service
    name: String,

    /// The number of the process, if the service has several
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    instance: u64,

    #[command(flatten)]
    how: logs::OutputOptions,
}

impl Service {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions::at(&self.at, self.json)?;
        match self.action {
            None | Some(Action::List) => status(&options, &[]),
            Some(Action::Status { names }) => status(&options, &names),
            Some(Action::Start(acting)) => acting.carry_out(&options, "start"),
            Some(Action::Stop(acting)) => acting.carry_out(&options, "stop"),
            Some(Action::Restart(acting)) => acting.carry_out(&options, "restart"),
            Some(Action::Logs(reading)) => reading.show(&options),
            Some(Action::Reload) => reload(&options),
        }
    }
}

fn show(options: &ClientOptions, services: &[Value], whole: bool) -> Result<(), Failure> {
    if options.json {
        return print(&format!("{}\n", json!({ "services": services })));
    }
    let now = SystemClock::starting_at(Timestamp(0)).wall().0;
    print(&service_page::list(services, now, whole || shows_whole()))
}

fn all(mut body: Value) -> Vec<Value> {
    match body.pointer_mut("/services").map(Value::take) {
        Some(Value::Array(all)) => all,
        Some(_) | None => vec![body],
    }
}

fn status(options: &ClientOptions, names: &[String]) -> Result<(), Failure> {
    if names.is_empty() {
        return show(options, &all(options.services(None)?), false);
    }
    let mut found = Vec::new();
    for name in names {
        found.extend(all(options.services(Some(name))?));
    }
    show(options, &found, true)
}

impl Acting {
    fn carry_out(self, options: &ClientOptions, what: &str) -> Result<(), Failure> {
        let before = all(options.services(None)?);
        self.check(&before)?;
        let found = self.request(options, what)?;
        show(options, &found, !self.all)?;
        let well: &[&str] = match what {
            "stop" => &["stopped", "finished", "failed"],
            _ => &["running", "finished"],
        };
        let is_well = |it: &Value| {
            let status = it.pointer("/status").and_then(Value::as_str);
            let wanted = it.pointer("/wanted") == Some(&Value::Bool(true));
            (what != "stop" && !wanted) || status.is_some_and(|status| well.contains(&status))
        };
        match found.iter().find(|it| !is_well(it)) {
            Some(other) if self.wait > 0 => Err(failure(other, &before)),
            Some(_) | None => Ok(()),
        }
    }

    /// Fails if one of the names is not that of a configured service, so that a misspelled name changes nothing.
    fn check(&self, services: &[Value]) -> Result<(), Failure> {
        let is_there = |name: &&String| {
            services.iter().any(|it| {
                it.pointer("/name").and_then(Value::as_str) == Some(name.as_str())
                    && it.pointer("/configured") != Some(&Value::Bool(false))
            })
        };
        match self.names.iter().find(|name| !is_there(name)) {
            Some(unknown) => {
                let words = format!("not done: {}: no service has this name", plain(unknown));
                Err(Failure::found(words).help(
                    "`sexton service` shows the services; [services.NAME] in the configuration defines one",
                ))
            }
            None => Ok(()),
        }
    }

    /// Requests the change, and waits for it. Returns the services concerned.
    fn request(&self, options: &ClientOptions, what: &str) -> Result<Vec<Value>, Failure> {
        let asked = |name: Option<&str>| -> Fields { fields([("name", name.into())]) };
        if self.all {
            return Ok(all(options.serve(what, asked(None), self.wait)?));
        }
        // Request every change first, so that the services start in parallel, then wait for each.
        let told = self.names.len() > 1;
        for name in self.names.iter().filter(|_| told) {
            options.serve(what, asked(Some(name)), 0)?;
        }
        // The second request only waits. Another `restart` would replace the new process, so it is a `start`.
        let again = if told && what == "restart" { "start" } else { what };
        let mut found = Vec::new();
        for name in &self.names {
            found.extend(all(options.serve(again, asked(Some(name)), self.wait)?));
        }
        Ok(found)
    }
}

/// Describes why a service is not in the requested state. If a process of it has ended since `before`, the state of the services before
/// the request, that is the reason.
fn failure(service: &Value, before: &[Value]) -> Failure {
    let [name, status] = ["/name", "/status"].map(|path| words(service, path));
    let instances = service.pointer("/instances").and_then(Value::as_array);
    let instances = instances.map(Vec::as_slice).unwrap_or_default();
    // The status of a service is the worst one of its instances.
    let worst = instances.iter().find(|it| words(it, "/status") == status);
    let Some(worst) = worst else {
        return Failure::found(format!("{name} is {status}"));
    };
    let output = format!("`sexton service logs {name} --stderr` shows its output");
    let cause = worst.pointer("/last/failure/words").and_then(Value::as_str);
    match (status.as_str(), cause) {
        ("failed", _) => {
            let about = service_page::detail(service, worst, 0, true);
            Failure::found(format!("{name} has failed: {about}")).help(output)
        }
        ("waiting", _) => {
            let others = service_page::awaited(service);
            Failure::found(format!("{name} is waiting for {others}"))
                .help("`sexton service` shows the status of each")
        }
        ("starting" | "backoff", Some(cause)) if has_ended_since(service, worst, before) => {
            // The cause of a failed `exec` does not name the program.
            let program = match words(worst, "/last/failure/step").as_str() {
                "exec" => format!("{}: ", words(service, "/command/0")),
                _ => String::new(),
            };
            let words = format!("{name} could not be started: {program}{}", plain(cause));
            Failure::found(words)
                .help("correct its table in the configuration, and run `sexton service reload`")
        }
        ("starting" | "backoff", None) if has_ended_since(service, worst, before) => {
            let last = service_page::last(worst);
            let words = format!("{name} has not become ready: its last start ended ({last})");
            Failure::found(words).help(output)
        }
        _ => Failure::found(format!("{name} is {status}")),
    }
}

/// Returns whether a process of an instance has ended since `before` without a request to stop it.
fn has_ended_since(service: &Value, instance: &Value, before: &[Value]) -> bool {
    if instance.pointer("/last/stopped_by").and_then(Value::as_str) == Some("request") {
        return false;
    }
    let mut before = before.iter().filter(|it| it.pointer("/name") == service.pointer("/name"));
    let all = before.next().and_then(|it| it.pointer("/instances"));
    let mut all = all.and_then(Value::as_array).into_iter().flatten();
    let same = all.find(|it| it.pointer("/number") == instance.pointer("/number"));
    let earlier = same.and_then(|it| it.pointer("/last/process"));
    number(instance, "/restarts") > 0 || instance.pointer("/last/process") != earlier
}

impl Reading {
    fn show(&self, options: &ClientOptions) -> Result<(), Failure> {
        let service = options.services(Some(&self.name))?;
        let instances = service.pointer("/instances").and_then(Value::as_array);
        let is_it =
            |it: &&Value| it.pointer("/number").and_then(Value::as_u64) == Some(self.instance);
        let instance = instances.into_iter().flatten().find(is_it);
        let instance = instance.ok_or_else(|| {
            Failure::found(format!("{} has no process {}", self.name, self.instance))
        })?;
        let dir = instance.pointer("/run_dir").and_then(Value::as_str);
        let dir = dir.ok_or_else(|| Failure::found("the service has no output files"))?;
        let is_null = |path| instance.pointer(path).is_none_or(Value::is_null);
        let was_never_launched = is_null("/process") && is_null("/last");
        if was_never_launched && !Path::new(dir).join("stdout.log").exists() {
            let (name, status) = (plain(&self.name), words(instance, "/status"));
            let words = format!("{name} has not been launched yet: it is {status}");
            return Err(Failure::found(words).help("`sexton service status NAME` shows why, `sexton service start NAME` starts a stopped one"));
        }
        // New processes of a service append to the same files, so following them never ends.
        self.how.show(Path::new(dir), || Ok(false))
    }
}

/// Sends SIGHUP to the coordinator through a descriptor that is known to refer to it, since the coordinator reported the same PID
/// after the descriptor was opened. Then waits for the result of the reload.
fn reload(options: &ClientOptions) -> Result<(), Failure> {
    let failed = |error: rustix::io::Errno| {
        Failure::unreachable(format!("failed to signal the coordinator: {error}"))
    };
    let pid = options.pid()?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
    if options.pid()? != pid {
        return Err(Failure::unreachable("the coordinator was restarted meanwhile; try again"));
    }
    let before = reloads(&options.status()?);
    pidfd_send_signal(&pidfd, Signal::HUP).map_err(failed)?;
    let mut left = RELOAD_LOOKS;
    let status = loop {
        let status = options.status()?;
        if reloads(&status) != before {
            break status;
        }
        left -= 1;
        if left == 0 {
            return Err(Failure::unreachable(
                "the coordinator has not reloaded its configuration yet; its log will show the result",
            ));
        }
        client::rest(RELOAD_LOOK);
    };
    let problems = status.pointer("/reloaded/problems");
    let problems = problems.and_then(Value::as_array).into_iter().flatten();
    let problems: Vec<String> = problems.filter_map(Value::as_str).map(plain).collect();
    if !problems.is_empty() {
        let words = "failed to reload: the old settings stay in force";
        return Err(Failure::found(words).listing(problems));
    }
    if options.json {
        return print(&format!("{}\n", json!({"pid": Pid::as_raw(Some(pid))})));
    }
    print("the coordinator has reloaded its configuration\n")
}

/// The maximum number of checks for the result of a reload. With a pause of [`RELOAD_LOOK`] between them, they take about a minute.
const RELOAD_LOOKS: u32 = 3000;
/// The pause between two checks for the result of a reload.
const RELOAD_LOOK: Duration = Duration::from_millis(20);

/// Returns how many times the coordinator has reloaded its configuration since it started.
fn reloads(status: &Value) -> u64 {
    let count = status.pointer("/reloaded/count");
    count.and_then(Value::as_u64).unwrap_or(0)
}
