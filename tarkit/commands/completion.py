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
    """Print the script for completion in bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    group = click.get_current_context().find_root().command
    click.echo(made(group, {}, "tarkit", "_TARKIT_COMPLETE").source())
