"""Packages of Debian suites, fetched by apt into target/driver."""

import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "target" / "driver"


class Missing(Exception):
    """Something that this machine lacks or cannot fetch."""


def first(paths, what):
    """Returns the first of some paths."""
    path = next(iter(paths), None)
    if path is None:
        raise Missing(f"no {what}")
    return path


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise Missing(f"{command[0]} fails: {done.stdout.strip().splitlines()[-1:]}")
    return done.stdout


def mirror():
    sites = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian")
    return first(sites.split(), "mirror of Debian packages")


class Packages:
    """Packages of one suite, fetched without regard to what this machine has installed."""

    def __init__(self, suite):
        self.suite, self.folder = suite, WORK / suite

    def options(self, archives):
        settings = {
            "Dir::Etc::sourcelist": self.folder / "sources",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::status": self.folder / "status",
            "Dir::State::lists": self.folder / "lists",
            "Dir::Cache": self.folder,
            "Dir::Cache::archives": archives,
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "",
            "Debug::NoLocking": "true",
        }
        return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]

    def unpack(self, names, only=""):
        """Fetches packages and what they need, and unpacks those whose names start with `only`. Returns their root."""
        key = "+".join(names)
        root, archives = self.folder / f"root-{key}", self.folder / f"archives-{key}"
        if root.exists():
            return root
        for folder in (archives, self.folder / "lists"):
            (folder / "partial").mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources").write_text(f"deb {mirror()} {self.suite} main\n")
        options = self.options(archives)
        run("apt-get", *options, "-q", "update")
        run("apt-get", *options, "-q", "-y", "--download-only", "install", *names)
        partial = root.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        for archive in archives.glob(f"{only}*.deb"):
            run("dpkg-deb", "-x", str(archive), str(partial))
        partial.rename(root)
        return root
