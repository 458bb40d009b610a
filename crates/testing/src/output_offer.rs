//! Memory that a client offers for an output of its request.
use inference::OutputPlacement;
use vocabulary::{Error, ForeignMemory, MemoryKind, Name};

/// Offers memory for one output.
#[derive(Debug)]
pub struct OutputOffer {
    /// The name of the output.
    pub output: &'static str,
    /// The memory for it.
    pub memory: ForeignMemory,
}

impl OutputPlacement for OutputOffer {
    fn placement(
        &self,
        _: Option<&Name>,
        _: Option<usize>,
        _: (MemoryKind, i64),
    ) -> Result<(MemoryKind, i64), Error> {
        Ok((MemoryKind::Cpu, 0))
    }

    fn memory(&self, name: &Name) -> Option<ForeignMemory> {
        (*name == *self.output).then(|| self.memory.clone())
    }

    fn offers_memory(&self) -> bool {
        true
    }
}
