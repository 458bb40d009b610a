//! The members of a parameters object in JSON.

use anyhow::Result;

use crate::options::{GivenParameter, PerfOptions, Protocol};
use crate::sequences::PlannedPosition;

/// The parameters of a sequence, as members of an object.
pub(super) fn json_of_sequence(PlannedPosition { id, start, end }: &PlannedPosition) -> String {
    format!(r#""sequence_id":{id},"sequence_start":{start},"sequence_end":{end}"#)
}

/// The members of the parameters object of every request.
pub(super) fn json_parameters(options: &PerfOptions, binary_outputs: bool) -> Result<String> {
    let mut members = Vec::new();
    // Without this parameter the outputs would come back as JSON numbers.
    if binary_outputs && options.protocol != Protocol::Grpc {
        members.push(r#""binary_data_output":true"#.to_owned());
    }
    // The request begins and ends the sequence. So the next request can use the same id at once.
    if options.sequences.of_one_request {
        members.push(json_of_sequence(&PlannedPosition::ONLY));
    }
    for (name, value) in &options.parameters {
        let value = match value {
            GivenParameter::Bool(value) => value.to_string(),
            GivenParameter::Int(value) => value.to_string(),
            GivenParameter::Text(value) => serde_json::to_string(value)?,
        };
        members.push(format!("{}:{value}", serde_json::to_string(name)?));
    }
    Ok(members.join(","))
}
