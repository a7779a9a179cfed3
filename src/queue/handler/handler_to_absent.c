/*
 * A build without libcurl has no --to: opening it fails.
 */
#include "base/error.h"
#include "queue/handler/handler_open.h"

int handler_to_open(const struct handler_to_config *config, struct idem_loop *loop,
                    struct handler *ret, struct idem_error *err) {
    (void)config;
    (void)loop;
    (void)ret;
    return idem_error_set(
        err, IDEM_E_INVALID,
        "--to: this idem was built without libcurl; build it with -Dcurl=enabled, "
        "or use --exec");
}
