//! A response of a model as one flat JSON object. Its members are sorted by name.
use inference::Response;
use kserve::{
    json_text::{write_int, write_string},
    long_write::LongWrite,
};
use smallvec::SmallVec;
use vocabulary::{Error, Parameter, Tensor};

use crate::{
    chunks::Chunks,
    http::response::{NotUtf8, ResponseIdentity, complete, estimated_size, write_data, write_parameter},
};

/// A member of the object.
#[derive(Clone, Copy)]
enum ResponseMember<'r> {
    Text(&'r str),
    Version(i64),
    Parameter(&'r Parameter),
    Output(&'r Tensor),
}

/// The text of a response between what stands before and behind it: the request's id unless it is empty, the name and
/// version of the model, the response's parameters, and its outputs. If several members have the same name, the first
/// one in this order counts. An output of one element is a scalar. Any other output is a flat array.
///
/// # Errors
/// As [`crate::http::response::encode`].
pub(super) fn encode(
    (before, behind): (&[u8], &[u8]),
    identity: ResponseIdentity<'_>,
    response: &Response,
    mut long: Option<&mut LongWrite<'_>>,
) -> Result<Chunks, Error> {
    let mut members = SmallVec::<[(&str, ResponseMember<'_>); 8]>::new();
    if !identity.id.is_empty() {
        members.push(("id", ResponseMember::Text(identity.id)));
    }
    members.push(("model_name", ResponseMember::Text(identity.model)));
    members.push(("model_version", ResponseMember::Version(identity.version)));
    members.extend(
        response.parameters.iter().map(|(name, value)| (name.as_str(), ResponseMember::Parameter(value))),
    );
    members.extend(
        response.outputs.iter().map(|output| (output.name().as_str(), ResponseMember::Output(output))),
    );
    // The sort is stable, so the first member of a name stays the first.
    members.sort_by_key(|(name, _)| *name);
    members.dedup_by_key(|(name, _)| *name);

    let mut text = Vec::with_capacity(before.len() + estimated_size(response) + behind.len());
    text.extend_from_slice(before);
    let to = &mut text;
    to.push(b'{');
    for (index, (name, member)) in members.into_iter().enumerate() {
        if index > 0 {
            to.push(b',');
        }
        write_string(to, name.as_bytes());
        to.push(b':');
        match member {
            ResponseMember::Text(text) => write_string(to, text.as_bytes()),
            ResponseMember::Version(version) => {
                to.push(b'"');
                write_int(to, version);
                to.push(b'"');
            }
            ResponseMember::Parameter(value) => write_parameter(to, value)?,
            ResponseMember::Output(output) => write_output(to, output, long.as_deref_mut())?,
        }
    }
    to.push(b'}');
    to.extend_from_slice(behind);
    Ok(complete(text, long))
}

fn write_output(to: &mut Vec<u8>, output: &Tensor, long: Option<&mut LongWrite<'_>>) -> Result<(), Error> {
    if output.shape().iter().all(|&dim| dim == 1) {
        return write_data(to, output, NotUtf8::Replaced, long);
    }
    to.push(b'[');
    write_data(to, output, NotUtf8::Replaced, long)?;
    to.push(b']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use vocabulary::{DataType, Name};

    use super::*;

    fn output(name: &str, datatype: DataType, shape: &[i64], bytes: &[u8]) -> Tensor {
        Tensor::new(name.into(), datatype, shape.into(), bytes.to_vec())
    }

    fn text(id: &str, response: &Response) -> Result<String, Error> {
        let (id, model) = (Name::new(id), Name::new("m"));
        let identity = ResponseIdentity { id: &id, model: &model, version: 1 };
        let text = encode((b"", b""), identity, response, None)?;
        Ok(text.ranges().map(|range| String::from_utf8_lossy(range).into_owned()).collect())
    }

    #[test]
    fn members_are_sorted_and_single_elements_are_scalars() {
        let mut response = Response::of(vec![
            output("text_output", DataType::Bytes, &[1, 1], b"\x02\0\0\0hi"),
            output("vec", DataType::Int8, &[2], &[1, 255]),
            output("OUT", DataType::Int8, &[0, 3], &[]),
            output("flag", DataType::Bool, &[], &[1]),
        ]);
        response.parameters = vec![("p".into(), Parameter::Double(0.5)), ("b".into(), Parameter::Bool(true))];
        assert_eq!(
            text("7", &response).unwrap(),
            r#"{"OUT":[],"b":true,"flag":true,"id":"7","model_name":"m","model_version":"1","p":0.5,"text_output":"hi","vec":[1,-1]}"#
        );
        assert_eq!(text("", &Response::default()).unwrap(), r#"{"model_name":"m","model_version":"1"}"#);
    }

    #[test]
    fn of_equal_names_the_first_counts() {
        let mut response = Response::of(vec![
            output("id", DataType::Int8, &[1], &[1]),
            output("model_name", DataType::Int8, &[1], &[2]),
            output("p", DataType::Int8, &[1], &[3]),
        ]);
        response.parameters = vec![("p".into(), Parameter::Int(4))];
        assert_eq!(text("7", &response).unwrap(), r#"{"id":"7","model_name":"m","model_version":"1","p":4}"#);
    }

    #[test]
    fn what_json_cannot_carry_is_an_error() {
        let response = Response::of(vec![output("OUT", DataType::Fp16, &[1], &[0, 0])]);
        let expected =
            "sending FP16 data via JSON is not supported. Please use the binary data format for output";
        assert_eq!(text("", &response), Err(Error::invalid(expected)));
        let response = Response::of(vec![output("OUT", DataType::Int32, &[1], &[0, 0])]);
        let expected =
            "Failed to write 'data' field: output tensor shape does not match size of output for 'OUT'";
        assert_eq!(text("", &response), Err(Error::internal(expected)));
    }
}
