"""Classifies digits the model has not seen, over HTTP and gRPC, and shows some of them.

Usage: classify.py FOLDER HTTP_PORT GRPC_PORT. Reads FOLDER/held_out.npz, which train.py wrote. Ends with an error when
the two protocols disagree or hardly any digit is recognised.
"""

import pathlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tritonclient.grpc
import tritonclient.http

SHADES = " .:-=+*#%@"
SHOWN = 10
PER_LINE = 5
# So many requests are on their way at once: the server then has something to put into batches.
AT_ONCE = 16


def classify(library, url, images):
    """The probabilities for each image, one request per image, and the seconds that took."""
    own = threading.local()

    def one(image):
        # Clients are not made to be shared by threads.
        if not hasattr(own, "client"):
            own.client = library.InferenceServerClient(url)
        tensor = library.InferInput("image", [1, 64], "FP32")
        tensor.set_data_from_numpy(image.reshape(1, 64))
        return own.client.infer("digits", [tensor]).as_numpy("probabilities")

    with ThreadPoolExecutor(AT_ONCE) as threads:
        started = time.monotonic()
        rows = list(threads.map(one, images))
        return np.concatenate(rows), time.monotonic() - started


def picture(image):
    """An image as eight lines of sixteen characters."""
    return ["".join(SHADES[int(value * 9)] * 2 for value in row) for row in image.reshape(8, 8)]


def show(images, labels, http, grpc):
    for first in range(0, SHOWN, PER_LINE):
        chosen = range(first, first + PER_LINE)
        for lines in zip(*(picture(images[index]) for index in chosen)):
            print("   " + "  ".join(lines))
        for name, text in [
            ("is", lambda index: str(labels[index])),
            ("HTTP", lambda index: says(http[index])),
            ("gRPC", lambda index: says(grpc[index])),
        ]:
            print("   " + "  ".join(f"{name:<5}{text(index):<11}" for index in chosen))
        print()


def says(probabilities):
    return f"{probabilities.argmax()} ({probabilities.max():.0%})"


def show_statistics(http_url):
    with tritonclient.http.InferenceServerClient(http_url) as client:
        statistics = client.get_inference_statistics("digits")["model_stats"][0]
    requests, executions = statistics["inference_count"], statistics["execution_count"]
    print(f"   {requests} requests were run in {executions} batches:")
    for batch in statistics["batch_stats"]:
        count, nanoseconds = batch["compute_infer"]["count"], batch["compute_infer"]["ns"]
        print(f"      batch of {batch['batch_size']:>2}: {count:>4} times, {nanoseconds / count / 1000:7.1f} us each")
    queue = statistics["inference_stats"]["queue"]
    print(f"   waiting for company and an instance: {queue['ns'] / queue['count'] / 1000:.1f} us on average")


def main():
    folder, http_port, grpc_port = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    held_out = np.load(folder / "held_out.npz")
    images, labels = held_out["images"], held_out["labels"]
    http, http_seconds = classify(tritonclient.http, f"127.0.0.1:{http_port}", images)
    grpc, grpc_seconds = classify(tritonclient.grpc, f"127.0.0.1:{grpc_port}", images)
    print()
    show(images, labels, http, grpc)
    for name, answers, seconds in [("HTTP", http, http_seconds), ("gRPC", grpc, grpc_seconds)]:
        right = int((answers.argmax(axis=1) == labels).sum())
        print(f"   {name}: {right} of {len(labels)} right ({right / len(labels):.1%}) in {seconds:.2f} s")
    show_statistics(f"127.0.0.1:{http_port}")
    if not np.allclose(http, grpc, atol=1e-5):
        sys.exit("HTTP and gRPC gave different answers")
    if (http.argmax(axis=1) == labels).mean() < 0.9:
        sys.exit("fewer than nine of ten digits were recognised")


main()
