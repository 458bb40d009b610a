//! While requests hold much memory, what the process frees goes back to the system at once.
use std::sync::Arc;

use inference::MemoryFunctions;
use tokio::sync::watch;
use vocabulary::ByteBudget;

use crate::memory_phase::MemoryPhase;

/// The budget of the requests. A task tells the allocators when its pressure begins and ends. Must be called in a tokio
/// runtime. The task ends with the budget, or with the runtime.
pub(crate) fn observed_budget(limit: usize, functions: Option<MemoryFunctions>) -> Arc<ByteBudget> {
    let Some(MemoryFunctions { memory_is_scarce, .. }) = functions else { return ByteBudget::new(limit) };
    let (passed, mut was_passed) = watch::channel(());
    let budget = ByteBudget::observed(limit, move || {
        passed.send_replace(());
    });
    let observed = Arc::downgrade(&budget);
    // One task tells all, so that what is told last is what holds.
    tokio::spawn(async move {
        let mut scarcity: Option<MemoryPhase> = None;
        // An error means that the budget has ended, and with it the closure that sends.
        while was_passed.changed().await.is_ok() {
            let Some(budget) = observed.upgrade() else { break };
            scarcity = match (budget.pressure(scarcity.is_some()), scarcity) {
                (true, None) => Some(MemoryPhase::begin(memory_is_scarce)),
                (true, scarcity) => scarcity,
                (false, _) => None,
            };
        }
    });
    budget
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
    });

    async fn until(calls: u32) -> i32 {
        while CALLS.load(SeqCst) < calls {
            tokio::task::yield_now().await;
        }
        TIMES.load(SeqCst)
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn the_allocators_are_told_when_pressure_begins_and_ends() {
        runtime().block_on(async {
            let budget = observed_budget(100, COUNTED);
            let held = budget.reserve(51).unwrap();
            assert_eq!(until(1).await, 1);
            drop(budget.reserve(40).unwrap());
            drop(held);
            assert_eq!(until(2).await, 0);
            let held = budget.reserve(100).unwrap();
            assert_eq!(until(3).await, 1);
            drop((held, budget));
            assert_eq!(until(4).await, 0);
        });

        // A program that has the library may keep responses longer than the server.
        let runtime = runtime();
        let (budget, held) = runtime.block_on(async {
            let budget = observed_budget(100, COUNTED);
            let held = budget.reserve(100).unwrap();
            assert_eq!(until(5).await, 1);
            (budget, held)
        });
        drop(runtime);
        assert_eq!((CALLS.load(SeqCst), TIMES.load(SeqCst)), (6, 0));
        drop((held, budget));
    }
}
