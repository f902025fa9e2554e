# SPDX-License-Identifier: Apache-2.0
"""Writes what documents repeat of the sources: `./dev docs`.

docs/api.md from docstrings, and the table of environment variables in docs/threads-and-targets.md.
`--check` writes nothing and fails where a page is not what would be written.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
API = ROOT / "docs" / "api.md"
VARIABLES_PAGE = ROOT / "docs" / "threads-and-targets.md"
_VARIABLES = re.compile(
    r"(?<=<!-- made by \./dev docs: environment variables -->\n).*?(?=<!-- end -->)", re.S
)

HEADER = """# API

Made from docstrings by `./dev docs`; examples are in the [tutorial](tutorial.md). Names are
attributes of `tcsym` unless a module is named. What is not on this page is not public.
"""

# Title, module, names; a class comes with its public attributes.
SECTIONS = (
    ("From text to kernels", "tcsym", ("define", "Module", "Kernel", "Executable")),
    ("Subscripts as in numpy", "tcsym", ("einsum", "einsum_kernel")),
    (
        "Ready kernels: `tcsym.library`",
        "tcsym.library",
        ("names", "load", "source", "description", "sizes", "path"),
    ),
    (
        "Sizes, shapes and types",
        "tcsym",
        ("Dim", "Sizes", "Spec", "Signature", "TensorType", "DType"),
    ),
    ("Options", "tcsym", ("Options",)),
    (
        "Strategies: `tcsym.strategy`",
        "tcsym.strategy",
        ("Auto", "Symbolic", "Specialize", "Bucket", "Pad"),
    ),
    ("Derivatives", "tcsym", ("derivative",)),
    ("Kernels of kernels", "tcsym", ("trace",)),
    ("Programs of several kernels", "tcsym.network.plan", ("Plan",)),
    ("Calls in memory of their own", "tcsym.network.session", ("Session",)),
    ("Bytes as formulas", "tcsym.network.memory", ("Memory",)),
    ("Kernels without a compiler", "tcsym", ("load",)),
    ("What they are", "tcsym.artifact.load", ("Artifact",)),
    ("What a kernel did", "tcsym.runtime.stats", ("Stats", "VariantStats", "Decision")),
    ("Tuning", "tcsym.tuning.report", ("TuningReport", "Regret")),
    ("What serves some sizes", "tcsym.tuning.choice", ("Choice",)),
    ("Recording calls", "tcsym", ("record",)),
    ("Reading traces: `tcsym.recorded`", "tcsym.recorded", ("load", "Recorded", "Calls")),
    ("Threads", "tcsym", ("set_num_threads", "get_num_threads")),
    ("Memory of results", "tcsym", ("set_result_memory", "get_result_memory")),
    ("Devices", "tcsym", ("synchronize",)),
    ("Errors", "tcsym", ("TCError",)),
)


def api_page() -> str:
    """docs/api.md."""
    parts = [HEADER]
    for title, module_name, names in SECTIONS:
        module = importlib.import_module(module_name)
        parts.append(f"## {title}\n")
        for name in names:
            parts += _entry(name, getattr(module, name))
    parts.append(_errors())
    return "\n".join(parts).rstrip("\n") + "\n"


def variables_table() -> str:
    """The environment variables, as a table."""
    from tcsym.process.config import VARIABLES

    rows = ["", "| variable | value | |", "|---|---|---|"]
    rows += [f"| `{v.name}` | {v.expected} | {v.description} |" for v in VARIABLES]
    return "\n".join([*rows, "", ""])


def variables_page() -> str:
    """docs/threads-and-targets.md with the present table."""
    page, n = _VARIABLES.subn(lambda _: variables_table(), VARIABLES_PAGE.read_text())
    assert n == 1, "no place for the table"
    return page


# ---- entries


def _entry(name: str, value: Any) -> Iterator[str]:
    is_class = inspect.isclass(value)
    kind = "class " if is_class else ""
    yield f"### {name}\n"
    signature = ""
    if name in _MADE_BY_USERS or not is_class:
        signature = _signature(value, returns=not is_class)
    yield f"```text\n{kind}{name}{signature}\n```\n"
    yield _markdown(inspect.getdoc(value) or "")
    if is_class:
        for attribute, member in _attributes(value):
            yield from _attribute(name.lower(), attribute, member)


_MADE_BY_USERS = ("Dim", "Spec", "Options", "Auto", "Symbolic", "Specialize", "Bucket", "Pad")
_INTERNAL = {
    *(
        "Dim.broken_by",
        "Options.of_nest",
        "Options.bind_of",
        "Specialize.share",
        "TCError.with_source",
        "Regret.of",
        "Regret.nothing",
    ),
    *("VariantStats.of", "TuningReport.is_short"),
    *("DType.is_integer", "DType.lowest", "DType.highest", "DType.accumulator"),
}


def _signature(value: Any, returns: bool = True) -> str:
    """As written, without `self`; one parameter a line where it is long."""
    signature = inspect.signature(value)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    texts: list[str] = []
    for before, p in zip([None, *parameters], parameters):
        was = before.kind if before else None
        if was is p.POSITIONAL_ONLY is not p.kind and p.kind is not p.VAR_POSITIONAL:
            texts.append("/")
        if p.kind is p.KEYWORD_ONLY and was not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL):
            texts.append("*")
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        kind = (
            p.annotation
            if isinstance(p.annotation, str)
            else inspect.formatannotation(p.annotation)
        )
        default = "" if p.default is p.empty else f" = {p.default!r}"
        texts.append(f"{stars}{p.name}: {kind}{default}")
    result = f" -> {signature.return_annotation}" if returns else ""
    line = f"({', '.join(texts)}){result}"
    if len(line) < 80:
        return line
    return "(\n" + "".join(f"    {text},\n" for text in texts) + f"){result}"


def _attributes(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties with docstrings, and `__call__`, in the order of the class,
    then those for derivatives."""
    own = (cls, *(b for b in cls.__bases__ if b.__module__ == "tcsym.kernel.differentiable"))
    for name, member in (x for b in own for x in vars(b).items()):
        if name.startswith("_") and name != "__call__":
            continue
        plain = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        is_shown = isinstance(plain, property) or inspect.isfunction(plain)
        if is_shown and inspect.getdoc(plain) and f"{cls.__name__}.{name}" not in _INTERNAL:
            yield name, member


