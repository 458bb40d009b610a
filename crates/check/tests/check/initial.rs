//! Configurations of models that only their backend can describe.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
use std::{
    fs,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use check::{CheckOptions, initial_config};
use inference::backend::{Backend, BackendModel, ModelSource};
use vocabulary::Error;

/// A backend that opens a model when it is told to.
struct WaitingBackend(Mutex<Receiver<()>>);

impl Backend for WaitingBackend {
    fn name(&self) -> &str {
        "python"
    }

    fn open(&self, _: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        let _ = self.0.lock().unwrap().recv();
        Err(Error::internal("the model is opened"))
    }
}

#[test]
fn a_model_that_does_not_tell_its_configuration_in_time_is_given_up() {
    let root = tempfile::tempdir().unwrap();
    let model = root.path().join("m");
    fs::create_dir_all(model.join("1")).unwrap();
    fs::write(model.join("1/model.py"), "").unwrap();
    let (open, opened) = channel();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(WaitingBackend(Mutex::new(opened)))];
    let options = CheckOptions { plugins: backends.into(), ..CheckOptions::default() };
    let told = |limit: Duration| {
        let refused = initial_config(&model, Some(limit), &options).unwrap_err();
        refused.findings[0].text.clone()
    };
    assert_eq!(told(Duration::from_millis(20)), "the model has not told its configuration within 0.02 s");
    open.send(()).unwrap();
    open.send(()).unwrap();
    assert_eq!(told(Duration::from_secs(600)), "the model is opened");
}
