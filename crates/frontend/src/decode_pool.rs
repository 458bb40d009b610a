//! Runs long decoding, encoding and compression outside of the network threads.
//!
//! Small bodies are decoded on the network thread, because that takes less time than a transfer to another thread. Long
//! work runs on the runtime's threads for blocking work. A limit on concurrent work leaves processors to models and
//! network. Connections take turns: one with many calls, each with long work, delays the others by one of these, or by
//! one piece of work that is done in pieces. Waiting work is the future of one request, so the number of connections, and
//! of streams on each, bounds the waiting work. If a future is dropped before its work starts, the work never runs.
use std::{
    cell::Cell,
    fmt,
    pin::Pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use kserve::long_write::{BRIEF, LongWrite};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::{self, futures::TaskLocalFuture},
};
use vocabulary::{ByteReservation, Error};

use crate::turns::{Permit, Turns};

/// The task of the connection whose work it is. `None` outside of tasks.
type ConnectionTask = Option<task::Id>;

/// Permits to work: one for every second processor, and at least one. Two on a machine of two processors would leave no
/// processor to the requests of other clients.
static PERMITS: LazyLock<Arc<Turns<ConnectionTask>>> =
    LazyLock::new(|| Turns::new((host::usable_processors().get() / 2).max(1)));

tokio::task_local! {
    /// The task of the connection that a task of one call belongs to.
    static CONNECTION: ConnectionTask;
}

/// Makes the long work of `call` that of the connection whose task calls this function. For calls with tasks of their own.
pub(crate) fn in_connection<F: Future>(call: F) -> TaskLocalFuture<ConnectionTask, F> {
    CONNECTION.scope(task::try_id(), call)
}

/// Whose work the current task does. A task that belongs to no other serves a whole connection.
fn connection() -> ConnectionTask {
    CONNECTION.try_with(|connection| *connection).unwrap_or_else(|_| task::try_id())
}

/// A result that is ready at once, or that comes from the pool.
pub(crate) enum PooledResult<T> {
    /// The result. `None` after it was taken.
    Done(Option<T>),
    /// The work waits for a permit, or runs.
    Pooled(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>),
}

/// The most threads of the pool that rest between two pieces. Beyond it work goes on without a rest: each thread that
/// rests is one of the runtime's 512 for blocking work, and whoever gets the permit needs one.
const MOST_RESTING: usize = 64;

static RESTING: AtomicUsize = AtomicUsize::new(0);

/// The turn of work that runs in the pool.
pub(crate) struct WorkTurn<'w> {
    client: ConnectionTask,
    /// `None` while the work waits for its next permit.
    permit: Cell<Option<Permit<ConnectionTask>>>,
    turns: &'w Arc<Turns<ConnectionTask>>,
    is_wanted: &'w dyn Fn() -> bool,
}

impl fmt::Debug for WorkTurn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkTurn").field("client", &self.client).finish_non_exhaustive()
    }
}

impl WorkTurn<'_> {
    /// Lets the others who wait work first, one piece each. Work of several pieces calls this between two. False after
    /// the future of the work was dropped.
    pub(crate) fn goes_on(&self) -> bool {
        if !(self.is_wanted)() {
            return false;
        }
        if RESTING.fetch_add(1, Relaxed) < MOST_RESTING {
            // The place in the queue is behind all who wait already, and is taken before the permit is free.
            let next = self.turns.wait(self.client);
            drop(self.permit.take());
            self.permit.set(Some(Handle::current().block_on(next)));
        }
        RESTING.fetch_sub(1, Relaxed);
        (self.is_wanted)()
    }
}

impl<T: Send + 'static> PooledResult<T> {
    /// A result that is ready.
    pub(crate) const fn done(result: T) -> Self {
        Self::Done(Some(result))
    }

    /// Runs `work` at once if it is about at most [`BRIEF`] bytes, otherwise in the pool.
    pub(crate) fn on_bytes(count: usize, work: impl FnOnce() -> T + Send + 'static) -> Self {
        if count <= BRIEF { Self::done(work()) } else { Self::pooled(|_| work()) }
    }

    /// Runs `work` in the pool.
    pub(crate) fn pooled(work: impl FnOnce(&WorkTurn<'_>) -> T + Send + 'static) -> Self {
        Self::Pooled(Box::pin(async {
            let lost = || Error::internal("the decoding of a request ended unexpectedly");
            let client = connection();
            let permit = PERMITS.wait(client).await;
            let (sender, receiver) = oneshot::channel();
            // The thread owns the permit. If the future is dropped meanwhile, the work still counts.
            drop(tokio::task::spawn_blocking(move || {
                let (permit, is_wanted) = (Cell::new(Some(permit)), || !sender.is_closed());
                let turn = WorkTurn { client, permit, turns: &PERMITS, is_wanted: &is_wanted };
                let result = work(&turn);
                drop(turn);
                // The send fails if the future was dropped.
                let _ = sender.send(result);
            }));
            receiver.await.map_err(|_| lost())
        }))
    }
}

