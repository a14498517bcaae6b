//! SIGHUP: reloads the configuration and the files it names, and logs what took effect and what did not.

use crate::log::Filter;
use crate::settings::{Effective, Entry, ParsedFlags};
use sexton::actors::Rules;
use sexton::actors::dispatch;
use sexton::config::Config;
use sexton::node::Node;
use sexton_wire::lockserver;

/// The settings in force since startup or the last reload, and what is needed to reload them.
pub(crate) struct Reload {
    given: ParsedFlags,
    filter: Filter,
    entries: Vec<Entry>,
    rules: Rules,
}

impl Reload {
    pub(crate) fn new(
        given: ParsedFlags,
        filter: Filter,
        (entries, rules): (Vec<Entry>, Rules),
    ) -> Self {
        Self { given, filter, entries, rules }
    }

    /// Reloads everything. If a file cannot be read, its old values stay in force. The problems are shown in the node's status.
    pub(crate) async fn reload(&mut self, node: &Node) {
        let mut problems = Vec::new();
        problems.extend(self.reload_settings(node).await);
        if let Some(listener) = node.listener::<lockserver::Listener>() {
            problems.extend(reloaded("hosts list", listener.reload_hosts()));
        }
        if let Some(listener) = sexton_http::listener(node) {
            problems.extend(reloaded("token file", listener.reload_token()));
            problems.extend(reloaded("TLS certificate", listener.reload_identity()));
        }
        node.handle().note_reload(problems);
    }

    /// Reloads the settings. Services, rules of tasks and the log filter take effect immediately. For other settings that differ
    /// from those in force, every reload logs that they need a restart. Returns a message if the settings or the services could not be
    /// reloaded.
    async fn reload_settings(&mut self, node: &Node) -> Option<String> {
        let Effective { settings, node: read, entries, .. } = match self.given.settle() {
            Ok(effective) => effective,
            Err(failure) => {
                let words = failure.whole();
                tracing::error!("failed to reload; the old settings stay in force: {words}");
                return Some(words);
            }
        };
        let mut waiting = Vec::new();
        for entry in entries {
            let Some(old) = self.entries.iter_mut().find(|old| old.key == entry.key) else {
                continue;
            };
            if old.values == entry.values {
                continue;
            }
            if ["log", "debug"].contains(&entry.key.as_str()) {
                *old = entry;
                self.filter.change(&settings);
                tracing::info!("{} changed and is in force", old.key);
            } else {
                waiting.push(format!("{} ({})", entry.key, entry.source));
            }
        }
        if read.rules.queue.types != self.rules.queue.types {
            waiting.push("the tables of [queues]".to_owned());
        }
        self.reload_tasks(node, read.rules.dispatch).await;
        let problem = reload_services(node, read).await;
        if waiting.is_empty() {
            tracing::info!("settings reloaded");
        } else {
            tracing::warn!("these settings changed and need a restart: {}", waiting.join(", "));
        }
        problem
    }

    /// Applies the table `[tasks]`, if it has changed, to tasks that are added from now on.
    async fn reload_tasks(&mut self, node: &Node, read: dispatch::Rules) {
        if read == self.rules.dispatch {
            return;
        }
        match node.handle().tasks().set_rules(read).await {
            Ok(()) => {
                self.rules.dispatch = read;
                tracing::info!("the table [tasks] changed and is in force");
            }
            // The settings have been validated, so this fails only if the node has ended.
            Err(error) => tracing::error!(%error, "failed to reload the table [tasks]"),
        }
    }
}

/// Applies the services of the configuration. Only services that differ are started, stopped or replaced. Returns a message if that
/// fails.
async fn reload_services(node: &Node, read: Config) -> Option<String> {
    let configured = node.handle().services().configure(read.services).await;
    let Err(error) = configured else {
        tracing::info!("services reloaded");
        return None;
    };
    tracing::error!(%error, "failed to reload; the old services stay in force");
    Some(format!("the old services stay in force: {error}"))
}

fn reloaded<E: std::fmt::Display>(
    what: &'static str,
    changed: Result<Option<bool>, E>,
) -> Option<String> {
    match changed {
        Ok(None) => {}
        Ok(Some(true)) => tracing::info!("the {what} changed and is in force"),
        Ok(Some(false)) => tracing::info!("the {what} is unchanged"),
        Err(error) => {
            tracing::error!(%error, "failed to reload; the old {what} stays in force");
            return Some(format!("the old {what} stays in force: {error}"));
        }
    }
    None
}
