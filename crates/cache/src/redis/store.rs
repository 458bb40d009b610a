//! The store as the cache uses it: each operation is bounded, and none waits while the store is away.
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use inference::{Timestamp, lock::Mutex};
use redis::{Cmd, FromRedisValue, aio::MultiplexedConnection};
use tokio::{sync::Notify, time::Instant};
use vocabulary::Error;

use super::{
    breaker::{CircuitBreaker, ConnectionFailure, ConnectionGeneration, StoreChange},
    checksum::EntryChecksum,
    connection::{OperationFailure, RedisConnection, RedisConnector, ask, ask_within},
    counts::OperationCounts,
};

/// The key of the secret in the store.
const SECRET_KEY: &str = "nereid:secret";
/// A secret that servers share.
pub(super) type SharedSecret = [u8; 32];
/// The connected store.
pub(super) struct RedisStore {
    connector: RedisConnector,
    link: Mutex<StoreLink>,
    /// The breaker is open.
    opened: Notify,
    secret: Mutex<SharedSecret>,
    /// Whether the store has refused the latest insertion.
    refuses: AtomicBool,
    epoch: Instant,
    /// Makes the checksums of entries.
    pub(super) checksum: EntryChecksum,
    pub(super) counts: OperationCounts,
}

/// The breaker and the connections that it guards.
struct StoreLink {
    breaker: CircuitBreaker,
    /// Empty while the breaker is open.
    connections: Vec<RedisConnection>,
    /// Operations take connections in turn.
    next: usize,
}

impl RedisStore {
    /// Connects to the store.
    ///
    /// # Errors
    /// INTERNAL: the store cannot be reached, or refuses the login.
    pub(super) async fn start(
        connector: RedisConnector,
        checksum: EntryChecksum,
    ) -> Result<Arc<Self>, Error> {
        let failed = |why: &str| Error::internal(format!("Failed to initialize RedisCache: {why}"));
        let mut connections = connect_all(&connector).await.map_err(|why| failed(&why))?;
        let secret = exchange_secret(&connector, &mut connections[0].shared, rand::random())
            .await
            .map_err(|failure| failed(&format!("the secret '{SECRET_KEY}' is not available: {failure}")))?;
        Ok(Arc::new(Self {
            link: Mutex::new(StoreLink { breaker: CircuitBreaker::new(), connections, next: 0 }),
            opened: Notify::new(),
            secret: Mutex::new(secret),
            refuses: AtomicBool::new(false),
            epoch: Instant::now(),
            checksum,
            counts: OperationCounts::default(),
            connector,
        }))
    }

    pub(super) fn secret(&self) -> SharedSecret {
        *self.secret.lock()
    }

    /// Whether operations go to the store.
    pub(super) fn is_available(&self) -> bool {
        self.link.lock().breaker.is_closed()
    }

    /// The lifetime of each entry, if there is one.
    pub(super) fn ttl(&self) -> Option<Duration> {
        self.connector.settings().ttl
    }

    /// Lets the store execute a command. Ends within the limit of the settings.
    ///
    /// # Errors
    /// Why the command was not executed, or is not known to be executed.
    pub(super) async fn perform<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, OperationFailure> {
        let Some((generation, mut connection)) = self.connection() else {
            return Err(OperationFailure::Away);
        };
        let limit = self.connector.settings().operation_timeout;
        let reply = ask_within(limit, &mut connection, command).await;
        let failure = match &reply {
            Ok(_) | Err(OperationFailure::Refused(_) | OperationFailure::Away) => {
                self.link.lock().breaker.succeeded(generation);
                return reply;
            }
            Err(OperationFailure::TimedOut) => ConnectionFailure::TimedOut,
            Err(OperationFailure::Lost(_)) => ConnectionFailure::Lost,
        };
        self.failed(generation, failure, reply.as_ref().err());
        reply
    }

    /// A connection for one operation. Clones end with the connection, not the other way round.
    pub(super) fn connection(&self) -> Option<(ConnectionGeneration, MultiplexedConnection)> {
        let mut link = self.link.lock();
        let generation = link.breaker.admit()?;
        link.next = (link.next + 1) % link.connections.len().max(1);
        let connection = link.connections.get(link.next)?.shared.clone();
        Some((generation, connection))
    }

    /// An operation had no answer. If the breaker opens, ends the operations that still wait.
    pub(super) fn failed(
        &self,
        generation: ConnectionGeneration,
        failure: ConnectionFailure,
        why: Option<&OperationFailure>,
    ) {
        let mut link = self.link.lock();
        let change = link.breaker.failed(generation, failure, self.now());
        let is_open = link.breaker.next_probe().is_some();
        let ended = if is_open { mem::take(&mut link.connections) } else { Vec::new() };
        drop(link);
        drop(ended);
        if is_open {
            self.opened.notify_one();
        }
        if let Some(change) = change {
            self.log(change, &why.map(ToString::to_string).unwrap_or_default());
        }
    }

