"""A lock lets one process at a time through, says that another waits, and ends with its process."""

import subprocess
import sys
from pathlib import Path

from corpora.foundation.files import LOCK_FILE, locked, remove_lock

CHILD = """
import sys, time
from pathlib import Path
from corpora.foundation.files import locked
with locked(Path(sys.argv[1]), "the cell"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
print("released", flush=True)
"""
ROOT = Path(__file__).resolve().parents[3]


def child(path: Path, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CHILD, str(path), str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_second_process_waits_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "folder" / ".lock"
    with locked(path):
        waiting = child(path, 0)
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "the cell: another process runs it; waiting\n"
        assert waiting.poll() is None
    assert waiting.communicate(timeout=60)[0] == "held\nreleased\n"
    assert waiting.returncode == 0


def test_a_lock_ends_when_its_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with child(path, 600) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    with locked(path):
        pass


def test_the_lock_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    path = tmp_path / LOCK_FILE
    remove_lock(tmp_path)
    with child(path, 600) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        remove_lock(tmp_path)
        assert path.exists()
        holder.kill()
    remove_lock(tmp_path)
    assert not path.exists()
