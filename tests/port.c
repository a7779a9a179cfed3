/*
 * Finding a free port.
 */
#include "port.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

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

/* Below those that the kernel gives to connections, so that none of them takes it meanwhile. */
int port_free(void) {
    static unsigned seed;
    int port;

    if (seed == 0)
        seed = (unsigned)getpid() * 2654435761u ^ (unsigned)time(NULL);
    for (int i = 0; i < 1000; i++) {
        port = 10000 + rand_r(&seed) % 12000;
        if (port_is_free(port) && port_is_free(port + 10000))
            return port;
    }
    fprintf(stderr, "# no port is free\n");
    exit(1);
}
