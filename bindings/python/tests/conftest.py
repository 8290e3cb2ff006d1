"""Fixtures of the tests: a job of this process, and jobs of several processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rushmem

APPS = Path(__file__).parent / "apps"
EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="session", autouse=True)
def environment():
    """Small heaps, and no variables of the launcher that may have started the tests."""
    os.environ.update(RUSHMEM_DEVICE="native", RUSHMEM_HEAP_BYTES="16MiB", RUSHMEM_TIMEOUT="20s")


@pytest.fixture
def rt():
    with rushmem.init() as runtime:
        yield runtime


@pytest.fixture
def run_job():
    """Return a function that runs a program on `n` PEs, and returns the finished process."""

    def run(app, n, *arguments, **variables):
        command = [sys.executable, "-m", "rushmem", "run", "-n", str(n), str(app), *arguments]
        environment = {**os.environ, **variables}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    return run


@pytest.fixture
def passes(run_job):
    """Return a function that runs a program of `apps` on `n` PEs, each of which must print a line `PASS`."""

    def check(app, n, *arguments, **variables):
        job = run_job(APPS / app, n, *arguments, **variables)
        assert job.returncode == 0 and job.stdout.count("PASS") == n, job.stdout + job.stderr

    return check
