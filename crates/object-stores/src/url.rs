//! The URLs of repositories in object stores, as Triton writes them.
//!
//! - `s3://bucket/path`, `s3://host:port/bucket/path`, `s3://https://host[:port]/bucket/path`
//! - `gs://bucket/path`
//! - `as://account[.blob.core.windows.net]/container/path`, `as://http://host:port/account/container/path`
//!
//! Repeated slashes count as one. A URL is shown in errors, so one that may contain a secret is refused without being shown.

use vocabulary::Error;

/// The schemes with which a URL of an object store begins.
const SCHEMES: [&str; 3] = ["s3://", "gs://", "as://"];

/// Whether a repository path names an object store.
pub fn is_url(path: &str) -> bool {
    SCHEMES.iter().any(|scheme| path.starts_with(scheme))
}

/// A kind of object store, with what a URL says about its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Service {
    /// S3, or a server with its protocol at `endpoint` (`http://host:port`).
    S3 { endpoint: Option<String> },
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage. `endpoint` is the whole address of the account, if it is not in Azure's public cloud.
    Azure { account: String, endpoint: Option<AzureEndpoint> },
}

/// Where the blobs of an Azure account are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AzureEndpoint {
    /// The account has an own host: `https://account.blob.suffix`.
    Host(String),
    /// The account is the first segment of the path: `http://host:port`.
    Server(String),
}

/// The parts of a repository's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectUrl {
    /// The URL with single slashes and without a slash at its end. It contains no secret.
    pub(crate) text: String,
    pub(crate) service: Service,
    /// The bucket, or Azure's container.
    pub(crate) bucket: String,
    /// The path below the bucket, without slashes at its ends. It is empty for a whole bucket.
    pub(crate) prefix: String,
}

impl ObjectUrl {
    /// # Errors
    /// INVALID_ARGUMENT: the text is not a URL of an object store, has no bucket, or a part of it is not allowed.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let Some(scheme) = SCHEMES.iter().find(|scheme| url.starts_with(**scheme)) else {
            return Err(Error::invalid("the URL of an object store begins with s3://, gs:// or as://"));
        };
        let rest = &url[scheme.len()..];
        // A query may be a shared access signature, and '@' may follow a password. Neither is shown.
        let (protocol, path) = protocol(rest);
        let mut segments = path.split('/').filter(|segment| !segment.is_empty()).peekable();
        if segments.peek().is_some_and(|host| host.contains('@')) {
            return Err(Error::invalid(format!(
                "'{scheme}...@...': the URL of a repository has no user and no password; credentials belong into the \
                 environment or the credential file"
            )));
        }
        if let Some((shown, _)) = rest.split_once('?') {
            return Err(Error::invalid(format!(
                "'{scheme}{shown}?...': the URL of a repository has no query; credentials belong into the environment or the \
                 credential file"
            )));
        }
        let joined = path.split('/').filter(|segment| !segment.is_empty()).collect::<Vec<_>>().join("/");
        let text = format!("{scheme}{}{joined}", protocol.unwrap_or_default());
        // As Triton: without a protocol, a server is spoken to over HTTP.
        let has_server = protocol.is_some() || segments.peek().is_some_and(|first| is_host_and_port(first));
        let server = match has_server {
            true => segments.next().map(|host| format!("{}{host}", protocol.unwrap_or("http://"))),
            false => None,
        };
        if has_server && server.as_deref().is_none_or(|server| !is_server(server)) {
            return Err(Error::invalid(format!(
                "'{text}': a server is written as host:port, or https://host[:port]"
            )));
        }
        let service = match *scheme {
            "s3://" => Service::S3 { endpoint: server },
            "gs://" if server.is_some() => {
                return Err(Error::invalid(format!(
                    "'{text}': the URL of Google Cloud Storage is gs://bucket/path"
                )));
            }
            "gs://" => Service::Gcs,
            _ => azure(&text, server, segments.next())?,
        };
        let kind = if matches!(service, Service::Azure { .. }) { "container" } else { "bucket" };
        let Some(bucket) = segments.next() else {
            return Err(Error::invalid(format!("No {kind} name found in path: {text}")));
        };
        if !is_bucket(bucket) {
            return Err(Error::invalid(format!(
                "Invalid {kind} name: '{text}': it consists of letters, digits, '.', '-', '_' and '$'"
            )));
        }
        let prefix: Vec<&str> = segments.collect();
        if let Some(segment) = prefix.iter().find(|segment| !is_segment(segment)) {
            return Err(Error::invalid(format!("'{text}': a path must not contain the segment '{segment}'")));
        }
        let (bucket, prefix) = (bucket.to_owned(), prefix.join("/"));
        Ok(Self { text, service, bucket, prefix })
    }
}

/// Whether a name can be one segment of the path of a file.
pub(crate) fn is_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && !name.contains(|character: char| character.is_ascii_control() || character == '/')
}

/// `http://` or `https://` at the beginning, and what follows.
fn protocol(rest: &str) -> (Option<&'static str>, &str) {
    for protocol in ["http://", "https://"] {
        if let Some(path) = rest.strip_prefix(protocol) {
            return (Some(protocol), path);
        }
    }
    (None, rest)
}

