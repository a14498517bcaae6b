//! Snapshots on a real disk, with the real store. Whatever happens to them, no acknowledged change is lost.
//!
//! | file | holds |
//! |---|---|
//! | `directory.rs` | data directories with locks, and their comparison |
//! | `harm.rs` | damage to a file |
//! | `turns.rs` | slots are written alternately, sealed, and then not changed |
//! | `damage.rs` | one slot damaged: startup recovers everything, and the slot is rewritten |
//! | `lost.rs` | both damaged: the state is rebuilt from the journal, or startup is refused |
//! | `power.rs` `storage.rs` | power cuts at every step of a checkpoint |
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
mod power;
mod stop;
mod storage;
mod turns;
