//! What a listing of the repositories means for a model in control mode `poll`.
//!
//! A change counts when two listings that lie a settle time apart agree on it (M-W1). What has failed is tried again when
//! the files change, or after pauses that grow (M-W6).
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use scheduling::Timestamp;
use vocabulary::Name;

use crate::{
    files::{DirectoryStamp, ModelFiles},
    keys::{ModelKey, ModelLocation},
};

/// A model as the repositories have it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundModel {
    /// Where the model is: several places if several repositories have a model of the name.
    pub places: Vec<Arc<ModelLocation>>,
    /// The files of the model, if there is one place.
    pub files: Arc<ModelFiles>,
    /// A marker says that the model is being written.
    pub is_incomplete: bool,
    /// Versions whose copies serve and must be replaced, even if the files are as they were: the copy cannot be used
    /// any more, or its backend has changed.
    pub faulty: Vec<i64>,
}

/// The models of all repositories at one moment.
#[derive(Debug, Clone, Default)]
pub struct ModelListing {
    /// The models that were found.
    pub models: BTreeMap<ModelKey, FoundModel>,
    /// The directories of the repositories. They were looked at before their entries.
    pub repositories: BTreeMap<Name, DirectoryStamp>,
    /// Repositories that could not be read. What was known of them stays as it is (M-W5).
    pub unreadable: BTreeSet<Name>,
}

impl ModelListing {
    /// The repositories, and whether they could be read.
    pub fn readable(&self) -> BTreeMap<Name, bool> {
        let read = self.repositories.keys().map(|name| (name.clone(), true));
        read.chain(self.unreadable.iter().map(|name| (name.clone(), false))).collect()
    }
}

/// A model that no listing has shown for so many settle times is gone, whatever else happens in its repository.
const LONGEST_ABSENCE: u32 = 5;

/// What the listings have shown of a model so far.
#[derive(Debug, Default)]
pub(crate) struct ListingHistory {
    /// The repository in which the model was last.
    pub(crate) repository: Option<Name>,
    /// A change, and since when it has been the same.
    candidate: Option<(ListedState, Timestamp)>,
    /// Since when no listing has shown the model.
    absent_since: Option<Timestamp>,
    failure: Option<Failure>,
    /// How often the files have changed while the model was loading, since its last load.
    pub(crate) changed_while_loading: u32,
}

/// A model in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListedState {
    /// The model is in no repository. An entry of the repository in which it was last may have come and gone meanwhile.
    Absent(Option<DirectoryStamp>),
    Twice,
    Files(Arc<ModelFiles>),
}

#[derive(Debug)]
struct Failure {
    reason: String,
    seen: ListedState,
    pause: Duration,
    again_at: Timestamp,
}

/// When a change counts, and when a failed load is tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryTimes {
    pub(crate) settle: Duration,
    pub(crate) first_retry: Duration,
    pub(crate) longest_retry: Duration,
}

/// Whether to act on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollDecision {
    Act,
    WaitUntil(Timestamp),
}

impl ListingHistory {
    /// The model is as it serves.
    pub(crate) fn unchanged(&mut self) {
        self.candidate = None;
        self.absent_since = None;
        self.failure = None;
    }

    /// The listing shows a change.
    pub(crate) fn changed(
        &mut self,
        seen: &ListedState,
        now: Timestamp,
        retry_times: RetryTimes,
    ) -> PollDecision {
        let since = match &self.candidate {
            Some((candidate, since)) if candidate == seen => *since,
            _ => {
                self.candidate = Some((seen.clone(), now));
                now
            }
        };
        let is_absent = matches!(seen, ListedState::Absent(_));
        self.absent_since = self.absent_since.or(Some(now)).filter(|_| is_absent);
        let settled = since + retry_times.settle;
        // In a repository whose models come and go all the time, a model that is gone is gone.
        let has_gone =
            self.absent_since.is_some_and(|absent| absent + retry_times.settle * LONGEST_ABSENCE <= now);
        if settled > now && !has_gone {
            return PollDecision::WaitUntil(settled);
        }
        match &self.failure {
            Some(failure) if failure.seen == *seen && failure.again_at > now => {
                PollDecision::WaitUntil(failure.again_at)
            }
            Some(_) | None => PollDecision::Act,
        }
    }

