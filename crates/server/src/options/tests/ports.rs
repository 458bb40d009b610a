//! Options about who may use the ports: web pages, keys, TLS, and connections from one address.

use frontend::{
    http::OriginRules,
    port::tls::{ClientCertificateRules, TlsOptions},
};

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

#[test]
fn keys_in_clear_are_told_at_the_start() {
    let warning = |ports: &str| {
        format!(
            "Warning: clients send their keys in clear to these ports: {ports}. '--http-use-ssl' and '--grpc-use-ssl' \
             encrypt them, or a proxy."
        )
    };
    let http = "--http-restricted-api=model-repository:key=secret";
    let grpc = "--grpc-restricted-protocol=model-repository:key=secret";
    let keys = "--api-key-file=keys.json";
    let managed = ["--allow-sagemaker=true", "--allow-vertex-ai=true", "--vertex-ai-port=8081"];
    let tls = ["--http-use-ssl=true", "--http-server-cert=c", "--http-server-key=k"];
    assert_eq!(options(&[http]).warnings, [warning("HTTP")]);
    assert_eq!(options(&[http, grpc]).warnings, [warning("HTTP, gRPC")]);
    assert_eq!(options(&[keys]).warnings, [warning("HTTP, gRPC")]);
    assert_eq!(
        options(&[&[http, "--allow-http=false"][..], &managed].concat()).warnings,
        [warning("SageMaker, Vertex AI")]
    );
    assert_eq!(options(&[&[keys][..], &managed, &tls].concat()).warnings, [warning("gRPC")]);
    for local in ["127.0.0.1", "localhost", "::1", "[::1]", "unix:/run/http"] {
        let address = format!("--http-address={local}");
        assert!(options(&[http, &address, "--allow-metrics=false"]).warnings.is_empty(), "{local}");
    }
    assert!(options(&managed).warnings.is_empty());
}

#[test]
fn tls_of_http_holds_for_the_ports_of_platforms() {
    let managed = ["--allow-sagemaker=true", "--allow-vertex-ai=true", "--vertex-ai-port=8081"];
    let tls = ["--http-use-ssl=true", "--http-server-cert=c", "--http-server-key=k"];
    let expected = Some(TlsOptions {
        certificate: "c".into(),
        key: "k".into(),
        client_roots: None,
        client_rules: ClientCertificateRules::default(),
    });
    for http in ["--allow-http=true", "--allow-http=false"] {
        let given = options(&[&[http][..], &managed, &tls].concat());
        assert_eq!(given.sagemaker.unwrap().tls, expected);
        assert_eq!(given.vertex_ai.unwrap().tls, expected);
        assert!(given.http.is_none_or(|http| http.tls == expected));
    }
    let plain = options(&managed);
    assert_eq!((plain.sagemaker.unwrap().tls, plain.vertex_ai.unwrap().tls), (None, None));
    let incomplete = [&["--allow-http=false", "--http-use-ssl=true"][..], &managed].concat();
    let refused = parse_in(&ProcessEnvironment::default(), &incomplete).unwrap_err();
    assert!(refused.contains("--http-server-cert"), "{refused}");
    // Without a port that has TLS, its files do not matter.
    assert!(options(&["--allow-http=false", "--http-use-ssl=true"]).http.is_none());
}

#[test]
fn one_address_may_have_a_quarter_of_the_connections_or_a_given_number() {
    assert_eq!(options(&[]).connections.per_address, None);
    assert_eq!(options(&["--max-connections-per-address=0"]).connections.per_address, None);
    assert_eq!(options(&["--max-connections-per-address=7"]).connections.per_address, Some(7));
}
