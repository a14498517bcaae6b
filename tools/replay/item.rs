//! The flags that select the item whose history is shown.

use clap::Args;
use sexton::actors::lock::Name;
use sexton::actors::queue::QueueName;
use sexton::replay::FollowedItem;

/// Selects an item.
#[derive(Args, Clone, Debug, Default)]
#[group(id = "item", multiple = false)]
pub(crate) struct Item {
    /// Show the history of this job, event by event
    #[arg(long, value_name = "ID", value_parser = crate::numbers::job)]
    job: Option<u64>,

    /// Show the history of this queue and its jobs, event by event
    #[arg(long, value_name = "QUEUE", value_parser = queue)]
    queue: Option<QueueName>,

    /// Show the history of the locks with this key, in which \xNN stands for a non-UTF-8 byte
    #[arg(long, value_name = "KEY", value_parser = crate::lock::name)]
    key: Option<Name>,

    /// Show the history of this task, event by event
    #[arg(long, value_name = "ID", value_parser = crate::numbers::task)]
    task: Option<u64>,
}

fn queue(text: &str) -> Result<QueueName, String> {
    QueueName::try_from(text).map_err(|error| error.to_string())
}

impl Item {
    pub(crate) fn is_any(&self) -> bool {
        self.followed().is_some()
    }

    pub(crate) fn followed(&self) -> Option<FollowedItem> {
        let job = self.job.map(FollowedItem::Job);
        let queue = self.queue.clone().map(FollowedItem::Queue);
        let task = self.task.map(FollowedItem::Task);
        job.or(queue).or(self.key.clone().map(FollowedItem::Key)).or(task)
    }
}
