//! Collects the items of a list with several queries, until the page is full, the list ends, or the limit on queries is reached.

use crate::problem::Problem;

/// The maximum number of items on a page.
pub(crate) const MOST: u32 = 100;

/// The maximum number of queries for one page. If they find fewer than [`MOST`] items, the page is short, and the next page continues.
const SHARES_MAX: u32 = 32;

/// Returns up to [`MOST`] items, starting at `from`, and the position at which the list continues (`None` at its end). `share` makes one
/// such query, for up to the given number of items.
pub(crate) async fn walk<V, C>(
    from: C,
    share: impl AsyncFn(C, u32) -> Result<(Vec<V>, Option<C>), Problem>,
) -> Result<(Vec<V>, Option<C>), Problem> {
    let (mut found, mut next) = (Vec::new(), Some(from));
    for _ in 0..SHARES_MAX {
        let left = MOST.saturating_sub(u32::try_from(found.len()).unwrap_or(MOST));
        let Some(from) = next.take_if(|_| left > 0) else {
            break;
        };
        let (some, after) = share(from, left).await?;
        found.extend(some);
        next = after;
    }
    Ok((found, next))
}
