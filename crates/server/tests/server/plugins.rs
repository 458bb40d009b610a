//! Plug-ins in C that are compiled against this project's header. The program itself loads them. The tests check what
//! plug-ins see, what they may do, and that their errors do not stop the server.
mod agents;
mod answers;
mod batches;
mod caches;
mod failures;
mod files;
mod iterations;
mod leaving;
mod place;
mod reports;
mod sight;
