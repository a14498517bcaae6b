//! The subcommand `sexton replay`: its flags, its output and its exit statuses.

use crate::directory;
use crate::replay::item::Item;
use crate::replay::range::{Goal, Place, Purpose, Range, find};
use crate::replay::sink::{Sink, story, words};
use crate::report::{Failure, tell};
use crate::settings::data_directory;
use crate::text;
use clap::Args;
use serde_json::json;
use sexton::clock::Timestamp;
use sexton::ids::Seq;
use sexton::node::cut_words;
use sexton::persist::disk::RealDisk;
use sexton::replay::{Line, LineError, Replay, ReplayError};
use std::fs::File;
use std::io::{BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const LOGS: &str =
    "name a data directory, or a log of JSON lines written by `sexton replay DATA --export`";

/// Show the history, record by record, from a data directory or a log of JSON lines
///
/// Never changes the log, and can be used while a coordinator is running. A damaged journal is shown up to the damage, with exit
/// status 3. If the beginning of a journal no longer exists, all existing records are shown, and --state and --verify begin with
/// a snapshot. In a hand-written log, a line needs only an actor and a message: the replay first handles the deadlines that
/// expire before the line, and then decides its outcome.
#[derive(Args, Default)]
#[command(after_help = "Examples:
  sexton replay                                     every record
  sexton replay DATA --actor lock --until 812       the records up to 812
  sexton replay DATA --job 17                       the history of one job
  sexton replay DATA --task 4711                    the history of one task
  sexton replay DATA --key acct --from 2026-11-21T08:00:00Z
  sexton replay DATA --until 2026-11-21T08:30:00Z --state
  sexton replay DATA --export incident.jsonl        a log to read, cut and mail
  sexton replay incident.jsonl --verify             check that the current rules decide the same
  echo '{\"actor\":\"lock\",\"message\":\"drain\"}' | sexton replay -    a hand-written log

Exit status: 0 everything was replayed; 1 --verify found a difference; 2 wrong flags; 3 the log cannot be read, or is damaged.")]
pub(crate) struct Replaying {
    /// A data directory, a file of JSON lines, or - for standard input [default: the data directory, as for `sexton serve`]
    #[arg(value_name = "DATA|LOG")]
    log: Option<PathBuf>,

    /// Show only this actor's records; the others are still replayed
    #[arg(long, value_name = "NAME", value_parser = names())]
    actor: Option<String>,

    #[command(flatten)]
    item: Item,

    /// Show records beginning with this sequence number or time (RFC 3339)
    #[arg(long, value_name = "SEQ|TIME", value_parser = parse_place, conflicts_with_all = ["state", "verify"])]
    from: Option<Place>,

    /// Stop after this sequence number or time (RFC 3339)
    #[arg(long, value_name = "SEQ|TIME", value_parser = parse_place)]
    until: Option<Place>,

    /// Show the state at the end instead of the records
    #[arg(long, conflicts_with = "item")]
    state: bool,

    /// Decide every record again, compare states with the digests of checkpoints, and show what differs
    #[arg(long, conflicts_with = "item")]
    verify: bool,

    /// Write the records as JSON lines to this new file, or - for standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["state", "verify", "json", "item"])]
    export: Option<PathBuf>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Returns the names of the actors, and of the node, which also has records.
fn names() -> Vec<&'static str> {
    let replay = Replay::default();
    let actors = replay.states().map(|(name, ..)| name);
    actors.chain(["node"]).collect()
}

fn parse_place(text: &str) -> Result<Place, String> {
    if let Ok(seq) = text.parse() {
        return Ok(Place::Seq(Seq(seq)));
    }
    let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| {
        "expected a sequence number, or a time such as 2026-11-21T08:30:00Z".to_owned()
    })?;
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000)
        .map(|ms| Place::Time(Timestamp(ms)))
        .map_err(|_| "no log contains times before 1970".to_owned())
}

impl Place {
    /// Returns whether a line is before this position; `false` if the line does not have the sequence number or time to compare.
    fn is_ahead_of(self, line: &Line) -> bool {
        match self {
            Self::Seq(place) => line.seq.is_some_and(|seq| seq < place),
            Self::Time(place) => line.at.is_some_and(|at| at < place),
        }
    }

    /// Returns whether a line is after this position; `false` if the line does not have the sequence number or time to compare.
    fn is_past(self, line: &Line) -> bool {
        match self {
            Self::Seq(place) => line.seq.is_some_and(|seq| seq > place),
            Self::Time(place) => line.at.is_some_and(|at| at > place),
        }
    }
}

