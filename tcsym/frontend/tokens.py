# SPDX-License-Identifier: Apache-2.0
"""Places of tokens, and what to say of characters that begin none."""

from __future__ import annotations

from lark import Token

from tcsym.errors import Span, TCSyntaxError


def span_of(token: Token) -> Span:
    """The place of a token; the start of the text for one that was made without a place."""
    return Span(token.line or 1, token.column or 1, len(token))


def unexpected_character(character: str, span: Span, hint: str) -> TCSyntaxError:
    shown = f"`{character}`" if character.isprintable() else f"U+{ord(character):04X}"
    return TCSyntaxError(f"unexpected character {shown}", span=span, hint=hint)
