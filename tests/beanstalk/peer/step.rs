//! The steps of a sequence: a command of any kind, several commands at once, or the end of a connection.

use crate::chance::Chance;
use crate::peer::pair::{Pair, Spans};

/// One action on one connection.
#[derive(Clone)]
pub(crate) enum Step {
    /// A connection sends bytes, and replies are expected.
    Say {
        /// The connection that sends them.
        connection: usize,
        /// The commands, with their bodies.
        bytes: Vec<u8>,
        /// The number of expected replies, unless the command waits.
        replies: usize,
    },
    /// The connection is closed, and another one is opened in its place.
    Close(usize),
    /// The client closes its sending side and reads the remaining replies. Then another connection is opened in its
    /// place.
    End(usize),
    /// A pause has ended: see `Side::after_pause`.
    AfterPause,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Say { connection, bytes, .. } => {
                write!(f, "{connection} -> {}", bytes.escape_ascii())
            }
            Self::Close(connection) => write!(f, "{connection} is closed"),
            Self::End(connection) => write!(f, "{connection} sends no more"),
            Self::AfterPause => write!(f, "a pause is over"),
        }
    }
}

pub(crate) const TUBES: &[&str] = &["default", "a", "b", "c-1"];

/// Tubes that always exist. When another tube is removed, beanstalkd forgets its pause, and sexton keeps it.
pub(crate) const LASTING: &[&str] = &["default", "a"];

impl Step {
    /// Returns any step that is possible now.
    pub(crate) fn any(chance: &mut Chance, pair: &Pair) -> Self {
        let connection =
            usize::try_from(chance.below(pair.connections() as u64)).expect("a small number");
        // If a connection returns several jobs, beanstalkd gives a waiting client the one that was claimed first, and
        // sexton the most urgent one.
        let may_close = !pair.may_give_back_several(connection);
        match chance.below(30) {
            0 if may_close => return Self::Close(connection),
            1 if may_close => return Self::End(connection),
            _ => {}
        }
        // A waiting connection cannot send commands.
        let free = (0..pair.connections()).filter(|at| !pair.is_waiting(*at));
        let free: Vec<usize> = free.collect();
        let Some(connection) = pick(chance, &free) else {
            return Self::Close(connection);
        };
        let together = if chance.below(5) == 0 { 1 + chance.below(6) } else { 1 };
        let mut bytes = Vec::new();
        for _ in 0..together {
            let may_wait = together == 1 && pair.may_wait(connection);
            bytes.extend_from_slice(&command(chance, pair, (together == 1, may_wait)));
        }
        Self::Say { connection, bytes, replies: usize::try_from(together).expect("a small number") }
    }
}

impl Step {
    /// Returns a step in which a connection waits for a job.
    pub(crate) fn wait(connection: usize, chance: &mut Chance, pair: &Pair) -> Self {
        let line = match chance.below(2) {
            0 if pair.spans() != Spans::Reservations => {
                format!("reserve-with-timeout {}\r\n", pair.patience_s(2))
            }
            _ => "reserve\r\n".to_owned(),
        };
        Self::Say { connection, bytes: line.into(), replies: 1 }
    }

    /// Returns steps in which a connection puts the first job, and reserves it by id, which does not count as serving its
    /// tube.
    pub(crate) fn reserve_first(connection: usize, chance: &mut Chance) -> [Self; 2] {
        let put = format!("put 0 0 {} 1\r\nx\r\n", 1 + chance.below(2));
        [put, "reserve-job 1\r\n".to_owned()].map(|line| Self::Say {
            connection,
            bytes: line.into(),
            replies: 1,
        })
    }
}

fn pick<T: Copy>(chance: &mut Chance, all: &[T]) -> Option<T> {
    let at = chance.any().checked_rem(all.len() as u64)?;
    all.get(usize::try_from(at).ok()?).copied()
}

fn tube(chance: &mut Chance) -> &'static str {
    pick(chance, TUBES).unwrap_or("default")
}

/// Returns an id, mostly of a job that exists or existed.
fn id(chance: &mut Chance, next: u64) -> String {
    match chance.below(20) {
        0 => "0".to_owned(),
        1 => u64::MAX.to_string(),
        2 => "18446744073709551616".to_owned(),
        3 => "x".to_owned(),
        4 => format!("  {}", 1 + chance.below(next)),
        5 => format!("{} ", 1 + chance.below(next)),
        _ => {
            let recent = next.min(8);
            (next - chance.below(recent)).to_string()
        }
    }
}

fn priority(chance: &mut Chance) -> String {
    match chance.below(12) {
        0 => u32::MAX.to_string(),
        1 => "4294967296".to_owned(),
        2 => "-1".to_owned(),
        3 => "1023".to_owned(),
        4 => "1024".to_owned(),
        number => (number % 4).to_string(),
    }
}

