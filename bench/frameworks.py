"""What forests cost, each beside the bare libraries.

Usage: frameworks.py --rounds N [--filter TEXT]. Prints a row of a table in Markdown for each model and batch: the processor time of
a prediction in us, by our evaluator and by each library, and the ratio of ours to the fastest of them. Each figure is the least
of the rounds, in which the contenders take turns, each on one thread. The libraries are asked through their C interfaces, with
rows that are already in memory. FRAMEWORKS_FOLDER has the models and the rows; FOREST_TIMES is a program that reads them and
asks our evaluator.
"""

import argparse
import ctypes
import json
import os
import pathlib
import re
import subprocess
import time

import lightgbm
import numpy as np
import onnxmltools
import onnxruntime
import treelite
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType

FOLDER = pathlib.Path(os.environ["FRAMEWORKS_FOLDER"])
FEATURES, ROWS = 32, 256
BATCHES = (1, 8, 64)
MODELS = (
    ("xgboost.json", "xgboost_json", "XGBoost, 500 trees"),
    ("model.txt", "lightgbm", "LightGBM, 500 trees"),
)
# How long a contender is asked in a round, in seconds of processor time.
ROUND = 0.2


def times(call, batch):
    """The processor time of a call in us. `call` gets the first of so many rows."""
    first, done = 0, 0
    begun = time.process_time()
    while (passed := time.process_time() - begun) < ROUND:
        for _ in range(20):
            call(first)
            first = (first + batch) % (ROWS - batch + 1)
            done += 1
    return passed / done * 1e6


class Rows:
    """The rows that are predicted for, and where each begins."""

    def __init__(self):
        self.array = np.random.default_rng(3).normal(size=(ROWS, FEATURES)).astype(np.float32)
        self.array.tofile(FOLDER / "rows.f32")

    def address(self, first):
        return self.array.ctypes.data + first * FEATURES * 4


def trained():
    """Data with something to learn."""
    generator = np.random.default_rng(1)
    data = generator.normal(size=(20_000, FEATURES)).astype(np.float32)
    score = data[:, 0] * data[:, 1] + np.sin(data[:, 2] * 3) + data[:, 3:8].sum(axis=1) + generator.normal(size=20_000)
    return data, (score > 0).astype(int)


class Library:
    """A shared library with functions in C that return 0."""

    def __init__(self, package, name):
        self._library = ctypes.CDLL(str(next(pathlib.Path(package.__file__).parent.rglob(name))))

    def __call__(self, function, *arguments):
        code = getattr(self._library, function)(*arguments)
        assert code == 0, f"{function} returned {code}"


def xgboost_calls(path, rows, batch):
    library, booster = Library(xgboost, "libxgboost.so"), ctypes.c_void_p()
    library("XGBoosterCreate", None, ctypes.c_uint64(0), ctypes.byref(booster))
    library("XGBoosterLoadModel", booster, str(path).encode())
    library("XGBoosterSetParam", booster, b"nthread", b"1")
    config = json.dumps(
        {"type": 0, "training": False, "iteration_begin": 0, "iteration_end": 0, "strict_shape": False, "missing": float("nan")}
    ).encode()
    shape, dims, answer = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    results = (ctypes.byref(shape), ctypes.byref(dims), ctypes.byref(answer))
    arrays = [
        json.dumps({"data": [rows.address(first), False], "shape": [batch, FEATURES], "typestr": "<f4", "version": 3}).encode()
        for first in range(ROWS - batch + 1)
    ]
    return lambda first: library("XGBoosterPredictFromDense", booster, arrays[first], config, None, *results)


