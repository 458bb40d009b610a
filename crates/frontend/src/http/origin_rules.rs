//! Which web pages may send requests, and by which host names clients may reach the server.
//!
//! A browser sends requests of any page that its user visits, also to a server on the user's machine or network, where
//! the page itself could not connect. The browser says so in headers that a page cannot change: `Origin` names the page's
//! origin, `Sec-Fetch-Site` how it relates to the server. Other clients send neither, so these rules do not concern them.
//!
//! A page whose own name is changed to the address of the server (DNS rebinding) has the same origin as the server. Only
//! a list of the host names of the server refuses it.
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
        ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
    },
    uri::Authority,
};

use super::{
    body::ResponseBody,
    reply::{self, HttpReply},
};
use crate::error;

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
static SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
static REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
static ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// The methods of all HTTP ports.
const METHODS: &str = "GET, HEAD, POST, DELETE";

/// How long a browser may use the answer to a preflight request, in seconds.
const PREFLIGHT_AGE: &str = "600";

const EVERYTHING: &str = "*";

/// The most bytes of an origin or a host in a refusal.
const MAX_SHOWN: usize = 256;

/// The rules of all HTTP ports. By default only pages of the server itself may send requests, and hosts are not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OriginRules {
    /// In lower case, without default ports.
    origins: Vec<String>,
    allows_any_origin: bool,
    /// Empty: any host.
    hosts: Vec<AllowedHost>,
}

/// A host name or an address, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedHost {
    name: String,
    /// `None`: any port.
    port: Option<u16>,
}

/// Who sent a request that the rules permit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestSender {
    /// A client that is no web page, or a page of the server itself.
    Direct,
    /// A page of another origin. The value is that of `Access-Control-Allow-Origin`.
    ForeignPage(HeaderValue),
}

/// Why the rules refuse a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OriginRefusal {
    /// The request names another host, or none.
    Host(Option<String>),
    /// A page of this origin sent it.
    Origin(String),
    /// A page of another site sent it, and the browser does not name the page.
    Site,
}

impl OriginRules {
    /// From now on, pages of the origin `<scheme>://<host>[:<port>]` may send requests; for `*`, all pages.
    ///
    /// # Errors
    /// `text` is no origin. The error names the rule.
    pub fn allow_origin(&mut self, text: &str) -> Result<(), String> {
        if text == "*" {
            self.allows_any_origin = true;
            return Ok(());
        }
        let rule = || format!("an origin is '*' or <scheme>://<host>[:<port>] without a path. Got '{text}'");
        let (scheme, authority) = text.split_once("://").ok_or_else(rule)?;
        let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        let (host, port) = host_and_port(authority).ok_or_else(rule)?;
        if !is_scheme || host.is_empty() {
            return Err(rule());
        }
        let scheme = scheme.to_ascii_lowercase();
        let port = port.filter(|port| Some(*port) != default_port(&scheme));
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        self.origins.push(format!("{scheme}://{}{port}", host.to_ascii_lowercase()));
        Ok(())
    }

    /// From now on, requests must name one of the allowed hosts, of which `<host>[:<port>]` is one. Without a port, any
    /// port is allowed.
    ///
    /// # Errors
    /// `text` is no host. The error names the rule.
    pub fn allow_host(&mut self, text: &str) -> Result<(), String> {
        let rule = || format!("a host is <name or address>[:<port>]. Got '{text}'");
        let (name, port) = host_and_port(text).filter(|(name, _)| !name.is_empty()).ok_or_else(rule)?;
        self.hosts.push(AllowedHost { name: name.to_ascii_lowercase(), port });
        Ok(())
    }

    /// Tells whether pages of all origins may send requests.
    pub fn allows_any_origin(&self) -> bool {
        self.allows_any_origin
    }

    /// Tells whether a rule may apply to a request with these headers.
    pub(super) fn concern(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(ORIGIN) || headers.contains_key(&SEC_FETCH_SITE) || !self.hosts.is_empty()
    }

