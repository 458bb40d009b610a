"""Trains a forest of scikit-learn on the digits that `train.py` trains with, and writes it as a model of the backend `fil`.

Usage: train_forest.py FOLDER. Writes FOLDER/models/digits_forest (config.pbtxt, 1/checkpoint.tl).
"""

import pathlib
import sys

import numpy as np
import treelite.sklearn
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

# The forest tells its inputs and outputs.
CONFIG = """\
name: "digits_forest"
backend: "fil"
max_batch_size: 64
parameters { key: "predict_proba" value: { string_value: "true" } }
# Requests that arrive within half a millisecond of each other are run together.
dynamic_batching { max_queue_delay_microseconds: 500 }
"""


def main():
    folder = pathlib.Path(sys.argv[1])
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    # The same digits are kept from training as in train.py.
    seen, _, seen_labels, _ = train_test_split(images, labels, test_size=360, random_state=7, stratify=labels)
    forest = RandomForestClassifier(100, random_state=7).fit(seen, seen_labels)
    nodes = sum(tree.tree_.node_count for tree in forest.estimators_)
    print(f"   {len(seen)} images, {len(forest.estimators_)} trees, {nodes} nodes")

    version = folder / "models" / "digits_forest" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    treelite.sklearn.import_model(forest).serialize(str(version / "checkpoint.tl"))
    print(f"   wrote {version.parent}")


main()
