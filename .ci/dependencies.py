#!/usr/bin/env python3
"""Checks licenses, duplicate versions and sources of all dependencies against deny.toml, from `cargo metadata`."""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def licensed(expression, allowed):
    """Returns whether the SPDX expression can be satisfied with the allowed licenses alone."""
    tokens = re.findall(r"[()]|[^\s()/]+|/", expression)

    def either():
        ok = both()
        while tokens and tokens[0] in ("OR", "/"):
            tokens.pop(0)
            ok = both() or ok
        return ok

    def both():
        ok = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            ok = one() and ok
        return ok

    def one():
        name = tokens.pop(0)
        if name == "(":
            ok = either()
            tokens.pop(0)
            return ok
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            name += " WITH " + tokens.pop(0)
        return name in allowed

    ok = either()
    if tokens:
        raise ValueError(f"cannot read the license {expression!r}")
    return ok


def problems(packages, rules):
    allowed = set(rules["licenses"]["allow"])
    registries = {"registry+" + url for url in rules["sources"]["allow-registry"]}
    clarified = {clarify["crate"]: clarify["expression"] for clarify in rules["licenses"].get("clarify", [])}
    exceptions = {exception["crate"]: set(exception["allow"]) for exception in rules["licenses"].get("exceptions", [])}
    skipped = {(skip["name"], skip["version"].lstrip("=")) for skip in rules["bans"]["skip"]}
    versions = collections.defaultdict(set)
    for package in packages:
        name, version, source = package["name"], package["version"], package["source"]
        versions[name].add(version)
        if source is None:
            continue
        if source not in registries:
            yield f"{name} {version}: its source {source} is not in deny.toml"
        license = package["license"] or clarified.get(name)
        if license is None or not licensed(license, allowed | exceptions.get(name, set())):
            yield f"{name} {version}: its license {license} is not allowed by deny.toml"
    for name, found in sorted(versions.items()):
        left = sorted(version for version in found if (name, version) not in skipped)
        if len(left) > 1:
            yield f"{name}: {len(left)} versions ({', '.join(left)}); update one, or add it to `skip` in deny.toml"
    for name, version in sorted(skipped):
        if version not in versions[name] or len(versions[name]) == 1:
            yield f"{name} {version}: it is skipped in deny.toml without need"


def main():
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--all-features"]
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    packages = json.loads(output.stdout)["packages"]
    found = list(problems(packages, rules))
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{len(packages)} packages, {len(found)} problems")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
