"""Groups of instances: passive ones, and resources that they need of the rate limiter."""

import queue

import pytest
from adders import EXPLICIT, refusal
from held import held_inputs
from protocols import GRPC, pending
from serving import PATIENCE, eventually


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
