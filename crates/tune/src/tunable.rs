//! What can be tuned of a model, and what a setting changes in its configuration.
//!
//! Clients see no change: inputs, outputs and the largest request stay. So `max_batch_size` never becomes smaller. A smaller
//! batch is a preferred size, at which the server cuts its queue.

use anyhow::{Result, bail};
use proto::model_config::SchedulingChoice;
use proto::{ModelConfig, ModelDynamicBatching, ModelInstanceGroup, ModelParameter};

use crate::search::TunedSetting;

/// The parameters for the threads of a run, by backend. A forest uses threads for larger batches than those of a tuning.
const THREADS_PARAMETERS: [(&str, &str); 3] = [
    ("onnxruntime", "intra_op_thread_count"),
    ("openvino", "INFERENCE_NUM_THREADS"),
    ("pytorch", "INTRA_OP_THREAD_COUNT"),
];

/// Backends that complete a size of batches, and let requests have more rows than that.
const WITH_LARGER_REQUESTS: [&str; 2] = ["onnxruntime", "openvino"];

/// The largest batch that is tried if the configuration leaves the size to the server.
const USUAL_BATCH: u32 = 32;

/// A model that can be tuned.
#[derive(Clone, Debug)]
pub struct TunableModel {
    /// What its file says.
    given: ModelConfig,
    /// Whether the file sets `max_batch_size`.
    sets_batch: bool,
    /// What the server makes of it.
    effective: ModelConfig,
    /// The most rows of a request.
    largest_request: u32,
}

/// Refuses what cannot be tuned yet.
///
/// # Errors
/// Names what stands against it.
pub fn refuse_untunable(config: &ModelConfig) -> Result<()> {
    match &config.scheduling_choice {
        Some(SchedulingChoice::EnsembleScheduling(_)) => {
            bail!("it is an ensemble, which has no instances: tune its members, each alone")
        }
        Some(SchedulingChoice::SequenceBatching(_)) => {
            bail!("it has sequence_batching: only models whose requests are independent can be tuned")
        }
        Some(SchedulingChoice::DynamicBatching(_)) | None => {}
    }
    if config.model_transaction_policy.is_some_and(|policy| policy.decoupled) {
        bail!("it is decoupled: only models with one response for each request can be tuned");
    }
    match config.instance_group.len() {
        0 | 1 => Ok(()),
        groups => bail!("instance_group has {groups} groups: only models with one group can be tuned"),
    }
}

impl TunableModel {
    /// A model with the text of its configuration, and the configuration that a server told of it. `request_rows` is the most
    /// rows of a request to a model of ONNX Runtime or OpenVINO whose batch size the server completes.
    ///
    /// # Errors
    /// The text is no configuration, or the model cannot be tuned.
    pub fn new(text: &str, effective: ModelConfig, request_rows: u32) -> Result<TunableModel> {
        let parsed = proto::text::parse(text.as_bytes())?;
        refuse_untunable(&parsed.config)?;
        refuse_untunable(&effective)?;
        let sets_batch = parsed.fields.contains("max_batch_size");
        let mut model = TunableModel { given: parsed.config, sets_batch, effective, largest_request: 0 };
        let now = model.batch_now();
        let may_be_larger = WITH_LARGER_REQUESTS.contains(&model.framework()) && !sets_batch && now > 1;
        model.largest_request = if may_be_larger { now.max(request_rows) } else { now };
        Ok(model)
    }

