//! The messages of a worker, from their values to types. `python/nereid_channel.py` writes them.
use std::borrow::Cow;

use vocabulary::{DataType, Error, ErrorCode, FailureReason, Parameter, Parameters, Shape};

use crate::wire::marshal::{DamagedMessage, MarshalValue};

/// One thing that a worker tells or asks.
#[derive(Debug, PartialEq)]
pub(crate) enum WorkerItem<'a> {
    /// The result of a command: a text, or the words of an error.
    Result(Result<&'a str, &'a str>),
    /// An execution has ended. An error is that of all requests without an answer of their own.
    Done { call: u64, error: Option<&'a str>, answers: Vec<WorkerAnswer<'a>> },
    /// A response by a sender. `None`: there is no response but the end.
    Send { handle: u64, response: Option<WireResponse<'a>>, is_last: bool },
    /// The model has dropped a request without an end.
    Abandoned { handle: u64 },
    /// The model asks another model.
    Infer { id: u64, request: WireRequest<'a>, decoupled: bool },
    /// The model does not want the answer to its request any more.
    CancelInfer { id: u64 },
    /// The model has taken so many responses to its request.
    Taken { id: u64, count: u32 },
    /// A line for the log.
    Log { level: &'a str, file: &'a str, line: u32, text: &'a str },
    /// A question whose answer the worker waits for.
    Ask { reply: u64, name: &'a str, arguments: &'a [MarshalValue<'a>] },
    /// Something to do without an answer.
    Tell { name: &'a str, arguments: &'a [MarshalValue<'a>] },
    /// Ranges of the server's area that the worker does not use any more.
    Freed(Vec<usize>),
    /// The worker waits until the server has read its outputs.
    WantsSpace,
}

/// What the list of an execution has for one request.
#[derive(Debug, PartialEq)]
pub(crate) enum WorkerAnswer<'a> {
    /// Nothing: a sender answers the request, or has answered it.
    Nothing,
    /// The request shall run again.
    Reschedule,
    /// A response.
    Response(WireResponse<'a>),
}

/// A response as it is in a message.
#[derive(Debug, PartialEq)]
pub(crate) struct WireResponse<'a> {
    pub(crate) error: Option<Error>,
    pub(crate) outputs: Vec<WireTensor<'a>>,
    /// JSON, or nothing.
    pub(crate) parameters: &'a str,
}

/// A tensor as it is in a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WireTensor<'a> {
    pub(crate) name: &'a str,
    pub(crate) datatype: DataType,
    pub(crate) shape: Shape,
    pub(crate) data: WireData<'a>,
}

/// Where the bytes of a tensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireData<'a> {
    /// In the message.
    Inline(&'a [u8]),
    /// In an area. The worker keeps the range until the server returns the number.
    Area { is_of_worker: bool, offset: usize, byte_size: usize, number: u64 },
}

impl WireData<'_> {
    /// The number of bytes, as the worker says.
    pub(crate) fn byte_size(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Area { byte_size, .. } => *byte_size,
        }
    }
}

/// A request of a model to another model.
#[derive(Debug, PartialEq)]
pub(crate) struct WireRequest<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: i64,
    pub(crate) id: &'a str,
    /// A number or a text.
    pub(crate) correlation_id: Result<u64, &'a str>,
    pub(crate) flags: u32,
    pub(crate) timeout_us: u64,
    /// JSON, or nothing.
    pub(crate) parameters: &'a str,
    pub(crate) outputs: Vec<&'a str>,
    pub(crate) inputs: Vec<WireTensor<'a>>,
    /// The request whose trace is the parent of this request's trace.
    pub(crate) trace: Option<u64>,
}

impl<'a> WorkerItem<'a> {
    /// Whether an item says that an execution has ended.
    pub(crate) fn ends_execution(value: &MarshalValue<'_>) -> bool {
        value.as_list().is_ok_and(|item| matches!(item, [kind, ..] if kind.as_int() == Ok(2_u8)))
    }

    /// Reads one item of a message.
    ///
    /// # Errors
    /// The item has no known form.
    pub(crate) fn of(value: &'a MarshalValue<'a>) -> Result<Self, DamagedMessage> {
        let [kind, fields @ ..] = value.as_list()? else { return Err(DamagedMessage("an item is empty")) };
        let kind: u8 = kind.as_int()?;
        Ok(match (kind, fields) {
            (1, [error, result]) => Self::Result(match error.as_optional_str()? {
                Some(error) => Err(error),
                None => Ok(result.as_str()?),
            }),
            (2, [call, error, answers]) => Self::Done {
                call: call.as_int()?,
                error: error.as_optional_str()?,
                answers: answers.as_list()?.iter().map(WorkerAnswer::of).collect::<Result<_, _>>()?,
            },
            (3, [handle, response, is_last]) => Self::Send {
                handle: handle.as_int()?,
                response: if response.is_none() { None } else { Some(WireResponse::of(response)?) },
                is_last: is_last.as_bool()?,
            },
            (4, [handle]) => Self::Abandoned { handle: handle.as_int()? },
            (5, [id, request, decoupled]) => Self::Infer {
                id: id.as_int()?,
                request: WireRequest::of(request)?,
                decoupled: decoupled.as_bool()?,
            },
            (6, [id]) => Self::CancelInfer { id: id.as_int()? },
            (7, [id, count]) => Self::Taken { id: id.as_int()?, count: count.as_int()? },
            (8, [level, file, line, text]) => Self::Log {
                level: level.as_str()?,
                file: file.as_str()?,
                line: line.as_int()?,
                text: text.as_str()?,
            },
            (9, [reply, name, arguments]) => {
                Self::Ask { reply: reply.as_int()?, name: name.as_str()?, arguments: arguments.as_list()? }
            }
            (10, [name, arguments]) => Self::Tell { name: name.as_str()?, arguments: arguments.as_list()? },
            (11, [ranges]) => {
                Self::Freed(ranges.as_list()?.iter().map(MarshalValue::as_int).collect::<Result<_, _>>()?)
            }
            (12, []) => Self::WantsSpace,
            _ => return Err(DamagedMessage("it has an item of an unknown kind")),
        })
    }
}

impl<'a> WorkerAnswer<'a> {
    fn of(value: &'a MarshalValue<'a>) -> Result<Self, DamagedMessage> {
        Ok(match value {
            MarshalValue::None => Self::Nothing,
            MarshalValue::Bool(true) => Self::Reschedule,
            other => Self::Response(WireResponse::of(other)?),
        })
    }
}

impl<'a> WireResponse<'a> {
    fn of(value: &'a MarshalValue<'a>) -> Result<Self, DamagedMessage> {
        let [error, outputs, parameters] = value.as_array()?;
        let error = match error {
            MarshalValue::None => None,
            error => {
                let [code, text] = error.as_array()?;
                let text = Cow::Owned(text.as_str()?.to_owned());
                Some(Error::new(error_code(code.as_int()?), text).because(FailureReason::Backend))
            }
        };
        Ok(Self { error, outputs: tensors(outputs)?, parameters: parameters.as_str()? })
    }
}

fn tensors<'a>(value: &'a MarshalValue<'a>) -> Result<Vec<WireTensor<'a>>, DamagedMessage> {
    value.as_list()?.iter().map(WireTensor::of).collect()
}

impl<'a> WireTensor<'a> {
    fn of(value: &'a MarshalValue<'a>) -> Result<Self, DamagedMessage> {
        let [name, datatype, shape, data] = value.as_array()?;
        let datatype = DataType::from_protocol_name(datatype.as_str()?);
        let datatype = datatype.ok_or(DamagedMessage("a tensor has an unknown datatype"))?;
        let shape = shape.as_list()?.iter().map(MarshalValue::as_int).collect::<Result<Shape, _>>()?;
        let data = match data {
            MarshalValue::Bytes(bytes) => WireData::Inline(bytes),
            place => {
                let [is_of_worker, offset, byte_size, number] = place.as_array()?;
                WireData::Area {
                    is_of_worker: is_of_worker.as_bool()?,
                    offset: offset.as_int()?,
                    byte_size: byte_size.as_int()?,
                    number: number.as_int()?,
                }
            }
        };
        Ok(Self { name: name.as_str()?, datatype, shape, data })
    }
}

impl<'a> WireRequest<'a> {
    fn of(value: &'a MarshalValue<'a>) -> Result<Self, DamagedMessage> {
        let [model, version, id, correlation_id, flags, timeout, parameters, outputs, inputs, trace] =
            value.as_array()?;
        Ok(Self {
            model: model.as_str()?,
            version: version.as_int()?,
            id: id.as_str()?,
            correlation_id: match correlation_id {
                MarshalValue::Str(text) => Err(text),
                number => Ok(number.as_int()?),
            },
            flags: flags.as_int()?,
            timeout_us: timeout.as_int()?,
            parameters: parameters.as_str()?,
            outputs: outputs.as_list()?.iter().map(MarshalValue::as_str).collect::<Result<_, _>>()?,
            inputs: tensors(inputs)?,
            trace: if trace.is_none() { None } else { Some(trace.as_int()?) },
        })
    }
}

/// The numbers of `TRITONSERVER_Error_Code`.
pub(crate) fn error_code(number: i64) -> ErrorCode {
    match number {
        1 => ErrorCode::Internal,
        2 => ErrorCode::NotFound,
        3 => ErrorCode::InvalidArgument,
        4 => ErrorCode::Unavailable,
        5 => ErrorCode::Unsupported,
        6 => ErrorCode::AlreadyExists,
        7 => ErrorCode::Cancelled,
        _ => ErrorCode::Unknown,
    }
}

/// The number of a code in `TRITONSERVER_Error_Code`.
pub(crate) fn error_number(code: ErrorCode) -> i32 {
    match code {
        ErrorCode::Unknown => 0,
        ErrorCode::Internal => 1,
        ErrorCode::NotFound => 2,
        ErrorCode::InvalidArgument => 3,
        ErrorCode::Unavailable | ErrorCode::ResourceExhausted => 4,
        ErrorCode::Unsupported => 5,
        ErrorCode::AlreadyExists => 6,
        ErrorCode::Cancelled => 7,
    }
}

/// The parameters of a JSON object. Values are texts, whole numbers and truth values.
///
/// # Errors
/// The text is no such object.
pub(crate) fn parameters_of_json(text: &str) -> Result<Parameters, DamagedMessage> {
    if text.is_empty() || text == "{}" {
        return Ok(Parameters::new());
    }
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|_| DamagedMessage("parameters are no object in JSON"))?;
    let parameter = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => Some(Parameter::String(text.as_str().into())),
        serde_json::Value::Bool(truth) => Some(Parameter::Bool(*truth)),
        serde_json::Value::Number(number) => {
            number.as_i64().map(Parameter::Int).or_else(|| number.as_f64().map(Parameter::Double))
        }
        serde_json::Value::Null | serde_json::Value::Array(_) | serde_json::Value::Object(_) => None,
    };
    object
        .iter()
        .map(|(name, value)| Some((name.as_str().into(), parameter(value)?)))
        .collect::<Option<Parameters>>()
        .ok_or(DamagedMessage("a parameter has an unknown type"))
}

