# SPDX-License-Identifier: Apache-2.0
"""Warnings (LANGUAGE F9): each trap at its place, and the ways to say that it is meant."""

import pickle
import warnings

import pytest

import tcsym

HEAD = "def f(float(N) X, int32(N) I, int8(N) A, int8(N) B, half(N) H, bool(N) P) -> "
PARTS = (
    # text from the outputs on, with @ at the place of each warning; kinds
    ("(Y) { Y(i) = X(i) * (@1/N) }", "division"),
    ("(float(N) Y) { Y(i) = @I(i)/2 }", "division"),
    ("(Y) { Y(i) = exp(@I(i)/2) + X(@1/2*i) where i in 0:N }", "division"),
    ("(Y) { Y(i) = float(@I(i)/2) }", "division"),
    ("(Y) { Y(i) = @1/2 + I(i) }", "division"),
    ("(Y) { Y(i) = @A(i) * B(i) }", "narrow"),
    ("(Y) { Y(i) = X(i) * (@A(i) - B(i)) }", "narrow"),
    ("(s) { s +=! @A(i) }", "narrow"),
    ("(int8(N) Y) { Y(i) = P(i) ? @A(i) + B(i) : A(i) }", "narrow"),
    ("(Y) { Y(@i) = i > 0 ? X(i-1) : 0.0 }", "range"),
    ("(Y) { Y(@i) = i < N/2 ? -X(i+N/2) : X(i-N/2) }", "range"),
    ("(Y) { Y(i) = half(@1e-8) * H(i) }", "literal"),
    ("(half(N) Y) { Y(i) = @1e-8 }", "literal"),
)


@pytest.mark.parametrize(("text", "kind"), PARTS)
def test_traps(text: str, kind: str) -> None:
    source = HEAD + text.replace("X(@1/2*i)", "X(1/2*i)")
    at = source.index("@") + 1
    with pytest.warns(tcsym.TCWarning) as caught:
        module = tcsym.define(source.replace("@", ""))
    found = [w.message for w in caught if isinstance(w.message, tcsym.TCWarning)]
    assert [(w.kind, w.line, w.column) for w in found] == [(kind, 1, at)]
    assert found[0].hint in str(found[0]) and "^" in str(found[0])
    assert [str(w) for w in module.warnings] == [str(w) for w in found]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "text",
    [
        "(Y) { Y(i) = X(i) * int32(I(i)/2) }",
        "(Y) { Y(i) = float(I(i))/2 }",
        "(Y) { Y(i) = I(i)/2 }",
        "(Y) { Y(i) = X(i/2) where i in 0:N/2 }",
        "(Y) { Y(i) = I(i)/2 > 1 ? X(i) : 0.0 }",
        "(Y) { Y(i) = 4/2 + I(i) }",
        "(int32(N) Y) { Y(i) = A(i) * B(i) }",
        "(Y) { Y(i) = int8(A(i) * B(i)) }",
        "(Y) { Y(i) = int32(A(i)) * B(i) }",
        "(s) { s +=! int8(A(i)) }",
        "(s) { s max=! A(i) }",
        "(Y) { Y(i) = A(i) + B(i) > A(i) }",
        "(Y) { Y(i) = i > 0 ? X(i-1) : 0.0 where i in 0:N }",
        "(float(N) Y) { Y(i) = i > 0 ? X(i-1) : 0.0 }",
        "(Y) { Y(i) = i < N ? X(i) : X(i-N) }",
        "(Y) { Y(i) = (i > 0 ? X(i-1) : 0.0) + X(i) }",
        "(Y) { Y(i) = i > 0 ? X(i-1) + X(i) : X(i) }",
        "(Y) { Y(i) = X(i) * 1e-8 + H(i) / (H(i) + 1e-8) }",
        "(half(N) Y) { Y(i) = 0.0 * H(i) }",
    ],
)
def test_what_is_meant(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tcsym.define(HEAD + text).warnings == ()


def test_a_def_that_others_call_warns_once() -> None:
    text = "def g(int8(N) A) -> (Y) { Y(i) = A(i) + A(i) }\ndef f(int8(N) A) -> (Z) { Z = g(A) }"
    with pytest.warns(tcsym.TCWarning):
        module = tcsym.define(text)
    assert [(w.kind, w.line) for w in module.warnings] == [("narrow", 1)]
    copy = pickle.loads(pickle.dumps(module.warnings[0]))
    assert (str(copy), copy.kind) == (str(module.warnings[0]), "narrow")


def test_the_library_has_none() -> None:
    for name in tcsym.library.names():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tcsym.define(tcsym.library.source(name))
