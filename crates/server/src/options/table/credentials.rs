//! Options about who may use the ports.

use super::option_spec::{INT_MAX, OptionSpec, OptionValue, boolean, checked, text};
use crate::options::values;

pub(super) const CREDENTIALS: &[OptionSpec] = &[
    text(
        "api-key-file",
        |typed, value| typed.ports.api_key_file = value.to_owned(),
        "A JSON file: the API keys, each with the parts of the protocol and the models that it permits. With this \
         option clients of HTTP, gRPC, SageMaker and Vertex AI need a key, as Authorization: Bearer <key> or x-api-key: \
         <key>. 'nereid api-key' makes keys.",
    )
    .default(""),
    text(
        "client-crl-file",
        |typed, value| typed.ports.client_crl_files.push(value.to_owned()),
        "A PEM file: revocation lists of the authorities that sign client certificates, for each port with mutual TLS. \
         A client is then refused if a certificate of its chain is in a list, or if its issuer has no list that is \
         still valid. May be given several times.",
    ),
    boolean(
        "allow-v1-client-certs",
        |typed, value| typed.ports.allow_v1_client_certs = value,
        "Accept client certificates of X.509 version 1 on the ports with mutual TLS. They do not say what their key may \
         be used for, and cannot be revoked.",
    )
    .default("false"),
    OptionSpec::new(
        "credential-reload-secs",
        OptionValue::Integer(0, INT_MAX, |typed, value| typed.ports.credential_reload_secs = value),
        "How often the server looks whether certificates, revocation lists and API keys have changed, in seconds. It \
         then reads them again. 0: only after SIGHUP.",
    )
    .default("10"),
    checked(
        "unix-socket-mode",
        "<octal number>",
        |typed, value| {
            typed.ports.unix_socket_mode = values::file_mode(value)?;
            Ok(())
        },
        "The permissions of unix sockets. Whoever may write to a socket can connect.",
    )
    .default("0660"),
];
