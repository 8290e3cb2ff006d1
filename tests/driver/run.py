#!/usr/bin/env python3
"""Boots virtual machines in which Linux's own mlx5 drivers bind to the software ConnectX, and runs programs there.

QEMU emulates the processor, so neither KVM nor privileges are needed. Packages are fetched by apt into target/driver.
"""

import argparse
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "target" / "driver"
DOCS = ROOT / "docs" / "softnic.md"
MARKERS = ("<!-- commands of the driver -->\n", "<!-- end of the commands -->\n")

# The Debian suite of each kernel. QEMU speaks vfio-user from 10.1 on, which the last one has.
SUITES = ["bookworm", "trixie", "forky"]
QEMU_SUITE = "forky"
PROGRAM_SUITE = "bookworm"
PROGRAMS = ["busybox-static", "ibverbs-providers", "ibverbs-utils", "perftest"]

# Modules of the guest. `e1000` connects two guests, for the programs' own addresses.
MODULES = ["mlx5_ib", "ib_uverbs", "e1000"]

TESTS = """\
ibv_rc_pingpong -c -n 100
ibv_rc_pingpong -c -e -n 100
ibv_ud_pingpong -c -n 100
ibv_srq_pingpong -c -n 100
ib_write_bw -n 200
ib_read_bw -n 200
ib_send_bw -n 200
ib_write_lat -n 100
ib_read_lat -n 100
ib_send_lat -n 100
ib_send_lat -e -n 100
ib_atomic_lat -n 100
ib_atomic_bw -A CMP_AND_SWAP -n 100
ib_write_bw -c UC -n 200
ib_write_bw -c XRC -n 200
ib_send_bw -c UD -s 1024 -n 200
ib_send_bw -c DC -n 200
"""

# Programs for two guests. The first ones do not check that the peer is ready.
TESTS_OF_TWO = "".join(line + "\n" for line in TESTS.splitlines() if line.startswith("ib_"))


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
        root, archives = self.folder / f"root-{names[0]}", self.folder / f"archives-{names[0]}"
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


def mirror():
    sites = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian")
    return first(sites.split(), "mirror of Debian packages")


class Kernel:
    """A kernel with its modules, and an initial file system in which the guest lives."""

    def __init__(self, suite):
        root = Packages(suite).unpack(["linux-image-amd64"], only="linux-")
        folders = (path for base in ("lib/modules", "usr/lib/modules") for path in (root / base).glob("*"))
        modules = first(folders, f"modules of the kernel of {suite}")
        self.version = modules.name
        images = ("boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz")
        self.image = first((path for pattern in images for path in root.glob(pattern)), f"kernel of {suite}")
        self.suite, self.modules = suite, modules

    @property
    def release(self):
        return ".".join(self.version.split(".")[:2])

    def order(self):
        """Returns the files of the modules, each after those that it needs."""
        base = self.modules.parent.parent.parent
        run("depmod", "-b", str(base), self.version)
        files = []
        for module in MODULES:
            shown = run("modprobe", "-d", str(base), "-S", self.version, "--show-depends", module)
            files += [line.split()[1] for line in shown.splitlines() if line.startswith("insmod")]
        return [pathlib.Path(file) for file in dict.fromkeys(files)]

    def initramfs(self, programs, name):
        """Writes an initial file system that runs `programs`. Returns its path."""
        tree = WORK / f"tree-{self.suite}"
        shutil.rmtree(tree, ignore_errors=True)
        source = Packages(PROGRAM_SUITE).unpack(PROGRAMS)
        ignore = shutil.ignore_patterns("share", "perl*", "gconv")
        shutil.copytree(source, tree, symlinks=True, ignore=ignore)
        for folder in ("proc", "sys", "dev", "tmp", "modules", "bin"):
            (tree / folder).mkdir(exist_ok=True)
        for applet in run(str(tree / "bin/busybox"), "--list").split():
            if not (tree / "bin" / applet).exists():
                (tree / "bin" / applet).symlink_to("busybox")
        order = []
        for file in self.order():
            data = file.read_bytes()
            if file.suffix == ".xz":
                data = subprocess.run(["xz", "-dc"], input=data, stdout=subprocess.PIPE, check=True).stdout
            name_in_tree = file.name.removesuffix(".xz")
            (tree / "modules" / name_in_tree).write_bytes(data)
            order.append(name_in_tree)
        (tree / "modules/order").write_text("".join(line + "\n" for line in order))
        (tree / "programs").write_text(programs)
        shutil.copy(HERE / "init.sh", tree / "init")
        (tree / "init").chmod(0o755)
        files = subprocess.run(["find", "."], cwd=tree, stdout=subprocess.PIPE, check=True).stdout
        archive = subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=files, stdout=subprocess.PIPE, check=True
        ).stdout
        path = WORK / f"{name}.gz"
        path.write_bytes(gzip.compress(archive, 1))
        return path


