//! Converts the rotation of output files: supervisord has settings for each stream, whereas those of a service apply to both.

use sexton::actors::process::Spec;

/// The keys of each stream: the file, its maximum size, and the number of old files.
pub(super) const KEYS: [[&str; 3]; 2] = [
    ["stdout_logfile", "stdout_logfile_maxbytes", "stdout_logfile_backups"],
    ["stderr_logfile", "stderr_logfile_maxbytes", "stderr_logfile_backups"],
];

/// The rotation of a service's output. A field that is `None` has its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    max: Option<u64>,
    keep: Option<u8>,
}

/// The settings of a stream in supervisord. A field that is `None` is not set.
pub(super) struct Stream {
    /// The keys of the maximum size and of the number of old files.
    pub(super) keys: [&'static str; 2],
    pub(super) file: Option<String>,
    pub(super) max: Option<u64>,
    pub(super) keep: Option<i64>,
}

impl Stream {
    /// Returns whether supervisord writes the stream to a file that it rotates.
    fn is_file(&self) -> bool {
        let file = self.file.as_deref().unwrap_or("AUTO").to_ascii_lowercase();
        !["none", "off", "syslog"].contains(&file.as_str()) && !file.starts_with("/dev/")
    }
}

impl Output {
    /// Returns the value of the key `output`, or `None` if everything has its default.
    pub(super) fn table(self) -> Option<String> {
        let max = self.max.map(|bytes| match bytes {
            _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => {
                format!("max = \"{}MiB\"", bytes >> 20)
            }
            _ => format!("max = {bytes}"),
        });
        let keep = self.keep.map(|it| format!("keep = {it}"));
        let both: Vec<String> = [max, keep].into_iter().flatten().collect();
        (!both.is_empty()).then(|| format!("{{ {} }}", both.join(", ")))
    }
}

/// Parses a size as supervisord does, and returns it in bytes.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim().to_ascii_lowercase();
    let units = [("kb", 10), ("mb", 20), ("gb", 30)];
    let unit = units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = unit.unwrap_or((&text, 0));
    let number: Option<u64> = number.trim().parse().ok();
    let bytes = number.and_then(|it| it.checked_mul(1 << shift));
    let within = bytes.filter(|it| i64::try_from(*it).is_ok());
    within.ok_or_else(|| "expected a number of bytes, or a form such as 50MB".to_owned())
}

/// Merges the settings of the streams. Also returns remarks on settings that are not carried over unchanged, each with its key.
pub(super) fn merged(streams: &[Stream]) -> (Output, Vec<(&'static str, &'static str)>) {
    let mut remarks = Vec::new();
    let mut output = Output::default();
    for stream in streams {
        let [max, backups] = stream.keys;
        if !stream.is_file() {
            let told = [(max, stream.max.is_some()), (backups, stream.keep.is_some())];
            let words = "the output goes to a file, which is rotated like any other: see `output`";
            remarks.extend(told.into_iter().filter(|it| it.1).map(|it| (it.0, words)));
            continue;
        }
        if let Some(bytes) = stream.max {
            let least = Spec::OUTPUT_BYTES_MIN;
            if (1..least).contains(&bytes) {
                remarks.push((max, "the minimum of 64 KiB is used instead"));
            }
            let bytes = if bytes == 0 { 0 } else { bytes.max(least) };
            if output.max.is_some_and(|it| it != bytes) {
                remarks.push((max, "both streams get the larger of the two limits"));
            }
            // 0 means no limit, and so counts as larger than any limit.
            let longer = output.max.into_iter().chain([bytes]);
            output.max = longer.max_by_key(|it| it.wrapping_sub(1));
        }
        if let Some(files) = stream.keep {
            let most = i64::from(Spec::OUTPUT_KEPT_MAX);
            if files > most {
                remarks.push((backups, "the maximum of 100 files is used instead"));
            }
            let files = u8::try_from(files.clamp(0, most)).unwrap_or(Spec::OUTPUT_KEPT_MAX);
            if output.keep.is_some_and(|it| it != files) {
                remarks.push((backups, "both streams keep the larger of the two numbers of files"));
            }
            output.keep = output.keep.max(Some(files));
        }
    }
    (output, remarks)
}

#[cfg(test)]
mod tests {
    use super::{KEYS, Output, Stream, bytes, merged};

    fn stream(nth: usize, file: Option<&str>, max: Option<u64>, keep: Option<i64>) -> Stream {
        let [_, max_key, keep_key] = KEYS[nth];
        Stream { keys: [max_key, keep_key], file: file.map(str::to_owned), max, keep }
    }

    #[test]
    fn sizes_are_those_of_supervisord() {
        for (text, size) in [("0", 0), ("50MB", 50 << 20), ("1 kb", 1024), ("7", 7)] {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in ["", "MB", "5M", "-1", "1.5MB", "9999999999GB"] {
            bytes(text).expect_err(text);
        }
    }

    #[test]
    fn two_streams_have_one_rule() {
        let of = |streams: &[Stream]| {
            let (output, remarks) = merged(streams);
            (output.table().unwrap_or_default(), remarks.len())
        };
        let two = |[one, other]: [Option<u64>; 2]| {
            of(&[stream(0, None, one, None), stream(1, None, other, None)])
        };
        assert_eq!(two([None, None]), (String::new(), 0));
        assert_eq!(two([Some(1 << 20), None]), ("{ max = \"1MiB\" }".into(), 0));
        assert_eq!(two([Some(1 << 20), Some(100_000)]).1, 1);
        assert_eq!(two([Some(70_000), Some(0)]), ("{ max = 0 }".into(), 1));
        assert_eq!(two([Some(0), Some(70_000)]), ("{ max = 0 }".into(), 1));
        assert_eq!(two([Some(10), None]), ("{ max = 65536 }".into(), 1));
        let kept = of(&[stream(0, None, None, Some(1000)), stream(1, None, None, Some(0))]);
        assert_eq!(kept, ("{ keep = 100 }".into(), 2));
    }

    #[test]
    fn what_supervisord_cannot_rotate_is_rotated_here() {
        for file in ["/dev/stdout", "NONE", "syslog"] {
            let (output, remarks) = merged(&[stream(0, Some(file), Some(0), None)]);
            assert_eq!(output, Output::default(), "{file}");
            assert_eq!(remarks.len(), 1, "{file}");
        }
    }
}
