"""Clients of HTTP and gRPC that others have made, in Python, JavaScript and Rust, each as its users have it.

An *uploader* sends so many bytes to a URL, so many times, one after the other on connections that it may keep. It gives the
status and the text of each answer, or what became of the answer instead.

$NEREID_TEST_NODE_PACKAGES is the folder of the packages of npm, and $NEREID_TEST_RUST_CLIENT the program in Rust:
`cargo xtask integrations` installs and builds them. Tests that need them have the mark `others`.
"""

import asyncio
import contextlib
import http.client
import json
import os
import pathlib
import urllib.parse

import aiohttp
import numpy as np
import processes
import programs
import requests
import tritonclient.http
import tritonclient.http.aio
import urllib3
from protocols import HTTP
from serving import PATIENCE, ROOT, TARGET
from tritonclient.utils import InferenceServerException

NODE_CLIENT = ROOT / "tests/clients/other_programs/node_client.cjs"
PROTO = ROOT / "crates/proto/protos/grpc_service.proto"

# A model that does not exist, and how uploads for it are refused.
UNKNOWN = "no_such_model"
UNKNOWN_PATH = f"/v2/models/{UNKNOWN}/infer"

# What a client says that has no answer is one of its exceptions.
FAILURES = (OSError, http.client.HTTPException, urllib3.exceptions.HTTPError, aiohttp.ClientError, TimeoutError)


def is_refusal(status, text):
    """Whether this is the answer about the model that does not exist."""
    return status == 404 and json.loads(text)["error"] == f"Request for unknown model: '{UNKNOWN}' is not found"


def _each(times, ask):
    """The answers of a function that is called so many times."""
    for _ in range(times):
        try:
            yield ask()
        except FAILURES as failure:
            yield "lost", repr(failure)


def _requests(url, upload, times):
    with requests.Session() as session:

        def ask():
            answer = session.post(url, upload, timeout=PATIENCE)
            return answer.status_code, answer.text

        yield from _each(times, ask)


def _urllib3(url, upload, times):
    with urllib3.PoolManager() as pool:

        def ask():
            answer = pool.request("POST", url, body=upload, retries=False, timeout=PATIENCE)
            return answer.status, answer.data.decode()

        yield from _each(times, ask)


def _http_client(url, upload, times):
    parts = urllib.parse.urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)) as connection:

        def ask():
            try:
                connection.request("POST", parts.path, upload)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            except FAILURES:
                connection.close()
                raise

        yield from _each(times, ask)


def _aiohttp(url, upload, times):
    async def ask_all():
        answers = []
        async with aiohttp.ClientSession() as session:
            for _ in range(times):
                try:
                    async with session.post(url, data=upload) as answer:
                        answers.append((answer.status, await answer.text()))
                except FAILURES as failure:
                    answers.append(("lost", repr(failure)))
        return answers

    return asyncio.run(ask_all())


def _of_exception(failure):
    """The answer that an exception of `tritonclient` has, if it has one. Its plain client tells the status, the other not."""
    if failure.status() is None or not failure.status().isdecimal():
        return "lost", repr(failure)
    return int(failure.status()), json.dumps({"error": failure.message()})


def _model_of(url):
    """The address of a server and the model that a URL names."""
    parts = urllib.parse.urlsplit(url)
    return parts.netloc, parts.path.split("/")[3]


def _tensor(upload):
    return [HTTP.input("INPUT", np.frombuffer(upload, np.uint8))]


def _tritonclient(url, upload, times):
    address, model = _model_of(url)
    with tritonclient.http.InferenceServerClient(address) as client:

        def ask():
            try:
                client.infer(model, _tensor(upload))
            except InferenceServerException as failure:
                return _of_exception(failure)
            return 200, ""

        yield from _each(times, ask)


def _tritonclient_aio(url, upload, times):
    address, model = _model_of(url)

    async def ask_all():
        answers = []
        async with tritonclient.http.aio.InferenceServerClient(address) as client:
            for _ in range(times):
                try:
                    await client.infer(model, _tensor(upload))
                except InferenceServerException as failure:
                    answers.append(_of_exception(failure))
                except FAILURES as failure:
                    answers.append(("lost", repr(failure)))
        return answers

    return asyncio.run(ask_all())


def rust_client():
    given = os.environ.get("NEREID_TEST_RUST_CLIENT")
    built = TARGET / "rust_client/debug/rust-client"
    if not given and not built.is_file():
        programs.missing("the client in Rust is not built", programs.INTEGRATIONS)
    return pathlib.Path(given or built)


def node_packages():
    given = os.environ.get("NEREID_TEST_NODE_PACKAGES")
    fetched = max((TARGET / "node").glob("axios-*/node_modules"), default=None)
    return given or str(fetched or programs.missing("there are no packages of npm", programs.INTEGRATIONS))


def node(*arguments):
    """What the client in JavaScript prints."""
    programs.check_group("others")
    variables = processes.variables_with(NODE_PATH=node_packages())
    # It may send 50 MB a hundred times.
    return processes.run(["node", NODE_CLIENT, *arguments], env=variables, check=True, timeout=10 * PATIENCE).stdout


def rust(*arguments):
    """What the client in Rust prints."""
    programs.check_group("others")
    return processes.run([rust_client(), *arguments], check=True, timeout=10 * PATIENCE).stdout


def _of_lines(lines):
    """The answers that a program has printed: a line for each, with the status first."""
    for line in lines.splitlines():
        status, _, text = line.partition(" ")
        yield int(status) if status.isdecimal() else status, text


def _program(run, *arguments):
    return lambda url, upload, times: _of_lines(run("upload", *arguments, url, len(upload), times))


UPLOADERS_IN_PYTHON = {
    "requests": _requests,
    "urllib3": _urllib3,
    "http.client": _http_client,
    "aiohttp": _aiohttp,
    "tritonclient": _tritonclient,
    "tritonclient-aio": _tritonclient_aio,
}
UPLOADERS = UPLOADERS_IN_PYTHON | {
    "axios": _program(node, "axios"),
    "fetch": _program(node, "fetch"),
    "reqwest": _program(rust),
}

# What asks the model `add_sub` with binary tensors, and gives OUTPUT0 as text.
INFERRERS = {
    "axios": lambda url: node("infer", "axios", url),
    "fetch": lambda url: node("infer", "fetch", url),
    "reqwest": lambda url: rust("infer", url),
}


def grpc_js(address):
    """The lines of a unary call and of a stream."""
    return node("grpc", address, PROTO).splitlines()


def node_versions():
    return json.loads(node("versions"))
