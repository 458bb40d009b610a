"""How many rows a request may have if the configuration of its model does not say so."""

import negative_model
import pytest
import repository as models
from protocols import HTTP
from tritonclient.utils import InferenceServerException


def test_a_model_without_a_configuration_takes_large_requests(start, empty):
    models.write(empty, "plain", negative_model.graph())
    models.write(empty, "limited", negative_model.graph(), "max_batch_size: 8\n")
    server = start(empty).wait_until_ready()
    with HTTP.connect(server) as client:
        assert client.get_model_config("plain")["max_batch_size"] == 4
        for count in (1, 4, 5, 1024):
            negative_model.check_rows(client, "plain", count)
        for model, count, text in [
            ("plain", 1025, "<= 1024 for 'plain': 1025 rows are given; max_batch_size in config.pbtxt sets another limit"),
            ("limited", 9, "<= 8 for 'limited'"),
        ]:
            with pytest.raises(InferenceServerException) as error:
                negative_model.check_rows(client, model, count)
            assert error.value.message().endswith(f"inference request batch-size must be {text}")
    log = server.log()
    assert "model 'plain' runs with batches of up to 4 rows, requests of up to 1024, " in log
    assert "\nW" not in log


def test_a_default_that_the_operator_sets_is_the_limit(start, empty):
    models.write(empty, "plain", negative_model.graph())
    server = start(empty, "--backend-config=onnxruntime,default-max-batch-size=6").wait_until_ready()
    with HTTP.connect(server) as client:
        negative_model.check_rows(client, "plain", 6)
        with pytest.raises(InferenceServerException) as error:
            negative_model.check_rows(client, "plain", 7)
        assert error.value.message().endswith("batch-size must be <= 6 for 'plain'")


def test_the_limit_of_requests_can_be_set(start, empty):
    models.write(empty, "plain", negative_model.graph())
    server = start(empty, "--backend-config=onnxruntime,max-request-rows=9").wait_until_ready()
    with HTTP.connect(server) as client:
        negative_model.check_rows(client, "plain", 9)
        with pytest.raises(InferenceServerException) as error:
            negative_model.check_rows(client, "plain", 10)
        assert "batch-size must be <= 9 for 'plain': 10 rows are given" in error.value.message()
