"""Versions agree, files for containers are what they say, and the images' entry points run in an empty environment."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from apps.command import VERBS
from apps.serving.tool import all_tools

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "examples" / "deploy"


def may_isolate() -> bool:
    """Whether this machine may give a process a network of its own."""
    command = ["unshare", "--net", "--map-root-user", "true"]
    return bool(shutil.which("unshare")) and not subprocess.run(command, capture_output=True, check=False).returncode


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


def test_the_entry_points_of_the_images_run_in_an_empty_environment_without_a_network() -> None:
    for image, arguments, expected in (
        ("serving", ["--summarize"], "serving: 시는 다음 달 버스 노선을 바꿀 계획이다."),
        ("training", ["vocab", "--help"], "usage: pressbert vocab ["),
    ):
        command = [sys.executable, str(DEPLOY / "without_docker.py"), image, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, (image, done.stderr)
        assert expected in done.stdout, (image, done.stdout, done.stderr)
        if may_isolate():
            assert "network: lo\n" in done.stdout, image


def test_every_service_of_compose_runs_what_exists() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    images = {name: service["build"] for name, service in compose.items() if "build" in service}
    for name, build in images.items():
        context = (DEPLOY / build["context"]).resolve()
        text = (context / build.get("dockerfile", "Dockerfile")).read_text(encoding="utf-8")
        assert "target" not in build or f" AS {build['target']}\n" in text, name
        assert "ENTRYPOINT" in text, name
    options = {f"--{tool}" for tool in all_tools()} | {"--all"}
    assert set(compose["server"]["command"]) <= options
    for service in compose.values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in {"cache", "figures"}, volume
    for name in ("Dockerfile", "examples/deploy/demo.Dockerfile"):
        for line in re.findall(r"^ENTRYPOINT (.+)$", read(name), re.MULTILINE):
            python, flag, module, *rest = json.loads(line)
            assert (python, flag) == ("python", "-m"), name
            spec = importlib.util.find_spec(module)
            assert spec is not None, (name, module)
            assert module != "pressbert" or set(rest) <= set(VERBS), (name, rest)


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
