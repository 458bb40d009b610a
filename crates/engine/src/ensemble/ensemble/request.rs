//! One request to an ensemble, from its begin to its end.
use std::{
    future::{Future, poll_fn},
    mem,
    num::NonZeroUsize,
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use host::now;
use inference::{
    EntryId, ExecutionTimes, ReportedTimes, Request, RequestInputs, Responder, Response, ResponseItem,
    SequenceId, SequencePosition, Timestamp, TraceContext, id_prefix,
    rejection::{cancelled, timed_out},
};
use scheduling::{EnsembleAction, EnsembleRun, StepRun};
use smallvec::SmallVec;
use vocabulary::{Error, FailureReason, Name, NameIndex, Parameter};

use super::Ensemble;
use crate::{
    ensemble::{
        admission::{Admitted, AwaitedAdmission},
        binding::{MemberBinding, Pins},
        permits::Permits,
        step::{StartedStep, StepEnd, StepEvent, StepStream, StepStreams, StepTimes},
        tensor::{StepOutputs, StepTensor},
        turns::RequestTurns,
    },
    model::RequestOrigin,
};

/// A decoupled member waits while the ensemble has not read so many of its responses.
const MOST_UNREAD: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// See the module documentation.
pub(super) struct EnsembleRequest {
    ensemble: Arc<Ensemble>,
    binding: Arc<MemberBinding>,
    /// Keeps the members from ending.
    _pins: Pins,
    request: Request,
    graph: EnsembleRun<StepTensor, Error>,
    /// `None` after the end.
    responder: Option<Responder>,
    entry: EntryId,
    cancelled: Arc<AtomicWaker>,
    /// When the client's patience ends.
    deadline: Option<Timestamp>,
    /// `None` until the ensemble has room for the request.
    admitted: Option<Arc<Admitted>>,
    /// Requests to members that are not decoupled.
    steps: StepStreams,
    /// Requests to decoupled members.
    producers: StepStreams,
    permits: Permits,
    /// `None` for a request without a sequence whose order a step keeps, and after the end.
    turns: Option<RequestTurns>,
    times: Arc<ExecutionTimes>,
    member_times: StepTimes,
}

/// What a request waits for.
enum EnsembleEvent {
    Step(StepEvent),
    /// A step may run, or the client has read a response.
    Ready,
    Cancelled,
}

impl EnsembleRequest {
    /// Requests of one sequence are made in the order of their arrival.
    pub(super) fn new(
        ensemble: Arc<Ensemble>,
        (binding, pins): (Arc<MemberBinding>, Pins),
        (mut request, rows): (Request, u32),
        responder: Responder,
        (entry, cancelled): (EntryId, Arc<AtomicWaker>),
    ) -> Self {
        let config = &ensemble.config;
        let has_batch = config.max_batch_size.is_some();
        let places: SmallVec<[_; 8]> =
            config.inputs.iter().map(|spec| request.input_place(&spec.name)).collect();
        let mut inputs: Vec<_> = match mem::take(&mut request.inputs) {
            RequestInputs::Tensors(tensors) => tensors.into_iter().map(Some).collect(),
            RequestInputs::Raw(_) => Vec::new(),
        };
        let mut input = |place: Option<usize>| Some(StepTensor::of_client(inputs[place?].take()?, has_batch));
        let inputs = places.into_iter().map(&mut input).collect();
        let is_requested = |output: usize| request.wants(&config.outputs[output].name);
        let graph = EnsembleRun::new(binding.graph.clone(), inputs, is_requested);
        let sequence = request.sequence.id.as_ref().filter(|_| binding.keeps_order);
        let turns = sequence.map(|id| RequestTurns::enter(&ensemble.turns, id.clone(), cancelled.clone()));
        let deadline = request.timeout.map(|timeout| responder.timeline().request_start + timeout);
        let times = Arc::new(ExecutionTimes::start(rows, now));
        Self {
            ensemble,
            binding,
            _pins: pins,
            request,
            graph,
            responder: Some(responder),
            entry,
            cancelled,
            deadline,
            admitted: None,
            steps: StepStreams::default(),
            producers: StepStreams::default(),
            permits: Permits::default(),
            turns,
            times,
            member_times: StepTimes::default(),
        }
    }

    /// Runs the request to its end, when the ensemble has room for it.
    pub(super) async fn run_later(mut self, waiting: AwaitedAdmission) {
        match self.wait_for_room(waiting).await {
            Ok(admitted) => self.run(admitted).await,
            Err(error) => self.end(|responder| responder.fail(error)),
        }
    }

    /// Runs the request to its end.
    pub(super) async fn run(mut self, admitted: Arc<Admitted>) {
        self.admitted = Some(admitted);
        self.act();
        while self.responder.is_some() {
            match poll_fn(|context| self.poll_event(context)).await {
                EnsembleEvent::Step(event) => self.step_event(event),
                EnsembleEvent::Ready => {}
                EnsembleEvent::Cancelled => self.graph.failed(cancelled()),
            }
            self.act();
            // Members that answer at once must not keep the thread for ever.
            tokio::task::consume_budget().await;
        }
    }

    /// Returns when the ensemble has room for the request.
    async fn wait_for_room(&mut self, mut waiting: AwaitedAdmission) -> Result<Arc<Admitted>, Error> {
        let deadline = self.deadline.map(|deadline| deadline - now());
        let limit = tokio::time::sleep(deadline.unwrap_or(Duration::from_secs(u64::from(u32::MAX))));
        let mut limit = std::pin::pin!(limit);
        let ended = || Error::internal("the ensemble has ended");
        poll_fn(|context| {
            self.cancelled.register(context.waker());
            if self.is_cancelled() {
                return Poll::Ready(Err(cancelled()));
            }
            if let Poll::Ready(admitted) = Pin::new(&mut waiting).poll(context) {
                return Poll::Ready(admitted.ok_or_else(ended));
            }
            limit.as_mut().poll(context).map(|()| Err(timed_out()))
        })
        .await
    }

    /// Whether the client must read first, because the request limits its unread responses.
    fn waits_for_client(&self) -> bool {
        self.responder.as_ref().is_some_and(|responder| !responder.has_capacity())
    }

    fn is_cancelled(&self) -> bool {
        self.responder.as_ref().is_some_and(Responder::is_cancelled)
    }

    /// Performs what the graph decides, until it waits for an event.
    fn act(&mut self) {
        while !self.waits_for_client() {
            let (ensemble, permits, turns) = (&self.ensemble, &mut self.permits, &mut self.turns);
            let steps = &self.binding.steps;
            let action = self.graph.next(|step| {
                let turns = turns.as_mut().filter(|_| steps[step].keeps_order);
                // First the turn: a request must not hold a permit that an earlier one waits for.
                turns.is_none_or(|turns| turns.may_start(step)) && permits.take(&ensemble.permits, step)
            });
            match action {
                None => break,
                Some(EnsembleAction::Start { run, inputs }) => self.start(run, inputs),
                Some(EnsembleAction::Respond { outputs, is_last }) => self.respond(outputs, is_last),
                Some(EnsembleAction::Finish) => {
                    self.report();
                    self.end(Responder::finish);
                }
                Some(EnsembleAction::Deadlock) => {
                    let prefix = id_prefix(&self.request.id);
                    let error = self.ensemble.told(&Error::invalid(format!(
                        "{prefix}unexpected deadlock, at least one output is not set while no more ensemble steps can be \
                         made"
                    )));
                    self.end(|responder| responder.fail(error));
                }
                Some(EnsembleAction::Fail(error)) => self.end(|responder| responder.fail(error)),
            }
        }
    }

    /// Sends the request of a step.
    fn start(&mut self, run: StepRun, inputs: Vec<Option<StepTensor>>) {
        let binding = self.binding.clone();
        let step = &binding.steps[run.step];
        let member = &step.member;
        let wants_batch = member.config().max_batch_size.is_some();
        let sequence = self.sequence_of(&inputs);
        let tensors =
            step.inputs.iter().zip(&inputs).filter_map(|(spec, value)| {
                Some(value.as_ref()?.as_input(&spec.name, &spec.dims, wants_batch))
            });
        let remaining = |deadline: Timestamp| (deadline - now()).max(Duration::from_micros(1));
        let request = Request {
            id: self.request.id.clone(),
            model_version: step.version,
            inputs: RequestInputs::Tensors(tensors.collect()),
            input_index: NameIndex::default(),
            outputs: step.selection.clone(),
            sequence: sequence.as_deref().unwrap_or(&self.request.sequence).clone(),
            priority: self.request.priority,
            timeout: self.deadline.map(remaining),
            parameters: self.request.parameters.clone(),
            cache_control: self.request.cache_control,
            client: None,
            most_unread: member.config().decoupled.then_some(MOST_UNREAD),
            reservation: None,
            trace: self.request.trace.as_ref().and_then(TraceContext::child),
            output_placement: None,
        };
        // The member holds what it needs of them.
        drop(inputs);
        let permit = self.permits.used(run.step);
        match member.infer_from(RequestOrigin::Ensemble { unread: &self.ensemble.unread }, request) {
            Ok(responses) => {
                // A step that may start again keeps its turn until the request ends.
                let has_turn = step.keeps_order && !step.is_repeated;
                self.turns.iter().filter(|_| has_turn).for_each(|turns| turns.started(run.step));
                let stream = StepStream::new(StartedStep { run, sequence }, responses, permit);
                let streams = if member.config().decoupled { &mut self.producers } else { &mut self.steps };
                streams.push(stream);
            }
            Err(error) => self.failed(&error),
        }
    }

    /// The step of a sequence that the inputs of a member name. `None`: that of the request.
    fn sequence_of(&self, inputs: &[Option<StepTensor>]) -> Option<Arc<SequencePosition>> {
        let mut named = inputs.iter().flatten().filter_map(|input| input.sequence.as_ref());
        let first = named.next()?;
        if named.any(|other| other != first) {
            let (model, request_id) = (&self.ensemble.config.name, &self.request.id);
            log::error!(
                model:%, request_id:%;
                "in ensemble '{model}', a step receives inputs of different sequences; the first one is used"
            );
        }
        Some(first.clone())
    }

    /// A member has sent a response, or has ended.
    fn step_event(&mut self, StepEvent { step, item, end }: StepEvent) {
        let StartedStep { run, sequence } = step;
        if let Some(StepEnd { took, times }) = end {
            self.ensemble.step_ended(run.step, took);
            self.member_times.add(times);
        }
        let Some(ResponseItem { result, last }) = item else { return self.graph.ended(run) };
        let bound = &self.binding.steps[run.step];
        let has_batch = bound.member.config().max_batch_size.is_some();
        let outputs = StepOutputs { names: &bound.outputs, has_batch, sequence: &sequence };
        let admitted = self.admitted.as_ref();
        let taken = result.and_then(|response| {
            // Only a request that has been admitted starts steps.
            let hold = |bytes| admitted.map(|admitted| admitted.hold(bytes));
            outputs.take(response, hold)
        });
        match taken {
            Ok(outputs) => {
                self.graph.responded(run, outputs);
                if last {
                    self.graph.ended(run);
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// A member has failed.
    fn failed(&mut self, error: &Error) {
        let reason = match error.reason {
            FailureReason::Cancelled => FailureReason::Cancelled,
            FailureReason::Rejected | FailureReason::Backend | FailureReason::Other => FailureReason::Other,
        };
        self.graph.failed(self.ensemble.told(error).because(reason));
    }

    /// Answers the client.
    fn respond(&mut self, tensors: Vec<(usize, StepTensor)>, is_last: bool) {
        let has_batch = self.ensemble.config.max_batch_size.is_some();
        let named = tensors.iter().find_map(|(_, output)| output.sequence.clone());
        let parameters = sequence_parameters(named.as_deref().unwrap_or(&self.request.sequence));
        let specs = &self.binding.outputs;
        let outputs =
            tensors.iter().map(|(index, output)| output.as_output(&specs[*index], has_batch)).collect();
        let response = Response { outputs, parameters };
        // The response has the memory from now on.
        drop(tensors);
        if is_last {
            self.report();
            return self.end(|responder| responder.complete(response));
        }
        if let Some(responder) = &self.responder {
            responder.send(response);
        }
    }

    /// Ends the request. Requests to members that still run are cancelled. First frees what the request holds, as
    /// [`Execution::complete`](inference::backend::Execution::complete) does. The graph has no values at the end.
    fn end(&mut self, answer: impl FnOnce(Responder)) {
        let Some(responder) = self.responder.take() else { return };
        (self.steps, self.producers) = (StepStreams::default(), StepStreams::default());
        self.turns = None;
        (self.request, self.admitted) = (Request::default(), None);
        self.ensemble.open.lock().remove(&self.entry);
        answer(responder);
    }

    /// The request succeeds: reports the times of all members together as the times of the ensemble.
    fn report(&self) {
        let Some(responder) = &self.responder else { return };
        responder.timeline().executed_by_members(self.times.clone());
        let StepTimes { input_ns, infer_ns, output_ns } = self.member_times;
        let exec_start = self.times.exec_start;
        let compute_start = exec_start + Duration::from_nanos(input_ns);
        let compute_end = compute_start + Duration::from_nanos(infer_ns);
        let exec_end = compute_end + Duration::from_nanos(output_ns);
        let times = ReportedTimes { exec_start, compute_start, compute_end, exec_end };
        responder.report(times);
        responder.batch_reporter().iter().for_each(|reporter| reporter.report(times));
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<EnsembleEvent> {
        self.cancelled.register(context.waker());
        if self.is_cancelled() {
            return Poll::Ready(EnsembleEvent::Cancelled);
        }
        if self.waits_for_client() {
            let capacity = self.responder.as_ref().map(|responder| responder.poll_capacity(context));
            return capacity.unwrap_or(Poll::Pending).map(|()| EnsembleEvent::Ready);
        }
        if self.permits.poll(context) || self.turns.as_mut().is_some_and(RequestTurns::has_come) {
            return Poll::Ready(EnsembleEvent::Ready);
        }
        let mut event = self.steps.poll_event(context);
        // While the ensemble is full, consumers of what it holds come first. Without any, only producers can go on.
        if event.is_pending() && (self.steps.is_empty() || !self.ensemble.admission.is_full()) {
            event = self.producers.poll_event(context);
        }
        event.map(EnsembleEvent::Step)
    }
}

impl Drop for EnsembleRequest {
    fn drop(&mut self) {
        // Ended already, unless the runtime ends.
        self.end(drop);
    }
}

/// Shared by all responses.
static SEQUENCE_PARAMETERS: LazyLock<[Name; 3]> =
    LazyLock::new(|| ["sequence_id", "sequence_start", "sequence_end"].map(Name::from));

/// The parameters of every response of an ensemble, as in Triton: also without a sequence.
fn sequence_parameters(sequence: &SequencePosition) -> Vec<(Name, Parameter)> {
    let id = match &sequence.id {
        Some(SequenceId::Number(id)) => Parameter::Int(id.get().cast_signed()),
        Some(SequenceId::Text(id)) => Parameter::String(Name::new(id)),
        Some(SequenceId::ServerGenerated(_)) | None => Parameter::Int(0),
    };
    let [id_name, start_name, end_name] = &*SEQUENCE_PARAMETERS;
    vec![
        (id_name.clone(), id),
        (start_name.clone(), Parameter::Bool(sequence.start)),
        (end_name.clone(), Parameter::Bool(sequence.end)),
    ]
}