impl<T: Unpin> Future for PooledResult<T> {
    type Output = Result<T, Error>;

    /// # Panics
    /// If it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(result) => {
                Poll::Ready(Ok(result.take().expect("a future is not polled after its end")))
            }
            Self::Pooled(future) => future.as_mut().poll(context),
        }
    }
}

/// What was written, and its reservation if it is long.
pub(crate) type Written<T> = (T, Option<ByteReservation>);

/// Writes something long in the pool. What is written is reserved in `reservation`, which comes back with it.
pub(crate) fn write_in_pool<T: Send + 'static>(
    reservation: ByteReservation,
    write: impl FnOnce(&mut LongWrite<'_>) -> Result<T, Error> + Send + 'static,
) -> PooledResult<Result<Written<T>, Error>> {
    PooledResult::pooled(move |turn| {
        let goes_on = || turn.goes_on();
        let mut long = LongWrite::new(reservation, &goes_on);
        let written = write(&mut long)?;
        Ok((written, Some(long.into_reservation())))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        thread::{self, ThreadId},
    };

    use inference::lock::Mutex;

    use super::*;

    #[tokio::test]
    async fn only_long_work_changes_its_thread() {
        let thread_of =
            async |count| PooledResult::<ThreadId>::on_bytes(count, || thread::current().id()).await.unwrap();
        assert_eq!(thread_of(BRIEF).await, thread::current().id());
        assert_ne!(thread_of(BRIEF + 1).await, thread::current().id());
    }

    #[tokio::test]
    async fn the_calls_of_a_connection_wait_as_one_client() {
        let of_connection = tokio::spawn(async {
            let own = connection();
            let call = tokio::spawn(in_connection(async { connection() })).await.unwrap();
            let other = tokio::spawn(async { connection() }).await.unwrap();
            (own, call, other)
        });
        let (own, call, other) = of_connection.await.unwrap();
        assert!(own.is_some() && other.is_some());
        assert_eq!(own, call);
        assert_ne!(own, other);
    }

    #[tokio::test]
    async fn cancelled_work_is_told_to_stop_or_never_begins() {
        let (started, has_started) = mpsc::channel();
        let (ended, has_ended) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let work = PooledResult::pooled(move |turn| {
            started.send(turn.goes_on()).unwrap();
            may_go_on.recv().unwrap();
            ended.send(turn.goes_on()).unwrap();
        });
        let work = tokio::spawn(work);
        let wanted_at_first = tokio::task::spawn_blocking(move || has_started.recv().unwrap()).await.unwrap();
        work.abort();
        assert!(work.await.unwrap_err().is_cancelled());
        go_on.send(()).unwrap();
        let wanted_at_last = tokio::task::spawn_blocking(move || has_ended.recv().unwrap()).await.unwrap();
        assert_eq!((wanted_at_first, wanted_at_last), (true, false));

        let witness = Arc::new(());
        let kept = witness.clone();
        drop(PooledResult::pooled(move |_| drop(kept)));
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[tokio::test]
    async fn who_waits_works_between_two_pieces_of_other_work() {
        let turns = Turns::new(1);
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| {
            let order = order.clone();
            move || order.lock().push(what)
        };
        let permit = Cell::new(Some(turns.wait(None).await));
        let others = [note("second"), note("third")].map(|note| {
            let turn = turns.wait(task::try_id());
            tokio::spawn(async move {
                let _permit = turn.await;
                note();
            })
        });
        let (own, first, last) = (turns.clone(), note("first"), note("last"));
        let work = tokio::task::spawn_blocking(move || {
            let turn = WorkTurn { client: None, permit, turns: &own, is_wanted: &|| true };
            first();
            assert!(turn.goes_on());
            last();
        });
        work.await.unwrap();
        for other in others {
            other.await.unwrap();
        }
        assert_eq!(*order.lock(), ["first", "second", "third", "last"]);
    }

    #[tokio::test]
    async fn work_that_panics_gives_an_error_and_releases_its_permit() {
        for _ in 0..100 {
            let error = PooledResult::<()>::pooled(|_| panic!("on purpose")).await.unwrap_err();
            assert_eq!(error.message, "the decoding of a request ended unexpectedly");
        }
        assert_eq!(PooledResult::pooled(|_| 5).await, Ok(5));
    }
}