    /// The parameter for the threads of a run. `None`: a setting has no threads.
    #[must_use]
    pub fn threads_parameter(&self) -> Option<&'static str> {
        let of = THREADS_PARAMETERS.iter().find(|(backend, _)| *backend == self.framework());
        of.map(|(_, parameter)| *parameter)
    }

    /// The backend that computes: OpenVINO also has models of other backends.
    fn framework(&self) -> &str {
        let policy = self.effective.optimization.as_ref();
        let accelerators = policy.and_then(|policy| policy.execution_accelerators.as_ref());
        let mut accelerators = accelerators.iter().flat_map(|all| &all.cpu_execution_accelerator);
        match self.effective.backend.as_str() {
            "onnxruntime" if accelerators.any(|accelerator| accelerator.name == "openvino") => "openvino",
            "tensorflow" => "openvino",
            backend => backend,
        }
    }

    fn batch_now(&self) -> u32 {
        u32::try_from(self.effective.max_batch_size).unwrap_or(0)
    }

    /// The largest batch to try; 1 for a model that does not batch. `most` is the user's wish.
    ///
    /// # Errors
    /// The user wants batches, and the model takes none.
    pub fn largest_batch(&self, most: Option<u32>) -> Result<u32> {
        match (self.batch_now(), most) {
            (0, Some(most)) if most > 1 => {
                bail!("--batch-max is {most}, but the model does not batch (max_batch_size: 0)")
            }
            (0, _) => Ok(1),
            (_, Some(most)) => Ok(most),
            // The server completes 1 where rows of several requests must not share a batch.
            (now, None) if self.sets_batch || now == 1 => Ok(now),
            (now, None) => Ok(now.max(USUAL_BATCH)),
        }
    }

    /// The setting that the model has now.
    #[must_use]
    pub fn present(&self, processors: u32, has_threads: bool) -> TunedSetting {
        let counts = self.effective.instance_group.iter().map(|group| group.count);
        let instances = u32::try_from(counts.sum::<i32>()).unwrap_or(1).max(1);
        let parameter = self.threads_parameter().unwrap_or_default();
        let named = self.effective.parameters.get(parameter);
        let named = named.and_then(|parameter| parameter.string_value.trim().parse().ok());
        // Without the parameter an instance gets its share of the processors.
        let threads =
            has_threads.then(|| named.filter(|&count| count > 0).unwrap_or((processors / instances).max(1)));
        let (batch, delay_us) = match &self.effective.scheduling_choice {
            Some(SchedulingChoice::DynamicBatching(batching)) => {
                let preferred = batching.preferred_batch_size.iter().max().copied();
                let batch = preferred.and_then(|size| u32::try_from(size).ok()).unwrap_or(self.batch_now());
                (batch.max(1), u32::try_from(batching.max_queue_delay_microseconds).unwrap_or(u32::MAX))
            }
            _ => (1, 0),
        };
        TunedSetting { instances, threads, batch, delay_us: if batch == 1 { 0 } else { delay_us } }
    }

    /// What the configuration says for a setting.
    #[must_use]
    pub fn changes(&self, setting: &TunedSetting) -> ConfigChanges {
        let now = self.batch_now();
        // What the server completes to the same size stays with the server, and with it the limit of requests.
        let is_left = !self.sets_batch && setting.batch == now;
        let size = self.largest_request.max(setting.batch);
        let has_batcher = matches!(self.given.scheduling_choice, Some(SchedulingChoice::DynamicBatching(_)));
        let batching = (now > 0 && (setting.batch > 1 || has_batcher)).then(|| BatchingChange {
            preferred: (setting.batch < size && !is_left).then_some(setting.batch),
            delay_us: setting.delay_us,
        });
        // Without a size the server would complete a batcher, too.
        let is_new = !is_left && (size > now || !self.sets_batch);
        ConfigChanges {
            max_batch_size: (now > 0 && is_new).then_some(size),
            instances: setting.instances,
            threads: setting.threads.and_then(|count| {
                self.threads_parameter().map(|parameter| ThreadsChange { parameter, count })
            }),
            batching,
        }
    }

    /// The configuration of the file with a setting.
    #[must_use]
    pub fn with(&self, changes: &ConfigChanges) -> ModelConfig {
        let mut config = self.given.clone();
        if let Some(size) = changes.max_batch_size {
            config.max_batch_size = size.cast_signed();
        }
        let count = changes.instances.cast_signed();
        match config.instance_group.first_mut() {
            Some(group) => group.count = count,
            None => config.instance_group.push(ModelInstanceGroup { count, ..Default::default() }),
        }
        if let Some(ThreadsChange { parameter, count }) = changes.threads {
            let string_value = count.to_string();
            config.parameters.insert(parameter.to_owned(), ModelParameter { string_value });
        }
        if let Some(change) = &changes.batching {
            let mut batching = match config.scheduling_choice.take() {
                Some(SchedulingChoice::DynamicBatching(batching)) => batching,
                _ => ModelDynamicBatching::default(),
            };
            batching.preferred_batch_size = change.preferred.map(u32::cast_signed).into_iter().collect();
            batching.max_queue_delay_microseconds = u64::from(change.delay_us);
            config.scheduling_choice = Some(SchedulingChoice::DynamicBatching(batching));
        }
        config
    }
}

/// What a setting changes in the text of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChanges {
    /// `None`: it stays.
    pub max_batch_size: Option<u32>,
    /// `instance_group.count`.
    pub instances: u32,
    /// `None`: they stay.
    pub threads: Option<ThreadsChange>,
    /// `None`: there is no dynamic batcher.
    pub batching: Option<BatchingChange>,
}

/// The threads of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadsChange {
    /// The parameter of the backend.
    pub parameter: &'static str,
    /// Its value.
    pub count: u32,
}

