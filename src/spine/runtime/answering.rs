//! A channel for answers to a caller that may no longer be waiting. An undelivered answer is not dropped, but passed to a fallback. Each
//! answer reaches either the caller or the fallback, unless the node stops first.

use crate::spine::delivery::{Answer, ReplyTo};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The fallback: a function that receives the answers that the caller no longer waits for.
pub(super) type OnUndelivered<R> = Arc<dyn Fn(Vec<Answer<R>>) + Send + Sync>;

/// The receiving end for answers. Once it is dropped, answers that were not received go to the fallback, whether they had already arrived
/// or arrive later.
pub(super) struct AnswerReceiver<R> {
    answers: oneshot::Receiver<Vec<Answer<R>>>,
    on_undelivered: OnUndelivered<R>,
}

/// Creates the sending and the receiving end for answers.
pub(super) fn answer_channel<R: Send + 'static>(
    on_undelivered: OnUndelivered<R>,
) -> (ReplyTo<R>, AnswerReceiver<R>) {
    let (answer, answers) = oneshot::channel();
    let after = Arc::clone(&on_undelivered);
    let reply_to: ReplyTo<R> = Box::new(move |all| {
        if let Err(all) = answer.send(all) {
            after(all);
        }
    });
    (reply_to, AnswerReceiver { answers, on_undelivered })
}

impl<R> AnswerReceiver<R> {
    /// Waits for the answers. Returns `None` if they will never come, because the node has halted or stopped. If the future is dropped
    /// before it completes, this may be called again; afterwards, it must not be.
    pub(super) async fn answers(&mut self) -> Option<Vec<Answer<R>>> {
        (&mut self.answers).await.ok()
    }
}

impl<R> Drop for AnswerReceiver<R> {
    fn drop(&mut self) {
        // From here on, answers go to the fallback.
        self.answers.close();
        if let Ok(all) = self.answers.try_recv() {
            (self.on_undelivered)(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::answer_channel;
    use crate::block_on;
    use std::sync::{Arc, Mutex};

    /// Returns how many answers reach the fallback, depending on whether the caller receives them and whether they come before the
    /// receiving end is dropped.
    fn undelivered(hears: bool, answered_first: bool) -> usize {
        let left = Arc::new(Mutex::new(0));
        let theirs = Arc::clone(&left);
        let (reply_to, mut heard) = answer_channel::<u8>(Arc::new(move |all| {
            *theirs.lock().unwrap() += all.len();
        }));
        let mut reply_to = Some(reply_to);
        let mut answer = || reply_to.take().map(|reply_to| reply_to(vec![Ok(7)]));
        if answered_first {
            answer();
        }
        if hears {
            assert_eq!(block_on(heard.answers()), Some(vec![Ok(7)]));
        }
        drop(heard);
        answer();
        *left.lock().unwrap()
    }

    #[test]
    fn an_answer_is_heard_or_passed_on() {
        assert_eq!(undelivered(true, true), 0);
        assert_eq!(undelivered(false, true), 1);
        assert_eq!(undelivered(false, false), 1);
    }
}
