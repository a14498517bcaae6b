//! Answers queries. An answer visits at most about [`LOOKED_AT_MAX`] records; longer results are returned in pages, so that other requests
//! are served in between.

use crate::actors::binding::Until;
use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::Message;
use crate::actors::process::outcome::{Outcome, Refused};
use crate::actors::process::record::{Phase, Record};
use crate::actors::process::reply::{Query, RecordView, Reply, Selection, Totals, View, Watch};
use crate::actors::process::secret::masked;
use crate::clock::Now;
use crate::ids::{ActorId, ProcessId, Slot};
use crate::spine::machine::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The maximum number of records visited for one answer.
pub(super) const LOOKED_AT_MAX: usize = 4096;

/// The same maximum for a text search. It is lower because a search costs more per record: arguments are masked, and case is ignored.
const SEARCHED_MAX: usize = LOOKED_AT_MAX / 8;

/// The maximum number of ids listed for an ambiguous prefix.
const AMBIGUOUS_MAX: usize = 8;

/// An iterator over record ids, in the requested order.
type Ids<'a> = Box<dyn Iterator<Item = ProcessId> + 'a>;

impl ProcessMachine {
    pub(super) fn look(&self, now: Now, query: &Query) -> Reply {
        match query {
            Query::One(id) => self.shown(self.state.find(*id)),
            Query::Prefix(text) => self.with_prefix(text),
            Query::Process(identity) => self.shown(self.state.find_live(identity)),
            Query::Server => {
                let server = self.state.head.server;
                self.shown(server.and_then(|id| self.state.find(id)))
            }
            Query::Spec(id) => {
                self.state.find(*id).map_or(Reply::Refused(Refused::Unknown), |(_, record)| {
                    Reply::Spec(Box::new(record.profile.spec.clone()))
                })
            }
            Query::List(selection) => self.list(selection),
            Query::Count(selection) => self.count(selection),
            Query::Ancestors(id) => match self.state.find(*id) {
                None => Reply::Refused(Refused::Unknown),
                Some((_, record)) => {
                    let above = self.state.ancestors(record.parent);
                    Reply::Page {
                        records: above.map(|(_, record)| self.view_of(record)).collect(),
                        next: None,
                    }
                }
            },
            Query::Descendants { of, after, most } => self.descendants(*of, *after, *most),
            Query::Services(name) => self.look_at_services(now, name.as_deref()),
            Query::Watched { by, after } => self.watched_by(*by, *after),
            Query::Totals => Reply::Totals(self.totals()),
        }
    }

    /// Returns the answer for a watch of a record; `None` if its condition is not met yet. `service/look.rs` answers [`Watch::Services`],
    /// for which this returns `None`.
    pub(super) fn answer(&self, watch: &Watch) -> Option<Reply> {
        let Some((_, record)) = self.state.find(watch.id()?) else {
            return Some(Reply::Refused(Refused::Unknown));
        };
        let is_so = match watch {
            Watch::Start(_) => record.phase != Phase::Queued,
            Watch::End(_) if record.is_live() => self.left_alone(record),
            Watch::End(_) => !self.stops_below(record),
            Watch::Leader(_) => record.is_gone(Until::Process),
            Watch::Services(_) => return None,
            Watch::Signal(_, asked) => {
                if record.rare.signals.iter().any(|it| it.asked == *asked) {
                    return None;
                }
                let sent = record.rare.sent.filter(|it| it.asked == *asked);
                // A signal that is still pending when its process ends is not sent any more.
                let ended = sent.is_none() && record.end.is_some();
                let refused = ended.then_some(Reply::Refused(Refused::Ended));
                return Some(refused.unwrap_or(Reply::Sent(sent)));
            }
        };
        is_so.then(|| Reply::Record(Box::new(self.view_of(record))))
    }

    /// Returns whether the process has ended, and nobody stops or waits for the processes that it left.
    fn left_alone(&self, record: &Record) -> bool {
        record.end.is_some()
            && !record.is_stopped_with_tree()
            && !self.state.is_tree_watched(record)
    }

    /// Returns whether the process was stopped with its tree and a process whose record is a descendant of its record is still being
    /// stopped with its tree.
    fn stops_below(&self, record: &Record) -> bool {
        let mut below = if record.is_stopped_with_tree() && record.held > 0 {
            self.state.below(record.id)
        } else {
            Vec::new()
        };
        below.retain(|(_, it)| it.is_live() && it.is_stopped_with_tree());
        !below.is_empty()
    }

