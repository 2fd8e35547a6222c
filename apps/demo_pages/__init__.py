"""The pages of the demo (`apps/demo.py`): one module a page, and what they share."""
