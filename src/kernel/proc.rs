//! Processes as `/proc` shows them. A process that no longer exists yields `None`, not an error.

#![expect(
    unsafe_code,
    reason = "the enabled features of rustix have no safe call for the length of a clock tick or the size of a page"
)]

use crate::bytes::Bytes;
use crate::kernel::answers::{Content, LIMIT, Readers};
use rustix::fs::{Mode, OFlags, openat};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The size of the buffer for `/proc/PID/stat`: some fifty numbers and a name of at most 64 bytes fit. The file is read in one call,
/// because the kernel does not report its length beforehand.
const STAT_BYTES_MAX: usize = 2048;

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The state of the main thread: `R`, `S`, `D`, `T`, `Z` and so on.
    pub state: u8,
    /// The number of threads that have not ended, plus the main thread, which counts until the process is reaped.
    pub threads: u32,
    /// The PID of its parent.
    pub parent: u32,
    /// The id of its process group.
    pub group: u32,
    /// The id of its session.
    pub session: u32,
    /// The start time in clock ticks since boot.
    pub start_ticks: u64,
    /// User and system processor time in clock ticks.
    pub cpu_ticks: u64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
    /// Resident memory in pages.
    pub memory_pages: u64,
    /// The exit status in the format of `wait`; 0 while the process is alive, or if this user may not read the status.
    pub exit_code: u32,
}

impl Stat {
    /// Returns whether the process has ended but has not been reaped. A process lives while any of its threads does: if only its main thread
    /// has ended, by `pthread_exit`, its state is that of a zombie as well.
    pub const fn is_zombie(&self) -> bool {
        self.has_no_main_thread() && self.threads <= 1
    }

    const fn has_no_main_thread(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Returns the processor time in milliseconds.
    pub fn cpu_ms(&self) -> u64 {
        self.cpu_ticks.saturating_mul(1000) / ticks_per_second()
    }

    /// Returns the resident memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_pages.saturating_mul(page_bytes())
    }

    /// Parses the contents of `/proc/PID/stat`. The program's name is in parentheses and may itself contain parentheses and blanks, so it
    /// ends at the last closing parenthesis. Returns `None` if a field is missing or invalid; but `group`, `session`, `threads` and
    /// `exit_code` are 0 in this case.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        // `field` takes the field numbers of proc(5), in which the first of `numbers` is field 4.
        let numbers: Vec<&str> = fields.collect();
        let field = |number: usize| numbers.get(number - 4).copied();
        let long = |number| field(number)?.parse::<u64>().ok();
        let pid = |number| field(number)?.parse::<u32>().ok();
        Some(Self {
            state,
            threads: pid(20).unwrap_or(0),
            parent: pid(4)?,
            group: pid(5).unwrap_or(0),
            session: pid(6).unwrap_or(0),
            start_ticks: long(22)?,
            cpu_ticks: long(14)?.saturating_add(long(15)?),
            virtual_bytes: long(23)?,
            memory_pages: long(24)?,
            exit_code: pid(52).unwrap_or(0),
        })
    }
}

/// Returns all visible PIDs, in no particular order.
///
/// # Errors
/// Returns an error if `/proc` cannot be read.
pub fn pids() -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        pids.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(pids)
}

/// Returns all visible processes that have not ended, that is, of which at least one thread is alive.
///
/// # Errors
/// Returns an error if `/proc` cannot be read.
pub fn living() -> io::Result<BTreeMap<u32, Stat>> {
    let mut living = BTreeMap::new();
    for pid in pids()? {
        // `stat` returns `None` if the process was reaped after its PID was listed.
        if let Some(stat) = stat(pid)?
            && !stat.is_zombie()
        {
            living.insert(pid, stat);
        }
    }
    Ok(living)
}

/// Brings what [`living`] returned up to date: removes the processes that are not listed any more, and adds those with other PIDs. This takes
/// much less time than to look at all of them. A process that has got the PID of an earlier one meanwhile is taken for that one.
///
/// # Errors
/// Returns an error if `/proc` cannot be read.
pub fn catch_up(living: &mut BTreeMap<u32, Stat>) -> io::Result<()> {
    let listed: BTreeSet<u32> = pids()?.into_iter().collect();
    living.retain(|pid, _| listed.contains(pid));
    for pid in listed {
        if !living.contains_key(&pid)
            && let Some(stat) = stat(pid)?
            && !stat.is_zombie()
        {
            living.insert(pid, stat);
        }
    }
    Ok(())
}

