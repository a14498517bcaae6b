//! The subcommand, and what it shows.

use crate::replay::beginning::{Goal, Range, Until, find};
use crate::report::{self, Failure};
use crate::text;
use clap::Args;
use serde_json::json;
use sexton::actors::recovery::RecoveryError;
use sexton::clock::Timestamp;
use sexton::ids::Seq;
use sexton::node::cut_words;
use sexton::persist::disk::RealDisk;
use sexton::persist::journal::Reader;
use sexton::replay::{HEADER, Kind, Line, Replay, ReplayError, header_after};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Show what happened, entry by entry: from a data directory, or from a log of JSON lines.
///
/// Reads and never writes, also beside a running coordinator. A damaged journal is shown up to the damage, and the
/// exit status is 3. A journal whose beginning is gone is shown from a snapshot on, and says so. In a hand-written log, a line needs no more than an actor and a message: what it leads to is
/// decided now, and what falls due before it happens first.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton replay ~/.local/state/sexton               every entry
  sexton replay DATA --actor lock --until 812       the way to entry 812
  sexton replay DATA --until 2026-11-21T08:30:00Z --state
  sexton replay DATA --export incident.jsonl        a log to read, cut and mail
  sexton replay incident.jsonl --verify             would the same be decided today?
  echo '{\"actor\":\"lock\",\"message\":\"drain\"}' | sexton replay -    a hand-written log

Exit status: 0 all replayed; 1 --verify found a difference; 2 wrong flags; 3 the log cannot be read, or is damaged.")]
pub(crate) struct Replaying {
    /// A data directory, a file of JSON lines, or - for standard input
    #[arg(value_name = "DATA|LOG")]
    log: PathBuf,

    /// Show only this actor's records, such as lock; the others are replayed all the same
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,

    /// Show records from this sequence number on
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,

    /// Stop behind this sequence number, or at this time (RFC 3339)
    #[arg(long, value_name = "SEQ|TIME", value_parser = parse_until)]
    until: Option<Until>,

    /// Show the state at the end instead of the entries
    #[arg(long)]
    state: bool,

    /// Decide about every entry again, compare states with what checkpoints noted of them, and show what differs
    #[arg(long)]
    verify: bool,

    /// Write the records as JSON lines to this new file, or - for standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["state", "verify", "json"])]
    export: Option<PathBuf>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

fn parse_until(text: &str) -> Result<Until, String> {
    if let Ok(seq) = text.parse() {
        return Ok(Until::Seq(Seq(seq)));
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| {
        "expected a sequence number, or a time such as 2026-11-21T08:30:00Z".to_owned()
    })?;
    u64::try_from(time.as_millisecond())
        .map(|ms| Until::Time(Timestamp(ms)))
        .map_err(|_| "times before 1970 are not in any log".to_owned())
}

impl Until {
    /// Whether a line of a log that is no journal comes behind it.
    fn is_past(self, line: &Line) -> bool {
        match self {
            Self::Seq(until) => line.seq.is_some_and(|seq| seq > until),
            Self::Time(until) => line.at.is_some_and(|at| at > until),
        }
    }
}

impl Replaying {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // A log that was cut in the middle may name what is not there: that is an error in words, not a trace.
        std::panic::set_hook(Box::new(|_| {}));
        let mut replay = Replay::default();
        self.check_actor(&replay)?;
        if self.verify {
            replay = replay.verifying();
        }
        let range = if self.log.is_dir() {
            self.check_journal()?;
            Some(find(&self.log, &mut replay, self.goal())?)
        } else {
            None
        };
        let mut shown = self.open(range.as_ref())?;
        let read = match &range {
            Some(range) => self.replay_journal(&mut replay, &mut shown, range),
            None => self.replay_lines(&mut replay, &mut shown),
        };
        // What is whole is shown, also when the rest is not.
        self.show_end(&mut replay, &mut shown)?;
        shown.flush()?;
        read?;
        if let Some(file) = self
            .export
            .as_deref()
            .filter(|file| *file != Path::new("-"))
        {
            let count = shown.lines - 1;
            tell(&format!("wrote {count} records to {}", file.display()));
        }
        if shown.after.is_some() {
            tell("it begins in the middle, so it can be read, and not be replayed by itself");
        }
        let differing = replay.mismatches().len();
        if differing > 0 {
            let words = format!("{differing} entries would be decided otherwise now");
            return Err(Failure::found(words).help(
                "the log is what happened; a difference means that rules or settings have changed since",
            ));
        }
        let (_, differing) = replay.compared();
        if differing.is_empty() {
            return Ok(());
        }
        let words = format!(
            "{} states are not what checkpoints noted of them",
            differing.len()
        );
        Err(Failure::found(words)
            .help("this is a defect of sexton, or of its memory: keep a copy of the directory"))
    }

