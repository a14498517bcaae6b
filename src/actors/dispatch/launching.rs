//! What other actors and users see of an attempt: the names of its locks, the launches of its command and of the cleanup after it, and the
//! message about its result.

use crate::actors::binding::Exit;
use crate::actors::dispatch::task::{
    Attempt, BurstReport, Cause, Cleaning, ExitStatus, Past, Task, Verdict,
};
use crate::actors::lock::Name;
use crate::actors::process::Launching;
use crate::bytes::Bytes;
use crate::ids::Token;

impl Task {
    /// Returns the key, index and owner of one of the task's locks. The owner is the attempt with this token.
    pub(super) fn lock(&self, key: &str, token: Token) -> [Name; 3] {
        let names = [key.to_owned(), self.id.to_string(), format!("attempt-{token}")];
        names.map(|name| Name::new(name.into_bytes()).unwrap_or_default())
    }

    /// Returns the launch of an attempt's command, with the environment variables that describe the attempt. For an attempt on another
    /// machine, it is the launch of the local process that connects to that machine.
    pub(super) fn launching(&self, attempt: &Attempt) -> Launching {
        let last = if attempt.last { "1" } else { "0" };
        let more = [
            ("SEXTON_TASK_BURST_MS", self.terms.burst_ms.to_string()),
            ("SEXTON_TASK_TERMINATING", last.to_owned()),
        ];
        let mut launching = self.with_names(&self.command, attempt.token, &more);
        launching.spec.secrets.push(Self::SECRET.to_owned());
        if let Some(reach) = &attempt.reach {
            reach.wrap(&mut launching.spec, Self::SECRET);
        }
        launching
    }

    /// Returns the launch of the cleanup command that follows an attempt, with the environment variables that describe the attempt.
    pub(super) fn cleaning_up(&self, cleaning: &Cleaning) -> Launching {
        let after = |it: &&Past| it.token == cleaning.token;
        let past = self.past.iter().find(after);
        let verdict = match past.map(|it| it.verdict) {
            Some(Verdict::Ended(exit)) => exit.name(),
            Some(Verdict::Waits) => "waits",
            Some(Verdict::Reset(cause) | Verdict::FailedOut(cause)) => cause.name(),
            None => "",
        };
        let more = [
            ("SEXTON_TASK_ENDED", verdict.to_owned()),
            ("SEXTON_TASK_STATUS", self.status.name().to_owned()),
        ];
        let command = self.cleanup.as_ref().unwrap_or(&self.command);
        self.with_names(command, cleaning.token, &more)
    }

    fn with_names(&self, command: &Launching, token: Token, more: &[(&str, String)]) -> Launching {
        let mut launching = command.clone();
        let env = [
            ("SEXTON_FENCE", token.to_string()),
            ("SEXTON_TASK_ATTEMPT", self.number_of(token).to_string()),
            ("SEXTON_TASK_ID", self.id.to_string()),
            ("SEXTON_TASK_GROUP", self.group.to_text()),
            ("SEXTON_TASK_NAME", self.name.to_text()),
            ("SEXTON_TASK_WORK", self.work.to_text()),
            ("SEXTON_TASK_REVISION", self.revision.to_string()),
        ];
        let env = env.iter().chain(more);
        let env = env.map(|(name, value)| {
            let value = Bytes::new(value.clone().into_bytes());
            ((*name).to_owned(), value)
        });
        launching.spec.env.extend(env);
        launching
    }
}

impl Attempt {
    /// Returns a message about the result of the attempt, or an empty one if there is nothing to explain. It becomes part of the task's
    /// state, which a replay of an older journal must reproduce. Therefore these texts must not change.
    pub(super) fn words(&self, verdict: Verdict, exit: Option<Exit>) -> String {
        match (verdict, &self.said) {
            (
                Verdict::Ended(_),
                Some(BurstReport::Done { words, .. } | BurstReport::Fail { words }),
            ) => words.clone(),
            (Verdict::Ended(ExitStatus::UserError), _) => match exit {
                Some(Exit::Code(code)) => format!("its command ended with status {code}"),
                _ => String::new(),
            },
            (Verdict::FailedOut(Cause::Died), _) => {
                let how = match exit {
                    Some(Exit::Signal(signal)) => format!("was killed by signal {signal}"),
                    Some(Exit::Code(code)) => {
                        format!("ended with status {code}, unannounced,")
                    }
                    _ => "was lost".to_owned(),
                };
                format!("its command {how} before it saved anything")
            }
            (Verdict::FailedOut(Cause::Overdue), _) => "its attempt took too long".to_owned(),
            (Verdict::FailedOut(Cause::Silent), _) => {
                "its command stopped sending heartbeats".to_owned()
            }
            (Verdict::FailedOut(Cause::ServerLost), _) => {
                "its server could not be reached, and it may not run twice".to_owned()
            }
            (Verdict::FailedOut(Cause::ServerGone), _) => {
                "its server is gone, and it may not run twice".to_owned()
            }
            (Verdict::Ended(_) | Verdict::Waits | Verdict::Reset(_) | Verdict::FailedOut(_), _) => {
                String::new()
            }
        }
    }
}
