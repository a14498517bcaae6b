//! The rules of processes against a plain list, and against a second machine that only commits.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks at what it is about"
)]

use crate::actors::process::model::{Actions, Entry, Model, Verdict};
use crate::actors::process::{
    End, Failure, Identity, Launching, Lost, Message, Outcome, Parentage, Phase, ProcessMachine,
    Query, RecordView, Registering, Reply, Rules, Selection, Spec, Step as LaunchStep, Tags, View,
    Watch,
};
use crate::bytes::Bytes;
use crate::clock::{Date, Now, Offset, Timestamp};
use crate::ids::{Chance, ProcessId, Seq, Slot, Ticket};
use crate::spine::effect::Effect;
use crate::spine::machine::{
    Effects, Keeping, Machine as _, Moment, Paged as _, Shown as _, Stamp, Start, Timed as _,
};
use crate::spine::shelf::Shelf;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use std::collections::BTreeMap;

const BEGIN: Timestamp = Timestamp(1_000_000_000_000);

/// Small limits, so that they are reached.
fn rules() -> Rules {
    Rules {
        retention_ms: 20_000,
        records_max: 12,
        live_max: 8,
        bytes_max: 700,
    }
}

/// A number that stands for a record: one of those that are there, or none of them.
type Which = u8;

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    /// A message, about the record that the number stands for.
    Send(Which, Message),
    /// A new process, as a child of the record that the number stands for, perhaps of a process that runs.
    Launch(Which, u8, Launching),
    Register(Which, u8, Registering),
    Pass(u64),
    Wall(i64),
    Hold(bool),
    Start,
    Reload,
    Checkpoint,
    Watch(Which, u8),
    Unwatch,
}

/// One of a few processes, some of which look alike but for what tells them apart.
fn identity(number: u8) -> Identity {
    Identity {
        machine: u128::from(number / 12) + 7,
        boot: 1,
        namespace: 3,
        pid: u32::from(number % 3) + 100,
        inode: u64::from(number % 4),
        ticks: u64::from(number % 2) + 50,
    }
}

fn any_message() -> impl Strategy<Value = Message> {
    let id = ProcessId::default();
    let end = prop_oneof![
        3 => (0u8..4).prop_map(End::Code),
        1 => Just(End::Signal { signal: 9, dumped: false }),
        1 => Just(End::Lost(Lost::Rebooted)),
        1 => Just(End::Lost(Lost::NotOurs)),
    ];
    let grace = prop_oneof![Just(None), Just(Some(0)), (1u32..8000).prop_map(Some)];
    let failure = Failure {
        step: LaunchStep::Exec,
        errno: 2,
        about: Some("/bin/none".to_owned()),
    };
    let at = (0u64..40_000).prop_map(|ms| Date(BEGIN.0 - 10_000 + ms));
    prop_oneof![
        2 => (0u8..3).prop_map(move |code| Message::Finish { id, code, error: Some("no".to_owned()) }),
        5 => (prop::option::of(1u8..20), grace, any::<bool>())
            .prop_map(move |(signal, grace_ms, tree)| Message::Stop { id, signal, grace_ms, tree }),
        3 => (1u8..20, any::<bool>()).prop_map(move |(signal, group)| Message::Signal { id, signal, group }),
        1 => (prop::option::of(at.clone()), 0u32..6, 0u32..3)
            .prop_map(|(before, keep, limit)| Message::Prune { before, keep, limit }),
        8 => (0u8..24, at.clone(), any::<bool>()).prop_map(move |(number, at, contained)| {
            Message::Started { id, identity: identity(number), at, contained }
        }),
        2 => Just(Message::Failed { id, failure }),
        6 => (end, at, 0usize..9).prop_map(move |(end, at, bytes)| {
            let mut left = Box::<crate::actors::process::Remains>::default();
            left.stdout.head = Bytes::new(vec![b'o'; bytes]);
            Message::Ended { id, end, at, left }
        }),
        4 => Just(Message::Empty { id }),
        2 => (0u32..2, 0u32..2).prop_map(move |(unkillable, unknown)| {
            Message::Stuck { id, unkillable, unknown }
        }),
        3 => (0u64..4, prop::option::of(1i32..3)).prop_map(move |(back, errno)| {
            Message::Signalled { id, asked: Seq(back), errno }
        }),
    ]
}

