//! Where jobs come from, and what the coordinator is told of them. Claims are bound to the tree of this process, of which every
//! command is part: whichever process is killed, a job is given to nobody else while anything of its command lives.

use crate::client::{self, Fields, Target, fields, rest};
use crate::report::{Failure, tell};
use crate::text::words;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sexton::actors::queue::QueueName;
use sexton::refusal::Reason;
use std::time::Duration;

/// How long to wait before a coordinator that cannot be reached is told again.
const PAUSE: Duration = Duration::from_millis(500);

/// How often a queue that has a job is looked for again, after somebody else came first.
const RACES_MAX: u32 = 100;

/// Where jobs come from.
pub(super) enum Source {
    /// These queues.
    Queues(Vec<QueueName>),
    /// Queues with jobs of these types, of any tenant.
    AnyTenant(Vec<String>),
}

/// A job that is claimed.
pub(super) struct Claim {
    pub(super) id: u64,
    pub(super) token: u64,
    pub(super) queue: QueueName,
    pub(super) attempts: u64,
    pub(super) is_duplicate: bool,
    pub(super) body: Vec<u8>,
}

/// The coordinator, as far as jobs are concerned.
pub(super) struct Jobs {
    pub(super) target: Target,
    pub(super) source: Source,
    /// The record of this process.
    pub(super) own: String,
}

impl Jobs {
    /// Claims a job, waiting for one at most so many seconds.
    pub(super) fn claim(&self, wait: u64) -> Result<Option<Claim>, Failure> {
        match &self.source {
            Source::Queues(queues) => self.pop(queues, wait),
            Source::AnyTenant(types) => {
                for _ in 0..RACES_MAX {
                    let Some(queue) = self.next(types)? else {
                        return Ok(None);
                    };
                    if let Some(claim) = self.pop(&[queue], 0)? {
                        return Ok(Some(claim));
                    }
                }
                Ok(None)
            }
        }
    }

    fn pop(&self, queues: &[QueueName], wait: u64) -> Result<Option<Claim>, Failure> {
        let asked = fields([
            ("queues", json!(queues)),
            ("process", self.own.as_str().into()),
        ]);
        let answer = client::send(&self.target, "/v1/queues/pop", asked, wait)?;
        let said = answer.well(&[])?;
        said.pointer("/jobs/0").map(Claim::read).transpose()
    }

    /// A queue that has a job.
    fn next(&self, types: &[String]) -> Result<Option<QueueName>, Failure> {
        let query = fields([("types", types.join(",").into())]);
        let path = client::with_query("/v1/queues/next", &query);
        let answer = client::get(&self.target, &path)?;
        if answer.is_refused_as(Reason::Absent) {
            return Ok(None);
        }
        let said = answer.well(&[])?;
        let queue = QueueName::try_from(words(&said, "/queue").as_str());
        queue.map(Some).map_err(|_| unread())
    }

    /// Says what became of a job, however long it takes until somebody hears it. Whether the claim was there still.
    pub(super) fn settle(&self, claim: &Claim, what: &str, more: Fields) -> Result<(), Failure> {
        let path = format!("/v1/queues/{what}");
        let mut asked = fields([("id", claim.id.into()), ("token", claim.token.into())]);
        asked.extend(more);
        let mut is_told = false;
        loop {
            match client::send(&self.target, &path, asked.clone(), 0) {
                Ok(answer) if !answer.is_refused_as(Reason::Stopped) => {
                    return answer.well(&[]).map(drop);
                }
                Ok(_) | Err(_) if !is_told => {
                    is_told = true;
                    tell("the coordinator is not there; waiting for it to come back");
                }
                Ok(_) | Err(_) => {}
            }
            rest(PAUSE);
        }
    }
}

impl Claim {
    fn read(job: &Value) -> Result<Self, Failure> {
        let number = |path| job.pointer(path).and_then(Value::as_u64);
        let (Some(id), Some(token)) = (number("/id"), number("/token")) else {
            return Err(unread());
        };
        let text = job.pointer("/body").and_then(Value::as_str);
        let encoded = job.pointer("/body_b64").and_then(Value::as_str);
        let body = match (text, encoded) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Some(encoded)) => STANDARD.decode(encoded).map_err(|_| unread())?,
            (None, None) => Vec::new(),
        };
        let queue = QueueName::try_from(words(job, "/queue").as_str());
        Ok(Self {
            id,
            token,
            queue: queue.map_err(|_| unread())?,
            attempts: number("/attempts").unwrap_or(0),
            is_duplicate: job.pointer("/duplicate") == Some(&true.into()),
            body,
        })
    }

    /// The type of the job.
    pub(super) fn kind(&self) -> String {
        String::from_utf8_lossy(self.queue.kind()).into_owned()
    }

    /// What its command finds in its environment.
    pub(super) fn env(&self) -> Fields {
        let tenant = String::from_utf8_lossy(self.queue.tenant()).into_owned();
        fields([
            ("SEXTON_JOB_ID", self.id.to_string().into()),
            ("SEXTON_JOB_QUEUE", self.queue.as_str().into()),
            ("SEXTON_JOB_TYPE", self.kind().into()),
            ("SEXTON_JOB_TENANT", tenant.into()),
            ("SEXTON_JOB_ATTEMPT", self.attempts.to_string().into()),
            // Its token; only ever grows, so that what it guards can tell an older run.
            ("SEXTON_JOB_FENCE", self.token.to_string().into()),
        ])
    }
}

fn unread() -> Failure {
    Failure::unreachable("failed to read the coordinator's answer: it is no job")
}
