"""Sets of programs. Each is a shell file in sets/, which the guest runs and which starts with these assignments:

guests    how many guests run it at once: 1 or 2. Two guests are connected by an Ethernet of their own.
adapter   options of `rushmem softnic`; adapter_server and adapter_client are those of one guest only
packages  Debian packages of its programs
binaries  our binaries, from the folder of the command `rushmem`
tests     our test programs, by the names of cargo's tests
sources   C programs of this repository, which use libibverbs and libmlx5
compiler  their compiler
files     files of this repository, which the guest has in /data
shared    folders of /usr/share that the guest has. All others are left out.
modules   modules of the kernel that the guest loads
"""

import pathlib
import re
import shlex

FOLDER = pathlib.Path(__file__).resolve().parent / "sets"
DEFAULTS = {
    "adapter": "--link ib",
    "packages": "",
    "binaries": "",
    "tests": "",
    "sources": "",
    "compiler": "cc",
    "files": "",
    "shared": "",
    "modules": "mlx5_ib ib_uverbs e1000",
}


class Set:
    def __init__(self, name):
        self.name, self.file = name, FOLDER / f"{name}.sh"
        found = DEFAULTS | dict(re.findall(r"^(\w+)=(.*)$", self.file.read_text(), re.MULTILINE))
        words = {key: shlex.split(" ".join(shlex.split(value))) for key, value in found.items()}
        self.roles = ["alone"] if words["guests"] == ["1"] else ["server", "client"]
        self.adapters = {role: words.get(f"adapter_{role}", words["adapter"]) for role in self.roles}
        self.packages, self.modules = words["packages"], words["modules"]
        self.binaries, self.tests = words["binaries"], words["tests"]
        self.sources, self.compiler = words["sources"], words["compiler"]
        self.files, self.shared = words["files"], words["shared"]
        self.link = "Ethernet" if "ethernet" in words["adapter"] else "InfiniBand"


def names():
    return sorted(file.stem for file in FOLDER.glob("*.sh"))
