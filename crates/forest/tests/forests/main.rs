//! Forests against their libraries, against a plain walk, and against broken files.

mod golden;
mod goldens;
mod random_trees;
mod refusals;
