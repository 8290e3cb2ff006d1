# MPICH between two guests, over RoCE.
guests=2
adapter="--link ethernet"
packages=mpich
sources=softnic/uverbs/tests/mpi.c
compiler=mpicc.mpich
files=tests/driver/mpi.sh
modules="mlx5_ib ib_uverbs"

. /data/mpi.sh
for transport in rc_x ud_v; do
    step "MPICH over $transport" ranks $transport mpiexec.mpich -launcher rsh -launcher-exec agent -hosts server,client -n 2
done
