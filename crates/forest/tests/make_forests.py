"""Trains the small forests of `tests/goldens`, and writes what the libraries predict with them.

    pip install xgboost-cpu lightgbm treelite scikit-learn
    python make_forests.py

Each forest has a model file, and a text `NAME.golden` with lines of a word and its values: `format`, `features`, `outputs`,
`classifier`, `objective`, then for each row `row`, `prediction`, `margin` and, if the library explains that row,
`contributions` (features + 1 values for each output). A row holds NaN, infinities, thresholds of the model met exactly, and
categories that the training has not seen.
"""

import json
import pathlib

import lightgbm
import numpy as np
import sklearn.ensemble as ensembles
import treelite
import xgboost

HERE = pathlib.Path(__file__).parent / "goldens"
FEATURES = 4
RNG = np.random.default_rng(7)
TRAINING = RNG.normal(size=(300, FEATURES)).astype(np.float32).round(2)
TRAINING[RNG.random(TRAINING.shape) < 0.1] = np.nan
SIGNAL = np.nan_to_num(TRAINING[:, 0]) * 2 + np.abs(np.nan_to_num(TRAINING[:, 1])) - np.nan_to_num(TRAINING[:, 2])
BINARY = (SIGNAL > 0.5).astype(np.float32)
CLASSES = np.digitize(SIGNAL, [-0.5, 1.5]).astype(np.float32)
COUNTS = np.clip(np.round(np.exp(SIGNAL / 3)), 0, 9).astype(np.float32)
POSITIVE = np.exp(SIGNAL / 3).astype(np.float32)
PROBABILITY = (1 / (1 + np.exp(-SIGNAL))).astype(np.float32)
GROUPS = [30] * 10
RANKS = np.digitize(SIGNAL, [-1, 0, 1]).astype(np.float32)
CLASSIFIERS = ("binary", "multiclass", "multiclassova", "cross_entropy", "cross_entropy_lambda")
TARGETS = np.stack([SIGNAL, -SIGNAL + 1, BINARY], axis=1)

CATEGORICAL = TRAINING.copy()
CATEGORICAL[:, 1] = RNG.integers(0, 12, 300)
CATEGORICAL[:, 3] = RNG.integers(0, 70, 300)
CATEGORICAL_SIGNAL = (
    np.nan_to_num(CATEGORICAL[:, 0]) + np.isin(CATEGORICAL[:, 1], [1, 4, 7, 11]) * 2 + (CATEGORICAL[:, 3] % 3)
).astype(np.float32)


def short(value):
    """The shortest text that is read back as the same number of its type."""
    return "nan" if np.isnan(value) else "inf" if value == np.inf else "-inf" if value == -np.inf else str(value)


def rows_for(thresholds, categorical=False):
    """Ten rows of the training, then rows that meet thresholds, then extreme rows. The last three have infinities."""
    source = CATEGORICAL if categorical else TRAINING
    rows = [source[i] for i in range(6)]
    for feature in range(FEATURES):
        values = thresholds.get(feature, [])
        for k, threshold in enumerate(values[:2]):
            row = source[10 + 2 * feature + k].copy()
            row[feature] = np.float32(threshold)
            rows.append(row)
    rows.append(np.full(FEATURES, np.nan, np.float32))
    rows.append(np.zeros(FEATURES, np.float32))
    rows.append(np.full(FEATURES, -0.0, np.float32))
    if categorical:
        for one, other in [(3.0, 69.0), (2.7, 71.0), (12.0, 500.0), (np.nan, 33.0), (np.nan, np.nan)]:
            row = source[20].copy()
            row[1], row[3] = one, other
            rows.append(row)
    extreme = [[-3.0, -1.0, -2.0, -0.5], [1e30, 2e9, -1e30, 1e20]] if categorical else []
    extreme += [[np.inf, np.inf, np.inf, np.inf], [-np.inf, -np.inf, -np.inf, -np.inf], [np.inf, -np.inf, np.nan, 1.0]]
    return np.array(rows, np.float32), np.array(extreme, np.float32)


def write(name, heading, rows, predictions, margins, contributions):
    lines = [f"{word} {value}" for word, value in heading.items()]
    for i, row in enumerate(rows):
        lines.append("row " + " ".join(short(v) for v in row))
        lines.append("prediction " + " ".join(short(v) for v in np.ravel(predictions[i])))
        lines.append("margin " + " ".join(short(v) for v in np.ravel(margins[i])))
        if contributions is not None and i < len(contributions):
            lines.append("contributions " + " ".join(f"{v:.6g}" for v in np.ravel(contributions[i])))
    (HERE / f"{name}.golden").write_text("\n".join(lines) + "\n")


