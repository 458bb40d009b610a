//! Plug-ins in C, compiled against our header and loaded by the program itself: what they see, what they may do, and that
//! nothing they do wrong keeps the server from serving.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
mod agents;
mod answers;
mod batches;
mod caches;
mod failures;
mod files;
mod iterations;
mod place;
mod reports;
mod sight;
