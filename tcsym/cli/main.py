# SPDX-License-Identifier: Apache-2.0
"""The commands that are about one kernel: run, bench, show, grad, export, tune; and all others.

Exit codes: 1 error, 2 usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tcsym import __version__
from tcsym.cli.cache import cache
from tcsym.cli.check import check
from tcsym.cli.completion import completion
from tcsym.cli.doctor import doctor
from tcsym.cli.kernel import (
    Chosen,
    complete_stage,
    file_argument,
    load_kernel,
    start_option,
    target_option,
    with_kernel,
)
from tcsym.cli.listing import list_kernels
from tcsym.cli.output import (
    ErrorsAsText,
    KernelCommand,
    json_option,
    print_json,
    print_table,
    seconds_text,
)
from tcsym.cli.sizes import (
    parse_all_sizes,
    parse_many_sizes,
    parse_names,
    parse_sizes,
    sizes_of,
    sizes_option,
)
from tcsym.cli.tune import (
    TRACE,
    budget_option,
    candidates_option,
    limit_of,
    refuse_with_trace,
    report_json,
    short_text,
    tune_trace,
)

if TYPE_CHECKING:
    from tcsym.cli.bench import Speed
    from tcsym.cli.run import Run
    from tcsym.kernel.kernel import Kernel
    from tcsym.options import Options
    from tcsym.tuning.request import Search


@click.group(cls=ErrorsAsText, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tcsym", message="%(prog)s %(version)s")
def main() -> None:
    """Index notation to machine code: one compilation for every size."""


for command in (cache, check, completion, doctor, list_kernels):
    main.add_command(command)


@main.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version, as `tcsym --version` does; `tcsym doctor` says what it runs with.

    \b
    Example: tcsym version
    """
    if as_json:
        print_json({"version": __version__})
    else:
        click.echo(f"tcsym {__version__}")


