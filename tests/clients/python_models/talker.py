"""Prints, by itself and by a child process."""

import subprocess
import sys

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        print("I begin")
        print("careful", file=sys.stderr)

    def execute(self, requests):
        print("one\ntwo \"quoted\"")
        subprocess.run(["echo", "a child"], check=True)
        sys.stdout.write("without an end")
        sys.stdout.flush()
        return [pb_utils.InferenceResponse([]) for _ in requests]