    /// Who sent a request.
    ///
    /// # Errors
    /// The rules refuse it.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<RequestSender, OriginRefusal> {
        let headers = request.headers();
        let host = named_host(request.uri(), headers);
        if !self.hosts.is_empty() && !host.is_some_and(|host| self.allows_host(host)) {
            return Err(OriginRefusal::Host(host.map(shown)));
        }
        let site = |name| says(headers, &SEC_FETCH_SITE, name);
        let is_cross_site = site("cross-site") && !is_opened_in_a_tab(request);
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            let is_refused = is_cross_site && !self.allows_any_origin;
            return if is_refused { Err(OriginRefusal::Site) } else { Ok(RequestSender::Direct) };
        };
        let is_only = origins.next().is_none();
        // A proxy may change the host. The browser's word counts, too: a page cannot change these headers.
        let is_own = site("same-origin") || host.is_some_and(|host| is_origin_of(origin.as_bytes(), host));
        if is_only && is_own && !is_cross_site {
            return Ok(RequestSender::Direct);
        }
        if self.allows_any_origin {
            return Ok(RequestSender::ForeignPage(HeaderValue::from_static(EVERYTHING)));
        }
        let name = String::from_utf8_lossy(origin.as_bytes());
        if is_only && self.origins.iter().any(|allowed| name.eq_ignore_ascii_case(allowed)) {
            return Ok(RequestSender::ForeignPage(origin.clone()));
        }
        Err(OriginRefusal::Origin(shown(&name)))
    }

    fn allows_host(&self, host: &str) -> bool {
        let Some((name, port)) = host_and_port(host) else { return false };
        self.hosts.iter().any(|allowed| {
            allowed.name.eq_ignore_ascii_case(name) && allowed.port.is_none_or(|only| Some(only) == port)
        })
    }
}

impl OriginRefusal {
    /// The reply to the request.
    pub(super) fn reply(&self) -> HttpReply {
        let text = match self {
            Self::Host(Some(host)) => format!("the host '{host}' is not one of --http-allowed-hosts"),
            Self::Host(None) => "the request names no host, and --http-allowed-hosts limits hosts".to_owned(),
            Self::Origin(origin) => {
                format!("a web page of the origin '{origin}' sent the request: it is not one of --http-allowed-origins")
            }
            Self::Site => {
                "a web page of another site sent the request: --http-allowed-origins does not allow all origins".to_owned()
            }
        };
        reply::json(StatusCode::FORBIDDEN, error::body(&text))
    }
}

/// The answer to a request by which a browser asks whether a page may send another one. `None` if it is no such request.
pub(super) fn preflight_reply<B>(request: &Request<B>) -> Option<HttpReply> {
    if request.method() != Method::OPTIONS || !request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut reply = Response::new(ResponseBody::default());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    let headers = reply.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    // Headers of restricted APIs and forwarded headers have any names.
    if let Some(names) = request.headers().get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    if request.headers().contains_key(&REQUEST_PRIVATE_NETWORK) {
        headers.insert(&ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_AGE));
    Some(reply)
}

/// Lets the page of `origin` read a reply.
pub(super) fn permit_reading(reply: &mut HttpReply, origin: HeaderValue) {
    let headers = reply.headers_mut();
    if origin != EVERYTHING {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EVERYTHING));
}

/// Whether a browser says so with the header of that name.
fn says(headers: &HeaderMap, name: &HeaderName, value: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    values.any(|found| found.as_bytes().trim_ascii().eq_ignore_ascii_case(value.as_bytes()))
}

/// Whether the user opens an address in a tab, such as by a link on a page of another site. That page cannot read the
/// answer, and no request with this method changes anything.
fn is_opened_in_a_tab<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && says(headers, &SEC_FETCH_MODE, "navigate")
        && says(headers, &SEC_FETCH_DEST, "document")
}

/// The host that a request names. `None` if it names none, or several.
fn named_host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
    // As RFC 9112, 3.2.2: the host of the target takes precedence.
    if let Some(authority) = uri.authority().map(Authority::as_str) {
        return Some(authority.rsplit_once('@').map_or(authority, |(_, host)| host));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next()?.to_str().ok()?;
    hosts.next().is_none().then_some(host)
}

