# Our own RDMA path between two guests, which find each other through an Ethernet.
guests=2
binaries="rushmem ring stencil"
files=examples/data/chelsea.png

export RUSHMEM_NIC=mlx5_0 RUSHMEM_PEER_PATH=nic RUSHMEM_LOG=warn

# Starts the PE of this node as torchrun does.
as_torchrun() {
    meet
    RUSHMEM_TOKEN=$(printf %064d 6) RANK=$node LOCAL_RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.0.0.1 \
        MASTER_PORT=7100 timeout 60 "$@"
}

step "ring by hand" by_hand ring
step "stencil by hand" by_hand stencil --steps 2 /data/chelsea.png
step "ring as by torchrun" as_torchrun ring
