"""Asks the network in ONNX Runtime, the forest and the pipeline in Python for the same digits, and compares their answers.

Usage: compare.py FOLDER GRPC_PORT. Reads FOLDER/held_out.npz, which train.py wrote. Ends with an error when one of them
recognises hardly any digit.
"""

import pathlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tritonclient.grpc as grpc

AT_ONCE = 16


def ask(url, model, images, *outputs, name="image"):
    """The outputs for each image, one request per image, and the seconds that took."""
    own = threading.local()

    def one(image):
        # Clients are not made to be shared by threads.
        if not hasattr(own, "client"):
            own.client = grpc.InferenceServerClient(url)
        tensor = grpc.InferInput(name, [1, 64], "FP32")
        tensor.set_data_from_numpy(image.reshape(1, 64))
        result = own.client.infer(model, [tensor])
        return [result.as_numpy(output)[0] for output in outputs]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        started = time.monotonic()
        answers = list(threads.map(one, images))
        return [np.array(column) for column in zip(*answers)], time.monotonic() - started


def main():
    folder, url = pathlib.Path(sys.argv[1]), f"127.0.0.1:{sys.argv[2]}"
    held_out = np.load(folder / "held_out.npz")
    images, labels = held_out["images"], held_out["labels"]
    (network,), network_seconds = ask(url, "digits", images, "probabilities")
    (pipeline, names), pipeline_seconds = ask(url, "digits_pipeline", images, "probabilities", "digit")
    (forest,), forest_seconds = ask(url, "digits_forest", images, "output__0", name="input__0")
    models = {
        "ONNX Runtime": (network, network_seconds),
        "forest": (forest, forest_seconds),
        "Python": (pipeline, pipeline_seconds),
    }
    for name, (answers, seconds) in models.items():
        right = int((answers.argmax(axis=1) == labels).sum())
        print(f"   {name:<13}{right} of {len(labels)} right ({right / len(labels):.1%}) in {seconds:.2f} s")
        if right < 0.9 * len(labels):
            sys.exit("fewer than nine of ten digits were recognised")
    classes = [answers.argmax(axis=1) for answers, _ in models.values()]
    print(f"   all agree on {np.all([one == classes[0] for one in classes], axis=0).mean():.1%}")
    with grpc.InferenceServerClient(url) as client:
        statistics = client.get_inference_statistics("digits_pipeline", as_json=True)["model_stats"][0]
    print(f"   the pipeline answered {statistics['inference_count']} requests in {statistics['execution_count']} batches")
    if [name.decode() for name in names[:, 0]] != [str(digit) for digit in pipeline.argmax(axis=1)]:
        sys.exit("the names of the digits are not those of the probabilities")


main()
