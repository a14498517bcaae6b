//! The machine: what the host asks of the rules of queues, and what is due when.
//!
//! Follows MediaWiki's `JobQueue` for what a job is, and beanstalkd's protocol for what is done with it. Decides without
//! changing anything (`decide.rs`), and commits without deciding anything (`commit.rs`).

use crate::actors::machine::{Effects, Keeping, Machine, Refusal, Stamp, Start, Weight};
use crate::actors::pages::Pages;
use crate::actors::queue::job::Job;
use crate::actors::queue::message::{Message, Outcome, Pop};
use crate::actors::queue::pages::{self, Page};
use crate::actors::queue::reply::{Query, Reply, View, Watch};
use crate::actors::queue::rules::Rules;
use crate::actors::queue::state::State;
use crate::actors::queue::waiting::Waiting;
use crate::clock::Timestamp;
use crate::ids::{ActorId, Digest, PageId, Seq, Slot, Ticket, Token};

/// What is due: a job, by its slot; a queue whose pause is over, by its number; or somebody who waits for a job that is
/// there, by ticket.
const QUEUE: u64 = 1 << 62;
const WAITER: u64 = 2 << 62;
const KINDS: u64 = 3 << 62;

/// The rules of queues, over their state.
#[derive(Debug)]
pub struct QueueMachine {
    pub(super) state: State,
    pub(super) waiting: Waiting,
}

impl QueueMachine {
    fn item_of(&mut self, at: Timestamp) -> Option<u64> {
        let (jobs, epoch) = (&self.state.jobs, self.state.head.epoch);
        let deadline = |slot| {
            let job: Option<&Job> = jobs.get(slot);
            job.and_then(|job| job.deadline(epoch)).unwrap_or_default()
        };
        let job = self.state.wheel.due(at, deadline);
        let job = job.map(|slot| (deadline(slot), u64::from(slot.0)));
        let pause = self.state.pause_ends().filter(|(until, _)| *until <= at);
        let pause = pause.map(|(until, number)| (until, QUEUE | u64::from(number.0)));
        let timed = job.into_iter().chain(pause).min();
        timed
            .map(|(_, item)| item)
            .or_else(|| self.state.wanted().map(|ticket| WAITER | ticket.0))
    }
}

impl Machine for QueueMachine {
    const NAME: &'static str = "queue";
    const ID: ActorId = ActorId::QUEUE;

    type Rules = Rules;
    type Message = Message;
    type Outcome = Outcome;
    type Query = Query;
    type Reply = Reply;
    type Watch = Watch;
    type View = View;
    type Page = Page;

    fn new(rules: Rules) -> Self {
        Self {
            state: State::new(rules),
            waiting: Waiting::default(),
        }
    }

    fn decide(&self, at: Timestamp, message: &Message) -> Outcome {
        self.decision(at, message)
    }

    fn keeping(outcome: &Outcome) -> Keeping {
        match outcome {
            Outcome::Claimed { passing: true, .. }
            | Outcome::Touched { passing: true, .. }
            | Outcome::Spoiled { .. }
            | Outcome::Ready { .. }
            | Outcome::TimedOut { .. } => Keeping::Passing,
            Outcome::Departed { abandoned, .. } if abandoned.is_empty() => Keeping::Passing,
            Outcome::Duplicate { .. } | Outcome::Absent | Outcome::Refused(_) => Keeping::Nothing,
            Outcome::Put { .. }
            | Outcome::Claimed { .. }
            | Outcome::Touched { .. }
            | Outcome::Deleted { .. }
            | Outcome::Released { .. }
            | Outcome::Buried { .. }
            | Outcome::Failed { .. }
            | Outcome::Kicked { .. }
            | Outcome::KickedJob { .. }
            | Outcome::Paused { .. }
            | Outcome::Flushed { .. }
            | Outcome::Departed { .. }
            | Outcome::Abandoned { .. }
            | Outcome::Pruned { .. }
            | Outcome::Draining => Keeping::Durable,
        }
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Reply>,
    ) {
        self.apply(entry, message, outcome, effects);
    }

    fn reply(&self, _seq: Seq, message: &Message, outcome: &Outcome) -> Reply {
        match outcome {
            Outcome::Put { id, .. } => Reply::Put {
                id: *id,
                duplicate: None,
            },
            Outcome::Duplicate { slot } => {
                let job = self.state.job(*slot);
                Reply::Put {
                    id: job.map_or(0, |job| job.id),
                    duplicate: job.map(|job| job.phase),
                }
            }
            Outcome::Claimed { slot, .. } => self.claim_reply(*slot),
            Outcome::Kicked { count, .. } | Outcome::Flushed { count } => Reply::Count(*count),
            Outcome::Touched { .. }
            | Outcome::Deleted { .. }
            | Outcome::Released { .. }
            | Outcome::Buried { .. }
            | Outcome::Failed { .. }
            | Outcome::KickedJob { .. }
            | Outcome::Paused { .. }
            | Outcome::Departed { .. }
            | Outcome::Ready { .. }
            | Outcome::TimedOut { .. }
            | Outcome::Pruned { .. }
            | Outcome::Spoiled { .. }
            | Outcome::Draining => Reply::Done,
            Outcome::Abandoned { .. } => Reply::Abandoned,
            Outcome::Absent => self.absent(message),
            Outcome::Refused(refused) => Reply::Refused(*refused),
        }
    }

