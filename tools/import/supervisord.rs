//! Converts a whole configuration of supervisord: finds the sections that become services, and reports on the others.

use crate::import::document::{Document, directory};
use crate::import::expansion::{Names, expand};
use crate::import::ini::{Note, Section};
use crate::import::keys;
use crate::import::program::{Findings, Service, Surroundings, boolean, services};
use crate::report::Failure;
use crate::words;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The maximum number of programs in a group.
const PROGRAMS_MAX: usize = 1024;

/// The result of an import.
pub(super) struct Imported {
    pub(super) services: Vec<Service>,
    /// Notes on settings that are not carried over, ordered by file and line.
    pub(super) notes: Vec<Note>,
}

/// Converts a configuration. `variables` is the environment that supervisord is started with; `user` holds the names and user ID of the
/// importing user, or is `None` for root. Fails if supervisord would not accept the configuration, or if no service results from it.
pub(super) fn import(
    path: &Path,
    host: &str,
    variables: BTreeMap<String, String>,
    user: Option<Vec<String>>,
) -> Result<Imported, Failure> {
    let document = Document::read(path, host, &variables)?;
    let mut findings = Findings { notes: document.notes, problems: document.parsed.problems };
    findings.notes.extend(document.parsed.repeated);
    let sections = document.parsed.sections;
    let mut around = surroundings(&sections, host, variables, &mut findings);
    around.user = user;
    let mut all = Vec::new();
    for section in &sections {
        match section.name.split_once(':') {
            Some(("program", _)) => all.extend(services(section, &around, &mut findings)),
            Some(("group", _)) => {}
            None if section.name == "supervisord" => {}
            Some(_) | None => {
                let words = format!("[{}]: {}", section.name, keys::of_section(&section.name));
                findings.notes.push(Note::new(&section.place, words));
            }
        }
    }
    // Order the files as they were read, which is the order of their first sections.
    let mut files: Vec<&Path> = vec![path];
    for section in &sections {
        if !files.contains(&section.place.file.as_ref()) {
            files.push(&section.place.file);
        }
    }
    let place = |note: &Note| {
        let file = files.iter().position(|it| **it == *note.place.file);
        (file, note.place.line)
    };
    if !findings.problems.is_empty() {
        findings.problems.sort_by_key(place);
        let found = findings.problems.iter().map(ToString::to_string);
        let words = format!("supervisord would not accept {}", path.display());
        return Err(Failure::usage(words).listing(found.collect()));
    }
    if all.is_empty() {
        let words = format!("{} has no [program:NAME]", path.display());
        return Err(Failure::found(words).help(
            "name the main file, whose [include] lists the others, or a file with a [program:NAME] section",
        ));
    }
    name_apart(&mut all, &mut findings);
    let mut notes = findings.notes;
    notes.sort_by_key(place);
    Ok(Imported { services: all, notes })
}

/// Collects the settings of `[supervisord]` and the groups of programs.
fn surroundings<'a>(
    sections: &[Section],
    host: &'a str,
    variables: BTreeMap<String, String>,
    findings: &mut Findings,
) -> Surroundings<'a> {
    let mut around = Surroundings {
        host,
        variables,
        env: Vec::new(),
        dir: None,
        user: None,
        groups: BTreeMap::new(),
    };
    for section in sections {
        if section.name == "supervisord" {
            supervisord(section, &mut around, findings);
        } else if let Some(("group", name)) = section.name.split_once(':') {
            group(section, name.trim(), sections, &mut around, findings);
        }
    }
    around
}

fn supervisord(section: &Section, around: &mut Surroundings<'_>, findings: &mut Findings) {
    let is_daemon = section.get("nodaemon").is_none_or(|it| boolean(&it.text) != Ok(true));
    for (key, value) in &section.keys {
        let names = Names {
            texts: vec![("host_node_name", around.host)],
            numbers: Vec::new(),
            own: &[],
            variables: &around.variables,
        };
        let here = directory(&value.place.file);
        let read = || expand(&value.text, &here.to_string_lossy(), &names);
        let wrong = match key.as_str() {
            "environment" => read().and_then(|text| words::variables(&text)).map(|env| {
                around.variables.extend(env.iter().cloned());
                around.env = env;
            }),
            "directory" if is_daemon => read().map(|dir| around.dir = Some(dir)),
            "directory" => {
                let words = "it has no effect with nodaemon; services without a directory run in the directory of the new file";
                findings.notes.push(about(section, key, words));
                Ok(())
            }
            other => {
                let words = keys::of_supervisord(other);
                findings.notes.push(about(section, other, words));
                Ok(())
            }
        };
        if let Err(words) = wrong {
            findings.problems.push(about(section, key, &words));
        }
    }
}

fn group(
    section: &Section,
    name: &str,
    sections: &[Section],
    around: &mut Surroundings<'_>,
    findings: &mut Findings,
) {
    let programs = section.get("programs").map_or("", |it| it.text.as_str());
    let programs = programs.split(',').map(str::trim);
    let programs: Vec<&str> = programs.filter(|it| !it.is_empty()).collect();
    if programs.len() > PROGRAMS_MAX {
        let words = format!("there are more than {PROGRAMS_MAX} programs");
        findings.problems.push(about(section, "programs", &words));
        return;
    }
    for program in &programs {
        let of = |kind: &str| format!("{kind}:{program}");
        let has = |kind: &str| sections.iter().any(|it| it.name == of(kind));
        if !has("program") && !has("fcgi-program") {
            let words = format!("there is no [program:{program}]");
            findings.problems.push(about(section, "programs", &words));
        }
        around.groups.insert((*program).to_owned(), name.to_owned());
    }
    let names = programs.join(" ");
    let words = format!(
        "there are no groups; name the services instead, as in `sexton service restart {names}`"
    );
    findings.notes.push(about(section, "programs", &words));
    for (key, _) in section.keys.iter().filter(|(key, _)| key != "programs") {
        findings.notes.push(about(section, key, keys::of_program(key)));
    }
}

fn about(section: &Section, key: &str, words: &str) -> Note {
    let place = section.get(key).map_or(&section.place, |it| &it.place);
    Note::new(place, format!("[{}] {key}: {words}", section.name))
}

/// Gives each service a valid and unique name, and adds a note on each name that is changed.
fn name_apart(services: &mut [Service], findings: &mut Findings) {
    let mut taken = BTreeSet::new();
    for service in services {
        let may_be = |letter: char| letter.is_ascii_alphanumeric() || "-+;.$_()".contains(letter);
        let mut name: String = service
            .name
            .chars()
            .map(|letter| if may_be(letter) { letter } else { '_' })
            .take(150)
            .collect();
        if name.starts_with(['-', '.']) || name.is_empty() {
            name.insert(0, '_');
        }
        let base = name.clone();
        let mut number = 2;
        while taken.contains(&name) {
            name = format!("{base}_{number}");
            number += 1;
        }
        if name != service.name {
            let words = format!(
                "{}: this name is already taken or not valid for a service; it becomes {name}",
                service.name
            );
            findings.notes.push(Note::new(&service.place, words));
            service.name.clone_from(&name);
        }
        taken.insert(name);
    }
}
