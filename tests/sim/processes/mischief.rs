//! Random events of processes, keepers and the kernel, and the end of all faults.

use super::kernel::{Kernel, OTHER};
use super::machine::Machine;
use super::port::{EventCounts, Port};
use crate::chance::Chance;
use sexton::actors::process::{Message, Notice};
use sexton::ids::ProcessId;

/// An event on the machine.
#[derive(Clone, Copy)]
enum Turn {
    End,
    Fork,
    Chain,
    Defy,
    Headless,
    Imitate,
    StrangerBegins,
    StrangerEnds,
    KeeperDies,
    DescriptorsRunOut,
    KernelSaysLess,
    Groups,
    Says,
    ServiceEnds,
    Refuses,
    NoKeeper,
    AllWell,
}

const TURNS: &[(u64, Turn)] = &[
    (28, Turn::End),
    (26, Turn::Fork),
    (20, Turn::Chain),
    (30, Turn::Defy),
    (12, Turn::Headless),
    (8, Turn::Imitate),
    (12, Turn::StrangerBegins),
    (9, Turn::StrangerEnds),
    (3, Turn::KeeperDies),
    (5, Turn::DescriptorsRunOut),
    (2, Turn::KernelSaysLess),
    (3, Turn::Groups),
    (60, Turn::Says),
    (45, Turn::ServiceEnds),
    (3, Turn::Refuses),
    (2, Turn::NoKeeper),
    (6, Turn::AllWell),
];

impl Port {
    /// Causes a random event.
    pub(crate) fn mischief(&self, chance: &mut Chance) {
        let mut room = self.room();
        let mut met = room.met;
        match chance.weighted(TURNS) {
            Turn::Says => {
                if let Some(said) = say(room.machine(), chance) {
                    met.notices += 1;
                    room.receive_message(said);
                }
            }
            Turn::ServiceEnds => end_service(room.machine(), chance),
            other @ (Turn::End
            | Turn::Fork
            | Turn::Chain
            | Turn::Defy
            | Turn::Headless
            | Turn::Imitate
            | Turn::StrangerBegins
            | Turn::StrangerEnds
            | Turn::KeeperDies
            | Turn::DescriptorsRunOut
            | Turn::KernelSaysLess
            | Turn::Groups
            | Turn::Refuses
            | Turn::NoKeeper
            | Turn::AllWell) => turn(other, room.kernel(), &mut met, chance),
        }
        room.met = met;
    }

    /// Sets whether processes that survive every signal still do so after `make_well`.
    pub(crate) fn keep_unkillable(&self, keeps: bool) {
        self.room().keeps_unkillable = keeps;
    }

    /// Ends all faults: nothing fails any more, and processes that survived every signal can be ended unless they are
    /// kept.
    pub(crate) fn make_well(&self) {
        let mut room = self.room();
        let keeps = room.keeps_unkillable;
        let kernel = room.kernel();
        nothing_fails(kernel);
        if !keeps {
            all_can_end(kernel);
        }
        // The port cannot attribute a hidden process to a tree, so the state of trees stays in doubt until it ends.
        let hidden = kernel.processes.iter().filter(|(_, it)| it.hidden);
        let hidden: Vec<u32> = hidden.map(|(pid, _)| *pid).collect();
        for pid in hidden {
            kernel.end(pid, 0);
        }
    }
}

fn nothing_fails(kernel: &mut Kernel) {
    (kernel.exhausted, kernel.no_keeper, kernel.secretive) = (false, false, false);
    (kernel.refuses, kernel.early_wakes) = (None, 0);
    for process in kernel.processes.values_mut() {
        process.fleeting = false;
    }
}

fn all_can_end(kernel: &mut Kernel) {
    for process in kernel.processes.values_mut() {
        process.unkillable = false;
    }
}

/// Returns the leaders of services, with their PIDs.
fn of_services(machine: &Machine) -> Vec<(u32, ProcessId)> {
    let leaders = machine.kernel.processes.iter();
    let leaders = leaders.filter_map(|(pid, it)| Some((*pid, it.leads?)));
    let leaders = leaders.filter(|(_, id)| machine.places.contains_key(id));
    leaders.collect()
}

fn end_service(machine: &mut Machine, chance: &mut Chance) {
    let leaders = of_services(machine);
    if !leaders.is_empty() {
        let (pid, _) = *chance.pick(&leaders);
        let status = *chance.pick(&[0, 1 << 8, 3 << 8, 9, 15]);
        machine.kernel.end(pid, status);
    }
}

/// Returns a notice from a service's process, or that it missed the deadline for one. Returns `None` if no service runs.
fn say(machine: &mut Machine, chance: &mut Chance) -> Option<Message> {
    let mut leaders = of_services(machine);
    if chance.per_mille(700) {
        leaders.retain(|(_, id)| !machine.ready.contains(id));
    }
    if leaders.is_empty() {
        return None;
    }
    let (_, id) = *chance.pick(&leaders);
    let notice = match chance.weighted(&[(12, 0), (1, 1), (2, 2), (1, 3)]) {
        0 => {
            machine.ready.insert(id);
            Notice::Ready
        }
        1 => Notice::Leaving,
        2 => Notice::Words("busy".to_owned()),
        _ => Notice::Silent,
    };
    Some(Message::Notice { id, notice })
}

