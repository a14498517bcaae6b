//! Whatever becomes of processes, tells and the server: passes never overlap nor come too soon, and every request has one.

use super::{Bench, command, process};
use crate::actors::binding::{Binding, Exit, Until};
use crate::actors::lease::{
    Claim, Lease, LeaseMachine, Message, Query, Reply, Requesting, Setting,
};
use crate::actors::lock::Name;
use crate::actors::process::Message as Asked;
use crate::bytes::Bytes;
use crate::clock::Offset;
use crate::ids::{ProcessId, Seq, Token};
use crate::schedule::Schedule;
use crate::spine::machine::{Effects, Machine as _, Paged as _, Timed as _};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What the world does to leases.
#[derive(Clone, Debug)]
enum Act {
    Run {
        lease: u8,
        no_delay: bool,
    },
    Claim {
        lease: u8,
        process: u8,
        waits: bool,
    },
    Finish {
        lease: u8,
    },
    Renew {
        lease: u8,
    },
    Withdraw {
        lease: u8,
    },
    Set(u8, Setting),
    Reset(u8, bool),
    /// The `ProcessActor` does what it was told; or all of it is lost.
    Deliver,
    Lose,
    /// A process ends.
    End {
        nth: usize,
        exit: Exit,
    },
    Pass(u64),
    Jump(i64),
    Restart,
    Resume,
    Checkpoint,
    Reload,
}

fn act() -> impl Strategy<Value = Act> {
    let lease = 0..2_u8;
    let exit = prop_oneof![
        3 => Just(Exit::Code(0)),
        1 => Just(Exit::Code(1)),
        3 => Just(Exit::Signal(9)),
        1 => Just(Exit::Lost),
        1 => Just(Exit::Failed),
    ];
    let setting = prop_oneof![
        Just(Setting::Period(30_000)),
        Just(Setting::MaxRun(20_000)),
        Just(Setting::MaxRun(0)),
        Just(Setting::NoDelay(true)),
        Just(Setting::NoDelay(false)),
        Just(Setting::Disabled(true)),
        Just(Setting::Disabled(false)),
        Just(Setting::Command(Some(command()))),
        Just(Setting::Schedule(Schedule::new("*/5 * * * *", None).ok())),
    ];
    prop_oneof![
        6 => (lease.clone(), any::<bool>()).prop_map(|(lease, no_delay)| Act::Run { lease, no_delay }),
        3 => (lease.clone(), 0..4_u8, any::<bool>())
            .prop_map(|(lease, process, waits)| Act::Claim { lease, process, waits }),
        2 => lease.clone().prop_map(|lease| Act::Finish { lease }),
        1 => lease.clone().prop_map(|lease| Act::Renew { lease }),
        1 => lease.clone().prop_map(|lease| Act::Withdraw { lease }),
        2 => (lease.clone(), setting).prop_map(|(lease, setting)| Act::Set(lease, setting)),
        1 => (lease, any::<bool>()).prop_map(|(lease, force)| Act::Reset(lease, force)),
        8 => Just(Act::Deliver),
        1 => Just(Act::Lose),
        8 => (0..4_usize, exit).prop_map(|(nth, exit)| Act::End { nth, exit }),
        8 => prop_oneof![Just(1_u64), 0..5_000_u64, 10_000..100_000_u64].prop_map(Act::Pass),
        1 => prop_oneof![Just(3_600_000_i64), Just(-3_600_000_i64)].prop_map(Act::Jump),
        1 => Just(Act::Restart),
        1 => Just(Act::Resume),
        1 => Just(Act::Checkpoint),
        1 => Just(Act::Reload),
    ]
}

/// Two leases, and the processes that run for them.
struct World {
    bench: Bench,
    /// Processes that were launched: of which lease, and whether they live.
    launched: BTreeMap<ProcessId, (Name, Option<Exit>)>,
    /// When the newest pass of each began.
    began: BTreeMap<Name, (u64, Token)>,
    /// The shortest period that was ever set.
    period: u64,
}

