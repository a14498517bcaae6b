//! The servers that run tasks, and the groups of tasks, over HTTP: on which machines tasks run, and how many of them at a time. The JSON
//! fields are documented in `docs/protocols/http.md`, "Tasks".

use crate::call::Call;
use crate::lease::turn_of;
use crate::problem::Problem;
use crate::route::{Body, Docs, Json, Query, Route};
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::dispatch::{
    GroupView, Host, Outage, Pause, Remote, Server as Kept, ServerChange, ServerView,
};
use sexton::actors::lock::Name;
use sexton::actors::process::{Output, RecordView};
use sexton::clock::{Offset, Timestamp};
use sexton::handle::TaskError;
use sexton::ids::ProcessId;
use sexton::refusal::Reason;
use sexton_api::name::{GroupName, ServerName};
use sexton_api::value::Number;

/// The path to which inventories are posted. It accepts larger requests than most paths.
pub(crate) const INVENTORY: &str = "/v1/servers/inventory";

#[expect(clippy::too_many_lines, reason = "a table of routes")]
pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Disabled, DiskFull, Draining, Failed, Field, Full};
    vec![
        Route::get(
            "/v1/servers",
            Scope::Read,
            list,
            Docs {
                id: "list_servers",
                summary: "List the servers that run tasks",
                more: "Sorted by name.",
                answer: "Servers.",
            },
            &[Failed],
        ),
        Route::post(
            "/v1/servers/set",
            Scope::Run,
            set,
            Docs {
                id: "set_server",
                summary: "Add a server, set its threads, or enable or disable it",
                more: "A server that does not exist is added if `threads` is given. A disabled server stays disabled until another request to this path enables it.",
                answer: "The change has been made.",
            },
            &[Absent, Full, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/servers/reach",
            Scope::Run,
            reach,
            Docs {
                id: "reach_server",
                summary: "Add another machine as a server, or set how it is reached",
                more: "Attempts are run on that machine by `sexton wrapper`, over ssh. Attempts that are already running continue unchanged.",
                answer: "The change has been made.",
            },
            &[Full, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/servers/remove",
            Scope::Run,
            remove,
            Docs {
                id: "remove_server",
                summary: "Remove a server",
                more: "Attempts running on the server are stopped. Whether their tasks fail or continue on other servers depends on `abort_on_failure`, and on whether the attempts have saved anything.",
                answer: "The change has been made.",
            },
            &[Absent, Failed],
        ),
        Route::post(
            INVENTORY,
            Scope::Run,
            inventory,
            Docs {
                id: "update_servers",
                summary: "Make the servers match an inventory",
                more: "Adds new servers, removes missing ones, and sets the number of threads from `max_procs`. Servers that an operator has disabled are left unchanged, whether or not they are in the inventory. What is run to reach other machines is no part of `hosts`: `config` and `program` are for all of them.",
                answer: "The changes.",
            },
            &[Full, DiskFull, Failed],
        ),
        Route::post(
            "/v1/servers/refresh",
            Scope::Run,
            refresh,
            Docs {
                id: "refresh_servers",
                summary: "Refresh the list of servers",
                more: "Meant for scripts that notice that a server has come online or gone offline. Requests a pass of the lease `server-refresh`, whose command supplies an inventory. Answers 404 if that lease does not exist.",
                answer: "When the servers will be refreshed.",
            },
            &[Absent, Disabled, Draining, Field, Full, DiskFull, Failed],
        ),
        Route::get(
            "/v1/tasks/groups",
            Scope::Read,
            groups,
            Docs {
                id: "list_task_groups",
                summary: "List the groups of tasks",
                more: "A group is listed if it has tasks that are under way or could begin, or settings of its own.",
                answer: "Groups.",
            },
            &[Failed],
        ),
        Route::post(
            "/v1/tasks/limit",
            Scope::Run,
            limit,
            Docs {
                id: "limit_task_group",
                summary: "Set how many tasks of a group may be under way at a time",
                more: "A task is under way from its first burst to its last, including the waits between them. With 0, no task is started.",
                answer: "The change has been made.",
            },
            &[Full, DiskFull, Failed],
        ),
    ]
}

/// The scope of a pause.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "TaskPause")]
pub(crate) enum TaskPause {
    /// Nothing is held back.
    Off,
    /// Tasks that have not started are held back.
    Soft,
    /// Every burst is held back.
    Hard,
}

impl From<Pause> for TaskPause {
    fn from(pause: Pause) -> Self {
        match pause {
            Pause::Off => Self::Off,
            Pause::Soft => Self::Soft,
            Pause::Hard => Self::Hard,
        }
    }
}

/// Confirms a change.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Confirmation {
    /// Always true.
    done: bool,
}

