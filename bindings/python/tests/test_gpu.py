"""Streams, graphs and windows on a GPU, which the PEs share. Skipped without PyTorch and a GPU."""

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("pes", [1, 2])
def test_operations_are_queued_on_streams(passes, pes):
    passes("gpu.py", pes, RUSHMEM_DEVICE="gpu", RUSHMEM_HEAP_BYTES="64MiB", RUSHMEM_TIMEOUT="60s")
