//! What the model of a worker uses of the server besides requests: metrics, and the loading of other models.
use std::sync::Arc;

use bytes::Bytes;
use inference::{ModelChangeDone, ModelCommands, lock::Mutex};
use vocabulary::Error;

use crate::{
    model_context::ModelContext,
    services::{
        model_metrics::ModelMetrics,
        question_threads::QuestionThreads,
        service_answer::{ServiceAnswer, ServiceValue},
    },
    wakeup_fd::WakeupFd,
    wire::marshal::{DamagedMessage, MarshalValue},
};

/// See the module documentation. Dropped with the worker.
pub(crate) struct ModelServices {
    model: Arc<ModelContext>,
    metrics: ModelMetrics,
    finished: Arc<FinishedAnswers>,
    threads: QuestionThreads,
}

/// Answers that came after their questions, by the numbers of the questions.
struct FinishedAnswers {
    answers: Mutex<Vec<(u64, ServiceAnswer)>>,
    alarm: Arc<WakeupFd>,
}

impl FinishedAnswers {
    fn push(&self, number: u64, answer: ServiceAnswer) {
        self.answers.lock().push((number, answer));
        self.alarm.ring();
    }
}

impl ModelServices {
    /// `alarm` rings when an answer comes after its question.
    pub(crate) fn new(model: Arc<ModelContext>, alarm: Arc<WakeupFd>) -> Self {
        let metrics = ModelMetrics::new(model.parts.metrics.clone());
        let finished = Arc::new(FinishedAnswers { answers: Mutex::default(), alarm });
        Self { model, metrics, finished, threads: QuestionThreads::default() }
    }

    /// The answer to a question. `None` if it comes later.
    ///
    /// # Errors
    /// The question is damaged.
    pub(crate) fn ask(
        &mut self,
        number: u64,
        name: &str,
        arguments: &[MarshalValue<'_>],
    ) -> Result<Option<ServiceAnswer>, DamagedMessage> {
        if let Some(answer) = self.metrics.ask(name, arguments)? {
            return Ok(Some(answer));
        }
        Ok(self.change_models(number, name, arguments)?.err().map(Err))
    }

    /// Begins a change of models, or a question about one. The answer comes later, unless this fails.
    fn change_models(
        &self,
        number: u64,
        name: &str,
        arguments: &[MarshalValue<'_>],
    ) -> Result<Result<(), Error>, DamagedMessage> {
        let finished = self.finished.clone();
        let done: ModelChangeDone = Box::new(move |result| {
            finished.push(number, result.map(|()| ServiceValue::Nothing));
        });
        Ok(match (name, arguments) {
            ("load_model", [model, config, files]) => {
                let file = |pair: &MarshalValue<'_>| {
                    let [path, content] = pair.as_array()?;
                    let path = path.as_str()?;
                    let MarshalValue::Bytes(content) = content else {
                        return Err(DamagedMessage("the content of a file is expected"));
                    };
                    let path = path.strip_prefix("file:").unwrap_or(path).to_owned();
                    Ok((path, Bytes::copy_from_slice(content)))
                };
                let files = files.as_list()?.iter().map(file).collect::<Result<Vec<_>, _>>()?;
                let (model, config) = (model.as_str()?, config.as_str()?);
                let config = (!config.is_empty()).then(|| config.to_owned());
                self.loader().map(|loader| loader.load(model, config, files, done))
            }
            ("unload_model", [model, dependents]) => {
                let (model, dependents) = (model.as_str()?, dependents.as_bool()?);
                self.loader().map(|loader| loader.unload(model, dependents, done))
            }
            ("is_model_ready", [model, version]) => {
                let (model, version) = (model.as_str()?, version.as_str()?);
                self.is_ready(number, model.to_owned(), version)
            }
            _ => Err(Error::unsupported(format!("there is no question '{name}'"))),
        })
    }

    /// What loads models. A model in a sandbox could load one that has none.
    fn loader(&self) -> Result<Arc<dyn ModelCommands>, Error> {
        if self.model.sandbox.is_some() {
            let text =
                format!("model '{}' runs in a sandbox and cannot load or unload models", self.model.name);
            return Err(Error::unsupported(text));
        }
        let loader = self.model.inferer.as_ref().and_then(|inferer| inferer.model_loader());
        loader.ok_or_else(|| Error::unavailable("models cannot be loaded here"))
    }

    /// Another backend may answer, so this asks on another thread.
    fn is_ready(&self, number: u64, model: String, version: &str) -> Result<(), Error> {
        let version = match version {
            "" => None,
            text => Some(text.parse::<i64>().map_err(|_| {
                Error::invalid(format!(
                    "failed to get model version from specified version string '{text}' (details: stoll), version should be \
                     an integral value > 0"
                ))
            })?),
        };
        let inferer =
            self.model.inferer.clone().ok_or_else(|| Error::unavailable("the model has no server"))?;
        let finished = self.finished.clone();
        self.threads.ask(move || {
            let is_ready = inferer.is_ready(&model, version);
            finished.push(number, Ok(ServiceValue::Bool(is_ready)));
        })
    }

    /// Does something without an answer.
    ///
    /// # Errors
    /// The item is damaged.
    pub(crate) fn tell(&mut self, name: &str, arguments: &[MarshalValue<'_>]) -> Result<(), DamagedMessage> {
        self.metrics.tell(name, arguments)
    }

    /// Takes the answers that have come since their questions, with the numbers of the questions.
    pub(crate) fn take_finished(&self) -> Vec<(u64, ServiceAnswer)> {
        std::mem::take(&mut *self.finished.answers.lock())
    }
}
