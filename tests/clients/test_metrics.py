"""The metrics port: what Prometheus reads moves as the statistics do."""

import re

import numpy as np
import pytest
import requests
from protocols import add_sub_inputs, metric
from tritonclient.utils import InferenceServerException

DURATIONS = {
    "nv_inference_request_duration_us": "success",
    "nv_inference_queue_duration_us": "queue",
    "nv_inference_compute_input_duration_us": "compute_input",
    "nv_inference_compute_infer_duration_us": "compute_infer",
    "nv_inference_compute_output_duration_us": "compute_output",
}


def test_counters_say_what_the_statistics_say(server, client, protocol):
    """Model `aside` is called by the tests in this file only."""
    for batch in (1, 2, 8):
        client.infer("aside", add_sub_inputs(protocol, batch)[0])
    statistics = protocol.statistics(client, "aside")
    labels = {"model": "aside", "version": 1}
    assert statistics["inference_count"] >= 11
    assert metric(server, "nv_inference_count", **labels) == statistics["inference_count"]
    assert metric(server, "nv_inference_exec_count", **labels) == statistics["execution_count"]
    assert metric(server, "nv_inference_request_success", **labels) == statistics["inference_stats"]["success"]["count"]
    assert metric(server, "nv_inference_pending_request_count", **labels) == 0
    for name, phase in DURATIONS.items():
        microseconds = statistics["inference_stats"][phase]["ns"] / 1000
        assert metric(server, name, **labels) == pytest.approx(microseconds, abs=1), name


def test_a_failed_execution_is_counted_by_its_reason(server, client, protocol):
    def failures(reason):
        return metric(server, "nv_inference_request_failure", model="picky", reason=reason, version=1)

    reasons = ("BACKEND", "REJECTED", "CANCELED", "OTHER")
    before = {reason: failures(reason) for reason in reasons}
    failed = protocol.statistics(client, "picky")["inference_stats"]["fail"].get("count", 0)
    with pytest.raises(InferenceServerException):
        client.infer("picky", [protocol.input("INDEX", np.array([7]))])
    assert {reason: failures(reason) - before[reason] for reason in reasons} == {
        "BACKEND": 1,
        "REJECTED": 0,
        "CANCELED": 0,
        "OTHER": 0,
    }
    assert protocol.statistics(client, "picky")["inference_stats"]["fail"]["count"] == failed + 1


def test_a_refused_request_is_counted_nowhere(server, client, protocol):
    labels = {"model": "aside", "version": 1}
    before = metric(server, "nv_inference_request_success", **labels)
    with pytest.raises(InferenceServerException):
        client.infer("aside", add_sub_inputs(protocol)[0][:1])
    assert metric(server, "nv_inference_request_success", **labels) == before
    for reason in ("BACKEND", "REJECTED", "CANCELED", "OTHER"):
        assert metric(server, "nv_inference_request_failure", reason=reason, **labels) == 0


def test_every_family_is_described_once_and_every_line_can_be_read(server):
    answer = requests.get(server.metrics, timeout=60)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    lines = answer.text.splitlines()
    families = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert families == [line.split()[2] for line in lines if line.startswith("# HELP ")]
    assert len(families) == len(set(families))
    for line in lines:
        if not line.startswith("#"):
            match = re.fullmatch(r'(\w+)(\{\w+="[^"]*"(,\w+="[^"]*")*\})? (\d+(\.\d+)?(e-?\d+)?|\+Inf|NaN)', line)
            assert match, line
            assert match[1] in families


def test_every_version_has_its_load_time(server):
    for version in (1, 2, 3):
        assert metric(server, "nv_model_load_duration_secs", model="versions", version=version) > 0


def test_any_other_path_is_not_found(server):
    address = server.metrics.removesuffix("/metrics")
    assert requests.get(f"{address}/other", timeout=60).status_code == 404
    assert requests.post(f"{address}/metrics", timeout=60).status_code == 405
