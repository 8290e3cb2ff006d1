"""A kernel of Debian's sources, built with checks of memory accesses (KASAN) and locks (lockdep)."""

import os
import pathlib
import shutil

from packages import WORK, Packages, first, run

SOURCE = ("bookworm", "linux-source-6.1")
CONFIG = pathlib.Path(__file__).resolve().parent / "checked.config"


def build():
    """Returns a folder with the kernel and its modules, in the layout of a package. Takes 20 minutes on two cores."""
    root = WORK / "checked"
    if root.exists():
        return root
    suite, package = SOURCE
    archive = first(Packages(suite).unpack([package], only="linux-source").rglob("*.tar.xz"), package)
    folder, partial = WORK / "checked-build", root.with_suffix(".partial")
    for old in (folder, partial):
        shutil.rmtree(old, ignore_errors=True)
    folder.mkdir()
    run("tar", "-xf", str(archive), "-C", str(folder), "--strip-components", "1")
    make = ("make", "-s", f"-j{os.cpu_count()}", "-C", str(folder))
    run(*make, f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig")
    lost = set(settings(CONFIG)) - set(settings(folder / ".config"))
    if lost:
        raise ValueError(f"the kernel does not have these settings: {', '.join(sorted(lost))}")
    run(*make, "bzImage", "modules")
    run(*make, f"INSTALL_MOD_PATH={partial}", "modules_install")
    version = first((partial / "lib/modules").iterdir(), "modules").name
    (partial / "boot").mkdir()
    shutil.copy(folder / "arch/x86/boot/bzImage", partial / "boot" / f"vmlinuz-{version}")
    shutil.rmtree(folder)
    partial.rename(root)
    return root


def settings(config):
    return [line for line in config.read_text().splitlines() if line.startswith("CONFIG_")]
