"""The digests beside the pinned versions, and the bill of materials."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)")
HASH = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>\S+) --hash=sha256:[0-9a-f]{64}")


def pins() -> dict[str, str]:
    found = map(PIN.match, (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())
    return {re.sub(r"[-_.]+", "-", match["name"]).lower(): match["version"] for match in found if match}


def test_every_pinned_version_but_that_of_torch_has_a_digest() -> None:
    lines = (ROOT / "hashes.txt").read_text(encoding="utf-8").splitlines()
    found = [HASH.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(found)
    versions = {match["name"]: match["version"] for match in found if match}
    assert versions == {name: version for name, version in pins().items() if name != "torch"}
    assert "://" not in "".join(lines)


def test_the_bill_of_materials_lists_what_is_installed(tmp_path: Path) -> None:
    for name in (".ci/supply_chain.py", "constraints.txt", "hashes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(
        [sys.executable, ".ci/supply_chain.py", "sbom"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL, timeout=60
    )
    bill = json.loads((tmp_path / "sbom.json").read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "pressbert")
    versions = {part["name"]: part["version"] for part in bill["components"]}
    assert {name: versions[name] for name in ("torch", "transformers", "numpy")}.keys() <= versions.keys()
    assert any("hashes" in part for part in bill["components"])
