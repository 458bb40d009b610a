//! What waits for stores on behalf of models, by their names.
use std::collections::HashMap;

use repository::remote::{StoreWait, StoreWaitEnd};
use vocabulary::{Error, Name};

/// So many names may be there before those without work are forgotten.
const FEW: usize = 64;

/// Ends the downloads of the models of a name.
#[derive(Default)]
pub(super) struct Downloads {
    ends: HashMap<Name, StoreWaitEnd>,
    /// The names that were left when those without work were forgotten.
    left: usize,
}

impl Downloads {
    /// What ends when the models of a name are unloaded, or when the server stops.
    pub(super) fn wait_of(&mut self, name: &Name) -> StoreWait {
        // A walk over all comes when there may be twice as many, so that each name pays for a constant part of it.
        if self.ends.len() >= FEW.max(2 * self.left) {
            self.ends.retain(|_, end| end.is_used() && !end.has_ended());
            self.left = self.ends.len();
        }
        let end = self.ends.entry(name.clone()).or_default();
        if end.has_ended() {
            *end = StoreWaitEnd::default();
        }
        end.wait()
    }

    /// Ends the downloads of the models of a name.
    pub(super) fn end_of(&self, name: &Name, error: &Error) {
        self.ends.get(name).into_iter().for_each(|end| end.end(error.clone()));
    }

    /// Ends all downloads.
    pub(super) fn end_all(&self, error: &Error) {
        self.ends.values().for_each(|end| end.end(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_work_are_forgotten() {
        let mut downloads = Downloads::default();
        for index in 0..10 * FEW {
            drop(downloads.wait_of(&Name::new(&format!("m{index}"))));
        }
        assert!(downloads.ends.len() <= FEW);
    }

    #[tokio::test]
    async fn an_end_concerns_the_work_of_its_name_that_has_begun() {
        let mut downloads = Downloads::default();
        let [a, b] = ["a", "b"].map(Name::new);
        let (first, other) = (downloads.wait_of(&a), downloads.wait_of(&b));
        downloads.end_of(&a, &Error::unavailable("unloaded"));
        let second = downloads.wait_of(&a);
        assert_eq!(first.of(std::future::pending::<()>()).await, Err(Error::unavailable("unloaded")));
        assert_eq!(other.of(async { 1 }).await, Ok(1));
        assert_eq!(second.clone().of(async { 2 }).await, Ok(2));
        downloads.end_all(&Error::unavailable("exiting"));
        assert_eq!(second.of(std::future::pending::<()>()).await, Err(Error::unavailable("exiting")));
    }
}
