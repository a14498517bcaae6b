//! Hosts as actix actors: mailboxes, restarts, timers. The only file that names actix.
//!
//! A panic is caught in the host, before actix would see it; the actor then stops its context and is restarted by
//! actix's Supervisor, which keeps the address and the mailbox.

mod heard;
mod paging;

use crate::clock::{Rouse, Timestamp};
use crate::ids::{Digest, Seq, Ticket};
use crate::persist::disk::Disk;
use crate::persist::snapshots::Slots;
use crate::spine::directory::Admission;
use crate::spine::host::{Answer, Delivery, Flow, Host, Item, QuerySaboteur, ReplyTo, Report};
use crate::spine::ledger::Ledger;
use crate::spine::machine::Machine;
use crate::spine::parallel::both;
use crate::spine::recovery::{self, Recovering, RecoveryError, Replica, Scope};
use crate::spine::shared::{Halt, Spine};
use crate::spine::supervisor::Verdict;
use actix::{
    Actor, ActorContext as _, ActorFutureExt as _, Addr, AsyncContext as _, Context, Handler,
    Message, SpawnHandle, Supervised, WrapFuture as _,
};
use heard::{Hearing, hearing};
use paging::Pager;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The longest a timer sleeps: tokio's clock stands still while the machine sleeps, the node's does not.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A host inside actix.
struct Shell<M: Machine> {
    host: Host<M>,
    rules: M::Rules,
    spine: Rc<Spine>,
    timer: Option<(Timestamp, SpawnHandle)>,
}

/// The address of an actor. Cloning gives another handle; any thread may use it.
pub struct Mailbox<M: Machine> {
    address: Addr<Shell<M>>,
    admission: Admission,
}

impl<M: Machine> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self {
            address: self.address.clone(),
            admission: self.admission.clone(),
        }
    }
}

/// The node has halted or stopped: the request was not answered, and may or may not have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node has stopped")]
pub struct Stopped;

/// What an actor says of itself.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ActorStatus {
    /// Its name.
    pub name: &'static str,
    /// Its newest entry.
    pub last: Seq,
    /// The digest of its durable state; none while it is being rebuilt.
    pub digest: Option<Digest>,
    /// Items on which time no longer acts.
    pub quarantined: Vec<Report>,
}

impl<M: Machine> Mailbox<M> {
    /// Delivers commands and waits for their answers, which come together and in order.
    ///
    /// Waits first until the bound on open commands has room. Dropping the future does not recall the commands.
    pub async fn call(&self, items: Vec<Item<M>>) -> Result<Vec<Answer<M::Reply>>, Stopped> {
        let permit = self.admission.admit(items.len()).await;
        let (answer, answers) = oneshot::channel();
        let reply_to: ReplyTo<M::Reply> = Box::new(move |all| {
            drop(permit);
            // Whoever asked may be gone; the commands were carried out all the same.
            drop(answer.send(all));
        });
        self.address
            .try_send(Deliver(Delivery { items, reply_to }))
            .map_err(|_| Stopped)?;
        answers.await.map_err(|_| Stopped)
    }

    /// The same. If the future is dropped, what is answered goes to `unheard`.
    pub async fn call_or(
        &self,
        items: Vec<Item<M>>,
        unheard: impl Fn(Vec<Answer<M::Reply>>) + Send + Sync + 'static,
    ) -> Result<Vec<Answer<M::Reply>>, Stopped> {
        let permit = self.admission.admit(items.len()).await;
        let (answer, mut answers) = hearing(Arc::new(unheard));
        let reply_to: ReplyTo<M::Reply> = Box::new(move |all| {
            drop(permit);
            answer(all);
        });
        self.address
            .try_send(Deliver(Delivery { items, reply_to }))
            .map_err(|_| Stopped)?;
        answers.answers().await.ok_or(Stopped)
    }

    /// Delivers commands whose answers nobody waits for, in front of the bound on open commands.
    pub fn cast(&self, items: Vec<Item<M>>) {
        let reply_to: ReplyTo<M::Reply> = Box::new(drop);
        self.address.do_send(Deliver(Delivery { items, reply_to }));
    }

    /// Waits for something to become true.
    pub async fn watch(&self, watch: M::Watch) -> Result<Answer<M::Reply>, Stopped> {
        self.begin_watch(watch).answer().await
    }

    /// Begins to wait for something to become true.
    pub fn begin_watch(&self, watch: M::Watch) -> Waiting<M> {
        self.begin_watch_or(watch, drop)
    }

