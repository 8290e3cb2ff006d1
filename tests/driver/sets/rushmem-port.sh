# The port of one of two guests goes down while a job runs: all PEs fail, and name the port.
guests=2
adapter_client="--link ib --fault port_falls_us=10000000"
binaries="rushmem stencil"
files=examples/data/chelsea.png

export RUSHMEM_NIC=mlx5_0 RUSHMEM_PEER_PATH=nic RUSHMEM_LOG=warn

port_fails_the_job() {
    by_hand stencil --steps 100000 /data/chelsea.png >/job 2>&1
    rc=$?
    cat /job
    [ $rc = 1 ] && grep -q 'PE 1: mlx5_0 .* port 1 failed: its port has been down for 1s' /job
}

step "a port that goes down" port_fails_the_job
