"""The known encoders, and how a key, hub id or folder is resolved to a local folder."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from corpora.foundation.errors import CheckpointError, suggest
from downstream.encoders.folder import BUNDLED, SAFE_FILES, ModelFolder
from pretraining.folders import check_folder


class EncoderUnavailableError(CheckpointError):
    """An encoder that is missing locally and not downloadable."""


@dataclass(frozen=True)
class Encoder:
    """An encoder of the comparison."""

    title: str
    hub_id: str | None
    """None where the weights are available by licence only, or come with the package."""
    vocab_size: int = 0
    """0 where only the folder says."""
    note: str = ""
    folder: Path | None = None
    """Folder of an encoder that comes with the package."""


ENCODERS: Mapping[str, Encoder] = {
    "pressbert-mini": Encoder("PressBERT mini", None, 16_000, "comes with the package", BUNDLED / "encoder"),
    "kpfbert": Encoder("kpfBERT", "jinmang2/kpfbert", 36_440, "third-party upload of KPFBERT/kpfbert"),
    "klue-bert": Encoder("KLUE-BERT", "klue/bert-base", 32_000),
    "korbert": Encoder("KorBERT", None, 30_797, "WordPiece variant; ETRI licence, files by application"),
    "kobert": Encoder("KoBERT", "skt/kobert-base-v1", 8_002),
    "mbert": Encoder("mBERT", "google-bert/bert-base-multilingual-cased", 119_547),
    "koelectra-base-v3": Encoder("KoELECTRA base v3", "monologg/koelectra-base-v3-discriminator", 35_000),
    "koelectra-small-v3": Encoder("KoELECTRA small v3", "monologg/koelectra-small-v3-discriminator", 35_000),
    "klue-roberta-small": Encoder("KLUE-RoBERTa small", "klue/roberta-small", 32_000),
    "klue-roberta-base": Encoder("KLUE-RoBERTa base", "klue/roberta-base", 32_000),
    "klue-roberta-large": Encoder("KLUE-RoBERTa large", "klue/roberta-large", 32_000),
    "kf-deberta-base": Encoder("KF-DeBERTa base", "kakaobank/kf-deberta-base"),
    "kcelectra-base": Encoder("KcELECTRA base", "beomi/KcELECTRA-base"),
    "tunib-electra-ko-base": Encoder("TUNiB-Electra ko base", "tunib/electra-ko-base"),
    "tunib-electra-ko-small": Encoder("TUNiB-Electra ko small", "tunib/electra-ko-small"),
    "multilingual-e5-small": Encoder("multilingual-e5-small", "intfloat/multilingual-e5-small"),
}

BUNDLED_SOURCE = "bundled"
"""Names the model that comes with the package, where a folder may be given."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)


def bundled(name: str) -> Path:
    """Return the folder of a model that comes with the package: `encoder`, `classifier` or `embedder`.

    Raises:
        CheckpointError: it is missing in this installation.
    """
    folder = BUNDLED / name
    check_folder(folder)
    if not ModelFolder(folder).has_config:
        raise EncoderUnavailableError(folder, f"no {name} is bundled", "make it: make bundled")
    return folder


def bundled_or_folder(source: str | Path, name: str) -> Path:
    """Return the folder of a model that a setting names: `bundled` for ours of that name, or a folder.

    Raises:
        CheckpointError: ours is missing in this installation.
    """
    return bundled(name) if str(source) == BUNDLED_SOURCE else Path(source)


def is_bundled(name: str) -> bool:
    """Return whether NAME is an encoder that comes with the package."""
    return name in ENCODERS and ENCODERS[name].folder is not None


def resolve(name: str, *, patterns: tuple[str, ...] = SAFE_FILES) -> Path:
    """Return the local folder of an encoder.

    Args:
        name: a folder, a key of `ENCODERS`, or a hub id such as `klue/bert-base`.
        patterns: files to download from the hub; by default neither code nor pickles.

    Raises:
        CheckpointError: the name is unknown, or the hub cannot be reached.
    """
    if name and Path(name).is_dir():
        check_folder(Path(name))
        return Path(name)
    known = ENCODERS.get(name)
    if known is not None and known.folder is not None:
        return bundled(known.folder.name)
    if known is not None and known.hub_id is None:
        fix = f"give its folder, e.g. --models {name}=FOLDER"
        raise EncoderUnavailableError(name, f"{known.title} is not on a hub ({known.note})", fix)
    hub_id = known.hub_id if known is not None else name
    if hub_id is None or not HUB_ID.fullmatch(hub_id):
        raise CheckpointError(name, "no such folder, known encoder or hub id", suggest(name, ENCODERS))
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=list(patterns)))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        fix = f"check the name and the network, or give a folder: --models {name.split('/')[-1]}=FOLDER"
        raise EncoderUnavailableError(
            name, f"'{hub_id}' is not in the local cache and cannot be downloaded", fix
        ) from error
    if patterns == SAFE_FILES and not any(folder.glob("*.safetensors")):
        fix = f"convert once: python -m downstream.encoders {name} --out DIR, then --models {name.split('/')[-1]}=DIR"
        raise CheckpointError(name, f"'{hub_id}' is published as pickled weights only", fix)
    check_folder(folder)
    return folder
