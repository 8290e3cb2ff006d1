"""The examples of docstrings run, every public name has one, and the type stubs name them all."""

import ast
import doctest
import inspect
from pathlib import Path

import numpy
import pytest

import rushmem

CLASSES = [rushmem.Array, rushmem.Runtime, rushmem.Team, rushmem.Window]
EXCEPTIONS = [rushmem.DeadlineError, rushmem.Error, rushmem.MisuseError, rushmem.PeerLostError]
PROTOCOLS = {"__dlpack__", "__dlpack_device__", "__array_interface__", "__cuda_array_interface__"}
# Their examples start the runtime.
STARTERS = {"init", "unique_id", "Runtime"}


def members(cls):
    """Return the documented members that the class itself defines."""
    named = {name: value for name, value in vars(cls).items() if not name.startswith("_") or name in PROTOCOLS}
    return {name: value for name, value in named.items() if inspect.getdoc(value)}


def documented():
    names = {name: getattr(rushmem, name) for name in rushmem.__all__}
    for cls in CLASSES:
        names |= {f"{cls.__name__}.{name}": value for name, value in members(cls).items()}
    return names


@pytest.mark.parametrize("name", documented())
def test_examples_run(name):
    text = inspect.getdoc(documented()[name])
    last = name.rsplit(".")[-1]
    assert text and (">>>" in text or last in PROTOCOLS or documented()[name] in EXCEPTIONS), f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runtime = None if name in STARTERS else rushmem.init()
    values = {"numpy": numpy, "rushmem": rushmem, "rt": runtime}
    test = doctest.DocTestParser().get_doctest(text, values, name, None, 0)
    try:
        runner.run(test, clear_globs=False)
    finally:
        if test.globs["rt"] is not None:
            test.globs["rt"].finalize()
    assert runner.summarize(verbose=False).failed == 0


def test_stubs_name_all_members():
    tree = ast.parse((Path(rushmem.__file__).parent / "_rushmem.pyi").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for cls in CLASSES:
        stubbed = {node.name for node in classes[cls.__name__].body if isinstance(node, ast.FunctionDef)}
        assert members(cls).keys() <= stubbed, cls
        assert {name for name in stubbed if not name.startswith("__")} <= members(cls).keys(), cls
