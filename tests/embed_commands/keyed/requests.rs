//! The requests: for each method that changes something, one that does.

use super::{Fixture, Pushed, Request, done, launching, name, named, shown, task};
use sexton::actors::binding::{Binding, Until};
use sexton::actors::dispatch::{Act, Host, Pause, Report, ServerChange};
use sexton::actors::lease::{Imported, Setting};
use sexton::actors::process::{Identity, Registering, Tags};
use sexton::actors::queue::{
    AnyType, Body, Claim as Claimed, Command, JobEnd, OutputTail, Progress, Put, Root,
};
use sexton::bytes::Bytes;
use sexton::handle::{Entry, Fault, Stopping, Terms};

fn any_of(queue: &str) -> AnyType {
    AnyType { types: vec![queue.to_owned()], ..AnyType::default() }
}

/// Returns the registration of a process on another machine, which this node does not follow.
fn elsewhere(pid: u32) -> Registering {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has one");
    let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16);
    Registering {
        identity: Identity {
            machine: 1,
            // A process of another boot has ended.
            boot: boot.expect("hexadecimal digits"),
            namespace: 1,
            pid,
            inode: 0,
            ticks: 1,
        },
        argv: vec![Bytes::new(*b"elsewhere")],
        ..Registering::default()
    }
}

