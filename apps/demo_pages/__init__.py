"""The rooms of the demo (`apps/demo.py`): one module a page, and what the pages share."""
