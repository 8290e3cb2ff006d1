# Verbs programs, with both ends in one guest, or by perftest-two.sh between two.
guests=1
packages=perftest

# Those of libibverbs do not check that the peer is ready.
if [ "$role" = alone ]; then
    pair ibv_rc_pingpong -c -n 100
    pair ibv_rc_pingpong -c -e -n 100
    pair ibv_ud_pingpong -c -n 100
    pair ibv_srq_pingpong -c -n 100
fi
pair ib_write_bw -n 200
pair ib_read_bw -n 200
pair ib_send_bw -n 200
pair ib_write_lat -n 100
pair ib_read_lat -n 100
pair ib_send_lat -n 100
pair ib_send_lat -e -n 100
pair ib_atomic_lat -n 100
pair ib_atomic_bw -A CMP_AND_SWAP -n 100
pair ib_write_bw -c UC -n 200
pair ib_write_bw -c XRC -n 200
pair ib_send_bw -c UD -s 1024 -n 200
pair ib_send_bw -c DC -n 200
