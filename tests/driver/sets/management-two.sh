# Management datagrams between two guests.
guests=2
packages=infiniband-diags
modules="mlx5_ib ib_uverbs ib_umad ib_cm e1000"

lid=$(printf %d "$(cat /sys/class/infiniband/mlx5_0/ports/1/lid)")
if [ "$role" = server ]; then
    ibping -S &
    meet
    echo "$lid" | nc -l -p 3000
    meet
else
    meet
    until other=$(nc -w 5 "$peer" 3000 </dev/null) && [ -n "$other" ]; do sleep 1; done
    step ibping sh -c "ibping -c 3 $other | grep ' 0% packet loss'"
    step "smpquery nodeinfo" smpquery nodeinfo "$other"
    step "perfquery" perfquery "$other" 1
    step "saquery PR" sh -c "saquery --dlid $other PR | grep 'dlid.*$other'"
    meet
fi
