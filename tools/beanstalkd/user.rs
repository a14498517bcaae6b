//! Permanently switches the process to another user. This must happen while the process has only one thread, since only the calling
//! thread is switched.

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

/// The exit status of beanstalkd if it cannot look up users.
pub(crate) const NO_LIST: u8 = 32;
/// The exit status of beanstalkd if the user does not exist.
pub(crate) const NO_SUCH_USER: u8 = 33;
/// The exit status of beanstalkd if it is not allowed to switch to the user.
pub(crate) const NOT_ALLOWED: u8 = 34;

/// Switches to the user `name` and its primary group, and drops all supplementary groups. The error is an exit status and a message.
pub(crate) fn become_user(name: &str) -> Result<(), (u8, String)> {
    let users = std::fs::read_to_string("/etc/passwd")
        .map_err(|error| (NO_LIST, format!("failed to read /etc/passwd: {error}")))?;
    let (user, group) =
        find(&users, name).ok_or_else(|| (NO_SUCH_USER, format!("there is no user {name}")))?;
    let change = || {
        set_thread_groups(&[])?;
        set_thread_gid(Gid::from_raw(group))?;
        set_thread_uid(Uid::from_raw(user))
    };
    change().map_err(|error| (NOT_ALLOWED, format!("failed to switch to user {name}: {error}")))
}

/// Finds the user and group ids of `name` in the text of `/etc/passwd`. Returns `None` if it has no valid line for `name`.
fn find(users: &str, name: &str) -> Option<(u32, u32)> {
    let line = users.lines().find_map(|line| {
        let (found, rest) = line.split_once(':')?;
        (found == name).then_some(rest)
    })?;
    let mut fields = line.split(':').skip(1);
    let mut number = || fields.next()?.parse().ok();
    Some((number()?, number()?))
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\nhalf:x:1\n";
        assert_eq!(find(users, "nobody"), Some((65534, 65533)));
        for absent in ["no", "nobody:x", "half", ""] {
            assert_eq!(find(users, absent), None, "{absent}");
        }
    }
}