/// Adds to `members` all of their descendants that are among `living`.
pub fn add_descendants(members: &mut BTreeSet<u32>, living: &BTreeMap<u32, Stat>) {
    loop {
        let more: Vec<u32> = living
            .iter()
            .filter(|(pid, stat)| !members.contains(pid) && members.contains(&stat.parent))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            return;
        }
        members.extend(more);
    }
}

/// Returns the PIDs of the children of a process, including those that have ended and have not been reaped; `None` if the process does not
/// exist or the kernel has no such list. Only the children that its main thread created or inherited are listed.
///
/// # Errors
/// Returns an error if the list cannot be read.
pub fn children(pid: u32) -> io::Result<Option<Vec<u32>>> {
    let text = gone_is_none(fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")))?;
    let pids = |text: String| {
        let pids = text.split_ascii_whitespace();
        pids.filter_map(|pid| pid.parse().ok()).collect()
    };
    Ok(text.map(pids))
}

/// Returns how long ago a process started, given its [`Stat::start_ticks`], in milliseconds.
pub fn age_ms(start_ticks: u64) -> u64 {
    let age = now_ticks().saturating_sub(start_ticks);
    age.saturating_mul(1000) / ticks_per_second()
}

/// Returns the time since boot in clock ticks, on the clock of [`Stat::start_ticks`].
pub fn now_ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = now.tv_nsec.unsigned_abs() / (1_000_000_000 / ticks_per_second());
    now.tv_sec.unsigned_abs() * ticks_per_second() + part
}

/// Returns the number of processes and threads that the machine has created since boot.
///
/// # Errors
/// Returns an error if `/proc/stat` cannot be read.
pub fn created_count() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/stat")?;
    let mut counts = text.lines().filter_map(|line| line.strip_prefix("processes "));
    let made = counts.next().and_then(|count| count.trim().parse().ok());
    made.ok_or(io::Error::from(io::ErrorKind::InvalidData))
}

/// Reads `/proc/PID/stat`; `None` if no process has this PID.
///
/// # Errors
/// Returns an error if the file cannot be read or is not in the documented format.
pub fn stat(pid: u32) -> io::Result<Option<Stat>> {
    stat_in(Path::new(&format!("/proc/{pid}")))
}

fn stat_in(directory: &Path) -> io::Result<Option<Stat>> {
    let mut text = [0; STAT_BYTES_MAX];
    let read = File::open(directory.join("stat")).and_then(|mut file| file.read(&mut text));
    let Some(length) = gone_is_none(read)? else {
        return Ok(None);
    };
    let stat = text.get(..length).and_then(Stat::parse);
    Ok(Some(stat.ok_or(io::ErrorKind::InvalidData)?))
}

/// Returns the status of a zombie in the format of `wait`; `None` if no zombie has this PID or this user may not read its status.
///
/// # Errors
/// Returns an error if the file cannot be read or is not in the documented format.
pub fn zombie_status(pid: u32) -> io::Result<Option<u32>> {
    // The kernel shows 0 to users who may not read the status. Such users may not read this link either, whereas for all other users, a
    // zombie has no such link.
    let directory = fs::read_link(format!("/proc/{pid}/cwd"));
    if !directory.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let stat = stat(pid)?.filter(Stat::is_zombie);
    Ok(stat.map(|stat| stat.exit_code))
}

/// The maximum number of descriptors that one search for holders looks at. Another user may have millions.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// Returns the PIDs and names of at most `most` processes that have one of these files open, in no particular order. On a machine with more
/// than 65,536 open descriptors, some may be missing.
///
/// # Errors
/// Returns an error if `/proc` cannot be read.
pub fn holders(paths: &[PathBuf], most: usize) -> io::Result<Vec<(u32, String)>> {
    holders_among(paths, most, DESCRIPTORS_MAX)
}