    /// Returns the view of the record with this id; `None` if there is none.
    pub(super) fn view_by_id(&self, id: ProcessId) -> Option<Box<RecordView>> {
        let (_, record) = self.state.find(id)?;
        Some(Box::new(self.view_of(record)))
    }

    pub(super) fn view_of(&self, record: &Record) -> RecordView {
        let profile = &record.profile;
        let (spec, tags) = (&profile.spec, &profile.tags);
        let names = spec.env.iter().map(|(name, _)| name).chain(&spec.secrets);
        let parent = record.parent.filter(|id| self.state.index.ids.contains_key(id));
        RecordView {
            id: record.id,
            parent,
            root: record.root,
            depth: record.depth,
            kind: tags.kind.clone(),
            number: record.number,
            url: tags.url.clone(),
            labels: tags.labels.clone(),
            argv: masked(&spec.argv),
            dir: spec.dir.clone(),
            env: names.cloned().collect(),
            run_dir: spec.run_dir.clone(),
            timeout_ms: spec.timeout_ms,
            launched: record.launched,
            is_hook: spec.is_hook,
            phase: record.phase,
            deferred: record.rare.deferred,
            identity: record.identity,
            contained: record.contained,
            queued: record.queued,
            started: record.started,
            ended: record.ended,
            stop: record.rare.stop,
            end: record.end,
            failure: record.rare.failure.clone(),
            error: record.rare.error.clone(),
            remains: record.remains.clone(),
            stuck: record.rare.stuck,
            sent: record.rare.sent,
            announced: record.announced,
            said: record.rare.said.clone(),
            found: record.rare.found.clone(),
            live_children: record.held,
        }
    }

    pub(super) fn show(&self, most: usize) -> View {
        let records = self.state.records.iter().take(most);
        let views = records.map(|(_, record)| (record.id, self.view_of(record)));
        views.collect::<BTreeMap<_, _>>()
    }

    pub(super) fn totals(&self) -> Totals {
        Totals { contradictions: self.contradictions, ..self.state.index.totals }
    }

    fn shown(&self, found: Option<(Slot, &Record)>) -> Reply {
        let record = found.map(|(_, record)| Box::new(self.view_of(record)));
        record.map_or(Reply::Refused(Refused::Unknown), Reply::Record)
    }

    fn with_prefix(&self, text: &str) -> Reply {
        let Some((first, last)) = range_of(text) else {
            return Reply::Refused(Refused::Unknown);
        };
        let found = self.state.index.ids.range(first..=last);
        let found: Vec<ProcessId> = found.map(|(id, _)| *id).take(AMBIGUOUS_MAX).collect();
        match found.as_slice() {
            [] => Reply::Refused(Refused::Unknown),
            [id] => self.shown(self.state.find(*id)),
            _ => Reply::Ambiguous(found),
        }
    }

    fn list(&self, selection: &Selection) -> Reply {
        let most = selection.most.min(Query::MOST) as usize;
        let wanted = Matcher::new(selection);
        let mut records = Vec::new();
        let mut last = selection.after;
        for (looked_at, id) in self.candidates(selection).enumerate() {
            if looked_at == share(selection) || records.len() == most {
                return Reply::Page { records, next: last };
            }
            last = Some(id);
            let found = self.state.find(id).filter(|(_, it)| wanted.is(self, it));
            records.extend(found.map(|(_, record)| self.view_of(record)));
        }
        Reply::Page { records, next: None }
    }

    /// Lists the ids of the live records that an actor watches, or whose launch it requested, beginning after the id `after`.
    fn watched_by(&self, by: ActorId, after: Option<ProcessId>) -> Reply {
        let live = Selection {
            phases: vec![Phase::Queued, Phase::Running, Phase::Stopping],
            after,
            ..Selection::default()
        };
        let (mut ids, mut last) = (Vec::new(), after);
        for (looked_at, id) in self.candidates(&live).enumerate() {
            if looked_at == LOOKED_AT_MAX {
                return Reply::Ids { ids, next: last };
            }
            last = Some(id);
            let watches = |it: &Record| {
                let told = it.watchers.iter().any(|(actor, _)| *actor == by);
                it.is_live() && (told || it.awaited == Some(by))
            };
            ids.extend(self.state.find(id).filter(|(_, it)| watches(it)).map(|_| id));
        }
        Reply::Ids { ids, next: None }
    }

    fn count(&self, selection: &Selection) -> Reply {
        let wanted = Matcher::new(selection);
        let mut count = 0;
        let mut last = selection.after;
        for (looked_at, id) in self.candidates(selection).enumerate() {
            if looked_at == share(selection) {
                return Reply::Count { count, next: last };
            }
            last = Some(id);
            let found = self.state.find(id).filter(|(_, it)| wanted.is(self, it));
            count += u32::from(found.is_some());
        }
        Reply::Count { count, next: None }
    }

