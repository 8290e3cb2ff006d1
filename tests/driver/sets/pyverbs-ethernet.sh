# rdma-core's own tests over Ethernet, among them those of raw packets and librdmacm.
guests=1
adapter="--link ethernet"
packages="python3-pyverbs iproute2"
modules="mlx5_ib ib_uverbs rdma_ucm"
files=tests/driver/rdma_core.py
shared="doc/rdma-core/tests"

# Tests of raw packets send to a group.
# Not busybox's ip, which the shell prefers.
/bin/ip link set eth0 allmulticast on
ip addr add 10.0.0.1/24 dev eth0
gunzip /usr/share/doc/rdma-core/tests/*.gz
step "rdma-core's tests" python3 -B /data/rdma_core.py 134 --dev mlx5_0
