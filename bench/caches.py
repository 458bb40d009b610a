"""Writes the models of the benchmark of the response cache, the same for our server and for the reference.

Usage: caches.py FOLDER. Writes FOLDER/ours and FOLDER/reference, and FOLDER/different.json, requests of which no two are
equal. All models are executed by the C identity backend of reference_backend.c. Each is there twice: NAME without a cache,
and NAME_cached with one.

read_SIZE    reads an input of that size and answers 16 numbers: the difference of the two is what a hit costs more than
             reading the request
small        16 numbers
"""

import json
import pathlib
import random
import sys

SIZES = {"read_1k": 1 << 10, "read_600k": 600_000, "read_4m": 4 << 20, "read_16m": 16 << 20, "small": None}
DIFFERENT = 200_000

CONFIG = """\
backend: "identity"
max_batch_size: 0
input [ {{ name: "INPUT0" data_type: TYPE_INT32 dims: [ 16 ] }}{ignored} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 16 ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
"""
IGNORED = ', {{ name: "IGNORED" data_type: TYPE_UINT8 dims: [ {size} ] }}'


def write(folder):
    for repository in ("ours", "reference"):
        for name, size in SIZES.items():
            config = CONFIG.format(ignored=IGNORED.format(size=size) if size else "")
            for suffix, more in (("", ""), ("_cached", "response_cache { enable: true }\n")):
                model = folder / repository / (name + suffix)
                (model / "1").mkdir(parents=True, exist_ok=True)
                (model / "config.pbtxt").write_text(config + more)
    numbers = random.Random(1)
    requests = [{"INPUT0": [number, *numbers.choices(range(1000), k=15)]} for number in range(DIFFERENT)]
    (folder / "different.json").write_text(json.dumps(requests))


write(pathlib.Path(sys.argv[1]))
