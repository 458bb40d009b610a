"""The release of the project, played without a network: each command of the workflow is run, with programs in the place of
those that build and publish. They write down what they are asked for.
"""

import hashlib
import os
import re
import runpy
import shutil
import stat
import tarfile

import processes
import pytest
import yaml
from serving import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
RELEASE = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
VERSION = "7.8.9"
# What `cargo xtask dist` makes, without the image.
KINDS = {
    f"nereid_server-{VERSION}-py3-none-any.whl",
    f"nereid_{VERSION}-1_amd64.deb",
    f"nereid-{VERSION}-x86_64-linux.tar.gz",
    f"nereid-{VERSION}.tgz",
}
# What is on the machine of the workflow, and not here.
FOREIGN = ("cargo", "gh", "skopeo", "helm")
STAND_IN = """#!/bin/bash
input=
[ -t 0 ] || [[ "$*" != *"login "* ]] || input=" < $(cat)"
echo "$(basename "$0") $*$input" >> "$CALLS"
"""


@pytest.fixture
def project(tmp_path):
    """A checkout with what the commands read, packages as `cargo xtask dist` makes them, and programs that stand in."""
    root = tmp_path / "project"
    (root / "packaging").mkdir(parents=True)
    shutil.copy(ROOT / "packaging/release.py", root / "packaging")
    (root / "Cargo.toml").write_text(f'[workspace]\nresolver = "3"\n\n[workspace.package]\nversion = "{VERSION}"\n')
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {VERSION} (today)\n\n- New.\n\n## 7.8.8\n\n- Old.\n")
    dist = root / "target/dist"
    (dist / "image/blobs/sha256").mkdir(parents=True)
    (dist / "image/index.json").write_text("{}")
    (dist / "image/blobs/sha256/ab").write_text("blob")
    for name in KINDS:
        (dist / name).write_text(name)
    for program in (*(root / "bin" / name for name in FOREIGN), root / "target/venv/bin/python"):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(STAND_IN)
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
    return root


def play(root, job, tag=f"v{VERSION}"):
    """Runs the commands of a job, and returns what the programs were asked for that stand in."""
    calls = root.parent / "calls"
    calls.write_text("")
    variables = {
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CALLS": str(calls),
        "GITHUB_REF_NAME": tag,
        "GITHUB_REPOSITORY": "Someone/Nereid",
        "GITHUB_ACTOR": "someone",
        "GH_TOKEN": "secret",
    }
    for step in RELEASE["jobs"][job]["steps"]:
        if command := step.get("run"):
            line = ["bash", "-e", "-o", "pipefail", "-c", command]
            done = processes.run(line, cwd=root, env=variables | step.get("env", {}))
            if done.returncode:
                return done.stderr
        elif "download-artifact" in step["uses"]:
            shutil.copytree(root / "target/release-files", root / step["with"]["path"], dirs_exist_ok=True)
    return calls.read_text().splitlines()