/// Prints the history of an item from the journal of a data directory. If the beginning of the journal no longer exists, the history
/// begins with the first existing record.
pub(crate) fn print_history(data: &Path, item: Item) -> Result<(), Failure> {
    let replaying = Replaying { log: Some(data.to_owned()), item, ..Replaying::default() };
    replaying.run()
}

impl Replaying {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        if self.log.is_none() {
            self.log = Some(data_directory(None)?);
        }
        let mut replay = Replay::default();
        if self.verify {
            replay = replay.verifying();
        }
        if let Some(item) = self.item.followed() {
            replay.follow(item);
        }
        let mut shown = Sink::default();
        let read = if self.log().is_dir() {
            directory::check("replay", self.log(), &["journal"])?;
            let goal = Goal { until: self.until, wanted: self.wanted() };
            let range = find(self.log(), &mut replay, goal)?;
            self.open(&mut shown)?;
            self.replay_journal(&mut replay, &mut shown, &range)
        } else {
            let text = self.read()?;
            self.open(&mut shown)?;
            self.replay_lines(&mut replay, &mut shown, &text)
        };
        // Show what was read, even if an error occurred after it.
        if read.is_ok() || replay.last() > Seq(0) {
            self.show_end(&mut replay, &mut shown)?;
        }
        shown.end()?;
        read?;
        self.remark(&shown, replay.last());
        let differing = replay.mismatches().len();
        if differing > 0 {
            let words = format!("records that would be decided differently now: {differing}");
            return Err(Failure::found(words).help(
                "the log shows what happened; a difference means that rules or settings have changed since",
            ));
        }
        let (_, differing) = replay.compared();
        if differing.is_empty() {
            return Ok(());
        }
        let words =
            format!("states that differ from the digests of checkpoints: {}", differing.len());
        Err(Failure::found(words)
            .help("this is a bug in sexton, or a memory error: keep a copy of the directory"))
    }

    fn log(&self) -> &Path {
        let log = self.log.as_deref();
        log.expect("the run should begin by setting it")
    }

    fn wanted(&self) -> Purpose {
        match (self.state, self.verify) {
            (_, true) => Purpose::Verification,
            (true, false) => Purpose::State,
            (false, false) => Purpose::Records,
        }
    }

    /// Prints remarks on the records that were shown, or on why none were.
    fn remark(&self, shown: &Sink, last: Seq) {
        if let Some(file) = self.export.as_deref().filter(|_| !self.exports_to_output()) {
            let count = text::count(shown.records, "record");
            tell(&format!("wrote {count} to {}", file.display()));
        }
        if shown.exports && shown.after > Seq(0) {
            tell(
                "the log begins in the middle, so its records can be shown, but no state can be rebuilt from them",
            );
        }
        match self.item.followed() {
            _ if shown.records > 0 => {}
            Some(item) => tell(&format!(
                "the log, which ends at sequence number {last}, has nothing about {item}"
            )),
            None if self.from.is_some() => {
                tell(&format!("nothing is shown: the log ends at sequence number {last}"));
            }
            None => {}
        }
    }

    fn exports_to_output(&self) -> bool {
        self.export.as_deref() == Some(Path::new("-"))
    }

    fn open(&self, shown: &mut Sink) -> Result<(), Failure> {
        let output: Box<dyn Write> = match &self.export {
            Some(file) if !self.exports_to_output() => Box::new(File::create_new(file).map_err(|error| {
                Failure::unreachable(format!("failed to create {}: {error}", file.display()))
                    .help("an export never replaces a file: give an unused name in an existing directory")
            })?),
            Some(_) | None => Box::new(std::io::stdout().lock()),
        };
        shown.output = BufWriter::new(output);
        shown.exports = self.export.is_some();
        Ok(())
    }

    /// Reads a log of JSON lines.
    fn read(&self) -> Result<String, Failure> {
        let name = self.log().display();
        let bytes = if self.log() == Path::new("-") {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
        } else {
            std::fs::read(self.log())
        };
        let bytes = bytes.map_err(|error| {
            let (why, _) = directory::refused(&error);
            Failure::unreachable(format!("failed to read {name}: {why}")).help(LOGS)
        })?;
        String::from_utf8(bytes).map_err(|_| {
            Failure::unreachable(format!("failed to read {name}: it is not UTF-8")).help(LOGS)
        })
    }

    fn replay_journal(
        &self,
        replay: &mut Replay,
        shown: &mut Sink,
        range: &Range,
    ) -> Result<(), Failure> {
        range.remarks.iter().for_each(|remark| tell(remark));
        let disk = RealDisk::new(self.log());
        let mut reader = range.open(&disk).map_err(Failure::from)?;
        shown.after = reader.after();
        while let Some(record) = reader.next().map_err(Failure::from)? {
            if range.until.is_some_and(|until| record.seq > until) {
                return Ok(());
            }
            let line = replay.record(&record).map_err(|error| self.failure(error))?;
            self.show(&line, shown)?;
        }
        if let Some(cut) = &reader.tail().cut {
            tell(&format!("startup would {}", cut_words(cut)));
        }
        Ok(())
    }

    fn replay_lines(
        &self,
        replay: &mut Replay,
        shown: &mut Sink,
        text: &str,
    ) -> Result<(), Failure> {
        let mut lines = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            match Line::parse(line, number) {
                Ok(None) => {}
                Ok(Some(line)) => {
                    if let Some(mark) = line.mark.as_ref().filter(|_| self.verify) {
                        replay.note(mark);
                    }
                    lines.push(Ok((line, number)));
                }
                Err(LineError::Beheaded(after)) if self.wanted() == Purpose::Records => {
                    replay.read_only();
                    shown.after = Seq(after);
                }
                Err(error) => {
                    lines.push(Err(self.failure(error.into())));
                    break;
                }
            }
        }
        for line in lines {
            let (line, number) = line?;
            if self.until.is_some_and(|until| until.is_past(&line)) {
                return Ok(());
            }
            for line in replay.line(line, number).map_err(|error| self.failure(error))? {
                self.show(&line, shown)?;
            }
        }
        Ok(())
    }

    fn show(&self, line: &Line, shown: &mut Sink) -> Result<(), Failure> {
        if self.wanted() != Purpose::Records {
            return Ok(());
        }
        if self.from.is_some_and(|from| from.is_ahead_of(line)) {
            shown.after = shown.after.max(line.seq.unwrap_or_default());
            return Ok(());
        }
        if self.actor.as_ref().is_some_and(|actor| *actor != line.actor) {
            return Ok(());
        }
        if self.item.is_any() && line.events.is_empty() {
            return Ok(());
        }
        let line = &line.masked();
        if shown.exports || self.json {
            shown.record(&line.to_json())
        } else if self.item.is_any() {
            story(line).iter().try_for_each(|event| shown.record(event))
        } else {
            shown.record(&words(line))
        }
    }

    /// Converts an error in a log to a failure.
    fn failure(&self, error: ReplayError) -> Failure {
        let name = self.log().display();
        let at = |action: &str, line: usize, cause: &str| {
            Failure::unreachable(format!("failed to {action} {name}: line {line}: {cause}"))
        };
        match error {
            ReplayError::Recovery(error) => error.into(),
            ReplayError::Impossible { line, cause } => at("replay", line, &cause),
            ReplayError::Line(LineError::Malformed { line, cause }) => {
                at("read", line, &cause).help(LOGS)
            }
            ReplayError::Line(error @ LineError::TooNew(_)) => {
                Failure::unreachable(format!("failed to {error} ({name})"))
                    .help("use the sexton that wrote it, or a newer one")
            }
            ReplayError::Line(error @ LineError::Beheaded(_)) => {
                Failure::unreachable(format!("failed to {error} ({name})")).help(
                    "show it without --state and --verify; the directory that it was exported from may have the state",
                )
            }
        }
    }

    /// Prints the state or the result of a verification, if requested.
    fn show_end(&self, replay: &mut Replay, shown: &mut Sink) -> Result<(), Failure> {
        if self.wanted() == Purpose::Records {
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
                let state = if self.state { view } else { serde_json::Value::Null };
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
            let last = replay.last();
            shown.line(&format!(
                "every record up to seq {last} would be decided in the same way now"
            ))?;
        }
        for mismatch in replay.mismatches() {
            shown.line(&format!(
                "{:>10}  {}  recorded {}  would be {}",
                mismatch.seq, mismatch.actor, mismatch.recorded, mismatch.decided
            ))?;
        }
        if self.verify && compared > 0 && differing.is_empty() {
            let agree = if compared == 1 { "agrees" } else { "agree" };
            let states = text::count(compared, "state");
            shown.line(&format!("{states} {agree} with the digests of checkpoints"))?;
        }
        for state in differing {
            shown.line(&format!(
                "{:>10}  {}  a checkpoint has digest {}, but the state has {}",
                state.upto, state.actor, state.noted, state.replayed
            ))?;
        }
        for (name, digest, view) in actors {
            shown.line(&format!("{name}: digest {digest} at sequence number {}", replay.last()))?;
            if self.state {
                let pretty =
                    serde_json::to_string_pretty(&view).expect("a view should be plain JSON");
                shown.line(&pretty)?;
            }
        }
        Ok(())
    }
}
