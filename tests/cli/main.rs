//! The program as used by a person, a script or a service manager.

mod ask;
mod audit;
mod backup;
mod bad_launches;
mod beanstalk_hosts;
mod beanstalkd;
mod config;
mod deferred;
mod descriptors;
mod disk_full;
mod drain;
mod events;
mod exposed;
mod failed_starts;
mod far;
mod foreground;
mod guide;
mod help;
mod hooks;
mod image;
mod import;
mod import_hostile;
mod init;
mod inspect;
mod inspect_memory;
mod interrupted;
mod lease;
mod lease_returned;
mod lease_show;
mod lock;
mod lock_run;
mod log;
mod log_bounded;
mod log_unread;
mod manual;
mod named_commands;
mod network;
mod output;
mod packages;
mod pid_files;
mod pipes;
mod process_search;
mod processes;
mod queue;
mod queue_bound;
mod queue_failed;
mod queue_push;
mod readme;
mod ready;
mod recover;
mod register;
mod remote;
mod remote_faults;
mod remote_hostile;
mod remote_network;
mod remote_secrets;
mod repeated;
mod replay;
mod replay_trimmed;
mod resize;
mod run_files;
mod secrets;
mod serve;
mod servers;
mod service;
mod service_acts;
mod service_shown;
mod services;
mod shown;
mod signals;
mod site;
mod site_blocks;
mod status;
mod story;
mod strangers;
mod stubborn_trees;
mod supervisor;
mod suspended;
mod task;
mod task_commands;
mod task_config;
mod task_inject;
mod task_seen;
mod task_space;
mod task_transcript;
mod terminal;
mod top;
mod tree;
mod trees;
mod unkillable;
mod upgrade;
mod work;
mod work_any;
mod work_bounds;
mod work_kept;
mod work_killed;
mod work_lines;
mod work_progress;
mod work_report;
mod work_result;
mod workers;

#[path = "../support/beanstalk.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod beanstalk;
#[path = "../support/client_programs.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod client_programs;
#[path = "../support/coordinator.rs"]
mod coordinator;
#[path = "../support/daemon.rs"]
mod daemon;
#[path = "../support/directory.rs"]
mod directory;
#[path = "../support/groups.rs"]
mod groups;
#[path = "../support/left_out.rs"]
mod left_out;
#[path = "../support/lockserver.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod lockserver;
#[path = "../support/may_look.rs"]
mod may_look;
#[path = "../support/node.rs"]
mod node;
#[path = "../support/patience.rs"]
mod patience;
#[path = "../support/unserved.rs"]
mod unserved;
