//! Tests of models that share resources.
use std::{num::NonZeroU32, sync::mpsc};

use config::{RateLimits, ResourceNeed, Scheduling};
use inference::{
    ModelRunner, Response,
    backend::{BackendInstance, BackendModel, Batch, BuiltInstance, InstanceSpec},
};
use scheduling::Capacity;
use testing::model_parts;

use super::*;
use crate::{Executor, ExecutorParts, test_parts::ask};

/// Reports the begin of each batch and waits until the test lets it continue.
#[derive(Clone)]
struct Gated(&'static str, mpsc::Sender<(&'static str, mpsc::Sender<()>)>);

impl BackendModel for Gated {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::ThreadBound(Box::new(self.clone())))
    }
}

impl BackendInstance for Gated {
    fn execute(&mut self, batch: Batch) {
        let (leave, wait) = mpsc::channel();
        self.1.send((self.0, leave)).unwrap();
        let _ = wait.recv();
        batch
            .executions
            .into_iter()
            .for_each(|execution| execution.responder.clone().complete(Response::default()));
    }
}

fn limiter(capacities: &[(&str, u32)]) -> Arc<Limiter> {
    let capacity = |&(name, count): &(&str, u32)| Capacity { name: name.to_owned(), count, device: None };
    Arc::new(Limiter::new(capacities.iter().map(capacity).collect()))
}

fn start(
    limiter: &Arc<Limiter>,
    needs: &[(&str, bool, u32)],
    backend: Gated,
) -> Result<Arc<Executor>, Error> {
    let mut config = model_parts::config(Scheduling::Unbatched);
    let need = |&(name, global, count): &(&str, bool, u32)| ResourceNeed { name: name.into(), global, count };
    config.instance_groups[0].rate_limiter =
        RateLimits { resources: needs.iter().map(need).collect(), priority: NonZeroU32::MIN };
    let parts = ExecutorParts::for_test(config, backend, vec![model_parts::instance("m_0")]);
    Executor::start(ExecutorParts { limiter: Some(limiter.clone()), ..parts })
}

#[tokio::test]
async fn models_that_need_the_same_resource_take_turns() {
    let limiter = limiter(&[("r", 1)]);
    let (sender, begun) = mpsc::channel();
    let models =
        ["a", "b"].map(|name| start(&limiter, &[("r", true, 1)], Gated(name, sender.clone())).unwrap());
    let asked: Vec<_> = (0..20).map(|round| ask(&models[round % 2])).collect();
    let mut turns = Vec::new();
    for _ in 0..20 {
        let (who, leave) = begun.recv().unwrap();
        // The other instances lack the resources that this one holds, so they cannot have begun.
        assert!(begun.try_recv().is_err());
        turns.push(who);
        leave.send(()).unwrap();
    }
    for stream in asked {
        stream.only().await.unwrap();
    }
    assert_eq!(turns.iter().filter(|&&who| who == "a").count(), 10);
    models.into_iter().for_each(Executor::close);
}

#[tokio::test]
async fn claims_that_fit_run_in_parallel_and_a_closed_model_frees_its_resources() {
    let limiter = limiter(&[("r", 3)]);
    let (sender, begun) = mpsc::channel();
    let small = start(&limiter, &[("r", true, 1)], Gated("small", sender.clone())).unwrap();
    let large = start(&limiter, &[("r", true, 2)], Gated("large", sender.clone())).unwrap();
    let asked = [ask(&small), ask(&large)];
    let running = [begun.recv().unwrap(), begun.recv().unwrap()];
    running.iter().for_each(|(_, leave)| leave.send(()).unwrap());
    for stream in asked {
        stream.only().await.unwrap();
    }
    large.close();
    let all = start(&limiter, &[("r", true, 3)], Gated("all", sender)).unwrap();
    let asked = ask(&all);
    begun.recv().unwrap().1.send(()).unwrap();
    asked.only().await.unwrap();
}

#[test]
fn an_instance_that_could_never_run_is_not_loaded() {
    let (sender, _begun) = mpsc::channel();
    let few = limiter(&[("resource1", 3)]);
    let refused = |needs: &[_]| start(&few, needs, Gated("m", sender.clone())).err().unwrap().to_string();
    assert_eq!(
        refused(&[("resource1", true, 4)]),
        "Resource count for \"resource1\" is limited to 3 which will prevent scheduling of one or more model instances, the minimum required count is 4"
    );
    let _global = start(&few, &[("resource1", true, 1)], Gated("m", sender.clone())).unwrap();
    assert_eq!(
        refused(&[("resource1", false, 1)]),
        "Resource \"resource1\" is present as both global and device-specific resource in the model configuration."
    );
}
