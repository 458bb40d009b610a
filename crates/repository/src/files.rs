//! Reads the small files that a model's configuration names: labels, initial states, and samples for warm-up.
//!
//! The validation of the configuration has checked that they are inside the model's directory.
use std::{io, path::Path};

use bytes::Bytes;
use config::{InitialState, ModelConfig, OutputSpec, Scheduling, StateSpec};
use inference::WarmupFiles;
use vocabulary::{Error, element_count};

use crate::regular_file;

/// Reads labels and initial states into the configuration.
///
/// # Errors
/// INTERNAL for a file that cannot be read, INVALID_ARG for a file that is too short.
pub fn read(config: &mut ModelConfig, directory: &Path) -> Result<(), Error> {
    for output in &mut config.outputs {
        read_labels(output, directory)?;
    }
    if let Scheduling::Sequence(sequence) = &mut config.scheduling {
        let directory = directory.join("initial_state");
        for state in &mut sequence.states {
            read_initial_state(state, &directory)?;
        }
    }
    Ok(())
}

fn read_labels(output: &mut OutputSpec, directory: &Path) -> Result<(), Error> {
    let Some(file) = &output.label_filename else { return Ok(()) };
    let path = directory.join(file);
    let text = regular_file::read_text(&path).map_err(|error| unreadable(&path, &error))?;
    output.labels = text.lines().map(str::to_owned).collect();
    Ok(())
}

/// Reads an initial state. Truncates a file that is too long, unless the state has strings.
fn read_initial_state(state: &mut StateSpec, directory: &Path) -> Result<(), Error> {
    let Some(InitialState { dims, file: Some(file), data }) = &mut state.initial else { return Ok(()) };
    let path = directory.join(&*file);
    let content = Bytes::from(regular_file::read(&path).map_err(|error| unreadable(&path, &error))?);
    let Some(element) = state.datatype.byte_size() else {
        *data = content;
        return Ok(());
    };
    let elements = element_count(dims).ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let expected = elements * element;
    if content.len() < expected {
        return Err(Error::invalid(format!(
            "initial_state setting expects {expected} bytes, but the data provided from {file}only has {} bytes.",
            content.len()
        )));
    }
    *data = content.slice(..expected);
    Ok(())
}

/// The files of the samples for warm-up of a model in that directory. Each is read when a sample needs it.
pub fn of_warmups(directory: &Path) -> WarmupFiles {
    let directory = directory.join("warmup");
    WarmupFiles::new(move |file| {
        let path = directory.join(file);
        let unreadable =
            |error| Error::internal(format!("failed to open text file for read {}: {error}", path.display()));
        regular_file::read(&path).map(Bytes::from).map_err(unreadable)
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    let (path, missing) = (path.display(), error.kind() == io::ErrorKind::NotFound);
    let why = if missing { "No such file or directory".to_owned() } else { error.to_string() };
    Error::internal(format!("failed to open text file for read {path}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vocabulary::{DataType, Shape};

    use super::*;

    fn read_state(datatype: DataType, dims: &[i64], content: &[u8]) -> Result<Bytes, String> {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("s"), content).unwrap();
        let initial = InitialState { dims: dims.into(), file: Some("s".to_owned()), data: Bytes::new() };
        let mut state = StateSpec {
            input_name: "IN".into(),
            output_name: "OUT".into(),
            datatype,
            dims: Shape::from_slice(dims),
            initial: Some(initial),
            uses_same_buffer: false,
            uses_growable_memory: false,
        };
        read_initial_state(&mut state, directory.path()).map_err(|error| error.to_string())?;
        Ok(state.initial.unwrap().data)
    }

    #[test]
    fn a_state_reads_as_many_bytes_of_its_file_as_it_needs() {
        assert_eq!(read_state(DataType::Int32, &[2], b"123456789").unwrap(), "12345678");
        assert_eq!(read_state(DataType::Bytes, &[1], b"\x02\0\0\0hi").unwrap(), &b"\x02\0\0\0hi"[..]);
    }

    #[test]
    fn a_file_that_is_too_short_is_named() {
        assert_eq!(
            read_state(DataType::Int32, &[2], b"1234").unwrap_err(),
            "initial_state setting expects 8 bytes, but the data provided from sonly has 4 bytes."
        );
    }
}
