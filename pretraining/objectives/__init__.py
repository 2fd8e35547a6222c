"""One file per pretraining objective; each defines `OBJECTIVE`."""
