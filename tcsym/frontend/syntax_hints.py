# SPDX-License-Identifier: Apache-2.0
"""A syntax error and the text before it -> how to write what other languages write so."""

from __future__ import annotations

import re
from collections.abc import Set

from lark import Token

from tcsym.frontend.idioms import SAME_TYPES, TYPES, block, name_hint, type_hint

# What these characters mean elsewhere, and how it is said here.
_CHARACTERS = {
    "[": "shapes and subscripts stand in parentheses: `A(i,j)`",
    ";": "statements need no separator",
    "@": "write the sum: `C(i,j) +=! A(i,k) * B(k,j)`",
    "'": "there are no strings",
    '"': "there are no strings",
    ".": "tensors have no attributes: a transpose is `X(j,i)`, an extent the name of a size",
}
_WORDS = {
    "and": ("&&", "Y(i) = X(i) > 0.0 && X(i) < 1.0 ? X(i) : 0.0"),
    "or": ("||", "Y(i) = X(i) < 0.0 || X(i) > 1.0 ? 0.0 : X(i)"),
    "not": ("!", "Y(i) = !(X(i) > 0.0) ? 0.0 : X(i)"),
}
_RANGE = "a range is written `low:high`, and `high` is not in it"
_INTERVAL = re.compile(r"\[\s*([^][():,]+?)\s*[,:]\s*([^][()]+?)\s*([])[])")
_FOREIGN_NUMBER = re.compile(
    r"(?<![\w.])(0[xXbBoO]\w+|[0-9]+_[0-9_]+|[0-9]*\.?[0-9]+\.?[fFuUlLjJ]+)$"
)
_CHOICE = block("Y(i) = X(i) > 0.0 ? X(i) : 0.0")
_TERNARY = f"Python's `a if p else b` is written `p ? a : b`:{_CHOICE}"
_RESULTS = block("def f(float(N) X) -> (Y) { Y(i) = 2 * X(i) }")
FILE_HINT = 'this is the name of a file: `tcsym.define(pathlib.Path("{}"))` reads it'


def is_file_name(text: str) -> bool:
    """True for what is no text of defs but looks like the place of one."""
    return re.fullmatch(r"\s*[\w./\\:~ -]+\.tc\s*", text) is not None and "\n" not in text.strip()


def character_hint(character: str, before: str, rest: str) -> str:
    """For a character that begins no token. rest: the text from it on."""
    found = _INTERVAL.match(rest) if character == "[" else None
    if re.search(r"\bin\s*$", before) and found is not None:
        low, high, end = found.groups()
        above = high if end != "]" else str(int(high) + 1) if high.isdecimal() else f"{high}+1"
        return f"{_RANGE}: `{found.group()}` is `{low}:{above}`"
    if character == "." and re.search(r"\b(np|numpy|math|torch|F|jnp)$", before):
        return "built-in functions have no prefix: `exp(x)`"
    if rest.startswith("..."):
        return "every index has a name: there is no `...`"
    return _CHARACTERS.get(character, "")


def token_hint(token: Token, before: str, behind: str, expected: Set[str]) -> str:
    """For a token that does not fit. before, behind: the text around it, stripped."""
    if token in _NO_REDUCTIONS and re.match("=(?!=)", behind):
        return f"reductions are {_UPDATES}{_REDUCED.get(token, '')}"
    for hint in (_of_words, _of_header, _of_ranges, _of_calls, _of_operators, _of_updates):
        if found := hint(token, before, expected):
            return found
    return ""


def _statement(before: str) -> str:
    """What stands before in the same statement, about."""
    return re.split(r"[{}\n]", re.sub(r"#[^\n]*", "", before))[-1]


def _of_words(token: Token, before: str, expected: Set[str]) -> str:
    if token == "else" and "LBRACE" in expected and re.search(r"\bif\b", _statement(before)):
        return _TERNARY
    if token == "if" and "IF" not in expected and re.search(r"[\w)]$", before):
        return _TERNARY
    if token == "if" and "MINUS" in expected:
        return "choose between values with `condition ? a : b`"
    if token == "size" and "MINUS" in expected:
        return name_hint("size", ())
    if token == "where" and "MINUS" in expected:
        return "`where(p, a, b)` is written `p ? a : b`"
    words = re.findall(r"\b(?:and|or|not)\b", f"{_statement(before)} {token}")
    if words:
        shown, example = _WORDS[words[-1]]
        return f"`{words[-1]}` is written `{shown}`:{block(example)}"
    if before.endswith(("let", "var", "auto", "const")) and token.type == "NAME":
        return f"name a value behind the statement: `… where {token} = …`"
    if re.search(r"[{)\s]return$", before):
        return "results are the names behind `->`: assign them"
    if re.search(r"[{)\s]while$", before):
        return "there is no `while`: `for t in N { … }` runs N times"
    if token.type == "SCALAR" and "FOR" in expected:
        return "tensors need no declaration, and get the type of what they are assigned: `t = 0.0`"
    return ""


