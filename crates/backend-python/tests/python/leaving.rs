//! An instance that leaves, because the model has fewer of them or ends: first everything that it was given ends.
use std::{fs, path::Path, process::Command, sync::Arc};

use inference::{Request, RequestInputs, ResponseItem};
use vocabulary::{DataType, Error, ForeignMemory, ForeignRegion, Name, Tensor};

use crate::support::{CONFIG, Loaded, TestModel, eventually, floats, next, only, request};

const DECOUPLED: &str = "model_transaction_policy { decoupled: true }\n";

/// Answers each request from a thread when the file `release` is there, and writes at the end how many it has answered.
const LATE_SENDER: &str = "def initialize(self, args):\n    self.answered, self.folder = 0, args['model_repository']\n    \
    \ndef execute(self, requests):\n    for request in requests:\n        sender = request.get_response_sender()\n        \
         sender.send(y([0]))\n        threading.Thread(target=self.answer, args=[sender]).start()\n\
    \ndef answer(self, sender):\n    while not os.path.exists(self.folder + '/release'):\n        time.sleep(0.001)\n    \
         self.answered += 1\n    \
         sender.send(y([1]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)\n\
    \ndef finalize(self):\n    with open(self.folder + '/finalized', 'w') as file:\n        file.write(str(self.answered))";

fn model_folder(model: &TestModel) -> std::path::PathBuf {
    model.folder().join("m")
}

/// Ends the instance on a thread of its own.
fn leave(loaded: Loaded) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || drop(loaded))
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

#[test]
fn a_decoupled_instance_leaves_after_the_last_response() {
    let model = TestModel::new(&format!("{CONFIG}{DECOUPLED}"), LATE_SENDER);
    let folder = model_folder(&model);
    let loaded = model.load().unwrap();
    let mut streams = loaded.send((0..6).map(|_| request(&[1.0])).collect());
    for stream in &mut streams {
        assert_eq!(floats(&next(stream).unwrap().result.unwrap()), [0.0]);
    }
    let left = leave(loaded);
    fs::write(folder.join("release"), "").unwrap();
    for mut stream in streams {
        let ResponseItem { result, last, .. } = next(&mut stream).unwrap();
        assert_eq!((floats(&result.unwrap()), last), (vec![1.0], true));
    }
    left.join().unwrap();
    assert_eq!(text(&folder.join("finalized")), "6");
}

#[test]
fn an_instance_leaves_after_the_batches_that_wait_for_its_worker() {
    let methods = "async def execute(self, requests):\n    while not os.path.exists(self.folder + '/release'):\n        \
                   await asyncio.sleep(0.001)\n    return [y(x_of(request)) for request in requests]\n\
                   \ndef initialize(self, args):\n    self.folder = args['model_repository']";
    // The worker has two of them; the others wait.
    let config =
        format!("{CONFIG}parameters {{ key: 'MAX_CONCURRENT_EXECUTIONS' value: {{ string_value: '2' }} }}\n");
    let model = TestModel::new(&config, methods);
    let folder = model_folder(&model);
    let loaded = model.load().unwrap();
    let streams: Vec<_> = (0..6_u8).map(|x| loaded.send(vec![request(&[f32::from(x)])]).remove(0)).collect();
    let left = leave(loaded);
    fs::write(folder.join("release"), "").unwrap();
    for (x, stream) in (0..6_u8).zip(streams) {
        assert_eq!(floats(&only(stream).unwrap()), [f32::from(x)]);
    }
    left.join().unwrap();
}

#[test]
fn an_instance_that_leaves_and_loses_its_worker_leaves() {
    let methods = "def execute(self, requests):\n    for request in requests:\n        \
                   request.get_response_sender().send(y([os.getpid()]))\n        self.kept = request.get_response_sender()";
    let model = TestModel::new(&format!("{CONFIG}{DECOUPLED}"), methods);
    let loaded = model.load().unwrap();
    let mut stream = loaded.send(vec![request(&[1.0])]).remove(0);
    let worker = floats(&next(&mut stream).unwrap().result.unwrap())[0] as u32;
    let left = leave(loaded);
    Command::new("kill").args(["-KILL", &worker.to_string()]).status().unwrap();
    let error = next(&mut stream).unwrap().result.unwrap_err();
    assert_eq!(error.message, "Stub process 'm_0' is not healthy.");
    eventually("the instance has left", || left.is_finished());
    left.join().unwrap();
}

/// Memory whose reader panics.
#[derive(Debug)]
struct PanickingRegion;

impl ForeignRegion for PanickingRegion {
    fn byte_size(&self) -> usize {
        4
    }

    fn address(&self) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn read(&self, _: usize, _: &mut [u8]) -> Result<(), Error> {
        panic!("the region cannot be read")
    }

    fn write(&self, _: usize, _: &[u8]) -> Result<(), Error> {
        panic!("the region cannot be written")
    }
}

#[test]
fn an_instance_that_panics_while_it_sends_leaves() {
    let methods = "def execute(self, requests):\n    return [y(x_of(request)) for request in requests]";
    let model = TestModel::new(CONFIG, methods);
    let loaded = model.load().unwrap();
    assert_eq!(loaded.ask(&[1.0]).unwrap(), [1.0]);
    let memory = ForeignMemory::range(Arc::new(PanickingRegion), 0, 4).unwrap();
    let input = Tensor::new(Name::new("X"), DataType::Fp32, [1_i64][..].into(), memory);
    let requests =
        vec![request(&[2.0]), Request { inputs: RequestInputs::Tensors(vec![input]), ..Request::default() }];
    let streams = loaded.send(requests);
    loaded.ended_by_panic();
    for stream in streams {
        assert!(only(stream).is_err());
    }
}