    fn holds_up(reply: &Reply) -> bool {
        matches!(reply, Reply::Nothing { waits: true, .. })
    }

    fn query(&self, _at: Timestamp, query: &Query) -> Reply {
        self.look(query)
    }

    fn weight(&self, message: &Message) -> Weight {
        match message {
            Message::Put(_) => Weight::Adds,
            Message::Pop(Pop { ticket: None, .. })
            | Message::PopJob { .. }
            | Message::Spoil
            | Message::Touch { .. }
            | Message::Kick { .. }
            | Message::KickJob { .. }
            | Message::Pause { .. } => Weight::Keeps,
            // Whoever waits is due until there is an answer: a refusal would be repeated for ever.
            Message::Pop(Pop {
                ticket: Some(_), ..
            })
            | Message::Delete { .. }
            | Message::Release { .. }
            | Message::Bury { .. }
            | Message::Fail { .. }
            | Message::Flush { .. }
            | Message::Depart { .. }
            | Message::Expire { .. }
            | Message::Unpause { .. }
            | Message::Drain => Weight::Frees,
        }
    }

    fn refuse(_message: &Message, refusal: Refusal) -> Reply {
        Reply::Refused(refusal.into())
    }

    fn deadline(&self) -> Option<Timestamp> {
        if self.state.is_wanted() {
            return Some(Timestamp(0));
        }
        let pause = self.state.pause_ends().map(|(until, _)| until);
        self.state.wheel.deadline().into_iter().chain(pause).min()
    }

    fn due(&mut self, at: Timestamp) -> Option<u64> {
        self.item_of(at)
    }

    fn tick(&self, item: u64) -> Message {
        match item & KINDS {
            WAITER => {
                let pop = self.waiting.pop(Ticket(item & !KINDS));
                Message::Pop(pop.expect("who is waited for waits").clone())
            }
            QUEUE => {
                let queue = self.state.numbers.get(slot_of(item));
                let queue = self
                    .state
                    .queue(*queue.expect("a paused queue has a number"));
                Message::Unpause {
                    queue: queue.name.clone(),
                }
            }
            _ => Message::Expire {
                slot: slot_of(item),
            },
        }
    }

    fn quarantine(&mut self, item: u64, at: Timestamp) {
        match item & KINDS {
            WAITER => self.waiting.forget(&mut self.state, Ticket(item & !KINDS)),
            QUEUE => self.state.forget_pause(slot_of(item), at),
            _ => self.state.forget_deadline(slot_of(item), at),
        }
    }

    fn watch(&mut self, ticket: Ticket, watch: &Watch, _effects: &mut Effects<Reply>) {
        self.waiting.watch(&mut self.state, ticket, watch);
    }

    fn unwatch(&mut self, ticket: Ticket) {
        self.waiting.forget(&mut self.state, ticket);
    }

    fn start(&mut self, start: Start) {
        self.state.start(start);
    }

    fn resume(&mut self, _effects: &mut Effects<Reply>) {}

    fn pages(&mut self) -> &mut Pages {
        &mut self.state.pages
    }

    fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        let state = &self.state;
        let slabs = (&state.jobs, &state.queues, &state.numbers);
        pages::encode(page, state.head, slabs, content);
    }

    fn decode_page(page: PageId, content: &[u8]) -> Result<Page, String> {
        pages::decode(page, content)
    }

    fn from_pages(rules: Rules, pages: Vec<Page>) -> Self {
        Self {
            state: State::from_pages(rules, pages),
            waiting: Waiting::default(),
        }
    }

    fn digest(&self) -> Digest {
        let mut digest = self.state.digest;
        digest.add(&self.state.head.canonical());
        digest
    }

    fn view(&self) -> View {
        self.show()
    }
}

/// The slot or number in an item.
fn slot_of(item: u64) -> Slot {
    Slot(u32::try_from(item & !KINDS).expect("items are of 32 bits, but for tickets"))
}

/// The token of a claim that there is none of.
pub(super) fn shown(token: Token) -> Option<Token> {
    Some(token).filter(|token| *token != Token(0))
}
