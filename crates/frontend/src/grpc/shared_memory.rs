//! The calls about regions of shared memory.
use bytes::Bytes;
use proto::{
    CudaSharedMemoryRegisterRequest, CudaSharedMemoryRegisterResponse, CudaSharedMemoryStatusRequest,
    CudaSharedMemoryStatusResponse, CudaSharedMemoryUnregisterRequest, CudaSharedMemoryUnregisterResponse,
    SystemSharedMemoryRegisterRequest, SystemSharedMemoryRegisterResponse, SystemSharedMemoryStatusRequest,
    SystemSharedMemoryStatusResponse, SystemSharedMemoryUnregisterRequest,
    SystemSharedMemoryUnregisterResponse,
    cuda_shared_memory_status_response::RegionStatus as CudaRegionStatus,
    system_shared_memory_status_response::RegionStatus as SystemRegionStatus,
};
use shared_memory::{
    ClientRegions, CudaRegistration, RegionKind, RegionOrigin, RegionStatus, SystemRegistration,
};
use vocabulary::Error;

use super::{
    message::generated::{decode, encode},
    status::Status,
};
use crate::chunks::Chunks;

/// A call about regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegionCall {
    Status(RegionKind),
    Register(RegionKind),
    Unregister(RegionKind),
}

impl RegionCall {
    /// The call with this name in `inference.GRPCInferenceService`.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "SystemSharedMemoryStatus" => Self::Status(RegionKind::System),
            "SystemSharedMemoryRegister" => Self::Register(RegionKind::System),
            "SystemSharedMemoryUnregister" => Self::Unregister(RegionKind::System),
            "CudaSharedMemoryStatus" => Self::Status(RegionKind::Cuda),
            "CudaSharedMemoryRegister" => Self::Register(RegionKind::Cuda),
            "CudaSharedMemoryUnregister" => Self::Unregister(RegionKind::Cuda),
            _ => return None,
        })
    }

    /// Answers the call.
    ///
    /// # Errors
    /// The status that ends the call.
    pub(super) async fn answer(self, regions: &ClientRegions, frames: &[Bytes]) -> Result<Chunks, Status> {
        if !matches!(self, Self::Status(_)) {
            regions.check_allowed()?;
        }
        match self {
            Self::Status(RegionKind::System) => {
                let request: SystemSharedMemoryStatusRequest = decode(frames).await?;
                encode(&system_status(regions, &request.name)?)
            }
            Self::Status(RegionKind::Cuda) => {
                let request: CudaSharedMemoryStatusRequest = decode(frames).await?;
                encode(&cuda_status(regions, &request.name)?)
            }
            Self::Register(RegionKind::System) => {
                register_system(regions, decode(frames).await?)?;
                encode(&SystemSharedMemoryRegisterResponse {})
            }
            Self::Register(RegionKind::Cuda) => {
                register_cuda(regions, decode(frames).await?)?;
                encode(&CudaSharedMemoryRegisterResponse {})
            }
            Self::Unregister(RegionKind::System) => {
                let request: SystemSharedMemoryUnregisterRequest = decode(frames).await?;
                regions.unregister(RegionKind::System, &request.name)?;
                encode(&SystemSharedMemoryUnregisterResponse {})
            }
            Self::Unregister(RegionKind::Cuda) => {
                let request: CudaSharedMemoryUnregisterRequest = decode(frames).await?;
                regions.unregister(RegionKind::Cuda, &request.name)?;
                encode(&CudaSharedMemoryUnregisterResponse {})
            }
        }
    }
}

/// Answers `SystemSharedMemoryStatus`.
fn system_status(regions: &ClientRegions, name: &str) -> Result<SystemSharedMemoryStatusResponse, Error> {
    let found = regions.status(RegionKind::System, name)?;
    let shown = found.into_iter().filter_map(|RegionStatus { name, origin, byte_size }| match origin {
        RegionOrigin::System { key, offset } => {
            Some((name.clone(), SystemRegionStatus { name, key, offset, byte_size }))
        }
        RegionOrigin::Cuda { .. } => None,
    });
    Ok(SystemSharedMemoryStatusResponse { regions: shown.collect() })
}

/// Answers `CudaSharedMemoryStatus`.
fn cuda_status(regions: &ClientRegions, name: &str) -> Result<CudaSharedMemoryStatusResponse, Error> {
    let found = regions.status(RegionKind::Cuda, name)?;
    let shown = found.into_iter().filter_map(|RegionStatus { name, origin, byte_size }| match origin {
        RegionOrigin::Cuda { device_id } => {
            let device_id = device_id.cast_unsigned();
            Some((name.clone(), CudaRegionStatus { name, device_id, byte_size }))
        }
        RegionOrigin::System { .. } => None,
    });
    Ok(CudaSharedMemoryStatusResponse { regions: shown.collect() })
}

/// Registers a region of `SystemSharedMemoryRegister`.
fn register_system(regions: &ClientRegions, request: SystemSharedMemoryRegisterRequest) -> Result<(), Error> {
    let SystemSharedMemoryRegisterRequest { name, key, offset, byte_size } = request;
    regions.register_system(&SystemRegistration { name, key, offset, byte_size })
}

/// Registers a region of `CudaSharedMemoryRegister`.
fn register_cuda(regions: &ClientRegions, request: CudaSharedMemoryRegisterRequest) -> Result<(), Error> {
    let CudaSharedMemoryRegisterRequest { name, raw_handle, device_id, byte_size } = request;
    let raw_handle = raw_handle.to_vec();
    regions.register_cuda(&CudaRegistration { name, raw_handle, device_id, byte_size })
}
