"""Object stores for tests: moto and azurite as processes, and a small server that a test may let misbehave.

$NEREID_TEST_MOTO and $NEREID_TEST_AZURITE are the programs of the first two; `cargo xtask integrations` installs them. Tests
that need them have the mark `stores`.
"""

import base64
import contextlib
import datetime
import hashlib
import hmac
import json
import os
import pathlib
import threading
import urllib.parse
import xml.sax.saxutils
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import processes
import programs
import requests
from serving import PATIENCE, eventually, free_port

BUCKET = "bucket"
S3_VARIABLES = {"AWS_ACCESS_KEY_ID": "test-id", "AWS_SECRET_ACCESS_KEY": "test-secret"}


class Store:
    """A store with an empty bucket. `variables` is the environment of a server that reads it."""

    variables = S3_VARIABLES

    def upload(self, folder, prefix):
        """Writes each file of a folder, and deletes what the folder does not have."""
        files = {f"{prefix}/{file.relative_to(folder)}": file for file in folder.rglob("*") if file.is_file()}
        for key, file in files.items():
            self.put(key, file.read_bytes())
        for key in self.keys - files.keys():
            if key.startswith(f"{prefix}/"):
                self.delete(key)

    def put(self, key, content):
        self.keys.add(key)
        self.write("PUT", key, content)

    def delete(self, key):
        self.keys.discard(key)
        self.write("DELETE", key, b"")


class Moto(Store):
    """S3, as moto's server implements it. It wants a signature but does not check it."""

    def __init__(self, port):
        self.keys = set()
        self._place = f"http://127.0.0.1:{port}/{BUCKET}"
        self.url = f"s3://{self._place}"
        self.write("PUT", "", b"")

    def write(self, method, key, content):
        signature = "AWS4-HMAC-SHA256 Credential=i/20231114/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        answer = requests.request(
            method, f"{self._place}/{key}", data=content, headers={"Authorization": signature}, timeout=PATIENCE
        )
        answer.raise_for_status()


class Azurite(Store):
    """Azure Blob Storage, as azurite implements it. It checks signatures."""

    ACCOUNT = "testaccount"
    KEY = base64.b64encode(b"the key of the test").decode()

    def __init__(self, port):
        self.keys = set()
        self.variables = {"AZURE_STORAGE_KEY": self.KEY}
        self._place = f"http://127.0.0.1:{port}"
        self.url = f"as://{self._place}/{self.ACCOUNT}/container"
        self._send("PUT", "container", b"", {}, {"restype": "container"})

    def write(self, method, key, content):
        kind = {"x-ms-blob-type": "BlockBlob"} if method == "PUT" else {}
        self._send(method, f"container/{key}", content, kind, {})

    def _send(self, method, path, content, headers, query):
        now = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {**headers, "x-ms-date": now, "x-ms-version": "2021-12-02"}
        path = f"/{self.ACCOUNT}/{path}"
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        parameters = "".join(f"\n{name}:{value}" for name, value in sorted(query.items()))
        length = str(len(content)) if content else ""
        signed = f"{method}\n\n\n{length}\n\n\n\n\n\n\n\n\n{lines}/{self.ACCOUNT}{path}{parameters}"
        signature = hmac.digest(base64.b64decode(self.KEY), signed.encode(), "sha256")
        headers["Authorization"] = f"SharedKey {self.ACCOUNT}:{base64.b64encode(signature).decode()}"
        answer = requests.request(
            method, self._place + path, params=query, data=content, headers=headers, timeout=PATIENCE
        )
        answer.raise_for_status()


@contextlib.contextmanager
def started(variable, arguments, environment=None):
    """The port of a server process that a variable names."""
    programs.check_group("stores")
    program = os.environ.get(variable)
    if not program:
        programs.missing(f"{variable} does not name the program of a server", programs.INTEGRATIONS)
    port = free_port()
    line = [program, *(argument.format(port=port) for argument in arguments)]
    variables = os.environ | (environment or {})
    with processes.running(line, env=variables, stdout=processes.DEVNULL, stderr=processes.DEVNULL) as process:

        def accepts():
            assert process.poll() is None, f"{program} ended with {process.returncode}"
            with contextlib.suppress(requests.RequestException):
                return requests.get(f"http://127.0.0.1:{port}/", timeout=PATIENCE) is not None

        eventually(accepts, f"{program} to accept connections", pause=0.05)
        yield port


@contextlib.contextmanager
def moto():
    with started("NEREID_TEST_MOTO", ["-H", "127.0.0.1", "-p", "{port}"]) as port:
        yield Moto(port)


