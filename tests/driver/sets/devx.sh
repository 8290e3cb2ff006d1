# Objects made by raw commands, which pass the kernel's filters. The test is the same as on the software ConnectX.
guests=1
tests=devx

export TEST_HAS_DEVICE=1
run_test() {
    step "$1" devx --exact "$1" --nocapture
}

run_test queue_pairs_made_by_commands_move_data
run_test events_reach_their_files
run_test a_dc_target_is_drained_when_it_is_destroyed
run_test shared_receive_queues_of_xrc_domains_are_made_by_commands
run_test a_refused_command_says_why
run_test counter_sets_are_objects
run_test an_infiniband_port_has_no_roce
for test in a_queue_pair_writes_to_a_dma_buf umems_are_checked; do
    if [ -c /dev/udmabuf ]; then run_test $test; else echo "SKIPPED $test: this kernel exports no dma-bufs (udmabuf)"; fi
done
