//! One question to a server over HTTP, for commands that only ask.
use std::{fmt::Write, path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    endpoint::{ClientEncryption, ServerEndpoint, TrustedCertificates},
    http::HttpConnection,
};

/// A server that takes longer does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a server is, and what it asks of its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// `host:port`.
    pub host: String,
    /// Whether the port speaks TLS.
    pub is_encrypted: bool,
    /// The certificates that the client trusts; `None` for those of the system.
    pub trusted: Option<PathBuf>,
    /// Headers that the server wants, such as an API key.
    pub headers: Vec<(String, String)>,
}

impl ServerAddress {
    /// Reads `[http://|https://]host[:port]`. Without a port it is 8000.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(url: &str) -> Result<Self> {
        Self::read(url, ["http", "https"], 8000)
    }

    /// Reads `[grpc://|grpcs://]host[:port]`, where a server speaks gRPC. Without a port it is 8001.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse_grpc(url: &str) -> Result<Self> {
        Self::read(url, ["grpc", "grpcs"], 8001)
    }

    /// `schemes` are those of plain and of encrypted connections.
    fn read(url: &str, [plain, encrypted]: [&str; 2], port: u16) -> Result<Self> {
        let (scheme, host) = url.split_once("://").unwrap_or((plain, url));
        ensure!(
            [plain, encrypted].contains(&scheme),
            "'{url}' must begin with {plain}:// or {encrypted}://, or have no scheme"
        );
        let host = host.trim_end_matches('/');
        ensure!(!host.is_empty() && !host.contains(['/', '@', ' ']), "'{url}' is no address of a server");
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if has_port { host.to_owned() } else { format!("{host}:{port}") };
        Ok(Self { host, is_encrypted: scheme == encrypted, trusted: None, headers: Vec::new() })
    }

    /// Asks for a path, which is given in segments. Blocks for at most ten seconds.
    ///
    /// # Errors
    /// The server is not reachable or refuses. The error has its words.
    pub fn get(&self, path: &[&str]) -> Result<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let answer = tokio::time::timeout(PATIENCE, self.ask(path)).await;
            answer.with_context(|| format!("{} has not answered within {PATIENCE:?}", self.host))?
        })
    }

    /// What makes connections to it.
    ///
    /// # Errors
    /// The trusted certificates cannot be read, or the host has no name that a certificate can have.
    pub fn endpoint(&self, is_grpc: bool) -> Result<ServerEndpoint> {
        let trusted = self.trusted.clone().map_or(TrustedCertificates::OfSystem, TrustedCertificates::File);
        let encryption = self.is_encrypted.then_some(ClientEncryption { trusted, identity: None });
        ServerEndpoint::at(&self.host, encryption.as_ref(), is_grpc)
    }

    async fn ask(&self, path: &[&str]) -> Result<Vec<u8>> {
        let mut connection = HttpConnection::open(&self.endpoint(false)?).await?;
        let answer = connection.receive(self.request(path)?.as_bytes()).await;
        Ok(answer.map_err(|failure| anyhow!(failure.into_text()))?.body.to_vec())
    }

    fn request(&self, path: &[&str]) -> Result<String> {
        let mut request = "GET ".to_owned();
        for segment in path {
            write!(request, "/{}", utf8_percent_encode(segment, NON_ALPHANUMERIC))?;
        }
        write!(request, " HTTP/1.1\r\nHost: {}\r\n", self.host)?;
        for (name, value) in &self.headers {
            let is_text = |text: &str| !text.is_empty() && !text.contains(['\r', '\n', '\0']);
            ensure!(is_text(name) && is_text(value) && !name.contains([':', ' ']), "'{name}' is no header");
            write!(request, "{name}: {value}\r\n")?;
        }
        request.push_str("\r\n");
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_scheme_and_a_port() {
        for (text, host, is_encrypted) in [
            ("localhost", "localhost:8000", false),
            ("http://a:80/", "a:80", false),
            ("https://[::1]:8443", "[::1]:8443", true),
            ("https://[::1]", "[::1]:8000", true),
        ] {
            let address = ServerAddress::parse(text).unwrap();
            assert_eq!((address.host.as_str(), address.is_encrypted), (host, is_encrypted), "{text}");
        }
        let grpc = ServerAddress::parse_grpc("grpcs://a").unwrap();
        assert_eq!((grpc.host.as_str(), grpc.is_encrypted), ("a:8001", true));
        assert!(ServerAddress::parse_grpc("http://a").is_err());
        for wrong in ["", "ftp://a", "a/b", "user@a", "http://"] {
            assert!(ServerAddress::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn segments_are_encoded_and_headers_stay_in_their_lines() {
        let mut address = ServerAddress::parse("a").unwrap();
        address.headers.push(("k".into(), "v".into()));
        assert_eq!(
            address.request(&["v2", "a b/c"]).unwrap(),
            "GET /v2/a%20b%2Fc HTTP/1.1\r\nHost: a:8000\r\nk: v\r\n\r\n"
        );
        address.headers.push(("k".into(), "v\r\nx: y".into()));
        assert!(address.request(&[]).is_err());
    }
}
