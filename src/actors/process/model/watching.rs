//! Notifications that a process is gone, and launches requested by other actors.

use super::{Entry, Model, Modelled};
use sexton::actors::binding::{EndNotice, Exit, ToHolder, Until, Watch};
use sexton::actors::process::{End, Flaw, LaunchAs, Launching, Phase, Refused, Reply};
use sexton::ids::ActorId;

impl Model {
    /// Returns a notification for each watch whose process, or tree, is gone, with the actor to notify.
    pub(super) fn watched_and_gone(&self) -> Vec<(ActorId, ToHolder)> {
        let watched = |it: &Modelled| {
            let gone = it.watchers.iter().filter(|(_, until)| self.is_gone(it, *until));
            let gone = gone.map(|(by, until)| (*by, ToHolder::Gone(gone_of(it, *until))));
            gone.collect::<Vec<_>>()
        };
        self.records.iter().flat_map(watched).collect()
    }

    /// Returns the notification for a watch, with the actor to notify, if the watched process or tree is already gone, or has no record;
    /// otherwise `None`.
    pub(super) fn gone_already(&self, watch: Watch) -> Option<(ActorId, ToHolder)> {
        let Watch { by, process, until } = watch;
        let gone = match self.find(process) {
            Some(it) if !self.is_gone(it, until) => return None,
            Some(it) => gone_of(it, until),
            None => EndNotice { process, until, exit: None, pid: None },
        };
        Some((by, ToHolder::Gone(gone)))
    }

    /// Creates the record for a launch that another actor requested, unless a record with the requested id exists. The record is not
    /// removed before that actor watches the process. Returns `Launched`, `Done` if the record existed, or a refusal.
    pub(super) fn launch_as(&mut self, asked: &LaunchAs, entry: Entry) -> Reply {
        let is_known = self.find(asked.id).is_some();
        let Launching { spec, deferred, .. } = &asked.launching;
        if !is_known && *deferred && spec.check().is_ok() {
            return Reply::Refused(Refused::Invalid(Flaw::Deferred));
        }
        if !is_known {
            let new = entry.new.map(|(_, slot)| (asked.id, slot));
            let added = self.add(&asked.launching, None, Entry { new, ..entry });
            if let Err(refused) = added {
                return Reply::Refused(refused);
            }
        }
        if is_known {
            return Reply::Done;
        }
        let new = self.find_mut(asked.id).expect("the record was just added");
        new.awaited = Some(asked.by);
        let view = Box::new(new.view.clone());
        Reply::Launched(view)
    }

    fn is_gone(&self, it: &Modelled, until: Until) -> bool {
        match until {
            Until::Process => it.view.end.is_some() || it.view.phase == Phase::Exited,
            Until::Tree => !self.is_kept(it.view.id),
        }
    }

    /// Updates `tree_watched` in each record: whether its tree, or a tree that contains it, is watched.
    pub(super) fn note_watched(&mut self) {
        let is_watched = |it: &Modelled| {
            let mut watchers = it.watchers.iter();
            it.awaited.is_some() || watchers.any(|(_, until)| *until == Until::Tree)
        };
        let watched: Vec<bool> = self
            .records
            .iter()
            .map(|it| {
                let above = self.ancestors(it.view.id);
                let mut above = above.iter().filter_map(|it| self.find(it.id));
                is_watched(it) || above.any(is_watched)
            })
            .collect();
        for (it, watched) in self.records.iter_mut().zip(watched) {
            it.tree_watched = watched;
        }
    }

    /// Applies a watch. Returns whether it changes anything or causes an immediate notification.
    pub(super) fn watch(&mut self, watch: Watch) -> bool {
        if let Some(it) = self.find_mut(watch.process)
            && it.awaited == Some(watch.by)
        {
            it.awaited = None;
            it.quarantined = false;
        }
        let found = self.find(watch.process);
        if found.is_none_or(|it| self.is_gone(it, watch.until)) {
            return true;
        }
        let it = self.find_mut(watch.process).expect("the record exists");
        let watcher = (watch.by, watch.until);
        let is_new = !it.watchers.contains(&watcher);
        if is_new {
            it.watchers.push(watcher);
            it.quarantined = false;
        }
        is_new
    }
}

impl Modelled {
    /// Returns whether the record is of a launch, and the actor requested it or watches its tree.
    pub(super) fn launched_for(&self, actor: ActorId) -> bool {
        let watches = self.watchers.contains(&(actor, Until::Tree));
        self.view.launched && (watches || self.awaited == Some(actor))
    }
}

fn gone_of(it: &Modelled, until: Until) -> EndNotice {
    let exit = match it.view.end {
        Some(End::Code(code)) => Exit::Code(code),
        Some(End::Signal { signal, .. }) => Exit::Signal(signal),
        Some(End::Lost(_)) => Exit::Lost,
        None => Exit::Failed,
    };
    EndNotice {
        process: it.view.id,
        until,
        exit: Some(exit),
        pid: it.view.identity.map(|it| it.pid),
    }
}
