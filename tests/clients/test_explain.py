"""What a running server tells about itself: why batches are as they are, who holds which slot, what waits, what the cache does."""

import json
import re
import sys

import accessibility
import browser
import certificates
import ensembles
import numpy as np
import processes
import pytest
import repository as models
import requests
from held import held_inputs
from protocols import GRPC, HTTP, add_sub_inputs
from repository import tensor
from serving import BINARY, PATIENCE, eventually
from test_api_keys import entry
from test_dynamic_batching import Crowd

SMALL = "instance_group { count: 1 kind: KIND_CPU }\n"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def explain(server, path="/v2/explain", **headers):
    reply = requests.get(f"http://{server.http}{path}", headers=headers, timeout=PATIENCE)
    assert reply.status_code == 200, reply.text
    return reply.json()


def explained(server, name):
    [model] = explain(server, f"/v2/models/{name}/explain")["models"]
    return model


def facts(model):
    return {finding["about"]: finding["fact"] for finding in model["findings"]}


def advice(model):
    return {finding["about"]: finding.get("advice", "") for finding in model["findings"]}


def command(server, *options):
    line = [str(BINARY), "explain", f"--url=http://{server.http}", *options]
    return processes.run(line)


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=lambda protocol: protocol.name)
def test_what_waits_and_why_batches_ended_is_told(start, backend_option, folder, threads, gate, protocol):
    gate.write(folder, "held", "max_batch_size: 8\ndynamic_batching {}\n")
    server = start(folder, backend_option).wait_until_ready()
    idle = explained(server, "held")
    assert facts(idle) == {
        "requests": "No request has ended since the load.",
        "instances": "Of 1 instance, 0 run a batch now.",
    }
    crowd = Crowd(server, protocol, threads, gate, "held")
    hold, first = crowd.occupy()
    others = [crowd.send(x=x) for x in range(1, 14)]
    crowd.wait_for(13)

    now = explained(server, "held")
    assert (now["state"], now["in_flight"], now["instances"]["busy"]) == ("READY", 14, 1)
    assert now["instances"]["each"] == [{"number": 0, "name": "held_0_0", "kind": "CPU", "state": "busy"}]
    assert now["queue"]["requests"] == 13 and now["queue"]["bytes"] >= 13 * 12
    assert now["queue"]["oldest_seconds"] > 0
    assert facts(now)["queue"].startswith("13 requests wait now; the oldest has waited for ")
    assert facts(now)["instances"] == "Of 1 instance, 1 runs a batch now."

    hold.release()
    assert [future.result() for future in [first, *others]] == list(range(14))
    done = explained(server, "held")
    assert (done["queue"]["requests"], done["queue"]["oldest_seconds"], done["in_flight"]) == (0, None, 0)
    # The crowd's first request, the held one, then as many as the model takes, then the rest.
    assert done["batches"]["sizes"] == [
        {"rows": 1, "count": 2}, {"rows": 5, "count": 1}, {"rows": 8, "count": 1},
    ]
    assert done["batches"]["ends"] == {"full": 1, "idle_instance": 3}
    assert facts(done)["batches"].startswith("Batches end because an instance is idle and nothing else waits (75 %), they are")
    assert facts(done)["requests"] == "Since the load, 15 requests have succeeded and no request has failed."
    times = done["times"]
    phases = ("queue", "compute_input", "compute_infer", "compute_output")
    assert 0 < sum(times[phase]["seconds"] for phase in phases) <= times["request"]["seconds"]
    assert times["request"]["count"] == 15 and times["request"]["quantiles"]["p99"] >= times["request"]["quantiles"]["p50"] > 0


