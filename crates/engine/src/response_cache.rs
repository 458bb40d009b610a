//! How a model version uses the server's response cache. It looks a request up before the request is queued. It stores
//! the answer of a request that the cache did not have. Equal requests at the same time run once.
//!
//! Only a model whose configuration enables `response_cache`, on a server with a cache, uses the cache. The rules of
//! configurations exclude sequence models. A cache that fails only costs time: the request continues as after a miss.
mod flights;
mod freshness;
mod key;
mod model_cache;

pub(crate) use model_cache::{ModelCache, ModelCacheParts, ValidRequest, cache_for_model};
