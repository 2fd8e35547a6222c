"""Checks of an encoder: its files, its tokenizer on Korean, and its network. They need the extra `train`.

check_encoder("runs/mini")
"""

import functools
import tempfile
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.checks import CheckResult, Checks, NotApplicableError, OnFail
from corpora.foundation.floors import needs
from corpora.foundation.machine import quiet_transformers
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import resolve
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from pretraining.folders import open_config, open_model

if TYPE_CHECKING:
    from torch import Tensor

ENCODER_CHECKS = Checks("encoder")
TEXT = "시는 다음 달부터 버스 노선 네 개를 다리로 돌린다고 24일 밝혔다."
OTHER = "한국은행은 기준금리를 연 3.5%로 유지했다."
TOLERANCE = 1e-4
"""Largest difference of hidden states that are computed in another batch."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A folder with its tokenizer and network, which are loaded at their first use."""

    folder: Path

    @functools.cached_property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return load_tokenizer(self.folder)

    @functools.cached_property
    def network(self) -> Any:
        """Its network, for computing."""
        with quiet_transformers():
            return load_model(self.folder, self.tokenizer, "AutoModel", {}).eval()

    def ids(self, text: str, **options: Any) -> list[int]:
        """Return the token ids of a text, special ones included."""
        return list(self.tokenizer(text, **options)["input_ids"])

    def states(self, *texts: str) -> "Tensor":
        """Return the last hidden states of texts in one batch, (B, T, D)."""
        import torch

        batch = self.tokenizer(list(texts), padding=True, return_tensors="pt")
        names = self.tokenizer.model_input_names
        with torch.inference_mode():
            states: Tensor = self.network(**{name: batch[name] for name in names}).last_hidden_state
        return states


def check_encoder(encoder: str | Path, *, on_fail: OnFail = "raise") -> list[CheckResult]:
    """Check an encoder.

    Args:
        encoder: folder, key of `downstream.encoders.hub.ENCODERS`, or hub id.
        on_fail: `raise` at the first fault, `warn`, or `return`.

    Raises:
        CheckFailedError: a check failed.
        CheckpointError: there is no such encoder.
        MissingPackageError: PyTorch or transformers is not installed.
    """
    needs("torch", "transformers")
    folder = resolve(str(encoder))
    return ENCODER_CHECKS.run(Subject(folder), str(encoder), on_fail)


# --- files ------------------------------------------------------------------------------------------------------------


@ENCODER_CHECKS.add
def config_is_there(subject: Subject) -> None:
    """The folder has a config that names a type of model."""
    folder = ModelFolder(subject.folder)
    assert folder.has_config
    assert folder.model_type


@ENCODER_CHECKS.add
def weights_are_safetensors(subject: Subject) -> None:
    """Weights are safetensors."""
    assert any(subject.folder.glob("*.safetensors"))


@ENCODER_CHECKS.add
def config_runs_no_code(subject: Subject) -> None:
    """The config asks for no code from the folder (`auto_map`)."""
    assert "auto_map" not in ModelFolder(subject.folder).config


@ENCODER_CHECKS.add
def tokenizer_is_a_file(subject: Subject) -> None:
    """The fast tokenizer is saved, so that other programs make the same tokens."""
    assert (subject.folder / "tokenizer.json").is_file()


@ENCODER_CHECKS.add
def card_has_a_licence(subject: Subject) -> None:
    """The model card names a licence in its head."""
    card = subject.folder / "README.md"
    assert card.is_file(), "no README.md"
    head = card.read_text(encoding="utf-8").split("---")[1:2]
    assert head, "no YAML head"
    assert "\nlicense:" in head[0], "no license in its head"


# --- tokens -----------------------------------------------------------------------------------------------------------


@ENCODER_CHECKS.add
def special_tokens_are_there(subject: Subject) -> None:
    """There are tokens for padding, the unknown, beginning, end and a mask, all different."""
    names = ("pad", "unk", "cls", "sep", "mask")
    found = [getattr(subject.tokenizer, f"{name}_token_id") for name in names]
    assert None not in found, dict(zip(names, found, strict=True))
    assert len(set(found)) == len(found), dict(zip(names, found, strict=True))


