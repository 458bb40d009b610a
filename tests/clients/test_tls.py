"""TLS on every port: who gets in, and how certificates are renewed while clients are served."""

import contextlib
import http.client
import signal
import socket
import ssl

import certificates
import gevent.ssl
import numpy as np
import processes
import pytest
import repository as models
import requests
import tritonclient.grpc
import tritonclient.http
from cryptography import x509
from perf_tool import perf, perf_report
from protocols import GRPC, HTTP, add_sub_inputs
from serving import BINARY, PATIENCE, environment, eventually, run_to_end
from tritonclient.utils import InferenceServerException

PORTS = ["http", "grpc", "metrics"]


@pytest.fixture
def authority(tmp_path):
    return certificates.Authority(tmp_path)


def options(issued, roots=None):
    """Options for TLS with the same certificate on every port."""
    for port in PORTS:
        yield f"--{port}-use-ssl-mutual=true" if roots else f"--{port}-use-ssl=true"
        yield f"--{port}-server-cert={issued.certificate}"
        yield f"--{port}-server-key={issued.key}"
        if roots:
            yield f"--{port}-root-cert={roots}"


@pytest.fixture
def encrypted(start, tmp_path, authority):
    """Starts a server with TLS on every port; gives it and its certificate."""

    def started(*more, roots=None, ca=False):
        folder = tmp_path / "models"
        folder.mkdir(exist_ok=True)
        models.add_sub(folder)
        issued = authority.issue("server", ca=ca)
        server = start(folder, *options(issued, roots), *more)
        return server, issued

    return started


def context(authority, own=None):
    made = gevent.ssl.create_default_context(cafile=str(authority.certificate))
    if own:
        made.load_cert_chain(own.certificate, own.key)
    return made


def http_client(server, authority, own=None):
    """As a user would connect who trusts the authority."""
    return tritonclient.http.InferenceServerClient(
        server.http, ssl=True, ssl_context_factory=lambda: context(authority, own)
    )


def grpc_client(server, authority, own=None):
    return tritonclient.grpc.InferenceServerClient(
        server.grpc,
        ssl=True,
        root_certificates=str(authority.certificate),
        private_key=own and str(own.key),
        certificate_chain=own and str(own.certificate),
    )


def scrape(server, authority, own=None):
    files = own and (str(own.certificate), str(own.key))
    address = f"https://127.0.0.1:{server.metrics_port}/metrics"
    return requests.get(address, verify=str(authority.certificate), cert=files, timeout=PATIENCE)


def check_inference(client, protocol):
    inputs, first = add_sub_inputs(protocol)
    result = client.infer("add_sub", inputs)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + 1000)


def served_certificate(port, **settings):
    """The certificate that a new connection is shown, and the connection's other properties."""
    settings.setdefault("verify_mode", ssl.CERT_NONE)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    # Otherwise this side would refuse old versions itself.
    made.set_ciphers("DEFAULT:@SECLEVEL=0")
    protocols = settings.pop("protocols", None)
    if protocols:
        made.set_alpn_protocols(protocols)
    for name, value in settings.items():
        setattr(made, name, value)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain,
        made.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        certificate = x509.load_der_x509_certificate(connection.getpeercert(binary_form=True))
        return certificate.serial_number, connection.version(), connection.selected_alpn_protocol()


def test_every_port_serves_clients_that_trust_its_certificate(encrypted, authority):
    server, issued = encrypted()
    with http_client(server, authority) as client:
        check_inference(client, HTTP)
    with grpc_client(server, authority) as client:
        check_inference(client, GRPC)
    metrics = scrape(server, authority)
    assert metrics.status_code == 200
    for port in ("HTTP", "gRPC", "metrics"):
        begin = f'nereid_tls_certificate_expiry_seconds{{port="{port}"}}'
        line = next(line for line in metrics.text.splitlines() if line.startswith(begin))
        assert float(line.split()[-1]) == int(issued.expiry)


def test_a_client_without_tls_or_with_another_authority_is_refused(encrypted, authority, tmp_path):
    server, _ = encrypted()
    for port in (server.http_port, server.metrics_port):
        with pytest.raises((http.client.HTTPException, OSError)):
            plain = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            plain.request("GET", "/v2/health/live")
            plain.getresponse()
    with GRPC.connect(server) as client, pytest.raises(InferenceServerException) as refused:
        client.is_server_live(client_timeout=PATIENCE)
    assert refused.value.status() == "StatusCode.UNAVAILABLE"
    stranger = certificates.Authority(tmp_path, "stranger")
    with pytest.raises(requests.exceptions.SSLError):
        scrape(server, stranger)
    with http_client(server, authority) as client:
        check_inference(client, HTTP)


