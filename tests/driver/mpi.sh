# Ranks of MPI on two guests.
export UCX_NET_DEVICES=mlx5_0:1 UCX_WARN_UNUSED_ENV_VARS=n HOME=/tmp
hostname "$role"
printf '127.0.0.1 localhost\n10.0.0.1 server\n10.0.0.2 client\n' >/etc/hosts
echo 'root:x:0:0:root:/:/bin/sh' >/etc/passwd

# The remote shell of launchers: `agent HOST COMMAND...`.
printf '#!/bin/sh\nhost=$1\nshift\necho "$*" | nc "$host" 4000\n' >/bin/agent
chmod +x /bin/agent
nc -ll -p 4000 -e /bin/sh </dev/null &

# ranks TRANSPORT LAUNCHER...: starts a rank on each guest, from the first one. Each rank checks its data.
ranks() {
    export UCX_TLS=$1,self
    shift
    meet
    rc=0
    if [ "$role" = server ]; then
        timeout 240 "$@" mpi >/job 2>&1
        rc=$?
        cat /job
        [ "$(grep -c 'all data is right' /job)" = 2 ] || rc=1
    fi
    meet
    return $rc
}
