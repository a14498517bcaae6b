//! Answers queries by visiting all records.

use super::{Model, Modelled};
use sexton::actors::process::{Phase, Query, RecordView, Refused, Reply, Selection, Watch};
use sexton::ids::ProcessId;

impl Model {
    /// Returns all records that match a selection, in the requested order. Ignores `after` and `most`.
    pub(crate) fn select(&self, selection: &Selection) -> Vec<RecordView> {
        let views = self.records.iter().map(|it| &it.view);
        let mut found: Vec<_> = views.filter(|it| is_selected(selection, it)).collect();
        found.sort_by_key(|it| it.id);
        if selection.newest_first {
            found.reverse();
        }
        found.into_iter().cloned().collect()
    }

    /// Returns the ancestors of a record, from its parent up.
    pub(crate) fn ancestors(&self, of: ProcessId) -> Vec<RecordView> {
        let parent = |id: ProcessId| {
            let its = self.find(id)?.view.parent?;
            self.find(its)
        };
        let above = std::iter::successors(parent(of), |it| parent(it.view.id));
        above.map(|it| it.view.clone()).collect()
    }

    /// Returns the descendants of a record, ordered by id. A record whose intermediate ancestors were removed still counts as a descendant
    /// of its root.
    pub(crate) fn descendants(&self, of: ProcessId) -> Vec<RecordView> {
        let is_below = |it: &RecordView| {
            it.id != of && (it.root == of || self.ancestors(it.id).iter().any(|up| up.id == of))
        };
        let views = self.records.iter().map(|it| &it.view);
        let mut below: Vec<_> = views.filter(|it| is_below(it)).cloned().collect();
        below.sort_by_key(|it| it.id);
        below
    }

    /// Returns the answer to a query whose results fit on one page.
    pub(crate) fn answer(&self, query: &Query) -> Reply {
        let one = |record: Option<Box<RecordView>>| {
            record.map_or(Reply::Refused(Refused::Unknown), Reply::Record)
        };
        let page = |of: ProcessId, records: Vec<RecordView>| match self.view(of) {
            None => Reply::Refused(Refused::Unknown),
            Some(_) => Reply::Page { records, next: None },
        };
        match query {
            Query::One(id) => one(self.view(*id)),
            Query::Server => one(None),
            Query::Process(identity) => {
                one(self.live(identity).map(|it| Box::new(it.view.clone())))
            }
            Query::List(selection) => Reply::Page { records: self.select(selection), next: None },
            Query::Count(selection) => Reply::Count {
                count: u32::try_from(self.select(selection).len()).expect("there are few records"),
                next: None,
            },
            Query::Ancestors(of) => page(*of, self.ancestors(*of)),
            Query::Descendants { of, .. } => page(*of, self.descendants(*of)),
            Query::Watched { by, .. } => {
                let tells = |it: &&Modelled| it.watchers.iter().any(|(actor, _)| actor == by);
                let live = self.records.iter().filter(|it| it.view.phase != Phase::Exited);
                let told = live.filter(|it| tells(it) || it.awaited == Some(*by));
                let mut ids: Vec<ProcessId> = told.map(|it| it.view.id).collect();
                ids.sort_unstable();
                Reply::Ids { ids, next: None }
            }
            Query::Prefix(_) | Query::Spec(_) | Query::Totals | Query::Services(_) => {
                unreachable!("the model is not asked queries that it does not implement")
            }
        }
    }

    /// Returns the answer for a watch; `None` if its condition is not met yet.
    pub(crate) fn wakes(&self, watch: &Watch) -> Option<Reply> {
        if let Watch::Services(name) = watch {
            return self.settled_reply(name.as_deref());
        }
        let id = watch.id().expect("watches of services are answered above");
        let Some(it) = self.find(id) else {
            return Some(Reply::Refused(Refused::Unknown));
        };
        let is_so = match watch {
            Watch::Start(_) => it.view.phase != Phase::Queued,
            Watch::End(_) => {
                let is_stopped = |it: &Modelled| it.view.stop.is_some_and(|stop| stop.tree);
                let mut below = self.and_below(id).into_iter().filter_map(|id| self.find(id));
                let stops_below =
                    below.any(|below| below.view.phase != Phase::Exited && is_stopped(below));
                let is_left = it.view.end.is_some() && !is_stopped(it) && !it.tree_watched;
                let is_over = it.view.phase == Phase::Exited && !(is_stopped(it) && stops_below);
                is_left || is_over
            }
            Watch::Leader(_) => it.view.phase == Phase::Exited || it.view.end.is_some(),
            Watch::Services(_) => unreachable!("watches of services are answered above"),
            Watch::Signal(_, asked) => {
                let is_on_its_way = it.signals.iter().any(|(its, ..)| its == asked);
                let sent = it.view.sent.filter(|sent| sent.asked == *asked);
                if is_on_its_way {
                    return None;
                }
                return Some(match (sent, it.view.end) {
                    (None, Some(_)) => Reply::Refused(Refused::Ended),
                    (sent, _) => Reply::Sent(sent),
                });
            }
        };
        is_so.then(|| Reply::Record(Box::new(it.view.clone())))
    }

    /// Returns the number of records in each phase.
    pub(crate) fn counts(&self) -> [usize; 4] {
        Phase::ALL.map(|phase| {
            let records = self.records.iter();
            records.filter(|it| it.view.phase == phase).count()
        })
    }
}

fn is_selected(selection: &Selection, it: &RecordView) -> bool {
    let elsewhere = it.identity.is_some_and(|its| {
        let machine = selection.machine;
        machine.is_some_and(|machine| machine != its.machine)
    });
    let has_label = |(name, value): &(String, Option<String>)| {
        let mut labels = it.labels.iter();
        labels.any(|(its, is)| its == name && value.as_ref().is_none_or(|value| value == is))
    };
    let says = |text: &String| {
        let words = it.argv.iter();
        let words = words.map(|word| String::from_utf8_lossy(word.as_bytes()));
        let labels = it.labels.iter().flat_map(|(name, value)| [name, value]);
        let mut texts = labels.chain(&it.url).chain([&it.kind]).cloned();
        let line = words.collect::<Vec<_>>().join(" ");
        let text = text.to_lowercase();
        let output = it.remains.iter().flat_map(|it| [&it.stdout, &it.stderr]);
        let mut output = output.flat_map(|it| [it.head(), it.tail()]);
        line.to_lowercase().contains(&text)
            || texts.any(|it| it.to_lowercase().contains(&text))
            || output.any(|it| String::from_utf8_lossy(it).to_lowercase().contains(&text))
    };
    let has_pid = |pid: u32| it.identity.is_some_and(|its| its.pid == pid);
    !elsewhere
        && selection.kind.as_ref().is_none_or(|kind| it.kind == *kind)
        && (selection.phases.is_empty() || selection.phases.contains(&it.phase))
        && selection.parent.is_none_or(|id| it.parent == Some(id))
        && selection.root.is_none_or(|id| it.root == id)
        && selection.pid.is_none_or(has_pid)
        && selection.label.as_ref().is_none_or(has_label)
        && selection.text.as_ref().is_none_or(says)
}
