//! Parses flags as beanstalkd does: letters may be combined, and a value may follow its letter directly or be the next argument.
//! Flags take effect in order, so a `-h` after an error is never reached.

use std::collections::VecDeque;
use std::path::PathBuf;

/// The highest limit that `-z` can set for the size of a job's body, in bytes. Higher values are reduced to it.
const JOB_BYTES_LIMIT: u64 = 1 << 30;

/// The output of `-h`.
pub(crate) const USAGE: &str = "Use: beanstalkd [FLAGS], any of
  -b DIR    keep the jobs in this directory; without it they are lost when the process ends
  -f MS     sync acknowledged jobs to disk within MS milliseconds; with 0, before the answer [default: 50]
  -F        never sync to disk
  -l ADDR   listen on this address, or on a Unix socket as in unix:PATH [default: 0.0.0.0]
  -p PORT   listen on this port [default: 11300]
  -s BYTES  size of each file of the journal
  -u USER   change to this user and its primary group
  -z BYTES  maximum size of a job [default: 65535, at most 1073741824]
  -c, -n    ignored
  -V        be verbose; given twice, also log every command and reply
  -v        print the version
  -h        print this help
";

/// The action that a command line requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// Runs the server.
    Serve(Flags),
    /// Prints the version.
    Version,
    /// Prints the usage.
    Help,
}

/// The values of the flags.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) address: Option<String>,
    pub(crate) port: String,
    pub(crate) data: Option<PathBuf>,
    pub(crate) sync: Sync,
    pub(crate) job_bytes: u32,
    pub(crate) file_bytes: Option<u64>,
    pub(crate) user: Option<String>,
    pub(crate) verbosity: u32,
    /// Flags that were given but have no effect.
    pub(crate) ignored: Vec<char>,
}

/// When acknowledged jobs are synced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Within this many milliseconds of the answer; if zero, before it.
    Within(u64),
    /// Never explicitly: the operating system decides.
    Never,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            address: None,
            port: sexton::config::BEANSTALK_PORT.to_string(),
            data: None,
            sync: Sync::Within(50),
            job_bytes: 65_535,
            file_bytes: None,
            user: None,
            verbosity: 0,
            ignored: Vec::new(),
        }
    }
}

/// Parses a command line. The error is a message for the user.
pub(crate) fn read(words: impl IntoIterator<Item = String>) -> Result<Invocation, String> {
    let mut words: VecDeque<String> = words.into_iter().collect();
    let mut flags = Flags::default();
    while let Some(word) = words.pop_front() {
        let mut letters = match word.strip_prefix('-') {
            Some(letters) if !letters.is_empty() => letters.chars(),
            Some(_) | None => return Err(format!("unknown argument: {word}")),
        };
        while let Some(letter) = letters.next() {
            let mut value = || match letters.as_str() {
                "" => {
                    words.pop_front().ok_or_else(|| format!("flag requires an argument: -{letter}"))
                }
                rest => {
                    let rest = rest.to_owned();
                    letters = "".chars();
                    Ok(rest)
                }
            };
            match letter {
                'b' => flags.data = Some(value()?.into()),
                'f' => flags.sync = Sync::Within(size(&value()?)?),
                'F' => flags.sync = Sync::Never,
                'l' => flags.address = Some(value()?),
                'p' => flags.port = value()?,
                's' => flags.file_bytes = Some(size(&value()?)?),
                'u' => flags.user = Some(value()?),
                'z' => {
                    let bytes = size(&value()?)?.min(JOB_BYTES_LIMIT);
                    flags.job_bytes =
                        u32::try_from(bytes).expect("the limit should fit in 32 bits");
                }
                'c' | 'n' => flags.ignored.push(letter),
                'V' => flags.verbosity += 1,
                'v' => return Ok(Invocation::Version),
                'h' => return Ok(Invocation::Help),
                _ => return Err(format!("unknown flag: -{letter}")),
            }
        }
    }
    Ok(Invocation::Serve(flags))
}

fn size(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("invalid size: {text}"))
}

#[cfg(test)]
mod tests {
    use super::{Flags, Invocation, Sync, read};

    fn read_words(line: &str) -> Result<Invocation, String> {
        read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn letters_may_stand_together_and_values_at_them() {
        let expected = Flags {
            address: Some("127.0.0.1".to_owned()),
            port: "11301".to_owned(),
            data: Some("/data".into()),
            sync: Sync::Never,
            job_bytes: 100,
            file_bytes: Some(4096),
            user: Some("nobody".to_owned()),
            verbosity: 3,
            ignored: vec!['c', 'n'],
        };
        for line in [
            "-l 127.0.0.1 -p 11301 -b /data -F -z 100 -s 4096 -u nobody -V -V -V -c -n",
            "-VVcnl127.0.0.1 -p11301 -Vb/data -f7 -Fz100 -s4096 -unobody",
            "-VVVcnFl 127.0.0.1 -b /else -b/data -z 7 -z100 -s4096 -p 11301 -u nobody",
        ] {
            let Ok(Invocation::Serve(mut flags)) = read_words(line) else {
                panic!("{line}");
            };
            flags.ignored.sort_unstable();
            assert_eq!(flags, expected, "{line}");
        }
        assert_eq!(read_words(""), Ok(Invocation::Serve(Flags::default())));
    }

    #[test]
    fn the_last_word_about_the_disk_counts() {
        for (line, sync) in
            [("-f 0", Sync::Within(0)), ("-F -f100", Sync::Within(100)), ("-f100F", Sync::Never)]
        {
            match read_words(line) {
                Ok(Invocation::Serve(flags)) => assert_eq!(flags.sync, sync, "{line}"),
                Ok(_) => panic!("{line}"),
                // Everything after the letter is the value, so a second letter makes it invalid.
                Err(words) => assert_eq!((line, words.as_str()), ("-f100F", "invalid size: 100F")),
            }
        }
    }

    #[test]
    fn what_stands_first_is_done_first() {
        for (line, asked) in [
            ("-v", Ok(Invocation::Version)),
            ("-Vh -x", Ok(Invocation::Help)),
            ("-x -h", Err("unknown flag: -x")),
            ("-p 1 -v -l", Ok(Invocation::Version)),
            ("-p", Err("flag requires an argument: -p")),
            ("-z many", Err("invalid size: many")),
            ("--help", Err("unknown flag: --")),
            ("-", Err("unknown argument: -")),
            ("11300", Err("unknown argument: 11300")),
        ] {
            assert_eq!(read_words(line), asked.map_err(str::to_owned), "{line}");
        }
    }

    #[test]
    fn a_body_has_a_gibibyte_at_most() {
        for (line, bytes) in [("-z 1073741825", 1 << 30), ("-z99999999999", 1 << 30), ("-z0", 0)] {
            let Ok(Invocation::Serve(flags)) = read_words(line) else {
                panic!("{line}");
            };
            assert_eq!(flags.job_bytes, bytes, "{line}");
        }
    }
}
