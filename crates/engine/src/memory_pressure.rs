//! While requests hold much memory, what the process frees goes back to the system at once. What the allocators have kept
//! goes back when there have been no large requests for a while.
use std::{future::pending, sync::Arc, time::Duration};

use inference::MemoryFunctions;
use tokio::{
    runtime::Handle,
    sync::watch,
    task::{JoinSet, spawn_blocking, yield_now},
    time::{Instant, sleep_until},
};
use vocabulary::{ByteBudget, FEW_BYTES};

use crate::memory_phase::MemoryPhase;

/// How long there are no large requests before freed memory is returned. What the next one needs is allocated anew then.
const REST: Duration = Duration::from_secs(5);

/// A thread that finds tasks wakes another one if there are more.
const TASKS_PER_THREAD: usize = 4;

/// The budget of the requests. A task tells the allocators when its pressure begins and ends, and returns freed memory.
/// Must be called in a tokio runtime. The task ends with the budget, or with the runtime.
pub(crate) fn observed_budget(limit: usize, functions: Option<MemoryFunctions>) -> Arc<ByteBudget> {
    let Some(MemoryFunctions { memory_is_scarce, return_all, .. }) = functions else {
        return ByteBudget::new(limit);
    };
    let (passed, mut was_passed) = watch::channel(());
    let budget = ByteBudget::observed(limit, move || {
        passed.send_replace(());
    });
    let observed = Arc::downgrade(&budget);
    // One task tells all, so that what is told last is what holds.
    tokio::spawn(async move {
        let mut scarcity: Option<MemoryPhase> = None;
        // When freed memory is returned, if there are no large requests until then.
        let mut rest_ends = None;
        loop {
            // Both may be dropped while they wait.
            tokio::select! {
                passed = was_passed.changed() => {
                    // An error means that the budget has ended, and with it the closure that sends.
                    if passed.is_err() {
                        break;
                    }
                }
                () = until(rest_ends) => {
                    rest_ends = None;
                    // The end of a large request that runs now begins another rest.
                    let is_large = observed.upgrade().is_none_or(|budget| budget.used() > FEW_BYTES);
                    if !is_large {
                        return_memory(return_all).await;
                    }
                    continue;
                }
            }
            let Some(budget) = observed.upgrade() else { break };
            rest_ends = (budget.used() <= FEW_BYTES).then(|| Instant::now() + REST);
            scarcity = match (budget.pressure(scarcity.is_some()), scarcity) {
                (true, None) => Some(MemoryPhase::begin(memory_is_scarce)),
                (true, scarcity) => scarcity,
                (false, _) => None,
            };
        }
    });
    budget
}

/// Returns freed memory, and gives the threads of the runtime something to do: those that wake return what they keep
/// before they rest again.
async fn return_memory(return_all: fn()) {
    if let Err(error) = spawn_blocking(return_all).await {
        log::error!("freed memory was not returned to the system: {error}");
        return;
    }
    let tasks = Handle::current().metrics().num_workers() * TASKS_PER_THREAD;
    let woken: JoinSet<()> = (0..tasks).map(|_| yield_now()).collect();
    woken.join_all().await;
}

/// Ends at that time; never without one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};

    use super::*;

    static TIMES: AtomicI32 = AtomicI32::new(0);
    static CALLS: AtomicU32 = AtomicU32::new(0);

    const COUNTED: Option<MemoryFunctions> = Some(MemoryFunctions {
        memory_is_scarce: |begins| {
            TIMES.fetch_add(if begins { 1 } else { -1 }, SeqCst);
            CALLS.fetch_add(1, SeqCst);
        },
        models_change: |_| {},
        return_freed: || {},
        return_all: || {},
    });

    async fn after_calls(calls: u32) -> i32 {
        while CALLS.load(SeqCst) < calls {
            tokio::task::yield_now().await;
        }
        TIMES.load(SeqCst)
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn the_allocators_are_told_when_pressure_begins_and_ends() {
        runtime().block_on(async {
            let budget = observed_budget(100, COUNTED);
            let held = budget.reserve(51).unwrap();
            assert_eq!(after_calls(1).await, 1);
            drop(budget.reserve(40).unwrap());
            drop(held);
            assert_eq!(after_calls(2).await, 0);
            let held = budget.reserve(100).unwrap();
            assert_eq!(after_calls(3).await, 1);
            drop((held, budget));
            assert_eq!(after_calls(4).await, 0);
        });

        // A program that has the library may keep responses longer than the server.
        let runtime = runtime();
        let (budget, held) = runtime.block_on(async {
            let budget = observed_budget(100, COUNTED);
            let held = budget.reserve(100).unwrap();
            assert_eq!(after_calls(5).await, 1);
            (budget, held)
        });
        drop(runtime);
        assert_eq!((CALLS.load(SeqCst), TIMES.load(SeqCst)), (6, 0));
        drop((held, budget));
    }

    static RETURNS: AtomicU32 = AtomicU32::new(0);

    const RETURNING: Option<MemoryFunctions> = Some(MemoryFunctions {
        memory_is_scarce: |_| {},
        models_change: |_| {},
        return_freed: || {},
        return_all: || {
            RETURNS.fetch_add(1, SeqCst);
        },
    });

    #[tokio::test(start_paused = true)]
    async fn freed_memory_is_returned_once_after_large_requests_have_rested() {
        let budget = observed_budget(1 << 30, RETURNING);
        let returns_after = async |time| {
            tokio::time::sleep(time).await;
            RETURNS.load(SeqCst)
        };
        drop(budget.reserve(FEW_BYTES).unwrap());
        assert_eq!(returns_after(2 * REST).await, 0, "small requests leave nothing");
        for _ in 0..3 {
            drop(budget.reserve(2 * FEW_BYTES).unwrap());
            assert_eq!(returns_after(REST / 2).await, 0, "the next one needs the memory");
        }
        let large = budget.reserve(2 * FEW_BYTES).unwrap();
        assert_eq!(returns_after(2 * REST).await, 0, "it is still there");
        drop(large);
        assert_eq!(returns_after(REST / 2).await, 0);
        assert_eq!(returns_after(REST).await, 1);
        assert_eq!(returns_after(3 * REST).await, 1);
    }
}
