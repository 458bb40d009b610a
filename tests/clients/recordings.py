"""`nereid record` as a running process, `nereid replay` to its end, and the lines of a recording."""

import base64
import contextlib
import json
import re
import signal
import types

import processes
from serving import BINARY, PATIENCE, environment, eventually

PORT_LINE = re.compile(r"^recording (\w+) at 127\.0\.0\.1:(\d+) for ", re.MULTILINE)


@contextlib.contextmanager
def recording(folder, server, *options):
    """Records calls to the server: a value with `http`, `grpc`, and `log` once it has ended, for clients and tests."""
    file = folder / "calls.jsonl"
    log_path = folder / "record.log"
    line = [str(BINARY), "record", str(file), "--url", server.http, "--grpc-url", server.grpc]
    line += ["--listen", "0", "--grpc-listen", "0", *map(str, options)]
    with (
        log_path.open("wb") as log,
        processes.running(line, env=environment(), stdout=log, stderr=processes.STDOUT) as process,
    ):

        def ports():
            assert process.poll() is None, log_path.read_text()
            found = dict(PORT_LINE.findall(log_path.read_text()))
            return len(found) == 2 and found

        found = eventually(ports, "the ports of the recording")
        proxy = types.SimpleNamespace(file=file, process=process, log=log_path.read_text)
        proxy.http, proxy.grpc = (f"127.0.0.1:{found[name]}" for name in ("HTTP", "gRPC"))
        yield proxy
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log_path.read_text()


def replay(file, server, *options):
    """The process after its end."""
    line = [str(BINARY), "replay", str(file), "--url", server.http, "--grpc-url", server.grpc]
    line += map(str, options)
    return processes.run(line, env=environment())


def replayed(file, server, folder, *options, code=0):
    """The report of a replay that ends with this code."""
    report = folder / "report.json"
    ended = replay(file, server, "--json", report, *options)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return json.loads(report.read_text())


def events(file, kind):
    """The lines of a kind, without the first line of the file."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0] == {"event": "recording", "form": 1, "started_unix_us": lines[0]["started_unix_us"]}
    return [line for line in lines if line["event"] == kind]


def content(body):
    """The bytes of a body."""
    return body["text"].encode() if "text" in body else base64.b64decode(body["base64"])
