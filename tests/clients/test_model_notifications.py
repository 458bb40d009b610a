"""Polled repositories whose changes the file system tells of, long before the interval is over."""

import contextlib
import os
import shutil

import pytest
from adders import adds, answer, repository_of, write_adder
from protocols import HTTP
from serving import eventually


@pytest.fixture
def folder(tmp_path):
    """A repository of the model `a`, which adds 1."""
    return repository_of(tmp_path, "a")


def notifications(server):
    """How many queues of the file system's notifications the server has open."""
    folder = f"/proc/{server.process.pid}/fd"
    targets = []
    for number in os.listdir(folder):
        # A descriptor may have been closed since.
        with contextlib.suppress(OSError):
            targets.append(os.readlink(f"{folder}/{number}"))
    return targets.count("anon_inode:inotify")


SELDOM = ("--model-control-mode=poll", "--repository-poll-secs=86400", "--repository-settle-ms=100")


def test_the_file_system_tells_of_changes_long_before_the_interval_is_over(start, folder):
    server = start(folder, *SELDOM)
    with HTTP.connect(server) as client:
        write_adder(folder, "a", 2)
        eventually(lambda: adds(HTTP, client, "a", 2), "the changed model")
        write_adder(folder, "c", 3)
        eventually(lambda: adds(HTTP, client, "c", 3), "the new model")
        shutil.rmtree(folder / "c")
        eventually(lambda: not client.is_model_ready("c"), "the deleted model")


def test_a_repository_that_is_deleted_and_made_again_is_watched_again(start, folder):
    server = start(folder, *SELDOM)
    with HTTP.connect(server) as client:
        shutil.rmtree(folder)
        # A repository that cannot be read unloads nothing.
        eventually(lambda: "the models of a repository stay as they are" in server.log(), "the loss to be seen")
        assert answer(HTTP, client, "a") == 1
        write_adder(folder, "a", 2)
        eventually(lambda: adds(HTTP, client, "a", 2), "the model of the new repository")


def test_without_an_interval_and_in_other_modes_nothing_is_watched(start, folder):
    never = ("--model-control-mode=poll", "--repository-poll-secs=0")
    for options, expected in ((SELDOM, 1), (never, 0), ((), 0), (("--model-control-mode=explicit", "--load-model=*"), 0)):
        server = start(folder, *options).wait_until_ready()
        assert notifications(server) == expected, options