fn any_launch() -> impl Strategy<Value = Launching> {
    let kind = prop::sample::select(vec!["", "worker", "hook"]);
    let argv = prop::sample::select(vec!["true", "archivebox", "curl --token x", ""]);
    let timeout_ms = prop::sample::select(vec![0u64, 0, 3000]);
    let grace_ms = prop::sample::select(vec![0u32, 2000]);
    (kind, argv, timeout_ms, grace_ms, any::<bool>()).prop_map(
        |(kind, argv, timeout_ms, grace_ms, orders)| Launching {
            spec: Spec {
                argv: argv
                    .split(' ')
                    .map(|it| Bytes::new(it.as_bytes()))
                    .collect(),
                timeout_ms,
                grace_ms,
                stop_signal: if orders { 2 } else { 0 },
                env: vec![("LANG".to_owned(), Bytes::new(&b"C"[..]))],
                ..Spec::default()
            },
            tags: Tags {
                kind: kind.to_owned(),
                url: orders.then(|| "https://example.org/".to_owned()),
                labels: vec![("of".to_owned(), kind.to_owned())],
            },
            parentage: Parentage::default(),
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let register =
        (any_launch(), 0u8..24, 0u64..9000).prop_map(|(launching, number, ago)| Registering {
            identity: identity(number),
            argv: launching.spec.argv,
            dir: Bytes::default(),
            started: Date(BEGIN.0 - ago),
            tags: launching.tags,
            parentage: Parentage::default(),
        });
    prop_oneof![
        60 => (any::<u8>(), any_message()).prop_map(|(which, message)| Step::Send(which, message)),
        16 => (any::<u8>(), 0u8..30, any_launch())
            .prop_map(|(which, line, launching)| Step::Launch(which, line, launching)),
        8 => (any::<u8>(), 0u8..30, register)
            .prop_map(|(which, line, registering)| Step::Register(which, line, registering)),
        10 => (0u64..4000).prop_map(Step::Pass),
        1 => (-9000i64..9000).prop_map(Step::Wall),
        1 => any::<bool>().prop_map(Step::Hold),
        1 => Just(Step::Start),
        2 => Just(Step::Reload),
        6 => Just(Step::Checkpoint),
        4 => (any::<u8>(), 0u8..3).prop_map(|(which, what)| Step::Watch(which, what)),
        1 => Just(Step::Unwatch),
    ]
}

enum Logged {
    Entry(Stamp, Message, Outcome),
    Start(Start),
}

impl Logged {
    fn repeat(&self, machine: &mut ProcessMachine, upto: Seq) {
        let mut effects = Effects::<ProcessMachine>::default();
        match self {
            Self::Entry(stamp, message, outcome) if stamp.seq > upto => {
                machine.commit(*stamp, message, outcome, &mut effects);
            }
            Self::Start(start) if start.stamp.seq > upto => machine.start(*start),
            Self::Entry(..) | Self::Start(_) => {}
        }
    }
}

/// The machine beside its model and its replica, and the log of what was committed.
struct Pair {
    machine: ProcessMachine,
    /// Nobody waits here, and nothing is asked.
    replica: ProcessMachine,
    model: Model,
    now: Now,
    held: bool,
    seq: Seq,
    log: Vec<Logged>,
    shelf: Shelf<ProcessMachine>,
    waits: BTreeMap<Ticket, Watch>,
    tickets: u64,
    seen: BTreeMap<String, u32>,
    /// Records as they were when they had ended.
    ended: BTreeMap<ProcessId, RecordView>,
}

impl Pair {
    fn new() -> Self {
        Self {
            machine: ProcessMachine::new(rules()),
            replica: ProcessMachine::new(rules()),
            model: Model {
                rules: rules(),
                ..Model::default()
            },
            now: Now {
                at: BEGIN,
                offset: Offset(0),
            },
            held: false,
            seq: Seq(0),
            log: Vec::new(),
            shelf: Shelf::new(rules(), shown),
            waits: BTreeMap::new(),
            tickets: 0,
            seen: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    fn note(&mut self, what: &str) {
        *self.seen.entry(what.to_owned()).or_default() += 1;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send(which, message) => {
                let message = self.about(message, which);
                self.send(&message);
            }
            Step::Launch(which, line, mut launching) => {
                launching.parentage = self.parentage(which, line);
                self.send(&Message::Launch(Box::new(launching)));
            }
            Step::Register(which, line, mut registering) => {
                registering.parentage = self.parentage(which, line);
                self.send(&Message::Register(Box::new(registering)));
            }
            Step::Pass(ms) => self.now.at = self.now.at.plus_ms(ms),
            Step::Wall(by) => self.now.offset.0 += by,
            Step::Hold(held) => {
                self.held = held;
                self.machine.hold(held);
                self.replica.hold(held);
            }
            Step::Start => self.start(),
            Step::Reload => self.reload(),
            Step::Checkpoint => self.shelf.step(&mut self.machine, self.seq),
            Step::Watch(which, what) => self.watch(which, what),
            Step::Unwatch => {
                if let Some((ticket, _)) = self.waits.pop_first() {
                    self.machine.unwatch(ticket);
                }
            }
        }
        self.let_time_act();
        self.compare();
    }

    fn pick(&self, which: Which) -> ProcessId {
        let records = &self.model.records;
        let found = records.get(usize::from(which) % (records.len() + 1));
        found.map_or(ProcessId(5), |it| it.view.id)
    }

    /// The record that is meant, and the entry that a report of a signal may be about.
    fn about(&self, mut message: Message, which: Which) -> Message {
        let its = self.pick(which);
        match &mut message {
            Message::Finish { id, .. }
            | Message::Stop { id, .. }
            | Message::Signal { id, .. }
            | Message::Started { id, .. }
            | Message::Failed { id, .. }
            | Message::Ended { id, .. }
            | Message::Empty { id }
            | Message::Stuck { id, .. } => *id = its,
            Message::Signalled { id, asked, .. } => {
                *id = its;
                *asked = Seq(self.seq.0.saturating_sub(asked.0));
            }
            _ => {}
        }
        message
    }

    fn parentage(&self, which: Which, line: u8) -> Parentage {
        Parentage {
            named: (which % 3 > 0).then(|| self.pick(which / 3)),
            line: (line..line.saturating_add(2))
                .take(usize::from(line % 3))
                .map(identity)
                .collect(),
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            seq: Seq(self.seq.0 + 1),
            now: self.now,
            chance: Chance([3; 32]),
            ..Moment::default()
        }
    }

    /// Decides, commits and logs, as the host does; compares with the model.
    fn send(&mut self, message: &Message) {
        let moment = self.moment();
        let outcome = self.machine.decide(&moment, message);
        assert_eq!(outcome, self.replica.decide(&moment, message));
        let keeping = self.machine.keeping(message, &outcome);
        let stamp = moment.stamp();
        let new = match &outcome {
            Outcome::Launched(it) | Outcome::Registered(it) => Some((it.id, it.slot)),
            _ => None,
        };
        let entry = Entry {
            seq: stamp.seq,
            now: self.now,
            new,
        };
        let known = match message {
            Message::Register(registering) => self.look(Query::Process(registering.identity)),
            _ => Reply::Done,
        };
        let (verdict, mut actions) = self.model.send(message, entry);
        if new.is_some() {
            actions.extend(self.model.attempt(self.model.records.len() - 1));
        }
        let mut effects = Effects::<ProcessMachine>::default();
        let name = |it: &dyn std::fmt::Debug| {
            let words = format!("{it:?}");
            let word = words.split([' ', '{', '(']).next().unwrap_or_default();
            word.to_owned()
        };
        self.note(&format!("{} {}", name(message), name(&outcome)));
        if let Outcome::Refused(refused) = &outcome {
            self.note(&format!("{refused:?}"));
        }
        if keeping == Keeping::Nothing {
            let said = match &outcome {
                Outcome::Refused(refused) => Verdict::Refused(*refused),
                _ => Verdict::Nothing,
            };
            assert_eq!(said, verdict, "{message:?}");
            self.machine.unchanged(&outcome);
            self.replica.unchanged(&outcome);
        } else {
            assert_eq!(verdict, Verdict::Changed, "{message:?} {outcome:?}");
            self.seq = stamp.seq;
            self.machine.commit(stamp, message, &outcome, &mut effects);
            let mut none = Effects::<ProcessMachine>::default();
            self.replica.commit(stamp, message, &outcome, &mut none);
            self.log
                .push(Logged::Entry(stamp, message.clone(), outcome.clone()));
        }
        self.compare_effects(effects, actions);
        let reply = self.machine.reply(stamp.seq, message, &outcome);
        self.compare_reply(message, (&outcome, reply), known);
    }

    fn compare_reply(
        &mut self,
        message: &Message,
        (outcome, reply): (&Outcome, Reply),
        known: Reply,
    ) {
        let shown = |id: ProcessId, model: &mut Model| {
            Box::new(model.find(id).expect("it is there").view.clone())
        };
        let model = &mut self.model;
        let right = match (message, outcome) {
            (_, Outcome::Refused(refused)) => Reply::Refused(*refused),
            (Message::Launch(_), Outcome::Launched(it)) => Reply::Launched(shown(it.id, model)),
            (Message::Register(_), Outcome::Registered(it)) => Reply::Registered {
                record: shown(it.id, model),
                known: false,
            },
            (Message::Register(_), _) => match known {
                Reply::Record(record) => Reply::Registered {
                    record,
                    known: true,
                },
                other => other,
            },
            (Message::Stop { id, .. }, _) => Reply::Stopping(shown(*id, model)),
            (Message::Finish { id, .. }, _) => Reply::Record(shown(*id, model)),
            (Message::Signal { .. }, _) => Reply::Signalling(self.seq),
            (_, Outcome::Pruned { slots, more }) => Reply::Pruned {
                count: u32::try_from(slots.len()).expect("few"),
                more: *more,
            },
            _ => Reply::Done,
        };
        assert_eq!(reply, right, "{message:?}");
    }

    fn compare_effects(&mut self, mut effects: Effects<ProcessMachine>, actions: Actions) {
        let (mut acts, mut woken) = (Actions::new(), BTreeMap::new());
        for effect in effects.take() {
            match effect {
                Effect::Act(action) => acts.push((action.id, action.attempt, action.what)),
                Effect::Wake(ticket, reply) => {
                    assert!(
                        woken.insert(ticket, reply).is_none(),
                        "a wait is answered once"
                    );
                }
                Effect::Tell(..) => panic!("nobody is told anything"),
            }
        }
        assert_eq!(acts, actions);
        let model = &mut self.model;
        let mut right = BTreeMap::new();
        for (ticket, watch) in &self.waits {
            let found = model.find(watch.id());
            let view = found.expect("what is waited for is there").view.clone();
            let is_so = match watch {
                Watch::Start(_) => view.phase != Phase::Queued,
                Watch::End(_) => view.phase == Phase::Exited,
                Watch::Signal(_, asked) => {
                    let reply = woken.get(ticket).cloned();
                    if let Some(reply) = reply {
                        let sent = view.sent.filter(|it| it.asked == *asked);
                        assert_eq!(reply, Reply::Sent(sent));
                        right.insert(*ticket, reply);
                    }
                    continue;
                }
            };
            if is_so {
                right.insert(*ticket, Reply::Record(Box::new(view)));
            }
        }
        assert_eq!(woken, right, "who waits is answered when it is so");
        for ticket in woken.keys() {
            self.waits.remove(ticket);
            self.note("woken");
        }
    }

    fn watch(&mut self, which: Which, what: u8) {
        let id = self.pick(which);
        let watch = match what {
            0 => Watch::Start(id),
            1 => Watch::End(id),
            _ => Watch::Signal(id, self.seq),
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let mut effects = Effects::<ProcessMachine>::default();
        self.machine.watch(ticket, &watch, &mut effects);
        if effects.is_empty() {
            self.waits.insert(ticket, watch);
        }
    }

    fn let_time_act(&mut self) {
        while let Some(due) = {
            let deadline = self.machine.deadline(self.now.offset);
            let is_due = deadline.is_some_and(|at| at <= self.now.at);
            is_due.then(|| self.machine.due(self.now)).flatten()
        } {
            let slot = Slot(u32::try_from(due).expect("a slot"));
            assert_eq!(Some(slot), self.model.due(self.now, self.held));
            let message = self.machine.tick(due);
            assert_eq!(message, Message::Lapse { slot });
            self.send(&message);
        }
        assert_eq!(self.model.due(self.now, self.held), None, "nothing is left");
    }

    fn start(&mut self) {
        for ticket in std::mem::take(&mut self.waits).into_keys() {
            self.machine.unwatch(ticket);
        }
        self.seq.0 += 1;
        let stamp = Stamp {
            seq: self.seq,
            at: self.now.at,
        };
        let start = Start { stamp, skipped: 0 };
        self.machine.start(start);
        self.replica.start(start);
        self.log.push(Logged::Start(start));
        (self.model.epoch, self.model.started) = (stamp.at, stamp.seq);
        self.resume();
    }

    fn resume(&mut self) {
        let mut effects = Effects::<ProcessMachine>::default();
        self.machine.resume(&mut effects);
        let right = self.model.resume();
        self.compare_effects(effects, right);
    }

    /// As after a panic: the newest snapshot, and what the log has since.
    fn reload(&mut self) {
        let (mut machine, upto) = self.shelf.load();
        for logged in &self.log {
            logged.repeat(&mut machine, upto);
        }
        machine.hold(self.held);
        self.machine = machine;
        (self.machine.contradictions, self.replica.contradictions) = (0, 0);
        self.model.contradictions = 0;
        self.resume();
        for (ticket, watch) in self.waits.clone() {
            let mut effects = Effects::<ProcessMachine>::default();
            self.machine.watch(ticket, &watch, &mut effects);
            assert!(effects.is_empty(), "it was not so before");
        }
        self.note("reload");
    }

    fn look(&self, query: Query) -> Reply {
        self.machine.query(self.now, &query)
    }

    /// Everything that can be asked, and everything that must hold.
    fn compare(&mut self) {
        self.machine.assert_whole();
        assert_eq!(self.machine.digest(), self.replica.digest());
        let records = self.model.records.iter();
        let right: View = records.map(|it| (it.view.id, it.view.clone())).collect();
        assert_eq!(self.machine.view(), right);
        for it in self
            .model
            .records
            .iter()
            .filter(|it| it.view.phase == Phase::Exited)
        {
            let was = self
                .ended
                .entry(it.view.id)
                .or_insert_with(|| it.view.clone());
            // What has ended stays as it is, but for those above and below it.
            let is = RecordView {
                parent: was.parent,
                live_children: was.live_children,
                ..it.view.clone()
            };
            assert_eq!(*was, is);
        }
        let Reply::Totals(totals) = self.look(Query::Totals) else {
            panic!("totals are asked for");
        };
        let bytes: u64 = self.model.records.iter().map(|it| it.bytes).sum();
        assert_eq!(
            (totals.bytes, totals.contradictions),
            (bytes, self.model.contradictions)
        );
        for phase in Phase::ALL {
            let count = right.values().filter(|it| it.phase == phase).count();
            assert_eq!(totals.of(phase) as usize, count);
        }
        self.compare_lists(&right);
    }

    fn compare_lists(&self, right: &View) {
        for view in right.values() {
            let of = view.id;
            let one = Reply::Record(Box::new(view.clone()));
            assert_eq!(self.look(Query::One(of)), one);
            assert_eq!(self.look(Query::Prefix(of.to_string())), one);
            let mut above = Vec::new();
            let mut next = view.parent;
            while let Some(parent) = next.and_then(|id| right.get(&id)) {
                next = parent.parent;
                above.push(parent.clone());
            }
            let page = Reply::Page {
                records: above,
                next: None,
            };
            assert_eq!(self.look(Query::Ancestors(of)), page);
            let is_below = |it: &&RecordView| {
                let mut up = std::iter::successors(it.parent, |id| right.get(id)?.parent);
                it.id != of && (up.any(|id| id == of) || it.root == of)
            };
            let below: Vec<_> = right.values().filter(is_below).cloned().collect();
            let found = self.pages(|after| Query::Descendants { of, after, most: 2 });
            assert_eq!(found, below);
        }
        let first = right.values().next();
        let selection = |newest_first| Selection {
            newest_first,
            most: 2,
            ..Selection::default()
        };
        let of = first.map(|it| it.id);
        let selections = [
            selection(false),
            selection(true),
            Selection {
                parent: of,
                ..selection(true)
            },
            Selection {
                root: of,
                ..selection(false)
            },
            Selection {
                kind: Some("worker".to_owned()),
                ..selection(false)
            },
            Selection {
                phases: vec![Phase::Running, Phase::Stopping],
                ..selection(true)
            },
            Selection {
                phases: vec![Phase::Exited],
                machine: Some(7),
                ..selection(false)
            },
            Selection {
                text: Some("EXAMPLE".to_owned()),
                ..selection(false)
            },
            Selection {
                label: Some(("of".to_owned(), Some("hook".to_owned()))),
                ..selection(true)
            },
        ];
        for selection in selections {
            let is = |it: &&RecordView| {
                selection.parent.is_none_or(|id| it.parent == Some(id))
                    && selection.root.is_none_or(|id| it.root == id)
                    && selection.kind.as_ref().is_none_or(|kind| it.kind == *kind)
                    && (selection.phases.is_empty() || selection.phases.contains(&it.phase))
                    && selection
                        .machine
                        .is_none_or(|its| it.identity.is_none_or(|it| it.machine == its))
                    && (selection.text.is_none() || it.url.is_some())
                    && (selection.label.is_none()
                        || it.labels.iter().any(|(_, value)| value == "hook"))
            };
            let mut wanted: Vec<_> = right.values().filter(is).cloned().collect();
            if selection.newest_first {
                wanted.reverse();
            }
            let found = self.pages(|after| {
                Query::List(Selection {
                    after,
                    ..selection.clone()
                })
            });
            assert_eq!(found, wanted, "{selection:?}");
            let count = Reply::Count {
                count: u32::try_from(wanted.len()).expect("few"),
                next: None,
            };
            assert_eq!(
                self.look(Query::Count(selection.clone())),
                count,
                "{selection:?}"
            );
        }
    }

    /// All pages of an answer.
    fn pages(&self, query: impl Fn(Option<ProcessId>) -> Query) -> Vec<RecordView> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let Reply::Page { records, next } = self.look(query(after)) else {
                panic!("a list is answered with a page");
            };
            assert!(records.len() <= 2);
            found.extend(records);
            after = next;
            if next.is_none() {
                return found;
            }
        }
    }

    /// The log alone, committed into a machine with other rules, gives the same state.
    fn replay(&self) {
        let mut fresh = ProcessMachine::new(Rules {
            records_max: 0,
            live_max: 0,
            retention_ms: 0,
            bytes_max: 0,
        });
        for logged in &self.log {
            logged.repeat(&mut fresh, Seq(0));
        }
        assert_eq!(fresh.digest(), self.machine.digest());
        assert_eq!(shown(&fresh), shown(&self.machine));
    }
}

/// What a snapshot keeps.
fn shown(machine: &ProcessMachine) -> String {
    machine.assert_whole();
    format!("{:?}", machine.view())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_machine_is_like_its_model(steps in prop::collection::vec(any_step(), 1..150)) {
        let mut pair = Pair::new();
        steps.into_iter().for_each(|step| pair.step(step));
        pair.replay();
    }
}

/// The model test meets everything that there is.
#[test]
fn the_model_test_meets_every_rule() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = BTreeMap::<String, u32>::new();
    for _ in 0..60 {
        let steps = prop::collection::vec(any_step(), 150..151);
        let steps = steps.new_tree(&mut runner).expect("steps are drawn");
        let mut pair = Pair::new();
        steps.current().into_iter().for_each(|step| pair.step(step));
        for (what, count) in pair.seen {
            *seen.entry(what).or_default() += count;
        }
        *seen.entry("taken".to_owned()).or_default() += pair.shelf.taken;
        *seen.entry("early".to_owned()).or_default() += pair.shelf.early;
    }
    for what in [
        "Launch Launched",
        "Register Registered",
        "Register Known",
        "Started Started",
        "Started Contradicted",
        "Started Unchanged",
        "Failed Failed",
        "Failed Contradicted",
        "Ended Ended",
        "Ended Unchanged",
        "Empty Emptied",
        "Empty Unchanged",
        "Finish Ended",
        "Stop Stopping",
        "Stop Unchanged",
        "Signal Signalling",
        "Signalled Signalled",
        "Signalled Unchanged",
        "Stuck Stuck",
        "Stuck Unchanged",
        "Prune Pruned",
        "Lapse Stopping",
        "Lapse Killing",
        "Lapse Pruned",
        "Unknown",
        "Ended",
        "Queued",
        "Launched",
        "Full",
        "Invalid(Argv)",
        "woken",
        "reload",
        "taken",
        "early",
    ] {
        let count = seen.get(what).copied().unwrap_or(0);
        assert!(count >= 5, "{what}: {seen:?}");
    }
}
