"""What the five tasks share: where their files are, and how they are scored."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from corpora.official import OfficialFile
from downstream.metrics import accuracy, macro_f1
from downstream.substitutes import OtherSplit
from downstream.task import Family, FinetuneConfig, Task

URL = "https://raw.githubusercontent.com/SKT-LSL/KoBEST_datarepo/main/v1.0"
LICENCE = "CC-BY-SA-4.0"
SOURCE = "Kim et al. 2022, KoBEST, github SKT-LSL/KoBEST_datarepo"
DIGESTS: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "BoolQ": {
        "train": ("c2342714366e2beef0d8bedeea64ab9aa315747c1e900da678714531ab1c0f75", 1_942_905),
        "dev": ("946d62e3230b349a00a57b3ab2c4bef16b466ef05746f3082e817ddf889fc293", 363_093),
        "test": ("d58309601b578f96c7f9b9d7437112f93ae872f69316a9e6a1d78eec34261d0b", 734_804),
    },
    "COPA": {
        "train": ("a9eab9c902917ab20303f0c1cc8853d0f8f742b2368ea75588068e74a8a8ed6c", 364_501),
        "dev": ("d3f2a03d0e76b4863358cb4c13688599e2bf00160e4287a432a790c3b681bd2e", 58_965),
        "test": ("3291a6b900c129e4525d45d879e63e53ee1efb611afe87038d9bd37344f85d5e", 123_371),
    },
    "HellaSwag": {
        "train": ("c49c07b05e6f82a6e554b48a37d71971c03af08967e62d8532216afd73e90a8c", 1_134_040),
        "dev": ("01ae7e6daf95cc2412c0db6f6a76171828902e1e1152fff42484dfa78ac0f3f9", 284_073),
        "test": ("94fae5735d54211bc7ed493c60abc23e770891dcd719feb229ebe76ee230bcbf", 287_703),
    },
    "SentiNeg": {
        "train": ("07c8517ae035e400dc2ec8f9eb6a1d3c462c1758058c8f83ff4d1326eb80a5c7", 205_309),
        "dev": ("a64c8f70d11930222b0a356871512680a9ca230721ced23ffd73e14cf0478b79", 22_004),
        "test": ("7bec3d31ccebee0db4cfcedc7205cfd7d21603ecaec5327ce4a74eff54d0007d", 37_016),
    },
    "WiC": {
        "train": ("5ed29b813c0d2e6a417cec6087070e844765b11be005630ca59be6b3e7d22c2f", 1_080_747),
        "dev": ("74b23183f0ad0a8387720b395ff775ae213b9474a9c1a465831f905ff23dbd05", 197_411),
        "test": ("583701d175f56d3b2c206ecf70b77d7932363a60f3559c256f4509601820f8aa", 402_187),
    },
}
"""Folder → split → SHA-256 and bytes of its file."""


def kobest_task(
    folder: str,
    *,
    family: Family,
    num_examples: Mapping[str, int],
    read: Callable[[Path], list[Any]],
    finetune: FinetuneConfig,
    takes_pairs: bool = False,
    chance: float = 1 / 2,
) -> Task:
    """Return one of the five tasks, scored on test; the arguments are fields of `Task`.

    Args:
        folder: name of the task, and of its folder.
        family: what is predicted.
        num_examples: by split.
        read: reads a file.
        finetune: settings of fine-tuning.
        takes_pairs: whether an example has two texts.
        chance: value of the first metric for guessing.
    """
    files = {
        split: OfficialFile(
            path=f"kobest/{folder}/{split}.tsv",
            url=f"{URL}/{folder}/{split}.tsv",
            licence=LICENCE,
            sha256=digest,
            size_bytes=size_bytes,
        )
        for split, (digest, size_bytes) in DIGESTS[folder].items()
    }
    return Task(
        name=f"kobest-{folder.lower()}",
        title=f"KoBEST {folder}",
        family=family,
        files=files,
        num_examples=num_examples,
        read=read,
        takes_pairs=takes_pairs,
        metrics=(macro_f1, accuracy),
        chance=chance,
        finetune=finetune,
        source=SOURCE,
        licence=LICENCE,
        eval_split="test",
        substitute=OtherSplit("dev"),
    )
