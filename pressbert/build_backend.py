"""Builds the wheel: setuptools, with time stamps that do not depend on when and where it is built.

    python -m build

A time stamp of a file in a wheel is part of its bytes. `SOURCE_DATE_EPOCH` decides it, if it is set.
"""

import os

from setuptools import build_meta  # type: ignore[import-untyped]

ZIP_EPOCH = "315532800"
"""1 January 1980, the earliest time that a zip archive can state."""

os.environ.setdefault("SOURCE_DATE_EPOCH", ZIP_EPOCH)

build_editable = build_meta.build_editable
build_sdist = build_meta.build_sdist
build_wheel = build_meta.build_wheel
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