    /// The load of these files has failed. Returns whether it had failed before, with the same files for the same reason.
    pub(crate) fn failed(
        &mut self,
        files: &Arc<ModelFiles>,
        reason: &str,
        now: Timestamp,
        retry_times: RetryTimes,
    ) -> bool {
        let seen = ListedState::Files(files.clone());
        let before = self.failure.take().filter(|failure| failure.seen == seen);
        let is_again = before.as_ref().is_some_and(|failure| failure.reason == reason);
        let reason = reason.to_owned();
        let pause = before
            .map_or(retry_times.first_retry, |failure| (failure.pause * 2).min(retry_times.longest_retry));
        self.failure = Some(Failure { reason, seen, pause, again_at: now + pause });
        is_again
    }

    /// The files have changed during the load: they count as seen for the first time.
    pub(crate) fn changed_in_between(&mut self, files: Arc<ModelFiles>, now: Timestamp) {
        self.changed_while_loading += 1;
        self.candidate = Some((ListedState::Files(files), now));
    }

    pub(crate) fn loaded(&mut self) {
        self.changed_while_loading = 0;
        self.unchanged();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY_TIMES: RetryTimes = RetryTimes {
        settle: Duration::from_secs(2),
        first_retry: Duration::from_secs(15),
        longest_retry: Duration::from_secs(40),
    };

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_nanos(secs * 1_000_000_000)
    }

    fn files(version: i64) -> Arc<ModelFiles> {
        Arc::new(ModelFiles::new(Vec::new(), "", [version]))
    }

    #[test]
    fn a_change_counts_when_it_has_been_the_same_for_the_settle_time() {
        let mut history = ListingHistory::default();
        let [first, second] = [1, 2].map(|version| ListedState::Files(files(version)));
        assert_eq!(history.changed(&first, at(10), RETRY_TIMES), PollDecision::WaitUntil(at(12)));
        assert_eq!(history.changed(&second, at(11), RETRY_TIMES), PollDecision::WaitUntil(at(13)));
        assert_eq!(history.changed(&second, at(12), RETRY_TIMES), PollDecision::WaitUntil(at(13)));
        assert_eq!(history.changed(&second, at(13), RETRY_TIMES), PollDecision::Act);
    }

    #[test]
    fn a_model_is_gone_when_nothing_has_come_or_gone_beside_it_or_after_a_while() {
        let mut history = ListingHistory::default();
        let absent = |time| ListedState::Absent(Some(DirectoryStamp { changed_ns: [time; 2], inode: 1 }));
        assert_eq!(history.changed(&absent(1), at(10), RETRY_TIMES), PollDecision::WaitUntil(at(12)));
        assert_eq!(history.changed(&absent(2), at(12), RETRY_TIMES), PollDecision::WaitUntil(at(14)));
        assert_eq!(history.changed(&absent(2), at(14), RETRY_TIMES), PollDecision::Act);
        history.unchanged();
        for time in 20..30 {
            let next = at(u64::try_from(time).unwrap());
            assert_ne!(history.changed(&absent(time), next, RETRY_TIMES), PollDecision::Act);
        }
        assert_eq!(history.changed(&absent(30), at(30), RETRY_TIMES), PollDecision::Act);
    }

    #[test]
    fn what_has_failed_waits_longer_each_time_until_its_files_change() {
        let mut history = ListingHistory::default();
        let broken = files(1);
        let seen = ListedState::Files(broken.clone());
        history.changed(&seen, at(0), RETRY_TIMES);
        assert!(!history.failed(&broken, "bad", at(2), RETRY_TIMES));
        assert_eq!(history.changed(&seen, at(3), RETRY_TIMES), PollDecision::WaitUntil(at(17)));
        assert_eq!(history.changed(&seen, at(17), RETRY_TIMES), PollDecision::Act);
        assert!(history.failed(&broken, "bad", at(18), RETRY_TIMES));
        assert_eq!(history.changed(&seen, at(19), RETRY_TIMES), PollDecision::WaitUntil(at(48)));
        history.failed(&broken, "bad", at(50), RETRY_TIMES);
        assert_eq!(
            history.changed(&seen, at(51), RETRY_TIMES),
            PollDecision::WaitUntil(at(90)),
            "at most the longest"
        );
        let mended = ListedState::Files(files(2));
        history.changed(&mended, at(52), RETRY_TIMES);
        assert_eq!(history.changed(&mended, at(54), RETRY_TIMES), PollDecision::Act);
    }
}
