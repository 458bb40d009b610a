//! How endpoints stop, in three phases.
//!
//! 1. The stop is announced: the endpoint serves as before, and tells its clients to go to another server.
//! 2. The drain begins: the endpoint accepts no new connections, closes idle connections at once, and closes busy
//!    connections after their answer. gRPC streams that carry sequences go on.
//! 3. The sequences are over: these streams end too.
//!
//! Each endpoint has one [`Drain`]. Its accept loop and every connection have a clone. The binary begins each phase,
//! reads the number of open connections, and decides when to stop waiting.
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// The drain of one endpoint. All clones share one state.
#[derive(Clone, Debug)]
pub struct Drain {
    state: Arc<DrainState>,
}

#[derive(Debug)]
struct DrainState {
    /// Since when clients that stand still are waited for no longer than briefly.
    begun_at: OnceLock<Instant>,
    phase: watch::Sender<DrainPhase>,
    open: watch::Sender<usize>,
}

/// How far the stop of an endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DrainPhase {
    Serving,
    Announced,
    Draining,
    SequencesOver,
}

/// Counts one connection as open for as long as it lives.
#[derive(Debug)]
pub struct OpenConnection {
    state: Arc<DrainState>,
}

impl Default for Drain {
    fn default() -> Self {
        let phase = watch::Sender::new(DrainPhase::Serving);
        let (begun_at, open) = (OnceLock::new(), watch::Sender::new(0));
        Self { state: Arc::new(DrainState { begun_at, phase, open }) }
    }
}

impl Drain {
    /// A drain that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces that the drain will begin. Later calls have no effect.
    pub fn announce(&self) {
        self.reach(DrainPhase::Announced);
    }

    /// Tells whether the drain has been announced or has begun.
    pub fn is_announced(&self) -> bool {
        self.has_reached(DrainPhase::Announced)
    }

    /// Waits until the drain is announced, or begins without an announcement. Cancel-safe.
    pub async fn announced(&self) {
        self.reached(DrainPhase::Announced).await;
    }

    /// Begins the drain. Later calls have no effect.
    pub fn begin(&self) {
        self.begin_since(Instant::now());
    }

    /// Begins the drain of an endpoint that goes on while others drain since `begun_at`: its clients that stand still get
    /// no time of their own. Later calls have no effect.
    pub fn begin_since(&self, begun_at: Instant) {
        self.state.begun_at.get_or_init(|| begun_at);
        self.reach(DrainPhase::Draining);
    }

    /// When the drain began; now if it has not begun.
    pub(crate) fn begun_at(&self) -> Instant {
        self.state.begun_at.get().copied().unwrap_or_else(Instant::now)
    }

    /// Tells whether the drain has begun at least that long ago.
    pub fn has_begun_since(&self, time: Duration) -> bool {
        self.has_begun() && self.state.begun_at.get().is_some_and(|begun_at| begun_at.elapsed() >= time)
    }

    /// Tells whether the drain has begun.
    pub fn has_begun(&self) -> bool {
        self.has_reached(DrainPhase::Draining)
    }

    /// Waits until the drain begins. Cancel-safe.
    pub async fn begun(&self) {
        self.reached(DrainPhase::Draining).await;
    }

    /// From now on, streams do not wait for their sequences. Also begins the drain. Later calls have no effect.
    pub fn end_sequences(&self) {
        self.state.begun_at.get_or_init(Instant::now);
        self.reach(DrainPhase::SequencesOver);
    }

    /// Tells whether requests of running sequences are refused like others.
    pub fn are_sequences_over(&self) -> bool {
        self.has_reached(DrainPhase::SequencesOver)
    }

    /// Waits until streams do not wait for their sequences any more. Cancel-safe.
    pub async fn sequences_over(&self) {
        self.reached(DrainPhase::SequencesOver).await;
    }

    fn reach(&self, phase: DrainPhase) {
        self.state.phase.send_if_modified(|now| {
            let is_later = phase > *now;
            *now = phase.max(*now);
            is_later
        });
    }

    fn has_reached(&self, phase: DrainPhase) -> bool {
        *self.state.phase.borrow() >= phase
    }

    async fn reached(&self, phase: DrainPhase) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.state.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Counts a connection until the returned guard is dropped.
    pub fn enter(&self) -> OpenConnection {
        self.state.open.send_modify(|open| *open += 1);
        OpenConnection { state: self.state.clone() }
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        *self.state.open.borrow()
    }

    /// Waits until no connection is open. Cancel-safe.
    pub async fn emptied(&self) {
        let _ = self.state.open.subscribe().wait_for(|open| *open == 0).await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.state.open.send_modify(|open| *open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_tasks_learn_of_the_beginning_and_the_end_of_a_drain() {
        let drain = Drain::new();
        let connection = drain.enter();
        assert_eq!((drain.open(), drain.has_begun()), (1, false));
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move {
                drain.begun().await;
                drop(connection);
            }
        });
        drain.begin();
        drain.emptied().await;
        waiting.await.unwrap();
        assert_eq!(drain.open(), 0);
        drain.begun().await;
    }

    #[tokio::test]
    async fn a_phase_includes_the_phases_before_it_and_never_goes_back() {
        let drain = Drain::new();
        let phases = |drain: &Drain| [drain.is_announced(), drain.has_begun(), drain.are_sequences_over()];
        assert_eq!(phases(&drain), [false, false, false]);
        drain.announce();
        assert_eq!(phases(&drain), [true, false, false]);
        assert!(!drain.has_begun_since(Duration::ZERO));
        drain.end_sequences();
        drain.begin();
        drain.announce();
        assert_eq!(phases(&drain), [true, true, true]);
        assert!(drain.has_begun_since(Duration::ZERO) && !drain.has_begun_since(Duration::from_secs(3600)));
        drain.announced().await;
        drain.begun().await;
        drain.sequences_over().await;
    }
}
