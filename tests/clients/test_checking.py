"""How long `nereid check` takes for a repository of 1,000 models, half of them with a graph.

This is a measurement. The promised time is that of a release build (NEREID_RELEASE=1).
"""

import json
import subprocess
import time

from repository import graph, write
from serving import BINARY, RELEASE, environment

MODELS = 1000
SECONDS = 2.0 if RELEASE else 20.0

CONFIG = """max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: 16 }
output { name: "Y" data_type: TYPE_FP32 dims: 16 }
instance_group { count: 2 kind: KIND_CPU }
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
"""
PICTURE = """backend: "image"
max_batch_size: 8
input { name: "P" data_type: TYPE_STRING dims: 1 }
output { name: "O" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }
parameters { key: "RESIZE" value { string_value: "crop" } }
"""


def test_a_thousand_models_are_checked_in_two_seconds(tmp_path, record_property):
    copy = graph("copy (float[N, 16] X) => (float[N, 16] Y) { Y = Identity(X) }")
    models = tmp_path / "models"
    for number in range(MODELS):
        if number % 2:
            write(models, f"net{number}", copy, CONFIG)
        else:
            (models / f"picture{number}" / "1").mkdir(parents=True)
            (models / f"picture{number}" / "config.pbtxt").write_text(PICTURE)
    # One model has a mistake, so that a command that looks at nothing does not pass.
    write(models, "net1", copy, CONFIG.replace('"Y" data_type: TYPE_FP32', '"Y" data_type: TYPE_INT8'))
    started = time.monotonic()
    checked = subprocess.run(
        [BINARY, "check", "--format=json", models], env=environment(), capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - started
    record_property("seconds", seconds)
    print(f"{MODELS} models in {seconds:.2f} s")
    assert checked.returncode == 1, checked.stderr
    errors = [finding for finding in json.loads(checked.stdout)["findings"] if finding["severity"] == "error"]
    assert [finding["model"] for finding in errors] == ["net1"]
    assert seconds < SECONDS
