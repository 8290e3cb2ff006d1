"""Jobs of several processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import APPS, EXAMPLES


@pytest.mark.parametrize("path", ["nic", "p2p"])
def test_operations_reach_other_pes(passes, path):
    passes("operations.py", 3, RUSHMEM_PEER_PATH=path)


def test_teams_have_collective_calls(passes):
    passes("teams.py", 4)


@pytest.mark.parametrize("how", ["--die", "--raise"])
def test_living_pes_go_on(run_job, how):
    job = run_job(APPS / "survivors.py", 3, how)
    assert job.returncode == 0 and job.stdout.count("PASS") == 2, job.stdout + job.stderr


def test_arrays_are_saved_and_restored(passes, tmp_path):
    passes("checkpoint.py", 3, str(tmp_path))


def test_example_runs(run_job):
    job = run_job(EXAMPLES / "ring.py", 4)
    assert job.returncode == 0 and job.stdout.count("PASS ring") == 4, job.stdout + job.stderr


def test_programs_that_do_not_finalize_end_normally(passes):
    passes("unfinished.py", 2)


def test_an_exception_reaches_the_other_pes(run_job):
    job = run_job(APPS / "failing.py", 2)
    assert job.returncode != 0
    assert "SEEN PeerLostError" in job.stdout and "ValueError: no more bananas" in job.stdout, job.stdout + job.stderr


def test_an_uncaught_exception_without_a_block_aborts_the_job(run_job):
    job = run_job(APPS / "failing.py", 2, "--no-block")
    assert job.returncode != 0
    assert "SEEN PeerLostError" in job.stdout and "ValueError: no more bananas" in job.stdout, job.stdout + job.stderr


def test_processes_meet_in_a_store(tmp_path):
    command = [sys.executable, str(APPS / "store.py"), str(tmp_path)]
    pes = [subprocess.Popen([*command, str(rank), "3"]) for rank in range(3)]
    assert [pe.wait(60) for pe in pes] == [0, 0, 0]


def test_ctrl_c_interrupts_a_wait():
    app = subprocess.Popen([sys.executable, str(APPS / "waiting.py")], stdout=subprocess.PIPE, text=True)
    assert app.stdout.readline() == "WAITS\n"
    time.sleep(0.3)
    began = time.monotonic()
    app.send_signal(signal.SIGINT)
    text, _ = app.communicate(timeout=60)
    assert text == "INTERRUPTED\n" and app.returncode == 0
    assert time.monotonic() - began < 10


def test_a_missing_launcher_is_named():
    environment = {**os.environ, "PATH": "/nowhere"}
    command = [sys.executable, "-m", "rushmem", "run", "-n", "2", "app.py"]
    app = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert app.returncode == 1 and "cargo install" in app.stderr


def test_only_a_python_program_gets_the_interpreter():
    from rushmem.__main__ import command

    python = sys.executable
    assert command(["run", "-n", "2", "app.py", "x.py"]) == ["run", "-n", "2", python, "app.py", "x.py"]
    assert command(["run", "--pes=2", "app.py"]) == ["run", "--pes=2", python, "app.py"]
    for unchanged in (["run", "-n", "2", "python", "app.py"], ["run", "-n", "2", "./tool", "--config", "a.py"], ["--help"]):
        assert command(unchanged) == unchanged


def test_a_normal_exit_finalizes():
    text = "import sys, rushmem\nwith rushmem.init('native', heap='32MiB'):\n    sys.exit(0)\n"
    app = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert (app.returncode, app.stderr) == (0, "")
