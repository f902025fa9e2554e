"""Leaf schedules `rows`, `strips`, `column blocks` and `scan`: vectors along memory."""