@ENCODER_CHECKS.add
def ids_fit_the_embeddings(subject: Subject) -> None:
    """Every id of the vocabulary has an embedding."""
    largest = max(subject.tokenizer.get_vocab().values())
    assert largest < subject.network.config.vocab_size, f"{largest} of {subject.network.config.vocab_size}"


@ENCODER_CHECKS.add
def korean_is_known(subject: Subject) -> None:
    """No token of a plain Korean sentence is unknown."""
    assert subject.tokenizer.unk_token_id not in subject.ids(TEXT)


@ENCODER_CHECKS.add
def korean_is_not_spelt(subject: Subject) -> None:
    """A Korean sentence has fewer tokens than characters."""
    assert len(subject.ids(TEXT)) < len(TEXT)


@ENCODER_CHECKS.add
def decomposed_hangul_is_composed(subject: Subject) -> None:
    """Decomposed Hangul has the same tokens."""
    assert subject.ids(unicodedata.normalize("NFD", TEXT)) == subject.ids(TEXT)


@ENCODER_CHECKS.add
def special_tokens_stand_around(subject: Subject) -> None:
    """A text stands between the tokens for beginning and end."""
    ids = subject.ids(TEXT)
    assert (ids[0], ids[-1]) == (subject.tokenizer.cls_token_id, subject.tokenizer.sep_token_id)


@ENCODER_CHECKS.add
def pairs_are_separated(subject: Subject) -> None:
    """Two texts have a separator between them."""
    ids = subject.tokenizer(TEXT, OTHER)["input_ids"]
    assert ids.count(subject.tokenizer.sep_token_id) >= 2


@ENCODER_CHECKS.add
def token_types_follow_the_pair(subject: Subject) -> None:
    """The second text of a pair has token type 1, where the model has types."""
    if "token_type_ids" not in subject.tokenizer.model_input_names:
        raise NotApplicableError("the model has no token types")
    types = subject.tokenizer(TEXT, OTHER)["token_type_ids"]
    assert types == sorted(types)
    assert set(types) == {0, 1}


@ENCODER_CHECKS.add
def empty_text_has_special_tokens_only(subject: Subject) -> None:
    """An empty text is a text."""
    assert subject.ids("") == [subject.tokenizer.cls_token_id, subject.tokenizer.sep_token_id]


@ENCODER_CHECKS.add
def emoji_costs_one_token(subject: Subject) -> None:
    """An emoji that is glued to a word leaves the word's tokens."""
    plain, glued = subject.ids("다리가 열렸다"), subject.ids("다리가 열렸다🎉")
    assert glued[: len(plain) - 1] == plain[:-1]


@ENCODER_CHECKS.add
def long_words_are_cut(subject: Subject) -> None:
    """A word of 300 characters is not one unknown token."""
    ids = subject.ids("가" * 300, truncation=True)
    assert ids.count(subject.tokenizer.unk_token_id) < len(ids) - 2


@ENCODER_CHECKS.add
def truncation_keeps_the_end_token(subject: Subject) -> None:
    """A text that is cut still ends with the end token."""
    ids = subject.ids(TEXT, truncation=True, max_length=8)
    assert len(ids) == 8
    assert ids[-1] == subject.tokenizer.sep_token_id


