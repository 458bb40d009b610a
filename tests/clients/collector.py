"""A collector of OpenTelemetry that keeps what it gets, as a server of its own in the test."""

import http.server
import json
import ssl
import threading

from serving import eventually


class Collector:
    """Takes spans as JSON. `status` is the answer to every request; with a certificate and its key it speaks TLS."""

    def __init__(self, status=200, certificate=None):
        self.status, self.requests, self._lock = status, [], threading.Lock()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with collector._lock:
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    collector.requests.append((self.path, headers, body))
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_port}/v1/traces"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind, error, trace):
        self._server.shutdown()
        self._server.server_close()

    def options(self, *more, delay_ms=50):
        """The options of a server that sends all its traces here."""
        settings = ["mode=opentelemetry", "rate=1", "level=TIMESTAMPS", f"opentelemetry,url={self.url}"]
        settings.append(f"opentelemetry,bsp_schedule_delay={delay_ms}")
        return [f"--trace-config={setting}" for setting in (*settings, *more)]

    def resources(self):
        """The attributes of the resource in each request."""
        with self._lock:
            bodies = [json.loads(body) for _, _, body in self.requests]
        attributes = [resource["resource"]["attributes"] for body in bodies for resource in body["resourceSpans"]]
        return [{pair["key"]: pair["value"]["stringValue"] for pair in pairs} for pairs in attributes]

    def spans(self):
        with self._lock:
            bodies = [json.loads(body) for _, _, body in self.requests]
        return [
            Span(span)
            for body in bodies
            for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    def wait_for_roots(self, count):
        """The spans, when so many requests of clients are among them."""
        eventually(lambda: sum(span.name == "InferRequest" for span in self.spans()) >= count, f"{count} traces")
        return self.spans()


class Span:
    """A span, with times in nanoseconds."""

    def __init__(self, span):
        self.name, self.id, self.trace = span["name"], span["spanId"], span["traceId"]
        self.parent, self.kind = span.get("parentSpanId"), span["kind"]
        self.state = span.get("traceState")
        self.start, self.end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        self.events = [(event["name"], int(event["timeUnixNano"])) for event in span.get("events", [])]
        self.attributes = {pair["key"]: next(iter(pair["value"].values())) for pair in span.get("attributes", [])}

    def __repr__(self):
        return f"{self.name}({self.id} below {self.parent})"


def check_nesting(spans):
    """Each span lies in the time of its parent, and each event in that of its span."""
    by_id = {span.id: span for span in spans}
    assert len(by_id) == len(spans), "no two spans have the same id"
    for span in spans:
        assert span.start <= span.end and span.kind == 2, span
        for name, at in span.events:
            # The server waits for a message of gRPC before the request begins.
            assert name == "GRPC_WAITREAD_START" or span.start <= at <= span.end, (span, name)
        parent = by_id.get(span.parent)
        if parent:
            assert parent.start <= span.start and span.end <= parent.end, (span, parent)
            assert parent.trace == span.trace
