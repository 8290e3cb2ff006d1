# IP and RoCE between two guests, over the network devices of their functions.
guests=2
adapter="--link ethernet"
packages="perftest rdmacm-utils ucx-utils"
modules="mlx5_ib ib_uverbs rdma_ucm 8021q"

# Sends data to the other guest and back, which the adapters cut into segments with checksums. `nc` exits when its
# input does, so the receiving one has the console's.
transfer() {
    meet
    if [ "$role" = server ]; then
        nc -l -p 3000 </dev/console >/received
        until nc -w 20 "$peer" 3001 </received; do sleep 1; done
    else
        head -c 4000000 /dev/urandom >/sent
        until nc -w 20 "$peer" 3000 </sent; do sleep 1; done
        nc -l -p 3001 </dev/console >/returned
        cmp /sent /returned
    fi
}

# Adds a VLAN, whose tags the adapter removes.
vlan() {
    ip link add link eth0 name eth0.5 type vlan id 5 && ip link set eth0.5 up &&
        ip addr add "10.0.5.${own##*.}/24" dev eth0.5 && meet && ping -c 3 -W 5 "10.0.5.${peer##*.}"
}

meet
step ping ping -c 3 -W 5 "$peer"
step "ping with fragments" ping -s 4000 -c 3 -W 5 "$peer"
step TCP transfer
step VLAN vlan
pair ibv_rc_pingpong -g 1 -c -n 100
pair ib_write_bw -x 1 -n 200
pair ib_read_bw -x 1 -n 200
pair ib_send_bw -x 1 -n 200
pair ib_write_lat -x 1 -n 100
pair ib_send_lat -x 1 -e -n 100
pair ib_atomic_bw -x 1 -n 100
pair ib_write_bw -x 1 -c UC -n 200
pair ib_send_bw -x 1 -c UD -s 1024 -n 200
step rping by_role "rping -s -C 10 -V" "rping -c -C 10 -V -a $peer"
step ucmatose by_role "ucmatose -C 20" "ucmatose -C 20 -s $peer"
step udaddy by_role udaddy "udaddy -s $peer"
step mckey by_role "mckey -m 239.1.2.3 -b $own -C 10" "mckey -m 239.1.2.3 -b $own -C 10 -s"
pair ib_write_bw -R -n 100
export UCX_NET_DEVICES=mlx5_0:1
for transport in rc_v ud_v rc_x; do
    export UCX_TLS=$transport
    step "ucx_perftest over $transport" end ucx_perftest -t tag_bw -s 20000 -n 100 -w 1
done
