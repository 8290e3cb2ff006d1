# The programs of perftest between two guests.
guests=2
packages=perftest
files=tests/driver/sets/perftest.sh

. /data/perftest.sh
