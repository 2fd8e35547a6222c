"""What is installed, by name, version, digest and licence.

    python .ci/supply_chain.py hashes    writes hashes.txt for constraints.txt, from what pip would install here
    python .ci/supply_chain.py sbom      writes sbom.json (CycloneDX 1.6) from the installed distributions

`pip install --require-hashes --no-deps -r hashes.txt` installs exactly these files on Linux (x86-64) with CPython 3.11.
torch is not among them: its builds differ by index.
"""

import json
import re
import subprocess
import sys
import uuid
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS, HASHES, SBOM = ROOT / "constraints.txt", ROOT / "hashes.txt", ROOT / "sbom.json"
HEAD = """# SHA-256 of the files of constraints.txt on Linux (x86-64) with CPython 3.11; written by .ci/supply_chain.py.
# torch is missing: its builds differ by index.
"""
LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+) --hash=sha256:(?P<digest>[0-9a-f]{64})")
OTHER_BUILDS = {"torch"}


def plain(name: str) -> str:
    """Return the name of a distribution as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def write_hashes() -> None:
    """Ask pip which files it would install, and write their digests."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    done = subprocess.run(
        [*command, "--report", "-", "-r", str(CONSTRAINTS)], check=True, stdout=subprocess.PIPE, text=True
    )
    lines = []
    for item in json.loads(done.stdout)["install"]:
        name, version = plain(item["metadata"]["name"]), item["metadata"]["version"]
        if name not in OTHER_BUILDS:
            lines.append(
                f"{name}=={version} --hash=sha256:{item['download_info']['archive_info']['hashes']['sha256']}\n"
            )
    HASHES.write_text(HEAD + "".join(sorted(lines)), encoding="utf-8")


def read_hashes() -> dict[str, tuple[str, str]]:
    """Return version and digest by name."""
    found = map(LINE.fullmatch, HASHES.read_text(encoding="utf-8").splitlines())
    return {match["name"]: (match["version"], match["digest"]) for match in found if match}


def component(distribution: metadata.Distribution, hashes: dict[str, tuple[str, str]]) -> dict[str, object]:
    """Return the entry of a distribution."""
    name, version = plain(distribution.metadata["Name"]), distribution.version
    entry: dict[str, object] = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }
    licence = distribution.metadata.get("License-Expression") or distribution.metadata.get("License") or ""
    if licence and len(licence) < 100:
        entry["licenses"] = [{"license": {"name": " ".join(licence.split())}}]
    if hashes.get(name, ("", ""))[0] == version:
        entry["hashes"] = [{"alg": "SHA-256", "content": hashes[name][1]}]
    return entry


def write_sbom() -> None:
    """Write the bill of materials of this environment; the same environment gives the same bytes."""
    hashes = read_hashes()
    found = {plain(one.metadata["Name"]): component(one, hashes) for one in metadata.distributions()}
    own = found.pop("pressbert", {"type": "application", "name": "pressbert"}) | {"type": "application"}
    components = [found[name] for name in sorted(found)]
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(components, sort_keys=True))
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
    }
    SBOM.write_text(json.dumps(bill, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{SBOM}: {len(components)} components\n")


if __name__ == "__main__":
    {"hashes": write_hashes, "sbom": write_sbom}[sys.argv[1]]()
