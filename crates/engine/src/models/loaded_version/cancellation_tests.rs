//! Tests of cancellations that race with other events: each request ends once, and no cancelled request continues to
//! wait.
use std::{num::NonZeroUsize, sync::mpsc, thread};

use config::{ModelConfig, Scheduling};
use inference::{
    Request, Response, ResponseStream,
    backend::{BackendInstance, Batch, BuiltInstance, InstanceSpec},
};
use scheduling::{
    DirectStrategy, DynamicBatching, QueuePolicy, SequenceBatching, SequenceStrategy, TimeoutAction,
};
use vocabulary::{ErrorCode, FailureReason};

use super::{
    sequence_tests::{ask, direct, oldest, sequences, start, step},
    tests::config,
    *,
};

/// The random number generator `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// Answers requests. Reschedules each request of an iterative model once, if the scheduler accepts it.
#[derive(Clone)]
struct RunsTwice {
    iterative: bool,
}

impl BackendModel for RunsTwice {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::ThreadBound(Box::new(self.clone())))
    }
}

impl BackendInstance for RunsTwice {
    fn execute(&mut self, batch: Batch) {
        for execution in batch.executions {
            let begins = execution
                .request
                .input("START")
                .is_some_and(|start| start.host().unwrap().contiguous()[0] != 0);
            if !(self.iterative && begins) {
                execution.responder.clone().complete(Response::default());
            } else if let Err((error, execution)) = execution.reschedule() {
                execution.responder.clone().fail(error);
            }
        }
    }
}

fn request() -> Request {
    super::tests::request(1)
}

/// A thread that sends and cancels requests at random. Returns how many of its requests succeeded and how many failed.
fn client(model: &Arc<LoadedVersion>, seed: u64, is_sequence: bool) -> [u64; 2] {
    let mut random = Random(seed);
    let mut streams = Vec::new();
    for number in 1..=1_000 {
        let sequence = step(seed * 1_000_000 + number, true, random.below(2) == 0);
        let stream = if is_sequence { ask(model, 1, sequence) } else { model.model().infer(request()) };
        let stream = stream.expect("there is no limit");
        match random.below(4) {
            0 => stream.cancel(),
            1 => drop(stream.canceller()),
            _ => {}
        }
        streams.push(stream);
        if random.below(3) == 0 {
            let chosen = usize::try_from(random.below(streams.len() as u64)).unwrap();
            streams[chosen].cancel();
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut ends = [0, 0];
        for mut stream in streams {
            let item = stream.next().await.expect("each request is answered");
            assert!(item.last && stream.next().await.is_none(), "and once");
            if let Err(error) = &item.result {
                assert_eq!(error.code, ErrorCode::Cancelled);
            }
            ends[usize::from(item.result.is_err())] += 1;
        }
        ends
    })
}

#[test]
fn every_request_ends_once_however_it_is_cancelled() {
    let policy = QueuePolicy {
        default_timeout: Some(Duration::from_micros(50)),
        timeout_action: TimeoutAction::Delay,
        allow_timeout_override: true,
        max_queue_size: None,
    };
    let dynamic = DynamicBatching {
        max_batch_size: 8,
        preferred_batch_sizes: [8].into(),
        max_queue_delay: Duration::from_micros(100),
        default_queue_policy: policy,
        ..DynamicBatching::default()
    };
    let of_sequences = |iterative, batching| {
        let max_sequence_idle = Duration::from_micros(100);
        (iterative, sequences(SequenceBatching { iterative, max_sequence_idle, ..batching }))
    };
    let settings = [
        (false, config(Scheduling::Unbatched)),
        (false, config(Scheduling::Dynamic(dynamic))),
        of_sequences(false, direct()),
        of_sequences(true, direct()),
        of_sequences(false, oldest()),
        of_sequences(true, oldest()),
    ];
    for (iterative, config) in settings {
        let is_sequence = matches!(config.scheduling, Scheduling::Sequence(_));
        let model = start(config, RunsTwice { iterative }, 2);
        let clients: Vec<_> = (1..=3)
            .map(|seed| {
                let model = model.clone();
                thread::spawn(move || client(&model, seed, is_sequence))
            })
            .collect();
        let ends = clients.into_iter().map(|client| client.join().unwrap());
        let [well, cancelled] = ends.fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
        assert_eq!((well + cancelled, model.work().workload().requests, model.in_flight()), (3_000, 0, 0));
        assert_eq!(model.statistics().totals.success.count, well);
        assert_eq!(model.record().failures(FailureReason::Cancelled), cancelled);
        model.close();
    }
}

