//! `nereid api-key`: makes a key, or with `--hash` the digest of a key from stdin.
use std::{ffi::OsString, io};

use frontend::access::api_keys;

use super::streams::{Streams, asks_for_help, fail, refuse};
use crate::options;

/// Runs the command. `arguments` are the words after `api-key`. Returns the exit code.
pub(super) fn run(arguments: impl Iterator<Item = OsString>, (out, err): Streams<'_>) -> u8 {
    let words: Vec<_> = arguments.collect();
    let made = match &words[..] {
        [] => api_keys::new_key()
            .map_err(|error| error.to_string())
            .map(|key| format!("key:    {key}\nsha256: {}\n", api_keys::digest_text(&key))),
        [word] if word == "--hash" => io::read_to_string(io::stdin())
            .map_err(|error| error.to_string())
            .map(|key| format!("{}\n", api_keys::digest_text(key.trim_end_matches(['\r', '\n'])))),
        words if words.iter().any(|word| asks_for_help(word)) => Ok(options::command_usage("api-key")),
        words => {
            let wrong = words.iter().find(|word| *word != "--hash").unwrap_or(&words[0]);
            return refuse(&format!("unexpected argument: {}", wrong.display()), "api-key", err);
        }
    };
    // If the reader has closed a stream, the error does not matter.
    match made {
        Ok(text) => {
            let _ = out.write_all(text.as_bytes());
            0
        }
        Err(error) => fail(error, err),
    }
}
