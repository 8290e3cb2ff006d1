# rdma-core's own tests over InfiniBand, with client and server in one process.
guests=1
packages=python3-pyverbs
files=tests/driver/rdma_core.py
shared="doc/rdma-core/tests"

gunzip /usr/share/doc/rdma-core/tests/*.gz
step "rdma-core's tests" python3 -B /data/rdma_core.py 105 --dev mlx5_0 --gid 0