    /// Lists the descendants of a record, ordered by id. Visits all records with the same root and checks the ancestors of each, so a page
    /// may begin after any id, even that of a record that has since been removed.
    fn descendants(&self, of: ProcessId, after: Option<ProcessId>, most: u32) -> Reply {
        let Some((_, top)) = self.state.find(of) else {
            return Reply::Refused(Refused::Unknown);
        };
        let most = most.min(Query::MOST) as usize;
        let tree = in_set(&self.state.index.trees, top.root, (after, false));
        let (mut records, mut last, mut looked_at) = (Vec::new(), after, 0);
        for id in tree.filter(|id| *id != of) {
            if looked_at >= LOOKED_AT_MAX || records.len() == most {
                return Reply::Page { records, next: last };
            }
            last = Some(id);
            let Some((_, record)) = self.state.find(id) else {
                continue;
            };
            // Everything in a tree is below its root, even if records in between were removed.
            let mut is_below = top.root == of;
            looked_at += 1;
            if !is_below && record.depth > top.depth {
                let up = self.state.ancestors(record.parent);
                for (_, above) in up.take_while(|(_, it)| it.depth >= top.depth) {
                    is_below = above.id == of;
                    looked_at += 1;
                }
            }
            if is_below {
                records.push(self.view_of(record));
            }
        }
        Reply::Page { records, next: None }
    }

    /// Returns the ids that may match a selection, in the requested order, beginning after [`Selection::after`].
    fn candidates(&self, selection: &Selection) -> Ids<'_> {
        let index = &self.state.index;
        let cursor = (selection.after, selection.newest_first);
        if let Some(parent) = selection.parent {
            return in_set(&index.children, parent, cursor);
        }
        if let Some(root) = selection.root {
            let below = in_set(&index.trees, root, cursor);
            return with(root, below, cursor);
        }
        let (after, newest_first) = cursor;
        let range = between(after, newest_first);
        let phases = &selection.phases;
        if !phases.is_empty() && !phases.contains(&Phase::Exited) {
            return in_order(index.live.range(range).copied(), newest_first);
        }
        in_order(index.ids.range(range).map(|(id, _)| *id), newest_first)
    }

    /// Returns the cost of a request, where 1 is an ordinary command.
    pub(super) fn cost_of(asked: &Request<'_, Self>) -> usize {
        match asked {
            Request::Query(Query::List(_) | Query::Count(_) | Query::Descendants { .. }) => {
                LOOKED_AT_MAX / 8
            }
            Request::Query(Query::Ancestors(_)) => usize::from(Record::DEPTH_MAX) / 8,
            Request::Message(Message::Prune { limit, .. }) => 1 + (*limit as usize).min(1024),
            Request::Message(_) | Request::Query(_) | Request::Watch(_) => 1,
        }
    }

    /// Returns the number of records and services that an outcome changes if it may change many; otherwise 0.
    #[expect(clippy::wildcard_enum_match_arm, reason = "few outcomes change many records")]
    pub(super) fn weight_of(outcome: &Outcome) -> usize {
        match outcome {
            Outcome::Fenced { stops }
            | Outcome::StoppingTree { stops }
            | Outcome::StoppingPart { stops } => stops.len(),
            Outcome::Service(turn) => {
                turn.steps.len() + turn.process.as_ref().map_or(0, Self::weight_of)
            }
            _ => 0,
        }
    }
}

/// Returns the maximum number of records visited for one answer to this selection.
const fn share(selection: &Selection) -> usize {
    if selection.text.is_some() { SEARCHED_MAX } else { LOOKED_AT_MAX }
}

/// A selection and its search text in lower case, for comparison with many records.
struct Matcher<'a> {
    selection: &'a Selection,
    text: Option<String>,
}

impl<'a> Matcher<'a> {
    fn new(selection: &'a Selection) -> Self {
        let text = selection.text.as_ref().map(|text| text.to_lowercase());
        Self { selection, text }
    }

