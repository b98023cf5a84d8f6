"""envs/install.py, which `make` installs with: what it shows of pip's words."""

import functools
import http.server
import subprocess
import sys
import threading
import zipfile

import pytest
from conftest import ROOT

METADATA = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def index(tmp_path):
    """The address of a package index with one package, of two megabytes."""
    folder = tmp_path / "index" / "tiny"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        parts = {"METADATA": METADATA, "WHEEL": WHEEL, "RECORD": ""}
        wheel.writestr("tiny.py", "#" * 2_000_000)
        for name, text in parts.items():
            wheel.writestr(f"tiny-1.0.dist-info/{name}", text)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "index")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def install(tmp_path, index, package):
    options = ["--isolated", "--no-cache-dir", "--index-url", index, "--target", str(tmp_path / "packages")]
    command = [sys.executable, ROOT / "envs" / "install.py", tmp_path / "log", *options, package]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.slow
def test_each_download_is_a_line_with_the_megabytes_so_far_and_pips_own_words_are_in_the_log(tmp_path, index):
    done = install(tmp_path, index, "tiny")
    assert done.stdout.splitlines() == ["    1       2 MB  tiny 1.0", "  unpacking 1 packages"]
    assert (done.returncode, done.stderr) == (0, "")
    assert "Successfully installed tiny-1.0" in (tmp_path / "log").read_text()
    assert (tmp_path / "packages" / "tiny.py").exists()


@pytest.mark.slow
def test_pips_error_is_shown_and_ends_the_set_up(tmp_path, index):
    done = install(tmp_path, index, "absent==3")
    assert done.returncode == 1
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("ERROR: Could not find a version that satisfies the requirement absent==3")
    assert last == f"pip failed; all that it said is in {tmp_path / 'log'}"
