//! The model of requests about many jobs, which are carried out in parts.

use super::Model;
use sexton::actors::queue::{FlushMore, KickMore, Phase, QueueName, Reply};

impl Model {
    pub(super) fn kick_more(&mut self, more: &KickMore) -> Reply {
        let ids = match more.phase {
            Phase::Abandoned => self.line(&more.queue, Phase::Abandoned),
            phase => self.kickable(&more.queue, phase),
        };
        self.kick(ids, more.part.left, more.part.kicked)
    }

    pub(super) fn flush_more(&mut self, more: &FlushMore) -> Reply {
        let from = more.part.next.unwrap_or(u64::MAX);
        self.flush_part(&more.queue, (from, more.part.upto), more.part.deleted)
    }

    /// Deletes jobs of a queue with ids in this range: at most as many as a part has, after at most 16 times as many were examined.
    pub(super) fn flush_part(
        &mut self,
        queue: &QueueName,
        (from, upto): (u64, u64),
        before: u32,
    ) -> Reply {
        let part = self.rules.across.part as usize;
        let jobs = self.jobs.iter().map(|job| (job.view.id, &job.view.queue));
        let mut ids: Vec<_> = jobs.filter(|(id, _)| (from..upto).contains(id)).collect();
        ids.sort_unstable();
        let examined = ids.into_iter().take(16 * part);
        let gone = examined.filter(|(_, of)| *of == queue).take(part);
        let gone: Vec<u64> = gone.map(|(id, _)| id).collect();
        self.forget_keys_of(&gone);
        self.jobs.retain(|job| !gone.contains(&job.view.id));
        Reply::Count(before + u32::try_from(gone.len()).expect("the model is small"))
    }

    pub(super) fn kick(&mut self, mut ids: Vec<u64>, most: u32, before: u32) -> Reply {
        ids.truncate(most.min(self.rules.across.part) as usize);
        for id in &ids {
            self.job(*id).expect("a kicked job exists").kick();
        }
        Reply::Count(before + u32::try_from(ids.len()).expect("the model is small"))
    }
}
