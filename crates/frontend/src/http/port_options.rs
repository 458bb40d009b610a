//! How an HTTP port treats its connections.
use std::sync::Arc;

use super::origin_rules::OriginRules;
use crate::port::{ClientLimits, ConnectionSlots, tls::TlsPort};

/// How an HTTP port treats its connections.
#[derive(Debug, Clone)]
pub struct PortOptions {
    /// The limits that clients must keep.
    pub limits: ClientLimits,
    /// How many connections there may be. Handshakes count, too.
    pub slots: ConnectionSlots,
    /// Encrypts the connections. `None` for plain text.
    pub tls: Option<Arc<TlsPort>>,
    /// Which web pages may send requests.
    pub origin_rules: Arc<OriginRules>,
}

impl PortOptions {
    /// Plain text, with these limits. No foreign web page may send requests.
    pub fn plain(limits: ClientLimits, slots: ConnectionSlots) -> Self {
        Self { limits, slots, tls: None, origin_rules: Arc::default() }
    }
}
