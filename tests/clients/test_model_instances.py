"""Groups of instances: passive ones, resources of the rate limiter, and other numbers of instances while a model serves."""

import queue
import threading

import adders
import numpy as np
import pytest
import repository as models
from adders import EXPLICIT, answer, refusal, wait_for_looks, write_adder
from callers import Callers
from held import held_inputs
from protocols import GRPC, HTTP, pending
from serving import PATIENCE, eventually, size
from test_explain import explained


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def write_held(gate, folder, groups):
    """A held model with these groups of instances."""
    gate.write(folder, "held", "max_batch_size: 1\n")
    config = folder / "held" / "config.pbtxt"
    text = config.read_text().replace("instance_group { count: 1 kind: KIND_CPU }\n", "")
    config.write_text(text + "".join(f"instance_group {{ kind: KIND_CPU {group} }}\n" for group in groups))


def ask(protocol, server, hold, x, **options):
    with protocol.connect(server) as client:
        return client.infer("held", held_inputs(protocol, hold, x), **options).as_numpy("OUTPUT0").item()


def test_a_passive_instance_gets_no_requests(start, folder, gate, backend_option, threads, protocol):
    write_held(gate, folder, ["count: 1", "count: 3 passive: true"])
    server = start(folder, backend_option)
    hold = gate.hold()
    running = [threads.submit(ask, protocol, server, hold, x) for x in range(3)]
    hold.wait_until_running()
    # One runs, and the others wait although three passive instances are idle.
    eventually(lambda: pending(server, "held") == 2, "two waiting requests")
    hold.release()
    assert [one.result(PATIENCE) for one in running] == [0, 1, 2]


def test_requests_of_a_model_whose_instances_are_all_passive_wait(start, folder, gate, backend_option):
    write_held(gate, folder, ["count: 2 passive: true"])
    server = start(folder, backend_option)
    with GRPC.connect(server) as client:
        assert client.is_model_ready("held")
        answers = queue.Queue()
        asked = client.async_infer("held", held_inputs(GRPC, None, 5), lambda *told: answers.put(told))
        eventually(lambda: pending(server, "held") == 1, "the request to wait")
        assert answers.empty()
        asked.cancel()
        eventually(lambda: pending(server, "held") == 0, "the request to be cancelled")


NEEDS = 'count: 1 rate_limiter { resources { name: "R" count: 4 } }'
LIMITED = (
    'Resource count for "R" is limited to 2 which will prevent scheduling of one or more model instances,'
    " the minimum required count is 4"
)


def test_a_model_that_needs_more_than_there_is_fails_to_load(start, folder, gate, backend_option, protocol):
    write_held(gate, folder, [NEEDS])
    limits = ("--rate-limit=execution_count", "--rate-limit-resource=R:2")
    with protocol.connect(start(folder, EXPLICIT, backend_option, *limits)) as client:
        code, text = refusal(client.load_model, "held")
        assert code == protocol.status("INVALID_ARGUMENT") and LIMITED in text, text


def test_a_reload_that_needs_more_than_there_is_leaves_the_old_copy_in_service(start, folder, gate, backend_option, protocol):
    write_held(gate, folder, [NEEDS.replace("4", "2")])
    limits = ("--rate-limit=execution_count", "--rate-limit-resource=R:2")
    server = start(folder, EXPLICIT, backend_option, *limits)
    with protocol.connect(server) as client:
        client.load_model("held")
        config = folder / "held" / "config.pbtxt"
        config.write_text(config.read_text().replace("count: 2 }", "count: 4 }"))
        code, text = refusal(client.load_model, "held")
        assert code == protocol.status("INVALID_ARGUMENT") and LIMITED in text, text
        assert ask(protocol, server, None, 3) == 3


def updates(server, name):
    """How often the server has changed the instances of a model in place."""
    return server.log().count(f"updating the instances of '{name}' version 1")


def counted(count, name=""):
    return f'instance_group {{ count: {count} kind: KIND_CPU name: "{name}" }}\n'


