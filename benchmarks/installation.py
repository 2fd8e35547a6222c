"""Build the wheel, install it from a folder of wheels into a bare environment, and ask it without a network.

    python -m benchmarks.installation --out docs/benchmarks/installation.md

It builds twice and compares the bytes, collects the wheels of the light installation with pip (the only step that
needs a registry), installs them with `--no-index`, and runs every verb's help, `pressbert doctor` and a first summary
in processes that end at the first socket. It fails where a promise of the README does not hold.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from apps.command import VERBS
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import ResultError, SuiteError
from corpora.foundation.files import write_text
from corpora.foundation.machine import cpu_name

ROOT = Path(__file__).resolve().parents[1]
MAX_WHEEL_BYTES = 70_000_000
MAX_FIRST_SUMMARY_S = 90.0
EXTRAS = {"": "light", "serve": "light and server"}
"""Extras that are measured, with their names in the table."""
NEEDED = (
    "downstream/bundled/encoder/model.safetensors",
    "downstream/bundled/classifier/model.safetensors",
    "downstream/bundled/embedder/model.safetensors",
    "downstream/bundled/summarizer/summarizer.json",
    "corpora/sample/news.jsonl",
    "corpora/texts/ko.toml",
    "apps/stories/linking/background.safetensors",
    "pressbert/__init__.py",
)
GUARD = """
import sys
def guard(event, arguments):
    if event.startswith("socket."):
        raise SystemExit(f"a socket was opened: {event} {arguments}")
sys.addaudithook(guard)
"""
SUMMARY = """
from pressbert import summarize
print(summarize("새 다리가 열렸다. 시는 다음 달 버스 노선을 바꿀 계획이다. 주민들은 반겼다.", sentences=1))
assert "torch" not in sys.modules
"""


@dataclass(frozen=True)
class Installation:
    """A bare environment with the wheel in it."""

    extra: str
    folder: Path
    install_s: float

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin" / "python")

    @property
    def size_bytes(self) -> int:
        """Of what pip installed, pip and setuptools left out."""
        left_out = ("/pip", "/setuptools", "/pkg_resources", "/_distutils_hack", "/__pycache__")
        [packages] = self.folder.glob("lib/python*/site-packages")
        files = (path for path in packages.rglob("*") if path.is_file())
        kept = (path for path in files if not any(part in str(path)[len(str(packages)) :] for part in left_out))
        return sum(path.stat().st_size for path in kept)


def run(command: list[str], **environment: str) -> str:
    """Run a command and return what it prints.

    Raises:
        ResultError: it fails.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command, cwd=ROOT.parent, env=inherited | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise ResultError(" ".join(command)[:200], f"exit code {done.returncode} ({lines[-1]})", "see the command")
    return done.stdout


def build(out: Path) -> Path:
    """Build one wheel from the sources and return its path."""
    run([sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)])
    [wheel] = out.glob("*.whl")
    return wheel


def check_wheel(wheel: Path) -> Mapping[str, str]:
    """Check size and contents; returns lines for the page.

    Raises:
        ResultError: it is too large, or lacks or has what it should not.
    """
    size = wheel.stat().st_size
    if size > MAX_WHEEL_BYTES:
        raise ResultError(wheel, f"{size / 1e6:.1f} MB are more than {MAX_WHEEL_BYTES / 1e6:.0f}", "leave data out")
    names = zipfile.ZipFile(wheel).namelist()
    if missing := [name for name in NEEDED if name not in names]:
        raise ResultError(wheel, f"it lacks {', '.join(missing)}", "add it to package-data in pyproject.toml")
    if foreign := [name for name in names if name.startswith(("tests/", "benchmarks/", "docs/", "examples/"))]:
        raise ResultError(wheel, f"it holds {foreign[0]}", "correct packages.find in pyproject.toml")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return {"wheel": f"{size / 1e6:.1f} MB, {len(names)} files", "sha256 of two builds": f"{digest[:16]}…, equal"}