    fn is(&self, machine: &ProcessMachine, record: &Record) -> bool {
        let Selection {
            kind,
            phases,
            parent,
            root,
            text: _,
            pid,
            machine: host,
            label,
            newest_first: _,
            after: _,
            most: _,
        } = self.selection;
        let tags = &record.profile.tags;
        let has_label = |(name, value): &(String, Option<String>)| {
            let mut labels = tags.labels.iter();
            labels.any(|(its, is)| its == name && value.as_ref().is_none_or(|value| value == is))
        };
        let gone = |id: &ProcessId| !machine.state.index.ids.contains_key(id);
        kind.as_ref().is_none_or(|kind| *kind == tags.kind)
            && (phases.is_empty() || phases.contains(&record.phase))
            && parent.is_none_or(|id| record.parent == Some(id) && !gone(&id))
            && root.is_none_or(|id| record.root == id)
            && pid.is_none_or(|pid| record.identity.is_some_and(|it| it.pid == pid))
            && !record.is_on_other_machine(*host)
            && label.as_ref().is_none_or(has_label)
            && self.text.as_ref().is_none_or(|text| contains_text(record, text))
    }
}

/// Returns whether the type, URL, labels, arguments or recorded output of a record contain this lower-case text, ignoring case. Arguments
/// are searched in masked form, so that a secret cannot be found by guessing.
fn contains_text(record: &Record, text: &str) -> bool {
    let (spec, tags) = (&record.profile.spec, &record.profile.tags);
    let has = |it: &str| it.to_lowercase().contains(text);
    let argv = masked(&spec.argv);
    let words = argv.iter().map(|it| String::from_utf8_lossy(it.as_bytes()));
    has(&tags.kind)
        || tags.url.as_deref().is_some_and(has)
        || tags.labels.iter().any(|(name, value)| has(name) || has(value))
        || has(&words.collect::<Vec<_>>().join(" "))
        || record.remains.as_ref().is_some_and(|remains| {
            let streams = [&remains.stdout, &remains.stderr];
            let parts = streams.into_iter().flat_map(|it| [it.head(), it.tail()]);
            parts.map(String::from_utf8_lossy).any(|part| has(&part))
        })
}

/// Returns the lowest and the highest id that begin with these digits; `None` if the text is not a valid prefix.
fn range_of(text: &str) -> Option<(ProcessId, ProcessId)> {
    const DIGITS: usize = 32;
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_number || !(Query::PREFIX_DIGITS..=DIGITS).contains(&digits.len()) {
        return None;
    }
    let first = u128::from_str_radix(&format!("{digits:0<DIGITS$}"), 16).ok()?;
    let last = u128::from_str_radix(&format!("{digits:f<DIGITS$}"), 16).ok()?;
    Some((ProcessId(first), ProcessId(last)))
}

/// Returns the ids that are paired with `group` in the set, in the requested order, beginning after the id `after`.
fn in_set(
    set: &BTreeSet<(ProcessId, ProcessId)>,
    group: ProcessId,
    (after, newest_first): (Option<ProcessId>, bool),
) -> Ids<'_> {
    let (from, to) = between(after, newest_first);
    let first = |bound: Bound<ProcessId>, end: ProcessId| match bound {
        Bound::Unbounded => Bound::Included((group, end)),
        Bound::Excluded(id) => Bound::Excluded((group, id)),
        Bound::Included(id) => Bound::Included((group, id)),
    };
    let range = (first(from, ProcessId(0)), first(to, ProcessId(u128::MAX)));
    in_order(set.range(range).map(|(_, id)| *id), newest_first)
}

/// Inserts an id at its position among these ordered ids, if that position comes after the id `after`.
fn with(id: ProcessId, ids: Ids<'_>, (after, newest_first): (Option<ProcessId>, bool)) -> Ids<'_> {
    let is_next = move |id: ProcessId, other: ProcessId| {
        if newest_first { other < id } else { id < other }
    };
    let mut inserted = Some(id).filter(|id| after.is_none_or(|after| is_next(after, *id)));
    let mut ids = ids.peekable();
    Box::new(std::iter::from_fn(move || match inserted {
        Some(id) if ids.peek().is_none_or(|next| is_next(id, *next)) => inserted.take(),
        Some(_) | None => ids.next(),
    }))
}

/// Returns the bounds of the ids that follow `after` in the requested order; all ids if it is `None`.
fn between(after: Option<ProcessId>, newest_first: bool) -> (Bound<ProcessId>, Bound<ProcessId>) {
    let cursor = after.map_or(Bound::Unbounded, Bound::Excluded);
    if newest_first { (Bound::Unbounded, cursor) } else { (cursor, Bound::Unbounded) }
}

fn in_order<'a>(
    ids: impl DoubleEndedIterator<Item = ProcessId> + 'a,
    newest_first: bool,
) -> Ids<'a> {
    if newest_first { Box::new(ids.rev()) } else { Box::new(ids) }
}