impl Confirmation {
    pub(crate) const fn done() -> Json<Self> {
        Json(Self { done: true })
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NoFilter")]
pub(crate) struct Nothing {}

/// How a server that is another machine is reached.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TaskServerSsh")]
pub(crate) struct Ssh {
    /// The ssh destination: `HOST`, `USER@HOST`, `ssh://USER@HOST:PORT`, or a host alias from the ssh configuration.
    #[schemars(extend("minLength" = 1))]
    to: Name,
    /// The configuration file for ssh, if not the default.
    #[serde(default)]
    config: Name,
    /// The path of `sexton` on that machine, if not the one in that machine's `PATH`.
    #[serde(default)]
    program: Name,
}

impl From<Ssh> for Remote {
    fn from(it: Ssh) -> Self {
        Self { to: it.to, config: it.config, program: it.program }
    }
}

impl From<Remote> for Ssh {
    fn from(it: Remote) -> Self {
        Self { to: it.to, config: it.config, program: it.program }
    }
}

/// A server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskServer")]
pub(crate) struct Server {
    #[serde(flatten)]
    name: ServerName,
    /// The number of threads, which is the maximum number of attempts that run on the server at a time.
    threads: u32,
    /// The number of threads in use.
    used: u32,
    /// Whether the server accepts tasks.
    enabled: bool,
    /// Whether the server was removed while attempts were running on it. It stays listed until the last of them has ended.
    leaves: bool,
    /// How the server is reached over ssh; absent if it is the coordinator's own machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    ssh: Option<Ssh>,
    /// The failures to reach the server since it was last reached; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<ServerOutage>,
}

/// The failures to reach a server since it was last reached. Tasks are assigned to the server only if no other has a free thread, one at a
/// time, and not before `retry_at`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskServerOutage")]
pub(crate) struct ServerOutage {
    /// How many times the server could not be reached.
    failures: u32,
    /// When that was first noticed, in milliseconds since 1970.
    since_at: Timestamp,
    /// When it was last noticed, in milliseconds since 1970.
    latest_at: Timestamp,
    /// When the server may be tried again, in milliseconds since 1970.
    retry_at: Timestamp,
    /// The id of the process that tried last.
    process: String,
    /// The last line of what that process wrote to its standard error, such as the message of ssh; absent if there is none, if its record
    /// was removed, or if the caller may not see processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The longest `reason` of an outage, in characters.
const REASON_CHARS_MAX: usize = 200;

impl ServerOutage {
    fn of(it: Outage, records: &[RecordView], offset: Offset) -> Self {
        let date = |at: Timestamp| Timestamp(offset.date(at).0);
        let record = records.iter().find(|record| record.id == it.process);
        let left = record.and_then(|it| it.remains.as_ref());
        Self {
            failures: it.failures,
            since_at: date(it.since),
            latest_at: date(it.latest),
            retry_at: date(it.retry),
            process: it.process.to_string(),
            reason: left.and_then(|it| last_line(&it.stderr)),
        }
    }
}

/// Returns the last line of output that is not empty.
fn last_line(output: &Output) -> Option<String> {
    let ends = [output.tail(), output.head()];
    let end = ends.into_iter().find(|it| !it.is_empty())?;
    let text = String::from_utf8_lossy(end);
    let mut lines = text.lines().rev().map(str::trim);
    let line = lines.find(|line| !line.is_empty())?;
    let plain = line.chars().filter(|it| !it.is_control());
    Some(plain.take(REASON_CHARS_MAX).collect())
}

impl Server {
    fn of(it: ServerView, records: &[RecordView], offset: Offset) -> Self {
        let outage = it.outage.map(|it| ServerOutage::of(it, records, offset));
        Self {
            outage,
            name: ServerName { server: it.name },
            threads: it.threads,
            used: it.used,
            enabled: it.enabled,
            leaves: it.leaves,
            ssh: it.remote.map(Into::into),
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskServers")]
pub(crate) struct Servers {
    servers: Vec<Server>,
}

async fn list(call: &Call, Query(_): Query<Nothing>) -> Result<Json<Servers>, Problem> {
    let servers = call.node.tasks().servers().await?;
    let failed = servers.iter().filter_map(|it| it.outage);
    let ids: Vec<ProcessId> = failed.filter(|_| call.may_run()).map(|it| it.process).collect();
    let records =
        if ids.is_empty() { Vec::new() } else { call.node.processes().each(&ids).await? };
    let offset = call.node.offset();
    let servers = servers.into_iter();
    let servers = servers.map(|it| Server::of(it, &records, offset)).collect();
    Ok(Json(Servers { servers }))
}

/// Converts the error of a request about a server.
fn of_server(error: TaskError) -> Problem {
    Problem::from(error).naming("server")
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "SetServer")]
pub(crate) struct Setting {
    /// The name of the server.
    #[schemars(extend("minLength" = 1))]
    server: Name,
    /// The maximum number of attempts that run on the server at a time; unchanged if left out.
    threads: Option<Number<u32, 1, { Kept::THREADS_MAX as u64 }>>,
    /// Whether the server accepts tasks; unchanged if left out.
    enabled: Option<bool>,
}

async fn set(call: &Call, Body(asked): Body<Setting>) -> Result<Json<Confirmation>, Problem> {
    let tasks = call.node.tasks();
    if asked.threads.is_none() && asked.enabled.is_none() {
        return Err(Problem::field("threads", "or enabled is required"));
    }
    if let Some(threads) = asked.threads {
        let change = ServerChange::Threads(threads.0);
        let done = tasks.server(asked.server.clone(), change).await;
        done.map_err(of_server)?;
    }
    if let Some(enabled) = asked.enabled {
        tasks.server(asked.server, ServerChange::Enabled(enabled)).await.map_err(of_server)?;
    }
    Ok(Confirmation::done())
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ReachServer")]
pub(crate) struct Reaching {
    /// The name of the server.
    #[schemars(extend("minLength" = 1))]
    server: Name,
    /// The maximum number of attempts that run on the server at a time.
    threads: Number<u32, 1, { Kept::THREADS_MAX as u64 }>,
    /// How the server is reached.
    ssh: Ssh,
}

async fn reach(call: &Call, Body(asked): Body<Reaching>) -> Result<Json<Confirmation>, Problem> {
    let change = ServerChange::Reached { threads: asked.threads.0, remote: asked.ssh.into() };
    let done = call.tasks().server(asked.server, change).await;
    done.map_err(of_server)?;
    Ok(Confirmation::done())
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "RemoveServer")]
pub(crate) struct Removing {
    /// The name of the server.
    #[schemars(extend("minLength" = 1))]
    server: Name,
}

async fn remove(call: &Call, Body(asked): Body<Removing>) -> Result<Json<Confirmation>, Problem> {
    let tasks = call.tasks();
    let done = tasks.server(asked.server, ServerChange::Removed).await;
    done.map_err(of_server)?;
    Ok(Confirmation::done())
}

/// A server in an inventory.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "InventoryHost")]
pub(crate) struct InventoryHost {
    /// The server's name.
    #[schemars(extend("minLength" = 1))]
    host: Name,
    /// The maximum number of attempts that run on the server at a time; 0 counts as 1.
    #[serde(default)]
    max_procs: Number<u32, 0, { Kept::THREADS_MAX as u64 }, 1>,
    /// How the server is reached, if it is another machine. If left out, an existing server's setting is unchanged.
    ssh: Option<InventorySsh>,
}

/// How a server of an inventory is reached that is another machine. An inventory is often somebody else's document, so it does not say what
/// is run for that.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InventorySsh")]
pub(crate) struct InventorySsh {
    /// The ssh destination: `HOST`, `USER@HOST`, `ssh://USER@HOST:PORT`, or a host alias from the ssh configuration.
    #[schemars(extend("minLength" = 1))]
    to: Name,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "UpdateServers")]
pub(crate) struct Inventory {
    /// All servers, at most 10,000.
    hosts: Vec<InventoryHost>,
    /// The configuration file for ssh, if not the default, for all servers that have `ssh`. It can run any command, so it is not part of the
    /// list.
    #[serde(default)]
    config: Name,
    /// The path of `sexton` on these machines, if not the one in their `PATH`.
    #[serde(default)]
    program: Name,
    /// Whether to report what would change without changing it.
    #[serde(default)]
    check: bool,
}

/// The changes that an inventory made or, with `check`, would make.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Updated {
    /// The number of servers that were added.
    added: u32,
    /// The number of servers that were removed.
    removed: u32,
    /// The number of servers whose settings changed.
    changed: u32,
}

async fn inventory(call: &Call, Body(asked): Body<Inventory>) -> Result<Json<Updated>, Problem> {
    let hosts = asked.hosts.into_iter().map(|it| Host {
        name: it.host,
        threads: it.max_procs.0,
        remote: it.ssh.map(|ssh| Remote {
            to: ssh.to,
            config: asked.config.clone(),
            program: asked.program.clone(),
        }),
    });
    let tasks = call.node.tasks();
    let came = tasks.inventory(hosts.collect(), asked.check).await?;
    Ok(Json(Updated { added: came.added, removed: came.removed, changed: came.changed }))
}

/// When the servers will be refreshed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Refreshing {
    /// `current`: now; `next`: when the lease is free and the period of its last pass is over; `not-needed`: by the pass of another
    /// request, which is already next; `no-delay`: not at all, because the lease is not free and its requests do not wait.
    turn: &'static str,
}

async fn refresh(call: &Call, (): ()) -> Result<Json<Refreshing>, Problem> {
    let requested = call.node.refresh_servers().await;
    // The request does not name the lease.
    let requested = requested.map_err(|error| Problem::new(error.reason(), error.to_string()))?;
    let turn = turn_of(&requested, &requested.lease);
    Ok(Json(Refreshing { turn }))
}

/// A group of tasks.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskGroup")]
pub(crate) struct Group {
    #[serde(flatten)]
    name: GroupName,
    /// The maximum number of the group's tasks under way at a time.
    max: u32,
    /// The number of the group's tasks that are under way.
    used: u32,
    /// The group's own pause. The pause of all tasks applies in addition.
    pause: TaskPause,
    /// The number of the group's tasks that could begin their next burst if a thread were free and no limit or pause prevented it.
    ready: u32,
}

impl From<GroupView> for Group {
    fn from(it: GroupView) -> Self {
        Self {
            name: GroupName { group: it.name },
            max: it.max,
            used: it.used,
            pause: it.pause.into(),
            ready: it.ready,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskGroups")]
pub(crate) struct Groups {
    /// The groups, sorted by name; only the first 1,000 if there are more.
    groups: Vec<Group>,
    /// The pause of all tasks, which applies in addition to those of the groups.
    pause: TaskPause,
}

async fn groups(call: &Call, Query(_): Query<Nothing>) -> Result<Json<Groups>, Problem> {
    let tasks = call.node.tasks();
    let groups = tasks.groups().await?.into_iter().map(Into::into).collect();
    let pause = tasks.totals().await?.pause.into();
    Ok(Json(Groups { groups, pause }))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "LimitTaskGroup")]
pub(crate) struct Limiting {
    /// The name of the group.
    group: Name,
    /// The maximum number of the group's tasks under way at a time.
    max: u32,
}

async fn limit(call: &Call, Body(asked): Body<Limiting>) -> Result<Json<Confirmation>, Problem> {
    let tasks = call.tasks();
    tasks.limit(asked.group, asked.max).await?;
    Ok(Confirmation::done())
}
