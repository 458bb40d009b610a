"""Lets the generator write, over gRPC streams and over HTTP's server-sent events, and shows the characters as they come.

Usage: generate.py HTTP_PORT GRPC_PORT. Ends with an error when the two protocols tell different texts for a seed.
"""

import http.client
import json
import queue
import sys
import threading
import time

import numpy as np
import tritonclient.grpc
import tritonclient.http

MODEL, LENGTH = "text", 240
PROMPTS = "TARMESIN"
BESIDE = 12


def over_grpc(url, prompt, seed, length):
    """The characters as they come."""
    answers = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        inputs = []
        for name, datatype, value in [
            ("text_input", "BYTES", np.array([[prompt]], object)),
            ("max_tokens", "INT64", np.array([[length]])),
            ("seed", "INT64", np.array([[seed]])),
        ]:
            inputs.append(tritonclient.grpc.InferInput(name, [1, 1], datatype))
            inputs[-1].set_data_from_numpy(value)
        client.async_stream_infer(MODEL, inputs, enable_empty_final_response=True)
        while True:
            result, error = answers.get(timeout=30)
            if error is not None:
                raise error
            text = result.as_numpy("text_output")
            if text is not None:
                yield text.item().decode()
            if result.get_response().parameters["triton_final_response"].bool_param:
                return


def over_http(address, prompt, seed, length):
    """The characters as they come."""
    connection = http.client.HTTPConnection(address, timeout=30)
    body = json.dumps({"text_input": prompt, "max_tokens": length, "seed": seed})
    connection.request("POST", f"/v2/models/{MODEL}/generate_stream", body)
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"HTTP status {response.status}: {response.read().decode()}")
    for line in response:
        if line.startswith(b"data: "):
            event = json.loads(line.removeprefix(b"data: "))
            if "error" in event:
                raise RuntimeError(event["error"])
            yield event["text_output"]
    connection.close()


def read(characters, show=False):
    """The text, the seconds to its first character, and those to its last."""
    started, text, first = time.monotonic(), "", 0.0
    for character in characters:
        first = first or time.monotonic() - started
        text += character
        if show:
            print(character, end="", flush=True)
    return text, first, time.monotonic() - started


def show(name, characters, prompt):
    print(f"   {name}: {prompt}", end="", flush=True)
    text, first, seconds = read(characters, show=True)
    end = "" if text.endswith("\n") else "\n"
    print(f"{end}      first character after {first * 1000:.1f} ms, then {len(text) / seconds:.0f} per second\n")
    return text


def together(http_address, grpc_url):
    """Many requests at once, of both protocols and of lengths that differ."""
    told = [None] * BESIDE

    def one(number):
        prompt, length = PROMPTS[number % len(PROMPTS)], 20 + 40 * (number % 6)
        source = over_http(http_address, prompt, number, length) if number % 2 else over_grpc(grpc_url, prompt, number, length)
        told[number] = read(source)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(BESIDE)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - started
    if None in told:
        sys.exit("a request was not answered")
    characters, firsts = sum(len(text) for text, _, _ in told), sorted(first for _, first, _ in told)
    print(f"   {BESIDE} at once: {characters} characters in {seconds:.2f} s, {characters / seconds:.0f} per second;", end=" ")
    print(f"first characters after {firsts[0] * 1000:.1f} to {firsts[-1] * 1000:.1f} ms")


def show_batches(http_address):
    with tritonclient.http.InferenceServerClient(http_address) as client:
        statistics = client.get_inference_statistics(MODEL)["model_stats"][0]
    print(f"   {statistics['inference_count']} requests shared {statistics['execution_count']} steps:")
    for batch in statistics["batch_stats"]:
        count, nanoseconds = batch["compute_infer"]["count"], batch["compute_infer"]["ns"]
        print(f"      {batch['batch_size']:>2} of them together: {count:>4} times, {nanoseconds / count / 1000:7.1f} us each")


def main():
    http_address, grpc_url = (f"127.0.0.1:{port}" for port in sys.argv[1:3])
    print()
    by_grpc = show("gRPC", over_grpc(grpc_url, "T", 7, LENGTH), "T")
    by_http = show("HTTP", over_http(http_address, "T", 7, LENGTH), "T")
    together(http_address, grpc_url)
    show_batches(http_address)
    if by_grpc != by_http:
        sys.exit("HTTP and gRPC told different texts for the same seed")


main()