fn put(chance: &mut Chance, is_single_threaded: bool, pair: &Pair) -> Vec<u8> {
    let priority = priority(chance);
    let delay = match chance.below(6) {
        delay @ (1 | 2) if is_single_threaded => pair.seconds(delay),
        _ => 0,
    };
    let ttr = match pair.spans() {
        Spans::Last => chance.below(4),
        Spans::End => 100,
        // So short that a job that another connection gets in a pause is still reserved after the pause.
        Spans::Reservations => 1 + chance.below(2),
    };
    let len = pick(chance, &[0, 1, 5, 40, 223, 224, 5000, 65_535]).unwrap_or(0);
    let body: Vec<u8> =
        (0..len).map(|_| u8::try_from(chance.below(256)).expect("a small number")).collect();
    let mut bytes = format!("put {priority} {delay} {ttr} {len}").into_bytes();
    if priority.starts_with('-') || priority.len() > 9 && priority != u32::MAX.to_string() {
        // After an invalid line, the body would be read as commands.
        bytes.extend_from_slice(b"\r\n");
        return bytes;
    }
    match chance.below(25) {
        0 => bytes.extend_from_slice(b" more\r\n"),
        1 => {
            bytes = format!("put 0 0 1 {}\r\n", 65_536).into_bytes();
            bytes.extend(std::iter::repeat_n(b'x', 65_538));
        }
        2 => {
            bytes.extend_from_slice(b"\r\n");
            bytes.extend_from_slice(&body);
            bytes.extend_from_slice(b"\n\r");
        }
        _ => {
            bytes.extend_from_slice(b"\r\n");
            bytes.extend_from_slice(&body);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    bytes
}

fn reserve(chance: &mut Chance, pair: &Pair, may_wait: bool) -> String {
    let waits = if may_wait { chance.below(6) } else { 5 };
    match waits {
        0 => "reserve".to_owned(),
        // If DEADLINE_SOON ends a wait with a timeout, beanstalkd may keep a reservation after its end.
        1 | 2 if pair.spans() == Spans::Reservations => "reserve".to_owned(),
        1 | 2 => format!("reserve-with-timeout {}", pair.patience_s(waits)),
        3 => format!("reserve-job {}", id(chance, pair.next_id())),
        _ => "reserve-with-timeout 0".to_owned(),
    }
}

/// Returns a command that is refused.
fn words(chance: &mut Chance, since_13: bool) -> &'static str {
    const ODD: &[&str] = &[
        "",
        " ",
        "reserved",
        "reserve ",
        "reserve-with-timeout",
        "reserve-with-timeout x",
        "reserve-with-timeout 4294967296",
        "statsy",
        "list-tubesX",
        "peek-ready 1",
        "use -a",
        "use a b",
        "watch",
        "ignore ",
        "kick",
        "kick x",
        "kick +1x",
        "kick  1 2",
        "delete",
        "touch 1 2",
        "bury 1",
        "release 1 2",
        "release 1 2 3 4",
        "pause-tube a",
        "pause-tube a x",
        "pause-tubea 0",
        "PUT 0 0 0 0",
        "put 0 0 0",
        "stats-tube",
        "stats-job",
        "a\0b",
        "use a\0",
        "nothing of the kind",
    ];
    let odd = pick(chance, ODD).unwrap_or("");
    // 1.12 parses this command less strictly.
    let is_new = odd.starts_with("reserve-with-timeout ");
    if is_new && !since_13 { "" } else { odd }
}

fn command(
    chance: &mut Chance,
    pair: &Pair,
    (is_single_threaded, may_wait): (bool, bool),
) -> Vec<u8> {
    let next = pair.next_id();
    let line = match chance.below(44) {
        0..=8 => return put(chance, is_single_threaded, pair),
        9..=15 if !pair.may_reserve(is_single_threaded) => "list-tubes-watched".to_owned(),
        9..=15 => reserve(chance, pair, may_wait),
        16..=18 => format!("delete {}", id(chance, next)),
        19..=20 => {
            let delays = is_single_threaded && chance.below(3) == 0;
            let delay = if delays { pair.seconds(1) } else { 0 };
            format!("release {} {} {delay}", id(chance, next), priority(chance))
        }
        21..=22 => format!("bury {} {}", id(chance, next), priority(chance)),
        23 => format!("touch {}", id(chance, next)),
        24..=25 => format!("use {}", tube(chance)),
        26..=27 => format!("watch {}", tube(chance)),
        28 => format!("ignore {}", tube(chance)),
        29 => format!("peek {}", id(chance, next)),
        30 => "peek-ready".to_owned(),
        31 => "peek-delayed".to_owned(),
        32 => "peek-buried".to_owned(),
        // If several jobs are kicked while a client waits, the servers may also give it different ones.
        33 if pair.is_anybody_waiting() => format!("kick {}", chance.below(2)),
        33 => format!("kick {}", chance.below(4)),
        34 => format!("kick-job {}", id(chance, next)),
        35 => match tube(chance) {
            tube if LASTING.contains(&tube) => {
                format!("pause-tube {tube} {}", pair.seconds(chance.below(3)))
            }
            tube => format!("pause-tube {tube} 0"),
        },
        36 => "stats".to_owned(),
        37..=38 => format!("stats-job {}", id(chance, next)),
        39 => format!("stats-tube {}", tube(chance)),
        40 => "list-tubes".to_owned(),
        41 => "list-tubes-watched".to_owned(),
        42 => "list-tube-used".to_owned(),
        _ => words(chance, pair.since_13()).to_owned(),
    };
    let mut bytes = line.into_bytes();
    bytes.extend_from_slice(b"\r\n");
    bytes
}
