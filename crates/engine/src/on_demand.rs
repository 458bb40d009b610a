//! Models that are loaded when requests come for them, within a budget of memory (`--model-memory-budget`).
//!
//! The policy is [`MemoryBudget`]. Here are those who wait for a model, and what asks the policy: requests for models that
//! are not in memory, and commands of operators. A [task](task) does what the policy decides. Requests for models in memory
//! do not come here.
mod demands;
mod infer_absent;
mod measure;
mod on_demand_models;
mod task;

pub(crate) use on_demand_models::OnDemandModels;
