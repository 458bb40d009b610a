//! Options about who may use the ports: web pages, keys, TLS, and connections from one address.

use frontend::http::OriginRules;

use super::{ProcessEnvironment, options, parse_in};

fn rules(origins: &[&str], hosts: &[&str]) -> OriginRules {
    let mut rules = OriginRules::default();
    origins.iter().for_each(|origin| rules.allow_origin(origin).unwrap());
    hosts.iter().for_each(|host| rules.allow_host(host).unwrap());
    rules
}

#[test]
fn web_pages_and_hosts_are_lists_with_commas_or_several_options() {
    assert_eq!(options(&[]).http_protocol.origin_rules, OriginRules::default());
    let given = options(&[
        "--http-allowed-origins=http://a, https://b:8443",
        "--http-allowed-origins=http://c",
        "--http-allowed-hosts=localhost,10.0.0.1:8000",
        "--http-allowed-hosts=[::1]",
    ]);
    let expected =
        rules(&["http://a", "https://b:8443", "http://c"], &["localhost", "10.0.0.1:8000", "[::1]"]);
    assert_eq!((given.http_protocol.origin_rules, given.warnings), (expected, vec![]));
    for (wrong, rule) in [
        ("--http-allowed-origins=localhost", "an origin is '*' or <scheme>://<host>[:<port>] without a path"),
        ("--http-allowed-origins=http://a,", "an origin is '*' or <scheme>://<host>[:<port>] without a path"),
        ("--http-allowed-hosts=http://a", "a host is <name or address>[:<port>]"),
    ] {
        let refused = parse_in(&ProcessEnvironment::default(), &[wrong]).unwrap_err();
        assert!(refused.contains(rule), "{refused}");
    }
}

#[test]
fn a_server_for_all_web_pages_warns_once() {
    let all = options(&["--http-allowed-origins=*,http://a", "--http-allowed-origins=*"]);
    assert!(all.http_protocol.origin_rules.allows_any_origin());
    let text = "Warning: '--http-allowed-origins=*' lets every web page that a user of this network visits send requests to \
                this server.";
    assert_eq!(all.warnings, [text]);
}

#[test]
fn loads_take_a_configuration_and_files_unless_the_operator_forbids_it() {
    assert!(!options(&[]).repository.load_policy.refuse_overrides);
    assert!(options(&["--allow-load-overrides=false"]).repository.load_policy.refuse_overrides);
}
