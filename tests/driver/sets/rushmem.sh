# Our own RDMA path in one guest, through DevX and its filters.
guests=1
binaries="rushmem ring"

export RUSHMEM_NIC=mlx5_0 RUSHMEM_PEER_PATH=nic RUSHMEM_LOG=warn

# Runs doctor, which must find no problem. It notes that there is no GPU.
healthy() {
    rushmem doctor >/doctor
    rc=$?
    cat /doctor
    [ $rc = 0 ] && grep -q 'P5  .*: level of the NIC path: InfiniBand .* doorbells by kernels' /doctor
}

step doctor healthy
step ring rushmem run -n 2 ring
