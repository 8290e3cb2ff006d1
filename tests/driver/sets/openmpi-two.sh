# Open MPI between two guests, over RoCE.
guests=2
adapter="--link ethernet"
packages=openmpi-bin
sources=softnic/uverbs/tests/mpi.c
compiler=mpicc.openmpi
files=tests/driver/mpi.sh
shared=openmpi
modules="mlx5_ib ib_uverbs"

. /data/mpi.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for transport in rc_v rc_x dc_x ud_v ud_x; do
    step "Open MPI over $transport" ranks $transport mpirun.openmpi --host server,client -n 2 -x UCX_NET_DEVICES \
        -x UCX_TLS -x UCX_WARN_UNUSED_ENV_VARS --mca plm_rsh_agent agent --mca pml ucx --mca osc ucx
done
