/* Makes certificates with openssl(1). */
#include "certificates.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

void certificates_make(const char *folder, int clock_fd) {
    char command[4096], clock[600] = "";

    if (clock_fd >= 0) {
        fcntl(clock_fd, F_SETFD, 0);
        snprintf(clock, sizeof(clock), "export LD_PRELOAD=%s IDEM_CLOCK_FD=%d && ", CLOCK_PRELOAD,
                 clock_fd);
    }
    snprintf(command, sizeof(command),
             "cd '%s' && exec >openssl.log 2>&1 && %s"
             "req() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \"$@\"; } && "
             "req -x509 -days 4000 -subj /CN=authority -keyout ca.key -out ca.crt && "
             "make() { req -subj /CN=$1 -keyout $1.key -out $1.csr && "
             "printf 'subjectAltName=%%s' $2 >$1.ext && openssl x509 -req -days 4000 -in $1.csr "
             "-CA ca.crt "
             "-CAkey ca.key -CAcreateserial -extfile $1.ext -out $1.crt; } && "
             "make server DNS:localhost,IP:127.0.0.1 && make client DNS:client && "
             "make elsewhere DNS:elsewhere.example",
             folder, clock);
    if (system(command) != 0) {
        fprintf(stderr, "# no certificates: see %s/openssl.log\n", folder);
        exit(1);
    }
}