    fn log(&self, change: StoreChange, why: &str) {
        let address = self.connector.settings().address();
        match change {
            StoreChange::Away => log::warn!(
                "the store '{address}' of the response cache is away: {why}. Requests are served without it until it \
                 is back"
            ),
            StoreChange::Back => log::info!("the store '{address}' of the response cache is back"),
        }
    }

    /// The store has taken an insertion, or has refused it. The log says it when it changes.
    pub(super) fn note_insertion(&self, refusal: Option<&str>) {
        match (self.refuses.swap(refusal.is_some(), Relaxed), refusal) {
            (false, Some(why)) => {
                log::warn!("the store of the response cache refuses insertions: {why}");
            }
            (true, None) => log::info!("the store of the response cache takes insertions again"),
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Probes the store while it is away. While it is there, reads the secret again and again: so a store that removes
    /// what is not used keeps it. Never ends.
    pub(super) async fn supervise(self: Arc<Self>, period: Duration) {
        loop {
            let next = self.link.lock().breaker.next_probe();
            match next {
                Some(at) => {
                    tokio::time::sleep(at - self.now()).await;
                    self.probe().await;
                }
                None => {
                    let opened = tokio::time::timeout(period, self.opened.notified()).await;
                    if opened.is_err() {
                        self.refresh_secret().await;
                    }
                }
            }
        }
    }

    async fn probe(&self) {
        if !self.link.lock().breaker.begin_probe(self.now()) {
            return;
        }
        let mut connected = connect_all(&self.connector).await;
        if let Ok(connections) = &mut connected {
            // The store may have lost it. An error says nothing about the store: it has answered the login.
            let kept = exchange_secret(&self.connector, &mut connections[0].shared, self.secret()).await;
            self.adopt_secret(kept);
        }
        let (connections, why) = match connected {
            Ok(connections) => (Some(connections), String::new()),
            Err(why) => (None, why),
        };
        let mut link = self.link.lock();
        let change = link.breaker.probed(connections.is_some(), self.now());
        let old = mem::replace(&mut link.connections, connections.unwrap_or_default());
        drop(link);
        drop(old);
        if let Some(change) = change {
            self.log(change, &why);
        }
    }

    async fn refresh_secret(&self) {
        let Some((generation, mut connection)) = self.connection() else { return };
        let kept = exchange_secret(&self.connector, &mut connection, self.secret()).await;
        // This also finds a connection that was cut while nobody used it.
        if let Err(OperationFailure::Lost(_)) = &kept {
            self.failed(generation, ConnectionFailure::Lost, kept.as_ref().err());
        }
        self.adopt_secret(kept);
    }

    /// Another server may have set another secret after the store has lost this one.
    fn adopt_secret(&self, kept: Result<SharedSecret, OperationFailure>) {
        match kept {
            Ok(secret) => *self.secret.lock() = secret,
            Err(failure) => log::debug!("the secret '{SECRET_KEY}' is not in the store: {failure}"),
        }
    }

    fn now(&self) -> Timestamp {
        let nanos = self.epoch.elapsed().as_nanos();
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// All connections of the settings, at least one.
async fn connect_all(connector: &RedisConnector) -> Result<Vec<RedisConnection>, String> {
    let mut connections = Vec::new();
    for _ in 0..connector.settings().connections {
        connections.push(connector.connect().await?);
    }
    Ok(connections)
}

/// The secret in the store. If there is none, `own` becomes the secret, unless another server is faster.
async fn exchange_secret(
    connector: &RedisConnector,
    connection: &mut MultiplexedConnection,
    own: SharedSecret,
) -> Result<SharedSecret, OperationFailure> {
    let exchange = async {
        let read = redis::cmd("GET").arg(SECRET_KEY).take();
        let mut found: Option<Vec<u8>> = ask(connection, &read).await?;
        if found.is_none() {
            let write = redis::cmd("SET").arg(SECRET_KEY).arg(&own[..]).arg("NX").take();
            let _: Option<String> = ask(connection, &write).await?;
            found = ask(connection, &read).await?;
        }
        found.unwrap_or_default().try_into().map_err(|found: Vec<u8>| {
            let size = found.len();
            OperationFailure::Refused(format!("it has {size} bytes instead of {}", size_of::<SharedSecret>()))
        })
    };
    let limit = connector.settings().connect_timeout;
    tokio::time::timeout(limit, exchange).await.unwrap_or(Err(OperationFailure::TimedOut))
}