@main.command(cls=KernelCommand)
@with_kernel
@sizes_option
@click.option("--check", is_flag=True, help="Compare with the interpreter (slow).")
@click.option("--threads", type=click.IntRange(1), help="Most threads to use.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="X=x.npy",
    help="Take an input from a file, and its sizes with it.",
)
@click.option(
    "--output", "outputs", multiple=True, metavar="Y=y.npy", help="Write an output to a file."
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Of the random inputs.")
@json_option
def run(
    kernel: Kernel,
    sizes: dict[str, int],
    check: bool,
    threads: int | None,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Run a def of FILE; print times and shapes.

    FILE is a text of defs, with `:NAME` if it has several; the name of a kernel that comes with
    tcsym; or `-` for standard input. Inputs are random where none is given.

    \b
    Example: tcsym run mm.tc --sizes M=12,K=6,N=9 --check
    """
    from tcsym.cli.arrays import check_outputs, load_inputs, save_outputs
    from tcsym.cli.run import run_kernel

    where, arrays = check_outputs(kernel, outputs), load_inputs(kernel, inputs)
    result = run_kernel(kernel, sizes, threads, check, seed, arrays)
    save_outputs(where, result.results)
    if as_json:
        print_json(result.as_json())
    else:
        _print_run(result)
    if not result.is_good:
        raise click.exceptions.Exit(1)


@main.command(cls=KernelCommand)
@with_kernel
@click.option(
    "--sizes",
    "all_sizes",
    multiple=True,
    callback=parse_all_sizes,
    metavar="N=32,M=8",
    help="Values of the sizes; again for more sizes.",
)
@click.option("--threads", type=click.IntRange(1), help="Most threads to use.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Of the random inputs.")
@json_option
def bench(
    kernel: Kernel,
    all_sizes: list[dict[str, int]],
    threads: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Time a def of FILE on random inputs, at one or more sizes.

    Where the def is one contraction numpy's einsum is timed beside it, on numpy's own threads.

    \b
    Example: tcsym bench softmax --sizes N=64,D=100 --sizes N=64,D=101
    """
    from tcsym.cli.bench import bench_kernels

    speeds = list(bench_kernels(kernel, all_sizes or [{}], threads, seed))
    if as_json:
        print_json({"def": kernel.name, "speeds": [s.as_json() for s in speeds]})
    else:
        columns = ("sizes", "best", "median", "GFLOP/s", "GB/s", "einsum", "einsum / ours")
        print_table(columns, [_speed_row(s) for s in speeds])


@main.command(cls=KernelCommand)
@with_kernel
@click.argument("folder", type=click.Path(file_okay=False))
@click.option(
    "--bounds", callback=parse_sizes, default="", metavar="N=128", help="Largest values of sizes."
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    metavar="avx2",
    help="A kind of processor or device (sm_80) it has code for; default: the kernel's.",
)
@click.option(
    "--constant",
    "constants",
    multiple=True,
    metavar="W=w.npy",
    help="An input that calls do not give: taken into FOLDER for all of them.",
)
@json_option
def export(
    kernel: Kernel,
    folder: str,
    bounds: dict[str, int],
    levels: tuple[str, ...],
    constants: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write FOLDER, which runs the kernel without a compiler: library, C header, manifest.

    \b
    Example: tcsym export mm.tc mm-artifact --bounds M=512 --level avx2 --level novector
    """
    from tcsym.cli.arrays import load_inputs

    targets = [f"{'cuda' if x.startswith('sm_') else 'cpu'}:{x}" for x in levels] or None
    arrays = load_inputs(kernel, constants)
    made = kernel.export(folder, bounds=bounds, targets=targets, constants=arrays)
    found = {x.name: x.stat().st_size for x in sorted(made.iterdir())}
    if as_json:
        print_json({"def": kernel.name, "folder": str(made), "bytes": found})
    else:
        print_table(("file", "bytes"), [(name, str(n)) for name, n in found.items()])


@main.command(cls=KernelCommand)
@with_kernel
@click.argument("stage", shell_complete=complete_stage)
@sizes_option
@json_option
def show(
    kernel: Kernel,
    stage: str,
    sizes: dict[str, int],
    as_json: bool,
) -> None:
    """Print one STAGE of the compilation of FILE.

    Stages: syntax program ranges scop dependences schedule loops plan mapped costs llvm asm
    options variants.

    \b
    Example: tcsym show mm.tc schedule
    """
    text = kernel.explain(stage, **sizes)
    if as_json:
        print_json({"def": kernel.name, "stage": stage, "text": text})
    else:
        from tcsym.display.coloured import for_terminal

        click.echo(for_terminal(text, stage))


@main.command(cls=KernelCommand)
@file_argument
@click.option(
    "--wrt",
    callback=parse_names,
    metavar="X,W",
    help="The inputs it is for; default: all floating.",
)
@click.option("--forward", is_flag=True, help="Tangents of outputs instead: forward mode.")
@json_option
def grad(file: Chosen, wrt: tuple[str, ...] | None, forward: bool, as_json: bool) -> None:
    """Print the gradient of a def of FILE: a text, like that which it is of.

    \b
    Example: tcsym grad mm.tc --wrt A > mm_grad.tc
    """
    kernel = load_kernel(file)
    made = kernel.jvp(wrt) if forward else kernel.grad(wrt)
    if as_json:
        print_json({"def": made.name, "signature": repr(made.signature), "text": made.source})
    else:
        click.echo(made.source.rstrip("\n"))


@main.command(cls=KernelCommand)
@file_argument
@click.option(
    "--sizes",
    callback=parse_many_sizes,
    multiple=True,
    metavar="N=32,M=1..128",
    help="Sizes to tune for: several times, or once with ranges.",
)
@budget_option
@candidates_option
@target_option
@start_option
@click.option("--seed", type=click.IntRange(0), default=0, help="Of all that is random.")
@click.option("--search", type=click.Choice(["guided", "genetic"]), default="guided")
@click.option("--plot", metavar="FILE.png", help="Write a picture of the convergence.")
@json_option
def tune(
    file: Chosen,
    sizes: list[dict[str, Any]],
    budget: str | None,
    candidates: int | None,
    target: str | None,
    start: list[Options],
    seed: int,
    search: Search,
    plot: str | None,
    as_json: bool,
) -> None:
    """Search for better options for a def of FILE; they serve later runs on this machine.

    FILE may be a trace (`.jsonl`) of `tcsym.record`: its kernels are tuned for what was called.

    \b
    Example: tcsym tune mm.tc --sizes M=1..64,K=64,N=64 --budget 60
    """
    far = limit_of(budget, candidates)
    if file.path.suffix == TRACE:
        refuse_with_trace(sizes=sizes, target=target, start=start, plot=plot)
        reports = []
        for report in tune_trace(file.path, far, seed, search):
            reports.append(report)
            if not as_json:
                click.echo(str(report))
        if as_json:
            print_json([report_json(report) for report in reports])
        elif told := short_text(reports):
            click.echo(told)
        return
    kernel = load_kernel(file, target)
    click.echo(far.will_take(kernel.name), err=True)
    report = kernel.tune(
        sizes_of(sizes),
        **far.arguments(),
        start=start,
        seed=seed,
        search=search,
    )
    if plot:
        report.plot(plot)
    if as_json:
        print_json(report_json(report))
    else:
        click.echo(str(report))


def _speed_row(s: Speed) -> tuple[str, ...]:
    return (
        ",".join(f"{n}={v}" for n, v in s.sizes.items()) or "none",
        seconds_text(s.best),
        seconds_text(s.median),
        "" if s.gflops is None else f"{s.gflops:.3g}",
        f"{s.gbytes:.3g}",
        "" if s.einsum is None else seconds_text(s.einsum),
        "" if s.einsum is None else f"{s.einsum / s.best:.2f}",
    )


def _print_run(result: Run) -> None:
    stats = result.kernel.stats
    made = "from the code cache" if stats.cache_hits else "with compilation"
    click.echo(f"{result.kernel.signature!r}")
    click.echo(f"sizes   {', '.join(f'{n}={v}' for n, v in result.sizes.items()) or 'none'}")
    click.echo(f"first   {seconds_text(result.first)} ({made})")
    click.echo(f"best    {seconds_text(result.best)}, median {seconds_text(result.median)}")
    print_table(
        ("output", "type", "shape"),
        [(n, str(a.dtype), str(a.shape)) for n, a in result.results.items()],
    )
    for d in result.deviations:
        verdict = "agrees with" if d.is_good else "DIFFERS from"
        click.echo(
            f"{d.output} {verdict} the interpreter: error {d.error:.3g}, allowed {d.allowed:.3g}"
        )
