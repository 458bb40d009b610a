//! Tests of the policies: scripts, random histories, and the rules that several types share.
mod growth;
mod histories;
mod looking;
mod rate_limiting;
mod reordering;
mod scripts;
mod sequences;
mod support;
