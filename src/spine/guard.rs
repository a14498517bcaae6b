//! Pure code under guard: a panic becomes its words.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs pure code; a panic becomes its words.
pub fn guard<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| panic_words(payload.as_ref()))
}

/// The words of a panic, as far as it has any.
pub fn panic_words(payload: &(dyn Any + Send)) -> String {
    let words = payload
        .downcast_ref::<&str>()
        .map(|words| (*words).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    words.unwrap_or_else(|| "a panic without words".to_owned())
}
