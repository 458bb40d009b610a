//! Which version of a model takes a request while one version replaces another.
//!
//! A caller looks a version up and then sends it a request. In between, the version may have been replaced. The model is
//! then looked up again. A request of a running sequence goes to the version that has the sequence's state, as long as
//! that version waits for its sequences (M-W24).
use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use arc_swap::ArcSwap;

/// What a version knows of those before and after it. `V` is a version.
pub(crate) struct Succession<V> {
    /// The server stops: no other version will take a late request.
    server_stops: AtomicBool,
    /// Versions that wait for their sequences. They end before the repository forgets them.
    predecessors: ArcSwap<Vec<Weak<V>>>,
    /// Another version has replaced this one, which takes only requests of the sequences that it has.
    takes_only_own_sequences: AtomicBool,
    /// Other versions leave requests of its sequences to this one.
    waits_for_sequences: AtomicBool,
}

impl<V> Default for Succession<V> {
    /// A version that serves without having replaced another one.
    fn default() -> Self {
        Self {
            server_stops: AtomicBool::new(false),
            predecessors: ArcSwap::default(),
            takes_only_own_sequences: AtomicBool::new(false),
            waits_for_sequences: AtomicBool::new(false),
        }
    }
}

impl<V> Succession<V> {
    /// Whether requests go elsewhere, except for those of the sequences that the version has.
    pub(super) fn takes_only_own_sequences(&self) -> bool {
        self.takes_only_own_sequences.load(SeqCst)
    }

    pub(super) fn has_predecessors(&self) -> bool {
        !self.predecessors.load().is_empty()
    }

    /// The first predecessor that fits.
    pub(super) fn predecessor(&self, fits: impl Fn(&V) -> bool) -> Option<Arc<V>> {
        let predecessors = self.predecessors.load();
        predecessors.iter().filter_map(Weak::upgrade).find(|version| fits(version))
    }

    /// From now on, late requests are refused: the server stops.
    pub(crate) fn refuse_late_requests(&self) {
        self.server_stops.store(true, SeqCst);
    }

    pub(super) fn refuses_late_requests(&self) -> bool {
        self.server_stops.load(SeqCst)
    }

    /// Lets requests of the sequences that `old` has go there from now on. Called before this version serves.
    pub(crate) fn follow(&self, old: &Arc<V>, of_old: &Self) {
        of_old.waits_for_sequences.store(true, SeqCst);
        let before = of_old.predecessors.load();
        let known = self.predecessors.load();
        let all = known.iter().chain(before.iter()).filter(|version| version.strong_count() > 0).cloned();
        let all = all.chain([Arc::downgrade(old)]).collect();
        self.predecessors.store(Arc::new(all));
    }

    /// Knows the predecessors of another version from now on, which this one replaces over the same runner.
    pub(crate) fn adopt_predecessors(&self, other: &Self) {
        self.predecessors.store(other.predecessors.load_full());
    }

    /// From now on, the version takes only requests of the sequences that it has, if others have [followed](Self::follow) it.
    /// Called when others can be looked up.
    pub(crate) fn leave_new_sequences(&self) {
        self.takes_only_own_sequences.store(self.waits_for_sequences(), SeqCst);
    }

    /// Whether requests of running sequences still come to the version, though it has been replaced.
    pub(crate) fn waits_for_sequences(&self) -> bool {
        self.waits_for_sequences.load(SeqCst)
    }

    /// From now on, the version takes requests of sequences no more.
    pub(crate) fn end_wait_for_sequences(&self) {
        self.waits_for_sequences.store(false, SeqCst);
    }
}
