# SPDX-License-Identifier: Apache-2.0
"""Options of Python for scripts that fork after a compilation."""

from __future__ import annotations

# From 3.12 on Python warns whoever forks with threads. Ours have ended then; glibc keeps one that
# serves timers, which bound the time of isl, and renews it in a child.
QUIET_FORKS = ("-W", "ignore::DeprecationWarning:__main__")