impl World {
    fn new() -> Self {
        Self {
            bench: Bench::at(1_000_000_000_000),
            launched: BTreeMap::new(),
            began: BTreeMap::new(),
            period: 30_000,
        }
    }

    fn name(lease: u8) -> Name {
        Name::try_from(if lease == 0 { "a" } else { "b" }).expect("it is short")
    }

    fn lease(&self, name: &Name) -> Option<Lease> {
        let query = Query::Of(name.clone());
        match self.bench.machine.query(self.bench.both(), &query) {
            Reply::Lease(view) => Some(view.lease),
            _ => None,
        }
    }

    /// The `ProcessActor` does what it was told. A launch is done once for each id.
    fn deliver(&mut self) {
        for told in std::mem::take(&mut self.bench.told) {
            match told {
                Asked::LaunchAs(asked) => {
                    let named = |(name, _): &&(String, Bytes)| name == "SEXTON_LEASE";
                    let its = asked.launching.spec.env.iter().find(named);
                    let its = its.expect("the lease is in its environment").1.as_bytes();
                    let name = Name::new(its).expect("it is short");
                    let alive = |(_, (of, end)): &(&ProcessId, &(Name, Option<Exit>))| {
                        *of == name && end.is_none()
                    };
                    let id = asked.id;
                    if !self.launched.contains_key(&id) {
                        let beside = self.launched.iter().find(alive);
                        assert_eq!(beside, None, "a pass runs already");
                        self.launched.insert(id, (name, None));
                    }
                    self.bench.say(Message::Launched(id));
                    self.tell_if_gone(id);
                }
                Asked::Watch(watch) => self.tell_if_gone(watch.process),
                Asked::Fence(process) => {
                    if let Some((_, end)) = self.launched.get_mut(&process) {
                        end.get_or_insert(Exit::Signal(15));
                    }
                    self.tell_if_gone(process);
                }
                other => panic!("nobody says {other:?}"),
            }
        }
    }

    fn tell_if_gone(&mut self, process: ProcessId) {
        // Clients' processes 0 to 3 live; what was never launched is gone.
        if process.0 < 4 {
            return;
        }
        match self.launched.get(&process) {
            Some((_, None)) => {}
            Some((_, Some(exit))) => self.bench.gone(process, *exit),
            None => self.bench.gone(process, Exit::Failed),
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Run { lease, no_delay } => {
                self.bench.say(Message::Request(Box::new(Requesting {
                    name: Self::name(*lease),
                    command: Some(command()),
                    no_delay: *no_delay,
                    ..Requesting::default()
                })));
            }
            Act::Claim {
                lease,
                process: pid,
                waits,
            } => self.claim(*lease, *pid, *waits),
            Act::Finish { lease } => {
                let name = Self::name(*lease);
                let token = self.began.get(&name).map_or(Token(0), |it| it.1);
                self.bench.say(Message::Finish {
                    name,
                    token,
                    code: 0,
                });
            }
            Act::Renew { lease } => {
                let name = Self::name(*lease);
                let token = self.began.get(&name).map_or(Token(0), |it| it.1);
                let process = None;
                self.bench.say(Message::Renew {
                    name,
                    token,
                    process,
                });
            }
            Act::Withdraw { lease } => {
                let name = Self::name(*lease);
                let next = self.lease(&name).and_then(|it| it.next);
                let place = next.map_or(Token(0), |it| it.token);
                self.bench.say(Message::Withdraw { name, place });
            }
            Act::Set(lease, setting) => {
                let (name, setting) = (Self::name(*lease), setting.clone());
                self.bench.say(Message::Set { name, setting });
            }
            Act::Reset(lease, force) => {
                let (name, force) = (Self::name(*lease), *force);
                self.bench.say(Message::Reset { name, force });
            }
            Act::Deliver => self.deliver(),
            Act::Lose => self.bench.told.clear(),
            Act::End { nth, exit } => self.end(*nth, *exit),
            Act::Pass(ms) => self.pass(*ms),
            Act::Jump(ms) => self.bench.offset += ms,
            Act::Restart => self.bench.restart(),
            Act::Resume => self.resume(),
            Act::Checkpoint => self
                .bench
                .shelf
                .step(&mut self.bench.machine, Seq(self.bench.seq)),
            Act::Reload => self.reload(),
        }
        self.look();
    }

