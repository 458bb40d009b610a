"""The backend `image`, alone and as the first step of an ensemble: pictures of clients, good and bad."""

import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import repository as models
import requests
from adders import refusal
from protocols import GRPC, HTTP
from serving import Server

LABELS = ["red", "green", "blue"]


def png(picture):
    """The bytes of a PNG file with the pixels of an array: height, width, three colours."""

    def chunk(kind, content):
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    height, width, _ = picture.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in picture)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    )


def plain(*colour, height=40, width=30):
    return png(np.full((height, width, 3), colour, np.uint8))


RED, GREEN, BLUE = plain(250, 20, 10), plain(20, 200, 100), plain(0, 50, 60)


def write_all(folder):
    """`decode`, `resized`, and the ensemble `colour` of `decode` and `channels`, which averages each channel."""
    one = models.tensor("input", "encoded", "BYTES", 1)
    configs = {
        "decode": f'max_batch_size: 8\ndynamic_batching {{}}\n{one}{models.tensor("output", "pixels", "FP32", 3, 8, 8)}',
        "resized": f'max_batch_size: 0\n{one}{models.tensor("output", "pixels", "UINT8", 2, 2, 3)}',
    }
    for name, config in configs.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "image"\n{config}')
    average = "average (float[batch, 3, 8, 8] X) => (float[batch, 3] Y) { Y = ReduceMean<axes=[2, 3], keepdims=0>(X) }"
    ends = models.tensor("input", "X", "FP32", 3, 8, 8) + models.tensor("output", "Y", "FP32", 3)
    models.write(folder, "channels", models.graph(average), f"max_batch_size: 8\n{ends}")
    (folder / "colour" / "1").mkdir(parents=True)
    (folder / "colour" / "labels.txt").write_text("\n".join(LABELS) + "\n")
    (folder / "colour" / "config.pbtxt").write_text(
        'platform: "ensemble"\nmax_batch_size: 8\n'
        + models.tensor("input", "picture", "BYTES", 1)
        + models.tensor("output", "shares", "FP32", 3, more='label_filename: "labels.txt"')
        + """ensemble_scheduling { step [
            { model_name: "decode" model_version: -1
              input_map { key: "encoded" value: "picture" } output_map { key: "pixels" value: "pixels" } },
            { model_name: "channels" model_version: -1
              input_map { key: "X" value: "pixels" } output_map { key: "Y" value: "shares" } } ] }\n"""
    )
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "models").mkdir()
    with Server(folder, write_all(folder / "models")) as server:
        yield server.wait_until_ready()


def ask(protocol, client, model, *pictures, rows=True, **options):
    array = np.array([[picture] for picture in pictures] if rows else pictures, np.object_)
    name = "picture" if model == "colour" else "encoded"
    return client.infer(model, [protocol.input(name, array, "BYTES")], **options)


def test_a_picture_becomes_pixels(protocol, client):
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    pixels = ask(protocol, client, "resized", png(picture), rows=False).as_numpy("pixels")
    assert pixels.dtype == np.uint8
    assert (pixels == picture).all()


def test_each_row_is_a_picture_of_its_own_size(protocol, client):
    pixels = ask(protocol, client, "decode", RED, plain(1, 2, 3, height=5, width=90)).as_numpy("pixels")
    assert pixels.shape == (2, 3, 8, 8)
    assert (pixels == np.array([[250, 20, 10], [1, 2, 3]], np.float32)[..., None, None]).all()


def test_an_ensemble_answers_files_with_labels(protocol, client):
    wanted = [protocol.output("shares", class_count=1)]
    answer = ask(protocol, client, "colour", RED, BLUE, GREEN, outputs=wanted).as_numpy("shares")
    assert [text.decode().split(":")[-1] for text in answer.flat] == ["red", "blue", "green"]


def test_the_body_of_a_request_may_be_the_file(server):
    headers = {"Inference-Header-Content-Length": "0", "Content-Type": "application/octet-stream"}
    answer = requests.post(f"http://{server.http}/v2/models/colour/infer", data=GREEN, headers=headers)
    assert answer.status_code == 200
    shares = answer.content[int(answer.headers["Inference-Header-Content-Length"]) :]
    assert np.frombuffer(shares, np.float32).tolist() == [20, 200, 100]


def test_a_bad_picture_is_an_error_that_names_its_row(protocol, client):
    code, text = refusal(ask, protocol, client, "colour", RED, RED[:90])
    assert code == protocol.status("INVALID_ARGUMENT")
    assert text == (
        "in ensemble 'colour', input 'encoded' for model 'decode' is not a PNG or JPEG picture in row 2 of 2: "
        "unexpected end of file"
    )


def test_a_picture_that_claims_to_be_huge_is_refused(protocol, client):
    bomb = RED[:16] + struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    bomb += struct.pack(">I", zlib.crc32(bomb[12:])) + RED[33:]
    code, text = refusal(ask, protocol, client, "decode", bomb)
    assert code == protocol.status("INVALID_ARGUMENT")
    assert text == (
        "input 'encoded' for model 'decode' is a picture of 100000 x 100000 pixels, but parameter 'MAX_PIXELS' of the model "
        "allows 64000000 pixels"
    )


def test_bad_pictures_do_not_hurt_others(server):
    def one(number):
        protocol = (HTTP, GRPC)[number % 2]
        with protocol.connect(server) as client:
            if number % 5 == 0:
                return refusal(ask, protocol, client, "colour", b"no picture")[1].split(": ")[-1]
            return ask(protocol, client, "colour", plain(number, 0, 1)).as_numpy("shares")[0].tolist()

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(one, range(100)))
    for number, answer in enumerate(answers):
        expected = [number, 0, 1] if number % 5 else "it has the signature of neither format"
        assert answer == expected
