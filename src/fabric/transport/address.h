/* Addresses that workers listen at, IPv4 and IPv6: parsed, looked up, printed, packed. */
#ifndef LS_FABRIC_TRANSPORT_ADDRESS_H
#define LS_FABRIC_TRANSPORT_ADDRESS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/status.h"

typedef struct ls_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    socklen_t bytes; /* 0: none */
} ls_address;

#define LS_ADDRESS_CHARS  64 /* "[2001:db8::1]:2222", and its zero */
#define LS_MOST_ADDRESSES 16 /* addresses of one worker */

/* "host:2222" or "[::1]:2222"; port 0 to 65535. */
typedef struct ls_host_port {
    char host[256];
    int port;
} ls_host_port;
bool ls_host_port_read(const char *text, ls_host_port *out);

/* Finds up to `room` addresses; the name service may take seconds. */
ls_status ls_address_look_up(const ls_host_port *where, ls_address *out, int room, int *count);
/* false: it is a name, or empty. */
bool ls_address_read(const ls_host_port *where, ls_address *out);

int ls_address_port(const ls_address *a);
void ls_address_set_port(ls_address *a, int port);
bool ls_address_is_any(const ls_address *a); /* 0.0.0.0 or :: */
char *ls_address_print(const ls_address *a, char out[LS_ADDRESS_CHARS]);

/* Finds the local address of packets to `there`; port 0. */
ls_status ls_address_towards(const ls_address *there, ls_address *out);
/* Lists addresses by which others may reach this machine; loopback only if there is no other. */
int ls_address_own(int port, ls_address *out, int room);
/* Returns whether the host is this machine; false if unknown. */
bool ls_host_is_here(const char *host);
bool ls_host_is_loopback(const char *host);

/* 16 bytes of an IPv6 address (IPv4: ::ffff:a.b.c.d), then the port; all zero: none. */
#define LS_PACKED_ADDRESS 18
void ls_address_pack(const ls_address *a, unsigned char out[LS_PACKED_ADDRESS]);
void ls_address_unpack(const unsigned char in[LS_PACKED_ADDRESS], ls_address *out);

#endif
