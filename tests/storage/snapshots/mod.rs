//! Snapshots on a real disk, with the real store: whatever happens to them, nothing acknowledged is lost.
//!
//! | file | holds |
//! |---|---|
//! | `directory.rs` | data directories with locks, and how to compare them |
//! | `harm.rs` | damage to a file |
//! | `turns.rs` | slots in turn, sealed and left alone |
//! | `damage.rs` | one slot damaged: the start has everything, and the slot is rewritten |
//! | `lost.rs` | both damaged: rebuilt from the journal, or a refusal that names the loss |
//! | `power.rs` `platter.rs` | power cuts at every step of a checkpoint |
//! | `kills.rs` | the real program, killed while it takes checkpoints |
//! | `panics.rs` | a commit that panics while a checkpoint is taken |
//! | `stop.rs` | the checkpoint of a clean stop |
//! | `full.rs` | a disk that is full while a checkpoint is taken |

mod damage;
mod directory;
mod full;
mod harm;
mod kills;
mod lost;
mod panics;
mod platter;
mod power;
mod stop;
mod turns;