@ENCODER_CHECKS.add
def offsets_slice_back(subject: Subject) -> None:
    """Offsets of tokens point into the text, in order."""
    spans = subject.tokenizer(TEXT, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
    assert all(0 <= start < end <= len(TEXT) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)


@ENCODER_CHECKS.add
def longest_input_is_stated(subject: Subject) -> None:
    """The tokenizer states how long an input may be, and the network has positions for it."""
    assert 8 <= subject.tokenizer.model_max_length < 1_000_000, subject.tokenizer.model_max_length
    positions = getattr(subject.network.config, "max_position_embeddings", None)
    assert positions is None or subject.tokenizer.model_max_length <= positions


# --- network ----------------------------------------------------------------------------------------------------------


@ENCODER_CHECKS.add
def weights_are_finite(subject: Subject) -> None:
    """No weight is NaN or infinite."""
    bad = [name for name, weight in subject.network.named_parameters() if not weight.isfinite().all()]
    assert not bad, bad[:3]


@ENCODER_CHECKS.add
def states_have_the_width(subject: Subject) -> None:
    """Every token has a finite vector of the config's width."""
    states = subject.states(TEXT)
    assert tuple(states.shape) == (1, len(subject.ids(TEXT)), subject.network.config.hidden_size)
    assert states.isfinite().all()


@ENCODER_CHECKS.add
def computing_is_deterministic(subject: Subject) -> None:
    """Without dropout, the same text has the same vectors."""
    assert subject.states(TEXT).equal(subject.states(TEXT))


@ENCODER_CHECKS.add
def padding_changes_nothing(subject: Subject) -> None:
    """Vectors do not depend on the padding of a batch."""
    alone = subject.states(OTHER)[0]
    together = subject.states(TEXT + " " + TEXT, OTHER)[1, : len(alone)]
    difference = float((alone - together).abs().max())
    assert difference <= TOLERANCE, f"they differ by {difference:.1e}"


@ENCODER_CHECKS.add
def order_of_a_batch_changes_nothing(subject: Subject) -> None:
    """The vectors of a text do not depend on its place in a batch."""
    first, second = subject.states(TEXT, OTHER), subject.states(OTHER, TEXT)
    assert float((first[0] - second[1]).abs().max()) <= TOLERANCE


@ENCODER_CHECKS.add
def texts_differ(subject: Subject) -> None:
    """Two texts have different vectors."""
    first, second = (subject.states(text)[0].mean(dim=0) for text in (TEXT, OTHER))
    assert float((first - second).abs().max()) > TOLERANCE


@ENCODER_CHECKS.add
def order_of_words_matters(subject: Subject) -> None:
    """The network knows positions: the same words in another order have another mean vector."""
    words = TEXT.split()
    turned = " ".join(reversed(words))
    first, second = (subject.states(text)[0].mean(dim=0) for text in (TEXT, turned))
    assert float((first - second).abs().max()) > TOLERANCE


@ENCODER_CHECKS.add
def context_matters(subject: Subject) -> None:
    """A token's vector depends on the tokens behind it: the network reads in both directions."""
    first, second = subject.states("배를 탔다")[0, 1], subject.states("배를 먹었다")[0, 1]
    assert float((first - second).abs().max()) > TOLERANCE


@ENCODER_CHECKS.add
def longest_input_can_be_computed(subject: Subject) -> None:
    """An input of the stated length can be computed."""
    length = int(subject.tokenizer.model_max_length)
    text = subject.tokenizer.decode(subject.ids(" ".join([TEXT] * length), truncation=True), skip_special_tokens=True)
    assert subject.states(text[: 4 * length][: len(text)]).isfinite().all()


@ENCODER_CHECKS.add
def gradients_flow(subject: Subject) -> None:
    """Every layer can be fine-tuned: the gradients of its weights are not all zero."""
    batch = subject.tokenizer([TEXT], return_tensors="pt")
    names = subject.tokenizer.model_input_names
    subject.network.zero_grad()
    subject.network(**{name: batch[name] for name in names}).last_hidden_state.pow(2).sum().backward()
    trained = [p.grad is not None and bool(p.grad.abs().sum() > 0) for p in subject.network.parameters()]
    subject.network.zero_grad()
    # A pooler has no part in the hidden states.
    assert sum(trained) >= 0.8 * len(trained), f"{sum(trained)} of {len(trained)} weights have a gradient"


@ENCODER_CHECKS.add
def saving_keeps_the_vectors(subject: Subject) -> None:
    """Plain transformers loads what is saved, with the same vectors."""
    with tempfile.TemporaryDirectory() as folder, quiet_transformers():
        subject.network.save_pretrained(folder)
        assert ModelFolder(Path(folder)).model_type == ModelFolder(subject.folder).model_type
        again = Subject(subject.folder)
        again.__dict__["network"] = open_model("AutoModel", Path(folder), open_config(Path(folder))).eval()
        difference = float((again.states(TEXT) - subject.states(TEXT)).abs().max())
    assert difference <= TOLERANCE, f"they differ by {difference:.1e}"
