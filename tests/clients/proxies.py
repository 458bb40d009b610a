"""nginx and HAProxy in front of a server, as processes of their own.

$NEREID_TEST_NGINX and $NEREID_TEST_HAPROXY are the programs. Otherwise those of the system are used, or those that
`cargo xtask integrations` has fetched. Tests that need them have the mark `others`.

Each gives its addresses of HTTP/1.1 and gRPC, by their names as the server has them, and whether it `closes` connections that
it has said would stay.
"""

import contextlib
import re
import types

import processes
import programs
from serving import eventually, free_ports, refuses_connections

# Without a master process: the one that is started is the one that is ended. `keepalive` lets it use connections again.
NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_max_body_size 0;
    client_body_temp_path {folder}/client;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream http {{ server {server.http}; keepalive 4; }}
    upstream grpc {{ server {server.grpc}; keepalive 4; }}
    server {{
        listen 127.0.0.1:{http_port};
        location / {{
            proxy_pass http://http;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_request_buffering BUFFERING;
        }}
    }}
    server {{
        listen 127.0.0.1:{grpc_port} http2;
        location / {{ grpc_pass grpc://grpc; }}
    }}
}}
"""

HAPROXY = """
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
listen http
    bind 127.0.0.1:{http_port}
    server nereid {server.http}
listen grpc
    bind 127.0.0.1:{grpc_port} proto h2
    server nereid {server.grpc} proto h2
"""


def nginx_program():
    return programs.find("nginx", "NEREID_TEST_NGINX", group="others")


def haproxy_program():
    return programs.find("haproxy", "NEREID_TEST_HAPROXY", group="others")


def envoy_program():
    return programs.find("envoy", "NEREID_TEST_ENVOY", group="others")


def nginx(folder, server, buffering="on"):
    """nginx until the end of the block. With `buffering` it has a request before it sends it on, as by default."""
    text = NGINX.replace("BUFFERING", buffering)
    line = [nginx_program(), "-p", folder, "-e", "stderr", "-c"]
    return _running(folder, server, text, line, closes=buffering == "off")


def haproxy(folder, server):
    """HAProxy until the end of the block."""
    return _running(folder, server, HAPROXY, [haproxy_program(), "-db", "-f"])


@contextlib.contextmanager
def _running(folder, server, text, line, closes=False):
    config, log_path = folder / "config", folder / "log"
    ports = dict(zip(("http_port", "grpc_port"), free_ports(2), strict=True))
    config.write_text(text.format(folder=folder, server=server, **ports))
    with listening([*line, config], log_path, ports.values()):
        addresses = {name: f"127.0.0.1:{ports[f'{name}_port']}" for name in ("http", "grpc")}
        yield types.SimpleNamespace(**addresses, closes=closes)


@contextlib.contextmanager
def listening(line, log_path, ports):
    """A program until the end of the block, which begins when it listens on all these ports."""
    with open(log_path, "wb") as log, processes.running(line, stdout=log, stderr=processes.STDOUT) as process:

        def listens():
            assert process.poll() is None, f"{line} ended with {process.returncode}: {log_path.read_text()}"
            return not any(map(refuses_connections, ports))

        eventually(listens, f"{line} to listen")
        yield


def version(program):
    """The version of a program that tells it by `-v`."""
    said = processes.run([program, "-v"], check=True)
    return re.search(r"(?:nginx/|version )(\d+(?:\.\d+)+)", said.stdout + said.stderr)[1]
