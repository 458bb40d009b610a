"""HTTP as the generated cases use it: what is sent, and an answer with everything that a client can see."""

import gzip
import http.client
import json
import zlib
from dataclasses import dataclass

from differential.answers import HANGS, LOST, Answer, flat

# How long an answer may take, in seconds. No case takes that long unless a server hangs.
PATIENCE = 5.0
HEADER_LENGTH = "inference-header-content-length"
# Their values follow from the length of the text, which may be written in several ways.
LENGTHS = ("content-length", HEADER_LENGTH)


@dataclass(frozen=True)
class HttpRequest:
    method: str
    path: str
    headers: tuple = ()
    body: bytes = b""
    # The names of the mutations that made it.
    mutations: tuple = ()
    # The body before it was compressed.
    shown: bytes = b""

    def __str__(self):
        head = "".join(f"\n    {name}: {value}" for name, value in self.headers)
        return f"{self.method} {self.path}{head}\n    {self.shown or self.body!r}\n    mutations: {', '.join(self.mutations)}"


class HttpConnection:
    """A connection that stays. It is opened again when the server has closed it."""

    def __init__(self, address):
        self._address = address
        self._open = None

    def close(self):
        if self._open:
            self._open.close()
        self._open = None

    def ask(self, request, patience=PATIENCE):
        """Sends a request and returns the answer. An answer that does not come has the code `LOST`."""
        for last in (False, True):
            fresh = self._open is None
            if fresh:
                self._open = http.client.HTTPConnection(self._address)
            self._open.timeout = patience
            if self._open.sock:
                self._open.sock.settimeout(patience)
            try:
                return self._ask(request)
            except TimeoutError:
                self.close()
                return Answer(HANGS)
            except (OSError, http.client.HTTPException):
                self.close()
                # The server may have closed a connection that was idle.
                if fresh or last:
                    return Answer(LOST)
        raise AssertionError("the last try returns")

    def _ask(self, request):
        connection = self._open
        connection.putrequest(request.method, request.path, skip_accept_encoding=True)
        for name, value in (*request.headers, ("Content-Length", str(len(request.body)))):
            connection.putheader(name, value)
        connection.endheaders(request.body)
        response = connection.getresponse()
        answer = read(response.status, response.getheaders(), response.read())
        if response.will_close:
            self.close()
        return answer


def read(status, headers, body):
    """The answer that a response is."""
    fields = {}
    for name, value in headers:
        fields[f"header {name.lower()}"] = "(a length)" if name.lower() in LENGTHS else value
    headers = {name.lower(): value for name, value in headers}
    try:
        body = decoded(body, headers.get("content-encoding"))
    except (OSError, zlib.error) as error:
        fields["body"] = f"cannot be decoded: {error}"
        return Answer(str(status), fields=fields)
    if headers.get("content-type", "").startswith("text/event-stream"):
        events = [event.removeprefix("data: ") for event in body.decode(errors="replace").split("\n\n") if event]
        for place, event in enumerate(events):
            fields |= of_json(event.encode(), f"event {place}")
        return Answer(str(status), fields=fields | {"events": len(events)})
    length = int(headers.get(HEADER_LENGTH, len(body)))
    text, binary = body[:length], body[length:]
    if status != 200:
        try:
            document = json.loads(text)
            if isinstance(document, dict) and list(document) == ["error"]:
                return Answer(str(status), str(document["error"]), fields)
        except ValueError:
            pass
    return Answer(str(status), fields=fields | (of_json(text, "json", binary) if text else {"body": ""}))


def decoded(body, coding):
    if coding == "gzip":
        return gzip.decompress(body)
    return zlib.decompress(body) if coding == "deflate" else body


def of_json(text, name, binary=b""):
    """The fields of a JSON text and of the binary data behind it, or the text itself.

    Members keep their order, which is a field of its own. So do outputs, which are called by their names.
    """
    try:
        document = json.loads(text)
    except ValueError:
        return {f"{name} text": text.decode(errors="backslashreplace")}
    if not isinstance(document, dict):
        return flat(document, name)
    fields = {f"{name} members": " ".join(document)}
    outputs = document.get("outputs")
    if isinstance(outputs, list) and all(isinstance(one, dict) and "name" in one for one in outputs):
        del document["outputs"]
        fields[f"{name} outputs"] = " ".join(one["name"] for one in outputs)
        for one in outputs:
            size = one.get("parameters", {}).get("binary_data_size", 0)
            data, binary = binary[:size], binary[size:]
            fields |= flat(one, f"{name}.{one['name']}")
            if data:
                fields[f"{name}.{one['name']} data"] = data.hex()
    fields |= flat(document, name)
    if binary:
        fields["binary"] = binary.hex()
    return fields
