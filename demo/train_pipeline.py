"""Trains a pipeline of scikit-learn on the digits that `train.py` trains with, and writes it as a model in Python.

Usage: train_pipeline.py FOLDER. Writes FOLDER/models/digits_pipeline/1 (model.py, pipeline.pickle).
"""

import pathlib
import pickle
import shutil
import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler


def main():
    folder = pathlib.Path(sys.argv[1])
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    # The same digits are kept from training as in train.py.
    seen, _, seen_labels, _ = train_test_split(images, labels, test_size=360, random_state=7, stratify=labels)
    pipeline = make_pipeline(PCA(24), PolynomialFeatures(2), StandardScaler(), LogisticRegression(max_iter=200))
    pipeline.fit(seen, seen_labels)
    print(f"   {len(seen)} images, {len(pipeline)} steps: {', '.join(type(part).__name__ for _, part in pipeline.steps)}")

    version = folder / "models" / "digits_pipeline" / "1"
    version.mkdir(parents=True, exist_ok=True)
    shutil.copy(pathlib.Path(__file__).parent / "pipeline_model.py", version / "model.py")
    with open(version / "pipeline.pickle", "wb") as file:
        pickle.dump(pipeline, file)
    print(f"   wrote {version.parent}")


main()
