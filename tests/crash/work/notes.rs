//! The commands in the campaign, and the notes that they write: each line is one write at the end of one file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// A command that is run for each job. It holds a lock for as long as it, or any process it started, is alive, and notes that it begins and
/// that it ends, with the job, the attempt and the token of the claim. The lock detects two commands that work on one job at the same
/// time, whatever was killed.
pub(super) const SCRIPT: &str = r#"
exec 9>"$0/lock.$SEXTON_JOB_ID"
flock -n 9 || echo "beside $SEXTON_JOB_ID $SEXTON_JOB_ATTEMPT" >> "$0/noted"
echo "begin $SEXTON_JOB_ID $SEXTON_JOB_ATTEMPT $SEXTON_JOB_FENCE $$" >> "$0/noted"
sleep 0.0$((SEXTON_JOB_ID % 5))
echo "end $SEXTON_JOB_ID $SEXTON_JOB_ATTEMPT $SEXTON_JOB_FENCE $$" >> "$0/noted"
rm -f "$0/lock.$SEXTON_JOB_ID"
"#;

/// The same as a persistent worker, see docs/protocols/work.md.
pub(super) const LINES: &str = r#"
of() { it=${line#*\"$1\":}; it=${it%%[,\}]*}; }
while read -r line <&3; do
of id; id=$it; of attempt; try=$it; of fence; fence=$it
exec 9>"$0/lock.$id"
flock -n 9 || echo "beside $id $try" >> "$0/noted"
echo "begin $id $try $fence $$" >> "$0/noted"
sleep 0.0$((id % 5))
echo "end $id $try $fence $$" >> "$0/noted"
rm -f "$0/lock.$id"
exec 9>&-
echo "{\"id\":$id,\"ok\":true}" >&3
done
"#;

/// A reader of the commands' notes, which continues where it stopped as they grow.
pub(super) struct NotesReader {
    file: PathBuf,
    read: u64,
    /// How often a job was begun.
    pub(super) begun: u64,
    /// Claims under which a job was begun.
    claims: BTreeSet<u64>,
    /// Completed jobs, with the claims under which they were completed.
    pub(super) ended: BTreeMap<u64, BTreeSet<u64>>,
    /// The PID of the command that began last.
    pub(super) newest: Option<u32>,
    /// Violations: a job that was worked on twice at the same time, or twice under one claim.
    pub(super) wrong: Vec<String>,
}

impl NotesReader {
    /// Creates a reader of the notes in this directory, which has read none yet.
    pub(super) fn of(folder: &Path) -> Self {
        Self {
            file: folder.join("noted"),
            read: 0,
            begun: 0,
            claims: BTreeSet::new(),
            ended: BTreeMap::new(),
            newest: None,
            wrong: Vec::new(),
        }
    }

    /// Reads the new lines.
    pub(super) fn read_on(&mut self) {
        // Before the first command, there is no file.
        let Ok(mut file) = File::open(&self.file) else {
            return;
        };
        file.seek(SeekFrom::Start(self.read)).expect("it is a file");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("UTF-8");
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        self.take(text.get(..whole).unwrap_or_default());
    }

    pub(super) fn take(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |nth: usize| words.get(nth).and_then(|it| it.parse::<u64>().ok());
            match (words.first(), number(1), number(3)) {
                (Some(&"begin"), Some(_), Some(claim)) => {
                    self.begun += 1;
                    self.newest = words.get(4).and_then(|pid| pid.parse().ok());
                    if !self.claims.insert(claim) {
                        self.wrong.push(format!("{line}, for the second time"));
                    }
                }
                (Some(&"end"), Some(id), Some(claim)) => {
                    self.ended.entry(id).or_default().insert(claim);
                }
                _ => self.wrong.push(line.to_owned()),
            }
        }
    }

    /// Returns how many of these jobs are not completed.
    pub(super) fn left(&self, jobs: &BTreeSet<u64>) -> usize {
        let is_left = |job: &&u64| !self.ended.contains_key(job);
        jobs.iter().filter(is_left).count()
    }
}
