//! Requests between the recorded exchanges that were not recorded themselves.
use testing::http::Connection;

use crate::golden::replay::{Stage, error_during};

const ADMINISTRATOR: &[(&str, &str)] = &[("adminkey", "secret")];

/// Sends the request that came before the exchange with this name, if there was one.
pub(crate) fn send_before(name: &str, stage: &Stage<'_>) -> Result<(), String> {
    let (model, body) = match name {
        "mc_meta_after_override" => ("id_int32", OVERRIDE),
        // An earlier exchange has unloaded it.
        "gr_simple" => ("simple", ""),
        _ => return Ok(()),
    };
    let mut connection = Connection::open(stage.served.http).map_err(error_during("connect"))?;
    let path = format!("/v2/repository/models/{model}/load");
    let reply =
        connection.ask("POST", &path, ADMINISTRATOR, body.as_bytes()).map_err(error_during("load"))?;
    if reply.status == 200 { Ok(()) } else { Err(format!("{} {}", reply.status_line, reply.text())) }
}

/// Tensors of two numbers instead of any number.
const OVERRIDE: &str = r#"{"parameters":{"config":"{\"name\":\"id_int32\",\"backend\":\"python\",\"max_batch_size\":0,\"input\":[{\"name\":\"IN\",\"data_type\":\"TYPE_INT32\",\"dims\":[2]}],\"output\":[{\"name\":\"OUT\",\"data_type\":\"TYPE_INT32\",\"dims\":[2]}],\"instance_group\":[{\"kind\":\"KIND_CPU\"}]}"}}"#;
