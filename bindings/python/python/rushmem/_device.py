"""The device functions in this package, for compilers that link them."""

import functools
import json
from pathlib import Path

_FOLDER = Path(__file__).parent / "device"


@functools.cache
def functions():
    """Returns the entry of every device function in the table, by its name in C."""
    return {each["name"]: each for each in json.loads((_FOLDER / "functions.json").read_text())}


def library(capability, ending):
    """Returns the path of the functions for GPUs of a compute capability, such as 90."""
    return str(_FOLDER / f"rushmem_device_{'sm90' if capability >= 90 else 'sm75'}.{ending}")
