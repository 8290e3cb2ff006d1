# Verbs programs on a physical function, whose driver registers memory by work requests (UMR).
guests=1
adapter="--link ib --function pf"
packages=perftest

pair ibv_rc_pingpong -c -n 100
pair ibv_ud_pingpong -c -n 100
pair ib_write_bw -n 200 -q 4
pair ib_write_bw -s 4194304 -n 20
pair ib_read_bw -n 200
pair ib_send_lat -e -n 100
pair ib_atomic_lat -n 100
pair ib_write_bw -c XRC -n 200