/// Holds its first batch until the test lets it continue.
struct Held(Arc<Mutex<mpsc::Receiver<()>>>);

impl BackendModel for Held {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::ThreadBound(Box::new(Self(self.0.clone()))))
    }
}

impl BackendInstance for Held {
    fn execute(&mut self, batch: Batch) {
        let _ = self.0.lock().recv();
        batch.executions.into_iter().for_each(|execution| {
            execution.responder.clone().complete(Response::default());
        });
    }
}

#[tokio::test]
async fn cancelling_makes_room_in_a_full_queue_at_once() {
    let policy = QueuePolicy { max_queue_size: NonZeroUsize::new(2), ..QueuePolicy::default() };
    let dynamic = DynamicBatching { default_queue_policy: policy, ..DynamicBatching::default() };
    let (go_on, held) = mpsc::channel();
    let model = start(config(Scheduling::Dynamic(dynamic)), Held(Arc::new(Mutex::new(held))), 1);
    let running = model.model().infer(request()).unwrap();
    for _ in 0..100 {
        let waiting = [model.model().infer(request()).unwrap(), model.model().infer(request()).unwrap()];
        assert!(model.model().infer(request()).is_err(), "the queue is full");
        waiting.iter().for_each(ResponseStream::cancel);
        assert_eq!(model.work().workload().requests, 0);
        for stream in waiting {
            assert_eq!(stream.only().await.unwrap_err().code, ErrorCode::Cancelled);
        }
    }
    drop(go_on);
    running.only().await.unwrap();
    model.close();
}

/// Reschedules each request after its first execution. Notifies the test just before.
struct Returns(mpsc::Sender<()>);

impl BackendModel for Returns {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::ThreadBound(Box::new(Self(self.0.clone()))))
    }
}

impl BackendInstance for Returns {
    fn execute(&mut self, batch: Batch) {
        for (number, execution) in batch.executions.into_iter().enumerate() {
            if number > 0 {
                execution.responder.clone().complete(Response::default());
                continue;
            }
            self.0.send(()).unwrap();
            if let Err((error, execution)) = execution.reschedule() {
                execution.responder.clone().fail(error);
            }
        }
    }
}

/// A rescheduled request waits for requests that cannot arrive. Only its cancellation ends the wait.
#[tokio::test]
async fn a_cancellation_is_not_missed_by_a_request_that_comes_back() {
    let strategy = SequenceStrategy::Direct(DirectStrategy {
        max_queue_delay: Duration::from_secs(3_600),
        minimum_slot_utilization: 1.0,
    });
    let batching = SequenceBatching { strategy, max_batch_size: 2, iterative: true, ..direct() };
    let (returning, returns) = mpsc::channel();
    let model = start(sequences(batching), Returns(returning), 1);
    for round in 0..500_u64 {
        let comes_back = ask(&model, 1, step(2 * round + 1, true, true)).unwrap();
        let company = ask(&model, 1, step(2 * round + 2, true, true)).unwrap();
        returns.recv().unwrap();
        for _ in 0..round % 50 * 20 {
            std::hint::spin_loop();
        }
        comes_back.cancel();
        assert_eq!(comes_back.only().await.unwrap_err().code, ErrorCode::Cancelled);
        company.only().await.unwrap();
    }
    assert_eq!((model.work().workload().requests, model.in_flight()), (0, 0));
    model.close();
}