    /// A client asks that runs the pass itself.
    fn claim(&mut self, lease: u8, pid: u8, waits: bool) {
        let by_process = (pid > 0).then(|| Binding {
            process: process(pid.into()),
            until: Until::Tree,
            fence: false,
        });
        let claim = Claim {
            process: by_process,
            waits,
            ..Claim::default()
        };
        self.bench.say(Message::Request(Box::new(Requesting {
            name: Self::name(lease),
            claim: Some(claim),
            ..Requesting::default()
        })));
    }

    /// A process that lives ends, and its watcher is told.
    fn end(&mut self, nth: usize, exit: Exit) {
        let alive = self.launched.iter().filter(|(_, (_, end))| end.is_none());
        let Some(id) = alive.map(|(id, _)| *id).nth(nth) else {
            return;
        };
        self.launched.get_mut(&id).expect("it was found").1 = Some(exit);
        self.bench.gone(id, exit);
    }

    fn resume(&mut self) {
        let mut effects = Effects::<LeaseMachine>::default();
        self.bench.machine.resume(&mut effects);
        self.bench.hear(&mut effects);
    }

    /// The machine is built anew from its log, and is the same.
    fn reload(&mut self) {
        let replayed = self.bench.replayed();
        assert_eq!(replayed.digest(), self.bench.machine.digest());
        self.bench.machine = replayed;
        self.resume();
    }

    fn pass(&mut self, ms: u64) {
        let end = self.bench.now + ms;
        while self.bench.now < end {
            let offset = Offset(self.bench.offset);
            let deadline = self.bench.machine.deadline(offset);
            let next = deadline.map_or(end, |it| it.0.clamp(self.bench.now + 1, end));
            self.bench.now = next;
            self.bench.tick();
            self.look();
        }
    }

    /// Passes begin one period apart, and each alone.
    fn look(&mut self) {
        self.bench.machine.assert_whole();
        for lease in 0..2 {
            let name = Self::name(lease);
            let Some(lease) = self.lease(&name) else {
                // Forgotten: whoever asks next has a pass at once.
                self.began.remove(&name);
                continue;
            };
            let Some(current) = &lease.current else {
                continue;
            };
            let (since, token) = (current.since.0, current.token);
            if let Some((before, old)) = self.began.insert(name, (since, token))
                && old != token
            {
                assert!(token > old, "tokens only grow");
                let apart = since - before;
                assert!(apart > self.period, "passes begin {apart} ms apart");
            }
        }
    }

    /// Nothing disturbs any more: whatever was asked for is done.
    fn settle(&mut self) {
        for lease in 0..2 {
            self.act(&Act::Set(lease, Setting::Schedule(None)));
        }
        for _ in 0..40 {
            self.deliver();
            self.end(0, Exit::Code(0));
            for lease in 0..2 {
                self.act(&Act::Finish { lease });
            }
            self.pass(31_000);
            self.resume();
        }
        for lease in 0..2 {
            let Some(lease) = self.lease(&Self::name(lease)) else {
                continue;
            };
            let is_done = lease.whole >= lease.wanted || lease.kept().is_none();
            assert!(
                is_done || lease.settings.disabled,
                "a request is forgotten: {lease:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn passes_never_overlap_nor_come_too_soon_and_every_request_has_one(
        acts in prop::collection::vec(act(), 0..80)
    ) {
        let mut world = World::new();
        for lease in 0..2 {
            let setting = Setting::Period(30_000);
            world.act(&Act::Set(lease, setting));
        }
        for act in &acts {
            world.act(act);
        }
        world.reload();
        world.settle();
    }
}