class Qemu:
    def __init__(self):
        self.root = Packages(QEMU_SUITE).unpack(["qemu-system-x86"])
        loaders = (path for base in ("lib64", "usr/lib64") for path in (self.root / base).glob("ld-linux-x86-64.so.2"))
        self.loader = first(loaders, f"dynamic loader of {QEMU_SUITE}")

    def start(self, kernel, initramfs, socket, role, log, network=None):
        libraries = ":".join(str(self.root / base / "x86_64-linux-gnu") for base in ("lib", "usr/lib"))
        libraries += f":{self.root}/usr/lib/x86_64-linux-gnu/pulseaudio"
        net = ["-nic", "none"]
        if network:
            mode, path = network
            net = ["-netdev", f"stream,id=net,server={mode},addr.type=unix,addr.path={path}"]
            mac = "52:54:00:00:00:01" if mode == "on" else "52:54:00:00:00:02"
            net += ["-device", f"e1000,netdev=net,mac={mac}"]
        device = f'{{"driver":"vfio-user-pci","bus":"rp","socket":{{"type":"unix","path":"{socket}"}}}}'
        command = [
            str(self.loader), "--library-path", libraries, str(self.root / "usr/bin/qemu-system-x86_64"),
            "-L", str(self.root / "usr/share/seabios"), "-L", str(self.root / "usr/share/qemu"),
            "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "1G", "-nographic", "-no-reboot",
            "-machine", "q35,memory-backend=m", "-object", "memory-backend-memfd,id=m,size=1G,share=on",
            *net, "-device", "pcie-root-port,id=rp,chassis=1", "-device", device,
            "-kernel", str(kernel.image), "-initrd", str(initramfs),
            "-append", f"console=ttyS0 quiet panic=-1 role={role}",
        ]  # fmt: skip
        with open(log, "wb") as out:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)


class Adapter:
    """A software ConnectX that waits for a guest."""

    def __init__(self, rushmem, name):
        self.socket, self.log = WORK / f"{name}.sock", WORK / f"{name}.log"
        self.socket.unlink(missing_ok=True)
        with open(self.log, "wb") as out:
            command = [rushmem, "softnic", "--vfio-user", str(self.socket), "--link", "ib"]
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        while "waiting for a virtual machine" not in self.log.read_text():
            if self.process.poll() is not None:
                sys.exit(self.log.read_text())
            time.sleep(0.1)

    def stop(self):
        """Returns how often each command was executed and refused, after the guest has left."""
        deadline = time.monotonic() + 10
        while "disconnected" not in self.log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        self.process.terminate()
        self.process.wait()
        found = re.findall(r"^  (\S+): (\d+) executed, (\d+) refused$", self.log.read_text(), re.MULTILINE)
        return {name: (int(done), int(refused)) for name, done, refused in found}


def results(log, programs):
    """Returns the failed steps of a guest's log."""
    text = log.read_text(errors="replace").replace("\r", "")
    found = dict(re.findall(r"^== (.*): (\d+)$", text, re.MULTILINE))
    modules = [step for step in found if step.startswith("insmod ")]
    steps = [*modules, "ibv_devinfo", *programs.splitlines(), "dmesg", "rmmod"]
    for step in steps:
        print(f"  {'PASS' if found.get(step) == '0' else 'FAIL'} {step}")
    return [step for step in steps if found.get(step) != "0"]


