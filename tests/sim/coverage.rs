//! Counts of what a campaign encountered, with minimums, so that a simulation which no longer reaches something fails.

use crate::each;
use std::collections::BTreeMap;
use std::fmt;

/// The minimum number of entries of an actor. With fewer, its clients would send hardly any requests.
const ENTRIES: u64 = 1_000;

macro_rules! coverage {
    ($($name:ident >= $floor:expr,)*) => {
        /// How often each event happened.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Coverage {
            $(pub(crate) $name: u64,)*
            /// Entries of each actor.
            pub(crate) entries: BTreeMap<&'static str, u64>,
        }

        impl Coverage {
            /// Adds the counts of another run.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                for (actor, entries) in &other.entries {
                    *self.entries.entry(actor).or_default() += entries;
                }
            }

            /// Returns the names of counts that are below the minimum for a campaign of this number of seeds. The
            /// minimums in this file are for 2,000 seeds of 1,200 steps.
            pub(crate) fn below_floor(&self, seeds: u64) -> Vec<String> {
                let floor = ENTRIES * seeds / 2000;
                let entries = |actor: &&str| self.entries.get(actor).copied().unwrap_or(0);
                let idle = each::names().into_iter().filter(|actor| entries(actor) < floor);
                let mut below: Vec<String> =
                    idle.map(|actor| format!("entries of {actor} {} < {floor}", entries(&actor))).collect();
                $(
                    let floor: u64 = $floor * seeds / 2000;
                    if self.$name < floor {
                        below.push(format!("{} {} < {floor}", stringify!($name), self.$name));
                    }
                )*
                below
            }
        }

        impl fmt::Display for Coverage {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, "{:>12} {}", self.$name, stringify!($name).replace('_', " "))?;)*
                for (actor, entries) in &self.entries {
                    writeln!(f, "{entries:>12} entries of {actor}")?;
                }
                Ok(())
            }
        }
    };
}

