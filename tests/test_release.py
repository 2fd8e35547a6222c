"""Versions agree, files for containers are what they say, and the server starts from the image's entry point."""

import http.client
import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import yaml

from apps.serving.tool import all_tools

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "examples" / "deploy"
START_S = 60


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert yaml.safe_load(read("CITATION.cff"))["version"] == version
    assert re.search(rf"^## {re.escape(version)} – \d{{4}}-\d\d-\d\d$", read("CHANGELOG.md"), re.MULTILINE)
    for name in ("README.md", "README.en.md"):
        assert f"version = {{{version}}}" in read(name), name
        assert f"pressbert-{version}-py3-none-any.whl" in read(name), name
    assert f"pressbert:{version}" in read("examples/deploy/kubernetes.yaml")


def test_the_quoted_size_of_the_installation_is_the_measured_one() -> None:
    [size] = re.findall(r"^\| light \| (\d+) \|", read("docs/benchmarks/installation.md"), re.MULTILINE)
    for name in ("README.md", "README.en.md"):
        assert f"{size} MB" in read(name), name
    wheel = re.search(r"wheel: (\d+)\.\d MB", read("docs/benchmarks/installation.md"))
    assert wheel is not None
    assert int(wheel[1]) <= 70


def test_workflows_call_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        runs = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
        called = {
            word for run in runs for line in re.findall(r"^make (.+)$", run, re.MULTILINE) for word in line.split()
        }
        assert {word for word in called if "=" not in word} <= targets, path.name
        assert workflow["permissions"] == {"contents": "read"}, path.name


def test_images_copy_every_package_and_run_without_rights() -> None:
    packages = [
        name.removesuffix("*")
        for name in tomllib.loads(read("pyproject.toml"))["tool"]["setuptools"]["packages"]["find"]["include"]
    ]
    for name in ("Dockerfile", "examples/deploy/demo.Dockerfile"):
        text = read(name)
        for package in packages:
            assert f"COPY {package} {package}\n" in text, f"{name}: {package}"
        assert "USER pressbert" in text, name
        assert "HF_HUB_OFFLINE=1" in text, name
    kept = read(".dockerignore").splitlines()
    assert [package for package in packages if f"!{package}" not in kept] == []


def test_compose_and_kubernetes_are_closed_to_the_outside() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    for name, service in compose["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
    assert set(compose["services"]) == {"server", "demo", "prometheus"}
    [scrape] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    assert scrape["static_configs"][0]["targets"] == ["server:8000"]
    documents = {part["kind"]: part for part in yaml.safe_load_all(read("examples/deploy/kubernetes.yaml"))}
    assert documents["NetworkPolicy"]["spec"]["egress"] == []
    [container] = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    tools = {f"--{tool}" for tool in all_tools()}
    assert set(container["args"]) <= tools
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_entry_point_of_the_image_serves_from_an_empty_environment(tmp_path: Path) -> None:
    [line] = re.findall(r'^ENTRYPOINT (\["python", "-m", "apps.serve".*\])$', read("Dockerfile"), re.MULTILINE)
    command = [sys.executable, *json.loads(line)[1:], "--port", "0", "--summarize"]
    # The image lets other containers in; a test does not.
    command[command.index("0.0.0.0")] = "127.0.0.1"
    environment = {
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    log = tmp_path / "log"
    with log.open("w", encoding="utf-8") as file:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + START_S
        while '"listening"' not in log.read_text(encoding="utf-8"):
            assert server.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
            time.sleep(0.1)
        host, port = re.findall(r'"url": "http://([\d.]+):(\d+)"', log.read_text(encoding="utf-8"))[-1]
        body = json.dumps({"articles": [{"text": "새 다리가 열렸다. 시는 다음 달 버스 노선을 바꿀 계획이다."}]})
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("POST", "/summarize", body.encode(), {"content-type": "application/json"})
        assert json.load(connection.getresponse())["results"][0]["sentences"]
        connection.close()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0


def test_notebooks_are_valid_and_were_executed() -> None:
    paths = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
    assert len(paths) == 4
    for path in paths:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for cell in cells:
            compile("".join(cell["source"]), path.name, "exec")
            assert not [output for output in cell["outputs"] if output["output_type"] == "error"], path.name
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), path.name
        assert any(cell["outputs"] for cell in cells), path.name