def softmax(margins):
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def xgboost_forest(name, labels, suffix="json", rounds=6, categorical=False, groups=None, bounds=None, **parameters):
    source = CATEGORICAL if categorical else TRAINING
    kinds = ["q", "c", "q", "c"] if categorical else None
    matrix = xgboost.DMatrix(source, labels, feature_types=kinds, enable_categorical=categorical)
    if groups:
        matrix.set_group(groups)
    if bounds is not None:
        matrix.set_float_info("label_lower_bound", bounds[0])
        matrix.set_float_info("label_upper_bound", bounds[1])
    settings = {"max_depth": 3, "eta": 0.5, "seed": 3, "nthread": 1} | parameters
    booster = xgboost.train(settings, matrix, rounds)
    booster.save_model(HERE / f"{name}.{suffix}")
    if settings.get("booster") == "gblinear":
        return
    thresholds = {}
    for line in booster.trees_to_dataframe().itertuples() if settings.get("multi_strategy") is None else []:
        if line.Feature != "Leaf" and not np.isnan(line.Split):
            thresholds.setdefault(int(line.Feature[1:]), []).append(line.Split)
    rows, extreme = rows_for(thresholds, categorical)

    def predict(kind, values):
        return np.asarray(booster.inplace_predict(values, predict_type=kind, missing=np.nan, validate_features=False))

    both = np.concatenate([rows, extreme])
    if categorical:
        # The library refuses no category of rows that come as a matrix.
        kind = xgboost.DMatrix(both[:-3], feature_types=kinds, enable_categorical=True)
        both = both[:-3]
        margins, predictions = booster.predict(kind, output_margin=True), booster.predict(kind)
    else:
        margins, predictions = predict("margin", both), predict("value", both)
    if parameters["objective"] == "multi:softmax":
        assert (predictions == margins.argmax(axis=1)).all()
        predictions = softmax(margins)
    try:
        explained = xgboost.DMatrix(rows, feature_types=kinds, enable_categorical=categorical)
        contributions = booster.predict(explained, pred_contribs=True)
    except xgboost.core.XGBoostError as error:
        print(name, "is not explained:", str(error).splitlines()[1][:100])
        contributions = None
    objective = parameters["objective"]
    heading = {
        "model": f"{name}.{suffix}",
        "format": "xgboost_ubj" if suffix == "ubj" else "xgboost_json",
        "features": FEATURES,
        "outputs": margins.reshape(len(both), -1).shape[1],
        "classifier": str(objective.startswith(("binary:", "multi:"))).lower(),
        "objective": objective,
    }
    write(name, heading, both, predictions, margins, contributions)


def lightgbm_forest(name, labels, rounds=6, categorical=False, groups=None, objective=None, source=None, **parameters):
    source = source if source is not None else CATEGORICAL if categorical else TRAINING
    data = lightgbm.Dataset(source, labels, group=groups, categorical_feature=[1, 3] if categorical else [])
    settings = {"num_leaves": 6, "learning_rate": 0.5, "verbose": -1, "min_data_in_leaf": 5, "seed": 3, "num_threads": 1}
    settings |= parameters | {"objective": objective}
    booster = lightgbm.train(settings, data, rounds)
    # What follows the trees says how the model was trained.
    text = booster.model_to_string()
    end = text.index("end of trees") + len("end of trees\n")
    (HERE / f"{name}.txt").write_text(text[:end])
    if settings.get("linear_tree"):
        return
    thresholds = {}
    for line in booster.trees_to_dataframe().itertuples():
        if line.split_feature is not None and line.decision_type == "<=":
            feature = int(line.split_feature.split("_")[1])
            # The nearest number of 32 bits may lie on either side of the threshold.
            thresholds.setdefault(feature, []).append(float(line.threshold))
    rows, extreme = rows_for(thresholds, categorical)
    both = np.concatenate([rows, extreme])
    predictions, margins = booster.predict(both), booster.predict(both, raw_score=True)
    contributions = booster.predict(rows, pred_contrib=True)
    if settings.get("boosting") == "rf":
        # The library averages before the link, but neither in raw scores nor in contributions.
        margins, contributions = margins / rounds, contributions / rounds
    heading = {
        "model": f"{name}.txt",
        "format": "lightgbm",
        "features": FEATURES,
        "outputs": margins.reshape(len(both), -1).shape[1],
        "classifier": str(objective in CLASSIFIERS).lower(),
        "objective": objective if isinstance(objective, str) else "custom",
    }
    write(name, heading, both, predictions, margins, contributions)


