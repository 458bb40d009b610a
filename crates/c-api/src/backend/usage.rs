//! The memory that a model and its instances use, as their library reports it.
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use inference::{backend::MemoryUsage, lock::Mutex};
use vocabulary::{Error, MemoryKind};

use crate::{
    handle::{array, borrow},
    types::{buffer_attributes::BufferAttributes, enums::memory_kind},
};

/// Bytes by kind and number of the memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MemoryUse(BTreeMap<(MemoryKind, i64), u64>);

/// The memory that one model, or one instance of it, uses. Dropping the account removes its report.
#[derive(Debug)]
pub(super) struct MemoryAccount {
    number: u64,
    accounts: Arc<MemoryAccounts>,
}

/// The accounts of one model and its instances.
#[derive(Debug, Default)]
struct MemoryAccounts {
    opened: AtomicU64,
    reported: Mutex<BTreeMap<u64, MemoryUse>>,
}

impl MemoryAccount {
    /// The account of a model.
    pub(super) fn of_model() -> Self {
        Self::within(Arc::default())
    }

    /// Another account of the same model.
    pub(super) fn beside(&self) -> Self {
        Self::within(self.accounts.clone())
    }

    fn within(accounts: Arc<MemoryAccounts>) -> Self {
        Self { number: accounts.opened.fetch_add(1, Relaxed), accounts }
    }

    /// Replaces the previous report.
    pub(super) fn report(&self, amounts: MemoryUse) {
        self.accounts.reported.lock().insert(self.number, amounts);
    }

    /// The sum over the model and all its instances.
    pub(super) fn total(&self) -> Vec<MemoryUsage> {
        let mut sums = BTreeMap::<_, u64>::new();
        for (memory, byte_size) in
            self.accounts.reported.lock().values().flat_map(|MemoryUse(amounts)| amounts)
        {
            let sum = sums.entry(*memory).or_default();
            *sum = sum.saturating_add(*byte_size);
        }
        sums.into_iter().map(|((kind, id), byte_size)| MemoryUsage { kind, id, byte_size }).collect()
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        self.accounts.reported.lock().remove(&self.number);
    }
}

impl MemoryUse {
    /// Reads an array of attributes. If several entries name the same memory, the last one counts. As Triton: model.h,
    /// SetMemoryUsage.
    ///
    /// # Errors
    /// INVALID_ARG for an entry that is null, or for an unknown kind of memory.
    ///
    /// # Safety
    /// Null or an array of that many handles, each null or live.
    pub(super) unsafe fn read(usage: *mut *mut BufferAttributes, size: u32) -> Result<Self, Error> {
        // SAFETY: as the caller promises.
        let handles = unsafe { array(usage.cast_const(), size)? };
        let mut amounts = BTreeMap::new();
        for handle in handles {
            // SAFETY: as the caller promises.
            let attributes = unsafe { borrow(handle.cast_const())? };
            let (memory_type, id) = attributes.memory();
            amounts.insert((memory_kind(memory_type)?, id), attributes.byte_size() as u64);
        }
        Ok(Self(amounts))
    }
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ((kind, id), byte_size)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{byte_size} bytes of memory {} {id}", kind.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::types::buffer_attributes::TRITONSERVER_BufferAttributesSetMemoryType;

    fn amounts(kind: MemoryKind, id: i64, byte_size: u64) -> MemoryUse {
        MemoryUse([((kind, id), byte_size)].into())
    }

    fn usage(kind: MemoryKind, id: i64, byte_size: u64) -> MemoryUsage {
        MemoryUsage { kind, id, byte_size }
    }

    #[test]
    fn the_memory_of_a_model_includes_its_instances() {
        let model = MemoryAccount::of_model();
        let instances = [model.beside(), model.beside()];
        assert_eq!(model.total(), []);
        model.report(amounts(MemoryKind::Gpu, 1, 100));
        instances[0].report(amounts(MemoryKind::Cpu, 0, 5));
        instances[1].report(amounts(MemoryKind::Cpu, 0, 6));
        assert_eq!(model.total(), [usage(MemoryKind::Cpu, 0, 11), usage(MemoryKind::Gpu, 1, 100)]);
    }

    #[test]
    fn the_latest_report_counts_until_its_account_is_gone() {
        let model = MemoryAccount::of_model();
        let instance = model.beside();
        instance.report(amounts(MemoryKind::Cpu, 0, 5));
        instance.report(amounts(MemoryKind::CpuPinned, 0, 7));
        assert_eq!(model.total(), [usage(MemoryKind::CpuPinned, 0, 7)]);
        drop(instance);
        assert_eq!(model.total(), []);
    }

    #[test]
    fn attributes_are_read_and_those_without_sense_refused() {
        let (five, six) = (BufferAttributes::host(5), BufferAttributes::host(6));
        let mut handles = [&five, &six].map(|attributes| ptr::from_ref(attributes).cast_mut());
        // SAFETY: an array of live handles.
        let read = unsafe { MemoryUse::read(handles.as_mut_ptr(), 2) }.unwrap();
        assert_eq!(read, amounts(MemoryKind::Cpu, 0, 6), "the last one counts");
        assert_eq!(read.to_string(), "6 bytes of memory CPU 0");
        // SAFETY: live attributes.
        assert!(unsafe { TRITONSERVER_BufferAttributesSetMemoryType(handles[1], 3) }.is_null());
        // SAFETY: an array of live handles.
        let error = unsafe { MemoryUse::read(handles.as_mut_ptr(), 2) }.unwrap_err();
        assert_eq!(error.message, "there is no memory type 3");
        handles[1] = ptr::null_mut();
        // SAFETY: an array of a live handle and null.
        assert!(unsafe { MemoryUse::read(handles.as_mut_ptr(), 2) }.is_err());
    }
}
