"""Transfers a paged KV cache between tensors of PyTorch, layer by layer, by puts and by gets of a Triton kernel.

    python -m rushmem run -n 2 kv_torch.py                     # or torchrun --nproc-per-node 2

The first half of the PEs has computed the cache, the second half needs it. Pages are scattered, and differently on both
sides. Prints bandwidths beside a plain copy of the same bytes between the same tensors.

Needs PyTorch, Triton, and GPUs that can access each other's memory. PEs that share a GPU need MPS.
"""

import argparse

import torch
import triton.language as tl

import rushmem
import rushmem.triton as rt

PROGRAMS = 528


@rt.jit
def send(ctx, layer, here, there, pages, arrived, peer, status, PAGE: tl.constexpr):
    """Puts the pages of a layer from the places in `here` to those in `there`. Each program signals that it is done."""
    failed = 0
    for i in range(tl.program_id(0), pages, tl.num_programs(0)):
        source, target = tl.load(here + i).to(tl.int64), tl.load(there + i).to(tl.int64)
        failed |= rt.put_nbi_block(ctx, layer + target * PAGE, layer + source * PAGE, PAGE, peer)
    failed |= rt.fence_block(ctx)
    failed |= rt.signal_op_block(ctx, arrived, 1, rt.SIGNAL_ADD, peer)
    tl.store(status + tl.program_id(0), failed)


@rt.jit
def fetch(ctx, layer, here, there, pages, peer, status, PAGE: tl.constexpr):
    """Gets the pages of a layer from the places in `there` to those in `here`."""
    failed = 0
    for i in range(tl.program_id(0), pages, tl.num_programs(0)):
        target, source = tl.load(here + i).to(tl.int64), tl.load(there + i).to(tl.int64)
        failed |= rt.get_nbi_block(ctx, layer + target * PAGE, layer + source * PAGE, PAGE, peer)
    failed |= rt.quiet_block(ctx)
    tl.store(status + tl.program_id(0), failed)


class Cache:
    """A PE's pool of pages, `[layer][page][element]`, in a tensor that PyTorch has allocated."""

    def __init__(self, runtime, args):
        self.runtime, self.args = runtime, args
        half = runtime.world_size // 2
        self.is_source = runtime.rank < half
        self.peer = (runtime.rank + half) % (2 * half)
        self.page = args.page // 2
        # A few pages belong to no request.
        places = args.pages + args.pages // 8 + 1
        self.pool = torch.zeros((args.layers, places, self.page), dtype=torch.bfloat16, device="cuda")

        def table(pe):
            generator = torch.Generator().manual_seed(pe)
            return torch.randperm(places, generator=generator)[: args.pages].to("cuda", torch.int32)

        self.here, self.there = table(runtime.rank), table(self.peer)
        self.status = torch.zeros(PROGRAMS, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        self.window = runtime.register(self.pool)
        self.words = runtime.zeros(args.layers, "uint64")
        self.arrived = torch.from_dlpack(self.words)
        self.rounds = 0

    def reset(self):
        """Fills the pages of the sources and clears those of the others."""
        generator = torch.Generator("cuda").manual_seed(self.runtime.rank % (self.runtime.world_size // 2))
        self.pool.zero_()
        shape = (self.args.pages, self.page)
        self.wanted = [
            torch.randint(-99, 99, shape, generator=generator, device="cuda", dtype=torch.bfloat16)
            for _ in range(self.args.layers)
        ]
        if self.is_source:
            for layer, pages in zip(self.pool, self.wanted):
                layer[self.here.long()] = pages
        torch.cuda.synchronize()
        self.runtime.barrier()

    def check(self, how):
        torch.cuda.synchronize()
        self.runtime.check()
        self.runtime.barrier()
        assert self.status.abs().max().item() == 0, f"{how} failed: see the error above"
        for number, (layer, pages) in enumerate(zip(self.pool, self.wanted)):
            found = layer[self.here.long()]
            assert torch.equal(found, pages), f"{how}: layer {number} of PE {self.runtime.rank} differs"
        self.runtime.barrier()

    def put(self):
        self.rounds += 1
        for number, layer in enumerate(self.pool):
            if self.is_source:
                send[(PROGRAMS,)](
                    self.runtime.context, layer, self.here, self.there, self.args.pages, self.arrived[number:],
                    self.peer, self.status, PAGE=self.page, num_warps=8,
                )  # fmt: skip
            else:
                wanted, stream = self.rounds * PROGRAMS, torch.cuda.current_stream()
                self.runtime.wait_until(self.words[number], ">=", wanted, stream=stream)

    def get(self):
        for layer in self.pool if not self.is_source else ():
            fetch[(PROGRAMS,)](
                self.runtime.context, layer, self.here, self.there, self.args.pages, self.peer, self.status,
                PAGE=self.page, num_warps=8,
            )  # fmt: skip

    def copy(self):
        """Copies as many bytes to the peer without page tables."""
        if self.is_source:
            count = self.args.layers * self.args.pages * self.page
            self.theirs.flatten()[:count].copy_(self.pool.flatten()[:count])

    def measure(self, call, rounds=8, repetitions=5):
        """Returns the bandwidth of this PE in GB/s, or 0 if it queues nothing: the best of some measurements."""
        best, nbytes = 0.0, self.args.layers * self.args.pages * self.args.page
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(repetitions):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                self.runtime.barrier()
                start.record()
                for _ in range(rounds):
                    call()
                end.record()
                end.synchronize()
                milliseconds = start.elapsed_time(end)
                best = max(best, rounds * nbytes / milliseconds / 1e6) if milliseconds else best
        return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--pages", type=int, default=1024, help="pages per layer")
    parser.add_argument("--page", type=int, default=65536, help="bytes per page")
    args = parser.parse_args()
    # The deadline includes compilation on other PEs.
    with rushmem.init("gpu", timeout="60s") as runtime:
        assert runtime.world_size % 2 == 0, "every PE needs a partner"
        torch.cuda.set_device(runtime.device)
        cache = Cache(runtime, args)
        theirs = cache.window.peer(cache.peer)
        assert theirs is not None, "the GPUs cannot access each other's memory"
        cache.theirs = torch.from_dlpack(theirs)
        speeds = []
        for how, call in ("puts", cache.put), ("gets", cache.get):
            cache.reset()
            call()
            cache.check(how)
            speeds.append(cache.measure(call))
            cache.check(how)
        copy = cache.measure(cache.copy)
        runtime.check()
        runtime.barrier()
        puts, gets = speeds
        if 0 in (runtime.rank, cache.peer):
            done = f"puts {puts:.1f}, a plain copy {copy:.1f}" if cache.is_source else f"gets {gets:.1f}"
            what = f"{args.layers} layers of {args.pages} pages of {args.page} bytes"
            print(f"PASS kv_torch: PE {runtime.rank}, {what}: {done} GB/s")
        del cache.theirs, theirs
        cache.window.unregister()


if __name__ == "__main__":
    main()