coverage! {
    steps >= 2_000_000,
    calls_answered >= 100_000,
    connections_lost >= 1_000,
    grants >= 20_000,
    // The minimum was 20,000 when there were only locks. Now part of the steps goes to queues and counters, and a
    // campaign reaches about 19,000.
    queued >= 10_000,
    renewals >= 20_000,
    // A campaign reaches about 8,800: part of the requests are acquires, and part of the steps goes to leases.
    releases >= 8_000,
    parts >= 200,
    parts_interrupted >= 1,
    expiries >= 10_000,
    // The minimum was 10,000 when there were only locks. A promotion needs a contender. A campaign reaches about 4,900
    // now that part of the steps goes to tasks.
    promotions >= 4_500,
    passed_over >= 300,
    drains >= 100,
    owners_gone >= 100,
    fenced >= 20,
    passes_begun >= 1_000,
    // A campaign reaches about 270 now that part of the steps goes to services.
    passes_whole >= 200,
    passes_broken >= 300,
    passes_waited_for >= 500,
    passes_started >= 100,
    // Not reached: schedules are rare, and so are steps of the clock that are long enough. The model test of leases has it.
    dates_missed >= 0,
    passes_relaunched >= 20,
    passes_stopped >= 50,
    passes_owed >= 50,
    processes_watched >= 100,
    processes_gone >= 100,
    trees_fenced >= 20,
    reads_checked >= 20_000,
    refusals_checked >= 10_000,
    counter_changes >= 10_000,
    counter_lapses >= 1_000,
    tells >= 1_000,
    tells_lost >= 0,
    tells_refused >= 20,
    actions_done >= 1_000,
    actions_refused >= 200,
    actions_restated >= 50,
    actions_repeated >= 100,
    actions_forgotten >= 100,
    jobs_put >= 20_000,
    batches >= 3_000,
    roots_registered >= 800,
    claims >= 15_000,
    claims_waited_for >= 1_500,
    touches >= 400,
    deletes >= 2_500,
    jobs_released >= 450,
    // A campaign reaches about 600 now that part of the steps goes to services.
    burials >= 500,
    // A campaign reaches about 480 now that one queue in seven has a throttle.
    failures >= 400,
    kicks >= 700,
    pauses >= 2_000,
    flushes >= 300,
    // A campaign reaches about 580 now that part of the steps goes to tasks.
    departures >= 500,
    claims_ended_with_process >= 100,
    claims_attached >= 20,
    jobs_quarantined >= 5,
    claims_fenced >= 10,
    claims_throttled >= 300,
    jobs_deferred >= 100,
    jobs_cancelled >= 100,
    results_kept >= 100,
    keys_forgotten >= 100,
    reports >= 100,
    delays_over >= 8_000,
    claims_over >= 5_000,
    jobs_abandoned >= 300,
    jobs_pruned >= 1_000,
    processes_launched >= 5_000,
    launches_deferred >= 100,
    launches_begun >= 10,
    launches_cancelled >= 20,
    processes_started >= 3_000,
    processes_registered >= 500,
    // A campaign reaches about 100 of each now that clients also query services.
    processes_finished >= 70,
    launches_failed >= 200,
    processes_ended >= 1_000,
    processes_rebooted >= 500,
    processes_lost >= 50,
    strangers_gone >= 100,
    leaders_outlived >= 100,
    processes_stopped >= 200,
    trees_stopped >= 500,
    trees_stopped_with_records >= 200,
    stops_in_parts >= 50,
    trees_emptied >= 200,
    processes_timed_out >= 200,
    graces_over >= 200,
    trees_stuck >= 10,
    trees_stuck_at_rest >= 10,
    hooks_read >= 200,
    hook_children >= 250,
    signals_asked >= 200,
    signals_answered >= 60,
    records_pruned >= 500,
    reboots >= 1_000,
    keepers_killed >= 200,
    forks >= 500,
    escapes >= 50,
    moves >= 50,
    headless >= 50,
    foreign_ids >= 20,
    chains >= 50,
    imitations >= 50,
    pids_reused >= 200,
    descriptors_out >= 200,
    events_overtaken >= 200,
    events_twice >= 200,
    reports_overtaken >= 200,
    reports_twice >= 200,
    notices >= 1_500,
    services_added >= 4_000,
    services_changed >= 1_500,
    services_removed >= 350,
    services_released >= 350,
    services_launched >= 5_000,
    services_launched_at_once >= 1_700,
    services_restarted >= 1_000,
    services_waited >= 15,
    services_deferred >= 20,
    services_finished >= 60,
    services_given_up >= 120,
    services_ended_as_asked >= 1_500,
    services_stopped >= 700,
    services_never_ready >= 700,
    services_ready >= 200,
    tasks_added >= 1_500,
    tasks_ended >= 30,
    tasks_failed_out >= 300,
    tasks_restarted >= 20,
    tasks_woken >= 100,
    tasks_forgotten >= 200,
    tasks_cleaned_up >= 10,
    bursts_begun >= 1_200,
    bursts_launched >= 700,
    bursts_told_of >= 250,
    bursts_that_wait >= 10,
    bursts_reset >= 200,
    // Attempts on another machine whose local process ended without a report.
    attempts_asked_for_again >= 3,
    bursts_blocked >= 10,
    bursts_stopped >= 400,
    saves >= 15,
    servers_removed >= 80,
    locks_given_back >= 500,
    answers_passed_with_the_process >= 300,
    watches_woken >= 500,
    watches_withdrawn >= 100,
    starts >= 10_000,
    clean_stops >= 500,
    kills >= 1_000,
    power_cuts >= 1_000,
    crashes_with_unsynced_tail >= 500,
    power_cuts_that_lost >= 500,
    power_cuts_that_tore >= 200,
    folder_changes_lost >= 10,
    torn_tails_cut >= 200,
    records_cut >= 100,
    deaths_inside_a_disk_call >= 500,
    deaths_inside_a_start >= 50,
    failed_writes >= 100,
    failed_syncs >= 100,
    panics_in_decide >= 500,
    panics_in_query >= 500,
    panics_in_commit >= 500,
    panics_in_tick >= 200,
    panics_in_keeping >= 50,
    panics_in_due >= 20,
    panics_in_watch >= 50,
    panics_in_resume >= 10,
    panics_judged >= 1_000,
    rebuilds >= 500,
    rebuilds_behind_a_quarantine >= 50,
    disks_filled >= 200,
    disk_full_refusals >= 200,
    disks_freed >= 200,
    halts_for_space >= 5,
    segment_rolls >= 2_000,
    flows_yielded >= 20,
    long_records >= 20,
    reserves_renewed >= 20,
    clock_marks >= 500,
    days_down >= 100,
    sleeps >= 500,
    digests_compared >= 20_000,
    digests_equal_across_a_crash >= 2_000,
    decisions_verified >= 200_000,
    bits_flipped >= 1_000,
    damage_named >= 400,
    damage_cut >= 100,
    checkpoints_begun >= 5_000,
    checkpoints_sealed >= 4_000,
    checkpoints_failed >= 100,
    checkpoints_interrupted >= 200,
    checkpoints_at_a_stop >= 200,
    slices_copied >= 20_000,
    slices_copied_behind_changes >= 1_000,
    rebuilds_from_a_snapshot >= 170,
    rebuilds_in_a_checkpoint >= 100,
    segments_trimmed >= 700,
    segments_trimmed_together >= 50,
    starts_from_a_snapshot >= 3_000,
    slots_half_written_at_a_start >= 1_000,
    crashes_in_a_checkpoint >= 2_000,
    power_cuts_in_a_checkpoint >= 1_000,
    deaths_opening_a_slot >= 50,
    deaths_putting_pages >= 20,
    deaths_closing_a_slot >= 100,
    deaths_sealing_a_slot >= 15,
    slots_checked_alone >= 1_000,
    slots_damaged >= 500,
    slots_damaged_for_good >= 80,
    slots_rebuilt >= 80,
    both_slots_damaged >= 50,
    losses_refused >= 20,
    journals_cut_short >= 150,
    disks_without_a_leak >= 1_000,
}
