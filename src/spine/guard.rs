//! Runs pure code, and turns a panic into an error that contains its message.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs pure code, and returns its result; if it panics, returns the panic message as an error.
pub fn guard<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| panic_words(payload.as_ref()))
}

/// Returns the message of a panic, or a substitute if it has none.
pub fn panic_words(payload: &(dyn Any + Send)) -> String {
    let words = payload
        .downcast_ref::<&str>()
        .map(|words| (*words).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    words.unwrap_or_else(|| "a panic without a message".to_owned())
}