def test_mutual_tls_lets_in_only_clients_with_a_certificate(encrypted, authority, tmp_path):
    server, _ = encrypted(roots=authority.certificate)
    own = authority.issue("client")
    with http_client(server, authority, own) as client:
        check_inference(client, HTTP)
    with grpc_client(server, authority, own) as client:
        check_inference(client, GRPC)
    assert scrape(server, authority, own).status_code == 200
    foreign = certificates.Authority(tmp_path, "stranger").issue("foreign")
    for wrong in (None, foreign):
        with pytest.raises(requests.exceptions.ConnectionError):
            scrape(server, authority, wrong)
        with http_client(server, authority, wrong) as client, pytest.raises((OSError, ValueError)):
            client.is_server_live()
        with grpc_client(server, authority, wrong) as client, pytest.raises(InferenceServerException):
            client.is_server_live(client_timeout=PATIENCE)


def test_the_load_generator_shows_its_certificate(encrypted, authority):
    server, _ = encrypted(roots=authority.certificate)
    own = authority.issue("client")
    for protocol, scheme, trusted, chain, key in (
        ("http", "https", "ssl-https-ca-certificates-file", "ssl-https-client-certificate-file", "ssl-https-private-key-file"),
        ("grpc", "grpcs", "ssl-grpc-root-certifications-file", "ssl-grpc-certificate-chain-file", "ssl-grpc-private-key-file"),
    ):
        port = getattr(server, f"{protocol}_port")
        options = ["-m", "add_sub", "-i", protocol, "-u", f"{scheme}://localhost:{port}", "--warm-up", 0]
        options += ["--request-count", 5, f"--{trusted}", authority.certificate]
        assert "Request count: 5\n" in perf_report(*options, f"--{chain}", own.certificate, f"--{key}", own.key)
        assert perf(*options).returncode == 1


@pytest.mark.parametrize(
    "ca, other, text",
    [
        (True, False, "the certificate of the server is one of an authority (CA:TRUE), as 'openssl req -x509' makes it; "),
        (False, True, "the certificate of the server is not trusted; --ca-certificates names the file of its authority"),
    ],
    ids=["an authority's", "another authority"],
)
def test_a_certificate_that_is_refused_is_told_with_the_remedy(encrypted, authority, tmp_path, ca, other, text):
    server, _ = encrypted(ca=ca)
    trusted = certificates.Authority(tmp_path, "other") if other else authority
    place = f"localhost:{server.http_port}"
    line = [str(BINARY), "explain", "-u", f"https://{place}", "--ca-certificates", str(trusted.certificate)]
    refused = processes.run(line, env=environment())
    assert refused.stderr.startswith(f"error: no TLS with {place}: {text}") and refused.returncode == 1
    options = ["-m", "add_sub", "-u", f"https://{place}", "--ca-certificates", trusted.certificate, "--request-count", 1]
    assert text in perf(*options).stderr


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_only_current_versions_and_the_own_protocol_are_negotiated(encrypted):
    server, _ = encrypted()
    for port, own in ((server.http_port, "http/1.1"), (server.metrics_port, "http/1.1"), (server.grpc_port, "h2")):
        for version, text in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
            limits = {"minimum_version": version, "maximum_version": version}
            shown = served_certificate(port, protocols=["http/1.1", "h2"], **limits)
            assert shown[1:] == (text, own)
        with pytest.raises(ssl.SSLError):
            served_certificate(port, protocols=["spdy/3"])
        with pytest.raises(OSError):
            served_certificate(
                port, minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1
            )


def expiry(server, authority, port):
    text = scrape(server, authority).text
    return float(text.split(f'nereid_tls_certificate_expiry_seconds{{port="{port}"}} ')[1].split()[0])


def test_a_renewed_certificate_is_used_without_a_restart(encrypted, authority):
    server, first = encrypted("--credential-reload-secs=1")
    ports = [server.http_port, server.grpc_port, server.metrics_port]
    with http_client(server, authority) as http_open, grpc_client(server, authority) as grpc_open:
        check_inference(http_open, HTTP)
        check_inference(grpc_open, GRPC)
        second = authority.issue("server", days=50)
        assert second.serial != first.serial
        for port in ports:
            eventually(lambda: served_certificate(port)[0] == second.serial, "the new certificate")
        # Connections that were open go on.
        check_inference(http_open, HTTP)
        check_inference(grpc_open, GRPC)
    for port in ("HTTP", "gRPC", "metrics"):
        assert expiry(server, authority, port) == int(second.expiry)


