//! Shapley values by path-dependent TreeSHAP (Lundberg, Erion and Lee 2018, algorithm 2).
//!
//! For each leaf, the algorithm keeps the path of distinct features that lead to it, with the shares of training rows
//! that go its way if the feature is unknown, and whether the explained row goes its way. The weights of the path tell
//! for each number of known features how many subsets there are. The walk keeps its paths on a stack of its own,
//! because trees may be deep.

mod explanation;
mod path;

pub(crate) use explanation::Explanation;