    /// The same. What is answered after all, when whoever waits has gone, goes to `unheard`.
    pub fn begin_watch_or(
        &self,
        watch: M::Watch,
        unheard: impl Fn(Vec<Answer<M::Reply>>) + Send + Sync + 'static,
    ) -> Waiting<M> {
        let ticket = self.admission.ticket();
        let (reply_to, answers) = hearing(Arc::new(unheard));
        self.address.do_send(WatchFor {
            ticket,
            watch,
            reply_to,
        });
        Waiting {
            address: self.address.clone(),
            ticket,
            answers: Some(answers),
        }
    }

    /// A number that no other wait and nobody else who asked for one has, as long as the process lives.
    pub fn ticket(&self) -> Ticket {
        self.admission.ticket()
    }

    /// Lets what is due pass whenever it is called, as long as the actor is there.
    pub fn rouse(&self) -> Rouse {
        let mailbox = self.clone();
        Box::new(move || {
            // What is due comes before the next command, and so before none.
            mailbox.cast(Vec::new());
            mailbox.address.connected()
        })
    }

    /// Asks the actor about itself.
    pub async fn status(&self) -> Result<ActorStatus, Stopped> {
        let (answer, status) = oneshot::channel();
        self.address.do_send(Describe(answer));
        status.await.map_err(|_| Stopped)
    }

    /// Plants panics, for tests.
    #[doc(hidden)]
    pub fn sabotage(&self, saboteur: crate::spine::host::Saboteur<M>) {
        let plant = |host: &mut Host<M>| host.sabotage(saboteur);
        self.address.do_send(Sabotage(Box::new(plant)));
    }

    /// Plants panics in answers to queries, for tests.
    #[doc(hidden)]
    pub fn sabotage_queries(&self, saboteur: QuerySaboteur<M>) {
        let plant = |host: &mut Host<M>| host.sabotage_queries(saboteur);
        self.address.do_send(Sabotage(Box::new(plant)));
    }
}

/// A wait that has begun. Dropping it ends it.
pub struct Waiting<M: Machine> {
    address: Addr<Shell<M>>,
    ticket: Ticket,
    /// None, once it was answered.
    answers: Option<Hearing<M::Reply>>,
}

impl<M: Machine> Waiting<M> {
    /// The answer. May be given up, and asked for again.
    pub async fn answer(&mut self) -> Result<Answer<M::Reply>, Stopped> {
        let answers = self.answers.as_mut().ok_or(Stopped)?;
        let all = answers.answers().await;
        self.answers = None;
        all.ok_or(Stopped)?.into_iter().next().ok_or(Stopped)
    }

    /// Ends the wait: what was answered before that, if it was.
    pub async fn withdraw(mut self) -> Option<Answer<M::Reply>> {
        self.address.do_send(Unwatch(self.ticket));
        self.answer().await.ok()
    }
}

impl<M: Machine> Drop for Waiting<M> {
    fn drop(&mut self) {
        // What was answered has ended.
        if self.answers.is_some() {
            self.address.do_send(Unwatch(self.ticket));
        }
    }
}

/// Starts an actor on the core thread.
pub fn start<M: Machine>(
    mut host: Host<M>,
    rules: M::Rules,
    spine: &Rc<Spine>,
    admission: Admission,
) -> Mailbox<M> {
    host.tell_to(Arc::clone(spine.feed()));
    spine.register(host.outbox().clone());
    let actor = host.actor();
    let shell = Shell {
        host,
        rules,
        spine: Rc::clone(spine),
        timer: None,
    };
    let address = actix::Supervisor::start(|_| shell);
    let (halted, abandoned) = (Rc::clone(spine), address.clone());
    spawn(async move {
        halted.until_halted().await;
        abandoned.do_send(Abandon);
    });
    let told = address.clone();
    spine.register_paged(Rc::new(Pager::new(address.clone(), actor)));
    spine
        .directory()
        .register(actor, Box::new(move |message| told.do_send(Told(message))));
    Mailbox { address, admission }
}

/// Runs a node's core on the calling thread, until `run` ends.
pub fn block_on<T>(run: impl Future<Output = T>) -> T {
    actix::System::new().block_on(async {
        let result = run.await;
        // actix polls an actor once more when it drops it: one that has not begun yet would begin there, where no
        // timer can be set.
        tokio::task::yield_now().await;
        result
    })
}

