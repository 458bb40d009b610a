//! What a worker asks and tells besides the answers to requests: lines for the log, and questions of its model.
use crate::{
    services::{
        model_services::ModelServices,
        service_answer::{ServiceAnswer, ServiceValue},
    },
    session::worker_session::WorkerSession,
    wire::{
        frames::{FrameWriter, WorkerFrameKind},
        marshal::{DamagedMessage, MarshalValue},
        messages::WorkerItem,
    },
};

/// Serves an item that concerns no request.
///
/// # Errors
/// The item is damaged.
pub(crate) fn serve(
    session: &WorkerSession,
    services: &mut ModelServices,
    item: WorkerItem<'_>,
) -> Result<(), DamagedMessage> {
    match item {
        WorkerItem::Log { level, file, line, text } => log_line(level, file, line, text),
        WorkerItem::Ask { reply: number, name, arguments } => {
            let answer = match about_request(session, name, arguments)? {
                Some(answer) => Some(answer),
                None => services.ask(number, name, arguments)?,
            };
            if let Some(answer) = answer {
                reply(session, number, &answer);
            }
        }
        WorkerItem::Tell { name, arguments } => services.tell(name, arguments)?,
        WorkerItem::Freed(offsets) => {
            let mut outbox = session.outbox();
            offsets.into_iter().for_each(|offset| outbox.inputs.give_back(offset));
        }
        WorkerItem::WantsSpace => session.give_back(&[], true),
        // These concern a model that executes.
        WorkerItem::Result(_)
        | WorkerItem::Done { .. }
        | WorkerItem::Send { .. }
        | WorkerItem::Abandoned { .. }
        | WorkerItem::Infer { .. }
        | WorkerItem::CancelInfer { .. }
        | WorkerItem::Taken { .. } => {}
    }
    Ok(())
}

/// Sends the answers that have come since their questions.
pub(crate) fn answer_finished(session: &WorkerSession, services: &ModelServices) {
    services.take_finished().iter().for_each(|(number, answer)| reply(session, *number, answer));
}

/// Sends the answer to a question.
fn reply(session: &WorkerSession, number: u64, answer: &ServiceAnswer) {
    let mut frame = FrameWriter::default();
    let header = &mut frame.header;
    header.tuple(4);
    header.int(WorkerFrameKind::Reply as u8);
    header.int(number);
    match answer {
        Ok(value) => {
            header.none();
            value.write(header);
        }
        Err(error) => {
            header.str(&error.message);
            header.none();
        }
    }
    session.send(frame);
}

/// Writes a line of a model to the log, with the model's file and line.
fn log_line(level: &str, file: &str, line: u32, text: &str) {
    let level = match level {
        "ERROR" => log::Level::Error,
        "WARNING" => log::Level::Warn,
        "VERBOSE" => log::Level::Debug,
        _ => log::Level::Info,
    };
    if level > log::max_level() {
        return;
    }
    let mut record = log::Record::builder();
    record.level(level).target("python").file(Some(file)).line(Some(line));
    log::logger().log(&record.args(format_args!("{text}")).build());
}

/// Answers a question about a request, if it is one.
///
/// # Errors
/// The question is damaged.
fn about_request(
    session: &WorkerSession,
    name: &str,
    arguments: &[MarshalValue<'_>],
) -> Result<Option<ServiceAnswer>, DamagedMessage> {
    Ok(match (name, arguments) {
        ("is_cancelled", [handle]) => {
            let handle = handle.as_int()?;
            let mut outbox = session.outbox();
            // A request that has ended needs no more work.
            let is_cancelled =
                outbox.calls.request(handle).is_none_or(|request| request.responder.is_cancelled());
            Some(Ok(ServiceValue::Bool(is_cancelled)))
        }
        _ => None,
    })
}
