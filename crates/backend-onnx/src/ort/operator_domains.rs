//! The domains of custom operators, which all sessions of a process share.
use std::{collections::BTreeSet, path::PathBuf};

use parking_lot::RwLock;

/// Libraries of custom operators whose domains the runtime knows.
///
/// The runtime enters the domains of a library into a map of the process when it makes the first session that uses them.
/// It looks whether a domain is there and enters it without a lock. So two such sessions must not be made at the same
/// time, and no other session, because each one reads the map.
static KNOWN_LIBRARIES: RwLock<BTreeSet<PathBuf>> = RwLock::new(BTreeSet::new());

/// Makes a session with `make`: beside others if the runtime knows the domains of all `libraries`, else alone.
pub(super) fn make_session<T, E>(libraries: &[PathBuf], make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let is_known = |known: &BTreeSet<PathBuf>| libraries.iter().all(|library| known.contains(library));
    let known = KNOWN_LIBRARIES.read();
    if is_known(&known) {
        return make();
    }
    drop(known);
    let mut known = KNOWN_LIBRARIES.write();
    let session = make()?;
    known.extend(libraries.iter().cloned());
    Ok(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a session with a library of that name, and says whether another one could be made meanwhile.
    fn others_may(name: &str, outcome: Result<(), ()>) -> bool {
        let mut others_may = false;
        let made = make_session(&[PathBuf::from(name)], || {
            others_may = KNOWN_LIBRARIES.try_read().is_some();
            outcome
        });
        assert_eq!(made, outcome);
        others_may
    }

    #[test]
    fn only_the_first_session_of_a_library_is_made_alone() {
        assert!(!others_may("first.so", Err(())), "nobody knows what a session that failed has entered");
        assert!(!others_may("first.so", Ok(())));
        assert!(others_may("first.so", Ok(())));
        assert!(!others_may("second.so", Ok(())));
        let neither = make_session(&[], || Ok::<_, ()>(KNOWN_LIBRARIES.try_read().is_some()));
        assert_eq!(neither, Ok(true), "no library is needed");
    }
}
