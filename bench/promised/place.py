"""Where a measurement finds its models and starts its servers; and how the end of a process is timed."""

import functools
import os
import select
import signal
import time

import repository as models
from adders import CONFIG
from held import Gate, build_backend
from serving import PATIENCE, Server

LARGE_BYTES = 100_000_000


class Shared:
    """What all measurements and all rounds share. Each thing is made when it is first needed."""

    def __init__(self, folder):
        self._folder = folder
        self.gate = Gate(self.folder("gate"))

    def folder(self, name):
        folder = self._folder / name
        folder.mkdir()
        return folder

    @functools.cached_property
    def backends(self):
        """The option of a server that has held models, and models that hold memory."""
        folder = self.folder("backends")
        for name in ("identity", "holding"):
            build_backend(folder, name)
        return f"--backend-directory={folder}"

    @functools.cached_property
    def empty(self):
        return self.folder("empty")

    @functools.cached_property
    def everything(self):
        """The repository of the client tests."""
        return models.write_all(self.folder("everything"), self.gate)

    @functools.cached_property
    def small(self):
        """A quick model, a model of sequences, and a held model."""
        folder = self.folder("small")
        models.add_sub(folder)
        models.accumulate(folder, "direct")
        self.gate.write(folder, "held", "max_batch_size: 1\ndynamic_batching {}\n")
        return folder

    @functools.cached_property
    def cached(self):
        """A model whose answers are cached."""
        folder = self.folder("cached")
        graph = models.graph("same (float[h, w] X) => (float[h, w] Y) { Y = Identity(X) }")
        tensors = models.tensor("input", "X", "FP32", -1, -1) + models.tensor("output", "Y", "FP32", -1, -1)
        models.write(folder, "same", graph, f"max_batch_size: 0\n{tensors}response_cache {{ enable: true }}\n")
        return folder

    @functools.cached_property
    def large(self):
        """A model that holds 100 MB in small pieces, which an allocator keeps unless it is told to return them."""
        folder = self.folder("large")
        (folder / "large" / "1").mkdir(parents=True)
        held = f'parameters {{ key: "hold_bytes" value: {{ string_value: "{LARGE_BYTES}" }} }}\n'
        (folder / "large" / "config.pbtxt").write_text(f'backend: "holding"\n{CONFIG}{held}')
        return folder

    @functools.cached_property
    def thousand(self):
        """A thousand copies of a quick model: m0, m1 and so on."""
        folder = self.folder("thousand")
        models.add_sub(folder, "m0")
        config = (folder / "m0" / "config.pbtxt").read_text()
        for number in range(1, 1000):
            version = folder / f"m{number}" / "1"
            version.mkdir(parents=True)
            (version / "model.onnx").hardlink_to(folder / "m0" / "1" / "model.onnx")
            (version.parent / "config.pbtxt").write_text(config.replace('"m0"', f'"m{number}"'))
        return folder


class Place:
    """One round of one measurement: its own folder, its number, and what all rounds share."""

    def __init__(self, shared, folder, number):
        self.shared, self.folder, self.number = shared, folder, number

    def start(self, repository, *options, **named):
        """A server whose ports are open, as a context."""
        return Server(self.folder, repository, self.shared.backends, *options, **named)

    def new_folder(self, name="models"):
        folder = self.folder / name
        folder.mkdir()
        return folder

    def small(self, *options):
        return self.start(self.shared.small, *options)


def milliseconds_until_end(process, number=signal.SIGTERM):
    """From a signal to the end of the process."""
    return 1000 * seconds_until_end(process, number)


def seconds_until_end(process, number=signal.SIGTERM):
    # `wait` of Python looks from time to time, which takes longer than the process.
    with os.fdopen(os.pidfd_open(process.pid)) as watched:
        begun = time.monotonic()
        process.send_signal(number)
        wait_for_end(watched)
        return time.monotonic() - begun


def wait_for_end(watched):
    """Waits until the process of a descriptor has ended."""
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    assert poll.poll(1000 * PATIENCE), f"the process has not ended after {PATIENCE} s"