def test_slots_and_the_backlog_are_told(start, folder, threads):
    models.accumulate(folder, "oldest", slots=1)
    server = start(folder).wait_until_ready()

    def step(number, **options):
        with GRPC.connect(server) as client:
            x = GRPC.input("X", np.array([[1]], np.int32))
            return client.infer("accumulate_oldest", [x], sequence_id=number, **options).as_numpy("SUM").item()

    for number in (11, 12, 13, 14):
        assert step(number, sequence_start=True) == 1
    def sequences():
        return explained(server, "accumulate_oldest")["sequences"]

    held = {slot["sequence"]: slot for slot in sequences()["slots"]}
    assert set(held) == {"11", "12", "13", "14"}
    assert {slot["instance"] for slot in held.values()} == {0, 1, 2, 3}
    assert sequences()["slots_per_instance"] == 1
    waits = threads.submit(step, "the fifth", sequence_start=True)
    eventually(lambda: sequences()["backlog"] == 1, "a sequence in the backlog")
    assert sequences()["first_backlogged"] == [{"sequence": "the fifth", "waiting": 1}]
    told = "Sequences hold 4 of 4 slots: 0 with a request that runs, 4 without any request; 1 sequence waits for a slot."
    # An instance ends its batch after the answers.
    eventually(lambda: facts(explained(server, "accumulate_oldest"))["sequences"] == told, told)
    now = explained(server, "accumulate_oldest")
    assert advice(now)["sequences"].startswith("Silent sequences keep slots that others wait for.")
    assert (now["queue"]["requests"], now["scheduler"]["kind"]) == (1, "sequence_oldest")
    follows = threads.submit(step, "the fifth", sequence_end=True)
    eventually(lambda: sequences()["first_backlogged"] == [{"sequence": "the fifth", "waiting": 2}], "the second request")
    now = explained(server, "accumulate_oldest")
    assert facts(now)["queue"].endswith(" Of these, 1 waits for an earlier one of the same sequence.")
    assert step(12, sequence_end=True) == 2
    assert (waits.result(), follows.result()) == (1, 2)
    eventually(lambda: len(sequences()["slots"]) == 3, "free slots")
    assert sequences()["backlog"] == 0