/// The object in JSON that a model gets, in the client's order. Bytes have no form in JSON, and are left out. Numbers that
/// are infinite or none have the words that Python reads and Triton writes.
pub(crate) fn parameters_json(parameters: &Parameters) -> String {
    let value = |parameter: &Parameter| match parameter {
        Parameter::String(text) => Some(serde_json::Value::from(text.as_str()).to_string()),
        Parameter::Int(number) => Some(number.to_string()),
        Parameter::Bool(truth) => Some(truth.to_string()),
        Parameter::Double(number) if number.is_nan() => Some("NaN".to_owned()),
        Parameter::Double(f64::INFINITY) => Some("Infinity".to_owned()),
        Parameter::Double(f64::NEG_INFINITY) => Some("-Infinity".to_owned()),
        Parameter::Double(number) => Some(serde_json::Value::from(*number).to_string()),
        Parameter::Bytes(_) => None,
    };
    let pairs = parameters.iter().filter_map(|(name, parameter)| {
        Some(format!("{}:{}", serde_json::Value::from(name.as_str()), value(parameter)?))
    });
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::marshal::MarshalWriter;

    #[test]
    fn an_execution_has_an_answer_for_each_request() {
        let mut writer = MarshalWriter::default();
        writer.tuple(4);
        writer.int(2);
        writer.int(9);
        writer.none();
        writer.tuple(3);
        writer.none();
        writer.bool(true);
        writer.tuple(3);
        writer.tuple(2);
        writer.int(2);
        writer.str("not here");
        writer.tuple(1);
        writer.tuple(4);
        writer.str("Y");
        writer.str("FP32");
        writer.tuple(1);
        writer.int(1);
        writer.tuple(4);
        writer.bool(true);
        writer.int(64);
        writer.int(4);
        writer.int(3);
        writer.str("{}");
        let bytes = writer.finish();
        let value = MarshalValue::read(&bytes).unwrap();
        let WorkerItem::Done { call: 9, error: None, answers } = WorkerItem::of(&value).unwrap() else {
            panic!("{value:?}")
        };
        let [WorkerAnswer::Nothing, WorkerAnswer::Reschedule, WorkerAnswer::Response(response)] =
            &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!(response.error.as_ref().unwrap().with_code(), "Not found: not here");
        let data = WireData::Area { is_of_worker: true, offset: 64, byte_size: 4, number: 3 };
        assert_eq!(response.outputs[0].data, data);
    }

    #[test]
    fn an_unknown_item_is_damaged() {
        let mut writer = MarshalWriter::default();
        writer.tuple(1);
        writer.int(99);
        let bytes = writer.finish();
        assert!(WorkerItem::of(&MarshalValue::read(&bytes).unwrap()).is_err());
    }

    #[test]
    fn parameters_are_texts_numbers_and_truth_values() {
        let read = parameters_of_json(r#"{"b": true, "n": -7, "t": "x"}"#).unwrap();
        let expected =
            [("b", Parameter::Bool(true)), ("n", Parameter::Int(-7)), ("t", Parameter::String("x".into()))];
        assert_eq!(read, expected.map(|(name, value)| (name.into(), value)));
        assert!(parameters_of_json("[]").is_err() && parameters_of_json(r#"{"x": []}"#).is_err());
    }

    #[test]
    fn numbers_without_a_form_in_json_have_the_words_of_python() {
        let numbers = [("a", f64::NAN), ("b", f64::INFINITY), ("c", f64::NEG_INFINITY), ("d", 0.5)];
        let parameters = numbers.map(|(name, number)| (name.into(), Parameter::Double(number)));
        assert_eq!(
            parameters_json(&parameters.into_iter().collect()),
            r#"{"a":NaN,"b":Infinity,"c":-Infinity,"d":0.5}"#
        );
    }
}
