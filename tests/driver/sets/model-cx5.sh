# The virtual function of a ConnectX-5.
guests=1
adapter="--link ib --model cx5"

step "device ID" grep -q 0x1018 /sys/class/infiniband/mlx5_0/device/device
step "firmware version" grep -q "^16\." /sys/class/infiniband/mlx5_0/fw_ver
step rate grep -q EDR /sys/class/infiniband/mlx5_0/ports/1/rate
pair ibv_rc_pingpong -c -n 100
