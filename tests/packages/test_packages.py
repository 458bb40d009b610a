"""Each package, installed in a clean place, serves a model, and brings what it must bring."""

import gzip
import json
import os
import pathlib
import re
import shutil
import sys
import sysconfig

import processes
import pytest
from conftest import DIST, ROOT, package
from running import ENVIRONMENT, PATIENCE, ask, can, free_ports, is_root, running

SUMS = {"OUTPUT0": 4, "OUTPUT1": 2}


def run(*line, **named):
    # pip may download packages.
    return processes.run(line, check=True, timeout=200, **named).stdout


def check_licences(folder):
    """The licences of the server and of its parts, and a list of the parts that names each one's licence."""
    assert "Apache License" in (folder / "LICENSE").read_text()
    notices = (folder / "THIRD-PARTY-LICENSES.txt").read_text()
    parts = json.loads((folder / "nereid.cdx.json").read_text())
    assert parts["bomFormat"] == "CycloneDX" and len(parts["components"]) > 100
    for part in parts["components"]:
        assert f"{part['name']} {part['version']}: " in notices
        assert part["licenses"][0]["expression"] and len(part["hashes"][0]["content"]) == 64
    names = {part["name"] for part in parts["components"]}
    assert {"tokio", "hyper", "rustls"} <= names
    assert not names & {"criterion", "loom", "proptest"}, "what only tests use is no part"


def check_names(programs):
    """The program has the names by which Triton and SageMaker's script are started."""
    for name in ("tritonserver", "serve"):
        assert run(programs / name, "--version").startswith("nereid "), name


def test_the_wheel_installs_a_server_that_uses_the_onnxruntime_of_its_environment(tmp_path, repository_folder):
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", environment)
    run(environment / "bin/pip", "install", "--disable-pip-version-check", package("nereid_server-*.whl"))
    # The environment is not active.
    line = [environment / "bin/nereid", f"--model-repository={repository_folder}"]
    with running(line, tmp_path / "log") as port:
        assert ask(port) == SUMS
    # As the quick start does it. The models in Python run with the interpreter of the environment: no other one is found.
    line = [environment / "bin/nereid", f"--model-repository={ROOT / 'examples/models'}"]
    with running(line, tmp_path / "examples", {"PATH": str(tmp_path)}):
        assert "successfully loaded 'counter'" in (tmp_path / "examples").read_text()
    log = (tmp_path / "log").read_text()
    assert str(environment) in log and "onnxruntime" in log
    ask_package = "import nereid_server as n; print(n.BINARY, n.LIBRARY, n.HEADER)"
    for path in run(environment / "bin/python", "-c", ask_package).split():
        assert os.path.isfile(path), path
    assert "nereid" in run(environment / "bin/python", "-m", "nereid_server", "--version")
    program = "import sys, nereid_server\nwith nereid_server.Server(sys.argv[1]) as server: print(server.models(), server.config('add_sub'))"
    assert "'add_sub'" in run(environment / "bin/python", "-c", program, repository_folder)
    check_names(environment / "bin")
    (information,) = environment.glob("lib/python3*/site-packages/nereid_server-*.dist-info")
    places = information / "licenses", information / "sboms"
    together = tmp_path / "together"
    together.mkdir()
    for place in places:
        for file in place.iterdir():
            shutil.copy(file, together)
    check_licences(together)