    fn goal(&self) -> Goal {
        Goal {
            until: self.until,
            state_alone: self.state && !self.verify && self.export.is_none(),
            verify: self.verify,
        }
    }

    fn check_journal(&self) -> Result<(), Failure> {
        if self.log.join("journal").is_dir() {
            return Ok(());
        }
        Err(Failure::unreachable(format!(
            "failed to replay {}: it has no journal folder",
            self.log.display()
        ))
        .help("give the directory that `sexton serve --data` was given, or an exported log"))
    }

    fn check_actor(&self, replay: &Replay) -> Result<(), Failure> {
        let known: Vec<_> = replay
            .states()
            .map(|(name, ..)| name)
            .chain(["node"])
            .collect();
        match &self.actor {
            Some(actor) if !known.contains(&actor.as_str()) => Err(Failure::usage(format!(
                "failed to find an actor {actor:?}; there are {}",
                known.join(", ")
            ))),
            Some(_) | None => Ok(()),
        }
    }

    fn open(&self, range: Option<&Range>) -> Result<Shown, Failure> {
        let standard = self
            .export
            .as_deref()
            .is_none_or(|file| file == Path::new("-"));
        let output: Box<dyn Write> = match &self.export {
            Some(file) if !standard => Box::new(File::create_new(file).map_err(|error| {
                Failure::unreachable(format!("failed to create {}: {error}", file.display()))
                    .help("an export never replaces a file: give a name that is free, in a folder that exists")
            })?),
            Some(_) | None => Box::new(std::io::stdout().lock()),
        };
        let mut shown = Shown {
            output: BufWriter::new(output),
            exports: self.export.is_some(),
            after: None,
            lines: 0,
        };
        if shown.exports {
            let begun = range.map_or(0, |range| range.begin.after.0);
            let after = begun.max(self.from.map_or(0, |from| from.saturating_sub(1)));
            shown.after = (after > 0).then_some(Seq(after));
            let header = shown.after.map_or(HEADER.to_owned(), header_after);
            shown.line(&header)?;
        }
        Ok(shown)
    }

    fn replay_journal(
        &self,
        replay: &mut Replay,
        shown: &mut Shown,
        range: &Range,
    ) -> Result<(), Failure> {
        range.remarks.iter().for_each(|remark| tell(remark));
        let disk = RealDisk::new(&self.log);
        let mut reader = Reader::open_after(&disk, range.begin).map_err(Failure::from)?;
        while let Some(record) = reader.next().map_err(Failure::from)? {
            if range.until.is_some_and(|until| record.seq > until) {
                return Ok(());
            }
            let line = replay.record(&record).map_err(failure)?;
            self.show(&line, shown)?;
        }
        if let Some(cut) = &reader.tail().cut {
            tell(&format!("a start would {}", cut_words(cut)));
        }
        Ok(())
    }