@contextlib.contextmanager
def azurite(folder):
    arguments = ["--blobHost", "127.0.0.1", "--blobPort", "{port}", "--location", str(folder)]
    arguments += ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    accounts = {"AZURITE_ACCOUNTS": f"{Azurite.ACCOUNT}:{Azurite.KEY}"}
    with started("NEREID_TEST_AZURITE", arguments, accounts) as port:
        yield Azurite(port)


class SmallStore(Store):
    """A server with the XML protocol that S3 and Google Cloud Storage share. It counts requests and may misbehave."""

    def __init__(self):
        self.keys = set()
        self.port = free_port()
        self.url = f"s3://http://127.0.0.1:{self.port}/{BUCKET}"
        self.objects = {}
        # The keys of objects that were read; listings are "".
        self.reads = []
        self.is_denied = False
        # Keys whose objects are other ones than those that listings show.
        self.replaced = set()
        self._lock = threading.Lock()
        self._holds = {}
        self._server = None
        self.start()

    def write(self, method, key, content):
        with self._lock:
            if method == "PUT":
                self.objects[key] = (content, datetime.datetime.now(datetime.UTC))
            else:
                self.objects.pop(key, None)

    def start(self):
        """Accepts connections, again on the same port."""
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                store._answer(self)

            def log_message(self, *_):
                pass

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        """Refuses connections."""
        self._server.shutdown()
        self._server.server_close()

    def hold(self, key):
        """Lets reads of a key wait; `""` is a listing. Returns the hold, whose `is_reached` tells that a read waits."""
        hold = Hold()
        self._holds[key] = hold
        return hold

    def downloads(self):
        return [key for key in self.reads if key]

    def _answer(self, request):
        path, _, query = request.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        key = "" if "list-type=2" in query else key
        with self._lock:
            self.reads.append(key)
        if hold := self._holds.get(key):
            hold.reached.set()
            hold.released.wait()
        with contextlib.suppress(OSError):
            if self.is_denied:
                return self._send(request, 403, error("AccessDenied", "Access Denied"))
            if bucket != BUCKET:
                return self._send(request, 404, error("NoSuchBucket", "The bucket does not exist"))
            if not key:
                prefix = dict(urllib.parse.parse_qsl(query)).get("prefix", "")
                return self._send(request, 200, self._listing(prefix))
            return self._object(request, key)
        return None

    def _object(self, request, key):
        with self._lock:
            content, time = self.objects.get(key, (None, None))
        if content is None:
            return self._send(request, 404, error("NoSuchKey", "The key does not exist"))
        condition = request.headers.get("If-Match")
        if condition and (condition != tag(content) or key in self.replaced):
            return self._send(request, 412, error("PreconditionFailed", "another tag"))
        modified = time.strftime("%a, %d %b %Y %H:%M:%S GMT")
        return self._send(request, 200, content, {"ETag": tag(content), "Last-Modified": modified})

    def _listing(self, prefix):
        with self._lock:
            found = sorted((key, value) for key, value in self.objects.items() if key.startswith(prefix))
        text = '<?xml version="1.0"?><ListBucketResult>'
        for key, (content, time) in found:
            text += f"<Contents><Key>{xml.sax.saxutils.escape(key)}</Key>"
            text += f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.%fZ')}</LastModified>"
            text += f"<ETag>{xml.sax.saxutils.escape(tag(content))}</ETag><Size>{len(content)}</Size></Contents>"
        return (text + "</ListBucketResult>").encode()

    @staticmethod
    def _send(request, status, content, headers=None):
        request.send_response(status)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


class GoogleStore(SmallStore):
    """The same as Google Cloud Storage."""

    def __init__(self, folder):
        super().__init__()
        self.url = f"gs://{BUCKET}"
        key = folder / "google.json"
        place = {"gcs_base_url": f"http://127.0.0.1:{self.port}", "disable_oauth": True}
        key.write_text(json.dumps(place | {"client_email": "", "private_key": "", "private_key_id": ""}))
        self.variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(key)}


class Hold:
    def __init__(self):
        self.reached = threading.Event()
        self.released = threading.Event()

    def wait_until_reached(self):
        assert self.reached.wait(PATIENCE), "the store was not asked"

    def release(self):
        self.released.set()


def tag(content):
    return f'"{hashlib.sha256(content).hexdigest()[:16]}"'


def error(code, message):
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


def copies(cache: pathlib.Path):
    """The copies of models that running servers have."""
    return sorted(cache.glob("sessions/*/*/*"))
