//! XGBoost's documents, JSON and UBJSON, of releases 1.0 to 3.x.
//!
//! Learners write numbers as texts, trees write arrays with an element for each node. `doc/model.schema` of XGBoost
//! describes the fields; those that it does not have are in its sources, `SaveModel` of learner, `GBTreeModel` and
//! `RegTree`.

mod booster;
mod learner;
mod model;
mod objective;
mod tree;

pub(super) use model::read;
