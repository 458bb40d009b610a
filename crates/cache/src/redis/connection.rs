//! Connections to the store: TCP, perhaps TLS, and the login.
use std::{fmt, io, time::Duration};

use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, ProtocolVersion, RedisConnectionInfo, RedisError,
    aio::MultiplexedConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use super::{settings::RedisSettings, tls::RedisTls};

/// Why the store has not done an operation. The texts contain no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OperationFailure {
    /// The store was not asked, because it is away.
    Away,
    /// There was no reply within the limit.
    TimedOut,
    /// The connection has ended.
    Lost(String),
    /// The store has replied with an error.
    Refused(String),
}

impl fmt::Display for OperationFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away => out.write_str("the store is away"),
            Self::TimedOut => out.write_str("the store does not answer in time"),
            Self::Lost(why) | Self::Refused(why) => out.write_str(why),
        }
    }
}

impl From<RedisError> for OperationFailure {
    fn from(error: RedisError) -> Self {
        match (error.code(), error.kind()) {
            (Some(code), _) => Self::Refused(format!("{code} {}", error.detail().unwrap_or_default())),
            (None, ErrorKind::UnexpectedReturnType) => {
                Self::Refused("the reply has an unexpected type".to_owned())
            }
            (None, _) => Self::Lost(error.to_string()),
        }
    }
}

/// Makes connections.
pub(super) struct RedisConnector {
    settings: RedisSettings,
    tls: Option<RedisTls>,
}

/// A connection that is logged in. It ends when this value is dropped, whatever its operations wait for.
pub(super) struct RedisConnection {
    /// Clones share the connection.
    pub(super) shared: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl RedisConnector {
    pub(super) fn new(settings: RedisSettings, tls: Option<RedisTls>) -> Self {
        Self { settings, tls }
    }

    pub(super) fn settings(&self) -> &RedisSettings {
        &self.settings
    }

    /// Makes a connection over which the store has answered.
    ///
    /// # Errors
    /// The reason, for people. It takes at most the limit of the settings until it is known.
    pub(super) async fn connect(&self) -> Result<RedisConnection, String> {
        let limit = self.settings.connect_timeout;
        let deadline = Instant::now() + limit;
        let address = self.settings.address();
        let late = || format!("there was no answer within {} ms", limit.as_millis());
        let connecting = TcpStream::connect((self.settings.host.as_str(), self.settings.port));
        let stream = timeout_at(deadline, connecting).await.map_err(|_| late());
        let stream = stream
            .and_then(|connected| connected.map_err(|error| error.to_string()))
            .map_err(|why| format!("cannot connect to '{address}': {why}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let Some(tls) = &self.tls else {
            let logged_in = timeout_at(deadline, self.log_in(stream)).await.unwrap_or_else(|_| Err(late()));
            return logged_in.map_err(|why| {
                format!("'{address}' cannot be used: {why}. If this port needs TLS, set 'tls_enabled=true'")
            });
        };
        let handshake = tls.connector.connect(tls.server_name.clone(), stream);
        let stream = timeout_at(deadline, handshake).await.map_err(|_| late());
        let stream = stream.and_then(|shaken| shaken.map_err(|error: io::Error| error.to_string())).map_err(
            |why| format!("the TLS handshake with '{address}' failed: {why}. Does this port use TLS?"),
        )?;
        let logged_in = timeout_at(deadline, self.log_in(stream)).await.unwrap_or_else(|_| Err(late()));
        logged_in.map_err(|why| format!("'{address}' cannot be used: {why}"))
    }

    async fn log_in(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<RedisConnection, String> {
        let none =
            RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        // Each operation has a limit of its own.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (shared, driver) = MultiplexedConnection::new_with_config(&none, stream, config)
            .await
            .map_err(|error| error.to_string())?;
        let mut connection = RedisConnection { shared, driver: tokio::spawn(driver) };
        for command in self.login_commands() {
            let reply: Result<(), _> = ask(&mut connection.shared, &command).await;
            reply.map_err(|failure| failure.to_string())?;
        }
        Ok(connection)
    }

    fn login_commands(&self) -> Vec<Cmd> {
        let RedisSettings { user, password, database, .. } = &self.settings;
        let mut commands = Vec::new();
        if let Some(password) = password {
            let mut login = redis::cmd("AUTH");
            if let Some(user) = user {
                login.arg(user);
            }
            login.arg(&password.0);
            commands.push(login);
        }
        if *database > 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(*database);
            commands.push(select);
        }
        // Only this tells that a password is missing, or that the store still loads.
        commands.push(redis::cmd("PING"));
        commands
    }
}

/// Sends one command and waits for its reply, without a limit.
///
/// # Errors
/// The connection is lost, or the store replies with an error.
pub(super) async fn ask<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<T, OperationFailure> {
    Ok(command.query_async(connection).await?)
}

/// As [`ask`], with a limit.
///
/// # Errors
/// As [`ask`], or there was no reply within `limit`.
pub(super) async fn ask_within<T: FromRedisValue>(
    limit: Duration,
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<T, OperationFailure> {
    tokio::time::timeout(limit, ask(connection, command)).await.unwrap_or(Err(OperationFailure::TimedOut))
}
