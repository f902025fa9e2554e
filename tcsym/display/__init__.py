# SPDX-License-Identifier: Apache-2.0
"""Values as people see them: colours, HTML and pictures of plain data.

Nothing here knows the compiler: who has something to show makes rows, texts or grids of it, and
this room draws them. No script is in what it makes, all text is escaped, and it is legible in light
and in dark.
"""
