"""tarkit completion: print the completion script for a shell."""

from __future__ import annotations

import click

from tarkit.cli.command import Command

EXAMPLES = (
    'eval "$(tarkit completion bash)"    # in ~/.bashrc',
    'eval "$(tarkit completion zsh)"     # in ~/.zshrc',
    "tarkit completion fish > ~/.config/fish/completions/tarkit.fish",
)


@click.command(cls=Command, examples=EXAMPLES, runs=False)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script for completion in bash, zsh or fish.

    Besides commands, options and files it completes names that are in the data: fields after -f, fields and paths into
    JSON after --where and in orders and tables, keys after get. They are those of the archives that the line names, of
    the first samples or of an index; without one, of the archives in the working directory. Only files of this machine
    are read, for a tenth of a second.
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    group = click.get_current_context().find_root().command
    click.echo(made(group, {}, "tarkit", "_TARKIT_COMPLETE").source())
