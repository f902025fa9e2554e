# SPDX-License-Identifier: Apache-2.0
"""Docstrings as Markdown while the site is built: an extension of griffe."""

from __future__ import annotations

from typing import Any

import griffe

from tools.docstrings import markdown


class Docstrings(griffe.Extension):
    """Rewrites each docstring as it is collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring and obj.path.partition(".")[0] == "tcsym":
            obj.docstring.value = markdown(obj.docstring.value)