def test_the_demo_needs_nothing_but_the_wheel(tmp_path):
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", environment)
    run(environment / "bin/pip", "install", "--disable-pip-version-check", "--no-deps", package("nereid_server-*.whl"))
    # Its requirements are large. They are those of the environment that runs the tests.
    (site,) = environment.glob("lib/python3*/site-packages")
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib"))
    line = [environment / "bin/python", "-m", "nereid_server.demo", "--once", "--port-base"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    library = next((ROOT / "target/onnxruntime").glob("libonnxruntime.so*"))
    told = run(*line, free_ports(3), env=ENVIRONMENT | {"NEREID_ONNXRUNTIME_LIBRARY": str(library), "TMPDIR": str(temporary)})
    assert list(temporary.iterdir()) == []
    assert "12 of 12 right" in told and "Python       355 of 360 right" in told, told


def test_programs_in_c_are_built_with_the_wheel(tmp_path):
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", environment)
    run(environment / "bin/pip", "install", "--disable-pip-version-check", "--no-deps", package("nereid_server-*.whl"))
    source = tmp_path / "version.c"
    source.write_text(
        "#include <nereid.h>\n#include <stdio.h>\n"
        "int main(void) { uint32_t major, minor;\n"
        "  if (TRITONSERVER_ApiVersion(&major, &minor)) return 1;\n"
        '  printf("%u", major); return 0; }\n'
    )
    library = environment / "lib"
    options = ["-I", environment / "include", "-L", library, "-ltritonserver", f"-Wl,-rpath,{library}"]
    run("gcc", source, "-o", tmp_path / "version", *options)
    assert run(tmp_path / "version") == "1"


def test_the_archive_serves_where_it_was_unpacked(tmp_path, repository_folder):
    run("tar", "--extract", "--file", package("nereid-*-linux.tar.gz"), "--directory", tmp_path)
    (tree,) = tmp_path.glob("nereid-*")
    with running([tree / "bin/nereid", f"--model-repository={repository_folder}"], tmp_path / "log") as port:
        assert ask(port) == SUMS
    assert str(tree / "lib/libonnxruntime") in os.path.realpath(next((tree / "lib").glob("libonnxruntime*")))
    check_names(tree / "bin")
    check_licences(tree / "share/doc/nereid")
    assert (tree / "share/doc/nereid/onnxruntime/LICENSE").is_file()
    assert "NEREID_HTTP_PORT" in (tree / "share/man/man1/nereid.1").read_text()


@pytest.fixture
def installed(tmp_path):
    """A root with nothing but the Debian package."""
    root = tmp_path / "root"
    for folder in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "etc", "var/log"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    # The packages that it depends on are those of this machine.
    force = ["--force-script-chrootless", "--force-depends", "--force-not-root"]
    run("dpkg", f"--root={root}", *force, "--install", package("nereid_*.deb"))
    return root


@pytest.mark.skipif(not is_root(), reason="only the superuser gives files to other users")
def test_the_debian_package_makes_a_user_and_folders_and_serves(installed, tmp_path, repository_folder):
    (user,) = [line for line in (installed / "etc/passwd").read_text().splitlines() if line.startswith("nereid:")]
    uid = int(user.split(":")[2])
    models = installed / "var/lib/nereid/models"
    assert (models.stat().st_uid, models.stat().st_mode & 0o777) == (uid, 0o750)
    settings = installed / "etc/nereid.toml"
    assert str(pathlib.PurePosixPath("/", models.relative_to(installed))) in settings.read_text()
    settings.write_text(settings.read_text().replace("/var/", f"{installed}/var/"))
    (models / "add_sub").symlink_to(repository_folder / "add_sub")
    line = [installed / "usr/bin/nereid", f"--config={settings}"]
    with running(line, tmp_path / "log") as port:
        assert ask(port) == SUMS
    check_names(installed / "usr/bin")
    check_licences(installed / "usr/share/doc/nereid")
    share = installed / "usr/share"
    assert "http-port" in (share / "bash-completion/completions/nereid").read_text()
    assert b"NEREID_HTTP_PORT" in gzip.decompress((share / "man/man1/nereid.1.gz").read_bytes())
    assert "/etc/nereid.toml" in run("dpkg", f"--root={installed}", "--status", "nereid")
    run("dpkg", f"--root={installed}", "--force-script-chrootless", "--force-not-root", "--remove", "nereid")
    assert not (installed / "usr/bin/nereid").exists() and models.exists(), "models stay"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_understands_the_units(tmp_path):
    root = tmp_path / "root"
    run("dpkg-deb", "--extract", package("nereid_*.deb"), root)
    units = root / "usr/lib/systemd/system"
    # The program and the file of options are not installed on this machine.
    for unit in units.iterdir():
        unit.write_text(unit.read_text().replace("/usr/bin/nereid", str(root / "usr/bin/nereid")))
    verify = ["systemd-analyze", "verify", "--man=no", *units.iterdir()]
    found = processes.run(verify)
    ours = [line for line in found.stderr.splitlines() if "nereid" in line]
    assert found.returncode == 0 and not ours, found.stderr


@pytest.fixture
def image(tmp_path):
    """The files of the image, as a runtime of containers would unpack them, and its configuration."""
    umoci = DIST.parent / "umoci/usr/bin/umoci"
    (layout,) = [path.parent for path in DIST.glob("image/index.json")]
    (index,) = json.loads((layout / "index.json").read_text())["manifests"]
    tag = index["annotations"]["org.opencontainers.image.ref.name"]
    bundle = tmp_path / "bundle"
    run(umoci, "unpack", "--rootless", "--image", f"{layout}:{tag}", bundle)

    def blob(digest):
        return json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())

    return bundle / "rootfs", blob(blob(index["digest"])["config"]["digest"])["config"]


