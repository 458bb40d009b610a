//! Threads that answer questions which may take long. There are few of them, and they end when nothing is asked.
use std::{collections::VecDeque, sync::Arc, thread};

use inference::lock::Mutex;
use vocabulary::Error;

/// The most threads of a worker.
const MOST_THREADS: usize = 8;

/// The most questions that wait for a thread.
const MOST_WAITING: usize = 1000;

type Question = Box<dyn FnOnce() + Send>;

/// See the module documentation. Clones share the threads.
#[derive(Clone, Default)]
pub(crate) struct QuestionThreads(Arc<Mutex<QuestionQueue>>);

#[derive(Default)]
struct QuestionQueue {
    waiting: VecDeque<Question>,
    threads: usize,
}

impl QuestionThreads {
    /// Answers a question on one of the threads.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if too many questions wait; INTERNAL if there is no thread.
    pub(crate) fn ask(&self, question: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let mut queue = self.0.lock();
        if queue.waiting.len() >= MOST_WAITING {
            let text =
                format!("{MOST_WAITING} questions of the model wait for their answers, which is the limit");
            return Err(Error::exhausted(text));
        }
        queue.waiting.push_back(Box::new(question));
        if queue.threads >= MOST_THREADS {
            return Ok(());
        }
        queue.threads += 1;
        drop(queue);
        let threads = self.clone();
        let started = thread::Builder::new().name("python-readiness".into()).spawn(move || threads.run());
        let Err(error) = started else { return Ok(()) };
        let mut queue = self.0.lock();
        queue.threads -= 1;
        if queue.threads > 0 {
            // The other threads answer it.
            return Ok(());
        }
        let unanswered = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(unanswered);
        Err(Error::internal(format!("failed to start a thread: {error}")))
    }

    fn run(&self) {
        let counted = CountedThread(self);
        while let Some(question) = self.next() {
            question();
        }
        std::mem::forget(counted);
    }

    /// The next question. `None` if there is none: then the thread does not count any more.
    fn next(&self) -> Option<Question> {
        let mut queue = self.0.lock();
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.threads -= 1;
        }
        next
    }
}

/// Leaves the count of threads right if a question panics.
struct CountedThread<'a>(&'a QuestionThreads);

impl Drop for CountedThread<'_> {
    fn drop(&mut self) {
        self.0.0.lock().threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn few_threads_answer_all_questions_and_too_many_are_refused() {
        let threads = QuestionThreads::default();
        let (begun, begins) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (done, ends) = mpsc::channel();
        let ask = || {
            let (begun, gate, done) = (begun.clone(), gate.clone(), done.clone());
            threads.ask(move || {
                begun.send(thread::current().id()).unwrap();
                // Each question waits for a permit.
                gate.lock().recv().unwrap();
                done.send(()).unwrap();
            })
        };
        (0..MOST_THREADS).for_each(|_| ask().unwrap());
        let first: std::collections::HashSet<_> = (0..MOST_THREADS).map(|_| begins.recv().unwrap()).collect();
        assert_eq!(first.len(), MOST_THREADS);
        (0..MOST_WAITING).for_each(|_| ask().unwrap());
        let refusal = ask().unwrap_err();
        assert_eq!(
            refusal.with_code(),
            "Resource exhausted: 1000 questions of the model wait for their answers, which is the limit"
        );
        (0..MOST_THREADS + MOST_WAITING).for_each(|_| go.send(()).unwrap());
        (0..MOST_THREADS + MOST_WAITING).for_each(|_| ends.recv().unwrap());
        let later: std::collections::HashSet<_> = (0..MOST_WAITING).map(|_| begins.recv().unwrap()).collect();
        assert!(later.is_subset(&first), "no other thread has started");
    }
}
