# Verbs programs between two guests. Those of libibverbs do not check that the peer is ready.
guests=2
packages=perftest

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
