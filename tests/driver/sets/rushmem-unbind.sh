# The driver leaves its device while a job runs.
guests=1
binaries="rushmem ring stencil"
files=examples/data/chelsea.png

export RUSHMEM_NIC=mlx5_0 RUSHMEM_PEER_PATH=nic RUSHMEM_LOG=info
driver=/sys/bus/pci/drivers/mlx5_core
address=0000:01:00.0

# Starts a job, and returns when its kernels run.
start_job() {
    timeout 120 rushmem run -n 2 stencil --steps 100000 /data/chelsea.png >/job 2>&1 &
    job=$!
    until [ "$(grep -c ' up pe=' /job)" = 2 ]; do sleep 1; done
    sleep 5
}

modules_stay() {
    start_job
    ! rmmod mlx5_ib && kill -0 $job
}

unbind_fails_the_job() {
    echo $address >$driver/unbind
    wait $job
    rc=$?
    cat /job
    [ $rc = 1 ] && grep -q 'mlx5_0 .* port 1 failed: the device reports a fatal error' /job
}

device_returns() {
    echo $address >$driver/bind && port_is_active && rushmem run -n 2 ring
}

step "rmmod under load" modules_stay
step "unbind under load" unbind_fails_the_job
step "bind" device_returns
