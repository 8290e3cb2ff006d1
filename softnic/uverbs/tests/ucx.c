/*
 * Workers of one process put, get, send and add to each other's memory by UCX, and check every byte.
 *
 * Usage: ucx TRANSPORT DEVICE...   (one worker for each device; a device may be given twice)
 */
#include "data.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define MOST 4
#define LONGEST (1 << 20)

static const size_t sizes[] = { 1, 8, 1000, 8192, 65536, LONGEST };

struct worker {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	size_t address_len;
	/* A slot for each writer, its copy of what it sends, what it gets back, and a counter. */
	uint8_t *slots[MOST], *source, *back;
	uint64_t *counter;
	ucp_mem_h memory;
	void *packed;
	size_t packed_len;
	ucp_ep_h ep[MOST];
	ucp_rkey_h rkey[MOST];
};

static struct worker all[MOST];
static int count;

static void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK) {
		fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
		exit(1);
	}
}

/* Progresses every worker until a request has ended. */
static void wait_for(void *request, const char *what)
{
	if (request == NULL)
		return;
	if (UCS_PTR_IS_ERR(request))
		check(UCS_PTR_STATUS(request), what);
	while (ucp_request_check_status(request) == UCS_INPROGRESS)
		for (int i = 0; i < count; i++)
			ucp_worker_progress(all[i].worker);
	check(ucp_request_check_status(request), what);
	ucp_request_free(request);
}

static void start(struct worker *w, const char *transport, const char *device)
{
	ucp_config_t *config;
	char net[64];
	check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	snprintf(net, sizeof(net), "%s:1", device);
	check(ucp_config_modify(config, "TLS", transport), "TLS");
	check(ucp_config_modify(config, "NET_DEVICES", net), "NET_DEVICES");
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_TAG,
	};
	check(ucp_init(&params, config, &w->context), "ucp_init");
	ucp_config_release(config);
	ucp_worker_params_t single = { 0 };
	check(ucp_worker_create(w->context, &single, &w->worker), "ucp_worker_create");
	check(ucp_worker_get_address(w->worker, &w->address, &w->address_len), "ucp_worker_get_address");

	size_t bytes = (size_t)(MOST + 2) * LONGEST + 4096;
	uint8_t *memory = aligned_alloc(4096, bytes);
	memset(memory, 0, bytes);
	ucp_mem_map_params_t map = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = memory,
		.length = bytes,
	};
	check(ucp_mem_map(w->context, &map, &w->memory), "ucp_mem_map");
	check(ucp_rkey_pack(w->context, w->memory, &w->packed, &w->packed_len), "ucp_rkey_pack");
	for (int i = 0; i < MOST; i++)
		w->slots[i] = memory + (size_t)i * LONGEST;
	w->source = memory + (size_t)MOST * LONGEST;
	w->back = w->source + LONGEST;
	w->counter = (uint64_t *)(w->back + LONGEST);
}

static void connect_to(struct worker *from, int to)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
		.address = all[to].address,
	};
	check(ucp_ep_create(from->worker, &params, &from->ep[to]), "ucp_ep_create");
	check(ucp_ep_rkey_unpack(from->ep[to], all[to].packed, &from->rkey[to]), "ucp_ep_rkey_unpack");
}

static void same(const uint8_t *found, const uint8_t *sent, size_t size, const char *what)
{
	if (memcmp(found, sent, size) != 0) {
		fprintf(stderr, "%s of %zu bytes: the data differs\n", what, size);
		exit(1);
	}
}

/* Worker `me` writes to all others at once, reads back, adds and sends. */
static void turn(int me, size_t size, uint32_t seed)
{
	struct worker *w = &all[me];
	ucp_request_param_t plain = { 0 };
	void *requests[MOST] = { NULL };
	fill(w->source, size, seed);
	for (int to = 0; to < count; to++)
		if (to != me)
			requests[to] = ucp_put_nbx(w->ep[to], w->source, size, (uint64_t)(uintptr_t)all[to].slots[me],
						   w->rkey[to], &plain);
	for (int to = 0; to < count; to++)
		wait_for(requests[to], "put");
	for (int to = 0; to < count; to++) {
		if (to == me)
			continue;
		wait_for(ucp_ep_flush_nbx(w->ep[to], &plain), "flush");
		same(all[to].slots[me], w->source, size, "put");
		memset(w->back, 0, size);
		wait_for(ucp_get_nbx(w->ep[to], w->back, size, (uint64_t)(uintptr_t)all[to].slots[me], w->rkey[to],
				     &plain),
			 "get");
		same(w->back, w->source, size, "get");

		uint64_t one = 1, before = 0, expected = *all[to].counter;
		ucp_request_param_t reply = {
			.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
			.datatype = ucp_dt_make_contig(8),
			.reply_buffer = &before,
		};
		wait_for(ucp_atomic_op_nbx(w->ep[to], UCP_ATOMIC_OP_ADD, &one, 1, (uint64_t)(uintptr_t)all[to].counter,
					   w->rkey[to], &reply),
			 "add");
		if (before != expected || *all[to].counter != expected + 1) {
			fprintf(stderr, "add: %llu became %llu\n", (unsigned long long)before,
				(unsigned long long)*all[to].counter);
			exit(1);
		}

		memset(all[to].slots[me], 0, size);
		void *receive =
			ucp_tag_recv_nbx(all[to].worker, all[to].slots[me], size, 100 + me, (ucp_tag_t)-1, &plain);
		void *send = ucp_tag_send_nbx(w->ep[to], w->source, size, 100 + me, &plain);
		wait_for(send, "send");
		wait_for(receive, "receive");
		same(all[to].slots[me], w->source, size, "message");
	}
}

int main(int argc, char **argv)
{
	count = argc - 2;
	if (count < 2 || count > MOST)
		return 2;
	for (int i = 0; i < count; i++)
		start(&all[i], argv[1], argv[2 + i]);
	for (int i = 0; i < count; i++)
		for (int to = 0; to < count; to++)
			if (to != i)
				connect_to(&all[i], to);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int round = 0; round < 3; round++)
			for (int me = 0; me < count; me++)
				turn(me, sizes[i], i * 100 + round * 10 + me);
	ucp_request_param_t plain = { 0 };
	for (int i = 0; i < count; i++)
		for (int to = 0; to < count; to++)
			if (to != i) {
				ucp_rkey_destroy(all[i].rkey[to]);
				wait_for(ucp_ep_close_nbx(all[i].ep[to], &plain), "close");
			}
	for (int i = 0; i < count; i++) {
		ucp_rkey_buffer_release(all[i].packed);
		check(ucp_mem_unmap(all[i].context, all[i].memory), "ucp_mem_unmap");
		ucp_worker_release_address(all[i].worker, all[i].address);
		ucp_worker_destroy(all[i].worker);
		ucp_cleanup(all[i].context);
	}
	puts("all data is right");
	return 0;
}
