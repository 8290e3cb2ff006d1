# Tools of InfiniBand, which send management datagrams to the own port and to the switch.
guests=1
packages=infiniband-diags
modules="mlx5_ib ib_uverbs ib_umad ib_cm"

lid=$(printf %d "$(cat /sys/class/infiniband/mlx5_0/ports/1/lid)")

# Runs a command whose output has a line that matches a pattern.
shows() {
    pattern=$1
    shift
    "$@" >/log 2>&1 && grep -q "$pattern" /log || { cat /log; false; }
}

step ibstat shows "State: Active" ibstat
step ibstatus shows "phys state:.*LinkUp" ibstatus
step "smpquery nodeinfo" shows "NodeType:.*Channel Adapter" smpquery nodeinfo "$lid"
step "smpquery portinfo" shows "CommunicatonManagement" smpquery portinfo "$lid"
step "smpquery pkeys" shows "0xffff" smpquery pkeys "$lid"
step "smpquery nodedesc" shows "switch" smpquery nodedesc 1
step "smpquery -D" shows "NodeType:.*Switch" smpquery -D nodeinfo 0,1
step sminfo shows "SMINFO_MASTER" sminfo
step ibaddr shows "GID fe80" ibaddr
step perfquery shows "PortXmitPkts" perfquery
step "perfquery -x" shows "PortUnicastXmitPkts" perfquery -x
step "saquery NR" shows "node_type.*Channel Adapter" saquery NR
step "saquery PR" shows "dlid.*$lid" saquery PR
step "saquery PIR" shows "LinkState.*Active" saquery PIR
step iblinkinfo shows "CA:" iblinkinfo
step ibnetdiscover shows "^Switch" ibnetdiscover
