"""Asks the server for texts, all at once, and compares them with those of whole batches.

Usage: same_texts.py HTTP_PORT REQUESTS TEXTS. REQUESTS is generation.json, TEXTS the answers to its first requests as
whole_batch has written them. Ends with an error when a text differs.
"""

import http.client
import json
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor


def text_of(port, request):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({name: value for name, (value,) in request.items()})
    connection.request("POST", "/v2/models/generation/generate_stream", body)
    lines = connection.getresponse().read().decode().splitlines()
    return "".join(json.loads(line.removeprefix("data: "))["text_output"] for line in lines if line)


def main():
    requests, expected = (json.loads(pathlib.Path(path).read_text()) for path in sys.argv[2:4])
    with ThreadPoolExecutor(len(expected)) as threads:
        texts = list(threads.map(lambda request: text_of(int(sys.argv[1]), request), requests[: len(expected)]))
    lengths = [request["max_tokens"][0] for request in requests[: len(expected)]]
    differing = [index for index, text in enumerate(texts) if text != expected[index] or len(text) != lengths[index]]
    if differing:
        sys.exit(f"texts that differ between the server and whole batches: {differing}")
    print(f"{len(texts)} texts of {sum(lengths)} tokens are the same from the server and from whole batches")


main()