def write_config(folder, config):
    """Changes nothing but the configuration of the model `a`."""
    text = f'name: "a"\nbackend: "onnxruntime"\n{adders.CONFIG}{config}'
    (folder / "a" / "config.pbtxt").write_text(text)


def test_no_request_fails_or_is_forgotten_while_instances_come_and_go(start, folder, threads, protocol):
    """Statistics go on, because it stays the same model."""
    write_adder(folder, "a", 1, config=counted(1))
    server = start(folder, EXPLICIT, "--load-model=a")

    def prepare(own, client):
        def ask():
            assert answer(own, client, "a") == 1

        return ask

    counts = [3, 1, 4, 2, 1] * size(1, 20)
    with protocol.connect(server) as client:
        with Callers(server, threads, prepare) as callers:
            for count in counts:
                write_config(folder, counted(count))
                client.load_model("a")
                callers.wait_for_answers()
        statistics = protocol.statistics(client, "a")
    assert statistics["inference_count"] == sum(callers.answers.values())
    assert updates(server, "a") == len(counts)
    print(f"{len(counts)} changes, {sum(callers.answers.values())} requests")


def test_another_name_of_a_group_changes_no_instance(start, folder, protocol):
    write_adder(folder, "a", 1, config=counted(2, "old"))
    server = start(folder, EXPLICIT, "--load-model=a")
    with protocol.connect(server) as client:
        answer(protocol, client, "a")
        write_config(folder, counted(2, "new"))
        client.load_model("a")
        answer(protocol, client, "a")
        assert protocol.statistics(client, "a")["inference_count"] == 2
        config = protocol.json(client.get_model_config, "a")
        assert [group["name"] for group in config.get("config", config)["instance_group"]] == ["new"]


def test_instances_that_are_too_many_finish_what_they_run(start, folder, gate, backend_option, threads, protocol):
    write_held(gate, folder, ["count: 3"])
    server = start(folder, EXPLICIT, "--load-model=held", backend_option)
    holds = [gate.hold() for _ in range(3)]
    running = [threads.submit(ask, protocol, server, hold, x) for x, hold in enumerate(holds)]
    for hold in holds:
        hold.wait_until_running()
    waiting = [threads.submit(ask, protocol, server, None, x) for x in range(3, 6)]
    eventually(lambda: pending(server, "held") == 3, "three waiting requests")
    config = folder / "held" / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 3", "count: 1"))
    with protocol.connect(server) as client:
        client.load_model("held")
        assert updates(server, "held") == 1
        assert not any(one.done() for one in running)
        for hold in holds:
            hold.release()
        assert [one.result(PATIENCE) for one in running + waiting] == list(range(6))
        # One instance is left.
        hold = gate.hold()
        last = [threads.submit(ask, protocol, server, hold, x) for x in range(2)]
        hold.wait_until_running()
        eventually(lambda: pending(server, "held") == 1, "a waiting request")
        hold.release()
        assert [one.result(PATIENCE) for one in last] == [0, 1]


def test_an_instance_that_leaves_does_not_wait_for_the_requests_of_others(start, folder, gate, backend_option, threads):
    write_held(gate, folder, ["count: 2"])
    server = start(folder, EXPLICIT, "--load-model=held", backend_option)
    hold = gate.hold()
    running = threads.submit(ask, GRPC, server, hold, 7)
    hold.wait_until_running()
    config = folder / "held" / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 2", "count: 1"))
    with GRPC.connect(server) as client:
        client.load_model("held")
    eventually(lambda: instances(server, "held") == 1, "one instance to be left")
    hold.release()
    assert running.result(PATIENCE) == 7
    assert "has not given back" not in server.log()