def test_the_packages_of_a_tag_are_built_tested_and_collected(project):
    made, *tested = play(project, "packages")
    assert made == "cargo xtask dist --image-repository ghcr.io/someone/nereid"
    assert tested == ["cargo xtask setup", "python -m pytest tests/packages"]
    files = project / "target/release-files/files"
    names = {path.name for path in files.iterdir()}
    image = f"nereid-{VERSION}-image.tar"
    assert names == KINDS | {image, "SHA256SUMS"}
    with tarfile.open(files / image) as archive:
        assert {"index.json", "blobs/sha256/ab"} <= set(archive.getnames())
    sums = dict(reversed(line.split()) for line in (files / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((files / name).read_bytes()).hexdigest() for name in KINDS | {image}}
    assert (project / "target/release-files/notes.md").read_text() == "- New.\n"


def test_a_release_is_published_with_its_notes_its_image_and_its_chart(project):
    play(project, "packages")
    create, login, copy, chart_login, push = play(project, "publish")
    assert create.startswith(f"gh release create v{VERSION} release/files/SHA256SUMS release/files/nereid-{VERSION}-image.tar ")
    assert create.endswith(f"--repo Someone/Nereid --verify-tag --title Nereid {VERSION} --notes-file release/notes.md")
    assert login == "skopeo login ghcr.io --username someone --password-stdin < secret"
    assert copy == f"skopeo copy oci-archive:release/files/nereid-{VERSION}-image.tar docker://ghcr.io/someone/nereid:{VERSION}"
    assert chart_login == "helm registry login ghcr.io --username someone --password-stdin < secret"
    assert push == f"helm push release/files/nereid-{VERSION}.tgz oci://ghcr.io/someone/nereid/charts"
    assert play(project, "pypi") == []
    assert [path.suffix for path in (project / "wheels").iterdir()] == [".whl"]


def test_a_changed_file_is_not_published(project):
    play(project, "packages")
    shutil.copytree(project / "target/release-files", project / "release")
    with open(project / f"target/release-files/files/nereid-{VERSION}-image.tar", "ab") as file:
        file.write(b"more")
    assert "did NOT match" in play(project, "publish")


@pytest.mark.parametrize(
    ("tag", "path", "text"),
    [
        ("v1.0", None, f"a release of it has the tag v{VERSION}"),
        (f"v{VERSION}", "CHANGELOG.md", f"CHANGELOG.md has no section '## {VERSION}'"),
        (f"v{VERSION}", f"target/dist/nereid_{VERSION}-1_amd64.deb", f"has 0 files nereid_{VERSION}-*.deb"),
        (f"v{VERSION}", f"target/dist/nereid-{VERSION}.tgz", f"has 0 files nereid-{VERSION}.tgz"),
        (f"v{VERSION}", "target/dist/image/index.json", "has no image"),
    ],
)
def test_what_a_release_lacks_is_named(project, tag, path, text):
    if path == "CHANGELOG.md":
        (project / path).write_text("# Changelog\n\n## Unreleased\n")
    elif path:
        (project / path).unlink()
    assert text in play(project, "packages", tag)


def steps():
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job["steps"]:
                yield path.name, job, step


def test_the_commands_of_workflows_exist():
    """The programs of this repository that they name are there, and so are the chores."""
    chores = (ROOT / "xtask/src/main.rs").read_text()
    named = set()
    for name, _, step in steps():
        for command in re.findall(r"cargo xtask (\w+)", step.get("run", "")):
            assert f'"{command}" =>' in chores, f"{name}: cargo xtask {command}"
            named.add(command)
        for path in re.findall(r"(?<![\w/.])(?:packaging|tests|\.ci)/[\w./]+", step.get("run", "")):
            assert (ROOT / path).exists(), f"{name}: {path}"
            named.add(path)
    assert {"dist", "setup", "packaging/release.py", "tests/packages", ".ci/run"} <= named


def test_workflows_have_limits_and_no_more_rights_than_they_need():
    for name, job, step in steps():
        assert job["timeout-minutes"] <= 90, name
        assert "@" in step.get("uses", "@"), f"{name}: an action without a version"
    rights = {name: job.get("permissions", {}) for name, job in RELEASE["jobs"].items()}
    assert rights == {"packages": {}, "publish": {"contents": "write", "packages": "write"}, "pypi": {"id-token": "write"}}
    for path in WORKFLOWS:
        assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}, path.name
    published = [job["if"] for job in RELEASE["jobs"].values() if "needs" in job]
    assert all(condition.startswith("github.ref_type == 'tag'") for condition in published) and len(published) == 2


def test_the_version_and_the_changelog_of_this_repository_are_understood():
    release = runpy.run_path(str(ROOT / "packaging/release.py"), run_name="release")
    version = release["version_of"](ROOT)
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert release["notes_of"](ROOT, "Unreleased") or release["notes_of"](ROOT, version)