/// Starts a task on the core thread.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    drop(actix::spawn(task));
}

/// Looks at the wall clock now and then. Runs as long as the node.
pub async fn watch_wall_clock(spine: Rc<Spine>) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        if spine.is_over() {
            return;
        }
        spine.ledger().watch_wall_clock();
        spine.delivered();
    }
}

impl<M: Machine> Shell<M> {
    fn drive(
        &mut self,
        context: &mut Context<Self>,
        step: impl FnOnce(&mut Host<M>, &mut Ledger) -> Flow,
    ) {
        if self.spine.is_over() {
            return;
        }
        let flow = step(&mut self.host, &mut self.spine.ledger());
        for tell in self.host.take_tells() {
            self.spine.directory().tell(tell.to, tell.message);
        }
        self.spine.delivered();
        self.host.outbox().release(self.spine.durable());
        self.spine.feed().show(self.spine.durable());
        match flow {
            Flow::Done => self.set_timer(context),
            Flow::Yield => self.go_on_later(context),
            Flow::Panicked(report) => {
                if self.spine.panicked(&report, self.host.is_spent()) == Verdict::Restart {
                    context.stop();
                }
            }
        }
    }

    fn proceed(&mut self, context: &mut Context<Self>) {
        self.drive(context, Host::proceed);
    }

    /// Lets other actors and the journal have their turn; this actor's mailbox waits.
    fn go_on_later(&mut self, context: &mut Context<Self>) {
        let spine = Rc::clone(&self.spine);
        let short = spine.ledger().is_short();
        let last = self.host.last();
        let turn = async move {
            if short {
                spine.write();
                spine.until_durable_or_halted(last).await;
            }
            tokio::task::yield_now().await;
        };
        context.wait(
            turn.into_actor(self)
                .map(|(), shell, context| shell.proceed(context)),
        );
    }

    /// Wakes this actor when something is due.
    fn set_timer(&mut self, context: &mut Context<Self>) {
        let Some(deadline) = self.host.deadline() else {
            return;
        };
        if let Some((set_for, timer)) = self.timer {
            if set_for <= deadline {
                return;
            }
            context.cancel_future(timer);
        }
        let wait = deadline.since(self.spine.ledger().now()).min(SLEEP_MAX);
        let timer = context.run_later(wait, |shell, context| {
            shell.timer = None;
            shell.proceed(context);
        });
        self.timer = Some((deadline, timer));
    }

    /// Builds a spent machine anew from the journal, on a thread of its own; the mailbox waits.
    fn rebuild(&mut self, context: &mut Context<Self>) {
        let spine = Rc::clone(&self.spine);
        let (until, rules) = (self.host.last(), self.rules.clone());
        let disk = spine
            .disk()
            .expect("without a journal a spent machine halts the node");
        let slots = spine.slots();
        let spent = self.host.take_spent(rules.clone());
        let work = async move {
            spine.write();
            spine.until_durable_or_halted(until).await;
            let rebuilding = spine.rebuilding();
            let again = rules.clone();
            let rebuild =
                move |rules| rebuild_until::<M>(disk.as_ref(), slots.as_ref(), rules, until);
            let rebuild = Arc::new(rebuild);
            let first = Arc::clone(&rebuild);
            let mut rebuilt = on_thread(M::NAME, move || {
                // It takes about as long to drop as to find the snapshot: there are never two whole states at once.
                let (rebuilt, ()) = both(|| first(rules), || drop(spent));
                rebuilt
            })
            .await;
            if !matches!(rebuilt, Ok(Ok(_))) {
                // A checkpoint may just have been writing the slot that was to be read, or dropping old segments.
                let held = spine.hold_slots().await;
                rebuilt = on_thread(M::NAME, move || rebuild(again)).await;
                drop(held);
            }
            drop(rebuilding);
            rebuilt
        };
        context.wait(
            work.into_actor(self)
                .map(move |rebuilt, shell, context| match rebuilt {
                    Ok(Ok(machine)) => {
                        shell.host.rebuilt(machine);
                        tracing::info!(
                            actor = M::NAME,
                            until = until.0,
                            "rebuilt from the journal"
                        );
                        shell.proceed(context);
                    }
                    Ok(Err(error)) => shell.spine.halt(Halt::Rebuild(Arc::new(error))),
                    Err(_) => {
                        let words = "the thread that rebuilds an actor ended".to_owned();
                        shell.spine.halt(Halt::CoreThread(words));
                    }
                }),
        );
    }
}

