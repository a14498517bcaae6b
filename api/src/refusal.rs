//! The reasons for refusing a request, defined once for the machines, the library, HTTP and the command line.
//!
//! The error replies of the other protocols are in their codecs.

/// Whether it is useful to repeat a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The request was carried out, and this is its answer.
    Final,
    /// Nothing was done. The request would be refused again unless it is changed.
    Changed,
    /// Nothing was done. The same request may succeed later.
    Later,
    /// A part of it was done, and stays. The same request is for the rest.
    Rest,
}

/// The exit status of a command that does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The answer is no, or a problem was found.
    No = 1,
    /// The command or its arguments are invalid.
    Usage = 2,
    /// Something cannot be read or reached.
    Unreachable = 3,
    /// The node halted.
    Halted = 4,
}

struct Row {
    word: &'static str,
    status: u16,
    exit: Exit,
    retry: Retry,
    title: &'static str,
}

macro_rules! reasons {
    ($($reason:ident $word:literal $status:literal $exit:ident $retry:ident $title:literal)*) => {
        /// Why a request is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason {
            $(#[doc = $title] $reason,)*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$reason),*];

            const fn row(self) -> Row {
                match self {
                    $(Self::$reason => Row {
                        word: $word,
                        status: $status,
                        exit: Exit::$exit,
                        retry: Retry::$retry,
                        title: $title,
                    },)*
                }
            }
        }
    };
}

impl serde::Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

reasons! {
    // Refused by the actors.
    Absent       "absent"         404 No          Final   "there is no such lock entry, job, queue, process, service, lease, task or server"
    Held         "held"           409 No          Final   "another owner holds the lock, and the wait timed out"
    Stale        "stale"          409 No          Final   "the token is stale: the lock was released or has expired, or the claim, pass or attempt is over"
    Fencing      "fencing"        409 No          Later   "the lock has expired, and its process is being killed"
    Claimed      "claimed"        409 No          Final   "the job is claimed, and can be ended only with the token of its claim"
    Reserved     "reserved"       403 No          Changed "the key is reserved for the coordinator"
    ReadOnly     "read-only"      403 No          Changed "the queue accepts no jobs"
    TooBig       "too-big"        413 No          Changed "the job is longer than allowed"
    Draining     "draining"       503 No          Later   "the coordinator is draining, and accepts no new work of this kind"
    Full         "full"           503 No          Later   "the limit on lock entries, jobs, queues, processes, leases, tasks, servers or groups is reached"
    DiskFull     "disk-full"      507 No          Later   "the disk is full, and nothing is added until there is space"
    Failed       "failed"         500 Unreachable Changed "the request failed inside the coordinator, and was not applied"
    Interrupted  "interrupted"    500 Unreachable Rest    "the request was interrupted: a part of it was carried out and stays, the rest was not"
    Stopped      "stopped"        503 Unreachable Later   "the coordinator is stopping, and may be back soon"
    Halted       "halted"         503 Halted      Later   "the coordinator has halted: its disk failed, or an actor panicked too often"
    NoFiles      "no-files"       409 Unreachable Changed "the coordinator keeps no files, so there is nothing to take a snapshot of"
    Disabled     "disabled"       409 No          Changed "the lease is disabled"
    Running      "running"        409 No          Later   "a pass of the lease is running, or the task is not over"
    Ended        "ended"          409 No          Final   "the process has ended, or the task is over"
    NotStarted   "not-started"    409 No          Later   "the process has not started yet"
    NotDeferred  "not-deferred"   409 No          Final   "the launch of the process is not deferred: it was requested already"
    Launched     "launched"       409 No          Changed "the coordinator launched the process and observes its exit itself, so the exit cannot be reported"
    NotUnknown   "not-unknown"    409 No          Changed "the tree of the process is not unknown: it has not been killed, or some of it is known to be alive"
    Server       "server"         409 No          Changed "the process is the coordinator itself, or its tree contains the coordinator, which is not stopped in this way"
    Unsent       "unsent"         409 No          Changed "the signal could not be sent"
    NoFaults     "no-faults"      403 No          Changed "the coordinator's configuration does not allow faults to be injected"
    NoKeeper     "no-keeper"      503 Unreachable Changed "no keeper is running, so nothing can be launched"
    // Limits of the listeners.
    Busy         "busy"           503 Unreachable Later   "the actors did not answer in time"
    Crowded      "crowded"        503 Unreachable Later   "the limit on connections, or on the bytes of unfinished requests, is reached"
    Waits        "waits"          503 No          Later   "the limit on waiting requests is reached"
    Large        "large"          503 No          Later   "the limit on unread large answers is reached"
    // Malformed requests.
    Field        "field"          400 Usage       Changed "a field is invalid, and `field` names it"
    Malformed    "malformed"      400 Usage       Changed "the body is not a JSON object, or the query is not UTF-8"
    NotHttp      "not-http"       400 Usage       Changed "the request is not HTTP/1.1, or does not have exactly one Host header"
    Gone         "gone"           400 Usage       Changed "the client closed the connection, or wrote to it, while its request waited"
    NotJson      "not-json"       415 Usage       Changed "the Content-Type of the body is not application/json"
    KeyReused    "key-reused"     422 Usage       Changed "the Idempotency-Key was already used for a different request"
    NotFound     "not-found"      404 Unreachable Changed "nothing is served at this path"
    NotAllowed   "not-allowed"    405 Unreachable Changed "the path does not support this method"
    TooSlow      "too-slow"       408 Unreachable Changed "the request took too long to arrive"
    TooLarge     "too-large"      413 Usage       Changed "the body is longer than the path allows"
    HeadTooLarge "head-too-large" 431 Usage       Changed "the head of the request is larger than 16 KiB, or has more than 96 headers"
    NotUpgraded  "not-upgraded"   501 Unreachable Changed "the request is CONNECT, or requests an upgrade to another protocol"
    // Access control.
    Unauthorized "unauthorized"   401 Unreachable Changed "on TCP, the token is missing or wrong"
    Throttled    "throttled"      429 Unreachable Later   "too many wrong tokens were sent in the last minute"
    Foreign      "foreign"        403 Unreachable Changed "the request comes from a page of another origin or, on the Unix socket, from another user"
    OutOfScope   "out-of-scope"   403 Unreachable Changed "processes and commands may be used only over the Unix socket by the coordinator's own user, or with a token of the scope run"
    Misdirected  "misdirected"    421 Unreachable Changed "the Host header does not name this coordinator"
}

impl Reason {
    /// Returns the word by which programs identify the reason. It never changes.
    pub const fn word(self) -> &'static str {
        self.row().word
    }

    /// Returns a description for users, which can be shown on its own. It begins in lower case and has no final period.
    pub const fn title(self) -> &'static str {
        self.row().title
    }

    /// Returns the HTTP status code of the answer.
    pub const fn status(self) -> u16 {
        self.row().status
    }

    /// Returns the exit status of a command that is refused for this reason.
    pub const fn exit(self) -> Exit {
        self.row().exit
    }

    /// Returns whether it is useful to repeat the request.
    pub const fn retry(self) -> Retry {
        self.row().retry
    }

    /// Returns the reason that has this word, if there is one.
    pub fn parse(word: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|reason| reason.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn each_reason_is_known_by_its_word() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.word()), Some(*reason));
            assert!((400..600).contains(&reason.status()), "{reason:?}");
        }
        assert_eq!(Reason::parse("HELD"), None);
    }
}
