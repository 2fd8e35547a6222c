"""Start an image's entry point where Docker is missing: with its variables and no others, and without a network.

    python examples/deploy/without_docker.py serving     starts the server, asks for a summary, and ends it
    python examples/deploy/without_docker.py demo        starts the demo, asks whether it is well, and ends it
    python examples/deploy/without_docker.py training    runs pressbert doctor
    python examples/deploy/without_docker.py serving --summarize      with other arguments than the image's CMD

Entry points, arguments and variables are read from the Dockerfiles. Where `unshare` may do so (Linux), the process has
no network but the loopback; elsewhere the script says that it kept this machine's.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = {"serving": "Dockerfile", "training": "Dockerfile", "demo": "examples/deploy/demo.Dockerfile"}
PROBES = {"serving": "/ready", "demo": "/_stcore/health"}
ARTICLE = "새 다리가 열렸다. 시는 다음 달 버스 노선을 바꿀 계획이다. 주민들은 반겼다."
START_S, STOP_S = 180, 30
GET_FLAGS, SET_FLAGS, IS_UP = 0x8913, 0x8914, 1
"""Of a network interface, on Linux."""
ALONE = "--alone"


def read_image(name: str, arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return command and variables of an image; ARGUMENTS replace those of its CMD."""
    stages: dict[str, tuple[list[str], dict[str, str]]] = {}
    command, variables = [], {}
    for line in (ROOT / IMAGES[name]).read_text(encoding="utf-8").splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, stage = rest.partition(" AS ")
            command, variables = [], dict(stages.get(base, ([], {}))[1])
            stages[stage or name] = (command, variables)
        elif word == "ENV":
            variables.update(re.findall(r"(\w+)=(\S+)", rest))
        elif word == "ENTRYPOINT":
            command += json.loads(rest)
        elif word == "CMD":
            command += arguments or json.loads(rest)
    return stages[name]


def bring_loopback_up() -> None:
    """A network of its own begins with its loopback down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        flags = struct.unpack("16xh", fcntl.ioctl(handle, GET_FLAGS, struct.pack("16sh", b"lo", 0)))[0]
        fcntl.ioctl(handle, SET_FLAGS, struct.pack("16sh", b"lo", flags | IS_UP))


def ask(name: str, port: int) -> str:
    """Return what the started image answers."""
    address = f"http://127.0.0.1:{port}"
    if name == "demo":
        return urllib.request.urlopen(address + PROBES[name], timeout=STOP_S).read().decode()  # noqa: S310
    body = json.dumps({"articles": [{"text": ARTICLE}], "sentences": 1}).encode()
    request = urllib.request.Request(f"{address}/summarize", body, {"content-type": "application/json"})  # noqa: S310
    [result] = json.load(urllib.request.urlopen(request, timeout=STOP_S))["results"]  # noqa: S310
    return " ".join(sentence["text"] for sentence in result["sentences"])


def wait_until_ready(name: str, process: subprocess.Popen[bytes], port: int) -> None:
    """Return when the image answers its probe; raises SystemExit if it ends or takes too long."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}{PROBES[name]}", timeout=2).read()
            return
        time.sleep(0.1)
    raise SystemExit(f"{name}: not ready after {START_S} s, or ended with {process.poll()}")


def start(name: str, arguments: list[str], cache: str) -> int:
    """Run an image; returns its exit code."""
    command, variables = read_image(name, arguments)
    environment = {key: value.replace("/cache", cache) for key, value in variables.items()}
    environment["PYTHONPATH"] = str(ROOT)
    # The image lets other containers in; a script does not.
    command = [sys.executable, *(word.replace("0.0.0.0", "127.0.0.1") for word in command[1:])]
    if name not in PROBES:
        return subprocess.run(command, cwd=cache, env=environment, check=False).returncode
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command += ["--server.port" if name == "demo" else "--port", str(port)]
    process = subprocess.Popen(command, cwd=cache, env=environment, start_new_session=True)
    try:
        wait_until_ready(name, process, port)
        print(f"{name}: {ask(name, port)}", flush=True)
        process.terminate()
        return process.wait(timeout=STOP_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Start the named image, in a network of its own where that is possible."""
    name, *rest = arguments or ["serving"]
    if name not in IMAGES:
        print(f"unknown image '{name}'; give one of {', '.join(IMAGES)}", file=sys.stderr)
        return 2
    isolate = ["unshare", "--net", "--map-root-user"]
    if rest[:1] == [ALONE]:
        rest.pop(0)
        bring_loopback_up()
        print(f"network: {', '.join(interface for _, interface in socket.if_nameindex())}", flush=True)
    elif (
        shutil.which("unshare") and not subprocess.run([*isolate, "true"], capture_output=True, check=False).returncode
    ):
        os.execvp("unshare", [*isolate, sys.executable, __file__, name, ALONE, *rest])
    else:
        print("network: this machine's, because unshare may not make another", flush=True)
    with tempfile.TemporaryDirectory(prefix="pressbert-image-") as cache:
        return start(name, rest, cache)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
