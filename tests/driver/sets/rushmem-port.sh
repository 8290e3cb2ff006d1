# The port of one of two guests goes down while a job runs: all PEs fail, and name the port.
guests=2
adapter_client="--link ib --fault port_falls_us=10000000"
binaries="rushmem stencil"
files=examples/data/chelsea.png

export RUSHMEM_NIC=mlx5_0 RUSHMEM_PEER_PATH=nic RUSHMEM_LOG=warn
[ "$role" = server ] && node=0 || node=1

port_fails_the_job() {
    meet
    RUSHMEM_TOKEN=$(printf %064d 5) timeout 120 rushmem run -n 2 --nodes 2 --node $node --rendezvous 10.0.0.1:7000 \
        stencil --steps 100000 /data/chelsea.png >/job 2>&1
    rc=$?
    cat /job
    [ $rc = 1 ] && grep -q 'PE 1: mlx5_0 .* port 1 failed: its port has been down for 1s' /job
}

step "a port that goes down" port_fails_the_job
