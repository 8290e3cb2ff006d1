# No packet of one of two guests reaches the other: the PE that misses acknowledgements names its peer and the QP.
guests=2
adapter_server="--link ib --ip 127.64.77.1 --fault black_hole=127.64.77.2"
adapter_client="--link ib --ip 127.64.77.2"
binaries="rushmem ring"

export RUSHMEM_NIC=mlx5_0 RUSHMEM_PEER_PATH=nic RUSHMEM_LOG=warn

peer_is_named() {
    by_hand ring >/job 2>&1
    rc=$?
    cat /job
    [ $rc = 1 ] && grep -q 'RDMA_WRITE towards PE [01] .*TRANSPORT_RETRY_EXC_ERR' /job
}

step "a peer that does not acknowledge" peer_is_named
