//! Looks up the users and groups of processes in `/etc/passwd` and `/etc/group`. A process whose user or group cannot be determined is not
//! started.

use crate::actors::process::{Failure, Spec, Step};
use std::fs;
use std::path::Path;

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The user and groups that a process will run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    /// The ids of the user, the group and the supplementary groups.
    pub(super) ids: (u32, u32, Vec<u32>),
    /// The environment variables that describe the user; empty if the spec names no user, or an id that is not in `/etc/passwd`.
    pub(super) env: Vec<(&'static str, Vec<u8>)>,
}

/// A line of `/etc/passwd`.
struct User<'a> {
    name: &'a str,
    id: u32,
    group: u32,
    home: &'a str,
    shell: &'a str,
}

/// A line of `/etc/group`.
struct Group<'a> {
    name: &'a str,
    id: u32,
    members: Vec<&'a str>,
}

/// Returns the account that a process will run as; `None` if its spec names neither user nor group. A name that cannot be found is an
/// error. A user id that cannot be found is an error only if no group is given.
pub(super) fn of(spec: &Spec) -> Result<Option<Account>, Failure> {
    if spec.user.is_none() && spec.group.is_none() {
        return Ok(None);
    }
    let (users, groups) = (read(Path::new(USERS))?, read(Path::new(GROUPS))?);
    let own = rustix::process::geteuid().as_raw();
    find((&users, &groups), (spec.user.as_deref(), spec.group.as_deref()), own)
        .map(Some)
        .map_err(failed)
}

/// Returns the id of a user, given by name or number.
pub(super) fn user(name: &str) -> Result<u32, Failure> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let users = read(Path::new(USERS))?;
    let found = users.lines().filter_map(user_of).find(|it| it.name == name);
    let id = found.map(|it| it.id);
    id.ok_or_else(|| failed(format!("{USERS} has no user {name}")))
}

fn failed(words: String) -> Failure {
    Failure { step: Step::User, errno: 0, about: Some(words) }
}

fn read(path: &Path) -> Result<String, Failure> {
    let bytes = fs::read(path)
        .map_err(|error| crate::ports::process::files::failure(Step::User, &error, path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn find(
    (users, groups): (&str, &str),
    (user, group): (Option<&str>, Option<&str>),
    own: u32,
) -> Result<Account, String> {
    let groups: Vec<Group<'_>> = groups.lines().filter_map(group_of).collect();
    let number = user.map_or(Some(own), |name| name.parse::<u32>().ok());
    let mut all = users.lines().filter_map(user_of);
    let found = match (user, number) {
        (Some(name), None) => {
            let found = all.find(|it| it.name == name);
            Some(found.ok_or(format!("{USERS} has no user {name}"))?)
        }
        (_, number) => all.find(|it| Some(it.id) == number),
    };
    let group = match group {
        Some(name) => {
            let by_name = groups.iter().find(|it| it.name == name).map(|it| it.id);
            let id = by_name.or_else(|| name.parse().ok());
            Some(id.ok_or(format!("{GROUPS} has no group {name}"))?)
        }
        None => found.as_ref().map(|it| it.group),
    };
    let name = user.unwrap_or_default();
    let missing = || format!("{USERS} has no user {name}, so its group must be given too");
    let group = group.ok_or_else(missing)?;
    let id = found.as_ref().map(|it| it.id).or(number);
    let id = id.ok_or_else(missing)?;
    let is_member = |it: &&Group<'_>| {
        let user = found.as_ref();
        user.is_some_and(|user| it.members.contains(&user.name))
    };
    let mut further: Vec<u32> = groups.iter().filter(is_member).map(|it| it.id).collect();
    further.push(group);
    further.sort_unstable();
    further.dedup();
    let env = found.filter(|_| user.is_some()).map(|user| {
        let text = |text: &str| text.as_bytes().to_vec();
        vec![
            ("HOME", text(user.home)),
            ("LOGNAME", text(user.name)),
            ("SHELL", text(user.shell)),
            ("USER", text(user.name)),
        ]
    });
    Ok(Account { ids: (id, group, further), env: env.unwrap_or_default() })
}

fn user_of(line: &str) -> Option<User<'_>> {
    let mut fields = line.split(':');
    let (name, _password) = (fields.next()?, fields.next()?);
    let (id, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let (_about, home, shell) = (fields.next()?, fields.next()?, fields.next()?);
    Some(User { name, id, group, home, shell })
}

fn group_of(line: &str) -> Option<Group<'_>> {
    let mut fields = line.split(':');
    let (name, _password) = (fields.next()?, fields.next()?);
    let id = fields.next()?.parse().ok()?;
    let members = fields.next().unwrap_or_default();
    let members = members.split(',').filter(|name| !name.is_empty()).collect();
    Some(Group { name, id, members })
}

#[cfg(test)]
mod tests {
    use super::find;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\nbroken\n\
                         www:x:33:34:web:/var/www:/usr/sbin/nologin\n";
    const GROUPS: &str = "root:x:0:\nwww:x:34:\nssl:x:50:backup,www\nstaff:x:60:wwwx\n";

    fn ids(user: Option<&str>, group: Option<&str>) -> Result<(u32, u32, Vec<u32>), String> {
        find((USERS, GROUPS), (user, group), 0).map(|account| account.ids)
    }

    #[test]
    fn a_user_has_its_group_and_those_that_it_is_a_member_of() {
        let www = (33, 34, vec![34, 50]);
        assert_eq!(ids(Some("www"), None), Ok(www.clone()));
        assert_eq!(ids(Some("33"), None), Ok(www));
        assert_eq!(ids(Some("www"), Some("staff")), Ok((33, 60, vec![50, 60])));
        assert_eq!(ids(None, Some("www")), Ok((0, 34, vec![34])));
        assert_eq!(ids(Some("77"), Some("78")), Ok((77, 78, vec![78])));
    }

    #[test]
    fn who_is_not_there_is_nobody() {
        let words = |user, group| ids(user, group).expect_err("the user or group does not exist");
        assert_eq!(words(Some("ww"), None), "/etc/passwd has no user ww");
        assert_eq!(words(Some("www"), Some("x")), "/etc/group has no group x");
        assert!(words(Some("77"), None).contains("its group must be given"));
    }
}
