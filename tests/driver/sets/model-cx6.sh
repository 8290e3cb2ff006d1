# The physical function of a ConnectX-6.
guests=1
adapter="--link ib --model cx6 --function pf"

step "device ID" grep -q 0x101b /sys/class/infiniband/mlx5_0/device/device
step "firmware version" grep -q "^20\." /sys/class/infiniband/mlx5_0/fw_ver
step rate grep -q HDR /sys/class/infiniband/mlx5_0/ports/1/rate
pair ibv_rc_pingpong -c -n 100