def lightgbm_calls(path, rows, batch):
    library, booster, iterations = Library(lightgbm, "lib_lightgbm.so"), ctypes.c_void_p(), ctypes.c_int()
    library("LGBM_BoosterCreateFromModelfile", str(path).encode(), ctypes.byref(iterations), ctypes.byref(booster))
    answers, length = (ctypes.c_double * batch)(), ctypes.c_int64()
    if batch == 1:
        # Its own way for single rows.
        fast = ctypes.c_void_p()
        kind = (booster, 0, 0, -1, 0, ctypes.c_int32(FEATURES), b"num_threads=1", ctypes.byref(fast))
        library("LGBM_BoosterPredictForMatSingleRowFastInit", *kind)
        pointers = [ctypes.c_void_p(rows.address(first)) for first in range(ROWS)]
        name = "LGBM_BoosterPredictForMatSingleRowFast"
        return lambda first: library(name, fast, pointers[first], ctypes.byref(length), answers)
    pointers = [ctypes.c_void_p(rows.address(first)) for first in range(ROWS - batch + 1)]
    sizes = (0, ctypes.c_int32(batch), ctypes.c_int32(FEATURES), 1, 0, 0, -1, b"num_threads=1")
    return lambda first: library(
        "LGBM_BoosterPredictForMat", booster, pointers[first], *sizes, ctypes.byref(length), answers
    )


def treelite_calls(model, rows, batch):
    return lambda first: treelite.gtil.predict(model, rows.array[first : first + batch], nthread=1)


def onnxruntime_calls(model, rows, batch):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [session.get_outputs()[-1].name]
    return lambda first: session.run(wanted, {"input": rows.array[first : first + batch]})


def ours(path, kind):
    """By batch: the times that the program prints in lines such as `batch  8: 32.10 us`."""
    line = [os.environ["FOREST_TIMES"], kind, path, FOLDER / "rows.f32"]
    printed = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    return {int(batch): float(us) for batch, us in re.findall(r"batch +(\d+): ([\d.]+) us", printed)}


def contenders(path, rows, batch):
    """What to call of each library."""
    kinds = [("input", FloatTensorType([None, FEATURES]))]
    if path.suffix == ".json":
        booster = xgboost.XGBClassifier()
        booster.load_model(path)
        converted = onnxmltools.convert_xgboost(booster, initial_types=kinds)
        compiled, own = treelite.frontend.load_xgboost_model(str(path)), xgboost_calls(path, rows, batch)
    else:
        booster = lightgbm.Booster(model_file=str(path))
        converted = onnxmltools.convert_lightgbm(booster, initial_types=kinds, zipmap=False)
        compiled, own = treelite.frontend.load_lightgbm_model(str(path)), lightgbm_calls(path, rows, batch)
    calls = {"its library": own, "treelite": treelite_calls(compiled, rows, batch)}
    return {**calls, "ONNX Runtime": onnxruntime_calls(converted, rows, batch)}


def make():
    """Trains the models, unless an earlier run has."""
    data, labels = trained()
    if not (FOLDER / "xgboost.json").exists():
        xgboost.XGBClassifier(n_estimators=500, max_depth=6).fit(data, labels).save_model(FOLDER / "xgboost.json")
    if not (FOLDER / "model.txt").exists():
        fitted = lightgbm.LGBMClassifier(n_estimators=500, num_leaves=31, verbose=-1).fit(data, labels)
        fitted.booster_.save_model(FOLDER / "model.txt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--filter", default="")
    options = parser.parse_args()
    make()
    rows = Rows()
    for name, kind, shown in MODELS:
        path = FOLDER / name
        batches = [batch for batch in BATCHES if options.filter in f"{shown}, batch {batch}"]
        calls = {batch: contenders(path, rows, batch) for batch in batches}
        least = {batch: dict.fromkeys(["ours", *calls[batch]], float("inf")) for batch in batches}
        for _ in range(options.rounds):
            own = ours(path, kind)
            for batch in batches:
                figures = {"ours": own[batch]} | {name: times(call, batch) for name, call in calls[batch].items()}
                least[batch] = {name: min(least[batch][name], figure) for name, figure in figures.items()}
        for batch, figures in least.items():
            ratio = figures["ours"] / min(figure for name, figure in figures.items() if name != "ours")
            cells = " | ".join(f"{figure:.1f}" for figure in figures.values())
            print(f"| {shown}, batch {batch} | {cells} | {ratio:.2f} |", flush=True)


main()