/// The account of Azure is the first segment, or the second one behind a server.
fn azure(text: &str, server: Option<String>, account: Option<&str>) -> Result<Service, Error> {
    let account = account.ok_or_else(|| Error::invalid(format!("No account name found in path: {text}")))?;
    if let Some(server) = server {
        return Ok(Service::Azure {
            account: account.to_owned(),
            endpoint: Some(AzureEndpoint::Server(server)),
        });
    }
    let (name, endpoint) = match account.split_once(".blob.") {
        Some((name, "core.windows.net")) => (name, None),
        Some((name, _)) => (name, Some(AzureEndpoint::Host(format!("https://{account}")))),
        None => (account, None),
    };
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(Error::invalid(format!(
            "Invalid account name: '{text}': it consists of letters and digits"
        )));
    }
    Ok(Service::Azure { account: name.to_owned(), endpoint })
}

fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Whether `protocol://host[:port]` has a host, and a number as its port.
fn is_server(server: &str) -> bool {
    let host = server.split_once("://").map_or(server, |(_, host)| host);
    let without_brackets = host.rsplit_once(']').map_or(host, |(_, port)| port);
    let has_good_port = without_brackets.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok());
    has_good_port
        && !host.starts_with(':')
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
        && !host.is_empty()
}

fn is_bucket(name: &str) -> bool {
    !matches!(name, "." | "..")
        && name.len() <= 222
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_$".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> ObjectUrl {
        ObjectUrl::parse(url).unwrap()
    }

    fn refused(url: &str) -> String {
        ObjectUrl::parse(url).unwrap_err().message.into_owned()
    }

    #[test]
    fn only_the_three_schemes_are_urls_of_object_stores() {
        assert!(is_url("s3://b") && is_url("gs://b/c") && is_url("as://a/b"));
        assert!(!is_url("/models") && !is_url("s3/models") && !is_url("file:///models") && !is_url("S3://b"));
    }

    #[test]
    fn a_bucket_and_a_path_are_separated_at_the_first_slash() {
        let url = parsed("s3://bucket/a/b");
        assert_eq!((url.bucket.as_str(), url.prefix.as_str()), ("bucket", "a/b"));
        assert_eq!(url.service, Service::S3 { endpoint: None });
        assert_eq!(parsed("gs://bucket").prefix, "");
        assert_eq!(parsed("gs://bucket").service, Service::Gcs);
    }

    #[test]
    fn repeated_slashes_count_as_one() {
        let url = parsed("s3://https://host:9000//bucket//a///b/");
        assert_eq!(url.text, "s3://https://host:9000/bucket/a/b");
        assert_eq!(url.prefix, "a/b");
        assert_eq!(parsed("s3:////bucket/").text, "s3://bucket");
    }

    #[test]
    fn a_host_with_a_port_is_a_server_and_without_a_protocol_it_speaks_http() {
        for (url, endpoint) in [
            ("s3://localhost:9000/bucket/a", "http://localhost:9000"),
            ("s3://http://10.0.0.1:80/bucket/a", "http://10.0.0.1:80"),
            ("s3://https://minio.example.com:443/bucket/a", "https://minio.example.com:443"),
            ("s3://https://minio.example.com/bucket/a", "https://minio.example.com"),
            ("s3://[::1]:9000/bucket/a", "http://[::1]:9000"),
        ] {
            let url = parsed(url);
            assert_eq!(url.service, Service::S3 { endpoint: Some(endpoint.into()) });
            assert_eq!((url.bucket.as_str(), url.prefix.as_str()), ("bucket", "a"));
        }
    }

    #[test]
    fn an_azure_account_is_a_name_or_a_host_or_follows_a_server() {
        let service = |account: &str, endpoint| Service::Azure { account: account.into(), endpoint };
        assert_eq!(parsed("as://account/container/a").service, service("account", None));
        assert_eq!(
            parsed("as://account.blob.core.windows.net/container/a").service,
            service("account", None)
        );
        let host = AzureEndpoint::Host("https://account.blob.core.chinacloudapi.cn".into());
        assert_eq!(
            parsed("as://account.blob.core.chinacloudapi.cn/container").service,
            service("account", Some(host))
        );
        let url = parsed("as://http://127.0.0.1:10000/account/container/a");
        assert_eq!(
            url.service,
            service("account", Some(AzureEndpoint::Server("http://127.0.0.1:10000".into())))
        );
        assert_eq!((url.bucket.as_str(), url.prefix.as_str()), ("container", "a"));
    }

    #[test]
    fn a_url_that_lacks_a_part_is_refused_with_the_reason() {
        assert_eq!(refused("s3://"), "No bucket name found in path: s3://");
        assert_eq!(refused("s3://host:9000/"), "No bucket name found in path: s3://host:9000");
        assert_eq!(refused("as://account"), "No container name found in path: as://account");
        assert_eq!(refused("as://"), "No account name found in path: as://");
        assert!(refused("s3://buc ket/a").starts_with("Invalid bucket name: 's3://buc ket/a'"));
        assert!(refused("s3://bucket/../a").contains("must not contain the segment '..'"));
        assert!(refused("s3://https://ho st/bucket").contains("a server is written as"));
        assert!(refused("s3://http://host:port/bucket").contains("a server is written as"));
        assert!(refused("gs://host:80/bucket").contains("gs://bucket/path"));
        assert!(refused("/models").contains("begins with"));
    }

    #[test]
    fn a_url_with_a_secret_is_refused_and_the_secret_is_not_shown() {
        for url in ["as://account/container?sv=1&sig=SECRET", "s3://https://user:SECRET@host/bucket?a"] {
            let message = refused(url);
            assert!(!message.contains("SECRET") && message.contains("credential file"), "{message}");
        }
    }
}
