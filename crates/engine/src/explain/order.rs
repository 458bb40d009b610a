//! Which versions a snapshot describes if there are too many: those that are not ready, then the busiest.
use std::{cmp::Reverse, time::Duration};

use host::unix_time;

use crate::{
    model_state::{IndexEntry, ModelState},
    models::loaded_version::LoadedVersion,
};

/// A version that has run a batch within this time is busy, also if nothing runs at this moment.
const LATELY: Duration = Duration::from_secs(10);

/// How much a version does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ModelActivity {
    /// Whether it has requests now, or has run a batch lately.
    pub(super) is_busy: bool,
    /// The requests since the load, with those that have not ended.
    pub(super) requests: u64,
}

impl ModelActivity {
    pub(super) fn of(loaded: &LoadedVersion) -> Self {
        let in_flight = loaded.in_flight();
        let record = loaded.record();
        Self {
            is_busy: in_flight > 0
                || record.counters().has_executed_since(unix_time().saturating_sub(LATELY)),
            requests: record.requests_ended() + in_flight as u64,
        }
    }
}

/// Sorts ascending: versions that are not ready, then ready ones with the busiest first. Versions that were unloaded on
/// purpose come last. Sorting by it must be stable, so that equals stay sorted by name.
pub(super) fn rank(entry: &IndexEntry, activity: ModelActivity) -> impl Ord + use<> {
    let group = match entry.state {
        Some(ModelState::Ready) => 1,
        Some(ModelState::Unavailable) if entry.is_unloaded() => 2,
        None => 2,
        Some(ModelState::Loading | ModelState::Unloading | ModelState::Unavailable) => 0,
    };
    (group, Reverse(activity.is_busy), Reverse(activity.requests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ready_comes_first_then_the_busiest_then_the_name() {
        let entry = |name: &str, state, reason: &str| IndexEntry {
            name: name.into(),
            namespace: None,
            version: Some(1),
            state: Some(state),
            reason: reason.to_owned(),
        };
        let activity = |is_busy, requests| ModelActivity { is_busy, requests };
        let mut entries = [
            (entry("a_unloaded", ModelState::Unavailable, "unloaded"), activity(false, 0)),
            (entry("b", ModelState::Ready, ""), activity(false, 7)),
            (entry("c", ModelState::Ready, ""), activity(false, 7)),
            (entry("d_once", ModelState::Ready, ""), activity(false, 1_000_000)),
            (entry("e_now", ModelState::Ready, ""), activity(true, 3)),
            (entry("f_more_now", ModelState::Ready, ""), activity(true, 4)),
            (entry("y_loads", ModelState::Loading, ""), activity(false, 0)),
            (entry("z_broken", ModelState::Unavailable, "no file"), activity(false, 0)),
        ];
        entries.sort_by_key(|(entry, activity)| rank(entry, *activity));
        let names = entries.each_ref().map(|(entry, _)| &*entry.name);
        assert_eq!(names, ["y_loads", "z_broken", "f_more_now", "e_now", "d_once", "b", "c", "a_unloaded"]);
    }
}
