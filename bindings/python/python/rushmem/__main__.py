"""``python -m rushmem run -n 4 app.py [args]`` starts the processes of a job.

It is the command ``rushmem`` with ``python`` in front of the program; other subcommands are passed on unchanged.
"""

import os
import shutil
import sys

MISSING = """error: the command `rushmem`, which starts the processes, is not on PATH

Install it from the repository with `cargo install --path tools/cli`, or start the program with another launcher:
torchrun, mpirun or srun."""


def command(arguments):
    """Return the arguments of ``rushmem``: a Python program gets this interpreter."""
    if arguments[:1] != ["run"]:
        return arguments
    is_value = False
    for i, argument in enumerate(arguments[1:], 1):
        if argument.startswith("-"):
            is_value = argument != "--" and "=" not in argument
        elif is_value and not argument.endswith(".py"):
            is_value = False
        else:
            # The program: whatever follows is for it.
            python = [sys.executable] if argument.endswith(".py") else []
            return [*arguments[:i], *python, *arguments[i:]]
    return arguments


def main():
    program = shutil.which("rushmem")
    if program is None:
        sys.exit(MISSING)
    os.execv(program, [program, *command(sys.argv[1:])])


if __name__ == "__main__":
    main()