def guests(qemu, kernel, rushmem, roles, programs, minutes):
    """Runs one guest for each role. Returns the failed steps and the counts of commands."""
    initramfs = kernel.initramfs(programs, f"{kernel.suite}-{roles[0]}")
    adapters = [Adapter(rushmem, f"{kernel.suite}-{role}-adapter") for role in roles]
    wire = WORK / f"{kernel.suite}-wire"
    wire.unlink(missing_ok=True)
    logs, machines = [], []
    for role, adapter in zip(roles, adapters):
        network = {"server": ("on", wire), "client": ("off", wire)}.get(role)
        logs.append(WORK / f"{kernel.suite}-{role}.log")
        machines.append(qemu.start(kernel, initramfs, adapter.socket, role, logs[-1], network))
        time.sleep(2)
    deadline = time.monotonic() + 60 * minutes
    failed = []
    for role, machine, log in zip(roles, machines, logs):
        try:
            machine.wait(max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            machine.kill()
            machine.wait()
        print(f"kernel {kernel.version}, {role}")
        failed += [f"{kernel.release} {role}: {step}" for step in results(log, programs)]
    counts = {}
    for adapter in adapters:
        for name, (done, refused) in adapter.stop().items():
            before = counts.get(name, (0, 0))
            counts[name] = (before[0] + done, before[1] + refused)
    return failed, counts


def table(counts):
    """Returns the table of commands of each kernel, for the documentation."""
    kernels = list(counts)
    lines = ["| command | " + " | ".join(f"Linux {kernel}" for kernel in kernels) + " |"]
    lines.append("|---" * (len(kernels) + 1) + "|")

    def cell(count):
        match count:
            case None:
                return "-"
            case (_, 0):
                return "executed"
            case (0, _):
                return "refused"
            case _:
                return "executed, some refused"

    for name in sorted({name for kernel in kernels for name in counts[kernel]}):
        lines.append(f"| {name} | " + " | ".join(cell(counts[kernel].get(name)) for kernel in kernels) + " |")
    return "".join(line + "\n" for line in lines)


def skip(reason):
    """Reports that the test cannot run on this machine, which CI_REQUIRE_ALL makes an error."""
    if "CI_REQUIRE_ALL" in os.environ:
        sys.exit(f"driver cannot run, and CI_REQUIRE_ALL is set: {reason}")
    print(f"SKIPPED driver: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rushmem", default=str(ROOT / "target/debug/rushmem"), help="the command to test")
    parser.add_argument("--suites", default=",".join(SUITES), help="Debian suites whose kernels to test")
    parser.add_argument("--guests", default="1,2", help="numbers of guests: 1, 2 or both")
    parser.add_argument("--minutes", type=int, default=10, help="time for each set of guests")
    parser.add_argument("--update-docs", action="store_true", help="write the table of commands to docs/softnic.md")
    args = parser.parse_args()
    try:
        execute(args)
    except Missing as error:
        skip(error)


def execute(args):
    for tool in ("apt-get", "dpkg-deb", "cpio", "modprobe", "depmod", "xz", args.rushmem):
        if not shutil.which(tool):
            raise Missing(f"no {tool}")
    WORK.mkdir(parents=True, exist_ok=True)
    qemu = Qemu()
    kernels = [Kernel(suite) for suite in args.suites.split(",")]
    Packages(PROGRAM_SUITE).unpack(PROGRAMS)
    failed, counts = [], {}
    for kernel in kernels:
        for number in args.guests.split(","):
            roles = ["alone"] if number == "1" else ["server", "client"]
            programs = TESTS if number == "1" else TESTS_OF_TWO
            bad, sent = guests(qemu, kernel, args.rushmem, roles, programs, args.minutes)
            failed += bad
            if number == "1":
                counts[kernel.release] = sent
    (WORK / "commands.md").write_text(table(counts))
    if args.update_docs:
        before, rest = DOCS.read_text().split(MARKERS[0])
        DOCS.write_text(before + MARKERS[0] + "\n" + table(counts) + "\n" + MARKERS[1] + rest.split(MARKERS[1])[1])
    if failed:
        sys.exit("failed:\n" + "\n".join(failed) + f"\nlogs are in {os.path.relpath(WORK)}")


if __name__ == "__main__":
    main()
