"""Runs rdma-core's own tests in a guest: `rdma_core.py MINIMUM [OPTION...]`, with options of its run_tests.py.

Fails if a test fails, or if fewer than MINIMUM tests pass.
"""

import random
import sys
import unittest
from importlib.machinery import SourceFileLoader

SUITE = "/usr/share/doc/rdma-core/tests"

# Tests that fail where the device lacks a feature, instead of being skipped, by the feature.
LACKING = {
    "keys over lists of memory, which a work request configures": [
        "test_mlx5_mkey.Mlx5MkeyTest.test_mkey_interleaved",
        "test_mlx5_mkey.Mlx5MkeyTest.test_mkey_interleaved_new_api",
        "test_mlx5_mkey.Mlx5MkeyTest.test_mkey_list",
        "test_mlx5_mkey.Mlx5MkeyTest.test_mkey_list_bad_flow",
        "test_mlx5_mkey.Mlx5MkeyTest.test_mkey_list_new_api",
        "test_mlx5_mkey.Mlx5MkeyTest.test_mkey_remote_invalidate",
    ],
}


def skip(name, feature):
    module, group, test = name.split(".")
    group = getattr(sys.modules[f"tests.{module}"], group)
    setattr(group, test, unittest.skip(f"no {feature}")(getattr(group, test)))


def main():
    minimum = int(sys.argv.pop(1))
    # The suite chooses sizes and queue pairs at random.
    random.seed(1)
    sys.path.insert(0, SUITE)
    tests = SourceFileLoader("tests", f"{SUITE}/__init__.py").load_module()
    sys.modules["args_parser"].parser.parse_args()
    for feature, names in LACKING.items():
        for name in names:
            skip(name, feature)
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromModule(tests))
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    print(f"{passed} tests pass, {failed} fail, {len(result.skipped)} are skipped")
    sys.exit(failed != 0 or passed < minimum)


if __name__ == "__main__":
    main()
