//! How an HTTP port treats its connections.
use std::sync::Arc;

use super::origin_rules::OriginRules;
use crate::port::{ClientLimits, ConnectionPermits, tls::TlsPort};

/// How an HTTP port treats its connections.
#[derive(Debug, Clone)]
pub struct PortOptions {
    /// The limits that clients must keep.
    pub limits: ClientLimits,
    /// How many connections there may be. Handshakes count, too.
    pub permits: ConnectionPermits,
    /// Encrypts the connections. `None` for plain text.
    pub tls: Option<Arc<TlsPort>>,
    /// Which web pages may send requests.
    pub origin_rules: Arc<OriginRules>,
}

impl PortOptions {
    /// Plain text, with these limits. No foreign web page may send requests.
    pub fn plain(limits: ClientLimits, permits: ConnectionPermits) -> Self {
        Self { limits, permits, tls: None, origin_rules: Arc::default() }
    }
}