/// Whether pages of `origin` come from `host`. Whether TLS was used on the way is not known: a proxy may end it.
fn is_origin_of(origin: &[u8], host: &str) -> bool {
    let Some((scheme, authority)) = std::str::from_utf8(origin).ok().and_then(|text| text.split_once("://"))
    else {
        return false;
    };
    let Some(default) = default_port(scheme) else { return false };
    match (host_and_port(authority), host_and_port(host)) {
        (Some((page, page_port)), Some((own, own_port))) => {
            page.eq_ignore_ascii_case(own) && page_port.unwrap_or(default) == own_port.unwrap_or(default)
        }
        _ => false,
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

/// Divides `<host>[:<port>]`. An IPv6 address has brackets. `None` if the text has another form.
fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let end = match text.strip_prefix('[') {
        Some(address) => address.find(']')? + 2,
        None => text.find(':').unwrap_or(text.len()),
    };
    let (host, port) = text.split_at(end);
    let is_host = host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/\\@?#,*".contains(&byte));
    let port = match port.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
        Some(_) => return None,
        None if port.is_empty() => None,
        None => return None,
    };
    is_host.then_some((host, port))
}

fn shown(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_SHOWN)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        lines.iter().map(line).collect()
    }

    fn rules(origins: &[&str], hosts: &[&str]) -> OriginRules {
        let mut rules = OriginRules::default();
        origins.iter().for_each(|origin| rules.allow_origin(origin).unwrap());
        hosts.iter().for_each(|host| rules.allow_host(host).unwrap());
        rules
    }

    fn request(target: &'static str, lines: &[(&'static str, &str)]) -> Request<()> {
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_static(target);
        *request.headers_mut() = headers(lines);
        request
    }

    fn check(rules: &OriginRules, lines: &[(&'static str, &str)]) -> Result<RequestSender, OriginRefusal> {
        rules.check(&request("/v2", lines))
    }

    #[test]
    fn a_link_on_a_page_of_another_site_may_be_opened() {
        let rules = OriginRules::default();
        let link = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let mut opened = request("/status", &link);
        assert_eq!(rules.check(&opened), Ok(RequestSender::Direct));
        *opened.method_mut() = Method::POST;
        assert_eq!(rules.check(&opened), Err(OriginRefusal::Site), "a form");
        let framed = [link[0], link[1], ("sec-fetch-dest", "iframe")];
        assert_eq!(check(&rules, &framed), Err(OriginRefusal::Site), "a frame");
        assert_eq!(
            check(&rules, &[link[0], ("sec-fetch-mode", "no-cors"), link[2]]),
            Err(OriginRefusal::Site)
        );
        let named = [link[0], link[1], link[2], ("origin", "http://evil")];
        assert_eq!(check(&rules, &named), Err(OriginRefusal::Origin("http://evil".into())));
    }

    #[test]
    fn no_rule_concerns_a_client_that_is_no_browser() {
        let curl = headers(&[("host", "any"), ("user-agent", "curl"), ("content-type", "text/plain")]);
        assert!(!OriginRules::default().concern(&curl) && !rules(&["http://a"], &[]).concern(&curl));
        assert!(rules(&[], &["a"]).concern(&curl));
        for name in ["origin", "sec-fetch-site"] {
            assert!(OriginRules::default().concern(&headers(&[(name, "x")])), "{name}");
        }
    }

    #[test]
    fn a_page_of_the_server_itself_may_send_requests() {
        let direct = Ok(RequestSender::Direct);
        let rules = OriginRules::default();
        for (host, origin) in [
            ("localhost:8000", "http://localhost:8000"),
            ("LocalHost:8000", "http://localhost:8000"),
            ("[::1]:8000", "http://[::1]:8000"),
            ("models.example", "https://models.example"),
            ("models.example:443", "https://models.example"),
            ("models.example:80", "http://models.example"),
        ] {
            assert_eq!(check(&rules, &[("host", host), ("origin", origin)]), direct, "{origin}");
        }
        assert_eq!(check(&rules, &[("host", "a"), ("sec-fetch-site", "same-origin")]), direct);
        assert_eq!(check(&rules, &[("host", "a"), ("sec-fetch-site", "none")]), direct);
        // A proxy has changed the host.
        let proxied = [("host", "a"), ("origin", "https://public"), ("sec-fetch-site", "same-origin")];
        assert_eq!(check(&rules, &proxied), direct);
    }

    #[test]
    fn pages_of_other_origins_are_refused_by_default() {
        let rules = OriginRules::default();
        for origin in [
            "http://evil.example",
            "http://localhost:3000",
            "null",
            "",
            "file://",
            "tauri://localhost:8000",
            "http://localhost:8000/",
            "http://localhost:8000@evil",
        ] {
            let refused = Err(OriginRefusal::Origin(origin.into()));
            assert_eq!(check(&rules, &[("host", "localhost:8000"), ("origin", origin)]), refused, "{origin}");
        }
        let other_scheme =
            [("host", "a:8000"), ("origin", "https://a:8000"), ("sec-fetch-site", "cross-site")];
        assert_eq!(check(&rules, &other_scheme), Err(OriginRefusal::Origin("https://a:8000".into())));
        let site = [("host", "localhost:8000"), ("sec-fetch-site", "cross-site")];
        assert_eq!(check(&rules, &site), Err(OriginRefusal::Site));
        let two = [("host", "a"), ("origin", "http://a"), ("origin", "http://b")];
        assert_eq!(check(&rules, &two), Err(OriginRefusal::Origin("http://a".into())));
    }

    #[test]
    fn allowed_origins_are_named_to_the_browser() {
        let named = rules(&["https://Lab.Example:443", "http://localhost:3000"], &[]);
        let page = |origin: &'static str| Ok(RequestSender::ForeignPage(HeaderValue::from_static(origin)));
        let of = |rules: &OriginRules, origin| {
            check(rules, &[("host", "s"), ("origin", origin), ("sec-fetch-site", "cross-site")])
        };
        assert_eq!(of(&named, "https://lab.example"), page("https://lab.example"));
        assert_eq!(of(&named, "http://localhost:3000"), page("http://localhost:3000"));
        assert_eq!(of(&named, "http://localhost"), Err(OriginRefusal::Origin("http://localhost".into())));
        assert_eq!(check(&named, &[("sec-fetch-site", "cross-site")]), Err(OriginRefusal::Site));
        assert_eq!(of(&rules(&["*"], &[]), "null"), page("*"));
        assert_eq!(
            check(&rules(&["*"], &[]), &[("sec-fetch-site", "cross-site")]),
            Ok(RequestSender::Direct)
        );
    }

    #[test]
    fn a_request_must_name_an_allowed_host() {
        let rules = rules(&[], &["localhost", "Models.example:8000", "[::1]"]);
        for host in ["localhost", "localhost:1", "LOCALHOST:8000", "models.example:8000", "[::1]:8000"] {
            assert_eq!(check(&rules, &[("host", host)]), Ok(RequestSender::Direct), "{host}");
        }
        for host in
            ["evil", "models.example", "models.example:80", "localhost.evil:8000", "localhost:x", "[::1"]
        {
            assert_eq!(
                check(&rules, &[("host", host)]),
                Err(OriginRefusal::Host(Some(host.into()))),
                "{host}"
            );
        }
        assert_eq!(check(&rules, &[]), Err(OriginRefusal::Host(None)));
        assert_eq!(check(&rules, &[("host", "localhost"), ("host", "evil")]), Err(OriginRefusal::Host(None)));
        let refused = rules.check(&request("http://evil/v2", &[("host", "localhost")]));
        assert_eq!(refused, Err(OriginRefusal::Host(Some("evil".into()))), "the target takes precedence");
    }

    #[test]
    fn values_of_other_forms_are_no_origins_and_no_hosts() {
        for origin in
            ["", "localhost", "http://", "http://a/", "http://a/x", "null", "://a", "http://a:x", "1://a"]
        {
            assert!(OriginRules::default().allow_origin(origin).is_err(), "{origin}");
        }
        for host in ["", "http://a", "a/b", "a:b", ":80", "*", "[::1", "::1", "a:99999"] {
            assert!(OriginRules::default().allow_host(host).is_err(), "{host}");
        }
    }
}
