//! Tests of warm-up samples, from the configuration to the execution.
use std::{num::NonZeroU32, sync::mpsc};

use bytes::Bytes;
use config::{Scheduling, Warmup, WarmupData, WarmupInput};
use inference::{
    ModelRunner, Response,
    backend::{BackendModel, BuiltInstance, InstanceSpec},
};
use testing::model_parts::{config, instance};
use vocabulary::DataType;

use super::*;
use crate::{Executor, ExecutorParts};

/// Reports the inputs of each request of each execution. Fails requests whose first byte is 9.
struct ReportsInputs(mpsc::Sender<Vec<Vec<Vec<u8>>>>);

impl BackendModel for ReportsInputs {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::ThreadBound(Box::new(Self(self.0.clone()))))
    }
}

impl BackendInstance for ReportsInputs {
    fn execute(&mut self, batch: Batch) {
        let inputs = |execution: &Execution| {
            execution
                .request
                .tensors()
                .iter()
                .map(|tensor| tensor.host().unwrap().contiguous().to_vec())
                .collect()
        };
        let seen: Vec<Vec<Vec<u8>>> = batch.executions.iter().map(inputs).collect();
        for (execution, inputs) in batch.executions.into_iter().zip(&seen) {
            match inputs[0].first() {
                Some(9) => execution.responder.clone().fail(Error::internal("An Error Occurred")),
                _ => execution.responder.clone().complete(Response::default()),
            }
        }
        let _ = self.0.send(seen);
    }
}

fn warmup(name: &str, batch_size: u32, count: u32, inputs: Vec<WarmupInput>) -> Warmup {
    Warmup { name: name.into(), batch_size, count: NonZeroU32::new(count).unwrap(), inputs }
}

fn input(name: &str, dims: &[i64], data: WarmupData) -> WarmupInput {
    WarmupInput { name: name.into(), datatype: DataType::Uint8, dims: dims.into(), data }
}

/// Loads a model with those samples. Returns what the model received before it was ready, or why the load failed.
fn load(warmups: Vec<Warmup>, passive: bool) -> Result<Vec<Vec<Vec<Vec<u8>>>>, String> {
    let warmup_files = WarmupFiles::new(|file| match file {
        "raw" => Ok(Bytes::from_static(b"\x09\x08\x07")),
        "none" => Err(Error::internal("failed to open text file")),
        _ => panic!("no sample that is built names {file}"),
    });
    let (sender, seen) = mpsc::channel();
    let mut typed = config(Scheduling::Unbatched);
    typed.warmups = warmups;
    let instances = vec![InstanceSpec { passive, ..instance("m_0") }];
    let parts = ExecutorParts::for_test(typed, ReportsInputs(sender), instances);
    let parts = ExecutorParts { warmup_files, ..parts };
    let counters = parts.counters.clone();
    let executor = Executor::start(parts).map_err(|error| error.to_string())?;
    let before_ready: Vec<_> = seen.try_iter().collect();
    assert_eq!(counters.read().execution_count, 0, "warm-up is no traffic");
    executor.close();
    Ok(before_ready)
}

#[test]
fn samples_run_in_order_each_as_often_as_it_says() {
    let zero = warmup("zero", 2, 1, vec![input("IN", &[3], WarmupData::Zero)]);
    let skipped = warmup("skipped", 0, 1, vec![]);
    let again = warmup(
        "again",
        1,
        2,
        vec![input("IN", &[2], WarmupData::Zero), input("EXTRA", &[1], WarmupData::Zero)],
    );
    let row = vec![vec![0; 3]];
    let with_control = vec![vec![vec![0; 2], vec![0]]];
    let expected = vec![vec![row.clone(), row], with_control.clone(), with_control];
    assert_eq!(load(vec![zero, skipped, again], false).unwrap(), expected);
}

#[test]
fn passive_instances_are_not_warmed() {
    assert!(
        load(vec![warmup("zero", 1, 1, vec![input("IN", &[3], WarmupData::Zero)])], true).unwrap().is_empty()
    );
}

#[test]
fn random_bytes_are_the_same_every_time() {
    let random =
        || load(vec![warmup("random", 1, 1, vec![input("IN", &[9], WarmupData::Random)])], false).unwrap();
    let first = random();
    assert_eq!(first, random());
    assert!(first[0][0][0].iter().any(|&byte| byte != first[0][0][0][0]));
}

#[test]
fn a_sample_that_fails_fails_the_load() {
    let file = warmup("file", 2, 1, vec![input("IN", &[2], WarmupData::File("raw".into()))]);
    assert_eq!(
        load(vec![file], false).unwrap_err(),
        "failed to run warmup sample 'file': An Error Occurred; An Error Occurred; "
    );
}

#[test]
fn a_sample_is_a_proper_request() {
    let refused = |inputs| load(vec![warmup("s", 1, 1, inputs)], false).unwrap_err();
    assert!(refused(vec![]).contains("expected 1 inputs but got 0 inputs for model 'm'"));
    assert_eq!(
        refused(vec![input("IN", &[4], WarmupData::File("raw".into()))]),
        "[request id: <id_unknown>] warmup setting expects 4 bytes, but the data provided from rawonly has 3 bytes"
    );
    assert!(
        refused(vec![input("IN", &[4], WarmupData::File("none".into()))])
            .starts_with("failed to open text file")
    );
}