def treelite_forest(name, model, classifier):
    model.serialize(HERE / f"{name}.tl")
    rows, extreme = rows_for({0: [0.5, -0.5], 1: [0.25]})
    both = np.concatenate([rows, extreme])
    kind = np.float64 if model.input_type == "float64" else np.float32
    margins = treelite.gtil.predict(model, both.astype(kind), pred_margin=True, nthread=1)
    predictions = treelite.gtil.predict(model, both.astype(kind), nthread=1)
    heading = {
        "model": f"{name}.tl",
        "format": "treelite_checkpoint",
        "features": FEATURES,
        "outputs": margins.reshape(len(both), -1).shape[1],
        "classifier": str(classifier).lower(),
        "objective": json.loads(model.dump_as_json(pretty_print=False))["postprocessor"],
    }
    write(name, heading, both, predictions, margins, None)


def all_of_xgboost():
    xgboost_forest("xgboost_squared_error", SIGNAL, objective="reg:squarederror")
    xgboost_forest("xgboost_absolute_error", SIGNAL, "ubj", objective="reg:absoluteerror")
    xgboost_forest("xgboost_logistic", BINARY, "ubj", objective="binary:logistic", base_score=0.3)
    xgboost_forest("xgboost_logistic_regression", PROBABILITY, objective="reg:logistic")
    xgboost_forest("xgboost_logit_raw", BINARY, objective="binary:logitraw", base_score=0.3)
    xgboost_forest("xgboost_hinge", BINARY, "ubj", objective="binary:hinge")
    xgboost_forest("xgboost_softprob", CLASSES, rounds=3, objective="multi:softprob", num_class=3)
    xgboost_forest("xgboost_softmax", CLASSES, "ubj", rounds=3, objective="multi:softmax", num_class=3)
    xgboost_forest("xgboost_poisson", COUNTS, objective="count:poisson")
    xgboost_forest("xgboost_gamma", POSITIVE, "ubj", objective="reg:gamma")
    xgboost_forest("xgboost_tweedie", POSITIVE, objective="reg:tweedie", base_score=1.5)
    xgboost_forest("xgboost_cox", POSITIVE, objective="survival:cox")
    xgboost_forest("xgboost_aft", POSITIVE, "ubj", bounds=(POSITIVE, POSITIVE * 2), objective="survival:aft")
    xgboost_forest("xgboost_rank", RANKS, groups=GROUPS, objective="rank:ndcg")
    xgboost_forest("xgboost_quantiles", SIGNAL, rounds=3, objective="reg:quantileerror", quantile_alpha=[0.2, 0.8])
    xgboost_forest("xgboost_targets", TARGETS, rounds=3, objective="reg:squarederror")
    xgboost_forest(
        "xgboost_vector_leaves", TARGETS, "ubj", 3, objective="reg:squarederror", multi_strategy="multi_output_tree"
    )
    xgboost_forest(
        "xgboost_vector_classes", CLASSES, rounds=3, objective="multi:softprob", num_class=3, multi_strategy="multi_output_tree"
    )
    xgboost_forest(
        "xgboost_random_forest", CLASSES, "ubj", 1, objective="multi:softprob", num_class=3, num_parallel_tree=3, subsample=0.8
    )
    xgboost_forest("xgboost_dart", BINARY, objective="binary:logistic", booster="dart", rate_drop=0.4)
    xgboost_forest(
        "xgboost_categories", CATEGORICAL_SIGNAL, categorical=True, objective="reg:squarederror", max_cat_to_onehot=15
    )
    xgboost_forest(
        "xgboost_category_sets", CATEGORICAL_SIGNAL, "ubj", categorical=True, objective="reg:squarederror", max_cat_to_onehot=1
    )
    xgboost_forest("xgboost_pruned", SIGNAL, objective="reg:squarederror", gamma=30, max_depth=5)
    xgboost_forest("xgboost_linear", SIGNAL, objective="reg:squarederror", booster="gblinear")


