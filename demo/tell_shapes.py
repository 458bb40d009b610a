"""Writes pictures as PNG files, and asks the ensemble `shape_of_picture` what they show: bytes of a file in, labels out.

Usage: tell_shapes.py FOLDER HTTP_PORT. Writes FOLDER/pictures. Ends with an error when shapes are not recognised.
"""

import pathlib
import sys

import numpy as np
import tritonclient.http

import shapes

SIDES = [48, 120, 300]


def ask(client, files):
    """The best two labels for each file, with their probabilities, in one request."""
    encoded = tritonclient.http.InferInput("picture", [len(files), 1], "BYTES")
    encoded.set_data_from_numpy(np.array([[file.read_bytes()] for file in files], np.object_))
    wanted = tritonclient.http.InferRequestedOutput("shape", binary_data=False, class_count=2)
    answer = client.infer("shape_of_picture", [encoded], outputs=[wanted]).get_response()
    # Each text is "<probability>:<index>:<label>".
    texts = [text.split(":") for text in answer["outputs"][0]["data"]]
    told = [(label, float(probability)) for probability, _, label in texts]
    return list(zip(told[::2], told[1::2]))


def main():
    folder, http_port = pathlib.Path(sys.argv[1]) / "pictures", sys.argv[2]
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(11)
    drawn = [(shape, side) for side in SIDES for shape in shapes.SHAPES]
    files = []
    for shape, side in drawn:
        files.append(folder / f"{shape}{side}.png")
        files[-1].write_bytes(shapes.png(shapes.draw(shape, side, random)))
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{http_port}") as client:
        told = ask(client, files)
    right = 0
    for file, (shape, side), (best, second) in zip(files, drawn, told):
        right += best[0] == shape
        print(
            f"   {file.name:<15}{side:>4} x {side:<4}{file.stat().st_size:>7} bytes: "
            f"{best[0]} ({best[1]:.0%}), {second[0]} ({second[1]:.0%})"
        )
    print(f"   {right} of {len(files)} right; the files are in {folder}")
    if right < 0.75 * len(files):
        sys.exit("fewer than three of four shapes were recognised")


main()