    fn replay_lines(&self, replay: &mut Replay, shown: &mut Shown) -> Result<(), Failure> {
        let text = if self.log == Path::new("-") {
            std::io::read_to_string(std::io::stdin())
        } else {
            std::fs::read_to_string(&self.log)
        };
        let text = text.map_err(|error| {
            Failure::unreachable(format!("failed to read {}: {error}", self.log.display()))
        })?;
        let mut lines = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let parsed = Line::parse(line, number).map_err(|error| failure(error.into()));
            match parsed {
                Ok(None) => {}
                Ok(Some(line)) => {
                    if let Some(mark) = line.mark.as_ref().filter(|_| self.verify) {
                        replay.note(mark);
                    }
                    lines.push(Ok((line, number)));
                }
                Err(error) => {
                    lines.push(Err(error));
                    break;
                }
            }
        }
        for line in lines {
            let (line, number) = line?;
            if self.until.is_some_and(|until| until.is_past(&line)) {
                return Ok(());
            }
            for line in replay.line(line, number).map_err(failure)? {
                self.show(&line, shown)?;
            }
        }
        Ok(())
    }

    fn show(&self, line: &Line, shown: &mut Shown) -> Result<(), Failure> {
        let wanted = self.actor.as_ref().is_none_or(|actor| *actor == line.actor)
            && self
                .from
                .is_none_or(|from| line.seq.is_none_or(|seq| seq.0 >= from));
        if !wanted || (!shown.exports && (self.state || self.verify)) {
            return Ok(());
        }
        if shown.exports || self.json {
            shown.line(&line.to_json())
        } else {
            shown.line(&words(line))
        }
    }

    /// What `--state` and `--verify` ask for.
    fn show_end(&self, replay: &mut Replay, shown: &mut Shown) -> Result<(), Failure> {
        if shown.exports || !(self.state || self.verify) {
            return Ok(());
        }
        let (compared, differing) = replay.compared();
        let differing = differing.to_vec();
        let actors: Vec<_> = replay
            .states()
            .filter(|(name, ..)| self.actor.as_ref().is_none_or(|actor| actor == name))
            .collect();
        if self.json {
            let mut states = serde_json::Map::new();
            for (name, digest, view) in actors {
                let state = if self.state {
                    view
                } else {
                    serde_json::Value::Null
                };
                let about = json!({ "digest": digest, "state": state });
                states.insert(name.to_owned(), about);
            }
            let all = json!({
                "last": replay.last(),
                "actors": states,
                "mismatches": self.verify.then(|| replay.mismatches()),
                "checkpoints": self.verify.then(|| json!({ "compared": compared, "differing": differing })),
            });
            return shown.line(&all.to_string());
        }
        if self.verify && replay.mismatches().is_empty() {
            shown.line("every entry would be decided in the same way now")?;
        }
        for mismatch in replay.mismatches() {
            shown.line(&format!(
                "{:>10}  {}  recorded {}  would be {}",
                mismatch.seq, mismatch.actor, mismatch.recorded, mismatch.decided
            ))?;
        }
        if self.verify && compared > 0 && differing.is_empty() {
            shown.line(&format!(
                "{compared} states are what checkpoints noted of them"
            ))?;
        }
        for state in differing {
            shown.line(&format!(
                "{:>10}  {}  a checkpoint noted digest {}, it is {}",
                state.upto, state.actor, state.noted, state.replayed
            ))?;
        }
        for (name, digest, view) in actors {
            shown.line(&format!(
                "{name}: digest {digest} at sequence number {}",
                replay.last()
            ))?;
            if self.state {
                let pretty = serde_json::to_string_pretty(&view).expect("a view is plain JSON");
                shown.line(&pretty)?;
            }
        }
        Ok(())
    }
}

/// Where the lines go.
struct Shown {
    output: BufWriter<Box<dyn Write>>,
    exports: bool,
    /// Behind which number an export begins, if that is not the first.
    after: Option<Seq>,
    lines: u64,
}

impl Shown {
    fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.lines += 1;
        report::written(writeln!(self.output, "{line}"))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        report::written(self.output.flush())
    }
}

/// A line as people read it.
fn words(line: &Line) -> String {
    let seq = line.seq.map_or("-".to_owned(), |seq| seq.to_string());
    let at = line.at.map_or("-".to_owned(), text::time);
    let json = |value: &Option<serde_json::Value>| {
        value.as_ref().map_or_else(String::new, ToString::to_string)
    };
    let what = match line.kind {
        Kind::Entry => format!("{}  ->  {}", json(&line.message), json(&line.outcome)),
        Kind::Poisoned => format!(
            "{}  PANICKED in {}: {}",
            json(&line.message),
            line.stage
                .map_or_else(String::new, |stage| format!("{stage:?}").to_lowercase()),
            line.cause.as_deref().unwrap_or("-"),
        ),
        Kind::Mark => serde_json::to_string(&line.mark).unwrap_or_default(),
        Kind::Time => "time passes".to_owned(),
    };
    format!("{seq:>10}  {at}  {:<6} {what}", line.actor)
}

fn failure(error: ReplayError) -> Failure {
    match error {
        ReplayError::Recovery(RecoveryError::Persist(error)) => error.into(),
        ReplayError::Recovery(error) => error.into(),
        ReplayError::Line(_) | ReplayError::Impossible { .. } => {
            Failure::unreachable(format!("failed to {error}"))
        }
    }
}

#[expect(clippy::print_stderr, reason = "a remark beside the output")]
fn tell(words: &str) {
    eprintln!("sexton: {words}");
}
