//! What a request holds is free before its client is woken: its inputs, and the memory that it offers for outputs.
//! The client may then unregister its regions of shared memory and register them anew.
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use bytes::Bytes;
use inference::{OutputPlacement, Request, RequestInputs, Response, ResponseStream, backend::Execution};
use testing::{Gate, MemoryCache};
use vocabulary::{DataType, Error, MemoryKind, Name, Tensor};

use crate::{
    caching::{cached, serve_with},
    ensembles::chain,
    support::{ECHO, Native, Repository, TIMEOUT, ask, echo, request, until},
};

/// Memory of a request. Counts its end.
#[derive(Debug)]
struct CountedMemory(Arc<AtomicUsize>);

impl AsRef<[u8]> for CountedMemory {
    fn as_ref(&self) -> &[u8] {
        &[7]
    }
}

impl OutputPlacement for CountedMemory {
    fn placement(
        &self,
        _: Option<&Name>,
        _: Option<usize>,
        _: (MemoryKind, i64),
    ) -> Result<(MemoryKind, i64), Error> {
        Ok((MemoryKind::Cpu, 0))
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A request of two memories, which `freed` counts.
fn counted(freed: &Arc<AtomicUsize>) -> Request {
    let bytes = Bytes::from_owner(CountedMemory(freed.clone()));
    let input = Tensor::new("IN".into(), DataType::Uint8, [1, 1][..].into(), bytes);
    Request {
        inputs: RequestInputs::Tensors(vec![input]),
        output_placement: Some(Arc::new(CountedMemory(freed.clone()))),
        ..Request::default()
    }
}

/// How many memories were free when the client was woken first. `UNSEEN` before that.
struct FreedAtWake {
    freed: Arc<AtomicUsize>,
    seen: AtomicUsize,
}

const UNSEEN: usize = usize::MAX;

impl Wake for FreedAtWake {
    fn wake(self: Arc<Self>) {
        let _ = self.seen.compare_exchange(UNSEEN, self.freed.load(SeqCst), SeqCst, SeqCst);
    }
}

/// Lets the client wait, ends the request with `end`, and checks what was free when the client was woken.
async fn check(mut stream: ResponseStream, freed: Arc<AtomicUsize>, end: impl FnOnce()) {
    let client = Arc::new(FreedAtWake { freed, seen: AtomicUsize::new(UNSEEN) });
    let waker = Waker::from(client.clone());
    assert!(stream.poll_item(&mut Context::from_waker(&waker)).is_pending());
    end();
    until("the client is woken", || client.seen.load(SeqCst) != UNSEEN).await;
    assert_eq!(client.seen.load(SeqCst), 2, "the client was woken before the memory was free");
}

/// Echoes, and frees each request before its answer, as the built-in backends do. Waits for `gate`.
fn freeing_behind(gate: &Arc<Gate>) -> Native {
    let gate = gate.clone();
    let answer = |execution: Execution| {
        let input = execution.request.input("IN").unwrap();
        let bytes = input.host().unwrap().contiguous().to_vec();
        let output = Tensor::new("OUT".into(), input.datatype(), input.shape().into(), bytes);
        execution.complete(Response::of(vec![output]));
    };
    echo().execute(move |_, batch| {
        gate.pass();
        batch.executions.into_iter().for_each(answer);
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_an_ensemble_is_free_when_its_client_has_the_answer() {
    let (gate, freed) = (Gate::shut(), Arc::<AtomicUsize>::default());
    let ensemble = chain(&["echo", "echo"], "");
    let repository = Repository::new().model("echo", ECHO, &["1"]).model("pair", &ensemble, &["1"]);
    let engine = repository.serve(freeing_behind(&gate)).await;
    engine.load_models().await.unwrap();
    let stream = engine.model("pair", None).unwrap().infer(counted(&freed)).unwrap();
    check(stream, freed, || gate.open()).await;
}

#[tokio::test]
async fn a_request_that_gets_the_answer_of_an_equal_one_is_free_when_its_client_has_it() {
    let (gate, freed) = (Gate::shut(), Arc::<AtomicUsize>::default());
    let engine =
        serve_with(cached("").options(), freeing_behind(&gate), &Arc::new(MemoryCache::default())).await;
    let leader = ask(&engine, "m", 7);
    assert!(gate.wait_for(1, TIMEOUT));
    let stream = engine.model("m", None).unwrap().infer(counted(&freed)).unwrap();
    check(stream, freed, || gate.open()).await;
    drop(leader);
}

#[tokio::test]
async fn a_request_that_has_waited_too_long_is_free_when_its_client_has_the_error() {
    let (gate, freed) = (Gate::shut(), Arc::<AtomicUsize>::default());
    let queue = "dynamic_batching { default_queue_policy { default_timeout_microseconds: 50000 } }";
    let config = format!("{ECHO} {queue}");
    let repository = Repository::new().model("m", &config, &["1"]);
    let engine = repository.serve(freeing_behind(&gate)).await;
    let running = engine
        .model("m", None)
        .unwrap()
        .infer(Request { timeout: Some(Duration::from_secs(3600)), ..request(1) })
        .unwrap();
    assert!(gate.wait_for(1, TIMEOUT));
    let stream = engine.model("m", None).unwrap().infer(counted(&freed)).unwrap();
    check(stream, freed, || ()).await;
    gate.open();
    drop(running);
}
