#!/bin/bash
# Builds UCX's own tests of its transports (gtest, part uct), and runs them on the software ConnectX.
#
#   ucx_gtest.sh FOLDER [TRANSPORT ...]
#
# FOLDER has the sources of UCX 1.13.1, the release of Debian 12. It needs autoconf, automake, libtool, make, g++ and
# libibverbs-dev. `rushmem` must be on the search path. Without transports, all of the device run. The variable EXCEPT names
# tests to leave out, as a filter of gtest. The status is 1 if a test fails.
set -euo pipefail

[ $# -ge 1 ] || { echo "usage: $0 FOLDER [TRANSPORT ...]" >&2; exit 2; }
cd "$1"
shift
transports=("$@")
[ $# -gt 0 ] || transports=(rc_verbs rc_mlx5 dc_mlx5 ud_verbs ud_mlx5)

# Parts of the tests: helpers, those of all transports, those of InfiniBand. Tests of tag matching in hardware are left out.
common=(main test_gtest_cmn mem_buffer test_helpers test_obj_size test_watchdog test)
all=(
    test_amo test_amo_add_xor test_amo_and_or test_amo_cswap test_amo_fadd_fxor test_amo_fand_for test_amo_swap
    test_event test_fence test_flush test_many2one_am test_md test_mem test_p2p_am test_p2p_err test_p2p_mix
    test_p2p_rma test_pending test_progress test_uct_ep test_zcopy_comp uct_p2p_test uct_test test_stats
    test_peer_failure
)
ib=(
    test_ib test_ib_md test_cq_moderation test_ib_xfer test_ib_pkey test_ib_event test_devx ud_base test_ud
    test_ud_timer test_ud_pending test_ud_ds test_rc test_dc
)

build() {
    # Without assertions, UCX does not invalidate an idle endpoint of DC, and a test of that fails.
    [ -x configure ] || ./autogen.sh
    [ -f Makefile ] || ./configure --enable-gtest --disable-numa --disable-logging --enable-assertions \
        --disable-doxygen-doc --without-java --without-go --without-cuda --without-rocm --without-xpmem \
        --without-knem --without-ugni --without-valgrind CFLAGS='-O1 -g0' CXXFLAGS='-O0 -g0'
    for part in src/ucm src/ucs src/uct test/gtest/common/googletest; do
        make -j"$(nproc)" -C $part
    done
    cd test/gtest
    objects=()
    for name in "${common[@]}"; do objects+=("common/gtest-$name.o"); done
    for name in "${all[@]}"; do objects+=("uct/gtest-$name.o"); done
    for name in "${ib[@]}"; do objects+=("uct/ib/gtest-$name.o"); done
    make -j"$(nproc)" "${objects[@]}"
    ../../libtool --quiet --tag=CXX --mode=link g++ -fopenmp -no-install -Wl,--export-dynamic -o gtest_uct \
        "${objects[@]}" ../../src/ucs/libucs.la ../../src/uct/libuct.la ../../src/ucm/libucm.la \
        ../../src/uct/ib/libuct_ib.la common/googletest/libgtest.la -libverbs -lmlx5 -lpthread -lrt -ldl
}

echo "building; the log is $PWD/gtest_uct.log"
SECONDS=0
(build) > gtest_uct.log 2>&1 || { tail -20 gtest_uct.log >&2; exit 2; }
echo "built in $SECONDS s"

cd test/gtest
# The adapter does not pin pages, so a cache must not keep registrations of freed memory.
export UCX_IB_REG_METHODS=direct UCX_HANDLE_ERRORS=bt UCX_LOG_LEVEL=warn
status=0
for transport in "${transports[@]}"; do
    SECONDS=0
    log=gtest_uct.$transport.log
    rushmem softnic -- ./gtest_uct --gtest_filter="*$transport*${EXCEPT:+-$EXCEPT}" > "$log" 2>&1 || status=1
    ok=$(grep -c '^\[       OK' "$log" || true)
    skipped=$(grep -c '^\[     SKIP' "$log" || true)
    failed=$(grep -c '^\[  FAILED  \].*ms)' "$log" || true)
    # A skipped test is counted as one that passed, too.
    echo "$transport: $((ok - skipped)) pass, $skipped are skipped, $failed fail, in $SECONDS s"
    grep '^\[  FAILED  \].*ms)' "$log" || true
    # A crash ends a run early.
    grep -q ' test suites\? ran' "$log" || echo "ended within $(grep '^\[ RUN' "$log" | tail -1)"
done
exit $status
