"""Options from the environment and from a file, and a file that changes while the server runs."""

import json
import re
import signal
import urllib.request

import processes
import pytest
from serving import BINARY, PATIENCE, http_status, run_to_end


def levels(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2/logging", timeout=PATIENCE) as answer:
        return json.load(answer)


def set_level(server, change):
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.http_port}/v2/logging", json.dumps(change).encode(), method="POST"
    )
    urllib.request.urlopen(request, timeout=PATIENCE).close()


def test_the_server_reads_variables_and_a_file(start, tmp_path, repository_folder):
    settings = tmp_path / "nereid.toml"
    settings.write_text('id = "of the file"\n[log]\nverbose = 2\nformat = "ISO8601"\n')
    variables = {"NEREID_CONFIG": str(settings), "NEREID_LOG_VERBOSE": "1"}
    server = start(repository_folder, variables=variables)
    assert (levels(server)["log_verbose_level"], levels(server)["log_format"]) == (1, "ISO8601")
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2", timeout=PATIENCE) as answer:
        assert json.load(answer)["name"] == "of the file"


def test_a_variable_with_an_error_is_named(repository_folder):
    line = ["env", "NEREID_GRPC_PORT=many", str(BINARY), f"--model-repository={repository_folder}"]
    ended = processes.run(line)
    assert ended.returncode == 1
    assert "environment variable NEREID_GRPC_PORT: " in ended.stderr


def test_a_changed_file_is_read_again_and_a_client_keeps_what_it_has_set(start, tmp_path, repository_folder):
    settings = tmp_path / "nereid.toml"
    settings.write_text("log-verbose = 1\n")
    server = start(repository_folder, f"--config={settings}")

    def hangup(text, expected):
        settings.write_text(text)
        before = server.log().count("(SIGHUP)") and server.log().count(expected)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log(expected, before + 1)

    hangup("log-verbose = 2\n", "changed: log-verbose")
    assert levels(server)["log_verbose_level"] == 2
    set_level(server, {"log_verbose_level": 3})
    hangup("log-verbose = 2\n", "none has changed")
    assert levels(server)["log_verbose_level"] == 3
    hangup("log-verbose = 2\nid = 'other'\n", "the options id have changed; the server reads them when it starts")
    hangup("log-verbose 0\n", "the options stay as they are (SIGHUP): cannot read")
    assert levels(server)["log_verbose_level"] == 3
    hangup("log-verbose = 0\nid = 'other'\n", "changed: log-verbose")
    assert levels(server)["log_verbose_level"] == 0
    assert http_status(server.http_port, "/v2/health/ready") == 200


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_and_the_manual_are_printed(shell):
    assert "http-port" in run_to_end("completions", shell).stdout
    assert "http\\-port" in run_to_end("man").stdout
    refused = run_to_end("completions", "tcsh")
    assert refused.returncode == 2 and "bash|zsh|fish" in refused.stderr


def test_bash_completes_options_and_values():
    script = """
        source <("$0" completions bash)
        complete() { COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _nereid; echo "${COMPREPLY[@]}"; }
        COMP_WORDS=(nereid --http-po); complete
        COMP_WORDS=(nereid --rate-limit = exec); complete
        COMP_WORDS=(nereid che); complete
    """
    ended = processes.run(["bash", "-c", script, BINARY], check=True)
    assert ended.stdout.splitlines() == ["--http-port", "execution_count", "check"], ended.stderr


def test_each_command_of_the_help_exists():
    commands = re.findall(r"^  nereid (\S+) ", run_to_end("--help").stdout, re.MULTILINE)
    assert {"check", "explain", "perf", "tune"} <= set(commands)
    for command in commands:
        refused = run_to_end(command, "--no-such-option")
        assert refused.returncode != 0 and "Unexpected argument" not in refused.stderr, (command, refused.stderr)
    assert "error: Unexpected argument: servers" in run_to_end("servers").stderr
    assert "Did you mean the command 'check'?" in run_to_end("chekc", "x").stderr
