"""Runs the conformance suite on this PE, in the given kernel languages. Needs a GPU and the installed package.

    python -m rushmem run -n 2 bindings/conformance/run.py --library DIR rust cuda triton numba

``DIR`` holds what `cargo run -p rushmem-ptx -- library DIR` and, for Rust, `... conformance DIR sm_90` have
written. PEs that share a GPU need MPS.
"""

import argparse
import sys
import tempfile
import threading
from pathlib import Path

import cases
import languages
import rushmem

HERE = Path(__file__).resolve().parent
LANGUAGES = {"rust": languages.Rust, "cuda": languages.CudaCpp, "triton": languages.Triton, "numba": languages.Numba}


class Suite:
    def __init__(self, runtime, functions):
        import cupy

        self.runtime, self.functions, self.cupy = runtime, functions, cupy
        self.me, self.n = runtime.my_pe, runtime.n_pes
        self.arena = runtime.zeros(cases.WORDS, "uint64")
        self.words = cupy.from_dlpack(self.arena)
        self.results = cupy.zeros(cases.THREADS, cupy.int64)

    def value(self, argument):
        me, n = self.me, self.n
        if isinstance(argument, cases.At):
            return self.arena.address + 8 * argument.index
        names = {"me": me, "next": (me + 1) % n, "previous": (me - 1) % n, "n": n}
        return names.get(argument, argument)

    def run(self, language, case):
        """Runs a case. Returns what is wrong with its outcome."""
        start = [cases.word(self.me, i) for i in range(cases.HALF)] + [0] * cases.HALF
        for i, value in case.before.items():
            start[cases.OUT + i] = value
        self.words.set(self.cupy.asarray(start, dtype=self.cupy.uint64).get())
        self.results.fill(0x55)
        self.cupy.cuda.runtime.deviceSynchronize()
        self.runtime.barrier()
        arguments = [self.value(argument) for argument in case.arguments]
        setter = threading.Timer(0.1 if case.later else 0, self.set_later, [case.later])
        setter.start()
        results = language.run(case.call, self.runtime.context, arguments, case.threads, self.results.data.ptr)
        setter.join()
        results = results if results is not None else self.results.get()[: case.threads].tolist()
        self.runtime.barrier()
        return [*self.wrong_results(case, results), *self.wrong_words(case), *self.wrong_error(case)]

    def set_later(self, words):
        """Sets words of the second half while a kernel may be running."""
        import numpy

        self.cupy.cuda.Device(self.runtime.device).use()
        stream = self.cupy.cuda.Stream(non_blocking=True)
        for i, value in words.items():
            at = cases.OUT + i
            self.words[at : at + 1].set(numpy.array([value], numpy.uint64), stream=stream)
        stream.synchronize()

    def wrong_results(self, case, results):
        bits = 8 * {"i8": 1, "i16": 2, "i32": 4, "float": 4}.get(self.functions.result(case.call)["llvm"], 8)
        wanted = case.returns(self.me, self.n) if callable(case.returns) else self.value(case.returns)
        wanted = sorted(value & (1 << bits) - 1 for value in ([wanted] if case.each is None else case.each))
        results = [result & (1 << bits) - 1 for result in results]
        # All threads of a caller get its result.
        size = len(results) // len(wanted)
        callers = [set(results[i : i + size]) for i in range(0, len(results), size)]
        found = sorted(next(iter(caller)) for caller in callers)
        if found != wanted or any(len(caller) > 1 for caller in callers):
            yield f"callers got {found[:4]}, wanted {wanted[:4]}; {max(map(len, callers))} results in a caller"

    def wrong_words(self, case):
        found = self.words.get().tolist()
        wanted = {i: value for i, value in case.before.items()} | case.changes(self.me, self.n)
        for i in range(cases.HALF):
            if found[cases.OUT + i] != wanted.get(i, 0):
                yield f"word {i} is {found[cases.OUT + i]:#x}, wanted {wanted.get(i, 0):#x}"
                break

    def wrong_error(self, case):
        try:
            self.runtime.check()
        except rushmem.Error as error:
            if not case.fails:
                yield f"an error: {error}"
            elif f"at {case.name} (block 0, thread" not in str(error):
                yield f"the error does not name {case.name}: {error}"
        else:
            if case.fails:
                yield "no error was recorded"


def select(device, names):
    """Makes the PE's GPU the current device of each library."""
    import cupy

    cupy.cuda.Device(device).use()
    if "numba" in names:
        from numba import cuda

        cuda.select_device(device)
    if "triton" in names:
        import torch

        torch.cuda.set_device(device)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("languages", nargs="*", choices=[*LANGUAGES, []], default=list(LANGUAGES))
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--timeout", default="15s", help="deadline of calls, which includes compilation on other PEs")
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    options = parser.parse_args()
    functions = languages.Functions(options.library / "functions.json")
    library = options.library / f"rushmem_device_{options.arch.replace('_', '')}.ll"
    wanted = [case for case in cases.all_cases() if options.only in case.name]
    calls = sorted({case.call for case in wanted})
    failures = 0
    with rushmem.init("gpu", timeout=options.timeout) as runtime:
        select(runtime.device, options.languages)
        suite = Suite(runtime, functions)
        for name in options.languages:
            with tempfile.TemporaryDirectory() as folder:
                make = LANGUAGES[name]
                language = make(calls, functions, library, HERE.parent / "c/include", Path(folder), options.arch)
                run = [case for case in wanted if language.has(case.call)]
                for case in run:
                    for problem in suite.run(language, case):
                        failures += 1
                        print(f"FAIL {language.name}: {case.name}{case.arguments}: {problem}", flush=True)
                print(f"{language.name}: {len(run)} cases on PE {suite.me} of {suite.n}", flush=True)
        del suite.words
        suite.arena.free()
    sys.exit(failures > 0)


main()