fn holders_among(
    paths: &[PathBuf],
    most: usize,
    mut descriptors: usize,
) -> io::Result<Vec<(u32, String)>> {
    let real = paths.iter().filter_map(|path| fs::canonicalize(path).ok());
    let real: Vec<PathBuf> = real.collect();
    let mut found = Vec::new();
    for pid in pids()? {
        // Processes that have exited or may not be inspected are skipped.
        let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        let next = fds.flatten().take_while(|_| {
            let is_left = descriptors > 0;
            descriptors = descriptors.saturating_sub(1);
            is_left
        });
        let mut links = next.filter_map(|fd| fs::read_link(fd.path()).ok());
        if links.any(|link| real.contains(&link)) {
            let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).trim_end().to_owned();
            found.push((pid, name));
            if found.len() >= most {
                break;
            }
        }
    }
    Ok(found)
}

/// Returns the path of this program's executable. If the file has been removed or replaced since this program started, the path does not
/// lead to it; [`executes`] can check that.
///
/// # Errors
/// Returns the error of `readlink`.
pub fn program() -> io::Result<PathBuf> {
    fs::read_link("/proc/self/exe")
}

/// Returns whether a process executes this file, and not an earlier one of the same name.
///
/// # Errors
/// Returns the error of `stat`: the file or the process does not exist, or the process may not be inspected.
pub fn executes(pid: u32, file: &Path) -> io::Result<bool> {
    let executed = fs::metadata(format!("/proc/{pid}/exe"))?;
    let file = fs::metadata(file)?;
    Ok((executed.dev(), executed.ino()) == (file.dev(), file.ino()))
}

/// Returns the effective user id of a process; `None` if the process does not exist.
///
/// # Errors
/// Returns an error if `/proc/PID` cannot be read.
pub fn user(pid: u32) -> io::Result<Option<u32>> {
    let metadata = gone_is_none(fs::metadata(format!("/proc/{pid}")))?;
    Ok(metadata.map(|it| it.uid()))
}

/// Returns the initial environment of a process as `NAME=VALUE` strings; `None` if the process does not exist.
///
/// # Errors
/// Returns an error if the environment may not be read, and `TimedOut` if the process of another user does not let it be read in time.
pub fn environ(pid: u32) -> io::Result<Option<Vec<Bytes>>> {
    Ok(Files::all().read(pid, "environ", u64::MAX)?.map(|it| split(&it.bytes)))
}

/// How much of the environment or command line of another user's process is read. The kernel permits some 6 MB, which take it milliseconds to
/// show: many such processes must not delay a search for others. What is launched has its id at the beginning of its environment.
const READ_BYTES: u64 = 128 << 10;

/// A variable in the environment of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its value.
    pub value: Bytes,
    /// The real, effective and saved user id of the process.
    pub users: [u32; 3],
}

impl Variable {
    /// Returns whether the process runs as this user alone.
    pub fn is_of(&self, user: u32) -> bool {
        self.users == [user; 3]
    }
}

/// A process of another user did not let its memory be read in time, or its environment is too long to be searched: what it contains is
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

/// Returns a variable in the initial environment of a process; `None` if the process does not exist, has no such variable, or may not be
/// inspected. A program that gained rights when it was executed (set-user-ID) counts as having none: its environment was chosen by
/// another user than the one it runs as.
///
/// # Errors
/// Returns an error if the process does not answer, or if the variable is not in the first 128 KiB of an environment that is longer.
pub fn variable(pid: u32, name: &str) -> Result<Option<Variable>, Unanswered> {
    variable_in(Files::all(), pid, name)
}

pub(super) fn variable_in(
    files: &Files,
    pid: u32,
    name: &str,
) -> Result<Option<Variable>, Unanswered> {
    let Some(environment) = answered(files.read(pid, "environ", READ_BYTES))? else {
        return Ok(None);
    };
    let mut strings = split(&environment.bytes);
    if !environment.is_whole {
        // The last one may go on.
        strings.pop();
    }
    let value = strings.iter().find_map(|it| {
        let rest = it.as_bytes().strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=").map(Bytes::new)
    });
    let Some(value) = value else {
        return if environment.is_whole { Ok(None) } else { Err(Unanswered) };
    };
    let vector = answered(files.read(pid, "auxv", u64::MAX))?;
    if vector.is_none_or(|vector| is_secure(&vector.bytes)) {
        return Ok(None);
    }
    let status = fs::read_to_string(files.of(pid).join("status")).ok();
    let users = status.as_deref().and_then(users_in);
    Ok(users.map(|users| Variable { value, users }))
}

