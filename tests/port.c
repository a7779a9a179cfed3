/*
 * Reserving ports. A bind shows that a port is free. But between that and the
 * moment at which the server binds to it, and while the server is killed and
 * started again, another test must not take it: a reservation is an abstract
 * socket named after the port. It needs no file, works across users and build
 * directories, and ends with the process. tests/ports.py takes part in the same
 * scheme.
 */
#include "port.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Below the ports that the kernel gives to outgoing connections. */
#define PORT_FIRST 10000
#define PORT_RANGE 10000 /* so that no port is the bus of another */
#define PORT_BUS 10000   /* a node of a Redis Cluster listens this far above its port, too */

static bool port_is_free(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    if (fd >= 0)
        close(fd);
    return bound;
}

/* The descriptor of the reservation, or -1 if another process has it. */
static int port_reserve(int port) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "idem-test-port-%d", port);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);

    if (fd < 0) {
        perror("# a port cannot be reserved: socket");
        exit(1);
    }
    if (bind(fd, (struct sockaddr *)&name, size) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int port_free(void) {
    static unsigned seed;

    if (seed == 0)
        seed = (unsigned)getpid() * 2654435761u ^ (unsigned)time(NULL);
    for (int i = 0; i < 1000; i++) {
        int port = PORT_FIRST + rand_r(&seed) % PORT_RANGE;
        int fd = port_reserve(port);

        if (fd < 0)
            continue;
        if (port_is_free(port) && port_is_free(port + PORT_BUS))
            return port; /* and the reservation stays open */
        close(fd);
    }
    fprintf(stderr, "# no port is free\n");
    exit(1);
}