def test_an_ensemble_tells_the_shares_of_its_steps(start, folder):
    models.add_sub(folder)
    flows = "".join(tensor(kind, name, "INT32", 16) for kind, name in (("input", "A"), ("input", "B"), ("output", "C")))
    ensembles.write(
        folder, "twice", flows,
        ensembles.step("add_sub", {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT0": "between"}),
        ensembles.step("add_sub", {"INPUT0": "between", "INPUT1": "B"}, {"OUTPUT0": "C"}),
        more="max_batch_size: 8\n",
    )  # fmt: skip
    server = start(folder).wait_until_ready()
    with HTTP.connect(server) as client:
        a = HTTP.input("A", np.ones((1, 16), np.int32))
        b = HTTP.input("B", np.ones((1, 16), np.int32))
        for _ in range(5):
            assert client.infer("twice", [a, b]).as_numpy("C")[0, 0] == 3
    now = explained(server, "twice")
    steps = now["steps"]
    assert [(step["model"], step["runs"]) for step in steps] == [("add_sub", 5), ("add_sub", 5)]
    assert all(step["seconds"] > 0 for step in steps)
    assert sum(step["share"] for step in steps) == pytest.approx(1)
    assert facts(now)["time"].partition(";")[0].endswith(" in the queues of its steps and between them")
    assert facts(now)["steps"].startswith("The steps take these shares of their time: 'add_sub' ")
    assert (now["scheduler"]["kind"], now["instances"]["count"]) == ("ensemble", 0)


def test_the_cache_is_told(start, folder):
    models.add_sub(folder)
    config = folder / "add_sub" / "config.pbtxt"
    config.write_text(config.read_text() + "response_cache { enable: true }\n")
    models.add_sub(folder, "uncached")
    server = start(folder, "--cache-config=local,size=1048576").wait_until_ready()
    with HTTP.connect(server) as client:
        for _ in range(4):
            client.infer("add_sub", add_sub_inputs(HTTP)[0])
    answer = explain(server)
    cached, uncached = answer["models"]
    assert cached["cache"] == {"hits": 3, "misses": 1}
    assert facts(cached)["cache"] == "The response cache has answered 75 % of 4 requests."
    assert "cache" not in uncached
    cache = answer["cache"]
    assert (cache["name"], cache["entries"], cache["limit_bytes"]) == ("local", 1, 1048576)
    assert 0 < cache["used_bytes"] < 1048576


def test_the_rate_limiter_is_told(start, backend_option, folder, threads, gate):
    needs = 'rate_limiter { resources { name: "R" count: 1 } }'
    for name in ("one", "two"):
        gate.write(folder, name, "max_batch_size: 1\n")
        config = folder / name / "config.pbtxt"
        config.write_text(config.read_text().replace("kind: KIND_CPU }", f"kind: KIND_CPU {needs} }}"))
    limits = ("--rate-limit=execution_count", "--rate-limit-resource=R:1")
    server = start(folder, backend_option, *limits).wait_until_ready()
    one, two = (Crowd(server, GRPC, threads, gate, name) for name in ("one", "two"))
    hold, first = one.occupy()
    second = two.send(x=2)
    two.wait_for(1)
    answer = explain(server)
    assert answer["rate_limiter"] == {
        "resources": [{"name": "R", "global": False, "capacity": 1, "used": 1}],
        "waiting_instances": 1,
    }
    assert facts(answer["models"][1])["instances"] == (
        "Of 1 instance, 0 run a batch now; 1 waits for resources of the rate limiter."
    )
    hold.release()
    assert (first.result(), second.result()) == (0, 2)


def test_a_model_that_does_not_serve_tells_why_and_what_to_do(start, folder):
    models.add_sub(folder)
    models.broken(folder)
    server = start(folder, "--exit-on-error=false")
    eventually(lambda: "broken" in server.log(), "the load of the broken model")
    broken = explained(server, "broken")
    assert broken["state"] == "UNAVAILABLE" and "NOPE" in broken["reason"]
    assert broken["reason"].strip() in facts(broken)["state"]
    assert "nereid check" in advice(broken)["state"]
    assert "queue" not in broken
    unknown = requests.get(f"http://{server.http}/v2/models/nothing/explain", timeout=PATIENCE)
    assert (unknown.status_code, unknown.json()) == (404, {"error": "Request for unknown model: 'nothing' is not found"})
    listed = requests.get(f"http://{server.http}/v2/models", timeout=PATIENCE).json()["models"]
    assert [model["name"] for model in listed] == ["add_sub", "broken"]

    shown = command(server)
    assert shown.returncode == 0, shown.stderr
    metadata = requests.get(f"http://{server.http}/v2", timeout=PATIENCE)
    own = f"nereid {metadata.headers['nereid-version']} (triton {metadata.json()['version']}) at {server.http}: "
    assert shown.stdout.startswith(own)
    assert "\nadd_sub, version 1: READY\n  No request has ended since the load.\n" in shown.stdout
    assert "\n    > Correct the cause and load the model again." in shown.stdout
    one = command(server, "add_sub", "1", "--json")
    [model] = json.loads(one.stdout)["models"]
    assert (model["name"], model["generation"]) == ("add_sub", explained(server, "add_sub")["generation"])
    refused = command(server, "nothing")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "error: 404 Request for unknown model: 'nothing' is not found\n"
    misspelt = command(server, "add_subs")
    assert misspelt.stderr == "error: 404 Request for unknown model: 'add_subs' is not found, did you mean 'add_sub'?\n"
    assert command(server, "--nonsense").returncode == 2
    wrong = command(server, "add_sub", "x")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: 'x' is no version of a model: a version is a whole number\n")


MODEL = """\
import os

class TritonPythonModel:
    def execute(self, requests):
        {}
"""
PYTHON = """\
backend: "python"
input {{ name: "X" data_type: TYPE_INT32 dims: 1 }}
output {{ name: "Y" data_type: TYPE_INT32 dims: 1 }}
"""


def test_errors_and_ends_of_processes_are_told_with_the_place_of_their_reasons(start, folder):
    for name, line in (("raises", "raise ValueError('the shelf is empty')"), ("dies", "os._exit(3)")):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(PYTHON.format())
        (folder / name / "1" / "model.py").write_text(MODEL.format(line))
    server = start(folder, f"--backend-config=python,python-executable={sys.executable}").wait_until_ready()

    def fails(name):
        body = {"inputs": [{"name": "X", "shape": [1], "datatype": "INT32", "data": [1]}]}
        reply = requests.post(f"http://{server.http}/v2/models/{name}/infer", json=body, timeout=PATIENCE)
        assert reply.status_code == 500
        return reply.json()["error"]

    told = [fails("raises") for _ in range(30)]
    assert all("the shelf is empty" in text for text in told)
    raises = explained(server, "raises")
    assert raises["last_error"]["text"] == told[-1] and raises["last_error"]["seconds_ago"] >= 0
    assert re.fullmatch(
        r"The last error, .* ago: .* message: ValueError: the shelf is empty, at /.*/raises/1/model.py\(5\): execute.",
        facts(raises)["error"],
    )
    assert facts(raises)["requests"].endswith("30 requests have failed (30 failed in the backend).")
    assert advice(raises)["requests"].startswith("The answers to clients have the errors. The log has some of them: ")
    assert (raises["process_restarts"], "processes" in facts(raises)) == (0, False)
    # As the advice says. Thirty requests take less than the ten seconds after which there would be a second line.
    assert 1 <= server.log().count("message: ValueError: the shelf is empty") <= 3

    fails("dies")
    eventually(lambda: explained(server, "dies")["process_restarts"] == 1, "the next process")
    dies = explained(server, "dies")
    assert facts(dies)["processes"] == "Since the load, processes of the model have ended and were started again once."
    assert "before you add instances" in advice(dies)["processes"]
    assert "of instance 'dies_0' has ended (exit status: 3)" in server.log()


def write_many(folder, number):
    """So many good models, one that cannot be loaded, and the name of one that stands at the end of the good ones."""
    for place in range(number):
        models.add_sub(folder, f"m{place:04}")
    models.broken(folder)
    (folder / "broken").rename(folder / "zzz_broken")
    config = folder / "zzz_broken" / "config.pbtxt"
    config.write_text(config.read_text().replace('"broken"', '"zzz_broken"'))
    return f"m{number - 2:04}"


def load(server, name, times):
    with HTTP.connect(server) as client:
        for _ in range(times):
            client.infer(name, add_sub_inputs(HTTP)[0])


def test_of_many_models_those_that_matter_are_told(start, folder):
    busy = write_many(folder, 104)
    server = start(folder, "--exit-on-error=false")
    eventually(lambda: "zzz_broken" in server.log(), "the load of the broken model")
    load(server, busy, 3)
    load(server, "m0050", 2)
    answer = explain(server)
    names = [model["name"] for model in answer["models"]]
    assert names[:4] == ["zzz_broken", busy, "m0050", "m0000"]
    assert (len(names), answer["models_left_out"]) == (100, 5)
    found = explain(server, "/v2/explain?name=M0103")
    assert ([model["name"] for model in found["models"]], found["models_left_out"]) == (["m0103"], 0)
    shown = command(server).stdout
    assert ": 100 of 105 versions of models: those that are not ready, and the busiest\n\nzzz_broken" in shown
    assert shown.endswith("\n5 more versions are not shown. Name a model to see it.\n")


def test_who_may_not_see_models_and_statistics_does_not_see_them_here(start, folder):
    models.add_sub(folder)
    off = start(folder, "--allow-status-page=false")
    for path in ("/v2/explain", "/v2/models/add_sub/explain", "/status", "/status/page.js"):
        assert requests.get(f"http://{off.http}{path}", timeout=PATIENCE).status_code == 404
    restricted = start(
        folder, "--http-restricted-api=status:key=one", "--http-restricted-api=statistics:other=two", "--status-log-lines=5"
    )
    for headers, status in (({}, 403), ({"key": "one"}, 403), ({"other": "two"}, 403), ({"key": "one", "other": "two"}, 200)):
        reply = requests.get(f"http://{restricted.http}/v2/explain", headers=headers, timeout=PATIENCE)
        assert reply.status_code == status, headers
    assert "log" in explain(restricted, key="one", other="two")
    # The page tells nothing by itself.
    assert requests.get(f"http://{restricted.http}/status", timeout=PATIENCE).status_code == 200
    gone = command(off)
    assert (gone.returncode, gone.stderr.startswith("error: the server has no /v2/explain: ")) == (1, True)
    told = command(restricted, "--header", "key: one", "--header=other: two")
    assert told.returncode == 0 and "add_sub, version 1: READY" in told.stdout
    refused = command(restricted)
    assert refused.stderr == "error: 403 This API is restricted, expecting header 'key'\n"


def test_a_key_sees_its_models_and_the_log_only_if_it_may_see_all(start, folder, tmp_path):
    for name in ("add_sub", "secret"):
        models.add_sub(folder, name)
    path = tmp_path / "keys.json"
    entries = [
        entry("user", ["status", "logging"], ["add_*"]),
        entry("reader", ["status"], ["*"]),
        entry("admin", ["status", "logging"], ["*"]),
    ]
    certificates.replace(path, json.dumps({"keys": entries, "anonymous": {"apis": ["health"], "models": []}}).encode())
    server = start(folder, f"--api-key-file={path}", "--status-log-lines=50").wait_until_ready()

    def seen(name):
        answer = explain(server, authorization=f"Bearer key-of-{name}")
        return [model["name"] for model in answer["models"]], "log" in answer

    assert seen("user") == (["add_sub"], False)
    assert seen("reader") == (["add_sub", "secret"], False)
    assert seen("admin") == (["add_sub", "secret"], True)
    assert requests.get(f"http://{server.http}/v2/explain", timeout=PATIENCE).status_code == 401
    lines = explain(server, authorization="Bearer key-of-admin")["log"]
    assert 0 < len(lines) <= 50
    assert any("Started HTTPService" in line["text"] and line["level"] == "info" for line in lines)
    assert "key-of-" not in json.dumps(lines)


def test_the_log_is_kept_only_for_those_who_ask_for_it(start, folder):
    models.add_sub(folder)
    assert "log" not in explain(start(folder))


# The parts that do not fit into the section that they belong to.
OUTSIDE = """
[...document.querySelectorAll("section table, section dl, section svg, section li, section p")]
    .filter((one) => !one.closest(".log") && one.offsetParent !== null)
    .filter((one) => one.getBoundingClientRect().right > one.closest("section").getBoundingClientRect().right)
    .map((one) => one.outerHTML.slice(0, 200))
"""


def write_busy(folder, gate):
    gate.write(folder, "held", "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 500 }\n")
    models.accumulate(folder, "direct", slots=4)
    models.add_sub(folder)
    models.add_sub(folder, "cached")
    config = folder / "cached" / "config.pbtxt"
    config.write_text(config.read_text() + "response_cache { enable: true }\n")
    models.broken(folder)
    flows = "".join(tensor(kind, name, "INT32", 16) for kind, name in (("input", "A"), ("input", "B"), ("output", "C")))
    ensembles.write(
        folder, "pipeline", flows,
        ensembles.step("add_sub", {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT0": "between"}),
        ensembles.step("cached", {"INPUT0": "between", "INPUT1": "B"}, {"OUTPUT0": "C"}),
        more="max_batch_size: 8\n",
    )  # fmt: skip


def make_busy(server):
    with GRPC.connect(server) as client:
        for number in range(1, 12):
            x = GRPC.input("X", np.array([[1]], np.int32))
            client.infer("accumulate_direct", [x], sequence_id=1000 + number, sequence_start=True)
        for value in range(20):
            a = GRPC.input("A", np.full((1, 16), value % 3, np.int32))
            b = GRPC.input("B", np.ones((1, 16), np.int32))
            client.infer("pipeline", [a, b])
        for x in range(30):
            client.infer("held", held_inputs(GRPC, x=x))


@pytest.mark.browser
async def test_the_page_in_a_browser(start, backend_option, folder, threads, gate, tmp_path):
    write_busy(folder, gate)
    options = (backend_option, "--cache-config=local,size=1048576", "--exit-on-error=false", "--status-log-lines=200")
    server = start(folder, *options)
    eventually(lambda: requests.get(f"http://{server.http}/v2/models/held/ready", timeout=PATIENCE).ok, "the models")
    make_busy(server)
    crowd = Crowd(server, GRPC, threads, gate, "held")
    hold, first = crowd.occupy()
    waiting = [crowd.send(x=x) for x in range(1, 6)]
    crowd.wait_for(5)
    async with browser.running(tmp_path) as running:
        page = await running.open(f"http://{server.http}/status")
        await page.until("document.querySelector('main')?.getAttribute('aria-busy') === 'false'")
        assert await page.evaluate("document.querySelectorAll('.overview tbody tr').length") == 6
        text = await page.evaluate("document.body.innerText")
        for part in (
            "5 requests wait now",
            "Sequences hold 11 of 16 slots",
            "1003",
            "The version is UNAVAILABLE",
            "Started HTTPService",
            "The response cache has answered",
        ):
            assert part in text, (part, text)
        waits = "[...document.querySelectorAll('.overview tr')].find((row) => row.innerText.startsWith('held')).cells[3].textContent"
        assert await page.evaluate(waits) == "5"
        for width, height, scheme in ((1280, 1500, "light"), (1280, 1500, "dark"), (375, 800, "light"), (375, 800, "dark")):
            await page.look(width, height, scheme)
            await page.screenshot(tmp_path / f"{scheme}{width}.png", whole=True)
            # A reader never has to move a line sideways.
            assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
            assert await page.evaluate(OUTSIDE) == []
            assert await accessibility.violations(page, accessibility.NOTABLE) == []
        # What the keyboard is on stays, while the numbers below it change.
        await page.evaluate("document.querySelector('.overview a').focus(); marked = document.activeElement; 1")
        hold.release()
        assert [future.result() for future in [first, *waiting]] == list(range(6))
        await page.until(f"{waits} === '0'")
        assert await page.evaluate("document.activeElement === marked && marked.isConnected")
        # A page that pauses asks no more.
        await page.evaluate("byId('pause').click()")
        await page.until("timer !== null && !isAsking")
        asked = len(page.loaded)
        assert await page.evaluate("byId('pause').getAttribute('aria-pressed')") == "true"
        await page.evaluate("new Promise((resolve) => setTimeout(resolve, 2 * INTERVAL_MS))")
        assert len(page.loaded) == asked
        # Everything came from the server itself, and nothing went wrong.
        own = [url for url in page.loaded if not url.startswith("data:")]
        assert own and all(url.startswith(f"http://{server.http}/") for url in own), own
        assert page.problems == []


@pytest.mark.browser
async def test_the_page_finds_a_model_by_a_part_of_its_name(start, folder, tmp_path):
    busy = write_many(folder, 102)
    server = start(folder, "--exit-on-error=false")
    eventually(lambda: "zzz_broken" in server.log(), "the load of the broken model")
    load(server, busy, 1)
    names = "[...document.querySelectorAll('.overview tbody a')].map((link) => link.textContent)"
    type_in = "byId('filter').value = '{}'; byId('filter').dispatchEvent(new Event('input')); 1"
    async with browser.running(tmp_path) as running:
        page = await running.open(f"http://{server.http}/status")
        await page.until("document.querySelectorAll('.overview tbody tr').length === 100")
        shown = await page.evaluate(names)
        assert shown[0] == "zzz_broken" and shown[1:] == sorted(shown[1:])
        assert busy in shown and "m0101" not in shown
        assert "3 more versions are not shown" in await page.evaluate("document.body.innerText")
        await page.evaluate(type_in.format("M0101"))
        await page.until("document.querySelectorAll('.overview tbody tr').length === 1")
        assert await page.evaluate(names) == ["m0101"]
        await page.evaluate(type_in.format("a & b"))
        await page.until("document.querySelectorAll('.overview tbody tr').length === 0")
        assert "No model has 'a & b' in its name." in await page.evaluate("document.body.innerText")
        assert page.problems == []


@pytest.mark.browser
async def test_long_names_fit_every_window(start, folder, tmp_path):
    long = "text_generation_llama_3_1_8b_instruct_fp16_preprocessing"
    longest = "n" * 200
    flows = "".join(tensor(kind, name, "INT32", 16) for kind, name in (("input", "A"), ("input", "B"), ("output", "C")))
    for name in (long, longest):
        models.add_sub(folder, name)
    ensembles.write(
        folder, f"{long}_pipeline", flows,
        ensembles.step(long, {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT0": "between"}),
        ensembles.step(longest, {"INPUT0": "between", "INPUT1": "B"}, {"OUTPUT0": "C"}),
        more="max_batch_size: 8\n",
    )  # fmt: skip
    server = start(folder).wait_until_ready()
    with HTTP.connect(server) as client:
        a, b = (HTTP.input(name, np.ones((1, 16), np.int32)) for name in ("A", "B"))
        client.infer(f"{long}_pipeline", [a, b])
    async with browser.running(tmp_path) as running:
        page = await running.open(f"http://{server.http}/status")
        await page.until("document.querySelectorAll('.overview tbody tr').length === 3")
        for width in (320, 360, 600, 770, 1000, 1280):
            await page.look(width, 800)
            await page.screenshot(tmp_path / f"long{width}.png", whole=True)
            assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
            assert await page.evaluate(OUTSIDE) == [], width
            # Names break, but not into single letters.
            narrowest = "Math.min(...[...document.querySelectorAll('.name')].map((name) => name.offsetWidth).filter(Boolean))"
            assert await page.evaluate(narrowest) >= 100, width
        assert await accessibility.violations(page, accessibility.NOTABLE) == []


@pytest.mark.browser
async def test_the_page_asks_for_the_header_that_it_needs_and_tells_when_the_server_is_away(start, folder, tmp_path):
    models.add_sub(folder)
    server = start(folder, "--http-restricted-api=status:key=secret").wait_until_ready()
    async with browser.running(tmp_path) as running:
        page = await running.open(f"http://{server.http}/status")
        trouble = "document.getElementById('trouble')?.textContent"
        await page.until(f"{trouble}?.includes(\"This API is restricted, expecting header 'key'\")")
        assert await page.evaluate("byId('access').open")
        await page.evaluate("byId('header-name').value = 'key'; byId('header-value').value = 'secret'; ask()")
        await page.until("document.querySelectorAll('.overview tbody tr').length === 1")
        await page.until(f"{trouble} === ''")
        server.terminate()
        await page.until(f"{trouble}?.includes('The server does not answer')")
        assert await page.evaluate("document.querySelectorAll('.overview tbody tr').length") == 1