def test_the_image_says_how_it_runs(image):
    root, configuration = image
    assert configuration["User"] == "65534:65534"
    assert configuration["Entrypoint"] == ["/usr/bin/nereid-entrypoint"]
    assert configuration["Cmd"] == ["tritonserver", "--model-repository=/models"]
    release = run(root / "usr/bin/nereid", "--version").split()[-1]
    assert {f"TRITON_SERVER_VERSION={release}", "NVIDIA_TRITON_SERVER_VERSION=26.09"} <= set(configuration["Env"])
    assert configuration["Labels"]["com.amazonaws.sagemaker.capabilities.multi-models"] == "true"
    assert "triton-server:x:1000:1000:" in (root / "etc/passwd").read_text()
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert set(configuration["ExposedPorts"]) == {"8000/tcp", "8001/tcp", "8002/tcp"}
    assert os.readlink(root / "opt/tritonserver/bin/tritonserver") == "/usr/bin/nereid"
    assert (root / "opt/tritonserver/lib/libtritonserver.so").is_file()
    assert "BEGIN CERTIFICATE" in (root / "etc/ssl/certs/ca-certificates.crt").read_text()
    assert not (root / "bin/sh").exists()
    check_licences(root / "usr/share/doc/nereid")
    assert (root / "usr/share/doc/libc6/copyright").is_file()


# A root of one's own, which nobody can write, with the models at a place in it.
MOUNTS = 'mount --bind "$1" "$1" && mount --bind "$2" "$1$3" && mount -o remount,ro,bind "$1" && shift 3 && exec "$@"'
UNSHARE = ["unshare", "--mount", "--propagation", "private"]
MOUNTS_PERMITTED = pytest.mark.skipif(not (is_root() and can(*UNSHARE, "true")), reason="this machine does not permit mounts")


def in_image(image, user, repository_folder, place, arguments):
    """The command that runs the image with these arguments, as a runtime of containers does, and its variables."""
    root, configuration = image
    (root / place[1:]).mkdir(parents=True, exist_ok=True)
    inside = ["chroot", f"--userspec={user}", root, *configuration["Entrypoint"], *arguments]
    variables = dict(variable.split("=", 1) for variable in configuration["Env"])
    variables["PATH"] += ":/usr/sbin:/sbin:/bin"
    return [*UNSHARE, "sh", "-c", MOUNTS, "sh", root, repository_folder, place, *inside], variables


@MOUNTS_PERMITTED
def test_any_user_runs_the_image_on_a_root_that_nobody_can_write(image, tmp_path, repository_folder):
    # No file knows this user.
    line, variables = in_image(image, "12345:54321", repository_folder, "/models", image[1]["Cmd"])
    with running(line, tmp_path / "log", variables) as port:
        assert ask(port) == SUMS


KSERVE = ["--model-store=/mnt/models", "--grpc-port=9000", "--http-port=8080", "--allow-grpc=true", "--allow-http=true"]
GKE = ["--model-store=/models", "--strict-model-config=False", "--log-verbose=0", "--allow-gpu-metrics=True"]
VERTEX = {
    "AIP_MODE": "PREDICTION",
    "AIP_HTTP_PORT": "0",
    "AIP_PREDICT_ROUTE": "/v1/endpoints/1/deployedModels/2:predict",
    "AIP_HEALTH_ROUTE": "/v1/endpoints/1/deployedModels/2",
    "AIP_STORAGE_URI": "/models",
}
# Recorded from the public sources, with repositories that are folders: the folder, the arguments and variables that the
# container gets, and the path of a request. The charts are those of Triton's repository, below `deploy`.
STARTS = {
    "KServe": ("/mnt/models", ["tritonserver", *KSERVE], {}, None),
    "SageMaker": ("/opt/ml/model", ["serve"], {"SAGEMAKER_BIND_TO_PORT": "0"}, "/invocations"),
    "Vertex AI": ("/models", ["--strict-model-config=false"], VERTEX, VERTEX["AIP_PREDICT_ROUTE"]),
    "k8s-onprem": ("/models", ["tritonserver", "--model-repository=/models"], {}, None),
    "aws": (
        "/models",
        ["tritonserver", "--model-store=/models", "--model-control-mode=poll", "--repository-poll-secs=5"],
        {},
        None,
    ),
    "gcp": ("/models", ["tritonserver", "--model-store=/models"], {}, None),
    "gke-marketplace-app": ("/models", ["tritonserver", *GKE], {"LD_PRELOAD": ""}, None),
}


