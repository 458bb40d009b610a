#!/usr/bin/env python3
"""What a release needs beside its packages (.github/workflows/release.yml).

release.py check TAG            the tag is `v` and the version of the workspace, and the changelog has a section for it
release.py collect DIST RELEASE copies the packages that `cargo xtask dist` has made in DIST to RELEASE/files, the image as one
                                file, with SHA256SUMS, and writes RELEASE/notes.md, the section of the changelog
"""

import hashlib
import pathlib
import re
import shutil
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("nereid_server-{version}-*.whl", "nereid_{version}-*.deb", "nereid-{version}-*-linux.tar.gz", "nereid-{version}.tgz")
# A layout of the Open Container Initiative, which tools read from one file as `oci-archive`.
IMAGE = "image"


def version_of(root):
    manifest = (root / "Cargo.toml").read_text()
    return re.search(r'^\[workspace\.package\][^\[]*?^version = "([^"]+)"', manifest, re.MULTILINE | re.DOTALL)[1]


def notes_of(root, title):
    """The section of the changelog with this title, or None."""
    sections = re.split(r"^## (.+)\n", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    for name, text in zip(sections[::2], sections[1::2]):
        if name.split()[0] == title:
            return text.strip() + "\n"
    return None


def check(root, tag):
    version = version_of(root)
    if tag != f"v{version}":
        sys.exit(f"error: the tag is {tag}, and the version in Cargo.toml is {version}: a release of it has the tag v{version}")
    if notes_of(root, version) is None:
        sys.exit(f"error: CHANGELOG.md has no section '## {version}': rename '## Unreleased'")


def collect(root, dist, release):
    version = version_of(root)
    files = release / "files"
    files.mkdir(parents=True)
    for pattern in PACKAGES:
        found = sorted(dist.glob(pattern.format(version=version)))
        if len(found) != 1:
            sys.exit(f"error: {dist} has {len(found)} files {pattern.format(version=version)}, and needs one")
        shutil.copy(found[0], files)
    if not (dist / IMAGE / "index.json").is_file():
        sys.exit(f"error: {dist / IMAGE} has no image")
    with tarfile.open(files / f"nereid-{version}-image.tar", "w") as archive:
        for path in sorted((dist / IMAGE).rglob("*")):
            archive.add(path, path.relative_to(dist / IMAGE), recursive=False)
    sums = [f"{digest_of(path)}  {path.name}\n" for path in sorted(files.iterdir())]
    (files / "SHA256SUMS").write_text("".join(sums))
    # A trial run has no section of its version yet.
    (release / "notes.md").write_text(notes_of(root, version) or notes_of(root, "Unreleased") or "")


def digest_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check", tag]:
            check(ROOT, tag)
        case ["collect", dist, release]:
            collect(ROOT, pathlib.Path(dist), pathlib.Path(release))
        case _:
            sys.exit(__doc__)
