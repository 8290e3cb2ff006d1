#!/bin/sh
# The first process of a guest: loads the drivers, runs the set of programs in /set.sh, and reports each step on the
# console. A set calls `step` and `pair`.
export PATH=/bin:/usr/bin:/usr/sbin:/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /dev/shm
role=$(sed 's/.*role=\([a-z]*\).*/\1/' /proc/cmdline)
ip link set lo up
while read -r module; do
    insmod "/modules/$module" || echo "== insmod $module: 1"
done </modules/order
case $role in
server) own=10.0.0.1 peer=10.0.0.2 node=0 ;;
client) own=10.0.0.2 peer=10.0.0.1 node=1 ;;
*) own= peer=127.0.0.1 ;;
esac
[ -z "$own" ] || ip addr add $own/24 dev eth0
# A guest that is alone has no Ethernet, unless it is that of the adapter.
[ ! -d /sys/class/net/eth0 ] || ip link set eth0 up

# step NAME COMMAND...: runs a command, and reports its result under this name.
step() {
    name=$1
    shift
    "$@" </dev/null
    echo "== $name: $?"
}

# pair PROGRAM...: runs both ends of a program that takes the address of the server as its last argument.
pair() {
    if [ -n "$own" ]; then step "$*" end "$@"; else step "$*" both "$@"; fi
}

# Whether a program has succeeded, with this exit code and output. On a busy machine, perftest cannot measure the
# emulated clock. It says so after all data has arrived, and fails.
succeeded() {
    [ "$1" = 0 ] || grep -q "^Can't produce a report" "$2" || { cat "$2"; false; }
}

# Runs both ends of a program in this guest.
both() {
    (timeout 60 "$@" >/server 2>&1; echo $? >/server.rc) &
    # The server registers its memory before it listens, which takes longest on a physical function.
    tries=300
    until cat /proc/net/tcp* | grep -q ' 0A ' || [ $tries = 0 ]; do
        tries=$((tries - 1))
        usleep 100000
    done
    timeout 60 "$@" "$peer" >/client 2>&1
    client=$?
    wait
    tail -n 2 /client
    succeeded $client /client && succeeded "$(cat /server.rc)" /server
}

# Returns after both guests have called it as often.
meetings=0
meet() {
    meetings=$((meetings + 1))
    if [ "$role" = server ]; then
        nc -l -p $((2000 + meetings)) >/dev/null
    else
        until echo go | nc -w 5 "$peer" $((2000 + meetings)); do sleep 1; done
    fi
}

# Starts this guest's PE of a job of two, by hand. All nodes need the same token.
by_hand() {
    meet
    RUSHMEM_TOKEN=$(printf %064d 5) timeout 120 rushmem run -n 2 --nodes 2 --node $node --rendezvous 10.0.0.1:7000 "$@"
}

# Runs one end of a program.
end() {
    meet
    if [ "$role" = server ]; then
        timeout 60 "$@" >/log 2>&1
    else
        sleep 2
        timeout 60 "$@" "$peer" >/log 2>&1
    fi
    rc=$?
    tail -n 2 /log
    succeeded $rc /log
}

# Runs one command in the server, and the other one in the client.
by_role() {
    meet
    if [ "$role" = server ]; then
        timeout 60 $1
    else
        sleep 2
        timeout 60 $2
    fi
}

# Waits until the port is active, and describes the device.
port_is_active() {
    tries=50
    until ibv_devinfo 2>/dev/null | grep -q PORT_ACTIVE || [ $tries = 0 ]; do
        tries=$((tries - 1))
        usleep 200000
    done
    ibv_devinfo
    [ $tries != 0 ]
}

# Prints warnings and errors of the drivers, and fails if there are any. Level 4 is a warning.
no_complaints() {
    ! dmesg -r | grep -E '^<[0-4]>' | grep -E 'mlx5|[Ii]nfini[Bb]and|BUG:|WARNING:'
}

unload() {
    rmmod mlx5_ib mlx5_core && no_complaints
}

step ibv_devinfo port_is_active
. /set.sh
step dmesg no_complaints
step rmmod unload
step end true
poweroff -f
