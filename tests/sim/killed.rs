//! Kills the process in each disk call of a checkpoint in turn, and limits the disk space that a hundred crashes may
//! leave in use.

use crate::coverage::Coverage;
use crate::run::Run;
use crate::setting::{Kind, Policy, Power, Setting};
use crate::violation::Violation;
use sexton::persist::journal::Sizes;

/// Segments are so small that a checkpoint removes several of them at once.
const SIZES: Sizes = Sizes { first_bytes: 2048, max_bytes: 2048 };

/// Returns the setting of a world without random faults.
pub(crate) fn calm(seed: u64, power: Power) -> Setting {
    Setting {
        policy: Policy::Always,
        kind: Kind::Plain,
        sizes: SIZES,
        crashes: 0,
        faults: 0,
        panics: 0,
        power,
        checkpoints: 1,
        slice_bytes: 200,
        ..Setting::of(seed, 0)
    }
}

/// Kills the process in disk call number `call` of its last checkpoint, then lets everything settle. Returns whether the
/// checkpoint made that many calls.
fn killed_in(
    call: u64,
    checkpoints: u32,
    setting: &Setting,
) -> Result<(bool, Coverage), Violation> {
    let mut run = Run::new(setting, false);
    for _ in 1..checkpoints {
        run.go(150)?;
        run.take_whole_snapshot()?;
    }
    run.go(150)?;
    run.disk.die_after(call);
    run.take_whole_snapshot()?;
    let died = run.node.is_none();
    run.finish()?;
    Ok((died, run.coverage))
}

#[test]
fn a_checkpoint_that_is_killed_in_any_of_its_calls_takes_nothing_along() {
    crate::campaign::hush();
    let mut met = Coverage::default();
    let sure = [Power::Stays, Power::TakesAll, Power::TakesNothing].map(|power| (power, 0));
    let by_chance = (0..6).map(|seed| (Power::ByChance, seed));
    for (power, seed) in sure.into_iter().chain(by_chance) {
        for checkpoints in [1, 2, 4] {
            for call in 0.. {
                let went = killed_in(call, checkpoints, &calm(seed, power));
                let (died, coverage) = went.unwrap_or_else(|violation| {
                    panic!(
                        "checkpoint {checkpoints} of {seed} killed in call {call}, {power:?}: {violation}"
                    )
                });
                met.add(&coverage);
                if !died {
                    break;
                }
            }
        }
    }
    let deaths = [
        met.deaths_opening_a_slot,
        met.deaths_putting_pages,
        met.deaths_closing_a_slot,
        met.deaths_sealing_a_slot,
    ];
    assert!(deaths.iter().all(|deaths| *deaths >= 20), "{deaths:?}");
    // A kill between two removals in the wrong order would leave a gap in the log, so the test needs checkpoints that
    // remove several segments.
    assert!(met.segments_trimmed_together >= 20);
}

#[test]
fn a_hundred_crashes_leave_no_file_behind() {
    crate::campaign::hush();
    let setting = calm(3, Power::ByChance);
    let mut run = Run::new(&setting, false);
    let (mut files, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        let mut went_well = || -> Result<(), Violation> {
            run.go(60)?;
            run.take_whole_snapshot()?;
            run.go(60)?;
            let call = run.chance.below(60);
            run.disk.die_after(call);
            while run.node.is_some() {
                run.take_whole_snapshot()?;
            }
            run.start()
        };
        went_well().unwrap_or_else(|violation| panic!("{violation}"));
        let left = run.disk.files();
        files.push(left.len() as u64);
        bytes.push(left.values().sum::<u64>());
    }
    let most = |of: &[u64]| of.iter().copied().max().unwrap_or_default();
    // A crash may leave an incomplete slot, a partly written seal and a partly written segment, but never two of each.
    // The number of files of a complete slot varies with its content.
    let (first, second) = (most(&files[..50]), most(&files[50..]));
    // Locks that are bound to processes and have no TTL, and records of processes, may accumulate over time.
    assert!(second <= first + first / 2, "{files:?}");
    let (first, second) = (most(&bytes[..50]), most(&bytes[50..]));
    // Allow half as much again, since the size varies with the content of the queues. `check_files` below checks exactly
    // that no file is left over.
    assert!(second <= first + first / 2, "{bytes:?}");
    run.check_files().unwrap_or_else(|violation| panic!("{violation}"));
}