/// Takes a process that may not be inspected for one that does not exist.
fn answered<T>(read: io::Result<Option<T>>) -> Result<Option<T>, Unanswered> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Unanswered),
        read => Ok(read.ok().flatten()),
    }
}

/// Returns the real, effective and saved user id in the text of `/proc/PID/status`.
fn users_in(status: &str) -> Option<[u32; 3]> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut ids = line.split_ascii_whitespace().map(|id| id.parse().ok());
    Some([ids.next()??, ids.next()??, ids.next()??])
}

/// Returns whether an auxiliary vector says that the program gained rights when it was executed. The words of a 32-bit program have 4 bytes.
fn is_secure(vector: &[u8]) -> bool {
    const AT_SECURE: u64 = 23;
    let words = |bytes: usize| -> Vec<u64> {
        let word = |chunk: &[u8]| {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            u64::from_ne_bytes(word)
        };
        vector.chunks_exact(bytes).map(word).collect()
    };
    let mut all = words(8);
    if all.first().is_some_and(|kind| *kind > u64::from(u32::MAX)) {
        all = words(4);
    }
    let mut pairs = all.chunks_exact(2);
    pairs.any(|pair| matches!(pair, [AT_SECURE, value] if *value != 0))
}

/// Returns the program and arguments of a process: an empty list for zombies and kernel threads, `None` if the process does not exist. Those
/// of another user's process are cut after 128 KiB.
///
/// # Errors
/// Returns an error if the command line may not be read, and `TimedOut` if the process of another user does not let it be read in time.
pub fn cmdline(pid: u32) -> io::Result<Option<Vec<Bytes>>> {
    Ok(Files::all().read(pid, "cmdline", READ_BYTES)?.map(|it| split(&it.bytes)))
}

/// Returns the working directory of a process; `None` if the process does not exist or is a zombie.
///
/// # Errors
/// Returns an error if the directory may not be read.
pub fn cwd(pid: u32) -> io::Result<Option<Bytes>> {
    let path: Option<PathBuf> = gone_is_none(fs::read_link(format!("/proc/{pid}/cwd")))?;
    Ok(path.map(|path| Bytes::new(path.into_os_string().into_vec())))
}

/// The files of all processes.
pub(super) struct Files {
    /// `/proc`, except in tests.
    pub(super) root: PathBuf,
    /// The user whose processes are read directly.
    pub(super) own: u32,
    pub(super) readers: Readers,
}

impl Files {
    /// Returns those of this machine.
    fn all() -> &'static Self {
        static ALL: OnceLock<Files> = OnceLock::new();
        ALL.get_or_init(|| Self {
            root: PathBuf::from("/proc"),
            own: rustix::process::geteuid().as_raw(),
            readers: Readers::new(LIMIT),
        })
    }

    /// Returns the directory of a process.
    pub(super) fn of(&self, pid: u32) -> PathBuf {
        self.root.join(pid.to_string())
    }

    /// Reads a file that shows the memory of a process; of that of another user, at most `most` bytes. A main thread that has ended has
    /// none, so if the process lives on in other threads, it is read through one of these.
    ///
    /// # Errors
    /// Returns `TimedOut` if the process does not answer in time, or is not asked because it did not before. Returns an error if the file
    /// may not be read.
    fn read(&self, pid: u32, name: &'static str, most: u64) -> io::Result<Option<Memory>> {
        let path = self.of(pid);
        // The open directory stays that of this process, whichever has the PID later.
        let Some(place) = gone_is_none(File::open(&path))? else {
            return Ok(None);
        };
        let user = place.metadata()?.uid();
        if user == self.own {
            let bytes = read_memory(&place, &path, (name, u64::MAX))?;
            return Ok(bytes.map(|bytes| Memory { bytes, is_whole: true }));
        }
        let Some(stat) = stat_in(&path)? else {
            return Ok(None);
        };
        let job = move || read_memory(&place, &path, (name, most));
        let read = self.readers.ask((pid, stat.start_ticks), user, Box::new(job));
        let bytes = read.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
        let is_whole = |bytes: &Vec<u8>| (bytes.len() as u64) < most;
        Ok(bytes.map(|bytes| Memory { is_whole: is_whole(&bytes), bytes }))
    }
}

