//! The readers of model files.

mod bounds;
mod dispatch;
mod document;
mod lightgbm;
mod treelite;
mod xgboost;

pub(crate) use dispatch::read;
