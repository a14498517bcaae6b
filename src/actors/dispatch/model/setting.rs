//! Settings that operators change (pauses, groups and servers), and inventories.

use super::{ApplyResult, Model, count, free_slot};
use sexton::actors::dispatch::{
    Cause, Group, Host, Pause, Refused, Remote, Reply, Server, ServerChange,
};
use sexton::actors::lock::Name;
use sexton::ids::Slot;

/// The maximum number of threads of a server.
const THREADS_MAX: u32 = 10_000;

/// Refuses a destination that is empty, or that ssh could take for an option or a shell for syntax.
fn check_remote(remote: Option<&Remote>) -> Result<(), Refused> {
    let Some(remote) = remote else {
        return Ok(());
    };
    let to = remote.to.to_text();
    let is_strange = |it: char| !it.is_ascii_alphanumeric() && !"._-@:/[]%".contains(it);
    if to.is_empty() || to.starts_with('-') || to.contains(is_strange) {
        return Err(Refused::Remote);
    }
    Ok(())
}

const UNCHANGED: ApplyResult = Ok((Reply::Done, false));
const CHANGED: ApplyResult = Ok((Reply::Done, true));

impl Model {
    pub(super) fn pause(&mut self, group: Option<&Name>, pause: Pause) -> ApplyResult {
        if let Some(group) = group {
            return self.set_group(group, None, Some(pause));
        }
        let before = std::mem::replace(&mut self.state.pause, pause);
        Ok((Reply::Done, before != pause))
    }

    /// Returns the limit and the pause of a group: its own settings, or the defaults.
    pub(super) fn group(&self, name: &Name) -> (u32, Pause) {
        let (max, pause) = self.set_of(name);
        (max.unwrap_or(self.rules.group_max), pause)
    }

    /// Returns a group's own limit, if it has one, and its own pause.
    fn set_of(&self, name: &Name) -> (Option<u32>, Pause) {
        let set = self.state.groups.iter().find(|it| it.name == *name);
        set.map_or((None, Pause::Off), |it| (it.max, it.pause))
    }

    pub(super) fn set_group(
        &mut self,
        name: &Name,
        max: Option<u32>,
        pause: Option<Pause>,
    ) -> ApplyResult {
        let default = Name::try_from(Group::DEFAULT).expect("the name is short");
        let name = if *name == Name::default() { &default } else { name };
        let before = self.set_of(name);
        let groups = &mut self.state.groups;
        let is_known = groups.iter().any(|it| it.name == *name);
        if !is_known && groups.len() >= self.rules.groups_max as usize {
            return Err(Refused::GroupsFull);
        }
        let (max, pause) = (max.or(before.0), pause.unwrap_or(before.1));
        if (max, pause) == before {
            return UNCHANGED;
        }
        groups.retain(|it| it.name != *name);
        let name = name.clone();
        groups.push(Group { name, max, pause });
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        CHANGED
    }

    pub(super) fn change_server(&mut self, name: &Name, change: &ServerChange) -> ApplyResult {
        let here = self.named_server(name).filter(|(_, it)| !it.leaves);
        let here = here.map(|(slot, it)| (slot, it.clone()));
        let (threads, remote) = match change {
            ServerChange::Threads(threads) => (*threads, None),
            ServerChange::Reached { threads, remote } => (*threads, Some(remote)),
            ServerChange::Enabled(_) | ServerChange::Removed => (1, None),
        };
        if threads == 0 || threads > THREADS_MAX {
            return Err(Refused::Threads);
        }
        match (change, here) {
            (ServerChange::Threads(_) | ServerChange::Reached { .. }, None) => {
                self.check_new(name, remote, 0)?;
                self.make_server(name, threads, remote);
                CHANGED
            }
            (ServerChange::Enabled(_) | ServerChange::Removed, None) => Ok((Reply::Absent, false)),
            (ServerChange::Threads(_) | ServerChange::Reached { .. }, Some((slot, it))) => {
                let is_new = remote.is_some() && it.remote.as_ref() != remote;
                if is_new {
                    check_remote(remote)?;
                    let server = self.server_at(slot);
                    (server.remote, server.outage) = (remote.cloned(), None);
                }
                self.server_at(slot).threads = threads;
                Ok((Reply::Done, it.threads != threads || is_new))
            }
            (ServerChange::Enabled(on), Some((slot, it))) => {
                let server = self.server_at(slot);
                server.enabled = *on;
                if *on {
                    server.outage = None;
                }
                let is_freed = *on && it.outage.is_some();
                Ok((Reply::Done, it.enabled != *on || is_freed))
            }
            (ServerChange::Removed, Some((slot, _))) => {
                self.remove_server(slot);
                CHANGED
            }
        }
    }

    fn server_at(&mut self, slot: Slot) -> &mut Server {
        let mut servers = self.state.servers.iter_mut();
        let found = servers.find(|(its, _)| *its == slot);
        found.map(|(_, server)| server).expect("the server exists")
    }

