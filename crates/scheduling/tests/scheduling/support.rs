//! References, drivers and readers of scripts that the tests share.
pub(crate) mod batch_limit;
pub(crate) mod driver;
pub(crate) mod random;
pub(crate) mod reference;
pub(crate) mod script;
pub(crate) mod sequence_history;
pub(crate) mod sequence_load;
pub(crate) mod sequence_reference;
pub(crate) mod sequence_script;
pub(crate) mod simulation;
pub(crate) mod subject;