def install(wheel: Path, extra: str, wheels: Path, folder: Path) -> Installation:
    """Install the wheel from a folder of wheels, without an index."""
    venv.create(folder, with_pip=True)
    source = ["--no-index", "--find-links", str(wheels)]
    target = f"pressbert[{extra}] @ file://{wheel}" if extra else str(wheel)
    began = time.perf_counter()
    run([str(folder / "bin" / "pip"), "install", "--quiet", *source, target], PIP_CONFIG_FILE=os.devnull)
    return Installation(extra, folder, time.perf_counter() - began)


def first_summary_s(installation: Installation) -> float:
    """Return the seconds until a new process has printed its first summary; a socket ends it.

    Raises:
        ResultError: it opens a socket, imports PyTorch, or takes longer than promised.
    """
    began = time.perf_counter()
    printed = run([installation.python, "-c", GUARD + SUMMARY])
    seconds = time.perf_counter() - began
    if "시는" not in printed or seconds > MAX_FIRST_SUMMARY_S:
        raise ResultError("first summary", f"{printed!r} after {seconds:.0f} s", "see the command")
    return seconds


def check_verbs(installation: Installation) -> int:
    """Ask every verb for its help; those that need another extra must say so in one line. Returns how many ran."""
    ran = 0
    for verb in VERBS:
        command = [installation.python, "-m", "pressbert", verb, "--help"]
        done = subprocess.run(command, cwd=installation.folder, capture_output=True, text=True, check=False)
        needs_extra = done.returncode == 2 and "pip install 'pressbert[" in done.stderr
        if done.returncode and not (needs_extra and len(done.stderr.splitlines()) == 1):
            raise ResultError(f"pressbert {verb}", done.stderr.strip()[-200:], "see the command")
        ran += done.returncode == 0
    return ran


@contextlib.contextmanager
def working_folder(given: Path | None) -> Iterator[Path]:
    """Yield a folder: GIVEN, or one that is removed."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="pressbert-installation-") as name:
        yield Path(name)


def measure(work: Path) -> str:
    """Build, install and ask; returns the page."""
    first, second = build(work / "first"), build(work / "second")
    if first.read_bytes() != second.read_bytes():
        raise ResultError(first, "two builds differ", "find the file that differs with diffoscope")
    facts = dict(check_wheel(first))
    rows = []
    for extra, title in EXTRAS.items():
        wheels, target = work / f"wheels-{extra or 'core'}", f"{ROOT}[{extra}]" if extra else str(ROOT)
        pins = ["--constraint", str(ROOT / "constraints.txt")]
        run([sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(wheels), *pins, target])
        installation = install(first, extra, wheels, work / f"venv-{extra or 'core'}")
        summary_s, again_s = first_summary_s(installation), first_summary_s(installation)
        verbs = check_verbs(installation)
        report = json.loads(run([installation.python, "-c", f"{GUARD}from apps.doctor import main; main(['--json'])"]))
        if bad := [name for name, tool in report["tools"].items() if not tool["ok"]]:
            raise ResultError("pressbert doctor", f"{', '.join(bad)} failed", "see the command")
        size = f"{installation.size_bytes / 1e6:.0f}"
        rows.append(f"| {title} | {size} | {installation.install_s:.0f} | {summary_s:.1f} | {again_s:.1f} | {verbs} |")
    lines = [
        "# Installation",
        "",
        f"`python -m benchmarks.installation` on {cpu_name()}, Python {sys.version.split()[0]}.",
    ]
    lines += ["", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    lines += ["| installation | size MB | `pip install --no-index` s | first summary s | second process s | verbs |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: |", *rows, ""]
    lines += ["Sizes are those of the installed files, bytecode left out. No process opened a socket."]
    lines += [
        f"The column *verbs* counts those of {len(VERBS)} that need no other extra; the others name theirs in one line."
    ]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = ArgumentParser("python -m benchmarks.installation", "Build, install and ask without a network.")
    parser.add_argument("--out", type=Path, help="page to write; default: print it")
    parser.add_argument("--work", type=Path, help="folder for wheels and environments; default: a temporary one")
    arguments = parser.parse(argv)
    try:
        with working_folder(arguments.work) as work:
            page = measure(work)
    except OSError as error:
        raise SuiteError("benchmarks.installation", str(error), "give a folder with --work") from error
    if arguments.out:
        write_text(arguments.out, page)
    sys.stdout.write(page)
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