def all_of_lightgbm():
    lightgbm_forest("lightgbm_regression", SIGNAL, objective="regression")
    lightgbm_forest("lightgbm_sqrt", SIGNAL, objective="regression", reg_sqrt=True)
    lightgbm_forest("lightgbm_l1", SIGNAL, objective="regression_l1")
    lightgbm_forest("lightgbm_huber", SIGNAL, objective="huber")
    lightgbm_forest("lightgbm_fair", SIGNAL, objective="fair")
    lightgbm_forest("lightgbm_quantile", SIGNAL, objective="quantile", alpha=0.3)
    lightgbm_forest("lightgbm_mape", POSITIVE, objective="mape")
    lightgbm_forest("lightgbm_poisson", COUNTS, objective="poisson")
    lightgbm_forest("lightgbm_gamma", POSITIVE, objective="gamma")
    lightgbm_forest("lightgbm_tweedie", POSITIVE, objective="tweedie")
    lightgbm_forest("lightgbm_binary", BINARY, objective="binary", sigmoid=1.7)
    lightgbm_forest("lightgbm_multiclass", CLASSES, rounds=3, objective="multiclass", num_class=3)
    lightgbm_forest("lightgbm_one_against_all", CLASSES, rounds=3, objective="multiclassova", num_class=3, sigmoid=0.8)
    lightgbm_forest("lightgbm_cross_entropy", PROBABILITY, objective="cross_entropy")
    lightgbm_forest("lightgbm_cross_entropy_lambda", PROBABILITY, objective="cross_entropy_lambda")
    lightgbm_forest("lightgbm_lambdarank", RANKS, groups=GROUPS, objective="lambdarank")
    lightgbm_forest("lightgbm_xendcg", RANKS, groups=GROUPS, objective="rank_xendcg")
    lightgbm_forest("lightgbm_random_forest", BINARY, objective="binary", boosting="rf", bagging_fraction=0.7, bagging_freq=1)
    lightgbm_forest("lightgbm_dart", SIGNAL, objective="regression", boosting="dart", drop_rate=0.5)
    lightgbm_forest(
        "lightgbm_categories", CATEGORICAL_SIGNAL, categorical=True, objective="regression", min_data_per_group=5, cat_smooth=1
    )
    zeros = np.where(TRAINING > 0.8, 0, TRAINING).astype(np.float32)
    lightgbm_forest("lightgbm_zero_as_missing", SIGNAL, source=zeros, objective="regression", zero_as_missing=True)
    lightgbm_forest("lightgbm_no_missing", SIGNAL, objective="regression", use_missing=False)
    lightgbm_forest("lightgbm_custom", SIGNAL, objective=lambda scores, data: (scores - data.get_label(), np.ones_like(scores)))
    full = np.nan_to_num(TRAINING)
    lightgbm_forest("lightgbm_linear", SIGNAL, rounds=2, source=full, objective="regression", linear_tree=True)


def all_of_treelite():
    data = np.nan_to_num(TRAINING)
    small = {"n_estimators": 5, "max_depth": 3, "random_state": 3}

    def sklearn(name, model, labels, classifier):
        treelite_forest(name, treelite.sklearn.import_model(model.fit(data, labels)), classifier)

    sklearn("sklearn_forest_regressor", ensembles.RandomForestRegressor(**small), SIGNAL, False)
    sklearn("sklearn_forest_classifier", ensembles.RandomForestClassifier(**small), CLASSES, True)
    sklearn("sklearn_forest_targets", ensembles.RandomForestRegressor(**small), TARGETS, False)
    sklearn("sklearn_extra_trees", ensembles.ExtraTreesClassifier(**small), BINARY, True)
    sklearn("sklearn_boosting_regressor", ensembles.GradientBoostingRegressor(**small), SIGNAL, False)
    sklearn("sklearn_boosting_classifier", ensembles.GradientBoostingClassifier(**small), BINARY, True)
    sklearn("sklearn_boosting_classes", ensembles.GradientBoostingClassifier(n_estimators=3, max_depth=2), CLASSES, True)
    sklearn("sklearn_isolation_forest", ensembles.IsolationForest(n_estimators=5, max_samples=64, random_state=3), None, False)
    histogram = ensembles.HistGradientBoostingRegressor(max_iter=4, max_leaf_nodes=6, random_state=3)
    treelite_forest("sklearn_histogram", treelite.sklearn.import_model(histogram.fit(TRAINING, SIGNAL)), False)
    boosted = treelite.frontend.load_xgboost_model(HERE / "xgboost_category_sets.ubj", format_choice="ubjson")
    treelite_forest("treelite_xgboost", boosted, False)
    treelite_forest("treelite_lightgbm", treelite.frontend.load_lightgbm_model(HERE / "lightgbm_one_against_all.txt"), True)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    all_of_xgboost()
    all_of_lightgbm()
    all_of_treelite()