def test_a_broken_certificate_keeps_the_old_one_and_is_told_once(encrypted, authority):
    server, first = encrypted("--credential-reload-secs=1")
    certificates.replace(first.certificate, b"this is no certificate")
    told = "the certificates of the HTTP port stay as they were"
    server.wait_for_log(told)
    for count in range(1, 6):
        # Each signal makes the server look again.
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("SIGHUP does not open it anew", count)
    assert server.log().count(told) == 1
    for port in (server.http_port, server.grpc_port, server.metrics_port):
        assert served_certificate(port)[0] == first.serial
    second = authority.issue("server")
    eventually(lambda: served_certificate(server.http_port)[0] == second.serial, "the new certificate")


def test_a_signal_makes_the_server_look_at_once(encrypted, authority):
    server, first = encrypted("--credential-reload-secs=0")
    second = authority.issue("server")
    served = served_certificate(server.http_port)[0]
    if served == second.serial:
        # A server that has started looks once, and that was after the change. It does not look again.
        first, second = second, authority.issue("server")
        served = served_certificate(server.http_port)[0]
    assert served == first.serial
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: served_certificate(server.http_port)[0] == second.serial, "the new certificate")


def test_new_roots_let_in_other_clients(encrypted, authority, tmp_path):
    roots = tmp_path / "roots.pem"
    roots.write_bytes(authority.certificate.read_bytes())
    server, _ = encrypted("--credential-reload-secs=1", roots=roots)
    other = certificates.Authority(tmp_path, "other")
    own = other.issue("client")
    with pytest.raises(requests.exceptions.ConnectionError):
        scrape(server, authority, own)
    certificates.replace(roots, other.certificate.read_bytes())

    def is_let_in():
        with contextlib.suppress(requests.exceptions.ConnectionError):
            return scrape(server, authority, own).status_code == 200

    eventually(is_let_in, "the new root")


def test_a_revoked_client_gets_in_no_more(encrypted, authority, tmp_path):
    kept, revoked = authority.issue("kept"), authority.issue("revoked")
    lists = tmp_path / "revoked.pem"
    lists.write_bytes(authority.revocation_list())
    options = (f"--client-crl-file={lists}", "--credential-reload-secs=1")
    server, _ = encrypted(*options, roots=authority.certificate)
    assert scrape(server, authority, revoked).status_code == 200
    certificates.replace(lists, authority.revocation_list(revoked, number=2))

    def is_refused():
        try:
            scrape(server, authority, revoked)
        except requests.exceptions.ConnectionError:
            return True
        return False

    eventually(is_refused, "the new revocation list")
    assert scrape(server, authority, kept).status_code == 200
    with grpc_client(server, authority, revoked) as client, pytest.raises(InferenceServerException):
        client.is_server_live(client_timeout=PATIENCE)
    with http_client(server, authority, kept) as client:
        check_inference(client, HTTP)


def test_files_that_cannot_be_used_end_the_start(tmp_path, authority):
    folder = tmp_path / "models"
    folder.mkdir()
    issued, other = authority.issue("server"), authority.issue("other")
    for port in PORTS:
        base = [f"--model-repository={folder}", "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
        tls = [f"--{port}-use-ssl=true", f"--{port}-server-cert={issued.certificate}"]
        ended = run_to_end(*base, *tls, f"--{port}-server-key={other.key}")
        assert ended.returncode == 1
        assert "cannot be used together" in ended.stderr and str(other.key) in ended.stderr
        ended = run_to_end(*base, *tls, f"--{port}-server-key={tmp_path}/none.key")
        assert ended.returncode == 1 and "none.key' cannot be used" in ended.stderr


def test_a_server_name_that_is_no_name_ends_the_handshake(encrypted, authority):
    """rustls decides so, and has a setting for it from 0.24 on. hey sends the port within the name."""
    server, _ = encrypted()
    anonymous = ssl.create_default_context(cafile=str(authority.certificate))
    anonymous.check_hostname = False
    for port in (server.http_port, server.grpc_port):
        for name, is_served in (("localhost", True), (None, True), ("127.0.0.1", True), (f"localhost:{port}", False)):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain:
                try:
                    anonymous.wrap_socket(plain, server_hostname=name).close()
                    assert is_served, name
                except ssl.SSLError as refusal:
                    assert not is_served and "ILLEGAL_PARAMETER" in str(refusal), (name, refusal)
