"""The benchmark of fine-tuning computes the same batch both ways, and finds about the same loss."""

from typing import Any

from benchmarks.finetuning import bundled_classifier, make_batch, measure, page


def test_both_ways_are_measured_and_agree() -> None:
    batch = make_batch(12, 4)
    assert batch["input_ids"].shape == (4, 12)
    name, model = bundled_classifier()
    row: dict[str, Any] = {"encoder": name, "longest": 12} | measure(model, batch, 1)
    assert row["difference"] < 0.01
    assert min(row["fused"], row["ours"]) > 0
    assert row["tokens"] == int(batch["attention_mask"].sum())
    text = page([row | {"fused": 1000.0, "ours": 1500.0}])
    assert f"| pressbert-mini | 12 | {row['tokens']} | 1 | 1,000 | 1,500 | 1.50 |" in text
