//! The bytes of a job's history over which the digest is computed. They identify it: different histories have different bytes.
//!
//! Change rule: digests are stored in snapshots and in the journal. A change needs a way to recognize the digests of earlier versions, as
//! [`Details::former_canonical`] does.

use crate::actors::binding::{Binding, Until};
use crate::actors::queue::job::{Bound, Details};
use crate::actors::queue::message::{DedupKey, Root};

/// The parts that the details of a job may lack, as they are written for the digest.
struct Parts<'b> {
    bytes: &'b mut Vec<u8>,
    /// Whether each part is followed by its length.
    has_lengths: bool,
}

impl Parts<'_> {
    /// Follows a part that does not exist, in place of its length.
    const NONE: u32 = u32::MAX;

    fn add<T>(&mut self, part: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
        let begin = self.bytes.len();
        let is_there = part.is_some();
        if let Some(part) = part {
            write(self.bytes, part);
        }
        if self.has_lengths {
            let length =
                u32::try_from(self.bytes.len() - begin).expect("a part should have a limit");
            let length = if is_there { length } else { Self::NONE };
            self.bytes.extend_from_slice(&length.to_le_bytes());
        }
    }
}

impl Details {
    /// Appends all durable fields except `claimed`, so that different details never have the same bytes.
    ///
    /// Each part that they may lack is followed by its length. Only if there is none except its deduplication key and its root, whose
    /// lengths are fixed and differ, the lengths are left out, as in earlier versions: these are 0, 20, 28 or 48 bytes, all others an odd
    /// number.
    pub(super) fn canonical(&self, bytes: &mut Vec<u8>) {
        self.canonical_numbers(bytes);
        let has_lengths = self.error.is_some()
            || self.bound.is_some()
            || self.progress.is_some()
            || self.crashes > 0
            || self.items > 0;
        let begin = bytes.len();
        self.canonical_parts(Parts { bytes, has_lengths });
        if has_lengths && (bytes.len() - begin).is_multiple_of(2) {
            bytes.insert(begin, 0);
        }
    }

    /// Appends the bytes over which earlier versions computed the digest: no part has a length, so different details may have the same.
    pub(super) fn former_canonical(&self, bytes: &mut Vec<u8>) {
        self.canonical_numbers(bytes);
        let has_lengths = false;
        self.canonical_parts(Parts { bytes, has_lengths });
    }

    /// Appends the numbers that all details have.
    fn canonical_numbers(&self, bytes: &mut Vec<u8>) {
        let worker = self.worker.map_or(0, |worker| worker.0);
        for word in [
            self.since.0,
            self.until.0,
            self.delay_ms,
            self.token.0,
            worker,
            self.buried.0,
            self.prune.0,
        ] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for count in
            [self.attempts, self.reserves, self.timeouts, self.releases, self.buries, self.kicks]
        {
            bytes.extend_from_slice(&count.to_le_bytes());
        }
    }

    /// Appends the parts that they may lack.
    fn canonical_parts(&self, mut parts: Parts<'_>) {
        parts.add(self.dedup.as_ref(), |bytes, DedupKey(key)| {
            bytes.extend_from_slice(key);
        });
        parts.add(self.root.as_ref(), |bytes, Root { key, at }| {
            bytes.extend_from_slice(&key.0);
            bytes.extend_from_slice(&at.to_le_bytes());
        });
        parts.add(self.error.as_ref(), |bytes, error| {
            bytes.extend_from_slice(error.as_str().as_bytes());
        });
        parts.add(self.bound.as_ref(), |bytes, bound| bound.canonical(bytes));
        let crashes = Some(self.crashes).filter(|crashes| *crashes > 0);
        parts.add(crashes, |bytes, crashes| {
            bytes.extend_from_slice(b"crashes");
            bytes.extend_from_slice(&crashes.to_le_bytes());
        });
        let items = Some(self.items).filter(|items| *items > 0);
        parts.add(items, |bytes, items| {
            bytes.extend_from_slice(&items.to_le_bytes());
        });
        parts.add(self.progress.as_ref(), |bytes, progress| {
            bytes.push(progress.percent.map_or(0, |percent| percent + 1));
            let text = progress.text.as_ref().map_or("", |text| text.as_str());
            bytes.extend_from_slice(text.as_bytes());
        });
    }
}

