//! What a client says when it registers a region, and the rules that need neither the table nor the system.
use vocabulary::{Error, MAX_STORED_NAME, check_length};

/// The prefix of the objects by which Triton's Python backend talks to its processes. Clients must not write there.
const RESERVED_PREFIX: &str = "triton_python_backend_shm_region_";

/// The length of CUDA's handle of an allocation (`cudaIpcMemHandle_t`), in bytes.
const CUDA_HANDLE_BYTES: usize = 64;

/// The registration of a part of a shared memory object of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemRegistration {
    /// The name by which requests refer to the region.
    pub name: String,
    /// The name of the object, as `shm_open` takes it.
    pub key: String,
    /// Where the region begins in the object, in bytes.
    pub offset: u64,
    /// The length of the region, in bytes.
    pub byte_size: u64,
}

impl SystemRegistration {
    /// Checks what does not depend on other regions. As Triton: common.cc, ValidateSharedMemoryKey.
    ///
    /// # Errors
    /// INVALID_ARG for a name, or a key, that no region may have.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { name, key, .. } = self;
        if name.is_empty() {
            return Err(nameless("system"));
        }
        check_length("the name of the region", name, MAX_STORED_NAME)?;
        check_length("the key of the region", key, MAX_STORED_NAME)?;
        let object = key.trim_start_matches('/');
        if object.is_empty() {
            return Err(Error::invalid(format!(
                "cannot register shared memory region '{name}' - invalid shm key '{key}'"
            )));
        }
        if object.starts_with(RESERVED_PREFIX) {
            return Err(Error::invalid(format!(
                "cannot register shared memory region '{name}' with key '{key}' as the key contains the reserved prefix \
                 '{RESERVED_PREFIX}'"
            )));
        }
        Ok(())
    }
}

/// The registration of an allocation on a graphics processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaRegistration {
    /// The name by which requests refer to the region.
    pub name: String,
    /// CUDA's handle of the allocation.
    pub raw_handle: Vec<u8>,
    /// The number of the device.
    pub device_id: i64,
    /// The length of the region, in bytes.
    pub byte_size: u64,
}

impl CudaRegistration {
    /// As [`SystemRegistration::check`].
    ///
    /// # Errors
    /// INVALID_ARG for a name, or a handle, that no region may have.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.name.is_empty() {
            return Err(nameless("cuda"));
        }
        check_length("the name of the region", &self.name, MAX_STORED_NAME)?;
        // Triton does not check the handles of gRPC, and reads beyond the end of short ones (P-W26).
        if self.raw_handle.len() != CUDA_HANDLE_BYTES {
            return Err(Error::invalid("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"));
        }
        Ok(())
    }
}

fn nameless(kind: &str) -> Error {
    Error::invalid(format!("'region name' is necessary to register {kind} shared memory region"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_key(key: &str) -> Result<(), String> {
        let registration = SystemRegistration { name: "r".into(), key: key.into(), offset: 0, byte_size: 64 };
        registration.check().map_err(|error| error.with_code())
    }

    #[test]
    fn a_key_names_an_object() {
        assert_eq!(of_key("/input"), Ok(()));
        assert_eq!(of_key("input"), Ok(()));
        assert_eq!(of_key("/my_triton_python_backend_shm_region_1"), Ok(()));
        for key in ["", "/", "///"] {
            let text = format!(
                "Invalid argument: cannot register shared memory region 'r' - invalid shm key '{key}'"
            );
            assert_eq!(of_key(key), Err(text));
        }
    }

    #[test]
    fn names_and_keys_have_a_limit() {
        let long = "k".repeat(MAX_STORED_NAME + 1);
        let text = "Invalid argument: the key of the region has 1025 bytes, and at most 1024 are allowed";
        assert_eq!(of_key(&long), Err(text.to_owned()));
        let text = "the name of the region has 1025 bytes, and at most 1024 are allowed";
        let registration =
            SystemRegistration { name: long.clone(), key: "/k".into(), offset: 0, byte_size: 1 };
        assert_eq!(registration.check(), Err(Error::invalid(text)));
        let registration = CudaRegistration { name: long, raw_handle: vec![], device_id: 0, byte_size: 1 };
        assert_eq!(registration.check(), Err(Error::invalid(text)));
    }

    #[test]
    fn the_objects_of_the_python_backend_are_reserved_however_many_slashes_precede_them() {
        for key in ["triton_python_backend_shm_region_1", "///triton_python_backend_shm_region_"] {
            let text = format!(
                "Invalid argument: cannot register shared memory region 'r' with key '{key}' as the key contains the reserved prefix 'triton_python_backend_shm_region_'"
            );
            assert_eq!(of_key(key), Err(text));
        }
    }

    #[test]
    fn a_region_needs_a_name() {
        let registration =
            SystemRegistration { name: String::new(), key: "/k".into(), offset: 0, byte_size: 1 };
        let text = "'region name' is necessary to register system shared memory region";
        assert_eq!(registration.check(), Err(Error::invalid(text)));
    }

    #[test]
    fn a_handle_of_cuda_has_64_bytes() {
        let of = |name: &str, length| {
            let (name, raw_handle) = (name.to_owned(), vec![0; length]);
            CudaRegistration { name, raw_handle, device_id: 0, byte_size: 1 }
                .check()
                .map_err(|error| error.message.into_owned())
        };
        assert_eq!(of("c", 64), Ok(()));
        for length in [0, 63, 65] {
            let text = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t";
            assert_eq!(of("c", length), Err(text.into()));
        }
        let text = "'region name' is necessary to register cuda shared memory region";
        assert_eq!(of("", 64), Err(text.into()));
    }
}
