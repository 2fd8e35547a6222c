"""KLUE: tasks of Korean language understanding (Park et al. 2021, v1.1)."""

from collections.abc import Mapping

from corpora.official import OfficialFile

URL = "https://raw.githubusercontent.com/KLUE-benchmark/KLUE/main/klue_benchmark"
LICENCE = "CC-BY-SA-4.0"
SOURCE = "Park et al. 2021, KLUE, github KLUE-benchmark/KLUE"


def klue_files(
    name: str, suffix: str = ".json", *, known: Mapping[str, tuple[str, int]] | None = None
) -> dict[str, OfficialFile]:
    """Return the train and dev files of a task.

    Args:
        name: of its folder, with which the names of its files begin.
        suffix: of the files.
        known: split → SHA-256 and bytes of a file whose published bytes have been seen.
    """
    files = {}
    for split in ("train", "dev"):
        digest, size_bytes = (known or {}).get(split, (None, None))
        path = f"{name}/{name}_{split}{suffix}"
        files[split] = OfficialFile(
            path=f"klue/{path}", url=f"{URL}/{path}", licence=LICENCE, sha256=digest, size_bytes=size_bytes
        )
    return files