/// Does work that takes long for an actor on a thread of its own. No answer if it panics.
fn on_thread<T: Send + 'static>(
    actor: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, worked) = oneshot::channel();
    let spawned = std::thread::Builder::new()
        .name(format!("sexton-rebuild-{actor}"))
        .spawn(move || drop(done.send(work())));
    if let Err(error) = spawned {
        tracing::error!(%error, "no thread to rebuild on");
    }
    worked
}

fn rebuild_until<M: Machine>(
    disk: &dyn Disk,
    slots: Option<&Slots>,
    rules: M::Rules,
    until: Seq,
) -> Result<M, RecoveryError> {
    let mut replica = Replica::<M>::new(rules);
    let replicas: &mut [&mut dyn Recovering] = &mut [&mut replica];
    recovery::recover(
        disk,
        slots,
        replicas,
        Scope {
            until: Some(until),
            partial: true,
        },
    )?;
    Ok(replica.into_parts().0)
}

// Nothing in it is ever pinned by address.
impl<M: Machine> Unpin for Shell<M> {}

impl<M: Machine> Actor for Shell<M> {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.set_timer(context);
    }
}

impl<M: Machine> Supervised for Shell<M> {
    fn restarting(&mut self, context: &mut Self::Context) {
        self.timer = None;
        if self.host.is_spent() {
            self.rebuild(context);
        } else {
            self.proceed(context);
        }
    }
}

struct Deliver<M: Machine>(Delivery<M>);

impl<M: Machine> Message for Deliver<M> {
    type Result = ();
}

impl<M: Machine> Handler<Deliver<M>> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Deliver(delivery): Deliver<M>, context: &mut Self::Context) {
        self.drive(context, |host, ledger| host.deliver(ledger, delivery));
    }
}

/// A message from another actor, encoded.
struct Told(Vec<u8>);

impl Message for Told {
    type Result = ();
}

impl<M: Machine> Handler<Told> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Told(message): Told, context: &mut Self::Context) {
        match rmp_serde::from_slice(&message) {
            Ok(message) => {
                let items = vec![Item::Message(message)];
                let reply_to: ReplyTo<M::Reply> = Box::new(drop);
                self.drive(context, |host, ledger| {
                    host.deliver(ledger, Delivery { items, reply_to })
                });
            }
            Err(error) => tracing::error!(actor = M::NAME, %error, "told something unknown"),
        }
    }
}

struct WatchFor<M: Machine> {
    ticket: Ticket,
    watch: M::Watch,
    reply_to: ReplyTo<M::Reply>,
}

impl<M: Machine> Message for WatchFor<M> {
    type Result = ();
}

impl<M: Machine> Handler<WatchFor<M>> for Shell<M> {
    type Result = ();

    fn handle(&mut self, wait: WatchFor<M>, context: &mut Self::Context) {
        self.drive(context, |host, ledger| {
            host.watch(wait.ticket, wait.watch, wait.reply_to);
            host.proceed(ledger)
        });
    }
}

struct Unwatch(Ticket);

impl Message for Unwatch {
    type Result = ();
}

impl<M: Machine> Handler<Unwatch> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Unwatch(ticket): Unwatch, _: &mut Self::Context) {
        self.host.unwatch(ticket);
    }
}

/// The node has halted: whoever waits for an answer is told so by its end.
struct Abandon;

impl Message for Abandon {
    type Result = ();
}

impl<M: Machine> Handler<Abandon> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Abandon: Abandon, _: &mut Self::Context) {
        self.host.abandon();
    }
}

struct Describe(oneshot::Sender<ActorStatus>);

impl Message for Describe {
    type Result = ();
}

impl<M: Machine> Handler<Describe> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Describe(answer): Describe, _: &mut Self::Context) {
        let status = ActorStatus {
            name: M::NAME,
            last: self.host.last(),
            digest: (!self.host.is_spent()).then(|| self.host.machine().digest()),
            quarantined: self.host.quarantined().to_vec(),
        };
        drop(answer.send(status));
    }
}

/// What plants panics in a host.
type Planting<M> = Box<dyn FnOnce(&mut Host<M>) + Send>;

struct Sabotage<M: Machine>(Planting<M>);

impl<M: Machine> Message for Sabotage<M> {
    type Result = ();
}

impl<M: Machine> Handler<Sabotage<M>> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Sabotage(plant): Sabotage<M>, _: &mut Self::Context) {
        plant(&mut self.host);
    }
}
