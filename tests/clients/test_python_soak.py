"""Many requests to models in Python leave nothing behind: no process, no thread, no descriptor, no memory.

$NEREID_PYTHON_SOAK_REQUESTS is how many requests there are; a million take some minutes. `nereid perf` sends them.
"""

import contextlib
import json
import os
import pathlib
import sys

import processes
import pytest
import python_backends
from serving import BINARY, ROOT, eventually
from test_python_processes import descendants

REQUESTS = int(os.environ.get("NEREID_PYTHON_SOAK_REQUESTS", "10000"))
# What a request is, how often it occurs, and its options: the responses of a stream are few and quick.
MIX = {
    "identity": (0.78, 16, ["--protocol=grpc"]),
    "bls_chain": (0.1, 8, ["--protocol=http"]),
    "count": (0.1, 8, ["--protocol=grpc", "--streaming", "--input-data={counts}"]),
    "identity4m": (0.02, 2, ["--protocol=http"]),
}
MEMBERS = ("first", "second")
# Buffers grow with the number of requests that happen to be open at the same time, and the allocator keeps some of what is
# free. In a million requests, 17 bytes that each leaves behind exceed this.
TOLERANCE_BYTES = 16 << 20
# Shared memory grows when more large tensors than before are in use at the same time. Python keeps a descriptor for each
# mapping, so a worker has as many of them as its memory has grown.
MOST_MAPPINGS = 24
# How long the requests may take on a busy machine, in seconds. A million take minutes.
LOAD_SECONDS = 300 if REQUESTS <= 10_000 else 1800


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("soak")
    processes.run([sys.executable, ROOT / "bench" / "python_models.py", folder], check=True)
    (folder / "counts.json").write_text(json.dumps([{"INPUT0": [count]} for count in (1, 2, 5)]))
    return folder


@pytest.fixture
def server(start_python, models):
    names = [f"--load-model={name}" for name in (*MIX, *MEMBERS)]
    return start_python(models / "ours", "--model-control-mode=explicit", *names).wait_until_ready()


def load(server, models, requests):
    """Sends so many requests of all kinds at the same time."""
    with contextlib.ExitStack() as programs:
        running = {model: start_load(programs, server, models, model, requests) for model in MIX}
        for model, (results, process) in running.items():
            output, _ = process.communicate(timeout=LOAD_SECONDS)
            assert process.returncode == 0, (model, output.decode())
            headings, figures = results.read_text().splitlines()
            figures = dict(zip(headings.split(","), figures.split(",")))
            assert figures["errors"] == "0", (model, output.decode())
    return sum(round(share * requests) for share, _, _ in MIX.values())


def start_load(programs, server, models, model, requests):
    """Starts the requests of one kind. Returns the file of the results and the process."""
    share, callers, options = MIX[model]
    port = server.grpc_port if "--protocol=grpc" in options else server.http_port
    line = [BINARY, "perf", f"--model={model}", f"--url=127.0.0.1:{port}", f"--concurrency={callers}", "--warm-up=0"]
    line += [f"--request-count={max(round(share * requests), 1)}", "--payload=binary"]
    line += [option.format(counts=models / "counts.json") for option in options]
    if not any(option.startswith("--input-data") for option in options):
        line.append("--input-data=random")
    results = models / f"{model}.csv"
    program = processes.running([*line, "--csv", results], stdout=processes.PIPE, stderr=processes.STDOUT)
    return results, programs.enter_context(program)


def descriptors(process):
    """The number of descriptors besides those of mapped memory, and the number of those."""
    links = []
    for entry in pathlib.Path(f"/proc/{process}/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except FileNotFoundError:
            continue
    mapped = sum(link.startswith("/memfd:nereid-") for link in links)
    return len(links) - mapped, mapped


def threads(process):
    return len(os.listdir(f"/proc/{process}/task"))


def memory_bytes(process):
    lines = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    # Pages of programs are shared with whatever else runs on the machine.
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_Dirty:"))


def state(server):
    """What each process has: descriptors, threads, bytes; the server first."""
    processes = [server.process.pid, *sorted(descendants(server.process.pid))]
    return {process: (descriptors(process)[0], threads(process), memory_bytes(process)) for process in processes}


def more(state, before):
    """The processes that have more descriptors or threads than before, or were not there."""
    return {
        process: (values, before.get(process))
        for process, values in state.items()
        if process not in before or any(map(int.__gt__, values[:2], before[process][:2]))
    }


def total_bytes(state):
    return sum(values[2] for values in state.values())


# The server is measured, and not Triton's backend.
@pytest.mark.parametrize("python_backend", python_backends.OURS, indirect=True)
@pytest.mark.timeout(2 * LOAD_SECONDS)
def test_many_requests_leave_no_descriptor_no_process_and_no_memory(server, models, record_property):
    load(server, models, max(REQUESTS // 10, 5000))
    before = state(server)
    assert len(before) == 1 + len(MIX) + len(MEMBERS)
    assert load(server, models, REQUESTS) >= 0.99 * REQUESTS
    # Connections of the load are closed, threads end, and the server gives freed memory back.
    try:
        eventually(lambda: not more(state(server), before), "descriptors and threads to be given back")
        eventually(lambda: total_bytes(state(server)) <= total_bytes(before) + TOLERANCE_BYTES, "memory to be given back")
    finally:
        after = state(server)
        total = [total_bytes(before), total_bytes(after)]
        print(f"{REQUESTS} requests: {total[0] / 1e6:.1f} MB before, {total[1] / 1e6:.1f} MB after; {before} {after}")
        record_property("bytes", total)
    assert after.keys() == before.keys(), "a model's process was started again"
    workers = descendants(server.process.pid)
    assert max(descriptors(worker)[1] for worker in workers) <= MOST_MAPPINGS
