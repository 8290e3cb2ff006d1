# RoCE in one guest, whose GIDs come from the addresses of the function's network device.
guests=1
adapter="--link ethernet"
packages=perftest
modules="mlx5_ib ib_uverbs"

has_gid() {
    ip addr add 10.0.0.1/24 dev eth0 && sleep 1 && ibv_devinfo -v | grep 'GID\[.*::ffff:10.0.0.1, RoCE v2'
}

step "the GID of an address" has_gid
pair ibv_rc_pingpong -g 1 -c -n 100
pair ibv_rc_pingpong -g 1 -c -e -n 100
pair ibv_ud_pingpong -g 1 -c -n 100
pair ib_write_bw -x 1 -n 200
pair ib_send_lat -x 1 -e -n 100
pair ib_atomic_lat -x 1 -n 100
pair ib_send_bw -x 1 -c UD -s 1024 -n 200
