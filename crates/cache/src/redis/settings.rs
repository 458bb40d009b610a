//! What `--cache-config=redis,<setting>=<value>` says. Parsing is pure: the caller passes the environment.
use std::{collections::BTreeMap, fmt, num::ParseIntError, path::PathBuf, str::FromStr, time::Duration};

use vocabulary::Error;

/// How long a connection may take if the settings do not say it. Only the start waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an operation may take if the settings do not say it. A request waits for its look-up that long at most.
const OPERATION_TIMEOUT: Duration = Duration::from_millis(100);
/// More connections give nothing: each carries any number of operations at a time.
const MOST_CONNECTIONS: u32 = 16;

/// The environment variables of the credential. A setting of the command line has priority.
const USER_VARIABLE: &str = "TRITONCACHE_REDIS_USERNAME";
const PASSWORD_VARIABLE: &str = "TRITONCACHE_REDIS_PASSWORD";

const NAMES: [&str; 17] = [
    "host",
    "port",
    "user",
    "password",
    "db",
    "connect_timeout",
    "socket_timeout",
    "pool_size",
    "wait_timeout",
    "tls_enabled",
    "cert",
    "key",
    "cacert",
    "cacert_dir",
    "sni",
    "ttl",
    "checksum_key_file",
];

/// The checked settings of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedisSettings {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: Option<String>,
    pub(super) password: Option<RedisPassword>,
    pub(super) database: u32,
    /// The longest time until a new connection is usable.
    pub(super) connect_timeout: Duration,
    /// The longest time of one operation.
    pub(super) operation_timeout: Duration,
    pub(super) connections: u32,
    pub(super) tls: Option<RedisTlsSettings>,
    /// How long an entry stays. `None`: until the store removes it. Triton has no such setting (S-W34).
    pub(super) ttl: Option<Duration>,
    /// A file with the key of the entries' checksums. Triton has no such setting.
    pub(super) checksum_key_file: Option<PathBuf>,
}

/// How connections are encrypted. Files are PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedisTlsSettings {
    /// The certificate and the key of this client.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
    /// A file with the trusted certificates.
    pub(super) trusted_file: Option<PathBuf>,
    /// A directory of files with trusted certificates.
    pub(super) trusted_directory: Option<PathBuf>,
    /// The name that the certificate of the store must have.
    pub(super) server_name: String,
}

/// A password, which no log shows.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct RedisPassword(pub(super) String);

impl fmt::Debug for RedisPassword {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(hidden)")
    }
}

impl RedisSettings {
    /// Checks the settings. `variable` reads the environment.
    ///
    /// # Errors
    /// INVALID_ARG: a setting is missing, unknown or has no valid value. The texts do not contain the password.
    pub(super) fn parse(
        settings: &BTreeMap<String, String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let given_settings = GivenSettings(settings);
        let (Some(host), Some(_)) = (given_settings.text("host"), given_settings.text("port")) else {
            // As Triton: redis_cache.cc, Create.
            return Err(Error::invalid(
                "Failed to initialize RedisCache, didn't specify address. Must at a minimum specify 'host' and 'port' \
                 in the configuration - e.g. tritonserver --cache-config redis,host=redis --cache-config \
                 redis,port=6379 --model-repository=/models ...",
            ));
        };
        if let Some(unknown) = settings.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(invalid(&format!("there is no setting '{unknown}'; there are {}", NAMES.join(", "))));
        }
        let credential = |name, from: &str| {
            given_settings.text(name).or_else(|| variable(from).filter(|text| !text.is_empty()))
        };
        let connections = given_settings.number("pool_size", 1..=u32::MAX)?.unwrap_or(1);
        // Triton waits that long for a connection. Here no operation waits for one.
        given_settings.number("wait_timeout", 0..=u32::MAX)?;
        Ok(Self {
            port: given_settings.number("port", 1..=u16::MAX)?.unwrap_or_default(),
            user: credential("user", USER_VARIABLE),
            password: credential("password", PASSWORD_VARIABLE).map(RedisPassword),
            database: given_settings.number("db", 0..=u32::MAX)?.unwrap_or_default(),
            connect_timeout: given_settings.milliseconds("connect_timeout")?.unwrap_or(CONNECT_TIMEOUT),
            operation_timeout: given_settings.milliseconds("socket_timeout")?.unwrap_or(OPERATION_TIMEOUT),
            connections: connections.min(MOST_CONNECTIONS),
            tls: given_settings.tls(&host)?,
            ttl: given_settings
                .number("ttl", 1..=u32::MAX)?
                .map(|seconds| Duration::from_secs(seconds.into())),
            checksum_key_file: given_settings.path("checksum_key_file"),
            host,
        })
    }

    /// Where the store is, for texts.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// The settings as they are given. An empty value is none.