/// What was read of the memory of a process.
struct Memory {
    bytes: Vec<u8>,
    /// Whether there is certainly no more.
    is_whole: bool,
}

fn read_memory(place: &File, path: &Path, (name, most): (&str, u64)) -> Content {
    let bytes = gone_is_none(read_at(place, Path::new(name), most))?;
    if bytes.as_ref().is_some_and(|bytes| !bytes.is_empty()) {
        return Ok(bytes);
    }
    let lives_on = stat_in(path)?.is_some_and(|it| it.has_no_main_thread() && !it.is_zombie());
    if lives_on && let Some(threads) = gone_is_none(fs::read_dir(path.join("task")))? {
        let read = |thread: fs::DirEntry| {
            let file = Path::new("task").join(thread.file_name()).join(name);
            read_at(place, &file, most).ok()
        };
        let mut texts = threads.flatten().filter_map(read);
        return Ok(texts.find(|text| !text.is_empty()).or(bytes));
    }
    Ok(bytes)
}

fn read_at(place: &File, name: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = openat(place, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    File::from(file).take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Splits NUL-terminated strings; the last one may lack its NUL.
fn split(bytes: &[u8]) -> Vec<Bytes> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(Bytes::new).collect()
}

/// Maps the errors for a process that no longer exists to `None`: `ENOENT` from opening its file, or `ESRCH` from reading it afterwards.
fn gone_is_none<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Ok(None),
            _ => Err(error),
        },
    }
}

fn ticks_per_second() -> u64 {
    static TICKS: OnceLock<u64> = OnceLock::new();
    // SAFETY: the call takes an integer and returns an integer.
    *TICKS.get_or_init(|| positive(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }, 100))
}

fn page_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    // SAFETY: the call takes an integer and returns an integer.
    *BYTES.get_or_init(|| positive(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }, 4096))
}