/// What changes in `dynamic_batching`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchingChange {
    /// `None`: batches may have `max_batch_size`.
    pub preferred: Option<u32>,
    /// 0: no field.
    pub delay_us: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str, effective: &str) -> Result<TunableModel> {
        TunableModel::new(text, proto::text::parse(effective.as_bytes()).unwrap().config, 1024)
    }

    const BATCHED: &str =
        "backend: 'onnxruntime' max_batch_size: 8 instance_group { count: 2 } dynamic_batching { }";

    #[test]
    fn what_cannot_be_tuned_is_refused_by_name() {
        for (text, word) in [
            ("ensemble_scheduling { }", "ensemble"),
            ("sequence_batching { }", "sequence_batching"),
            ("model_transaction_policy { decoupled: true }", "decoupled"),
            ("instance_group [ { count: 1 }, { count: 2 } ]", "2 groups"),
        ] {
            let error = model(text, "").unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
            assert!(model("", text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_present_setting_is_that_of_the_server() {
        let model = model(BATCHED, BATCHED).unwrap();
        let present = TunedSetting { instances: 2, threads: Some(2), batch: 8, delay_us: 0 };
        assert_eq!(model.present(4, true), present);
        assert_eq!(model.present(4, false).threads, None);
    }

    #[test]
    fn a_smaller_batch_keeps_the_largest_request() {
        let model = model(BATCHED, BATCHED).unwrap();
        let setting = TunedSetting { instances: 1, threads: Some(1), batch: 4, delay_us: 100 };
        let changes = model.changes(&setting);
        assert_eq!(changes.max_batch_size, None);
        assert_eq!(changes.batching, Some(BatchingChange { preferred: Some(4), delay_us: 100 }));
        let larger = model.changes(&TunedSetting { batch: 16, ..setting });
        assert_eq!(larger.max_batch_size, Some(16));
        assert_eq!(larger.batching.unwrap().preferred, None);
    }

    #[test]
    fn requests_to_a_model_without_a_size_may_have_as_many_rows_as_before() {
        let changes = |effective: &str, batch| {
            let model = model("", effective).unwrap();
            let changes = model.changes(&TunedSetting { instances: 1, threads: Some(1), batch, delay_us: 0 });
            (changes.max_batch_size, changes.batching.map(|batching| batching.preferred))
        };
        let onnx = "backend: 'onnxruntime' max_batch_size: 4 dynamic_batching { }";
        assert_eq!(model("", onnx).unwrap().largest_batch(None).unwrap(), 32);
        assert_eq!(changes(onnx, 1), (Some(1024), None));
        assert_eq!(changes(onnx, 2), (Some(1024), Some(Some(2))));
        assert_eq!(changes(onnx, 4), (None, Some(None)));
        assert_eq!(changes(onnx, 32), (Some(1024), Some(Some(32))));
        assert_eq!(changes(&onnx.replace("onnxruntime", "openvino"), 2), (Some(1024), Some(Some(2))));
        // The code of a model in Python has told this size: it is the limit of requests.
        let python = "backend: 'python' max_batch_size: 8 dynamic_batching { }";
        assert_eq!(changes(python, 1), (Some(8), None));
        assert_eq!(changes(python, 8), (None, Some(None)));
        assert_eq!(changes(python, 32), (Some(32), Some(None)));
    }

    #[test]
    fn the_framework_that_computes_names_the_threads() {
        let parameter = |effective: &str| model("", effective).unwrap().threads_parameter();
        let accelerated = "backend: 'onnxruntime' optimization { execution_accelerators {
            cpu_execution_accelerator { name: 'openvino' } } }";
        assert_eq!(parameter("backend: 'onnxruntime'"), Some("intra_op_thread_count"));
        assert_eq!(parameter("backend: 'openvino'"), Some("INFERENCE_NUM_THREADS"));
        assert_eq!(parameter(accelerated), Some("INFERENCE_NUM_THREADS"));
        assert_eq!(parameter("backend: 'tensorflow'"), Some("INFERENCE_NUM_THREADS"));
        assert_eq!(parameter("backend: 'pytorch'"), Some("INTRA_OP_THREAD_COUNT"));
        assert_eq!(parameter("backend: 'fil'"), None);
    }

    #[test]
    fn rows_that_must_not_share_a_batch_get_no_larger_batches() {
        let model = model("", "backend: 'onnxruntime' max_batch_size: 1").unwrap();
        assert_eq!(model.largest_batch(None).unwrap(), 1);
        let changes = model.changes(&model.present(2, true));
        assert_eq!((changes.max_batch_size, changes.batching), (None, None));
    }

    #[test]
    fn a_model_without_batches_has_none() {
        let model = model("", "backend: 'python' max_batch_size: 0").unwrap();
        assert_eq!(model.largest_batch(None).unwrap(), 1);
        assert!(model.largest_batch(Some(8)).unwrap_err().to_string().contains("--batch-max"));
        assert_eq!(model.threads_parameter(), None);
        let changes = model.changes(&model.present(2, false));
        assert_eq!((changes.max_batch_size, changes.batching), (None, None));
    }
}