def test_an_editor_that_saves_another_number_of_instances_reloads_nothing(start, folder):
    """As vim does it: a test file, a swap file, a backup, and a new file of the name."""
    write_adder(folder, "a", 1, config=counted(1))
    poll = ("--model-control-mode=poll", "--repository-poll-secs=1", "--repository-settle-ms=100")
    server = start(folder, *poll)
    model = folder / "a"
    with HTTP.connect(server) as client:
        answer(HTTP, client, "a")
        (model / ".config.pbtxt.swp").write_bytes(b"b0VIM")
        (model / "4913").touch()
        (model / "4913").unlink()
        (model / "config.pbtxt").rename(model / "config.pbtxt~")
        write_config(folder, counted(3))
        (model / "config.pbtxt~").unlink()
        eventually(lambda: updates(server, "a") == 1, "the other number of instances")
        (model / ".config.pbtxt.swp").unlink()
        wait_for_looks(server, folder)
        assert answer(HTTP, client, "a") == 1
        assert HTTP.statistics(client, "a")["inference_count"] == 2
        assert updates(server, "a") == 1


def instances(server, name):
    """How many instances a model has, those included that are about to leave."""
    return len(explained(server, name)["instances"]["each"])


@pytest.mark.parametrize("strategy", models.STRATEGIES)
def test_instances_that_are_too_many_leave_after_their_sequences(start, folder, strategy):
    """Four instances with a sequence each. One sequence ends, one goes on, and two are idle for too long."""
    name = f"brief_{strategy}"
    models.accumulate(folder, strategy, "brief", idle_seconds=2, slots=1)
    server = start(folder, EXPLICIT, f"--load-model={name}")
    with GRPC.connect(server) as client:

        def step(sequence, x, **options):
            inputs = [GRPC.input("X", np.array([[x]], np.int32))]
            return client.infer(name, inputs, sequence_id=sequence, **options).as_numpy("SUM").item()

        assert [step(sequence, sequence, sequence_start=True) for sequence in (1, 2, 3, 4)] == [1, 2, 3, 4]
        assert instances(server, name) == 4
        config = folder / name / "config.pbtxt"
        config.write_text(config.read_text().replace("count: 4", "count: 1"))
        client.load_model(name)
        assert updates(server, name) == 1
        # Whichever instance stays, each sequence goes on where it is.
        assert [step(sequence, 10) for sequence in (1, 2, 3, 4)] == [11, 12, 13, 14]
        assert step(1, 10, sequence_end=True) == 21
        total = 12

        def others_have_left():
            nonlocal total
            total += 1
            assert step(2, 1) == total
            return instances(server, name) <= 2

        eventually(others_have_left, "instances of idle sequences to leave", pause=0.1)
        assert step(2, 1, sequence_end=True) == total + 1
        assert step(5, 5, sequence_start=True, sequence_end=True) == 5
        eventually(lambda: instances(server, name) == 1, "one instance to be left")


def test_a_server_stops_in_order_with_sequences_on_instances_that_leave(start, folder, gate, backend_option):
    """A sequence model has fewer instances than its sequences need, and another model is being loaded."""
    models.accumulate(folder, "direct", slots=4)
    config = folder / "accumulate_direct" / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 4", "count: 3"))
    load_hold = gate.hold()
    gate.write(folder, "slow", "", load_hold=load_hold)
    server = start(folder, EXPLICIT, "--load-model=accumulate_direct", backend_option)
    with GRPC.connect(server) as client:
        for sequence in range(1, 13):
            x = [GRPC.input("X", np.array([[sequence]], np.int32))]
            result = client.infer("accumulate_direct", x, sequence_id=sequence, sequence_start=True)
            assert result.as_numpy("SUM").item() == sequence
        config.write_text(config.read_text().replace("count: 3", "count: 1"))
        client.load_model("accumulate_direct")
        assert updates(server, "accumulate_direct") == 1
        answers = queue.Queue()
        with GRPC.connect(server) as other:
            loading = threading.Thread(target=lambda: answers.put(refusal(other.load_model, "slow")))
            loading.start()
            load_hold.wait_until_running()
            server.terminate()
            assert server.process.wait(PATIENCE) == 0, server.log_end()
            loading.join(PATIENCE)