    /// Refuses a new server without a name, with an invalid destination, or in excess of the limit. `others` is the number of new servers
    /// that the same message adds before it.
    fn check_new(
        &self,
        name: &Name,
        remote: Option<&Remote>,
        others: usize,
    ) -> Result<(), Refused> {
        if name.as_bytes().is_empty() {
            return Err(Refused::NoName);
        }
        check_remote(remote)?;
        let there = self.state.servers.len() + others;
        if self.named_server(name).is_none() && there >= self.rules.servers_max as usize {
            return Err(Refused::ServersFull);
        }
        Ok(())
    }

    pub(super) fn make_server(&mut self, name: &Name, threads: u32, remote: Option<&Remote>) {
        self.state.had_servers = true;
        let server = Server {
            name: name.clone(),
            threads,
            enabled: true,
            leaves: false,
            remote: remote.cloned(),
            outage: None,
        };
        match self.named_server(name).map(|(slot, _)| slot) {
            Some(slot) => *self.server_at(slot) = server,
            None => {
                let slot = free_slot(&self.state.servers);
                self.state.servers.push((slot, server));
            }
        }
    }

    /// Removes a server. If attempts run on it, they are stopped, and the server is removed only when the last of them has ended.
    fn remove_server(&mut self, slot: Slot) {
        if self.used(slot) == 0 {
            self.state.servers.retain(|(its, _)| *its != slot);
            return;
        }
        self.server_at(slot).leaves = true;
        let tasks = self.state.tasks.iter();
        let there = tasks.filter(|(_, task)| {
            let attempt = task.attempt.as_ref();
            attempt.is_some_and(|it| it.server == slot && it.stopping.is_none())
        });
        let mut there: Vec<Slot> = there.map(|(its, _)| *its).collect();
        there.sort_unstable();
        for task in there {
            self.stop(task, Cause::ServerGone);
        }
    }

    /// Replaces the servers with those of an inventory. Servers that an operator disabled are left unchanged.
    pub(super) fn reconcile(&mut self, hosts: &[Host]) -> ApplyResult {
        let reply = self.reconciled(hosts)?;
        let Reply::Reconciled { added, removed, changed } = &reply else {
            return Ok((reply, false));
        };
        let is_new = added + removed + changed > 0;
        let mut servers = self.state.servers.clone();
        servers.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        for (slot, server) in servers {
            if server.leaves || !server.enabled {
                continue;
            }
            match hosts.iter().find(|it| it.name == server.name) {
                Some(host) => {
                    let server = self.server_at(slot);
                    server.threads = host.threads.max(1);
                    if host.remote.is_some() && host.remote != server.remote {
                        (server.remote, server.outage) = (host.remote.clone(), None);
                    }
                }
                None => self.remove_server(slot),
            }
        }
        let mut new: Vec<&Host> = hosts.iter().collect();
        new.sort_by(|a, b| a.name.cmp(&b.name));
        for host in new {
            let known = self.named_server(&host.name);
            if known.is_none_or(|(_, it)| it.leaves) {
                self.make_server(&host.name, host.threads.max(1), host.remote.as_ref());
            }
        }
        Ok((reply, is_new))
    }

    /// Returns how many servers an inventory would add, remove and change, or why it is refused.
    pub(super) fn reconciled(&self, hosts: &[Host]) -> Result<Reply, Refused> {
        for (place, host) in hosts.iter().enumerate() {
            if host.threads > THREADS_MAX {
                return Err(Refused::Threads);
            }
            if hosts.iter().take(place).any(|it| it.name == host.name) {
                return Err(Refused::NamedTwice);
            }
        }
        let kept = self.state.servers.iter().map(|(_, it)| it);
        let kept = kept.filter(|it| it.enabled && !it.leaves);
        let hosted = |it: &&Server| hosts.iter().find(|host| host.name == it.name).cloned();
        let moved = |host: &Host, it: &Server| host.remote.is_some() && host.remote != it.remote;
        for it in kept.clone() {
            if let Some(host) = hosted(&it).filter(|host| moved(host, it)) {
                check_remote(host.remote.as_ref())?;
            }
        }
        let here = |name: &Name| self.named_server(name).filter(|(_, it)| !it.leaves);
        let mut new: Vec<&Host> = hosts.iter().filter(|it| here(&it.name).is_none()).collect();
        new.sort_by(|a, b| a.name.cmp(&b.name));
        let mut others = 0;
        for host in &new {
            self.check_new(&host.name, host.remote.as_ref(), others)?;
            others += usize::from(self.named_server(&host.name).is_none());
        }
        let resized = |it: &&Server| {
            hosted(it).is_some_and(|host| host.threads.max(1) != it.threads || moved(&host, it))
        };
        Ok(Reply::Reconciled {
            added: count(new.iter()),
            removed: count(kept.clone().filter(|it| hosted(it).is_none())),
            changed: count(kept.filter(resized)),
        })
    }
}