struct GivenSettings<'a>(&'a BTreeMap<String, String>);

impl GivenSettings<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    fn number<N>(&self, name: &str, range: std::ops::RangeInclusive<N>) -> Result<Option<N>, Error>
    where
        N: FromStr<Err = ParseIntError> + PartialOrd + fmt::Display,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let (least, most) = range.into_inner();
                Err(invalid(&format!("'{name}' must be a number from {least} to {most}, but is '{text}'")))
            }
        }
    }

    /// Zero means no limit in Triton. Here it means the default, because no wait is without a limit (S-W35).
    fn milliseconds(&self, name: &str) -> Result<Option<Duration>, Error> {
        let number = self.number(name, 0..=u32::MAX)?.filter(|&number| number > 0);
        Ok(number.map(|number| Duration::from_millis(number.into())))
    }

    fn tls(&self, host: &str) -> Result<Option<RedisTlsSettings>, Error> {
        match self.text("tls_enabled").as_deref() {
            Some("true") => {}
            Some("false") => return Ok(None),
            Some(other) => {
                return Err(invalid(&format!("'tls_enabled' must be 'true' or 'false', but is '{other}'")));
            }
            None => {
                // Else a password that should be encrypted would not be.
                let needs_tls = ["cert", "key", "cacert", "cacert_dir", "sni"];
                return match needs_tls.into_iter().find(|name| self.text(name).is_some()) {
                    Some(name) => Err(invalid(&format!("'{name}' needs 'tls_enabled=true'"))),
                    None => Ok(None),
                };
            }
        }
        let identity = match (self.path("cert"), self.path("key")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(invalid("'cert' needs 'key'")),
            (None, Some(_)) => return Err(invalid("'key' needs 'cert'")),
        };
        Ok(Some(RedisTlsSettings {
            identity,
            trusted_file: self.path("cacert"),
            trusted_directory: self.path("cacert_dir"),
            server_name: self.text("sni").unwrap_or_else(|| host.to_owned()),
        }))
    }
}

/// An error of the settings.
pub(super) fn invalid(why: &str) -> Error {
    Error::invalid(format!("Failed to initialize RedisCache: {why}"))
}

#[cfg(test)]
mod tests {
    use vocabulary::ErrorCode;

    use super::*;

    fn parse(text: &str) -> Result<RedisSettings, Error> {
        parse_with(text, &[])
    }