impl Fixture {
    pub(super) fn lock(&self, method: &str) -> Request {
        let locks = self.handle.locks();
        let (entry, token) = self.held(method);
        let (key, index) = (entry.key.clone(), entry.index.clone());
        match method {
            "acquire" => {
                let other = Entry::new("acquired", "me").expect("short names");
                Box::new(move |it| shown(&done(locks.once(it).acquire(&other, Terms::default()))))
            }
            "renew" => Box::new(move |it| shown(&done(locks.once(it).renew(&entry, Some(token))))),
            "release" => {
                Box::new(move |it| shown(&done(locks.once(it).release(&entry, Some(token)))))
            }
            "leave" => Box::new(move |it| shown(&done(locks.once(it).leave(&key, &index, token)))),
            "force" => Box::new(move |it| shown(&done(locks.once(it).force(&key, &index)))),
            "release_all" => {
                Box::new(move |it| shown(&done(locks.once(it).release_all(&name("me")))))
            }
            _ => panic!("Locks::{method} has no case here"),
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table of requests")]
    pub(super) fn job(&self, method: &str) -> Option<Request> {
        let queues = self.handle.queues();
        let queue = named(method);
        let put = Put::new(queue.clone(), Body::new(*b"x"));
        Some(match method {
            "put" => Box::new(move |it| shown(&done(queues.once(it).put(put.clone())))),
            "put_all" => Box::new(move |it| {
                shown(&done(queues.once(it).put_all(vec![put.clone(), put.clone()])))
            }),
            "push" => Box::new(move |it| shown(&done(queues.once(it).push(&Pushed)))),
            "register" => {
                let root = Root::of(&queue, "signature", 1);
                Box::new(move |it| shown(&done(queues.once(it).register(root))))
            }
            "delete" => {
                let id = self.added(method);
                Box::new(move |it| shown(&done(queues.once(it).delete(id))))
            }
            "kick" => {
                self.buried(method);
                Box::new(move |it| shown(&done(queues.once(it).kick(&queue, 1))))
            }
            "kick_job" => {
                let id = self.buried(method);
                Box::new(move |it| shown(&done(queues.once(it).kick_job(id))))
            }
            "kick_jobs" => {
                let ids = [self.buried(method), self.added(method), self.buried(method)];
                Box::new(move |it| shown(&done(queues.once(it).kick_jobs(&ids))))
            }
            "delete_jobs" => {
                let ids = [self.claimed(method).id, self.added(method)];
                Box::new(move |it| shown(&done(queues.once(it).delete_jobs(&ids))))
            }
            "repush" => {
                let id = self.added(method);
                done(queues.cancel(id, None));
                Box::new(move |it| shown(&done(queues.once(it).repush(&queue))))
            }
            "cancel" => {
                let id = self.added(method);
                Box::new(move |it| shown(&done(queues.once(it).cancel(id, None))))
            }
            "pause" => {
                self.added(method);
                Box::new(move |it| shown(&done(queues.once(it).pause(&queue, 60_000))))
            }
            "flush" => {
                self.added(method);
                Box::new(move |it| shown(&done(queues.once(it).flush(&queue))))
            }
            "pop" => {
                self.added(method);
                Box::new(move |it| shown(&done(queues.once(it).pop(std::slice::from_ref(&queue)))))
            }
            "pop_some" => {
                self.added(method);
                Box::new(move |it| {
                    shown(&done(queues.once(it).pop_some(std::slice::from_ref(&queue), 3)))
                })
            }
            "pop_any" => {
                self.added(method);
                let any = any_of(method);
                Box::new(move |it| shown(&done(queues.once(it).pop_any(any.clone(), 3))))
            }
            "pop_waiting" => {
                self.added(method);
                Box::new(move |it| {
                    shown(&done(queues.once(it).pop_waiting(std::slice::from_ref(&queue))))
                })
            }
            "exchange" => {
                let ended = self.claimed(method);
                self.added(method);
                let ended = [(ended.id, ended.token)];
                let queue = [queue];
                Box::new(move |it| shown(&done(queues.once(it).exchange(&ended, &queue, 3))))
            }
            "exchange_any" => {
                let ended = self.claimed(method);
                self.added(method);
                let (ended, any) = ([(ended.id, ended.token)], any_of(method));
                Box::new(move |it| {
                    shown(&done(queues.once(it).exchange_any(&ended, any.clone(), 3)))
                })
            }
            _ => return None,
        })
    }

    pub(super) fn claim(&self, method: &str) -> Option<Request> {
        let queues = self.handle.queues();
        let Claimed { id, token, .. } = self.claimed(method);
        Some(match method {
            "ack" => Box::new(move |it| shown(&done(queues.once(it).ack(id, token)))),
            "release" => {
                Box::new(move |it| shown(&done(queues.once(it).release(id, token, (0, None)))))
            }
            "bury" => Box::new(move |it| shown(&done(queues.once(it).bury(id, token, None)))),
            "touch" => Box::new(move |it| shown(&done(queues.once(it).touch(id, token)))),
            "fail" => {
                Box::new(move |it| shown(&done(queues.once(it).fail(id, token, (None, None)))))
            }
            "crash" => {
                Box::new(move |it| shown(&done(queues.once(it).crash(id, token, (None, None)))))
            }
            "defer" => {
                let terms = || (Some(60_000), None);
                Box::new(move |it| shown(&done(queues.once(it).defer(id, token, terms()))))
            }
            "interrupt" => {
                Box::new(move |it| shown(&done(queues.once(it).interrupt(id, token, None))))
            }
            "report" => Box::new(move |it| {
                let progress = Progress { percent: Some(7), text: None };
                shown(&done(queues.once(it).report(id, token, progress)))
            }),
            "keep_result" => Box::new(move |it| {
                let end = JobEnd {
                    done: true,
                    exit: None,
                    error: None,
                    output: OutputTail::default(),
                    took_ms: 1,
                };
                shown(&done(queues.once(it).keep_result(id, token, (60_000, end))))
            }),
            "attach" => {
                let binding = Binding { process: self.process, until: Until::Tree, fence: true };
                done(queues.bound(binding).touch(id, token));
                let command = Command { process: self.sleeper(), completes: false };
                Box::new(move |it| shown(&done(queues.once(it).attach(id, token, (command, 0)))))
            }
            _ => return None,
        })
    }

    pub(super) fn of_process(&self, method: &str) -> Request {
        let processes = self.handle.processes();
        match method {
            "launch" => Box::new(move |it| {
                let launched = done(processes.once(it).launch(launching(&["true"])));
                done(processes.ended(launched.id));
                shown(&launched.id)
            }),
            "start" => {
                let mut deferred = launching(&["true"]);
                deferred.deferred = true;
                let id = done(processes.launch(deferred)).id;
                Box::new(move |it| {
                    let started = done(processes.once(it).start(id));
                    done(processes.ended(id));
                    shown(&started.id)
                })
            }
            "register" => Box::new(move |it| {
                let (record, _) = done(processes.once(it).register(elsewhere(1)));
                shown(&record.id)
            }),
            "register_pid" => Box::new(move |it| {
                let keyed = processes.once(it);
                let parent = std::os::unix::process::parent_id();
                shown(&done(keyed.register_pid(parent, Tags::default(), None)).0.id)
            }),
            "finish" => {
                let id = done(processes.register(elsewhere(2))).0.id;
                Box::new(move |it| shown(&done(processes.once(it).finish(id, 0, None))))
            }
            "stop" => {
                let id = self.sleeper();
                Box::new(move |it| {
                    let stopped = done(processes.once(it).stop(id, Stopping::default()));
                    done(processes.ended(id));
                    shown(&stopped.id)
                })
            }
            "signal" => {
                let id = self.process;
                Box::new(move |it| shown(&done(processes.once(it).signal(id, 18, false))))
            }
            "prune" => {
                let launched = done(processes.launch(launching(&["true"])));
                done(processes.ended(launched.id));
                Box::new(move |it| {
                    let pruned = done(processes.once(it).prune(None, 0));
                    // Another one has ended when the request is repeated.
                    let launched = done(processes.launch(launching(&["true"])));
                    done(processes.ended(launched.id));
                    shown(&pruned)
                })
            }
            _ => panic!("Processes::{method} has no case here"),
        }
    }

    pub(super) fn task(&self, method: &str) -> Request {
        let tasks = self.handle.tasks();
        match method {
            "add" => {
                Box::new(move |it| shown(&done(tasks.once(it).add(task(&["true"], true))).task.id))
            }
            "add_with_fault" => Box::new(move |it| {
                let adding = tasks.once(it);
                let adding = adding.add_with_fault(task(&["true"], true), Fault::ALL[0]);
                shown(&done(adding).task.id)
            }),
            "act" => {
                let id = done(tasks.add(task(&["true"], true))).task.id;
                Box::new(move |it| {
                    let ends = Act::Terminate { now: true };
                    shown(&done(tasks.once(it).act(id, ends)).task.id)
                })
            }
            "pause" => Box::new(move |it| {
                shown(&done(tasks.once(it).pause(Some(name("paused")), Pause::Soft)))
            }),
            "limit" => Box::new(move |it| shown(&done(tasks.once(it).limit(name("limited"), 7)))),
            "server" => Box::new(move |it| {
                let change = ServerChange::Threads(3);
                shown(&done(tasks.once(it).server(name("server"), change)))
            }),
            "inventory" => Box::new(move |it| {
                let host = Host { name: name("host"), threads: 2, remote: None };
                shown(&done(tasks.once(it).inventory(vec![host], false)))
            }),
            "prune" => {
                let fixture = self.clone();
                // As many as one message removes.
                for _ in 0..1000 {
                    fixture.over();
                }
                Box::new(move |it| {
                    let pruned = done(tasks.once(it).prune(None, 0));
                    // Another one is over when the request is repeated.
                    fixture.over();
                    shown(&pruned)
                })
            }
            "report" => {
                done(tasks.add(task(&["sleep", "601"], false)));
                let process = self.attempt("601");
                Box::new(move |it| shown(&done(tasks.once(it).report(process, Report::Beat, None))))
            }
            _ => panic!("Tasks::{method} has no case here"),
        }
    }

    pub(super) fn lease(&self, method: &str) -> Request {
        let leases = self.handle.leases();
        let lease = name(method);
        match method {
            "request" => Box::new(move |it| {
                let requested = done(leases.once(it).request(Self::pass("request")));
                shown(&(requested.turn, requested.place))
            }),
            "claim" => {
                Box::new(move |it| shown(&done(leases.once(it).claim(Self::pass("claim"))).0))
            }
            "renew" => {
                let token = self.begun(method);
                Box::new(move |it| shown(&done(leases.once(it).renew(&lease, token, None))))
            }
            "finish" => {
                let token = self.begun(method);
                Box::new(move |it| shown(&done(leases.once(it).finish(&lease, token, 0))))
            }
            "give_back" => {
                let place = done(leases.request(Self::pass(method))).place;
                Box::new(move |it| shown(&done(leases.once(it).give_back(&lease, place))))
            }
            "set" => {
                Box::new(move |it| shown(&done(leases.once(it).set(&lease, Setting::Period(7000)))))
            }
            "import" => Box::new(move |it| {
                let holder = Imported::default();
                shown(&done(leases.once(it).import(&lease, holder, holder)))
            }),
            "reset" => {
                done(leases.set(&lease, Setting::Period(7000)));
                Box::new(move |it| shown(&done(leases.once(it).reset(&lease, false))))
            }
            _ => panic!("Leases::{method} has no case here"),
        }
    }
}
