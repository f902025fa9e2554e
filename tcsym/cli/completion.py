# SPDX-License-Identifier: Apache-2.0
"""`tcsym completion`: what a shell reads to complete commands, options, kernels and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PROGRAM, _VARIABLE = "tcsym", "_TCSYM_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what SHELL reads to complete commands, options, kernels and files.

    \b
    Example: for bash, in ~/.bashrc: eval "$(tcsym completion bash)"
             for zsh, in ~/.zshrc:   eval "$(tcsym completion zsh)"
             for fish: tcsym completion fish > ~/.config/fish/completions/tcsym.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, _PROGRAM, _VARIABLE).source())
