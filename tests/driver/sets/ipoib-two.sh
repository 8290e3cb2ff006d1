# IP over InfiniBand and connections by librdmacm between two guests, and multicast.
guests=2
packages="perftest rdmacm-utils"
modules="mlx5_ib ib_uverbs ib_ipoib rdma_ucm e1000"

# Waits until the network device has joined the broadcast group.
ib0_is_up() {
    tries=100
    until [ "$(cat /sys/class/net/ib0/carrier)" = 1 ] || [ $tries = 0 ]; do
        tries=$((tries - 1))
        usleep 200000
    done
    ip addr show ib0
    [ $tries != 0 ]
}

own_ip=10.1.0.${own##*.} peer_ip=10.1.0.${peer##*.}
ip addr add "$own_ip/24" dev ib0
ip link set ib0 up
step "ib0 is up" ib0_is_up
meet
step ping ping -c 3 -W 5 "$peer_ip"
step "ping with fragments" ping -s 6000 -c 3 -W 5 "$peer_ip"
step rping by_role "rping -s -C 10 -V" "rping -c -C 10 -V -a $peer_ip"
step ucmatose by_role "ucmatose -C 20" "ucmatose -C 20 -s $peer_ip"
step udaddy by_role udaddy "udaddy -s $peer_ip"
step mckey by_role "mckey -m 239.1.2.3 -b $own_ip -C 10" "mckey -m 239.1.2.3 -b $own_ip -C 10 -s"
step "ib_write_bw -R" by_role "ib_write_bw -R -n 100" "ib_write_bw -R -n 100 $peer_ip"
step "ib_send_bw -R over UD" by_role "ib_send_bw -R -c UD -s 1024 -n 100" "ib_send_bw -R -c UD -s 1024 -n 100 $peer_ip"
