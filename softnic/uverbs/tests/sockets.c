/*
 * Plain sockets of IP, which librspreload.so makes rsockets.
 *
 * sockets PORT [client]: sends BYTES from the client to the server, which checks them, and a byte back.
 */
#include "check.h"
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 3000000, PIECE = 65536 };

static unsigned char byte_at(int at)
{
	return (uint32_t)at * 2654435761u >> 13;
}

static void wait_for(int fd, int event)
{
	struct pollfd entry = { fd, event, 0 };
	CHECK(poll(&entry, 1, 60000) == 1, "poll");
}

int main(int argc, char **argv)
{
	static unsigned char piece[PIECE];
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CHECK(argc >= 2, "arguments");
	address.sin_port = htons(atoi(argv[1]));
	int client = argc > 2, fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0, "socket");
	if (client) {
		CHECK(!connect(fd, (struct sockaddr *)&address, sizeof(address)), "connect");
	} else {
		int listener = fd;
		CHECK(!bind(listener, (struct sockaddr *)&address, sizeof(address)), "bind");
		CHECK(!listen(listener, 1), "listen");
		fd = accept(listener, NULL, NULL);
		CHECK(fd >= 0, "accept");
		close(listener);
	}
	for (int at = 0; at < BYTES;) {
		ssize_t len = BYTES - at < PIECE ? BYTES - at : PIECE;
		wait_for(fd, client ? POLLOUT : POLLIN);
		for (ssize_t i = 0; client && i < len; i++)
			piece[i] = byte_at(at + i);
		len = client ? write(fd, piece, len) : read(fd, piece, len);
		CHECK(len > 0, "transfer");
		for (ssize_t i = 0; !client && i < len; i++)
			CHECK(piece[i] == byte_at(at + i), "data");
		at += len;
	}
	CHECK((client ? read(fd, piece, 1) : write(fd, "x", 1)) == 1, "answer");
	close(fd);
	puts("all good");
	return 0;
}
