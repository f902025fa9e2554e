# SPDX-License-Identifier: Apache-2.0
"""Values as people see them: plain texts, rows and numbers -> colours and HTML.

Nothing here knows the compiler. What is made has no script, escapes all text, and is legible in
light and in dark.
"""
