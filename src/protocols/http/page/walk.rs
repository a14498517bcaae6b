//! Lists of which one question shows a share: asked for until a page is full, and no longer than is fair to others.

use crate::protocols::http::problem::Problem;

/// Items of a page.
pub(crate) const MOST: u32 = 100;

/// Shares that are asked for, for one page: it may be short then, and goes on.
const SHARES_MAX: u32 = 16;

/// At most [`MOST`] items from somewhere on, and where the list goes on. `share` gives some from there on, and where those ended.
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
