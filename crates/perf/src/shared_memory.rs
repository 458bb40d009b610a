//! Tensors in shared memory: one object for the whole run, with all inputs and with room for the outputs.
//!
//! The generator writes the inputs once. All requests of a run write their outputs to the same place: nobody reads them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use client::endpoint::ServerEndpoint;
use client::grpc::GrpcConnection;
use client::http::HttpConnection;

use crate::http_request;
use crate::options::{PerfOptions, Protocol};
use crate::tensors::InputTensor;

/// The alignment of each tensor in the object, in bytes.
const ALIGNMENT: u64 = 64;

/// A registered object. It is unlinked when this is dropped.
pub(crate) struct SharedTensors {
    region: String,
    path: PathBuf,
    byte_size: u64,
    /// For each request, where its inputs are.
    inputs: Vec<Vec<TensorPlace>>,
    /// The outputs by name.
    outputs: Vec<(String, TensorPlace)>,
}

/// A part of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TensorPlace {
    pub(crate) offset: u64,
    pub(crate) byte_size: u64,
}

/// The places of one request.
#[derive(Clone, Copy)]
pub(crate) struct RequestPlaces<'s> {
    pub(crate) region: &'s str,
    pub(crate) inputs: &'s [TensorPlace],
    pub(crate) outputs: &'s [(String, TensorPlace)],
}

impl SharedTensors {
    /// Makes an object with the inputs of all requests. Each output gets that many bytes.
    ///
    /// # Errors
    /// The system has no shared memory, or not enough.
    pub(crate) fn create(
        requests: &[Vec<InputTensor>],
        outputs: &[String],
        output_byte_size: u64,
    ) -> Result<SharedTensors> {
        let region = format!("nereid_perf_{}", std::process::id());
        let path = PathBuf::from("/dev/shm").join(&region);
        let mut end = 0_u64;
        let mut place = |byte_size: u64| {
            let offset = end;
            end = (end + byte_size).next_multiple_of(ALIGNMENT);
            TensorPlace { offset, byte_size }
        };
        let of_request = |tensors: &Vec<InputTensor>| {
            tensors.iter().map(|tensor| place(tensor.bytes.len() as u64)).collect()
        };
        let inputs: Vec<Vec<TensorPlace>> = requests.iter().map(of_request).collect();
        let outputs = outputs.iter().map(|name| (name.clone(), place(output_byte_size))).collect();
        let failed = || format!("cannot make the shared memory object {}", path.display());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.with_context(failed)?;
        let shared = SharedTensors { region, path: path.clone(), byte_size: end.max(1), inputs, outputs };
        file.set_len(shared.byte_size).with_context(failed)?;
        for (tensors, places) in requests.iter().zip(&shared.inputs) {
            for (tensor, place) in tensors.iter().zip(places) {
                file.write_all_at(&tensor.bytes, place.offset).with_context(failed)?;
            }
        }
        Ok(shared)
    }

    /// Registers the object.
    ///
    /// # Errors
    /// The server is not reachable, or refuses the region.
    pub(crate) async fn register(&self, endpoint: &ServerEndpoint, options: &PerfOptions) -> Result<()> {
        let (name, byte_size) = (self.region.clone(), self.byte_size);
        let key = format!("/{name}");
        let registering = "registering shared memory: the server must run on this machine and allow it \
                           (--allow-client-shm=true)";
        match options.protocol {
            Protocol::HttpJson | Protocol::HttpBinary => {
                let body = format!(r#"{{"key":"{key}","offset":0,"byte_size":{byte_size}}}"#);
                self.post(endpoint, options, "register", &body).await.context(registering)
            }
            Protocol::Grpc => {
                let connection = GrpcConnection::open(endpoint).await?;
                let request = proto::SystemSharedMemoryRegisterRequest { name, key, offset: 0, byte_size };
                let answer: Result<proto::SystemSharedMemoryRegisterResponse> =
                    connection.fetch("SystemSharedMemoryRegister", &request).await;
                answer.map(drop).context(registering)
            }
        }
    }

    /// Unregisters the object.
    ///
    /// # Errors
    /// The server is not reachable.
    pub(crate) async fn unregister(&self, endpoint: &ServerEndpoint, options: &PerfOptions) -> Result<()> {
        match options.protocol {
            Protocol::HttpJson | Protocol::HttpBinary => self.post(endpoint, options, "unregister", "").await,
            Protocol::Grpc => {
                let connection = GrpcConnection::open(endpoint).await?;
                let request = proto::SystemSharedMemoryUnregisterRequest { name: self.region.clone() };
                let answer: Result<proto::SystemSharedMemoryUnregisterResponse> =
                    connection.fetch("SystemSharedMemoryUnregister", &request).await;
                answer.map(drop)
            }
        }
    }

    async fn post(
        &self,
        endpoint: &ServerEndpoint,
        options: &PerfOptions,
        action: &str,
        body: &str,
    ) -> Result<()> {
        let path = format!("/v2/systemsharedmemory/region/{}/{action}", self.region);
        let mut connection = HttpConnection::open(endpoint).await?;
        connection.fetch(&http_request::post(options, &path, body)).await.map(drop)
    }

    /// The places of the request with that index.
    pub(crate) fn of_request(&self, index: usize) -> RequestPlaces<'_> {
        RequestPlaces { region: &self.region, inputs: &self.inputs[index], outputs: &self.outputs }
    }
}

impl Drop for SharedTensors {
    fn drop(&mut self) {
        // Nobody can do anything about an object that cannot be removed.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::model::ModelInput;

    #[test]
    fn the_object_holds_all_inputs_and_room_for_the_outputs() {
        let tensor = |content: &'static [u8]| InputTensor {
            input: ModelInput { name: "X".into(), datatype: "UINT8".into(), shape: vec![2] },
            bytes: Bytes::from_static(content),
        };
        let requests = [vec![tensor(&[1, 2]), tensor(&[3])], vec![tensor(&[4])]];
        let shared = SharedTensors::create(&requests, &["Y".to_owned()], 100).unwrap();
        let place = |offset, byte_size| TensorPlace { offset, byte_size };
        assert_eq!(shared.of_request(0).inputs, [place(0, 2), place(64, 1)]);
        assert_eq!(shared.of_request(1).inputs, [place(128, 1)]);
        assert_eq!(shared.of_request(1).outputs, [("Y".to_owned(), place(192, 100))]);
        let content = fs::read(&shared.path).unwrap();
        assert_eq!((content.len(), content[1], content[64], content[128]), (320, 2, 3, 4));
        let path = shared.path.clone();
        drop(shared);
        assert!(!path.exists());
    }
}
