//! Lists that are answered page by page.

use crate::client::answer::unreadable;
use crate::report::Failure;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sexton_api::list::Limit;
use sexton_api::value::Number;

/// The maximum number of items per request.
const PAGE: u32 = 1000;

/// An item of a list, and the item as it arrived, for `--json`.
pub(crate) struct Item<T> {
    pub(crate) it: T,
    pub(crate) written: Value,
}

/// Items of a list, and where the list continues; `None` at its end.
pub(crate) type Part<T, C> = (Vec<T>, Option<C>);

/// Reads up to `most` items of a list by `page`, which returns the items of one request as they arrived.
pub(crate) fn all<T: DeserializeOwned, C>(
    most: u64,
    page: impl Fn(Limit, Option<C>) -> Result<Part<Value, C>, Failure>,
) -> Result<Part<Item<T>, C>, Failure> {
    let (mut found, mut next) = (Vec::new(), None);
    loop {
        let left = u32::try_from(most - found.len() as u64).unwrap_or(PAGE);
        let (some, more) = page(Number(left.min(PAGE)), next)?;
        for written in some {
            let it = T::deserialize(&written).map_err(|error| unreadable(&error))?;
            found.push(Item { it, written });
        }
        next = more;
        if next.is_none() || found.len() as u64 >= most {
            return Ok((found, next));
        }
    }
}

/// Returns items as they arrived.
pub(crate) fn written<T>(items: &[Item<T>]) -> Vec<&Value> {
    items.iter().map(|item| &item.written).collect()
}
