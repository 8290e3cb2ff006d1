#!/bin/sh
# The first process of a guest: loads the driver, runs the programs in /programs, and reports on the console.
export PATH=/bin:/usr/bin:/usr/sbin:/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
role=$(sed 's/.*role=\([a-z]*\).*/\1/' /proc/cmdline)
ip link set lo up
while read -r module; do
    insmod "/modules/$module" || echo "== insmod $module: 1"
done </modules/order
case $role in
server) own=10.0.0.1 peer= ;;
client) own=10.0.0.2 peer=10.0.0.1 ;;
*) own= peer=127.0.0.1 ;;
esac
[ -z "$own" ] || { ip addr add $own/24 dev eth0 && ip link set eth0 up; }
tries=50
until ibv_devinfo 2>/dev/null | grep -q PORT_ACTIVE || [ $tries = 0 ]; do
    tries=$((tries - 1))
    usleep 200000
done
ibv_devinfo
echo "== ibv_devinfo: $((tries == 0))"

# Whether a program has succeeded, with this exit code and output. On a busy machine, perftest cannot measure the
# emulated clock. It says so after all data has arrived, and fails.
succeeded() {
    [ "$1" = 0 ] || grep -q "^Can't produce a report" "$2" || { cat "$2"; false; }
}

# Runs both ends of a program in this guest, which takes the address of the server as its last argument.
both() {
    (timeout 60 "$@" >/server 2>&1; echo $? >/server.rc) &
    sleep 2
    timeout 60 "$@" "$peer" >/client 2>&1
    client=$?
    wait
    tail -n 2 /client
    succeeded $client /client && succeeded "$(cat /server.rc)" /server
}

# Runs one end of a program, after both guests have reached it.
end() {
    port=$((2000 + number))
    if [ $role = server ]; then
        nc -l -p $port >/dev/null
        timeout 60 "$@" >/log 2>&1
    else
        until echo go | nc -w 5 "$peer" $port; do sleep 1; done
        sleep 2
        timeout 60 "$@" "$peer" >/log 2>&1
    fi
    rc=$?
    tail -n 2 /log
    succeeded $rc /log
}

number=0
while read -r program; do
    number=$((number + 1))
    # shellcheck disable=SC2086
    if [ -n "$own" ]; then end $program; else both $program; fi </dev/null
    echo "== $program: $?"
done </programs
# Prints warnings and errors of the drivers. Level 4 is a warning.
complaints() {
    dmesg -r | grep -E '^<[0-4]>' | grep -E 'mlx5|[Ii]nfini[Bb]and|BUG:|WARNING:'
}

complaints && echo "== dmesg: 1" || echo "== dmesg: 0"
rmmod mlx5_ib mlx5_core && ! complaints
echo "== rmmod: $?"
poweroff -f
