# The physical function of a ConnectX-8.
guests=1
adapter="--link ib --model cx8 --function pf"

step "device ID" grep -q 0x1023 /sys/class/infiniband/mlx5_0/device/device
step "firmware version" grep -q "^40\." /sys/class/infiniband/mlx5_0/fw_ver
step rate grep -q NDR /sys/class/infiniband/mlx5_0/ports/1/rate
pair ibv_rc_pingpong -c -n 100
