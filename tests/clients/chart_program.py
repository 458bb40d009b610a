"""Reads questions about the chart from stdin, a line of JSON for each, and answers each with a line.

It runs with an interpreter that has Helm as a library and the schemas of Kubernetes: `cargo xtask integrations` makes it. The
argument is the archive of the chart.

| question | answer |
|---|---|
| {"values": ..., "versions": [...]} | the rendered "files", and how many objects were "checked" and are "invalid" there |
| the same, of values that are refused | {"refused": the error} |
| {"lint": true, "values": ...} | {"lint": the findings} |
| {"versions": true} | {"versions": those of Kubernetes with schemas} |
"""

import functools
import json
import sys

import helm_python as helm
import kubernetes_validate
import kubernetes_validate.utils
import yaml

# A schema is read once.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)

# Their schemas are no part of Kubernetes: test_chart.py checks what matters.
OF_OTHERS = ("gateway.networking.k8s.io/", "keda.sh/", "monitoring.coreos.com/")


def documents(files):
    for name, text in files.items():
        if name.endswith(".yaml"):
            yield from ((name, document) for document in yaml.safe_load_all(text) if document)


def invalid(files, versions):
    """What is wrong with the objects, and how many were checked."""
    found, count = [], 0
    for name, document in documents(files):
        if document["apiVersion"].startswith(OF_OTHERS):
            continue
        for version in versions:
            count += 1
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                found.append(f"{name} in {version}: {'.'.join(map(str, error.path))}: {error.message[:300]}")
            except kubernetes_validate.SchemaNotFoundError as error:
                found.append(f"{name} in {version}: {error.message}")
    return {"invalid": found, "checked": count}


def answer(path, chart, question):
    if question.get("versions") is True:
        return {"versions": kubernetes_validate.utils.all_versions()}
    if question.get("lint"):
        return {"lint": helm.lint(path, question["values"], strict=True)}
    try:
        files = chart.render(question["values"], name="shop", namespace="vision")
    except helm.HelmError as error:
        return {"refused": str(error)}
    return {"files": files} | invalid(files, question.get("versions", []))


def main(path):
    chart = helm.Chart.load(path)
    for line in sys.stdin:
        print(json.dumps(answer(path, chart, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
