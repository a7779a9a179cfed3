/*
 * The drivers of this build, found by the scheme of a URL.
 */
#include "store/store.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "drivers.h"

/* drivers.h, written by the build, names what was chosen: IDEM_DRIVERS(X). */
#define DECLARE(name) extern const struct idem_driver idem_driver_##name;
IDEM_DRIVERS(DECLARE)

static const struct idem_driver *const drivers[] = {
#define LIST(name) &idem_driver_##name,
    IDEM_DRIVERS(LIST) NULL,
};

static const struct idem_driver *driver_find(const char *scheme) {
    for (size_t i = 0; drivers[i] != NULL; i++)
        for (size_t k = 0; drivers[i]->schemes[k] != NULL; k++)
            if (strcmp(drivers[i]->schemes[k], scheme) == 0)
                return drivers[i];
    return NULL;
}

static int unknown_scheme(const char *scheme, struct idem_error *err) {
    char known[256] = "";
    size_t len = 0;

    for (size_t i = 0; drivers[i] != NULL; i++)
        for (size_t k = 0; drivers[i]->schemes[k] != NULL && len < sizeof(known); k++)
            len += (size_t)snprintf(known + len, sizeof(known) - len, "%s%s:", len == 0 ? "" : ", ",
                                    drivers[i]->schemes[k]);
    return idem_error_set(err, IDEM_E_INVALID, "no store is called \"%.32s:\"; this build has: %s",
                          scheme, known);
}

int idem_store_open(const char *text, struct idem_loop *loop, const struct idem_clock *clock,
                    struct idem_store **ret, struct idem_error *err) {
    const struct idem_driver *driver;
    struct idem_url url;
    int rc = idem_url_parse(text, &url, err);

    if (rc != 0)
        return rc;
    driver = driver_find(url.scheme);
    if (driver == NULL) {
        rc = unknown_scheme(url.scheme, err);
    } else {
        /* Every slot is required. */
        assert(driver->open && driver->close && driver->submit && driver->cancel && driver->watch &&
               driver->unwatch && driver->tally);
        rc = driver->open(&url, loop, clock, ret, err);
        if (rc == 0)
            (*ret)->driver = driver;
    }
    idem_url_release(&url);
    return rc;
}
