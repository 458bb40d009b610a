"""What an operator may keep for himself: protocols that need a secret header."""

import pytest
import repository as models
from protocols import GRPC, HTTP, add_sub_inputs
from tritonclient.utils import InferenceServerException


@pytest.fixture
def restricted(start, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    http = "--http-restricted-api=inference,statistics:admin-key=secret"
    grpc = "--grpc-restricted-protocol=inference,statistics:admin-key=secret"
    return start(folder, http, grpc).wait_until_ready()


HEADERS = {"http": "admin-key", "grpc": "triton-grpc-protocol-admin-key"}
REFUSALS = {
    "http": ("This API is restricted, expecting header 'admin-key'", "403"),
    "grpc": (
        "This protocol is restricted, expecting header 'triton-grpc-protocol-admin-key'",
        "StatusCode.UNAVAILABLE",
    ),
}


@pytest.mark.parametrize("protocol", [HTTP, GRPC], ids=lambda protocol: protocol.name)
def test_only_whoever_knows_the_secret_is_served(restricted, protocol):
    inputs, _ = add_sub_inputs(protocol)
    with protocol.connect(restricted) as client:
        assert client.is_server_ready()
        for headers in (None, {HEADERS[protocol.name]: "guess"}):
            with pytest.raises(InferenceServerException) as refusal:
                client.infer("add_sub", inputs, headers=headers)
            assert (refusal.value.message(), refusal.value.status()) == REFUSALS[protocol.name]
            with pytest.raises(InferenceServerException) as refusal:
                client.get_inference_statistics("add_sub", headers=headers)
            assert (refusal.value.message(), refusal.value.status()) == REFUSALS[protocol.name]
        known = {HEADERS[protocol.name]: "secret"}
        assert client.infer("add_sub", inputs, headers=known).as_numpy("OUTPUT0") is not None
        assert client.get_inference_statistics("add_sub", headers=known)