    fn parse_with(text: &str, variables: &[(&str, &str)]) -> Result<RedisSettings, Error> {
        let settings = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        RedisSettings::parse(&settings, |name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|&(_, value)| value.to_owned())
        })
    }

    #[test]
    fn a_host_and_a_port_are_enough() {
        let expected = RedisSettings {
            host: "h".to_owned(),
            port: 6379,
            user: None,
            password: None,
            database: 0,
            connect_timeout: Duration::from_secs(1),
            operation_timeout: Duration::from_millis(100),
            connections: 1,
            tls: None,
            ttl: None,
            checksum_key_file: None,
        };
        assert_eq!(parse("host=h port=6379").unwrap(), expected);
        assert_eq!(parse("host=h port=6379 user= password= tls_enabled=false cacert=c").unwrap(), expected);
        assert_eq!(expected.address(), "h:6379");
    }

    #[test]
    fn each_setting_has_its_place() {
        let text = "host=h port=1 user=u password=p db=3 connect_timeout=20 socket_timeout=30 pool_size=4 \
                    wait_timeout=5 tls_enabled=true cert=c key=k cacert=a cacert_dir=d sni=n ttl=60 checksum_key_file=f";
        let expected = RedisSettings {
            host: "h".to_owned(),
            port: 1,
            user: Some("u".to_owned()),
            password: Some(RedisPassword("p".to_owned())),
            database: 3,
            connect_timeout: Duration::from_millis(20),
            operation_timeout: Duration::from_millis(30),
            connections: 4,
            tls: Some(RedisTlsSettings {
                identity: Some(("c".into(), "k".into())),
                trusted_file: Some("a".into()),
                trusted_directory: Some("d".into()),
                server_name: "n".to_owned(),
            }),
            ttl: Some(Duration::from_secs(60)),
            checksum_key_file: Some("f".into()),
        };
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn the_environment_has_the_credential_that_the_settings_lack() {
        let variables = [(USER_VARIABLE, "eu"), (PASSWORD_VARIABLE, "ep")];
        let credential = |text: &str, variables: &[(&str, &str)]| {
            let settings = parse_with(text, variables).unwrap();
            (settings.user, settings.password.map(|password| password.0))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(credential("host=h port=1", &variables), (some("eu"), some("ep")));
        assert_eq!(credential("host=h port=1 user=u", &variables), (some("u"), some("ep")));
        assert_eq!(credential("host=h port=1 password=p", &variables), (some("eu"), some("p")));
        assert_eq!(credential("host=h port=1", &[(PASSWORD_VARIABLE, "")]), (None, None));
    }

    #[test]
    fn zero_means_the_default_and_not_for_ever() {
        let settings = parse("host=h port=1 connect_timeout=0 socket_timeout=0").unwrap();
        assert_eq!(
            (settings.connect_timeout, settings.operation_timeout),
            (CONNECT_TIMEOUT, OPERATION_TIMEOUT)
        );
    }

    #[test]
    fn more_connections_than_are_useful_are_not_made() {
        assert_eq!(parse("host=h port=1 pool_size=1000").unwrap().connections, MOST_CONNECTIONS);
    }

    #[test]
    fn the_name_of_the_certificate_is_the_host_unless_it_is_set() {
        let tls = |text| parse(text).unwrap().tls.unwrap().server_name;
        assert_eq!(tls("host=h port=1 tls_enabled=true"), "h");
        assert_eq!(tls("host=h port=1 tls_enabled=true sni=s"), "s");
    }

    #[test]
    fn wrong_settings_are_named_and_the_password_is_not() {
        let refused = |text: &str| {
            let error = parse(&format!("password=hunter2 {text}")).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArgument);
            assert!(!error.to_string().contains("hunter2"), "{error}");
            error.to_string().replace("Failed to initialize RedisCache: ", "")
        };
        for text in ["", "host=h", "port=1", "host= port=1"] {
            assert!(refused(text).starts_with("Failed to initialize RedisCache, didn't specify address."));
        }
        let unknown = refused("host=h port=1 pasword=hunter2");
        assert!(
            unknown.starts_with("there is no setting 'pasword'; there are host, port, user, "),
            "{unknown}"
        );
        let with_address = |text: &str| refused(&format!("host=h port=1 {text}"));
        assert_eq!(refused("host=h port=65536"), "'port' must be a number from 1 to 65535, but is '65536'");
        assert_eq!(refused("host=h port=0"), "'port' must be a number from 1 to 65535, but is '0'");
        assert_eq!(with_address("db=-1"), "'db' must be a number from 0 to 4294967295, but is '-1'");
        let timeout = with_address("socket_timeout=1s");
        assert_eq!(timeout, "'socket_timeout' must be a number from 0 to 4294967295, but is '1s'");
        assert!(with_address("connect_timeout=x").starts_with("'connect_timeout' must be a number"));
        assert!(with_address("wait_timeout=x").starts_with("'wait_timeout' must be a number"));
        assert!(with_address("pool_size=0").starts_with("'pool_size' must be a number from 1 "));
        assert!(with_address("ttl=0").starts_with("'ttl' must be a number from 1 "));
        assert_eq!(with_address("tls_enabled=yes"), "'tls_enabled' must be 'true' or 'false', but is 'yes'");
        assert_eq!(with_address("tls_enabled=true cert=c"), "'cert' needs 'key'");
        assert_eq!(with_address("tls_enabled=true key=k"), "'key' needs 'cert'");
        for name in ["cert", "key", "cacert", "cacert_dir", "sni"] {
            assert_eq!(with_address(&format!("{name}=x")), format!("'{name}' needs 'tls_enabled=true'"));
        }
    }

    #[test]
    fn the_password_is_not_in_the_debug_text() {
        let settings = parse("host=h port=1 password=hunter2").unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
