//! Answers on their way to whoever asked, who may have gone meanwhile: what nobody hears any more is not lost without
//! a word, but goes to whom it then concerns. Never both, and never neither, unless the node ends.

use crate::spine::delivery::{Answer, ReplyTo};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Takes the answers that nobody hears any more.
pub(super) type Unheard<R> = Arc<dyn Fn(Vec<Answer<R>>) + Send + Sync>;

/// Where answers come in. Dropped, it passes on what has come already, and what comes still.
pub(super) struct Hearing<R> {
    answers: oneshot::Receiver<Vec<Answer<R>>>,
    unheard: Unheard<R>,
}

/// Where answers go, and where they come in.
pub(super) fn hearing<R: Send + 'static>(unheard: Unheard<R>) -> (ReplyTo<R>, Hearing<R>) {
    let (answer, answers) = oneshot::channel();
    let after = Arc::clone(&unheard);
    let reply_to: ReplyTo<R> = Box::new(move |all| {
        if let Err(all) = answer.send(all) {
            after(all);
        }
    });
    (reply_to, Hearing { answers, unheard })
}

impl<R> Hearing<R> {
    /// The answers; none if there will be none. May be given up, and asked for again.
    pub(super) async fn answers(&mut self) -> Option<Vec<Answer<R>>> {
        (&mut self.answers).await.ok()
    }
}

impl<R> Drop for Hearing<R> {
    fn drop(&mut self) {
        // From here on whoever answers is told that nobody hears it.
        self.answers.close();
        if let Ok(all) = self.answers.try_recv() {
            (self.unheard)(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::hearing;
    use crate::block_on;
    use std::sync::{Arc, Mutex};

    /// What nobody heard, if the answer comes before or after whoever asked hears it, or goes.
    fn unheard(hears: bool, answered_first: bool) -> usize {
        let left = Arc::new(Mutex::new(0));
        let theirs = Arc::clone(&left);
        let (reply_to, mut heard) = hearing::<u8>(Arc::new(move |all| {
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
        assert_eq!(unheard(true, true), 0);
        assert_eq!(unheard(false, true), 1);
        assert_eq!(unheard(false, false), 1);
    }
}
