"""Is loaded with any configuration, and answers nothing."""


class TritonPythonModel:
    def execute(self, requests):
        return [None for _ in requests]