fn turn(turn: Turn, kernel: &mut Kernel, met: &mut EventCounts, chance: &mut Chance) {
    match turn {
        Turn::Says | Turn::ServiceEnds => unreachable!("these are not events of the kernel"),
        Turn::End => {
            let status = *chance.pick(&[0, 0, 1 << 8, 3 << 8, 9, 15]);
            end_one(kernel, chance, (false, status));
        }
        Turn::Fork => fork(kernel, met, chance),
        Turn::Chain => chain(kernel, met, chance),
        Turn::Defy => {
            let pids: Vec<u32> = kernel.processes.keys().copied().collect();
            if pids.is_empty() {
                return;
            }
            let pid = *chance.pick(&pids);
            if let Some(process) = kernel.processes.get_mut(&pid) {
                process.ignores_term = true;
                process.unkillable = chance.per_mille(500);
            }
        }
        Turn::Headless => {
            let mut some: Vec<_> = kernel.processes.values_mut().collect();
            if !some.is_empty() {
                let at = chance.index(some.len());
                if let Some(process) = some.get_mut(at) {
                    met.headless += u64::from(!process.headless);
                    process.headless = true;
                }
            }
        }
        Turn::Imitate => imitate(kernel, met, chance),
        Turn::StrangerBegins => {
            if chance.per_mille(500) {
                met.pids_reused += u64::from(kernel.reuse());
            } else {
                kernel.spawn(None);
            }
        }
        Turn::StrangerEnds => end_one(kernel, chance, (true, 0)),
        Turn::KeeperDies => {
            met.keepers_killed += u64::from(kernel.keeper_lives());
            kernel.kill_keeper();
        }
        Turn::DescriptorsRunOut => {
            met.descriptors_out += 1;
            kernel.exhausted = true;
        }
        Turn::KernelSaysLess => {
            kernel.secretive = chance.per_mille(500);
            kernel.early_wakes = u32::try_from(chance.below(12)).expect("a small number");
        }
        Turn::Groups => kernel.contains = chance.per_mille(500),
        Turn::Refuses => kernel.refuses = Some(*chance.pick(&[2, 11, 13])),
        Turn::NoKeeper => kernel.no_keeper = true,
        Turn::AllWell => {
            nothing_fails(kernel);
            all_can_end(kernel);
        }
    }
}

fn end_one(kernel: &mut Kernel, chance: &mut Chance, (stranger, status): (bool, u32)) {
    let some = kernel.processes.iter();
    let some = some.filter(|(_, it)| it.tree.is_none() == stranger);
    let some: Vec<u32> = some.map(|(pid, _)| *pid).collect();
    if !some.is_empty() {
        kernel.end(*chance.pick(&some), status);
    }
}

/// Starts a process of another user, with the id of a tree in its environment.
fn imitate(kernel: &mut Kernel, met: &mut EventCounts, chance: &mut Chance) {
    let trees: Vec<_> = kernel.processes.values().filter_map(|it| it.tree).collect();
    if trees.is_empty() || kernel.processes.len() > 24 {
        return;
    }
    let named = Some(*chance.pick(&trees));
    if let Some(pid) = kernel.spawn(None)
        && let Some(process) = kernel.processes.get_mut(&pid)
    {
        (process.user, process.named) = (OTHER, named);
        met.imitations += 1;
    }
}

/// Makes a launched process leave an orphan outside the control group of its tree, which keeps forking.
fn chain(kernel: &mut Kernel, met: &mut EventCounts, chance: &mut Chance) {
    let leaders = kernel.processes.values().filter_map(|it| it.leads);
    let leaders: Vec<ProcessId> = leaders.collect();
    if leaders.is_empty() || kernel.processes.len() > 24 {
        return;
    }
    let tree = *chance.pick(&leaders);
    let Some(pid) = kernel.spawn(Some(tree)) else {
        return;
    };
    if let Some(process) = kernel.processes.get_mut(&pid) {
        process.ignores_term = chance.per_mille(500);
        process.fleeting = true;
    }
    met.chains += 1;
    kernel.detach(pid);
}

/// Makes a launched process start another one. That one may leave the session, so that it cannot be attributed, leave the
/// control group of its tree, change its user, or, within the control group of its tree, carry the id of another tree.
fn fork(kernel: &mut Kernel, met: &mut EventCounts, chance: &mut Chance) {
    let some = kernel.processes.iter();
    let some = some.filter(|(_, it)| it.tree.is_some() && !it.fleeting);
    let some: Vec<_> = some.map(|(pid, it)| (*pid, it.clone())).collect();
    if some.is_empty() || kernel.processes.len() > 24 {
        return;
    }
    let (parent, before) = chance.pick(&some).clone();
    let (_, other) = chance.pick(&some).clone();
    let Some(pid) = kernel.spawn(before.tree) else {
        return;
    };
    met.forks += 1;
    let is_grouped = before.tree.is_some_and(|tree| kernel.has_group(tree)) && !before.moved;
    if let Some(process) = kernel.processes.get_mut(&pid) {
        process.parent = parent;
        (process.user, process.named) = (before.user, before.named);
        process.ignores_term = chance.per_mille(500);
        process.hidden = before.hidden || chance.per_mille(150);
        process.moved = before.moved;
        if is_grouped {
            match chance.below(8) {
                0 => {
                    process.named = other.tree;
                    met.foreign_ids += u64::from(other.tree != before.tree);
                }
                // A process that carries a foreign id and left its group could not be told from one of the other tree.
                1 if process.named == process.tree => {
                    process.moved = true;
                    met.moves += 1;
                }
                2 => process.user = OTHER,
                _ => {}
            }
        }
        met.escapes += u64::from(process.hidden && !before.hidden);
    }
}
