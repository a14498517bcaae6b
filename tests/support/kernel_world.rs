//! The simulated machine, as the port sees it.

use super::{Blindness, Event, Keeper, Kernel, Logged, OWN, failed};
use sexton::actors::process::{Failure, Identity, Message, Output, Remains, Spec, Step};
use sexton::bytes::Bytes;
use sexton::clock::Date;
use sexton::ids::ProcessId;
use sexton::keeper::protocol::{Launch, Report, Request};
use sexton::ports::process::members::{Details, Members, Named};
use sexton::ports::process::{ExitStatus, Lookup, Survivors, Tree, World};
use std::collections::BTreeSet;

/// The processes, as a search for a tree sees them.
pub(super) struct Seen<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) tree: &'a Tree,
}

impl Details for Seen<'_> {
    fn is_leader(&self, pid: u32) -> bool {
        let identity = self.kernel.identity(pid);
        identity.is_some_and(|it| it.is(&self.tree.leader))
    }

    fn named(&self, pid: u32, only_trusted: bool) -> Named {
        let trusts_all = self.kernel.blindness == Some(Blindness::Users);
        let process = self.kernel.processes.get(&pid).filter(|it| !it.hidden);
        let process = process.filter(|it| !only_trusted || it.user == OWN || trusts_all);
        process.and_then(|it| it.named).map_or(Named::Nothing, Named::Attempt)
    }

    fn attempt_of(&self, pid: u32) -> Option<ProcessId> {
        let process = self.kernel.processes.get(&pid)?;
        let tree = process.tree.filter(|_| !process.moved)?;
        let is_blind = self.kernel.blindness == Some(Blindness::Groups);
        (self.kernel.grouped.contains(&tree) && !is_blind).then_some(tree)
    }

    fn is_followed(&self, id: ProcessId) -> bool {
        self.kernel.followed.contains(&id)
    }
}

/// A descriptor, which refers to one process even if its PID is reused.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) u64);

impl World for Kernel {
    type Handle = Handle;

    fn machine_and_boot(&self) -> (u128, u128) {
        (7, self.boot)
    }

    fn date(&self) -> Date {
        Date(self.now.saturating_add_signed(self.skew))
    }

    fn clock(&self) -> u64 {
        self.now
    }

    fn note(&mut self, id: ProcessId, _leader: Option<&Identity>) {
        self.followed.insert(id);
    }

    fn forget(&mut self, id: ProcessId) {
        self.followed.remove(&id);
    }

    fn find(&mut self, identity: &Identity) -> Lookup<Handle> {
        if self.exhausted {
            return Lookup::Unknown;
        }
        if self.lives((identity.boot, identity.inode)) {
            Lookup::Alive(Handle(identity.inode))
        } else {
            Lookup::Gone(None)
        }
    }

    fn watch(&mut self, id: ProcessId, handle: &Handle) {
        self.watched.insert((handle.0, id));
    }

    fn status(&mut self, handle: &Handle) -> ExitStatus {
        if self.early_wakes > 0 {
            self.early_wakes -= 1;
            return ExitStatus::Alive;
        }
        let known = self.truth.get(&(self.boot, handle.0)).copied();
        known.filter(|_| !self.secretive).map_or(ExitStatus::Unavailable, ExitStatus::Known)
    }

    fn signal(&mut self, handle: &Handle, signals: &[u8], _group: bool) -> Result<(), i32> {
        let mut processes = self.processes.iter();
        let Some((pid, _)) = processes.find(|(_, it)| it.inode == handle.0) else {
            return Err(3);
        };
        let pid = *pid;
        for signal in signals {
            self.take(pid, *signal);
        }
        Ok(())
    }

    fn survivors(&mut self, tree: &Tree) -> Survivors {
        let Members { alive, unknown } = self.members(tree);
        let alive = u32::try_from(alive.len()).expect("processes are few");
        Survivors { alive, unknown }
    }

    fn watch_tree(&mut self, tree: &Tree) {
        if tree.contained {
            self.emptying.insert(tree.id);
        }
    }

    fn signal_tree(&mut self, tree: &Tree, signals: &[u8]) -> Result<(), i32> {
        for (pid, _) in self.members(tree).alive {
            for signal in signals {
                self.take(pid, *signal);
            }
        }
        Ok(())
    }

    fn has_keeper(&mut self) -> bool {
        self.keeper.is_some()
    }

    fn join(&mut self) -> Result<(), Failure> {
        if self.no_keeper {
            return Err(Failure { step: Step::Keeper, errno: 2, about: None });
        }
        let children = BTreeSet::new();
        let keeper = self.keeper.get_or_insert(Keeper {
            launched: children.clone(),
            children,
            joined: false,
        });
        keeper.joined = true;
        let mut said = vec![Report::Welcome { version: 1, pid: 1, boot: self.boot, groups: None }];
        for (id, logged) in &self.log {
            match logged {
                Logged::Started(started) if !keeper.children.contains(id) => {
                    said.push(Report::Orphaned(*started));
                }
                Logged::Started(started) => said.push(Report::Started(*started)),
                Logged::Exited(exited) => said.push(Report::Exited(*exited)),
                Logged::Failed(errno) => said.push(failed(*id, *errno)),
            }
        }
        said.push(Report::Told);
        self.events.extend(said.into_iter().map(Event::Heard));
        Ok(())
    }

    fn ask(&mut self, request: Request) {
        let Some(keeper) = self.keeper.as_ref().filter(|it| it.joined) else {
            return;
        };
        match request {
            Request::Launch { attempt, .. } => self.launch(attempt),
            Request::Forget { attempts } => {
                for id in attempts {
                    if !keeper.children.contains(&id) {
                        self.log.remove(&id);
                    }
                }
            }
            Request::Ask { attempt } => {
                let said = match self.log.get(&attempt) {
                    Some(logged) => self.said(attempt, logged),
                    None => Report::Absent { attempt },
                };
                self.events.push_back(Event::Heard(said));
            }
            Request::Hello { .. }
            | Request::Parcel { .. }
            | Request::Inheritance { .. }
            | Request::Upgrade { .. } => {}
        }
    }

    fn fetch(&mut self, id: ProcessId, _spec: &Spec) -> bool {
        self.unfetched.contains(&id)
    }

    fn prepare(&mut self, _id: ProcessId, spec: &Spec) -> Result<Launch, Failure> {
        Ok(Launch { argv: spec.argv.clone(), ..Launch::default() })
    }

    fn write_pid_file(&mut self, _id: ProcessId, _run_dir: Option<&Bytes>, pid: u32) {
        self.noted.push(pid);
    }

    fn remains(&mut self, tree: &Tree, _run_dir: Option<&Bytes>) -> Remains {
        let left = self.survivors(tree);
        Remains {
            alive: left.alive,
            empty: tree.launched && left.is_empty(),
            stdout: Output::default(),
            ..Remains::default()
        }
    }

    fn clear(&mut self, _tree: &Tree, _run_dir: Option<&Bytes>) {}

    fn report(&mut self, message: Message) {
        self.reports.push(message);
    }
}
