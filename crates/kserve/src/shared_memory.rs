//! The shared memory that a request uses: inputs are read from regions, and outputs are written to regions.
use std::{borrow::Cow, sync::Arc};

use inference::OutputPlacement;
use shared_memory::ClientRegions;
use vocabulary::{Error, ForeignMemory, MemoryKind, Name, NameIndex, Tensor, TensorData, TensorMemory};

/// The part of a region that a tensor names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionRange<'a> {
    /// The name of the region.
    pub region: Cow<'a, str>,
    /// Where the tensor begins in the region, in bytes.
    pub offset: u64,
    /// The length of the part, in bytes.
    pub byte_size: u64,
}

impl RegionRange<'_> {
    /// The memory of the part.
    ///
    /// # Errors
    /// NOT_FOUND for an unknown region, INVALID_ARG for a part that the region does not have.
    pub fn memory(&self, regions: &ClientRegions) -> Result<ForeignMemory, Error> {
        regions.memory(&self.region, self.offset, self.byte_size)
    }
}

/// The memory of a request in regions. The regions exist while this value exists.
#[derive(Debug, Clone, Default)]
pub struct RequestRegions {
    inputs: Vec<ForeignMemory>,
    outputs: Vec<(Name, ForeignMemory)>,
    output_index: NameIndex,
}

impl RequestRegions {
    /// Records the memory of an input.
    pub fn reads(&mut self, memory: ForeignMemory) {
        self.inputs.push(memory);
    }

    /// Records the memory for an output.
    pub fn writes(&mut self, output: Name, memory: ForeignMemory) {
        self.outputs.push((output, memory));
    }

    /// The placement of outputs for the backend, if some may be written in place.
    pub fn placement(&self) -> Option<Arc<dyn OutputPlacement>> {
        // A backend may read an input after it has written an output.
        let is_apart = |memory: &ForeignMemory| !self.inputs.iter().any(|input| input.overlaps(memory));
        let usable = |memory: &ForeignMemory| memory.may_be_used_in_place() && is_apart(memory);
        let offered: Vec<_> = self.outputs.iter().filter(|(_, memory)| usable(memory)).cloned().collect();
        if offered.is_empty() { None } else { Some(Arc::new(RegionPlacement(offered, NameIndex::default()))) }
    }

    /// Writes the outputs of a response to their regions. Such an output has no bytes afterwards.
    ///
    /// # Errors
    /// INTERNAL for an output that is larger than its part of the region, as in Triton. INVALID_ARG if a region that the
    /// request uses is smaller than it was.
    pub fn finish(&self, outputs: &mut [Tensor]) -> Result<(), Error> {
        for output in outputs {
            let names = self.outputs.iter().map(|(name, _)| name);
            if let Some(place) = self.output_index.place(output.name(), names) {
                let (_, memory) = &self.outputs[place];
                write(output, memory)?;
                *output = output.clone().with_memory(TensorData::default());
            }
        }
        // What a library has read or written where it is, without a copy, counts only if the memory was there.
        let used = self.inputs.iter().chain(self.outputs.iter().map(|(_, memory)| memory));
        used.filter(|memory| memory.may_be_used_in_place()).try_for_each(ForeignMemory::check)
    }
}

/// Offers regions for outputs to backends.
#[derive(Debug)]
struct RegionPlacement(Vec<(Name, ForeignMemory)>, NameIndex);

impl OutputPlacement for RegionPlacement {
    fn placement(
        &self,
        _: Option<&Name>,
        _: Option<usize>,
        _: (MemoryKind, i64),
    ) -> Result<(MemoryKind, i64), Error> {
        Ok((MemoryKind::Cpu, 0))
    }

    fn memory(&self, name: &Name) -> Option<ForeignMemory> {
        let place = self.1.place(name, self.0.iter().map(|(own, _)| own))?;
        Some(self.0[place].1.clone())
    }

    fn offers_memory(&self) -> bool {
        true
    }
}

fn write(output: &Tensor, memory: &ForeignMemory) -> Result<(), Error> {
    let is_there = matches!(output.memory(), TensorMemory::Foreign(own) if own.begins_as(memory));
    if is_there && output.byte_size() <= memory.byte_size() {
        return Ok(());
    }
    if memory.write(&*output.host()?)? {
        return Ok(());
    }
    Err(Error::internal(format!(
        "shared memory size specified with the request for output '{}' ({} bytes) should be at least {} bytes to hold the \
         results",
        output.name(),
        memory.byte_size(),
        output.byte_size()
    )))
}

#[cfg(test)]
mod tests {
    use testing::TestRegion;
    use vocabulary::DataType;

    use super::*;

    fn output(name: &str, bytes: &[u8]) -> Tensor {
        Tensor::new(name.into(), DataType::Uint8, [1][..].into(), bytes.to_vec())
    }

    #[test]
    fn an_output_is_in_its_region_and_not_in_the_response() {
        let region = TestRegion::new(&[9; 4]);
        let mut regions = RequestRegions::default();
        regions.writes("OUT".into(), region.memory());
        let mut outputs = [output("OTHER", &[1]), output("OUT", &[2, 3])];
        regions.finish(&mut outputs).unwrap();
        assert_eq!(region.memory().read().unwrap(), [2, 3, 9, 9]);
        assert_eq!(outputs.map(|output| output.byte_size()), [1, 0]);
    }

    #[test]
    fn an_output_that_is_too_large_for_its_region_is_refused() {
        let region = TestRegion::new(&[9; 8]);
        let mut regions = RequestRegions::default();
        regions.writes("OUT".into(), region.memory());
        let error = regions.finish(&mut [output("OUT", &[0; 16])]).unwrap_err();
        assert_eq!(
            error.with_code(),
            "Internal: shared memory size specified with the request for output 'OUT' (8 bytes) should be at least 16 bytes to hold the results"
        );
        assert_eq!(region.memory().read().unwrap(), [9; 8]);
    }

    #[test]
    fn an_output_that_is_already_in_its_region_is_not_copied() {
        let region = TestRegion::new(&[7; 4]);
        let memory = region.memory();
        let mut regions = RequestRegions::default();
        regions.writes("OUT".into(), memory.clone());
        let mut outputs = [output("OUT", &[]).with_memory(memory.first(2).unwrap())];
        // Neither reading nor writing is possible any more.
        region.write(&[]);
        regions.finish(&mut outputs).unwrap();
        assert_eq!(outputs[0].byte_size(), 0);
    }

    #[test]
    fn only_memory_that_may_be_used_in_place_and_is_no_input_is_offered() {
        let offers = |inputs: Vec<ForeignMemory>, output: ForeignMemory| {
            let mut regions = RequestRegions { inputs, ..RequestRegions::default() };
            regions.writes("OUT".into(), output);
            regions.placement().is_some_and(|placement| placement.memory(&"OUT".into()).is_some())
        };
        let memory = ForeignMemory::copied_from(&vec![7; 4].into());
        assert!(offers(vec![], memory.clone()));
        assert!(offers(vec![memory.first(2).unwrap()], memory.starting_at(2).unwrap()));
        assert!(!offers(vec![memory.first(3).unwrap()], memory.starting_at(2).unwrap()));
        assert!(!offers(vec![], TestRegion::new(&[7; 4]).memory()));
    }

    #[test]
    fn a_region_that_has_become_smaller_fails_the_response() {
        let region = TestRegion::new(&[9; 4]);
        let mut regions = RequestRegions::default();
        regions.writes("OUT".into(), region.memory());
        region.write(&[9; 1]);
        assert!(regions.finish(&mut [output("OUT", &[1, 2])]).is_err());
    }
}
