"""Sets of programs. Each is a shell file in sets/, which the guest runs and which starts with these assignments:

guests    how many guests run it at once: 1 or 2. Two guests are connected by an Ethernet of their own.
adapter   options of `rushmem softnic`
packages  Debian packages of its programs
binaries  our binaries, from the folder of the command `rushmem`
modules   modules of the kernel that the guest loads
"""

import pathlib
import re
import shlex

FOLDER = pathlib.Path(__file__).resolve().parent / "sets"
DEFAULTS = {"adapter": "--link ib", "packages": "", "binaries": "", "modules": "mlx5_ib ib_uverbs e1000"}


class Set:
    def __init__(self, name):
        self.name, self.file = name, FOLDER / f"{name}.sh"
        found = DEFAULTS | dict(re.findall(r"^(\w+)=(.*)$", self.file.read_text(), re.MULTILINE))
        words = {key: shlex.split(" ".join(shlex.split(value))) for key, value in found.items()}
        self.roles = ["alone"] if words["guests"] == ["1"] else ["server", "client"]
        self.adapter, self.packages = words["adapter"], words["packages"]
        self.binaries, self.modules = words["binaries"], words["modules"]


def names():
    return sorted(file.stem for file in FOLDER.glob("*.sh"))
