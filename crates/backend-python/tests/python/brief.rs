//! Brief executions: the thread that sends one may wait for its answer, but not for long.
use std::{
    fs,
    num::NonZeroUsize,
    task::{Context, Waker},
};

use inference::backend::{BuiltInstance, InstanceDevice, InstanceSpec};

use crate::support::{CONFIG, TestModel, batch_of, floats, only, request};

/// An execution with a value waits until the file with the name `go` is in the folder.
fn model_that_waits_for(folder: &tempfile::TempDir) -> TestModel {
    let go = folder.path().join("go");
    let methods = format!(
        "def execute(self, requests):\n    while x_of(requests[0])[0] and not os.path.exists('{}'):\n        time.sleep(0.001)\n    \
         return [y(x_of(request)) for request in requests]",
        go.display()
    );
    TestModel::new(CONFIG, &methods)
}

#[test]
fn an_execution_that_is_not_brief_after_many_that_were_keeps_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    let (model, config) = model_that_waits_for(&folder).open().unwrap();
    let spec = InstanceSpec {
        name: "m_0".into(),
        device: InstanceDevice::Cpu,
        threads: NonZeroUsize::MIN,
        passive: false,
    };
    let BuiltInstance::Movable(mut instance) = model.instance(&config, &spec).unwrap() else {
        panic!("network threads run brief executions")
    };
    let mut count = 0;
    // A slow machine needs more of them.
    while count < 300 || instance.is_brief() != Some(true) {
        let (batch, mut streams) = batch_of(vec![request(&[0.0])], None);
        instance.execute(batch);
        assert_eq!(floats(&only(streams.remove(0)).unwrap()), [0.0]);
        count += 1;
    }
    let (batch, mut streams) = batch_of(vec![request(&[1.0])], None);
    // Would never return if it waited for the answer.
    instance.execute(batch);
    let mut stream = streams.remove(0);
    let mut context = Context::from_waker(Waker::noop());
    assert!(stream.poll_item(&mut context).is_pending(), "the model waits for the file");
    fs::write(folder.path().join("go"), "").unwrap();
    assert_eq!(floats(&only(stream).unwrap()), [1.0]);
}
