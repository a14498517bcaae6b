//! Sharing of equal profiles (the immutable parts of records): if the same command is launched repeatedly, its profile is in memory only
//! once. Volatile.

use crate::actors::process::record::Profile;
use std::collections::VecDeque;
use std::sync::Arc;

/// The maximum number of recently used profiles with which a new one is compared.
const COMPARED: usize = 16;

/// The profiles most recently added or reused, the most recent last.
#[derive(Debug, Default)]
pub(super) struct Profiles(VecDeque<Arc<Profile>>);

impl Profiles {
    /// Returns a recently used profile that equals the given one, or the given one itself if there is none.
    pub(super) fn shared(&mut self, profile: Arc<Profile>) -> Arc<Profile> {
        let found = self.0.iter().rposition(|other| *other == profile);
        let shared = found.and_then(|place| self.0.remove(place));
        let shared = shared.unwrap_or(profile);
        if self.0.len() >= COMPARED {
            self.0.pop_front();
        }
        self.0.push_back(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::{COMPARED, Profiles};
    use crate::actors::process::record::Profile;
    use std::sync::Arc;

    #[test]
    fn what_is_launched_again_is_kept_once() {
        let mut profiles = Profiles::default();
        let mut add = |number: usize| {
            let mut profile = Profile::default();
            profile.tags.kind = number.to_string();
            profiles.shared(Arc::new(profile))
        };
        let first = add(0);
        for number in 1..COMPARED {
            assert!(!Arc::ptr_eq(&first, &add(number)));
            assert!(Arc::ptr_eq(&first, &add(0)));
        }
        // A profile that was not used recently is no longer shared.
        for number in 1..=COMPARED {
            add(number);
        }
        assert!(!Arc::ptr_eq(&first, &add(0)));
        assert_eq!(first, add(0));
        assert_eq!(profiles.0.len(), COMPARED);
    }
}
