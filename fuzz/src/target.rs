//! A parser, and how it is judged.
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    counting_allocator::measure,
    oracle::{Bound, Broken, Effort, judge},
};

/// A parser of bytes from outside.
pub struct FuzzTarget {
    /// Its name on the command line. The folder of its corpus has the same name.
    pub name: &'static str,
    /// What it reads, and who writes that.
    pub reads: &'static str,
    /// Its memory, in bytes, for each byte of the input and of what it has reserved.
    pub memory: Bound,
    /// Its steps, or allocations, for each byte of the input.
    pub work: Bound,
    pub(crate) run: fn(&[u8]) -> Effort,
}

impl FuzzTarget {
    /// Runs the parser, and judges what it has done.
    ///
    /// # Errors
    /// It has broken a promise.
    pub fn check(&self, input: &[u8]) -> Result<(), Broken> {
        // What a program makes once belongs to no input.
        self.once(input)
            .or_else(|broken| if broken == Broken::Panic { Err(broken) } else { self.once(input) })
    }

    fn once(&self, input: &[u8]) -> Result<(), Broken> {
        let (allocated, effort) = measure(|| catch_unwind(AssertUnwindSafe(|| (self.run)(input))));
        let effort = effort.map_err(|_| Broken::Panic)?;
        judge((&self.memory, &self.work), input.len(), effort, allocated)
    }
}