def _attribute(owner: str, name: str, member: Any) -> Iterator[str]:
    if isinstance(member, property):
        yield f"`{owner}.{name}`\n"
    else:
        plain = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        call = owner if name == "__call__" else f"{owner}.{name}"
        yield f"```text\n{call}{_signature(plain)}\n```\n"
        member = plain
    yield _markdown(inspect.getdoc(member) or "")


def _errors() -> str:
    from tcsym.errors import ERROR_KINDS

    rows = ["| class | kind | is also a |", "|---|---|---|"]
    for kind, cls in ERROR_KINDS.items():
        also = ", ".join(f"`{b.__name__}`" for b in cls.__mro__[2:] if b.__module__ == "builtins")
        also = also.replace(", `Exception`, `BaseException`, `object`", "")
        rows.append(f"| `{cls.__name__}` | [{kind}](errors.md#{kind}) | {also} |")
    return "All of these derive from `TCError`:\n\n" + "\n".join(rows) + "\n"


# ---- docstrings


_FIELD = re.compile(r"^(?P<name>[a-z_][a-z_0-9]*(?:, [a-z_][a-z_0-9]*)*): (?P<text>.*)$")


def _markdown(docstring: str) -> str:
    """A docstring as Markdown: `name: text` are items, indented lines are code."""
    lines: list[str] = []
    state = "text"
    for line in inspect.cleandoc(docstring).splitlines():
        field, is_indented = _FIELD.match(line), line.startswith("    ")
        if state == "code" and line and not is_indented:
            lines += ["```", ""]
            state = "text"
        if field:
            if state != "items":
                lines.append("")
            lines.append(f"- `{field['name']}`: {field['text']}")
            state = "items"
        elif is_indented and state == "items":
            lines.append(f"  {line.strip()}")
        elif is_indented:
            if state != "code":
                lines += ["", "```text"]
                state = "code"
            lines.append(line[4:])
        else:
            if state == "items" and line:
                lines.append("")
                state = "text"
            lines.append(line)
    if state == "code":
        lines.append("```")
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip())
    return re.sub(r"\n\n```$", "\n```", text) + "\n"


def main(arguments: list[str]) -> int:
    stale = []
    for path, text in ((API, api_page()), (VARIABLES_PAGE, variables_page())):
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.name)
        if "--check" not in arguments:
            path.write_text(text)
    if stale and "--check" in arguments:
        print(f"{', '.join(stale)}: not what the sources say; run ./dev docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
