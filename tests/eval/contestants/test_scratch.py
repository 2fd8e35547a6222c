"""A BERT without pretraining."""

from collections.abc import Callable
from pathlib import Path

from downstream.task import Task, TaskData, get_task
from eval.contestants.scratch import build_scratch


def test_a_scratch_encoder_is_the_same_bytes_for_a_seed_and_others_for_another(
    tmp_path: Path, small: Callable[[Task, int], TaskData]
) -> None:
    data = small(get_task("nsmc-sample"), 3)
    folders = [build_scratch(data, tmp_path / str(k), seed=seed) for k, seed in enumerate((0, 0, 1))]
    contents = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert contents[0] == contents[1]
    assert {name for name in contents[0] if contents[0][name] != contents[2][name]} == {"model.safetensors"}