impl Bound {
    fn canonical(&self, bytes: &mut Vec<u8>) {
        let Binding { process, until, fence } = self.binding;
        let until = match until {
            Until::Process => 1,
            Until::Tree => 2,
        };
        bytes.extend_from_slice(&process.0.to_le_bytes());
        bytes.extend_from_slice(&[until, fence.into(), self.fencing.into()]);
        if self.cancelled {
            bytes.extend_from_slice(b"cancelled");
        }
        if let Some(command) = self.command {
            bytes.extend_from_slice(&command.process.0.to_le_bytes());
            bytes.push(1 + u8::from(command.completes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Details;
    use crate::actors::binding::{Binding, Until};
    use crate::actors::queue::job::Bound;
    use crate::actors::queue::message::{DedupKey, Root};
    use crate::actors::queue::report::Progress;
    use crate::actors::queue::{
        Body, Claimant, Message, Pop, Put, QueueMachine, QueueName, Reply, Right, Rules,
    };
    use crate::clock::Timestamp;
    use crate::ids::{ActorId, Digest, ProcessId, Seq};
    use crate::persist::mark::Watermark;
    use crate::persist::snapshots::Page;
    use crate::spine::machine::{Effects, Machine as _, Moment, Paged as _, Stamp};
    use crate::spine::pages::slice;
    use crate::spine::receipts::Receipts;
    use crate::spine::recovery::{Recovering as _, Replica};

    /// Returns the bytes of some details, and those of earlier versions.
    fn bytes_of(details: &Details) -> [Vec<u8>; 2] {
        let (mut now, mut then) = (Vec::new(), Vec::new());
        details.canonical(&mut now);
        details.former_canonical(&mut then);
        [now, then]
    }

    /// Returns details that differ from the default in this way.
    fn details(change: impl FnOnce(&mut Details)) -> Details {
        let mut details = Details::default();
        change(&mut details);
        details
    }

    /// Returns details with this error, which also differ in another way.
    fn failed(error: &str, change: impl FnOnce(&mut Details)) -> Details {
        details(|it| {
            it.error = Some(error.to_owned().into());
            change(it);
        })
    }

    #[test]
    fn different_details_have_different_bytes() {
        let key = DedupKey(*b"aaaaaaaaaaaaaaaaaaaa");
        let at = u64::from_le_bytes(*b"bbbbbbbb");
        let bound = Bound::to(Binding {
            process: ProcessId(u128::from_le_bytes(*b"cccccccccccccccc")),
            until: Until::Process,
            fence: true,
        });
        let progress = Progress { percent: Some(7), text: Some("y".to_owned().into()) };
        let same = |_: &mut Details| {};
        for (first, second) in [
            (details(|it| it.dedup = Some(key)), failed(&"a".repeat(20), same)),
            (
                details(|it| it.root = Some(Root { key, at })),
                failed("bbbbbbbb", |it| it.dedup = Some(key)),
            ),
            (failed("x\u{1}\0\0\0", same), failed("x", |it| it.items = 1)),
            (failed("xcrashes\u{2}\0\0\0", same), failed("x", |it| it.crashes = 2)),
            (
                failed("xcccccccccccccccc\u{1}\u{1}\0", same),
                failed("x", |it| it.bound = Some(Box::new(bound))),
            ),
            (failed("x\u{8}y", same), failed("x", |it| it.progress = Some(Box::new(progress)))),
        ] {
            let ([first, first_then], [second, second_then]) =
                (bytes_of(&first), bytes_of(&second));
            assert_eq!(first_then, second_then, "earlier versions took them for one");
            assert_ne!(first, second);
        }
        assert_ne!(
            bytes_of(&failed("", same))[0],
            bytes_of(&Details::default())[0],
            "an empty part is not a part that does not exist"
        );
    }

    #[test]
    fn details_without_texts_and_claims_have_the_bytes_of_earlier_versions() {
        let key = DedupKey([7; 20]);
        for dedup in [None, Some(key)] {
            for root in [None, Some(Root { key, at: 1 })] {
                let [now, then] = bytes_of(&Details { dedup, root, ..Details::default() });
                assert_eq!(now, then);
            }
        }
    }

    /// A machine with a job that failed, and its last entry.
    fn with_a_failed_job() -> (QueueMachine, Seq) {
        let queue = QueueName::new(b"q".as_slice()).unwrap();
        let mut machine = QueueMachine::new(Rules::default());
        let mut seq = Seq(0);
        let mut act = |message: Message| {
            seq = Seq(seq.0 + 1);
            let moment = Moment { seq, ..Moment::default() };
            let outcome = machine.decide(&moment, &message);
            let stamp = Stamp { seq, at: Timestamp(0) };
            machine.commit(stamp, &message, &outcome, &mut Effects::<QueueMachine>::default());
            machine.reply(seq, &message, &outcome)
        };
        act(Message::Put(Put::new(queue.clone(), Body::new(*b"x"))));
        let pop = Pop {
            queues: [queue].into(),
            weights: [].into(),
            by: Claimant::Bearer,
            waits: false,
            ticket: None,
            ttr_ms: 0,
            any: None,
        };
        let Reply::Claim(claim) = act(Message::Pop(pop)) else {
            panic!("there is a job");
        };
        act(Message::Fail {
            id: claim.id,
            by: Right::Token(claim.token),
            retry_after_ms: Some(1),
            error: Some("it failed".to_owned().into()),
            crashed: false,
        });
        (machine, seq)
    }

    #[test]
    fn a_snapshot_of_an_earlier_version_is_accepted() {
        let (mut machine, upto) = with_a_failed_job();
        let former = machine.former_digest().unwrap();
        assert_ne!(former, machine.digest());
        machine.pages().begin(Seq(0), upto);
        let (copied, _) = slice(&mut machine, &Receipts::default(), usize::MAX);
        let pages: Vec<Page> = copied
            .into_iter()
            .map(|it| Page {
                actor: ActorId::QUEUE,
                page: it.page,
                changed: it.changed,
                content: it.content,
            })
            .collect();
        let replica = Replica::<QueueMachine>::new(Rules::default());
        for (digest, is_accepted) in
            [(former, true), (machine.digest(), true), (Digest::default(), false)]
        {
            let actor = ActorId::QUEUE;
            let state = Watermark { actor, upto, digest };
            let mut pages = pages.clone().into_iter();
            let loaded = replica.load(&mut pages, Some(&state));
            assert_eq!(loaded.is_ok(), is_accepted, "{digest}");
        }
    }
}
