# Our own jobs between two guests, started by Slurm.
guests=2
packages="slurmctld slurmd slurm-client"
binaries="rushmem ring stencil"
files=examples/data/chelsea.png

export RUSHMEM_NIC=mlx5_0 RUSHMEM_PEER_PATH=nic RUSHMEM_LOG=warn RUSHMEM_BOOTSTRAP_INTERFACE=eth0

hostname "$role"
mount -t cgroup2 none /sys/fs/cgroup && mkdir /sys/fs/cgroup/system.slice
# Debian makes these links when it installs a package.
for daemon in slurmctld slurmd slurmstepd; do ln -s $daemon-wlm /usr/sbin/$daemon; done
mkdir -p /etc/slurm /run/slurm /var/spool/slurm
printf '127.0.0.1 localhost\n10.0.0.1 server\n10.0.0.2 client\n' >/etc/hosts
echo 'root:x:0:0:root:/:/bin/sh' >/etc/passwd
echo 'root:x:0:' >/etc/group
echo 'IgnoreSystemd=yes' >/etc/slurm/cgroup.conf
cat >/etc/slurm/slurm.conf <<'END'
ClusterName=guests
SlurmctldHost=server(10.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmdSpoolDir=/var/spool/slurm
StateSaveLocation=/var/spool/slurm
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES State=UP
NodeName=server NodeAddr=10.0.0.1 CPUs=2 State=UNKNOWN
NodeName=client NodeAddr=10.0.0.2 CPUs=2 State=UNKNOWN
END

# Starts Slurm's daemons, and returns once both nodes are idle.
start_slurm() {
    [ "$role" = client ] || slurmctld -L /run/slurm/log
    meet
    slurmd -L /run/slurm/log
    tries=20
    until [ "$(sinfo -h -t idle -o %D)" = 2 ] || [ $tries = 0 ]; do
        tries=$((tries - 1))
        sleep 1
    done
    [ $tries != 0 ] || { cat /run/slurm/log; false; }
}

# Starts a job on both nodes, from the first one.
by_srun() {
    [ "$role" = client ] || timeout 120 srun --immediate=30 -N 2 -n 2 --ntasks-per-node 1 --mpi=pmi2 "$@"
    rc=$?
    meet
    return $rc
}

step "Slurm's daemons" start_slurm
step "ring by srun" by_srun ring
step "stencil by srun" by_srun stencil --steps 2 /data/chelsea.png
