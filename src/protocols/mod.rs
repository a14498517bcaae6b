//! What the listeners of several protocols need, whichever package serves them.
//!
//! | file | holds |
//! |---|---|
//! | `listener.rs` | accepts connections, or refuses them |
//! | `bounds.rs` | bounds on what all connections of a listener may hold together, and their turns |
//! | `file.rs` | reads files named in the configuration: hosts lists, tokens, certificates |

pub mod bounds;
pub mod file;
pub mod listener;
