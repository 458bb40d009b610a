"""What happens to models, workers, clients, the store and the log while callers ask."""

import contextlib
import os
import queue
import random
import signal
import time

import numpy as np
import requests
from protocols import GRPC, HTTP
from serving import PATIENCE, eventually

from chaos.files import INSTANCES
from chaos.history import is_end
from chaos.questions import LOST, connect, whole_sequence
from chaos.rude import RudeClients
from chaos.system import workers
from chaos.world import (
    ENSEMBLES,
    IN_ORDER,
    MODELS,
    SEQUENCES,
    STATELESS,
    WITH_GENERATIONS,
    WITH_INSTANCES,
    with_dependents,
    with_members,
)

CHANGES_OF_MODELS = ("reload", "reload_broken", "instances", "unload")
MOST_INSTANCES = 4
CANCELED = 50


class Changes:
    """Performs actions. What must not fail and fails breaks a promise."""

    def __init__(self, system, files, judge):
        self._system, self._files, self._judge = system, files, judge
        self._rude = RudeClients()
        # Models whose files are broken, or that may not be loaded.
        self._broken, self._unsettled = set(), set()
        self._instances = dict.fromkeys(WITH_INSTANCES, INSTANCES)
        # How often a model got fewer instances, and how many seconds the server took to end.
        self.scale_downs, self.stops = 0, []

    def in_main_thread(self, action):
        """Whether an action ends or starts a process, which only the main thread does."""
        return is_end(action) or action.kind == "store_killed"

    def perform(self, action, step):
        """Performs an action; `step` has those that happen at the same time."""
        if action.kind in CHANGES_OF_MODELS:
            getattr(self, action.kind)(action, is_alone(action, step))
        elif hasattr(self._rude, action.kind):
            model = random.Random(action.number).choice(STATELESS)
            with contextlib.suppress(OSError):
                getattr(self._rude, action.kind)(self._system.running(), model, action.number)
        else:
            getattr(self, action.kind)(action)

    def _ask(self, ask, *, must_succeed, what, models=()):
        """Asks the server to change something. Returns whether it has."""
        since = self._judge.now()
        try:
            server = self._system.running()
            protocol = (HTTP, GRPC)[since % 2]
            with connect(protocol, server) as client:
                ask(client)
            return True
        except LOST as error:
            if must_succeed:
                self._judge.failed(models or MODELS, since, what, error)
            return False

    def _load(self, name, *, must_succeed=True):
        family = with_members(name) | with_dependents({name})
        return self._ask(
            lambda client: client.load_model(name), must_succeed=must_succeed, what=f"a load of {name}", models=family
        )

    # ---- Models ----

    def reload(self, action, is_alone):
        """A new file of a model, or an ensemble once more. No request fails."""
        name = action.model
        if name not in WITH_GENERATIONS:
            self._load(name, must_succeed=is_alone)
            return
        self._renew(name, must_succeed=is_alone)

    def _renew(self, name, *, must_succeed):
        generation = self._files.renew(name)
        if self._load(name, must_succeed=must_succeed):
            self._files.generations[name].loaded(generation)
            return True
        self._unsettled.add(name)
        return False

    def reload_broken(self, action, is_alone):
        """A load that fails. The old copy goes on."""
        self._files.break_model(action.model)
        self._broken.add(action.model)
        loaded = self._load(action.model, must_succeed=False)
        if loaded and is_alone:
            self._judge.breaks(f"a load of {action.model} succeeded, whose file is no model")

    def instances(self, action, is_alone):
        """Another number of instances. No request fails."""
        count = 1 + action.number % MOST_INSTANCES
        self._files.write_config(action.model, count)
        if self._load(action.model, must_succeed=is_alone):
            self.scale_downs += count < self._instances[action.model]
            self._instances[action.model] = count

    def unload(self, action, is_alone):
        """A model is away for a while, and so are the models that need it."""
        name = action.model
        gone = with_dependents({name})
        self._unsettled |= gone
        with self._judge.disturbs(gone, f"unload of {name}"):
            self._ask(
                lambda client: client.unload_model(name), must_succeed=is_alone, what=f"an unload of {name}", models=gone
            )
            for one in sorted(gone, key=IN_ORDER.index):
                self._load(one, must_succeed=is_alone)
            if is_alone:
                self._wait_until_ready(gone)

    # ---- Workers ----

    def kill_worker(self, action):
        self._signal_worker(action, signal.SIGKILL)

    def pause_worker(self, action):
        self._signal_worker(action, signal.SIGSTOP)

    def _signal_worker(self, action, number):
        """A worker dies or stands still. Its requests fail, and it is replaced."""
        disturbed = with_dependents({action.model})
        with self._judge.disturbs(disturbed, f"{number.name} for a worker of {action.model}"):
            server = self._system.running()
            with contextlib.suppress(OSError):
                found = workers(server, action.model)
                if found:
                    worker = sorted(found)[action.number % len(found)]
                    os.kill(worker, number)

                    def is_gone():
                        return server.has_ended or worker not in workers(server, action.model)

                    eventually(is_gone, f"the end of a worker of {action.model}")
            # A worker that starts again reads the file of its model, which a load at the same time may have found broken.
            self._wait_until_ready(disturbed, beside=lambda: self._repair({action.model}))

    # ---- Clients ----

    def cancel(self, action):
        """Many requests at once that their client gives up."""
        chance = random.Random(action.number)
        with contextlib.suppress(*LOST), connect(GRPC, self._system.running()) as client:
            ended = queue.Queue()
            calls = []
            for _ in range(CANCELED):
                model = chance.choice(STATELESS + SEQUENCES)
                inputs = [GRPC.input(model.x, np.array([[chance.randrange(100)]], np.int64))]
                told = {"callback": lambda result, error: ended.put(error), **whole_sequence(model)}
                calls.append(client.async_infer(model.name, inputs, **told))
            chance.shuffle(calls)
            for call in calls:
                call.cancel()
            for _ in calls:
                try:
                    ended.get(timeout=PATIENCE)
                except queue.Empty:
                    self._judge.breaks("a canceled call does not end")
                    break

    def look(self, action):
        """What dashboards and people ask."""
        server = self._system.running()
        base = f"http://127.0.0.1:{server.http_port}"
        paths = ["/v2/models/stats", "/v2/health/ready", "/status", "/v2/explain", "/v2/logging"]
        with contextlib.suppress(requests.RequestException):
            requests.get(server.metrics, timeout=PATIENCE)
            requests.post(f"{base}/v2/repository/index", timeout=PATIENCE)
            for path in paths:
                requests.get(base + path, timeout=PATIENCE)

    # ---- The store and the log ----

    def store_killed(self, action):
        if self._system.store:
            self._system.store.kill()
            self._system.store.start()

    def store_paused(self, action):
        if self._system.store:
            self._system.pause_store()
            self._wait_until_ready(["cached"])
            self._system.store.go_on()

    def store_flushed(self, action):
        if self._system.store:
            with contextlib.suppress(OSError, ConnectionError):
                self._system.store.ask("FLUSHALL")

    def log_unread(self, action):
        """Nobody reads the log while there is much to write."""
        server = self._system.running()
        server.reads_log.clear()
        self._set_log(1)
        self._wait_until_ready(["plain", "py_plain"])

    def log_verbose(self, action):
        self._set_log(action.number % 2)

    def _set_log(self, level):
        def change(client):
            client.update_log_settings({"log_verbose_level": level})

        self._ask(change, must_succeed=True, what="a change of the log")

    # ---- The server ----

    def stop(self, action):
        """The server ends in order, whoever stands still, and starts again."""
        self._end(signal.SIGINT if action.number % 3 == 0 else signal.SIGTERM, 0)

    def kill(self, action):
        self._end(signal.SIGKILL, -signal.SIGKILL)

    def _end(self, number, expected):
        with self._judge.disturbs(MODELS, number.name):
            server = self._system.running()
            children = workers(server)
            begun = time.monotonic()
            code = server.stop(number)
            if expected == 0:
                self.stops.append(time.monotonic() - begun)
            if code != expected:
                self._judge.breaks(f"the server ended with {code} after {number.name}; {server.log_end()}")
            self.check_log(server)
            eventually(lambda: not any(map(is_worker, children)), f"the end of the workers {children}")
            self._unsettled |= set(WITH_GENERATIONS)
            # A server loads no broken model.
            self._repair()
            self._system.start()
            self._wait_until_ready(MODELS)

    def check_log(self, server):
        if "panicked" in server.log():
            self._judge.breaks(f"the server panicked; {server.log_end()}")

    # ---- Afterwards ----

    def settle(self):
        """Makes good what a step has left, so that each model serves. All of that must succeed."""
        self._system.running().reads_log.set()
        self._repair()
        for name in sorted(self._unsettled, key=IN_ORDER.index):
            generations = self._files.generations.get(name)
            latest = generations.highest if generations else None
            if self._load(name) and generations:
                generations.loaded(latest)
        self._unsettled.clear()
        self._wait_until_ready(MODELS)

    def _repair(self, names=frozenset(MODELS)):
        """Gives models whole files, those of these names. Two threads may do so at the same time."""
        for name in sorted(self._broken & names):
            self._broken.discard(name)
            self._files.renew(name)
            self._unsettled.add(name)

    def rest(self):
        """Brings everything that was changed back to what it was at the beginning. Nobody asks."""
        self._rude.forget()
        self._set_log(0)
        for name in MODELS:
            if name not in ENSEMBLES:
                self._files.write_config(name, INSTANCES)
                self._instances[name] = INSTANCES
                self._load(name)

    def _wait_until_ready(self, names, beside=lambda: None):
        """Waits until these models say that they are ready, and does something before each question."""

        def are_ready():
            if self._judge.broken:
                return True
            beside()
            try:
                with connect(GRPC, self._system.running()) as client:
                    return all(client.is_model_ready(name) for name in names)
            except LOST:
                return False

        eventually(are_ready, f"{sorted(names)} to be ready", patience=2 * PATIENCE)

    def end(self):
        self._rude.forget()


def is_worker(process):
    """Whether a process that was a worker still runs."""
    return os.path.exists(f"/proc/{process}/exe")


def is_alone(action, step):
    """Whether nothing else happens in the step to the models of an action, their members and their dependents."""
    family = with_members(action.model) | with_dependents({action.model})
    for other in step.actions:
        if other is not action and (is_end(other) or other.model in family):
            return False
    return True
