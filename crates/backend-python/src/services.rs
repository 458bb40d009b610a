//! What a worker asks and tells besides the answers to requests: lines for the log, and questions about requests.
use inference::Error;

use crate::{
    channel::{WorkerChannel, WorkerFrameKind},
    frames::FrameWriter,
    marshal::{DamagedMessage, MarshalValue, MarshalWriter},
};

/// The answer to a question.
pub(crate) type ServiceAnswer = Result<ServiceValue, Error>;

/// A value that a worker gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ServiceValue {
    Nothing,
    Bool(bool),
    Number(u64),
    Float(f64),
}

impl ServiceValue {
    fn write(&self, writer: &mut MarshalWriter) {
        match *self {
            Self::Nothing => writer.none(),
            Self::Bool(value) => writer.bool(value),
            Self::Number(value) => writer.int(value),
            Self::Float(value) => writer.float(value),
        }
    }
}

/// Sends the answer to a question.
pub(crate) fn reply(channel: &WorkerChannel, number: u64, answer: &ServiceAnswer) {
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
    channel.send(frame);
}

/// Writes a line of a model to the log, with the model's file and line.
pub(crate) fn log_line(level: &str, file: &str, line: u32, text: &str) {
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
pub(crate) fn about_request(
    channel: &WorkerChannel,
    name: &str,
    arguments: &[MarshalValue<'_>],
) -> Result<Option<ServiceAnswer>, DamagedMessage> {
    Ok(match (name, arguments) {
        ("is_cancelled", [handle]) => {
            let handle = handle.as_int()?;
            let mut calls = channel.calls.lock();
            // A request that has ended needs no more work.
            let is_cancelled = calls.request(handle).is_none_or(|request| request.responder.is_cancelled());
            Some(Ok(ServiceValue::Bool(is_cancelled)))
        }
        _ => None,
    })
}
