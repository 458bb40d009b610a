//! What the budget knows of one model.
use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::{
    lines::{Absence, BudgetLine, BudgetPlace},
    load_times::{LoadTimes, RepeatedLoads},
    terms::ModelNeeds,
};

/// The pause after the first failure of a load. It doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The order of those who wait: by priority, then as they came.
pub(super) type Turn = (Reverse<u32>, u64);

/// Where a model is, and the bytes that this costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Residence {
    #[default]
    Out,
    Loading {
        reserved: u64,
    },
    In {
        bytes: u64,
        /// The key in the order of those that may go.
        worth: u64,
        /// The requests since the load that the worth counts.
        seen: u64,
    },
    Unloading {
        bytes: u64,
    },
}

/// A load that has failed, or a model that does not fit.
#[derive(Debug)]
pub(super) struct LoadFailure {
    error: Error,
    pause: Duration,
    again_at: Timestamp,
}

/// What the budget knows of one model.
#[derive(Debug)]
pub(super) struct BudgetedModel {
    pub(super) needs: ModelNeeds,
    pub(super) residence: Residence,
    /// The bytes of the last load, as they were measured last.
    pub(super) measured: Option<u64>,
    pub(super) load_duration: Duration,
    pub(super) load_times: LoadTimes,
    /// The weights of its uses, also of those before it went.
    pub(super) uses: f64,
    /// Its place among those who wait for memory or for a load thread.
    pub(super) turn: Option<Turn>,
    /// It waits for other models, and then has this turn again.
    pub(super) staged: Option<Turn>,
    /// Ensembles that are in memory, or will be, and call the model.
    pub(super) holders: BTreeSet<Name>,
    pub(super) failure: Option<LoadFailure>,
    /// A member that could not be loaded while the ensemble waited for it.
    pub(super) failed_member: Option<(Name, Error)>,
    pub(super) is_withdrawn: bool,
    /// Why it is out, if it is.
    pub(super) absence: Absence,
}

impl Default for BudgetedModel {
    fn default() -> Self {
        Self {
            needs: ModelNeeds::default(),
            residence: Residence::Out,
            measured: None,
            load_duration: Duration::ZERO,
            load_times: LoadTimes::default(),
            uses: 0.0,
            turn: None,
            staged: None,
            holders: BTreeSet::new(),
            failure: None,
            failed_member: None,
            is_withdrawn: false,
            absence: Absence::NotWanted,
        }
    }
}

impl BudgetedModel {
    pub(super) fn is_ensemble(&self) -> bool {
        !self.needs.members.is_empty()
    }

    /// The bytes that the model is expected to have: those of its files, until it has been measured.
    pub(super) fn expected(&self) -> u64 {
        if self.is_ensemble() { 0 } else { self.measured.unwrap_or(self.needs.file_bytes) }
    }

    /// The bytes that its load is expected to need: those of the files besides.
    pub(super) fn expected_for_load(&self) -> u64 {
        let files = if self.is_ensemble() { 0 } else { self.needs.file_bytes };
        self.expected().saturating_add(files)
    }

    /// The bytes that count for a loaded model: those of its files, if its backend does not measure.
    pub(super) fn bytes_of(&self, measured: u64) -> u64 {
        if measured > 0 { measured } else { self.needs.file_bytes }
    }

    /// How much it is worth to keep the model, for each of its bytes, as a key that grows with it.
    pub(super) fn worth(&self, bytes: u64, repeated: &RepeatedLoads) -> u64 {
        let seconds = self.load_times.expected_seconds(repeated).max(1e-6);
        // The bits of positive numbers have the order of the numbers.
        (self.uses * seconds / bytes.max(1) as f64).to_bits()
    }

    /// The model in memory has had so many requests since its load. Those that were not known weigh `weight` each.
    pub(super) fn used(&mut self, requests: u64, weight: f64, repeated: &RepeatedLoads) {
        if let Residence::In { bytes, seen, .. } = self.residence {
            self.uses += requests.saturating_sub(seen) as f64 * weight;
            let worth = self.worth(bytes, repeated);
            self.residence = Residence::In { bytes, worth, seen: requests.max(seen) };
        }
    }

    /// The load has failed.
    pub(super) fn fail(&mut self, error: &Error, now: Timestamp) {
        let pause = self.failure.as_ref().map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        self.absence = Absence::Failed(error.message.to_string());
        self.failure = Some(LoadFailure { error: error.clone(), pause, again_at: now + pause });
    }

    /// A demand was refused. The next one is examined again.
    pub(super) fn refused(&mut self, error: &Error) {
        self.absence = Absence::Refused(error.message.to_string());
    }

    /// Why a request for the model is refused without another load: the last one has just failed.
    pub(super) fn refusal(&self, now: Timestamp) -> Option<Error> {
        let failure = self.failure.as_ref().filter(|failure| now < failure.again_at)?;
        Some(failure.error.clone())
    }

    pub(super) fn line(&self, name: &Name) -> BudgetLine {
        let (place, bytes) = match self.residence {
            Residence::Out if self.turn.is_some() || self.staged.is_some() => {
                (BudgetPlace::Waiting, self.expected())
            }
            Residence::Out => (BudgetPlace::Out(self.absence.clone()), self.expected()),
            Residence::Loading { reserved } => (BudgetPlace::Loading, reserved),
            Residence::In { bytes, .. } => (BudgetPlace::In, bytes),
            Residence::Unloading { bytes } => (BudgetPlace::Unloading, bytes),
        };
        BudgetLine {
            name: name.clone(),
            place,
            bytes,
            is_measured: self.measured.is_some(),
            is_pinned: self.needs.is_pinned,
            priority: self.needs.priority,
            load_duration: self.load_duration,
        }
    }
}
