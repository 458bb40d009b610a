//! The threads on which the functions of a response cache run, and the bounded queue in front of them.
use std::{
    convert::Infallible,
    future::ready,
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use inference::{cache::CacheFuture, lock::Mutex};
use tokio::sync::oneshot;
use vocabulary::Error;

/// How many calls of a cache run at the same time. A cache in memory is busy with copying; a cache in the network
/// waits.
const THREADS: usize = 4;
/// How many calls wait for a thread. Beyond that, a look-up finds nothing and a response is not stored.
const MOST_WAITING: usize = 256;

type CacheCall<C> = Box<dyn FnOnce(&C) + Send>;

/// Calls `C`, which may block, on a few threads. Dropping this waits for the calls that have begun, and for the end of
/// `C`, but not longer than a limit. If a call takes longer, its thread keeps `C`.
#[derive(Debug)]
pub(super) struct CacheWorkers<C> {
    calls: Option<SyncSender<CacheCall<C>>>,
    threads: Vec<JoinHandle<()>>,
    /// Has no sender any more when all threads have ended.
    ended: Mutex<Receiver<Infallible>>,
    limit: Duration,
}

impl<C: Send + Sync + 'static> CacheWorkers<C> {
    /// Starts the threads. The end waits for calls that have begun, but not longer than `limit`.
    pub(super) fn start(cache: C, limit: Duration) -> io::Result<Self> {
        let (calls, waiting) = sync_channel(MOST_WAITING);
        let (waiting, cache) = (Arc::new(Mutex::new(waiting)), Arc::new(cache));
        let (running, ended) = mpsc::channel();
        let threads = (0..THREADS).map(|_| {
            let (waiting, cache, running) = (waiting.clone(), cache.clone(), running.clone());
            let work = move || {
                work(&waiting, &*cache);
                drop(cache);
                // The end of the cache has been waited for as well.
                drop(running);
            };
            thread::Builder::new().name("cache".into()).spawn(work)
        });
        let threads = threads.collect::<io::Result<_>>()?;
        Ok(Self { threads, calls: Some(calls), ended: Mutex::new(ended), limit })
    }

    /// Has a thread do `call`, unless the future has been dropped by then.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&C) -> Result<T, Error> + Send + 'static,
    ) -> CacheFuture<T> {
        self.queue(call, oneshot::Sender::is_closed)
    }

    /// Has a thread do `call`, even if the future is dropped before.
    pub(super) fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&C) -> Result<T, Error> + Send + 'static,
    ) -> CacheFuture<T> {
        self.queue(call, |_| false)
    }

    fn queue<T: Send + 'static>(
        &self,
        call: impl FnOnce(&C) -> Result<T, Error> + Send + 'static,
        is_void: fn(&oneshot::Sender<Result<T, Error>>) -> bool,
    ) -> CacheFuture<T> {
        let (answer, answered) = oneshot::channel();
        let call: CacheCall<C> = Box::new(move |cache| {
            if !is_void(&answer) {
                let _ = answer.send(call(cache));
            }
        });
        if self.calls.as_ref().is_none_or(|calls| calls.try_send(call).is_err()) {
            return Box::pin(ready(Err(Error::exhausted("the cache has too much to do"))));
        }
        Box::pin(async { answered.await.unwrap_or_else(|_| Err(Error::internal("the cache has panicked"))) })
    }
}

fn work<C>(waiting: &Mutex<Receiver<CacheCall<C>>>, cache: &C) {
    loop {
        let call = waiting.lock().recv();
        match call {
            Ok(call) => call(cache),
            Err(_) => return,
        }
    }
}

impl<C> Drop for CacheWorkers<C> {
    fn drop(&mut self) {
        self.calls = None;
        if let Err(RecvTimeoutError::Timeout) = self.ended.get_mut().recv_timeout(self.limit) {
            log::error!("a call of the response cache does not return; the cache is left as it is");
            return;
        }
        for thread in self.threads.drain(..) {
            // The panic of a thread has already been logged.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        task::{Context, Poll, Waker},
    };

    use super::*;

    const FOR_EVER: Duration = Duration::from_secs(3600);

    #[test]
    fn a_call_that_does_not_return_keeps_the_cache_and_does_not_hold_up_the_end() {
        let cache = Arc::new(());
        let workers = CacheWorkers::start(cache.clone(), Duration::ZERO).unwrap();
        let ((go_on, stuck), (begun, has_begun)) = (mpsc::channel::<()>(), mpsc::channel());
        let call = workers.run(move |_| {
            begun.send(()).unwrap();
            let _ = stuck.recv();
            Ok(())
        });
        has_begun.recv().unwrap();
        drop((call, workers));
        assert_eq!(Arc::strong_count(&cache), 2, "the call uses the cache");
        drop(go_on);
        while Arc::strong_count(&cache) > 1 {
            thread::yield_now();
        }
    }

    #[test]
    fn a_cache_whose_workers_are_blocked_refuses_calls_at_once() {
        let workers = CacheWorkers::start((), FOR_EVER).unwrap();
        let (go_on, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        let block = || {
            let stuck = stuck.clone();
            workers.ask(move |()| {
                let _ = stuck.lock().recv();
                Ok(())
            })
        };
        let mut context = Context::from_waker(Waker::noop());
        let mut calls: Vec<_> = (0..THREADS + MOST_WAITING).map(|_| block()).collect();
        let refused =
            (0..=THREADS).map(|_| block()).filter_map(|mut call| match call.as_mut().poll(&mut context) {
                Poll::Ready(Err(error)) => Some(error.message),
                Poll::Ready(Ok(())) => panic!("the cache is stuck"),
                Poll::Pending => None,
            });
        assert!(refused.into_iter().any(|message| message == "the cache has too much to do"));
        calls.truncate(1);
        drop(go_on);
        drop(workers);
        assert!(matches!(calls[0].as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    }

    #[test]
    fn a_cancelled_cache_call_is_not_made() {
        let workers = CacheWorkers::start(Mutex::new(0), FOR_EVER).unwrap();
        let (go_on, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        let blocking: Vec<_> = (0..THREADS)
            .map(|_| {
                let stuck = stuck.clone();
                workers.ask(move |_: &Mutex<i32>| {
                    let _ = stuck.lock().recv();
                    Ok(())
                })
            })
            .collect();
        drop(workers.ask(|made: &Mutex<i32>| {
            *made.lock() += 1;
            Ok(())
        }));
        let mut look = workers.ask(|made: &Mutex<i32>| Ok(*made.lock()));
        drop(go_on);
        drop(workers);
        drop(blocking);
        let looked = look.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(looked, Poll::Ready(Ok(0))));
    }
}
