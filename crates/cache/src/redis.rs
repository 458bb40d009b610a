//! The cache in a Redis store (`--cache-config=redis,host=<host> --cache-config=redis,port=<port>`).
//!
//! Several servers can share the store, and their responses outlive them. A request waits for the store only for a
//! limited time. While the store is away, look-ups miss at once and responses are not stored. These are no errors: the
//! log and a metric tell that the store is away.
//!
//! `settings` and `tls` read the settings. `breaker` decides when the store is asked, and `store` asks it over each
//! `connection`. `value` is the format of an entry.
mod breaker;
mod checksum;
mod connection;
mod counts;
#[cfg(test)]
mod fake_store;
mod redis_cache;
mod runtime;
mod settings;
mod store;
mod tls;
mod value;

pub use redis_cache::{NAME, RedisResponseCache};
