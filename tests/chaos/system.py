"""The server of a campaign, what it needs beside it, and what it holds."""

import contextlib
import os
import pathlib
import signal
import threading
from dataclasses import dataclass

import processes
import python_backends
import redis_servers
import serving
from held import build_backend
from serving import PATIENCE, eventually

OPTIONS = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--allow-client-shm=true",
    "--reload-sequence-timeout-secs=600",
    *python_backends.BUILT_IN.options,
)


class LoggedServer(serving.Server):
    """A server whose log is a pipe. A thread reads it into a file, unless the log is not to be read."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.reads_log = threading.Event()
        self.reads_log.set()
        self.has_ended = False

    def open_log(self):
        output, pipe = os.pipe()
        log = open(self.log_path, "wb", buffering=0)
        self._reader = threading.Thread(target=self._read, args=[output, log])
        self._reader.start()
        return open(pipe, "wb")

    def _read(self, output, log):
        with open(output, "rb", buffering=0) as pipe, log:
            while piece := pipe.read(1 << 16):
                log.write(piece)
                self.reads_log.wait()

    def stop(self, number):
        """Sends a signal, and returns how the server ended."""
        self.has_ended = True
        self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.kill()
            self.reads_log.set()
            self._reader.join(PATIENCE)


@dataclass(frozen=True, order=True)
class Holdings:
    """What the process of a server holds."""

    descriptors: int
    threads: int
    processes: int
    resident_bytes: int

    def exceeds(self, other):
        """Whether it has more of something that does not vary."""
        return self.descriptors > other.descriptors or self.threads > other.threads or self.processes > other.processes

    def __str__(self):
        size = f"{self.resident_bytes / 1e6:.0f} MB"
        return f"{self.descriptors} descriptors, {self.threads} threads, {self.processes} processes, {size}"


def holdings(server):
    folder = pathlib.Path(f"/proc/{server.process.pid}")
    threads = len(list((folder / "task").iterdir()))
    return Holdings(len(list((folder / "fd").iterdir())), threads, len(workers(server)), server.resident_bytes())


def workers(server, model=""):
    """The processes that the server has started: those of a model in Python, or all."""
    found = set()
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            found.update(map(int, (task / "children").read_text().split()))
    # The kernel keeps fifteen characters of a name.
    return {process for process in found if processes.is_running(process) and name_of(process).startswith(f"py:{model}"[:15])}


def name_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


class System:
    """The server, and the store of its cache if it has one. Only the main thread starts and ends them."""

    def __init__(self, folder, files, with_store):
        self._folder, self._files = folder, files
        plugins = folder / "plugins"
        plugins.mkdir()
        self._options = [*OPTIONS, f"--backend-directory={build_backend(plugins)}"]
        self._with_store = with_store
        self.store = self.server = None
        self._runs = threading.Condition()
        self._store_pauses = threading.Lock()

    def start_store(self):
        if self._with_store:
            self.store = redis_servers.RedisServer(self._folder)
            address = {"host": "127.0.0.1", "port": self.store.port}
            self._options += [f"--cache-config=redis,{name}={value}" for name, value in address.items()]
        else:
            self._options.append("--cache-config=local,size=16777216")

    def start(self):
        server = LoggedServer(
            self._folder, self._files.folder, *self._options, variables=python_backends.BUILT_IN.variables
        )
        # A server starts only if its store answers.
        with self._store_pauses:
            if self.store:
                self.store.go_on()
            server.__enter__()
            try:
                server.wait_until_ready()
            except BaseException:
                server.stop(signal.SIGKILL)
                raise
        with self._runs:
            self.server = server
            self._runs.notify_all()

    def pause_store(self):
        with self._store_pauses:
            self.store.pause()

    def running(self):
        """The server, as soon as there is one that has not been told to end."""
        with self._runs:
            there_is = self._runs.wait_for(lambda: self.server and not self.server.has_ended, 2 * PATIENCE)
            assert there_is, "no server runs"
            return self.server

    def end(self):
        if self.server and self.server.process.poll() is None:
            self.server.stop(signal.SIGKILL)
        if self.store:
            self.store.kill()

    def wait_for_holdings(self, most):
        """Waits until the server holds no more than that. Returns what it holds."""
        found = []

        def is_within():
            found[:] = [holdings(self.server)]
            return not found[0].exceeds(most)

        try:
            eventually(is_within, f"at most {most}")
        except AssertionError as error:
            raise AssertionError(f"the server at rest holds {found[0]}, where it held {most}") from error
        return found[0]