fn positive(found: libc::c_long, usual: u64) -> u64 {
    u64::try_from(found).ok().filter(|found| *found > 0).unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use super::{
        Stat, catch_up, cmdline, cwd, environ, holders_among, is_secure, living, pids, split, stat,
        users_in, variable,
    };

    #[test]
    fn what_was_created_after_a_pass_is_added_and_what_has_ended_is_removed() {
        let mut sleeper = std::process::Command::new("sleep");
        sleeper.arg("1000");
        let mut first = sleeper.spawn().expect("it is executed");
        let mut all = living().expect("/proc can be read");
        assert!(all.contains_key(&first.id()));
        let mut second = sleeper.spawn().expect("it is executed");
        assert!(!all.contains_key(&second.id()));
        first.kill().expect("it is our child");
        first.wait().expect("it is our child");
        catch_up(&mut all).expect("/proc can be read");
        let own = std::process::id();
        let found = [first.id(), second.id(), own].map(|pid| all.contains_key(&pid));
        second.kill().expect("it is our child");
        second.wait().expect("it is our child");
        assert_eq!(found, [false, true, true]);
    }

    #[test]
    fn a_search_for_who_has_a_file_open_has_an_end() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let paths = [file.path().to_owned()];
        let found = |descriptors| holders_among(&paths, 9, descriptors).expect("/proc can be read");
        let own = std::process::id();
        assert!(found(usize::MAX).iter().any(|(pid, _)| *pid == own));
        assert_eq!(found(0), []);
    }

    #[test]
    fn names_with_brackets_and_blanks_are_passed_over() {
        let rest = "S 7 42 43 0 -1 4194560 1 2 3 4 50 6 7 8 20 0 1 0 1234 9999 88 184";
        for name in ["sh", "a b", "x) R 1 (y", ") (", ""] {
            let text = format!("42 ({name}) {rest}\n");
            let stat = Stat::parse(text.as_bytes()).expect("the format is as documented");
            assert_eq!((stat.state, stat.parent), (b'S', 7), "{name}");
            assert_eq!((stat.group, stat.session), (42, 43));
            assert_eq!((stat.start_ticks, stat.cpu_ticks), (1234, 56));
            assert_eq!((stat.memory_pages, stat.exit_code), (88, 0));
        }
        let zeroes = "0 ".repeat(26);
        let text = format!("42 (sh) {rest} {zeroes}1792\n");
        let stat = Stat::parse(text.as_bytes()).expect("the format is as documented");
        assert_eq!(stat.exit_code, 7 << 8);
        for broken in ["", "42", "42 (sh", "42 (sh)", "42 (sh) S 1 2"] {
            assert_eq!(Stat::parse(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn a_process_lives_while_any_of_its_threads_does() {
        for (threads, is_zombie) in [(0, true), (1, true), (2, false), (9, false)] {
            let zeroes = "0 ".repeat(15);
            let text = format!("42 (sh) Z 7 {zeroes}{threads} 0 1234 0 0\n");
            let stat = Stat::parse(text.as_bytes()).expect("the format is as documented");
            assert_eq!(stat.threads, threads);
            assert_eq!(stat.is_zombie(), is_zombie, "{threads} threads");
        }
    }

    #[test]
    fn a_variable_comes_with_the_users_of_its_process() {
        let name = "SEXTON_TEST_OF_VARIABLES";
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("1000").env(name, "a=b").spawn().expect("it runs");
        let found = loop {
            // Until the program is executed, the child has our environment.
            if let Some(found) = variable(child.id(), name).expect("it is readable") {
                break found;
            }
            std::thread::yield_now();
        };
        let own = rustix::process::getuid().as_raw();
        assert!(found.is_of(own) && !found.is_of(own + 1));
        assert_eq!(found.value.as_bytes(), b"a=b");
        assert_eq!(variable(child.id(), "SEXTON").expect("it is readable"), None);
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
        let status = "Name:\tsu\nUid:\t1000\t0\t0\t0\nGid:\t1\t1\t1\t1\n";
        assert_eq!(users_in(status), Some([1000, 0, 0]));
        assert_eq!(users_in("Uid:\t1\n"), None);
    }

    #[test]
    fn a_program_that_gained_rights_is_recognised() {
        let vector = |words: &[u64], bytes: usize| -> Vec<u8> {
            let each = words.iter().map(|word| word.to_ne_bytes());
            each.flat_map(|word| word.into_iter().take(bytes)).collect()
        };
        for bytes in [4, 8] {
            assert!(is_secure(&vector(&[33, 1, 23, 1, 0, 0], bytes)), "{bytes}");
            assert!(!is_secure(&vector(&[33, 23, 23, 0, 0, 0], bytes)), "{bytes}");
        }
        assert!(!is_secure(&[]));
    }

    #[test]
    fn lists_end_with_or_without_a_nul() {
        let of = |bytes: &[u8]| -> Vec<Vec<u8>> {
            split(bytes).iter().map(|part| part.as_bytes().to_vec()).collect()
        };
        assert_eq!(of(b"a\0b\0"), [b"a", b"b"]);
        assert_eq!(of(b"a\0\0"), [b"a".to_vec(), Vec::new()]);
        assert_eq!(of(b"a"), [b"a"]);
        assert!(of(b"").is_empty());
    }

    #[test]
    fn our_own_process_is_read() {
        let own = std::process::id();
        assert!(pids().expect("the file can be read").contains(&own));
        let counted = stat(own).expect("the file can be read").expect("this process exists");
        assert!(!counted.is_zombie() && counted.memory_bytes() > 0);
        assert!(
            !cmdline(own).expect("the file can be read").expect("this process exists").is_empty()
        );
        assert!(environ(own).expect("the file can be read").is_some());
        assert!(cwd(own).expect("the file can be read").is_some());
        assert_eq!(stat(u32::MAX).expect("the file can be read"), None);
    }
}
