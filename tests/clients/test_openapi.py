"""The description of the HTTP endpoint: valid, true, and readable in a browser."""

import http.client
import json
import sys

import browser
import openapi_spec_validator
import processes
import pytest
import repository as models
from repository import tensor

# What schemathesis checks. It does not check that a request of the described form is accepted, and others refused:
# whether a model accepts one depends on more than a form can say. Some refusals have statuses above 500, as in Triton.
CHECKS = "status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,unsupported_method"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    batched = tensor("input", "X", "FP32", 3) + tensor("output", "Y", "FP32", 3)
    models.write(
        folder,
        "matrix",
        models.graph("matrix (float[n, 3] X) => (float[n, 3] Y) { Y = Identity(X) }"),
        "max_batch_size: 8\n" + batched,
    )
    any_length = tensor("input", "X", "INT64", -1) + tensor("output", "Y", "INT64", -1)
    models.write(
        folder,
        "odd {name}é",
        models.graph("odd (int64[n] X) => (int64[n] Y) { Y = Identity(X) }"),
        "max_batch_size: 0\n" + any_length,
    )
    return folder


@pytest.fixture
def server(start, folder):
    return start(folder, "--allow-client-shm=true").wait_until_ready()


def ask(server, path, body=None, method=None):
    connection = http.client.HTTPConnection(server.http, timeout=60)
    connection.request(method or ("POST" if body is not None else "GET"), path, body)
    answer = connection.getresponse()
    return answer, answer.read()


def document(server, path="/openapi.json"):
    answer, body = ask(server, path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    return json.loads(body)


def test_the_documents_are_valid(server):
    whole = document(server)
    openapi_spec_validator.validate(whole)
    own = document(server, "/v2/models/matrix/versions/1/openapi.json")
    openapi_spec_validator.validate(own)
    assert set(own["paths"]) == {
        f"/v2/models/matrix/versions/1/{verb}" for verb in ("infer", "generate", "generate_stream")
    }
    assert "/v2/models/matrix/infer" in whole["paths"]
    answer, body = ask(server, "/v2/models/nothing/openapi.json")
    assert (answer.status, json.loads(body)) == (404, {"error": "Request for unknown model: 'nothing' is not found"})


def test_the_examples_are_accepted(server):
    paths = document(server)["paths"]
    asked = 0
    for path, item in paths.items():
        content = item.get("post", {}).get("requestBody", {}).get("content", {})
        for example in content.get("application/json", {}).get("schema", {}).get("examples", []):
            answer, body = ask(server, path, json.dumps(example))
            # One value is no tensor of three.
            expected = 400 if "matrix/generate" in path else 200
            assert answer.status == expected, (path, body)
            asked += 1
    assert asked == 6


def test_the_configuration_of_a_model_is_described(server):
    request = document(server, "/v2/models/matrix/openapi.json")["paths"]["/v2/models/matrix/infer"]["post"]
    schema = request["requestBody"]["content"]["application/json"]["schema"]
    [example] = schema["examples"]
    x = example["inputs"][0]
    assert x == {"name": "X", "datatype": "FP32", "shape": [1, 3], "data": [0, 0, 0]}
    described = schema["properties"]["inputs"]["items"]["properties"]
    assert described["datatype"]["const"] == "FP32"
    rows, columns = described["shape"]["prefixItems"]
    assert (rows["minimum"], rows["maximum"], columns["const"]) == (1, 8, 3)


# It sends some thousand requests, which takes minutes on a busy machine.
@pytest.mark.timeout(900)
def test_no_answer_is_outside_the_description(server, tmp_path):
    """A tool sends random requests of and beside the described forms."""
    line = [sys.executable, "-m", "schemathesis.cli", "run", f"http://{server.http}/openapi.json"]
    line += ["--checks", CHECKS, "--max-examples", "15", "--seed", "7", "--no-color", "--generation-database", "none"]
    done = processes.run(line, cwd=tmp_path, timeout=840)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " generated" in done.stdout, "it has tested something"
    # No request has hurt the server.
    assert ask(server, "/v2/health/ready")[0].status == 200


def test_a_method_that_is_not_allowed_is_refused_with_those_that_are(server):
    for path, methods in [
        ("/v2", "GET, HEAD"),
        ("/v2/models/matrix/infer", "POST"),
        ("/v2/logging", "GET, HEAD, POST"),
    ]:
        answer, _ = ask(server, path, method="DELETE")
        assert (answer.status, answer.headers["Allow"]) == (405, methods)


def test_the_description_can_be_restricted_and_switched_off(start, folder):
    off = start(folder, "--http-openapi=false")
    for path in ("/openapi.json", "/docs", "/docs/page.js", "/v2/models/matrix/openapi.json"):
        answer, body = ask(off, path)
        assert (answer.status, json.loads(body)) == (404, {"error": "Not Found"})
    restricted = start(folder, "--http-restricted-api=metadata:key=secret")
    assert ask(restricted, "/openapi.json")[0].status == 403
    assert ask(restricted, "/docs")[0].status == 403


@pytest.mark.browser
async def test_a_browser_shows_the_description_and_sends_requests(server, tmp_path):
    async with browser.running(tmp_path) as running:
        page = await running.open(f"http://{server.http}/docs")
        await page.until("document.querySelector('main')?.getAttribute('aria-busy') === 'false'")
        assert await page.evaluate("document.querySelectorAll('details.operation').length") > 40
        for width, height, scheme in ((1000, 1400, "light"), (390, 800, "dark")):
            await page.look(width, height, scheme)
            await page.screenshot(tmp_path / f"{scheme}.png")
            # A reader never has to move a line sideways.
            assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await page.look(1000, 1400)
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != ground

        operation = "document.getElementById('infer_matrix')"
        await page.evaluate(f"{operation}.firstChild.click()")
        await page.until(f"!!{operation}.querySelector('button')")
        await page.evaluate(f"{operation}.querySelector('button').click()")
        status = await page.until(f"{operation}.querySelector('.reply p')?.textContent")
        assert status.startswith("200 OK, "), status
        shown = json.loads(await page.evaluate(f"{operation}.querySelector('.reply pre').textContent"))
        assert shown["outputs"][0]["data"] == [0, 0, 0]

        await page.evaluate("document.getElementById('filter').value = 'matrix'; filter()")
        visible = "[...document.querySelectorAll('details.operation')].filter((one) => one.offsetParent).length"
        assert await page.evaluate(visible) == 3
        # Everything came from the server itself, and nothing went wrong.
        own = [url for url in page.loaded if not url.startswith("data:")]
        assert own and all(url.startswith(f"http://{server.http}/") for url in own), own
        assert page.problems == []