@MOUNTS_PERMITTED
@pytest.mark.parametrize("platform", STARTS)
def test_platforms_and_charts_start_the_image_as_they_start_triton(platform, image, tmp_path, repository_folder):
    place, arguments, given, path = STARTS[platform]
    line, variables = in_image(image, "1000:1000", repository_folder, place, arguments)
    with running(line, tmp_path / "log", variables | given) as port:
        assert (ask(port, path) if path else ask(port)) == SUMS


def test_tritonserver_of_the_archive_takes_the_lines_of_platforms(tmp_path, repository_folder):
    run("tar", "--extract", "--file", package("nereid-*-linux.tar.gz"), "--directory", tmp_path)
    (tree,) = tmp_path.glob("nereid-*")
    for number, options in enumerate((KSERVE, GKE)):
        options = [option.replace("/mnt/models", "/models").replace("/models", str(repository_folder)) for option in options]
        with running([tree / "bin/tritonserver", *options], tmp_path / f"log-{number}") as port:
            assert ask(port) == SUMS


def test_the_chart_has_what_stands_elsewhere_and_the_version(tmp_path):
    """What Helm makes of it: tests/clients/test_chart.py."""
    archive = package("nereid-*.tgz")
    run("tar", "--extract", "--file", archive, "--directory", tmp_path)
    sources, chart = ROOT / "packaging/helm/nereid", tmp_path / "nereid"
    version = archive.name.removeprefix("nereid-").removesuffix(".tgz")
    manifest = (chart / "Chart.yaml").read_text()
    assert f"\nversion: {version}\nappVersion: {version}\n" in manifest
    # As the image of the same version has it: its tag is what the chart names.
    (index,) = json.loads((DIST / "image/index.json").read_text())["manifests"]
    assert index["annotations"]["org.opencontainers.image.ref.name"] == version
    packed = {str(path.relative_to(chart)) for path in chart.rglob("*") if path.is_file()}
    elsewhere = {"LICENSE": "LICENSE", "files/alerts.yaml": "packaging/prometheus/alerts.yaml"}
    elsewhere["files/nereid.json"] = "packaging/grafana/nereid.json"
    own = {str(path.relative_to(sources)) for path in sources.rglob("*") if path.is_file()}
    assert packed == own | set(elsewhere)
    unchanged = own - {"Chart.yaml", "values.yaml"}
    for name, source in elsewhere.items() | {(name, f"packaging/helm/nereid/{name}") for name in unchanged}:
        assert (chart / name).read_bytes() == (ROOT / source).read_bytes(), name
    # A release names its own image.
    values = (chart / "values.yaml").read_text()
    (image,) = re.findall(r"^  repository: (\S+)$", values, re.MULTILINE)
    assert values.replace(image, "nereid", 1) == (sources / "values.yaml").read_text()


def test_a_release_has_all_packages(tmp_path):
    """What the workflow of releases publishes: .github/workflows/release.yml."""
    run(sys.executable, ROOT / "packaging/release.py", "collect", DIST, tmp_path / "release")
    files = tmp_path / "release/files"
    for pattern in ("nereid_server-*.whl", "nereid_*.deb", "nereid-*-linux.tar.gz", "nereid-*-image.tar", "nereid-*.tgz"):
        assert len(list(files.glob(pattern))) == 1, pattern
    run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=files)
    (tmp_path / "image").mkdir()
    run("tar", "--extract", "--file", *files.glob("nereid-*-image.tar"), "--directory", tmp_path / "image")
    assert (tmp_path / "image/index.json").read_bytes() == (DIST / "image/index.json").read_bytes()
