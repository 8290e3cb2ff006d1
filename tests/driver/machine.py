"""Virtual machines with a software ConnectX."""

import gzip
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

import checked
from packages import ROOT, WORK, Packages, first, run

HERE = pathlib.Path(__file__).resolve().parent

# The Debian suite of each kernel. QEMU speaks vfio-user from 10.1 on, which the last one has.
SUITES = ["bookworm", "trixie", "forky"]
# The kernel that is built with checks, in place of a suite.
CHECKED = "checked"
QEMU_SUITE = "forky"
PROGRAM_SUITE = "bookworm"
PROGRAMS = ["busybox-static", "ibverbs-providers", "ibverbs-utils"]


def test_program(test):
    """Builds a test program. Returns its path."""
    # The same features of dependencies as in other builds of the workspace.
    options = ("-q", "--workspace", "--test", test, "--no-run", "--message-format", "json")
    built = run("cargo", "test", *options, cwd=ROOT)
    messages = [json.loads(line) for line in built.splitlines() if line.startswith("{")]
    programs = [message["executable"] for message in messages if message.get("target", {}).get("name") == test]
    return first(filter(None, programs), f"test {test}")


class Kernel:
    """A kernel with its modules, and an initial file system in which the guest lives."""

    def __init__(self, suite):
        root = checked.build() if suite == CHECKED else Packages(suite).unpack(["linux-image-amd64"], only="linux-")
        folders = (path for base in ("lib/modules", "usr/lib/modules") for path in (root / base).glob("*"))
        modules = first(folders, f"modules of the kernel of {suite}")
        self.version = modules.name
        images = ("boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz")
        self.image = first((path for pattern in images for path in root.glob(pattern)), f"kernel of {suite}")
        self.suite, self.modules = suite, modules

    @property
    def release(self):
        return ".".join(self.version.split(".")[:2])

    def order(self, modules):
        """Returns the files of modules, each after those that it needs."""
        base = self.modules.parent.parent.parent
        run("depmod", "-b", str(base), self.version)
        files = []
        for module in modules:
            shown = run("modprobe", "-d", str(base), "-S", self.version, "--show-depends", module)
            files += [line.split()[1] for line in shown.splitlines() if line.startswith("insmod")]
        return [pathlib.Path(file) for file in dict.fromkeys(files)]

    def initramfs(self, chosen, binaries):
        """Writes an initial file system that runs a set of programs, with our binaries from a folder. Returns its
        path."""
        tree = WORK / f"tree-{self.suite}"
        shutil.rmtree(tree, ignore_errors=True)
        source = Packages(PROGRAM_SUITE).unpack([*PROGRAMS, *chosen.packages])
        ignore = shutil.ignore_patterns("share", "perl*", "gconv")
        shutil.copytree(source, tree, symlinks=True, ignore=ignore)
        for folder in chosen.shared:
            shutil.copytree(source / "usr/share" / folder, tree / "usr/share" / folder)
        for folder in ("proc", "sys", "dev", "tmp", "data", "modules", "bin"):
            (tree / folder).mkdir(exist_ok=True)
        for applet in run(str(tree / "bin/busybox"), "--list").split():
            if not (tree / "bin" / applet).exists():
                (tree / "bin" / applet).symlink_to("busybox")
        for name in chosen.binaries:
            run("strip", "-o", str(tree / "bin" / name), str(binaries / name))
        for name in chosen.tests:
            run("strip", "-o", str(tree / "bin" / name), test_program(name))
        for source in chosen.sources:
            program = tree / "bin" / pathlib.Path(source).stem
            run(*chosen.compiler, "-O1", "-o", str(program), str(ROOT / source), "-libverbs", "-lmlx5")
        for name in chosen.files:
            shutil.copy(ROOT / name, tree / "data")
        self.copy_modules(tree / "modules", chosen.modules)
        shutil.copy(chosen.file, tree / "set.sh")
        shutil.copy(HERE / "init.sh", tree / "init")
        (tree / "init").chmod(0o755)
        files = subprocess.run(["find", "."], cwd=tree, stdout=subprocess.PIPE, check=True).stdout
        archive = subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=files, stdout=subprocess.PIPE, check=True
        ).stdout
        path = WORK / f"{self.suite}-{chosen.name}.gz"
        path.write_bytes(gzip.compress(archive, 1))
        return path

    def copy_modules(self, folder, modules):
        order = []
        for file in self.order(modules):
            data = file.read_bytes()
            if file.suffix == ".xz":
                data = subprocess.run(["xz", "-dc"], input=data, stdout=subprocess.PIPE, check=True).stdout
            order.append(file.name.removesuffix(".xz"))
            (folder / order[-1]).write_bytes(data)
        (folder / "order").write_text("".join(line + "\n" for line in order))


class Qemu:
    def __init__(self):
        self.root = Packages(QEMU_SUITE).unpack(["qemu-system-x86"])
        loaders = (path for base in ("lib64", "usr/lib64") for path in (self.root / base).glob("ld-linux-x86-64.so.2"))
        self.loader = first(loaders, f"dynamic loader of {QEMU_SUITE}")

    def start(self, kernel, initramfs, socket, role, log, wire):
        """Starts a guest. `wire` is the socket of the Ethernet between two guests."""
        libraries = ":".join(str(self.root / base / "x86_64-linux-gnu") for base in ("lib", "usr/lib"))
        libraries += f":{self.root}/usr/lib/x86_64-linux-gnu/pulseaudio"
        net = ["-nic", "none"]
        if role != "alone":
            listens = "on" if role == "server" else "off"
            net = ["-netdev", f"stream,id=net,server={listens},addr.type=unix,addr.path={wire}"]
            mac = "52:54:00:00:00:01" if role == "server" else "52:54:00:00:00:02"
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

    def __init__(self, rushmem, options, name):
        self.socket, self.log = WORK / f"{name}.sock", WORK / f"{name}.log"
        self.socket.unlink(missing_ok=True)
        with open(self.log, "wb") as out:
            command = [rushmem, "softnic", "--vfio-user", str(self.socket), *options]
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


def boot(qemu, kernel, rushmem, chosen, minutes):
    """Runs a set of programs in its guests. Returns the log of each role and the counts of commands."""
    initramfs = kernel.initramfs(chosen, pathlib.Path(rushmem).parent)
    name = f"{kernel.suite}-{chosen.name}"
    adapters = [Adapter(rushmem, options, f"{name}-{role}-adapter") for role, options in chosen.adapters.items()]
    wire = WORK / f"{kernel.suite}-wire"
    wire.unlink(missing_ok=True)
    logs, machines = {}, []
    for role, adapter in zip(chosen.roles, adapters):
        logs[role] = WORK / f"{name}-{role}.log"
        machines.append(qemu.start(kernel, initramfs, adapter.socket, role, logs[role], wire))
        while role == "server" and not wire.exists() and machines[-1].poll() is None:
            time.sleep(0.1)
    deadline = time.monotonic() + 60 * minutes
    for machine in machines:
        try:
            machine.wait(max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            machine.kill()
            machine.wait()
    counts = {}
    for adapter in adapters:
        for command, (done, refused) in adapter.stop().items():
            before = counts.get(command, (0, 0))
            counts[command] = (before[0] + done, before[1] + refused)
    return logs, counts