def _of_header(token: Token, before: str, expected: Set[str]) -> str:
    if before.endswith("->") and token.type == "NAME":
        return f"outputs stand in parentheses: `-> ({token})`"
    header = re.search(r"\bdef\b[^{}>]*\)$", before)
    if header is not None and header.group().count("(") == header.group().count(")"):
        return f"results are named behind the parameters:{_RESULTS}"
    if "SCALAR" in expected and "MINUS" not in expected and token.type == "NAME":
        return type_hint(token) or "a parameter has a type and a shape: `float(N) X`, or `size S`"
    word = re.search(r"->\s*\((?:[^{}]*[\s,(])?(\w+)$", before)
    is_type = word is not None and (word[1] in SAME_TYPES or word[1].startswith("complex"))
    if word is not None and is_type and token.type in ("LPAR", "NAME"):
        return type_hint(word[1])
    scalar = re.search(rf"\b({'|'.join(TYPES.split())}|float32|float64)(\s+\w+)?$", before)
    if scalar is not None and "COMMA" in expected and token.type in ("LPAR", "NAME"):
        return f"the shape stands behind the type: `{scalar[1]}(N) X`"
    if token in ("+", "-", "*", "/", "%") and re.search(r"\bdef\b[^>]*$", before):
        return "a dimension of a parameter is a name or an integer, which the array must have"
    return ""


def _of_ranges(token: Token, before: str, expected: Set[str]) -> str:
    if "COLON" in expected and re.search(r"\bin\s[^:{}]*$", before):
        return f"{_RANGE}: `i in 0:N`"
    if re.search(r"\bwhere$", before) or (token == ":" and re.search(r"\bwhere\s[^:{}]*$", before)):
        return f"{_RANGE}: `where i in 0:N`"
    if expected >= {"EQUAL", "IN"} and re.search(r"\bwhere\s[^{}]*$", before):
        return f"{_RANGE}: `where i in 0:N`; a condition on values chooses one:{_CHOICE}"
    if token == ":" and "EQUAL" in expected:
        return "`=` assigns"
    if token == ":" and before.endswith(("(", ",")):
        return f"all of a dimension is what an index runs over:{block('Y(i,j) = X(i,j)')}"
    if token == "(" and re.search(r"\bfor$", before):
        return "a loop has no parentheses: `for t in 0:N { … }`"
    return ""


def _of_calls(token: Token, before: str, expected: Set[str]) -> str:
    named = re.findall(r"\b(min|max)\s*\(", _statement(before))
    if not named:
        return ""
    name = named[-1]
    if token == ")" and expected >= {"COMMA"} and "RPAR" not in expected:
        reduced = block(f"Y(i) {name}=! X(i,j)")
        return f"`{name}` takes two values; over an index it is a statement of its own:{reduced}"
    if token == "," and "RPAR" in expected and "COMMA" not in expected:
        return f"`{name}` takes two values: `{name}({name}(a, b), c)`"
    return ""


def _of_operators(token: Token, before: str, expected: Set[str]) -> str:
    if _FOREIGN_NUMBER.search(f"{before}{token}") or _FOREIGN_NUMBER.search(before):
        return "numbers are decimal, without suffix and `_`: `255`, `0.5`, `1e-5`"
    if token == "/" and before.endswith("/"):
        return "`/` of integers rounds down, of floats write `floor(a / b)`; `#` begins a comment"
    if "COLON" in expected and "?" in _statement(before):
        return f"a choice has a value for either case:{_CHOICE}"
    return "write `pow(a, b)`, or `a * a`" if token == "*" and before.endswith("*") else ""


_NO_REDUCTIONS = ("-", "/", "%", "|", "&", "^", "||", "&&")
_REDUCED = {
    "-": "; a difference is `Y(i) += -X(i)`",
    "/": "; divide by `Y(i) *= 1.0 / X(i)`",
}
_UPDATES = "`+=`, `*=`, `min=` and `max=`, with `!` from the identity"
_MISSING = "an operator is missing in front of `{}`: a product is `a * b`"
_BESIDE = re.compile(r"(?<![=<>!+*])=(?!=).*[\w)]\s+(\w+(?:\([^()]*\))?)$|=.*[\w)]\s*(\([^()]*\))$")


def _of_updates(token: Token, before: str, expected: Set[str]) -> str:
    """Two values without an operator, and words in place of `+=!`."""
    beside = _BESIDE.search(_statement(before))
    if beside is not None and "UPDATE" in expected:
        return _MISSING.format(beside[1] or beside[2])
    if "UPDATE" in expected and token in ("min", "max"):
        return f"`{token}=!` is one word"
    if "PLUS" in expected and token.type in ("INTEGER", "FLOAT", "CONSTANT", "SCALAR", "LPAR"):
        return _MISSING.format(token)
    return ""
